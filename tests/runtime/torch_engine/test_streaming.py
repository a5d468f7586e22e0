"""Switches where only one copy of the weights fits, with real processes: right by digests, logprobs and tokens, or undone."""

import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import torch
import transformers

from runtime import footprint
from runtime.engine import Finish
from runtime.errors import SwitchError
from runtime.models import Cluster, Gpu, Link, Node, Reason, Topology
from runtime.notation import parse_topology
from runtime.sync.stream import KvSize, plan
from runtime.torch_engine.checkpoint import Checkpoint
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from tests.runtime.torch_engine.conftest import SHAPE
from tests.runtime.torch_engine.test_engine import LAYERS, SETTINGS, Ears, requests, same

pytestmark = pytest.mark.slow

WHOLE = ("CPU[0]:0-5", "CPU[0,1]:0-5", "CPU[1]:0-5", "CPU[1,0]:0-5", "CPU[0]:0-5")
HALVES = (
    "CPU[0,1]:0-5",
    "CPU[0]:0-3 > CPU[1]:3-5",
    "CPU[1,0]:0-5",
    "CPU[1]:0-2 > CPU[0]:2-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
)
"""From one to the next there is memory for one copy of the weights."""
STREAMS = 8
CACHING = dataclasses.replace(SETTINGS, prefix_caching=True)


class FaultyEngine(TorchEngine):
    driver_module = "tests.runtime.torch_engine.faulty_driver"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose weights are much more than its KV."""
    folder = tmp_path_factory.mktemp("wide")
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**{**SHAPE, "intermediate_size": 4096}, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def cluster_of(memory_bytes: int) -> Cluster:
    gpus = tuple(Gpu(index, "CPU", memory_bytes) for index in range(2))
    return Cluster((Node("local", gpus, Link("shared-memory", 5e9, 1e-5)),))


def tight(checkpoint: Path, ways: Sequence[str]) -> Cluster:
    """Devices that hold each of these topologies alone, layers that move one by one, and no two side by side."""
    model, roomy = Checkpoint(checkpoint).spec, cluster_of(1 << 30)
    topologies = [parse_topology(text, roomy, LAYERS, "fp32") for text in ways]
    kv = KvSize(SETTINGS.num_blocks or 0, SETTINGS.block_size)
    peaks = [
        max(plan(*pair, model, kv, dict.fromkeys((0, 1), 1.0)).peak_bytes.values())
        for pair in itertools.pairwise(topologies)
    ]
    return cluster_of(int(max(peaks) / (1 - footprint.HEADROOM)) + 4096)


Serve = Callable[..., AbstractAsyncContextManager[tuple[TorchEngine, Ears, list[Topology]]]]


@pytest.fixture
def serve(checkpoint: Path) -> Serve:
    @asynccontextmanager
    async def start(
        ways: Sequence[str] = WHOLE, kind: type[TorchEngine] = TorchEngine
    ) -> AsyncIterator[tuple[TorchEngine, Ears, list[Topology]]]:
        cluster = tight(checkpoint, ways)
        first, *others = [parse_topology(text, cluster, LAYERS, "fp32") for text in ways]
        engine = await kind.start(checkpoint, first, cluster, CACHING)
        try:
            yield engine, Ears(engine), others
        finally:
            await engine.close()

    return start


class Fault:
    """What goes wrong in a worker, see ``faulty_driver``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def set(self, what: str) -> None:
        self._path.write_text(what)

    def clear(self) -> None:
        self._path.unlink()


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fault:
    path = tmp_path / "fault"
    monkeypatch.setenv("INTENTCTL_TEST_FAULT", str(path))
    return Fault(path)


async def running(engine: TorchEngine, ears: Ears) -> None:
    for request in requests():
        await engine.submit(request)
    await ears.have("r0", 8)


async def prepared(engine: TorchEngine, target: Topology) -> TorchShadow:
    shadow = await engine.prepare(target)
    await shadow.ready()
    return shadow


