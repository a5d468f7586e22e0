"""Switches where only one copy of the weights fits, with real processes: right by digests, logprobs and tokens, or undone."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from runtime import footprint
from runtime.engine import EngineState, Finish, Token
from runtime.errors import Reason, SwitchError
from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.sync.stream import KvSize, plan
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.worker.checkpoint import Checkpoint
from tests.runtime.scripted import cluster_of, reaches
from tests.runtime.torch_engine.conftest import SHAPE
from tests.runtime.torch_engine.ears import CUT_S, LAYERS, SETTINGS, Ears, all_same, hearing, requests, same, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

WHOLE = ("CPU[0]:0-5", "CPU[0,1]:0-5", "CPU[1]:0-5", "CPU[1,0]:0-5", "CPU[0]:0-5")
HALVES = (
    "CPU[0,1]:0-5",
    "CPU[0]:0-3 > CPU[1]:3-5",
    "CPU[1,0]:0-5",
    "CPU[1]:0-2 > CPU[0]:2-5",
    "CPU[0]:0-2 > CPU[1]:2-5",
)
"""From one to the next there is memory for one copy of the weights."""
TOKENS = 48
"""Of a stream."""
CACHING = dataclasses.replace(SETTINGS, prefix_caching=True, check_copies=True)


class FaultyEngine(TorchEngine):
    driver_module = "tests.runtime.torch_engine.driver.faulty_driver"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose weights are much more than its KV."""
    folder = tmp_path_factory.mktemp("wide")
    torch.manual_seed(3)
    import transformers

    config = transformers.LlamaConfig(**{**SHAPE, "intermediate_size": 4096}, tie_word_embeddings=False)
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def tight(checkpoint: Path, ways: Sequence[str]) -> Cluster:
    """Devices that hold each of these topologies alone, layers that move one by one, and no two side by side."""
    model, roomy = Checkpoint(checkpoint).spec, cluster_of(count=2)
    topologies = [parse_topology(text, roomy, LAYERS, "fp32") for text in ways]
    kv = KvSize(SETTINGS.num_blocks or 0, SETTINGS.block_size)
    peaks = [
        max(plan(*pair, model, kv, dict.fromkeys((0, 1), 1.0)).peak_bytes.values())
        for pair in itertools.pairwise(topologies)
    ]
    return cluster_of(memory_bytes=int(max(peaks) / (1 - footprint.HEADROOM)) + 4096, count=2)


