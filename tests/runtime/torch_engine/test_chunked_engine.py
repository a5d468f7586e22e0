"""The engine as on GPUs: switches, streams and resizes change no token, and memory returns. Chunks of the host's memory stand in
for a GPU where there is none; with one, several ranks are processes on it."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from benchmarks.gpu.heard import Heard, worst_logprob
from runtime import footprint
from runtime.engine import GenerationRequest, SamplingParams
from runtime.notation import parse_topology
from runtime.sync.stream import KvSize, plan
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from runtime.torch_engine.worker.checkpoint import Checkpoint
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import all_same, same, started

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),  # Triton's interpreter takes its time
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed; it runs the kernels"),
]

LAYERS, HEADS, BLOCKS = 5, 4, 31
SETTINGS = EngineSettings(
    block_size=8,
    num_blocks=BLOCKS,
    max_running=4,
    max_batch_tokens=16,
    closing_batch_tokens=8,
    stop_timeout_s=60,  # Triton's interpreter takes its time
    num_standby=1,
)
CHUNK = 4 * 8 * 2 * 16 * 4
"""Bytes of a chunk of one layer and one KV head."""
CHUNKS = 8
TOKENS = 8
REQUESTS = [
    GenerationRequest(f"r{n}", tuple(7 * j % 101 for j in range(5 + 9 * n)), SamplingParams(TOKENS), 1)
    for n in range(2)
]
LATE = replace(REQUESTS[1], request_id="late", sampling=SamplingParams(100))
"""Begins when the first target is up, by when the others have ended; too long to end before the cut."""


class Driven(TorchEngine):
    driver_module = "tests.runtime.torch_engine.chunked_driver"


async def held(heard: Heard) -> dict[int, int]:
    """Device to chunks that its worker holds."""
    pids = (await heard.engine.stats()).worker_pids
    return {device: held_bytes(pid) // CHUNK for device, pid in pids.items()}


def held_bytes(pid: int) -> int:
    (file,) = (path for path in Path(f"/proc/{pid}/fd").iterdir() if "intentctl-held" in str(path.readlink()))
    return file.stat().st_size


@contextlib.asynccontextmanager
async def serving(
    kind: type[TorchEngine], folder: Path, text: str, memory_bytes: int = 1 << 30
) -> AsyncIterator[Heard]:
    cluster = cluster_of(memory_bytes=memory_bytes)
    async with started(folder, text, cluster, SETTINGS, kind) as engine:
        heard = Heard(engine, cluster)
        await heard.submit(REQUESTS)
        yield heard


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_a_cpu(checkpoints):
    async with serving(TorchEngine, checkpoints["qwen3-tied"], "CPU[0]:0-5") as heard:
        await heard.said(TOKENS)
        await heard.submit([LATE])
        await heard.said(LATE.sampling.max_tokens)
        return heard.tokens


async def cut_early(heard: Heard, text: str) -> None:
    """A switch under a request that has just begun: the interpreter takes its time for each token."""
    shadow = await heard.engine.prepare(heard._topology(text))
    await shadow.ready()
    await heard.submit([LATE])
    await heard.said(2)
    await shadow.lag()
    before = await heard.engine.digests()
    heard.epoch += 1
    await shadow.cut(heard.epoch, deadline_s=100)
    await heard.compare(before)
    await shadow.release()


FULL = LAYERS * HEADS * CHUNKS
ALONE = "CPU[0]:0-5"
STAGES = "CPU[0]:0-2 > CPU[1]:2-5", {0: 2 * HEADS * CHUNKS, 1: 3 * HEADS * CHUNKS}
"""A topology, and the chunks of each device."""
BACK = ALONE, {0: FULL, 1: 0}
"""To what stood by without memory."""
RANKS = "CPU[2,1]:0-5", {0: 0, 1: LAYERS * 2 * CHUNKS, 2: LAYERS * 2 * CHUNKS}


@pytest.mark.parametrize(
    "ways",
    [(BACK,), pytest.param((RANKS, (STAGES[0], STAGES[1] | {2: 0})), marks=pytest.mark.exhaustive)],
    ids=["back", "by way of ranks"],
)
async def test_pools_and_switches_change_no_token_and_memory_follows_the_pieces(checkpoints, on_a_cpu, ways):
    async with serving(Driven, checkpoints["qwen3-tied"], ALONE) as heard:
        await heard.said(2)
        assert await held(heard) == {0: FULL}
        shrunk = await heard.engine.resize(14)  # ids 0 to 13, and the last for probes: chunks 0 to 3, and 7
        assert await held(heard) == {0: LAYERS * HEADS * 5}
        assert shrunk.returned_bytes == (FULL - LAYERS * HEADS * 5) * CHUNK
        await heard.engine.resize(BLOCKS - 1)  # they have chunks again before they return
        assert await held(heard) == {0: FULL}
        await heard.said(TOKENS)
        await cut_early(heard, STAGES[0])
        assert heard.compared
        await heard.engine.cancel("late")
        assert await held(heard) == STAGES[1]
        for text, chunks in ways:
            await heard.switch(text)
            assert await held(heard) == chunks
        late = [token for token in heard.tokens.pop("late") if token.token_id is not None]
        same(late, on_a_cpu["late"][: len(late)])
        all_same(heard.tokens, {name: on_a_cpu[name] for name in ("r0", "r1")})


@pytest.mark.exhaustive
async def test_layers_that_are_streamed_take_their_memory_along(checkpoints, on_a_cpu):
    folder, ways = checkpoints["qwen3-tied"], ("CPU[0,1]:0-5", "CPU[0]:0-2 > CPU[1]:2-5")
    now, target = (parse_topology(text, cluster_of(), LAYERS, "fp32") for text in ways)
    streamed = plan(now, target, Checkpoint(folder).spec, KvSize(BLOCKS, 8), dict.fromkeys((0, 1), 1.0))
    tight = int(max(streamed.peak_bytes.values()) / (1 - footprint.HEADROOM)) + 4096
    async with serving(Driven, folder, ways[0], tight) as heard:
        await heard.said(TOKENS)
        shadow = await heard.engine.prepare(target)
        await shadow.ready()
        await heard.submit([LATE])
        await heard.said(2)
        await shadow.lag()
        assert set((await shadow.cut(2, deadline_s=60)).paths) == {"stream"}
        await shadow.release()
        assert (await heard.engine.stats()).total_blocks == BLOCKS - 1
        assert await held(heard) == {0: 2 * HEADS * CHUNKS, 1: 3 * HEADS * CHUNKS}
        await heard.said(LATE.sampling.max_tokens)
        all_same(heard.tokens, on_a_cpu)


GPU_SETTINGS = EngineSettings(
    block_size=16, num_blocks=4096, max_running=4, max_batch_tokens=64, closing_batch_tokens=16
)
WAYS = ("GPU[0]:0-5", "GPU[0,1]:0-5", "GPU[0]:0-2 > GPU[1]:2-5", "GPU[2,3]:0-3 > GPU[1]:3-5")
WALK = (1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0)
"""From 0 over every ordered pair of these, once."""
SPOKEN = 250
"""Tokens of a stream: more than are said from when a target is up to the cut."""


def streams(cycle: int, epoch: int) -> list[GenerationRequest]:
    """The same in each cycle, under other names."""
    return [
        GenerationRequest(f"g{n}/{cycle}", tuple(7 * j % 101 for j in range(5 + 60 * n)), SamplingParams(SPOKEN), epoch)
        for n in range(3)
    ]


@contextlib.asynccontextmanager
async def on_a_gpu(folder: Path) -> AsyncIterator[Heard]:
    cluster = cluster_of("GPU", 8 << 30)
    async with started(folder, WAYS[0], cluster, GPU_SETTINGS) as engine:
        yield Heard(engine, cluster)


@pytest.mark.gpu
async def test_a_walk_over_topologies_on_one_gpu_changes_no_byte_and_no_token(checkpoints):
    """float32, so that sums in another order choose no other token."""
    async with on_a_gpu(checkpoints["llama-untied"]) as heard:
        await heard.submit(streams(0, 1))
        await heard.said(SPOKEN)
        want = [heard.tokens[f"g{n}/0"] for n in range(3)]
        for cycle, number in enumerate(WALK, start=1):
            await heard.switch(WAYS[number], streams(cycle, cycle))
            assert all(heard.tokens[f"g{n}/{cycle}"][-1].finish is None for n in range(3)), "it outran them"
            await heard.said(SPOKEN)
            for n, tokens in enumerate(want):
                assert worst_logprob(heard.tokens[f"g{n}/{cycle}"], tokens) < 1e-4


@pytest.mark.gpu
async def test_a_pool_that_shrinks_gives_memory_back_to_the_gpu(checkpoints):
    async with on_a_gpu(checkpoints["llama-untied"]) as heard:
        before, _ = torch.cuda.mem_get_info()
        shrunk = await heard.engine.resize(64)
        after, _ = torch.cuda.mem_get_info()
        assert after - before >= 0.9 * shrunk.returned_bytes > 0