@pytest.mark.parametrize("ways", [WHOLE, HALVES], ids=["whole", "halves"])
async def test_layers_are_streamed_and_no_byte_logprob_or_token_changes(
    serve: Serve, ways: tuple[str, ...]
) -> None:
    async with serve(ways) as (engine, ears, _):
        await running(engine, ears)
        await ears.all_ended(STREAMS)
        unswitched = ears.said()
    async with serve(ways) as (engine, ears, targets):
        await running(engine, ears)
        for epoch, target in enumerate(targets, start=2):
            shadow = await prepared(engine, target)
            lag = await shadow.lag()
            assert lag.tokens == 0
            assert lag.stop_s > 0, "it is predicted"
            before = await engine.digests()
            cut = await shadow.cut(epoch, deadline_s=30)
            kept = {name: count for name, count in before.positions.items() if name in cut.moved}
            after = await engine.digests(kept)
            still = (await engine.digests()).positions
            changed = {key for key, digest in after.digests.items() if before.digests[key] != digest}
            assert not [key for key in changed if key[0] in still]
            assert cut.paths == {"stream": len(cut.moved)}
            assert cut.moved
            await shadow.release()
            assert (await engine.stats()).standby == ()
        await ears.all_ended(STREAMS)
        same(ears.said(), unswitched)


@pytest.mark.parametrize("layer", [0, 3])
async def test_a_step_that_fails_is_undone_and_the_source_goes_on(
    serve: Serve, fault: Fault, layer: int
) -> None:
    async with serve() as (engine, ears, _):
        await running(engine, ears)
        await ears.all_ended(STREAMS)
        unswitched = ears.said()
    async with serve(kind=FaultyEngine) as (engine, ears, (target, *_)):
        source = engine.topology
        await running(engine, ears)
        await ears.until(
            lambda: "r7" in ears.tokens and bool(ears.tokens["r3"][-1].finish)
        )  # its prefix is cached
        shadow = await prepared(engine, target)
        fault.set(f"raise {layer}")
        with pytest.raises(SwitchError, match="device 1 failed at Exchange: OSError: the disk is") as failed:
            await shadow.cut(2, deadline_s=30)
        assert failed.value.reason is Reason.LOAD_FAILED
        await shadow.abort(Reason.CANCELLED)
        assert engine.topology == source
        await engine.submit(dataclasses.replace(requests()[3], request_id="r3 again"))
        await ears.have("r3 again", 60)
        same({"r3": ears.said()["r3 again"]}, {"r3": unswitched["r3"]})
        fault.clear()
        shadow = await prepared(engine, target)
        await shadow.cut(3, deadline_s=30)
        await shadow.release()
        await ears.all_ended(STREAMS + 1)
        same(ears.said(), unswitched | {"r3 again": unswitched["r3"]})


async def test_a_worker_that_dies_before_anything_has_moved_for_good_leaves_the_source_serving(
    serve: Serve, fault: Fault
) -> None:
    async with serve(kind=FaultyEngine) as (engine, ears, (target, *_)):
        await running(engine, ears)
        shadow = await prepared(engine, target)
        fault.set("die 0")
        with pytest.raises(SwitchError) as failed:
            await shadow.cut(2, deadline_s=30)
        assert failed.value.reason is Reason.RANK_LOST
        await shadow.abort(Reason.RANK_LOST)
        await ears.all_ended(STREAMS)
        assert {tokens[-1].finish for tokens in ears.tokens.values()} == {Finish.LENGTH}


async def test_a_worker_that_dies_with_kv_that_has_moved_ends_the_engine_which_starts_anew(
    serve: Serve, fault: Fault
) -> None:
    async with serve(kind=FaultyEngine) as (engine, ears, (target, *_)):
        source = engine.topology
        await running(engine, ears)
        shadow = await prepared(engine, target)
        fault.set("die 3")
        with pytest.raises(SwitchError) as failed:
            await shadow.cut(2, deadline_s=30)
        assert failed.value.reason is Reason.ENGINE_LOST
        fault.clear()
        await ears.all_ended(STREAMS)
        assert {tokens[-1].finish for tokens in ears.tokens.values()} <= {Finish.ERROR, Finish.LENGTH}
        again = dataclasses.replace(requests()[0], request_id="again")
        await engine.submit(again)
        await ears.all_ended(STREAMS + 1)
        assert ears.tokens["again"][-1].finish is Finish.LENGTH
        assert engine.topology == source


async def test_a_cut_without_time_leaves_the_source_serving(serve: Serve) -> None:
    async with serve() as (engine, ears, (target, *_)):
        await running(engine, ears)
        shadow = await prepared(engine, target)
        with pytest.raises(SwitchError) as failed:
            await shadow.cut(2, deadline_s=0.0)
        assert failed.value.reason is Reason.DEADLINE
        await shadow.abort(Reason.DEADLINE)
        await ears.all_ended(STREAMS)