@pytest.fixture(scope="module")
def fault(tmp_path_factory):
    """The file that says what goes wrong in a worker, see ``faulty_driver``; nothing does without it."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("faults") / "fault"
        patch.setenv("INTENTCTL_TEST_FAULT", str(path))
        yield path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(checkpoint, fault):
    async with started(checkpoint, WHOLE[0], tight(checkpoint, WHOLE), CACHING, FaultyEngine) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unswitched(engine):
    """What each stream says."""
    async with hearing(engine) as ears:
        return await ears.whole(*requests(TOKENS))


@pytest_asyncio.fixture(loop_scope="module")
async def ears(engine, unswitched, fault):
    """Of an engine that runs as it was started, and has no prefix cached."""
    fault.unlink(missing_ok=True)
    async with hearing(engine) as made:
        await made.be(WHOLE[0])
        await made.forget_prefixes()
        yield made


async def running(ears: Ears) -> None:
    await ears.submit(*requests(TOKENS))
    await ears.have("r0", 3)


async def streamed(ears: Ears, targets: Sequence[str], unswitched: dict[str, list[Token]]) -> None:
    """By way of these, with streams of which no byte, logprob or token changes."""
    for target in targets:
        shadow = await ears.prepared(target)  # on a busy machine this takes longer than what is said
        await running(ears)
        lag = await shadow.lag()
        assert lag.tokens == 0
        assert lag.stop_s > 0, "it is predicted"
        before = await ears.engine.digests()
        ears.epoch += 1
        cut = await shadow.cut(ears.epoch, deadline_s=CUT_S)
        kept = {name: count for name, count in before.positions.items() if name in cut.moved}
        after = await ears.engine.digests(kept)
        still = (await ears.engine.digests()).positions
        changed = {key for key, digest in after.digests.items() if before.digests[key] != digest}
        assert not [key for key in changed if key[0] in still]
        assert cut.paths == {"stream": len(cut.moved)}
        assert cut.moved
        await shadow.release()
        assert (await ears.engine.stats()).standby == ()
        await ears.all_ended(len(requests(TOKENS)))
        all_same(ears.tokens, unswitched)
        ears.tokens.clear()


async def test_layers_are_streamed_and_no_byte_logprob_or_token_changes(ears, unswitched):
    await streamed(ears, WHOLE[1:], unswitched)


@pytest.mark.exhaustive
async def test_halves_of_layers_are_streamed_and_no_byte_logprob_or_token_changes(checkpoint, unswitched):
    cluster = tight(checkpoint, HALVES)
    async with started(checkpoint, HALVES[0], cluster, CACHING) as engine, hearing(engine) as ears:
        await streamed(ears, HALVES[1:], unswitched)


@pytest.mark.parametrize("layer", [0, 3])
async def test_a_step_that_fails_is_undone_and_the_source_goes_on(engine, ears, unswitched, fault, layer):
    source = engine.topology
    shadow = await ears.prepared(WHOLE[1])
    await running(ears)
    await ears.until(lambda: "r7" in ears.tokens and bool(ears.tokens["r3"][-1].finish))  # its prefix is cached
    fault.write_text(f"raise {layer}")
    with pytest.raises(SwitchError, match="device 1 failed at Exchange: OSError: the disk is") as failed:
        await shadow.cut(ears.epoch + 1, deadline_s=CUT_S)
    assert failed.value.reason is Reason.LOAD_FAILED
    await shadow.abort(Reason.CANCELLED)
    assert engine.topology == source
    again = await ears.whole(dataclasses.replace(requests(TOKENS)[3], request_id="r3 again"))
    same(again["r3 again"], unswitched["r3"])
    fault.unlink()
    ears.epoch += 1
    await ears.commit(await ears.prepared(WHOLE[1]))
    await ears.all_ended(len(requests(TOKENS)))
    all_same(ears.tokens, unswitched)


async def test_a_layer_with_wrong_bytes_is_noticed_and_the_source_goes_on(ears, unswitched, fault):
    shadow = await ears.prepared(WHOLE[1])
    await running(ears)
    fault.write_text("flip 0")
    with pytest.raises(SwitchError, match="KV has other bytes on device 1 than on device 0"):
        await shadow.cut(ears.epoch + 1, deadline_s=CUT_S)
    fault.unlink()
    await shadow.abort(Reason.LOAD_FAILED)
    await ears.all_ended(len(requests(TOKENS)))
    all_same(ears.tokens, unswitched)


async def test_a_worker_that_dies_before_anything_has_moved_for_good_leaves_the_source_serving(ears, fault):
    shadow = await ears.prepared(WHOLE[1])
    await running(ears)
    fault.write_text("die 0")
    with pytest.raises(SwitchError) as failed:
        await shadow.cut(ears.epoch + 1, deadline_s=CUT_S)
    assert failed.value.reason is Reason.RANK_LOST
    await shadow.abort(Reason.RANK_LOST)
    await ears.all_ended(len(requests(TOKENS)))
    assert {tokens[-1].finish for tokens in ears.tokens.values()} == {Finish.LENGTH}


async def test_a_worker_that_dies_with_kv_that_has_moved_ends_the_engine_which_starts_anew(engine, ears, fault):
    source = engine.topology
    shadow = await ears.prepared(WHOLE[1])
    await running(ears)
    fault.write_text("die 3")
    with pytest.raises(SwitchError) as failed:
        await shadow.cut(ears.epoch + 1, deadline_s=CUT_S)
    assert failed.value.reason is Reason.ENGINE_LOST
    fault.unlink()
    await ears.all_ended(len(requests(TOKENS)))
    assert {tokens[-1].finish for tokens in ears.tokens.values()} <= {Finish.ERROR, Finish.LENGTH}
    await reaches(engine, EngineState.SERVING)
    again = await ears.whole(dataclasses.replace(requests(TOKENS)[0], request_id="again"))
    assert again["again"][-1].finish is Finish.LENGTH
    assert engine.topology == source


async def test_a_cut_without_time_leaves_the_source_serving(ears):
    shadow = await ears.prepared(WHOLE[1])
    await running(ears)
    with pytest.raises(SwitchError) as failed:
        await shadow.cut(ears.epoch + 1, deadline_s=0.0)
    assert failed.value.reason is Reason.DEADLINE
    await shadow.abort(Reason.DEADLINE)
    await ears.all_ended(len(requests(TOKENS)))
