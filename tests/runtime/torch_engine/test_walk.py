"""Every topology to every other, one switch after the other on living workers under load: no byte, logprob or token changes."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from runtime.engine import Request, SamplingParams, Token
from runtime.errors import SwitchError, TopologyError
from runtime.models import Cluster, Reason, Topology
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings

pytestmark = pytest.mark.slow

LAYERS = 5
TOPOLOGIES = (
    "CPU[0]:0-5",
    "CPU[0,1]:0-5",
    "CPU[3]:0-5",
    "CPU[0,1,2,3]:0-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
    "CPU[2]:0-4 > CPU[0]:4-5",
    "CPU[0]:0-1 > CPU[1]:1-3 > CPU[2]:3-4 > CPU[3]:4-5",
    "CPU[1]:0-2 > CPU[2]:2-3 > CPU[0]:3-5",
    "CPU[0,1]:0-3 > CPU[2,3]:3-5",
    "CPU[2,3]:0-1 > CPU[1]:1-5",
    "CPU[0]:0-3 > CPU[1,3]:3-5",
    "CPU[3]:0-1 > CPU[0,1]:1-4 > CPU[2]:4-5",
)
"""On every number of devices, grown, shrunk and moved: uneven splits and a TP degree of its own for each stage among them."""
STACKED = (
    "CPU[0]:0-5",
    "CPU[0,1]:0-5",
    "CPU[3,2,1,0]:0-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
    "CPU[2]:0-4 > CPU[0]:4-5",
    "CPU[2,3]:0-2 > CPU[0,1]:2-5",
    "CPU[0]:0-2 > CPU[3]:2-4 > CPU[1,2]:4-5",
)
"""Where two layers share a slab, stages begin at even ones."""
RUNNING = 16
SETTINGS = EngineSettings(
    block_size=8,
    num_blocks=768,  # fewer than all that was ever said: cached blocks are taken by others
    max_running=RUNNING,
    max_batch_tokens=48,
    closing_batch_tokens=32,
    num_standby=4,  # so that some switches find their target on standby
)


def circuit(count: int) -> list[int]:
    """A round trip over all ordered pairs of so many nodes, each once (Hierholzer's algorithm), back to the first."""
    left = {node: [other for other in range(count) if other != node] for node in range(count)}
    path, found = [0], list[int]()
    while path:
        if onward := left[path[-1]]:
            path.append(onward.pop())
        else:
            found.append(path.pop())
    return found[::-1]


COMMON = tuple(11 * j % 101 for j in range(43))
"""How some prompts begin: five blocks and a part of one."""


def prompts() -> Iterator[tuple[str, tuple[int, ...], int]]:
    """More than run at once, from 1 to 443 tokens; a third of them sampled, each with a seed of its own.

    A quarter of them share a prefix. What they generate differs in length as well, so that they do not end together.
    """
    lengths = [1, 5, 8, 13, 17, 23, 30, 40, 64, 90, 150, 400]
    for number in range(2 * len(lengths)):
        length = lengths[number % len(lengths)]
        own = tuple((31 * number + 7 * j) % 101 for j in range(length))
        yield f"r{number}", COMMON + own if number % 4 == 0 else own, number


class Streams:
    """Streams that never end: each begins anew when it is over. Every run of it must say the same.

    When it begins anew what it said before is in the cache, as far as nobody took the blocks and the target had them.
    """

    def __init__(self, engine: TorchEngine, reference: dict[str, list[Token]] | None = None) -> None:
        self._engine = engine
        self._prompts = {name: (tokens, seed) for name, tokens, seed in prompts()}
        self._news = asyncio.Condition()
        self._said: dict[str, list[Token]] = {}
        self.reference = reference or {}
        self.checked = 0
        self.epoch = 1
        self._cycle = itertools.count()
        self._listening = asyncio.create_task(self._listen())

    async def begin(self) -> None:
        """Submit every stream."""
        for name in self._prompts:
            await self._submit(name)

    async def _submit(self, name: str) -> None:
        tokens, seed = self._prompts[name]
        params = SamplingParams(
            70 + 6 * seed, temperature=0.8 if seed % 3 == 0 else 0.0, top_p=0.95, seed=seed
        )
        await self._engine.submit(Request(f"{name}/{next(self._cycle)}", tokens, params, self.epoch))

    async def _listen(self) -> None:
        async for batch in self._engine.outputs():
            for item in batch:
                if isinstance(item, Token):
                    await self._hear(item)
            async with self._news:
                self._news.notify_all()

    async def _hear(self, token: Token) -> None:
        said = self._said.setdefault(token.request_id, [])
        said.append(token)
        if token.finish is None:
            return
        name = token.request_id.partition("/")[0]
        ended = self._said.pop(token.request_id)
        if name in self.reference:
            same(ended, self.reference[name])
            self.checked += 1
        else:
            self.reference[name] = ended
        await self._submit(name)

    async def until(self, more: int) -> None:
        """Wait until so many more streams have ended and were found right."""
        wanted = self.checked + more
        async with asyncio.timeout(120), self._news:
            await self._news.wait_for(lambda: self._listening.done() or self.checked >= wanted)
        self.raise_failure()

    async def all_heard_once(self) -> None:
        """Wait for the unswitched run of every stream."""
        async with asyncio.timeout(120), self._news:
            await self._news.wait_for(lambda: len(self.reference) == len(self._prompts))

    def stop(self) -> None:
        """Hear no more."""
        self._listening.cancel()

    def raise_failure(self) -> None:
        """What was wrong with a stream."""
        if self._listening.done():
            self._listening.result()


def same(got: Sequence[Token], want: Sequence[Token]) -> None:
    """Equal tokens, every index once, and equal logprobs."""
    assert [token.index for token in got] == list(range(len(want)))
    assert [token.token_id for token in got] == [token.token_id for token in want]
    assert max(abs(a.logprob - b.logprob) for a, b in zip(got, want, strict=True)) < 1e-4


Start = Callable[[EngineSettings], Awaitable[TorchEngine]]


@pytest.fixture
async def start(checkpoints: dict[str, Path], cluster: Cluster) -> AsyncIterator[Start]:
    """An engine with these settings, in place of the one before."""
    topology = parse_topology(TOPOLOGIES[0], cluster, LAYERS, "fp32")
    async with contextlib.AsyncExitStack() as running:

        async def started(settings: EngineSettings) -> TorchEngine:
            await running.aclose()
            engine = await TorchEngine.start(checkpoints["qwen3-tied"], topology, cluster, settings)
            running.push_async_callback(engine.close)
            return engine

        yield started


@pytest.fixture
async def reference(start: Start) -> dict[str, list[Token]]:
    """What every stream says in an engine that neither switches nor caches prefixes."""
    streams = Streams(await start(dataclasses.replace(SETTINGS, prefix_caching=False)))
    await streams.begin()
    await streams.all_heard_once()
    streams.stop()
    return streams.reference


async def move(engine: TorchEngine, target: Topology, epoch: int) -> None:
    """One switch; what the cache held at the cut is there after it, byte for byte."""
    shadow = await engine.prepare(target)
    await shadow.ready()
    while (await shadow.lag()).tokens > RUNNING * SETTINGS.block_size:
        pass
    before = await engine.digests()
    cut = await shadow.cut(epoch, deadline_s=10)
    kept = {name: count for name, count in before.positions.items() if name in cut.moved}
    after = await engine.digests(kept)
    still = (await engine.digests()).positions  # what ended meanwhile gave its blocks to others
    changed = {key for key, digest in after.digests.items() if before.digests[key] != digest}
    assert not [key for key in changed if key[0] in still]
    assert len({key[0] for key in after.digests} & set(still)) >= RUNNING // 4
    await shadow.release()


def test_a_circuit_takes_every_ordered_pair_once() -> None:
    taken = list(itertools.pairwise(circuit(5)))
    assert sorted(taken) == [(a, b) for a in range(5) for b in range(5) if a != b]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("names", "layers_per_slab", "switches"),
    [
        (TOPOLOGIES, 1, 10),
        (STACKED, 2, 8),
        pytest.param(TOPOLOGIES, 1, len(TOPOLOGIES) * (len(TOPOLOGIES) - 1), marks=pytest.mark.exhaustive),
        pytest.param(STACKED, 2, len(STACKED) * (len(STACKED) - 1), marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: str(len(value) if isinstance(value, tuple) else value),
)
async def test_a_walk_over_topologies_changes_no_byte_no_logprob_and_no_token(
    start: Start,
    reference: dict[str, list[Token]],
    cluster: Cluster,
    names: tuple[str, ...],
    layers_per_slab: int,
    switches: int,
) -> None:
    targets = [parse_topology(text, cluster, LAYERS, "fp32") for text in names]
    engine = await start(dataclasses.replace(SETTINGS, layers_per_slab=layers_per_slab))
    streams = Streams(engine, reference)
    await streams.begin()
    await streams.until(len(reference))
    crowds, hits = [], []
    for epoch, node in enumerate(circuit(len(names))[1 : switches + 1], start=2):
        stats = await engine.stats()
        crowds.append((stats.running, stats.waiting))
        hits.append(stats.prefix_cache_hits)
        streams.epoch = epoch
        await move(engine, targets[node], epoch)
        streams.raise_failure()
    await streams.until(2 * RUNNING)
    assert engine.topology == targets[node]
    assert min(running for running, _ in crowds) >= RUNNING - 2, "one may just have ended"
    assert sum(waiting > 0 for _, waiting in crowds) > len(crowds) / 2
    assert sum(after > before for before, after in itertools.pairwise(hits)) > len(hits) / 4


async def test_stages_that_divide_a_slab_are_refused(
    start: Start, checkpoints: dict[str, Path], cluster: Cluster
) -> None:
    divided = parse_topology("CPU[0]:0-3 > CPU[1]:3-5", cluster, LAYERS, "fp32")
    pairs = dataclasses.replace(SETTINGS, layers_per_slab=2)
    engine = await start(pairs)
    with pytest.raises(SwitchError, match=r"stage 1 .* in the middle of a slab of 2 layers") as refused:
        await engine.prepare(divided)
    assert refused.value.reason is Reason.UNSUPPORTED
    with pytest.raises(TopologyError, match="start at a multiple of 2"):
        await TorchEngine.start(checkpoints["qwen3-tied"], divided, cluster, pairs)
