"""The torch engine with real processes: a live switch is right by digests, logprobs and tokens; faults stay contained."""

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.capabilities import Batching
from runtime.engine import EngineState, Finish, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, Reason, RequestError, SwitchError
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import reaches
from tests.runtime.torch_engine.ears import CUT_S, LAYERS, SETTINGS, Ears, all_same, hearing, requests, started

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

TOKENS = 50
FEW_TOKENS = 24
WAYS = ("1x1", "tp2", "pp2")
"""From two ranks in each of two stages to smaller ones; the exhaustive walk goes every way."""


def short(name: str, tokens: int = 5, **sampling: float) -> GenerationRequest:
    return GenerationRequest(name, (1, 2, 3), SamplingParams(tokens, **sampling), 1)


async def copy_forever(shadow: TorchShadow) -> None:
    await shadow.ready()
    while True:
        await shadow.lag()


def mapped_groups(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("intentctl-group")


def open_files_of(engine: TorchEngine) -> int:
    return sum(1 for _ in Path(f"/proc/{engine._driver.pid}/fd").iterdir())


def is_alive(pid: int) -> bool:
    """Runs; one that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_switch_changes_no_byte_no_logprob_and_no_token_and_leaves_nothing_behind(engine, ears):
    await ears.be("tp2pp2")
    want = await ears.whole(*requests(TOKENS))
    ears.moves.clear()
    open_files, crowds = [], []
    for shape in WAYS:
        shadow = await ears.prepared(shape)  # on a busy host longer than requests last
        await ears.submit(*requests(TOKENS))
        await ears.have("r0", 3)  # r4 is half-prefilled, r6 and r7 wait for a place
        for _ in range(3):
            await shadow.lag()
        await ears.have("r0", min(TOKENS, len(ears.tokens["r0"]) + 3))  # what was copied is written to again
        before = await engine.digests()
        ears.epoch += 1
        cut = await shadow.cut(ears.epoch, deadline_s=CUT_S)
        after = await engine.digests(before.positions)
        assert set(cut.moved) == want.keys()
        crowds.append((0 < before.positions.get("r4", 0) < 400, "r7" not in before.positions))
        assert len(before.digests) > 100
        assert after.digests == before.digests
        await shadow.release()
        open_files.append(open_files_of(engine))
        await ears.all_ended(8)
        all_same(ears.tokens, want)
        assert {tokens[-1].epoch for tokens in ears.tokens.values()} == {ears.epoch}
        assert await ears.is_free()
        ears.tokens.clear()
    assert len({*open_files[1:]}) == 1
    assert (True, True) in crowds, "one was half-prefilled and one waited"
    assert [move.epoch for move in ears.moves] == list(range(ears.epoch - len(WAYS) + 1, ears.epoch + 1))


async def test_batch_composition_and_chunking_change_nothing_and_closing_ends_every_process(
    ears, checkpoints, cluster, real_start
):
    await ears.be("1x1")
    together = await ears.whole(*requests(FEW_TOKENS))
    for request in requests(FEW_TOKENS):
        all_same(await ears.whole(request), {request.request_id: together[request.request_id]})
    settings = EngineSettings(block_size=16, num_blocks=256, max_running=8, max_batch_tokens=512)
    async with started(checkpoints["qwen3-tied"], "tp2", cluster, settings) as other:
        others = Ears(other)
        all_same(await others.whole(*requests(FEW_TOKENS)), together)
        await others.submit(*requests())
        await others.have("r0", 1)
        pids = [other._driver.pid, *(await other.stats()).worker_pids.values()]
    assert not any(map(is_alive, pids))


async def test_losing_a_rank_only_the_target_needs_aborts_the_switch_and_nothing_else(engine, ears):
    await ears.be("1x1")
    want = await ears.whole(*requests())
    for moment in ("warming", "syncing"):
        await ears.be("1x1")
        await ears.be("pp2")  # so that no other stands by
        await ears.be("1x1")
        await ears.submit(*requests())
        await ears.have("r0", 3)
        shadow = await engine.prepare(ears.topology("tp2"))
        if moment == "syncing":
            await shadow.ready()
            await shadow.lag()
        while 1 not in (pids := (await engine.stats()).worker_pids):
            pass
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(SwitchError, match="device 1") as lost:
            await copy_forever(shadow)
        assert lost.value.reason is Reason.RANK_LOST
        await shadow.abort(lost.value.reason)
        assert (await engine.stats()).worker_pids.keys() == pids.keys() - {1}
        await ears.all_ended(8)
        all_same(ears.tokens, want)
        ears.tokens.clear()
        assert engine.topology.shape == "1x1"
        await ears.switch("tp2")  # and the next switch works
        assert await ears.is_free()


async def test_a_bad_request_is_refused_and_harms_no_other(engine, ears):
    assert engine.capabilities.batching == Batching(SETTINGS.max_running, SETTINGS.max_batch_tokens)
    await ears.be("pp2")
    await ears.submit(short("good", 40))
    for prompt, tokens in (((101,), 5), ((-1,), 5), ((1,), 0), ((), 5), ((1,) * 3000, 10)):
        with pytest.raises(RequestError):
            await ears.submit(GenerationRequest("bad", prompt, SamplingParams(tokens), 1))
    await ears.submit(short("odd", temperature=1e-38, top_p=0.1, seed=-1))
    await ears.all_ended(2)
    assert {tokens[-1].finish for tokens in ears.tokens.values()} == {Finish.LENGTH}


async def test_a_switch_given_up_at_once_can_be_tried_again(engine, ears):
    await ears.be("tp2")
    await ears.be("1x1")
    target = ears.topology("pp2")
    worker = (await engine.stats()).worker_pids[0]
    groups = mapped_groups(worker)
    for _ in range(3):
        shadow = await engine.prepare(target)
        await shadow.abort(Reason.CANCELLED)
    await (await engine.prepare(target)).ready()
    async with asyncio.timeout(120):  # what was being loaded for a dropped role goes when its loading ends
        while mapped_groups(worker) > groups + 1:
            await engine.stats()


async def test_an_aborted_switch_gives_everything_back(engine, ears):
    await ears.be("pp2")
    await ears.be("1x1")
    ears.moves.clear()
    await ears.submit(*requests())
    await ears.have("r0", 3)
    before = None
    for shape in ("tp2", "tp2", "tp2pp2", "tp2pp2"):
        shadow = await ears.synced(shape)
        with pytest.raises(SwitchError, match="another switch"):
            await engine.prepare(ears.topology("pp2"))
        await shadow.abort(Reason.CANCELLED)
        await shadow.abort(Reason.CANCELLED)
        pids = (await engine.stats()).worker_pids
        left = open_files_of(engine) - len(pids), [mapped_groups(pids[device]) for device in (0, 1)]
        assert left == (before := before or left)
    assert mapped_groups(pids[2]) == mapped_groups(pids[3]) == 0
    await ears.all_ended(8)
    assert ears.moves == []
    assert {t.epoch for tokens in ears.tokens.values() for t in tokens} == {ears.epoch}


async def test_a_request_sent_before_the_cut_was_known_speaks_for_the_new_topology(engine, ears):
    await ears.be("1x1")
    await ears.switch("tp2")
    await engine.submit(replace(short("late"), epoch=ears.epoch - 1))
    await ears.all_ended(1)
    last = [(move.epoch, move.request_ids) for move in ears.moves[-2:]]
    assert last == [(ears.epoch, ()), (ears.epoch, ("late",))]
    assert {token.epoch for token in ears.tokens["late"]} == {ears.epoch}


@pytest.mark.parametrize("trouble", ["deadline", "lost rank"])
async def test_a_cut_that_fails_leaves_the_source_serving(engine, ears, trouble):
    await ears.be("1x1")
    ears.moves.clear()
    await ears.submit(*requests())
    await ears.have("r0", 3)
    shadow = await ears.prepared("tp2")
    if trouble == "lost rank":
        os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
    with pytest.raises(SwitchError) as failed:
        await shadow.cut(ears.epoch + 1, deadline_s=CUT_S if trouble == "lost rank" else 0)
    assert failed.value.reason is (Reason.RANK_LOST if trouble == "lost rank" else Reason.DEADLINE)
    await shadow.abort(failed.value.reason)
    await ears.all_ended(8)
    assert ears.moves == []
    assert engine.topology.shape == "1x1"
    assert all(tokens[-1].finish is Finish.LENGTH for tokens in ears.tokens.values())


async def test_losing_what_the_topology_needs_ends_its_requests_with_an_error_and_serves_anew(checkpoints, cluster):
    async with started(checkpoints["qwen3-tied"], "pp2", cluster, SETTINGS) as engine:
        for victim in ("driver", "worker", "worker after the commit"):
            async with hearing(engine) as ears:
                await ears.be("pp2")
                await ears.submit(*requests(tokens=500))
                await ears.have("r0", 3)
                workers = (await engine.stats()).worker_pids
                cutting = None
                if victim == "worker after the commit":  # which it does not undo
                    shadow = await ears.synced("tp2")
                    cutting = asyncio.create_task(shadow.cut(ears.epoch + 1, deadline_s=CUT_S))
                    await ears.until(lambda: any(move.epoch > ears.epoch for move in ears.moves))
                os.kill(engine._driver.pid if victim == "driver" else workers[1], signal.SIGKILL)
                if cutting:
                    assert (await cutting).epoch == ears.epoch + 1
                await ears.all_ended(8)
                for tokens in ears.tokens.values():
                    assert tokens[-1].finish is Finish.ERROR
                    assert "send the request again" in tokens[-1].detail
                    assert [t.index for t in tokens] == [*range(len(tokens) - 1), -1]
                assert engine.topology.shape == ("TP2" if cutting else "PP2")
                ears.tokens.clear()
                if victim == "driver":
                    await ears.switch("tp2")  # waits for the restart
                    assert engine.topology.shape == "TP2"
                while not ears.tokens:
                    with contextlib.suppress(EngineLostError):
                        await ears.submit(short("again", 3))
                        await ears.have("again", 3)
                assert not any(map(is_alive, workers.values()))


async def test_a_spare_that_still_imports_is_not_waited_for(checkpoints, cluster, monkeypatch):
    monkeypatch.setattr("runtime.torch_engine.engine.SPARE_MODULE", "tests.runtime.torch_engine.slow_spare")
    settings = replace(SETTINGS, spare=True)
    async with started(checkpoints["qwen3-tied"], "1x1", cluster, settings) as engine:
        spare = engine._spare
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.RESTARTING)
        await reaches(engine, EngineState.SERVING)
        assert engine._spare is spare
        assert engine._driver is not spare


@pytest.mark.exhaustive
async def test_a_spare_that_hangs_is_given_up_as_soon_as_what_serves_is(checkpoints, cluster, monkeypatch):
    monkeypatch.setattr("runtime.process.liveness.START_S", 3600.0)  # for imports, which it has behind it
    settings = replace(SETTINGS, spare=True, stall_after_s=2.0, lost_after_s=3.0)
    async with started(checkpoints["qwen3-tied"], "1x1", cluster, settings) as engine:
        spare = engine._spare
        while not spare.is_prepared:  # noqa: ASYNC110 - the process brings it about
            await asyncio.sleep(0.01)
        os.kill(spare.pid, signal.SIGSTOP)
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.RESTARTING)
        await reaches(engine, EngineState.SERVING)
        assert engine._driver is not spare
        assert not is_alive(spare.pid)


async def test_an_engine_that_cannot_start_anew_is_tried_again(checkpoints, cluster, tmp_path):
    folder = Path(shutil.copytree(checkpoints["qwen3-tied"], tmp_path / "copy"))
    async with started(folder, "1x1", cluster, SETTINGS) as engine:
        ears = Ears(engine)
        await ears.submit(short("a", 1000))
        (folder / "config.json").rename(tmp_path / "away")
        os.kill(engine._driver.pid, signal.SIGKILL)
        await ears.all_ended(1)
        assert ears.tokens["a"][-1].finish is Finish.ERROR
        await reaches(engine, EngineState.FAILED)
        await engine.cancel("a")
        with pytest.raises(EngineLostError, match=r"could not be started again: .* changed \(config\.json\)"):
            await ears.submit(short("b"))
        (tmp_path / "away").rename(folder / "config.json")
        await reaches(engine, EngineState.SERVING)
        await ears.whole(short("c", 1))


async def test_starting_refuses_what_a_switch_would_refuse(checkpoints, cluster):
    for text, settings, reason in (
        ("CPUx1@fp16", SETTINGS, Reason.UNSUPPORTED),
        ("CPUx1", EngineSettings(num_blocks=50_000), Reason.NO_MEMORY),
    ):
        topology = parse_topology(text, cluster, LAYERS, "fp32")
        with pytest.raises(SwitchError) as refused:
            await TorchEngine.start(checkpoints["qwen3-tied"], topology, cluster, settings)
        assert refused.value.reason is reason


async def test_settings_under_which_some_streams_would_never_decode_are_refused():
    with pytest.raises(ValueError, match="max_running 100 <= closing_batch_tokens 64"):
        EngineSettings(max_running=100)


async def test_steps_are_filled_otherwise_while_requests_run_and_nothing_moves(engine, ears):
    """Then with another topology, too; and by a driver that takes the place of a lost one."""
    await ears.be("tp2pp2")
    want = await ears.whole(*requests(TOKENS))
    most = engine.capabilities.batching
    assert engine.capabilities.running == most == Batching(SETTINGS.max_running, SETTINGS.max_batch_tokens)
    with pytest.raises(SwitchError, match="at most 6 sequences at once, 24 tokens a step"):
        await engine.prepare(engine.topology, Batching(7, 24))
    ears.moves.clear()
    await ears.submit(*requests(TOKENS))
    await ears.have("r0", 3)  # six run, r6 and r7 wait for a place
    shadow = await engine.prepare(engine.topology, Batching(2, 16))
    await shadow.ready()
    assert (await shadow.lag()).tokens == 0
    pids = (await engine.stats()).worker_pids
    cut = await ears.commit(shadow)
    assert (len(cut.moved), cut.bytes_inside) == (8, 0)
    await ears.until(lambda: sum(bool(tokens[-1].finish) for tokens in ears.tokens.values()) >= 6)
    assert (await engine.stats()).running <= 2
    await ears.all_ended(8)
    all_same(ears.tokens, want)
    assert (await engine.stats()).worker_pids == pids
    assert engine.capabilities.running == Batching(2, 16)

    ears.tokens.clear()
    shadow = await engine.prepare(ears.topology("tp2"), Batching(3, 24))
    await shadow.ready()
    await ears.submit(*requests(TOKENS))
    await ears.have("r0", 3)
    assert (await engine.stats()).running == 2
    await ears.commit(shadow)
    await ears.have("r2", 1)
    assert (await engine.stats()).running == 3
    await ears.all_ended(8)
    all_same(ears.tokens, want)
    await ears.switch("1x1")  # says nothing of it
    assert engine.capabilities.running == Batching(3, 24)
    back = await engine.prepare(engine.topology, most)
    await back.ready()
    await ears.commit(back)
