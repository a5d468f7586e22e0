"""Running requests move between real vLLM engines: bytes, logprobs and tokens; and what happens when one is lost."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import EngineState, Finish, SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.machine import SwitchSettings
from runtime.models import Phase
from runtime.process.launcher import SHARED_MEMORY, group_pids
from runtime.process.messages import Command, Stats
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.messages import (
    ForgetPrefixes,
    PageDigests,
    ReleaseRequest,
    Resume,
    Suspend,
    Takeover,
)
from tests.runtime.scripted import reaches
from tests.runtime.test_comeback import Forgetful
from tests.runtime.vllm_engine.streams import (
    KINDS,
    LATE,
    LOGPROB_TOLERANCE,
    OPTIONS,
    SAMPLING,
    TOKENIZER,
    WANTED,
    Streams,
    difference,
    hearing,
    prompts,
    run_through,
    settings,
    topology,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


WAYS = pytest.mark.parametrize(
    ("source", "target"),
    [
        ("1x1", "tp2"),
        ("pp2", "tp2"),
        pytest.param("tp2", "1x1", marks=pytest.mark.exhaustive),
        pytest.param("1x1", "pp2", marks=pytest.mark.exhaustive),
    ],
)


@WAYS
async def test_running_half_prefilled_and_waiting_requests_say_the_same_as_unswitched(
    streams, unswitched, source, target
):
    done = await run_through(streams, unswitched, source, target, "patch")
    assert done.tokens_recomputed == 0


async def test_followed_requests_say_the_same_as_unswitched(streams, unswitched):
    with settings(streams.engine, path="follow"):
        await run_through(streams, unswitched, "1x1", "tp2", "follow")


@WAYS
async def test_every_page_arrives_whole(streams, source, target):
    await streams.be(topology(source))
    shadow = await streams.prepared(topology(target))
    # a prefix that the target has cached is not copied: these it has never seen
    for name, prompt in prompts(salt=1000 + 7 * ord(source[0]) + ord(target[0])).items():
        await streams.submit(name, prompt, SAMPLING)
    await streams.have(20, *prompts())
    await streams.synced(shadow)
    here, there = shadow._source, shadow._target
    await there.call(Suspend(()))  # so that the first step does not write
    state = await here.call(Suspend(tuple(prompts())))
    releases = [ReleaseRequest(name, 0, 0, state.extents[name]) for name in prompts()]
    sent = {name: await here.call(PageDigests(name)) for name in prompts()}
    await there.call(Takeover(releases, shadow._news()))
    arrived = {name: await there.call(PageDigests(name)) for name in prompts()}
    assert arrived == sent
    blocks = -(-state.extents["r5"].num_computed // here.started.block_size)
    assert len(sent["r5"]) == blocks * 8 * 4
    await shadow.abort(Reason.CANCELLED)
    await there.call(Resume(()))


async def test_followed_requests_go_on_as_the_target_would_by_itself(streams):
    """From bfloat16 to float32: the other way round one step of a bfloat16 logit, up to 0.06, can lie between the two."""
    await streams.be(topology("1x1", "bf16"))
    shadow = await streams.prepared(topology("1x1"))
    wanted = prompts() | {name: LATE[name][0] for name in ("half-prefilled", "just admitted")}
    for name, prompt in wanted.items():
        await streams.submit(name, prompt, SamplingParams(max_tokens=400))
    await streams.have(20, *wanted)
    await streams.synced(shadow)
    epoch = streams.ledger.epoch
    done = await streams.cut(shadow)
    await shadow.release()
    await streams.ended(*wanted)
    assert done.paths == {"follow": 14}
    assert done.left_to_drain == ()
    await streams.engine.active.call(ForgetPrefixes())
    counts = {}
    for name, prompt in wanted.items():
        before = [token.token_id for token in streams.said[name] if token.epoch == epoch]
        counts[name] = len(before)
        rest = SamplingParams(max_tokens=400 - len(before))
        await streams.submit(f"{name} continued", (*prompt, *before), rest)
    await streams.ended(*streams.said)
    for name, count in counts.items():
        continued = f"{name} continued"
        assert streams.tokens(name)[count:] == streams.tokens(continued), name
        found = difference(streams.logprobs(name)[count:], streams.logprobs(continued))
        assert found < LOGPROB_TOLERANCE, name


async def test_fifty_switches_between_two_engines_change_no_token_and_leave_every_block_free(streams):
    engine = streams.engine
    await streams.be(topology("tp2"))
    await streams.be(topology("1x1"))
    free = {}
    for shape in ("tp2", "1x1"):
        await streams.be(topology(shape))
        free[shape] = (await engine.stats()).free_blocks
    long = {
        "greedy": SamplingParams(max_tokens=900),
        "seeded": replace(KINDS["seeded penalties"], max_tokens=900),
    }
    for name, sampling in long.items():
        await streams.submit(name, prompts()["r3"], sampling)
    await streams.ended(*long)
    wanted = {f"{name} {number}": name for number in range(2) for name in long}
    for name, kind in wanted.items():
        await streams.submit(name, prompts()["r3"], long[kind])
    moved = 0
    for number in range(50):
        done = await streams.switch(topology("tp2" if number % 2 == 0 else "1x1"))
        moved += len(done.moved)
    assert moved > 100
    await streams.ended(*wanted)
    for name, kind in wanted.items():
        assert streams.tokens(name) == streams.tokens(kind)
    for shape in ("tp2", "1x1"):
        await streams.be(topology(shape))
        stats = await engine.stats()
        assert (stats.free_blocks, stats.running, stats.waiting) == (free[shape], 0, 0)


@pytest.mark.parametrize("target", ["tp2", pytest.param("pp2", marks=pytest.mark.exhaustive)])
async def test_requests_that_end_while_they_are_parked_give_their_blocks_back(streams, target):
    await streams.be(topology(target))
    free = (await streams.engine.stats()).free_blocks
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology(target))
    for name in ("r3", "r4", "r5"):
        await streams.submit(name, prompts(500)[name], SAMPLING)
    await streams.have(5, "r3", "r4", "r5")
    await streams.synced(shadow)
    await streams.engine.cancel("r3")
    await streams.ended("r3")
    await shadow.lag()
    await shadow.abort(Reason.CANCELLED)
    assert (await shadow._target.call(Stats())).free_blocks == free
    await streams.ended("r4", "r5")
    await streams.be(topology(target))
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")


@pytest.mark.parametrize("moment", ["in the sync", "inside the cut"])
async def test_a_source_that_dies_is_started_anew_and_the_target_given_up(streams, monkeypatch, moment):
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology("tp2"))
    await streams.submit("r5", *WANTED["r5"])
    await streams.have(5, "r5")
    await streams.synced(shadow)
    source, call, group = shadow._source, shadow._target.call, streams.engine.active.pid

    async def kill_and_call(command: Command) -> object:
        if isinstance(command, Takeover):
            source.kill()
            while not source.gone:  # noqa: ASYNC110 - heard of by the loop, not by an event
                await asyncio.sleep(0)
        return await call(command)

    if moment == "in the sync":
        os.kill(group, signal.SIGKILL)
        await streams.ended("r5")
    with monkeypatch.context() as patch:
        patch.setattr(shadow._target, "call", kill_and_call)
        with pytest.raises(SwitchError) as refusal:
            await (shadow.lag() if moment == "in the sync" else streams.cut(shadow))
    assert refusal.value.reason is Reason.ENGINE_LOST
    await streams.ended("r5")
    assert streams.said["r5"][-1].finish is Finish.ERROR
    await shadow.abort(refusal.value.reason)
    await reaches(streams.engine, EngineState.SERVING)
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")
    assert streams.engine.topology == topology("1x1")
    assert group_pids(group) == []


async def test_without_room_in_staging_memory_requests_stay(streams):
    await streams.be(topology("1x1"))
    with settings(streams.engine, staging_bytes=3 << 20):
        shadow = await streams.prepared(topology("tp2"))
        await streams.submit("small", prompts()["r0"], SAMPLING)
        await streams.submit("large", prompts()["r5"], SamplingParams(max_tokens=60))
        await streams.have(10, "small", "large")
        await shadow.lag()
        done = await streams.cut(shadow)
        await shadow.release()
    assert done.left_to_drain
    await streams.ended("small", "large")


async def test_a_target_that_dies_after_parking_leaves_the_source_as_it_was(streams, unswitched):
    await streams.be(topology("1x1"))
    shadow = await streams.prepared(topology("pp2"))
    await streams.submit("r5", *WANTED["r5"])
    await streams.have(5, "r5")
    await streams.synced(shadow)
    group = shadow._target.pid
    memory = set(shadow._target.started.shared_memory)
    assert memory
    os.kill(shadow._target.started.pids[1], signal.SIGKILL)
    with pytest.raises(SwitchError) as refusal:
        await streams.cut(shadow)
    await shadow.abort(refusal.value.reason)
    assert refusal.value.reason is Reason.RANK_LOST
    await streams.ended("r5")
    assert streams.tokens("r5") == unswitched.tokens("r5")
    assert streams.epochs("r5") == [streams.ledger.epoch]
    assert group_pids(group) == []
    assert memory.isdisjoint(entry.path for entry in os.scandir(SHARED_MEMORY))


async def test_a_target_that_dies_while_warming_is_given_up(streams):
    await streams.be(topology("1x1"))
    shadow = await streams.engine.prepare(topology("pp2"))
    starting = shadow._starting
    while not (found := _launched(streams.engine)):  # noqa: ASYNC110 - a process tells nobody that it began
        await asyncio.sleep(0)
    os.kill(found, signal.SIGKILL)
    with pytest.raises(SwitchError) as refusal:
        await shadow.ready()
    assert refusal.value.reason is Reason.LOAD_FAILED
    assert starting.done()
    await shadow.abort(refusal.value.reason)
    assert group_pids(found) == []
    await streams.submit("after", prompts()["r0"], SamplingParams(max_tokens=5))
    await streams.ended("after")


async def test_an_engine_that_refuses_an_option_is_told_in_one_line(streams):
    await streams.be(topology("1x1"))
    with settings(streams.engine, options={**OPTIONS, "max_num_seq": 3}):
        shadow = await streams.engine.prepare(topology("pp2", "bf16"))
        with pytest.raises(SwitchError, match=r"no option 'max_num_seq'.*did you mean max_num_seqs"):
            await shadow.ready()
        await shadow.abort(Reason.LOAD_FAILED)


async def test_a_layout_that_cannot_travel_is_refused_by_name(streams):
    await streams.be(topology("1x1"))
    with settings(streams.engine, path="patch"):
        shadow = await streams.engine.prepare(topology("1x1", "bf16"))
        with pytest.raises(SwitchError, match="dtype float32 and bfloat16"):
            await shadow.ready()
        await shadow.abort(Reason.UNSUPPORTED)


def _launched(engine: VllmEngine) -> int | None:
    """The newest driver that this process started and that does not serve yet."""
    known = {engine.active.pid, *(one.pid for one in engine.standby)}
    mine = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in known:
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text()
            except OSError:
                continue
            if fields[1] == mine and "vllm_engine.driver.boot" in command:
                return int(entry.name)
    return None


USUAL = Batching(OPTIONS["max_num_seqs"], OPTIONS["max_num_batched_tokens"])


async def fill_as_usual(streams: Streams) -> None:
    """For the tests that come next."""
    other = streams.engine.active
    shadow = await streams.engine.prepare(other.topology, USUAL)
    await shadow.ready()
    await streams.synced(shadow)
    await streams.cut(shadow)
    await shadow.release()
    streams.engine.standby.remove(other)
    await other.close()
    assert streams.engine.active.started.batching == USUAL


async def test_a_target_that_fills_its_steps_otherwise_takes_all_requests_and_runs_so_many_at_once(streams, unswitched):
    await streams.be(topology("1x1"))
    few = Batching(4, 64)
    assert streams.engine.capabilities.running == USUAL
    shadow = await streams.engine.prepare(topology("1x1"), few)
    await shadow.ready()
    assert shadow._target.started.batching == few, "vLLM's own max_num_seqs and max_num_batched_tokens"
    names = ["r2", "r5", "r8", "r11", "greedy", "presence"]
    for name in names:
        await streams.submit(name, *WANTED[name])
    await streams.have(20, *names)
    assert (await streams.engine.stats()).running == len(names)
    await streams.synced(shadow)
    done = await streams.cut(shadow)
    await shadow.release()
    assert (set(done.moved), streams.engine.capabilities.running) == (set(names), few)
    assert (await streams.engine.stats()).running == few.max_sequences
    await streams.ended(*names)
    assert [streams.tokens(name) for name in names] == [unswitched.tokens(name) for name in names]

    await fill_as_usual(streams)


async def test_where_both_do_not_fit_what_runs_ends_first_and_no_token_is_lost(engine, unswitched):
    """Last, for nothing stands by any more."""
    async with hearing(engine) as streams:
        await streams.be(topology("1x1"))
    engine._epoch = 0
    ran = engine.active
    few = Batching(8, 128)
    spoken: dict[str, list[Delta]] = {"r5": [], "greedy": []}
    async with Router(engine, TOKENIZER) as router:

        async def listen(name: str) -> None:
            prompt, sampling = WANTED[name]
            async for delta in router.generate(prompt, GenerationParams(sampling, ignore_eos=True)):
                if not delta.is_pause:
                    spoken[name].append(delta)

        all_of_it = asyncio.gather(*map(listen, spoken))
        while min(map(len, spoken.values())) < 5:  # noqa: ASYNC110 - a process brings it about
            await asyncio.sleep(0.01)
        coordinator = Coordinator(engine, router, Forgetful(), SwitchSettings())
        report = await coordinator.switch(topology("tp2"), "anew", lambda _: None, few, outage_s=240.0)
        await all_of_it
        assert (router.counts.lost, router.counts.duplicates) == (0, 0)
    assert (report.phase, report.reason, report.paths) == (Phase.DONE, None, {"anew": len(spoken)})
    assert (engine.topology, engine.active.started.batching) == (topology("tp2"), few)
    assert group_pids(ran.pid) == [], "what ran has ended"
    for name, deltas in spoken.items():
        assert [delta.index for delta in deltas] == list(range(len(deltas))), name
        assert [delta.token_id for delta in deltas if delta.token_id is not None] == unswitched.tokens(name), name
    async with hearing(engine) as streams:
        await fill_as_usual(streams)
