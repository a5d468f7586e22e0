"""A set of replicas behind the real router and coordinator: who serves, what a change does, and what a loss costs."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import EngineState, EngineStats, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, EngineStartError, Reason, RequestError, StreamError
from runtime.machine import SwitchSettings
from runtime.models import CutoverReport, Phase, Topology
from runtime.replicas.choice import Measured, ReplicaSpeed
from runtime.replicas.engine import PROBED, ReplicaSet
from runtime.replicas.replica import Policy, Share
from runtime.replicas.transition import Transition
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from tests.rows import rows
from tests.runtime.replicas.test_steps import replica
from tests.runtime.scripted import Script, ScriptedEngine
from tests.runtime.test_coordinator import MemoryJournal
from tests.runtime.test_router import letters_alone, settled, text_of

A = replica((0,), (1,))
B = replica((2, 3))
C = replica((4,))
LETTERS = letters_alone()


@dataclass(slots=True)
class Bench:
    """Two replicas, what starts beside them, and everything they said."""

    engines: dict[Topology, ScriptedEngine]
    replicas: ReplicaSet
    router: Router
    started: list[Topology] = field(default_factory=list)

    @property
    def coordinator(self) -> Coordinator:
        return Coordinator(self.replicas, self.router, MemoryJournal(self.engines[A]), SwitchSettings())

    async def switch(self, *target: Topology, batching: Batching | None = None) -> CutoverReport:
        return await self.coordinator.switch(Topology.of_replicas(target), "switch-1", lambda _: None, batching)

    async def generate(self, prompt: str, tokens: int = 10, tenant: str = "") -> list[Delta]:
        params = GenerationParams(SamplingParams(tokens), tenant=tenant)
        return [delta async for delta in self.router.generate(prompt, params)]

    async def begun(self, *prompts: str) -> list[asyncio.Task[list[Delta]]]:
        """Streams of ten tokens on what serves, each with two of them there."""
        for engine in self.engines.values():
            engine.hold()
        tasks = [asyncio.create_task(self.generate(prompt)) for prompt in prompts]
        await comes(lambda: sum(self.heard()) == len(prompts))
        for engine in self.engines.values():
            for _ in range(3):
                engine.turn()
        await settled(self.engines[A])
        return tasks

    async def begun_of(self, tenant: str) -> list[asyncio.Task[list[Delta]]]:
        """A stream of a tenant on the first replica, which has two tokens."""
        first = self.engines[A]
        for engine in self.engines.values():
            engine.hold()
        before = len(first.heard)
        task = asyncio.create_task(self.generate("abc", tenant=tenant))
        await comes(lambda: len(first.heard) > before)
        for _ in range(3):
            first.turn()
        await settled(first)
        return [task]

    def resume(self) -> None:
        for engine in self.engines.values():
            engine.resume()

    def heard(self) -> list[int]:
        return [len(engine.heard) for engine in self.engines.values()]


async def comes(is_so: Callable[[], bool]) -> None:
    """Let the event loop go on until something follows."""
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 - several engines bring it about
            await asyncio.sleep(0)


def spoken(prompt: str, tokens: int = 10) -> str:
    return (prompt * tokens)[:tokens]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    engines = {each: ScriptedEngine(each, max_running=64) for each in (A, B)}

    async def start(topology: Topology, batching: Batching | None) -> ScriptedEngine:
        if topology == replica((7,)):
            raise EngineStartError("device 7 is on fire")
        engines[topology] = ScriptedEngine(topology, max_running=64)
        return engines[topology]

    replicas = ReplicaSet([*engines.values()], start)
    async with Router(replicas, LETTERS) as router:
        yield Bench(engines, replicas, router)
    await replicas.close()


async def test_requests_go_to_whoever_has_less_to_do_and_say_why(bench):
    tasks = await bench.begun("abc", "abd", "abe", "abf")
    assert bench.heard() == [2, 2]
    bench.resume()
    answers = await asyncio.gather(*tasks)
    assert [text_of(deltas) for deltas in answers] == [spoken(prompt) for prompt in ("abc", "abd", "abe", "abf")]
    first, *others = answers[0]
    assert "else CPU" in first.route.replace("cpu", "CPU")
    assert not any(delta.route for delta in others)


async def test_an_idle_replica_that_was_passed_over_long_is_tried_again(bench):
    slow = bench.replicas.replicas[0]
    slow.measured = Measured(decoding=100.0)
    for _ in range(PROBED):
        await bench.generate("abc", 2)
    assert bench.heard() == [1, PROBED - 1]
    assert slow.measured.decoding < 100


async def test_a_slow_replica_is_given_less(bench):
    bench.replicas.policy = Policy({str(A): Share(0.0, speed=ReplicaSpeed(sequence_s=0.005, step_s=0.05))})
    tasks = await bench.begun(*("abcdefgh"[place:] for place in range(8)))
    slow, fast = bench.heard()
    assert slow < fast
    bench.resume()
    await asyncio.gather(*tasks)


async def test_a_tenant_has_replicas_that_are_not_for_it(bench):
    bench.replicas.policy = Policy({str(A): Share(0.5, frozenset({"acme"})), str(B): Share(0.5, frozenset({"free"}))})
    for _ in range(3):
        await bench.generate("abc", tenant="acme")
    assert bench.heard() == [0, 3]
    await bench.generate("abc", tenant="free")
    assert bench.heard() == [1, 3]
    bench.replicas.policy = Policy(dict.fromkeys(map(str, (A, B)), Share(0.5, frozenset({"other"}))))
    with pytest.raises(RequestError, match="no replica may serve the tenant 'other'"):
        await bench.generate("abc", tenant="other")


async def test_streams_of_a_lost_replica_go_on_in_the_others_at_once(bench):
    tasks = await bench.begun("abc", "abd", "abe", "abf")
    lost = bench.engines[A]
    lost.state = EngineState.RESTARTING
    lost.is_away = True
    lost.fail("the driver was killed", is_lost=True)
    bench.resume()
    answers = await asyncio.gather(*tasks)
    assert [text_of(deltas) for deltas in answers] == [spoken(prompt) for prompt in ("abc", "abd", "abe", "abf")]
    assert [[delta.index for delta in deltas] for deltas in answers] == [[*range(10)]] * 4
    assert [request.past for request in bench.engines[B].heard] == [(), (), (1, 2), (1, 2)]
    assert (bench.router.counts.lost, bench.router.counts.duplicates) == (0, 0)
    assert bench.replicas.state is EngineState.SERVING
    assert text_of(await bench.generate("xyz")) == spoken("xyz")


async def test_a_replica_that_refuses_in_the_last_moment_is_passed_over(bench):
    bench.engines[A].is_away = True
    assert text_of(await bench.generate("abc")) == spoken("abc")
    assert bench.heard() == [0, 1]


async def test_where_none_serves_requests_wait_for_the_first_that_comes_back(bench):
    for engine in bench.engines.values():
        engine.is_away = True
        engine.state = EngineState.RESTARTING
    task = asyncio.create_task(bench.generate("abc"))
    await settled(bench.engines[A])
    bench.engines[B].is_away = False
    bench.engines[B].state = EngineState.SERVING
    assert text_of(await task) == spoken("abc")


async def test_one_switches_while_the_other_serves(bench):
    tasks = await bench.begun("abc", "abd")
    bench.engines[A].script = Script(silent_while=Phase.WARMING)
    switch = asyncio.create_task(bench.switch(replica((0, 1)), B))
    await bench.engines[A].until(lambda: "ready" in bench.engines[A].calls)
    bench.resume()
    assert text_of(await bench.generate("xyz")) == spoken("xyz")
    assert bench.heard() == [1, 2], "what is about to switch is avoided"
    bench.engines[A].answer()
    report = await switch
    assert report.phase is Phase.DONE
    assert bench.replicas.topology == Topology.of_replicas([replica((0, 1)), B])
    for prompt, task in zip(("abc", "abd"), tasks, strict=True):
        assert text_of(await task) == spoken(prompt)
    assert not any(each.is_avoided for each in bench.replicas.replicas)


async def test_another_one_starts_and_takes_its_part(bench):
    report = await bench.switch(A, B, C)
    assert report.phase is Phase.DONE
    assert bench.replicas.topology == Topology.of_replicas([A, B, C])
    tasks = await bench.begun("abc", "abd", "abe")
    assert bench.heard() == [1, 1, 1]
    bench.resume()
    answers = await asyncio.gather(*tasks)
    assert {deltas[0].fingerprint for deltas in answers} == {f"1-{bench.replicas.topology.shape}"}


async def test_what_does_not_start_changes_nothing(bench):
    report = await bench.switch(A, B, replica((7,)))
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.LOAD_FAILED)
    assert "on fire" in report.detail
    assert bench.replicas.topology == Topology.of_replicas([A, B])


async def test_one_stops_when_what_it_has_has_ended(bench):
    tasks = await bench.begun("abc", "abd")
    switch = asyncio.create_task(bench.switch(B))
    await comes(lambda: bench.replicas.topology == B)
    bench.resume()
    report = await switch
    assert (report.phase, report.left_to_drain) == (Phase.DONE, 1)
    assert [text_of(await task) for task in tasks] == [spoken("abc"), spoken("abd")]
    assert [request.past for request in bench.engines[B].heard] == [()]
    assert bench.engines[A].state is EngineState.FAILED, "its engine was closed"


async def test_when_time_is_up_the_others_go_on_with_it(bench):
    tasks = await bench.begun("abc", "abd")
    bench.replicas.patience_s = 3600
    switch = asyncio.create_task(bench.switch(B))
    await comes(lambda: bench.replicas.topology == B)
    await settled(bench.engines[A])
    bench.replicas.be_patient(0)
    bench.engines[B].resume()
    assert [text_of(await task) for task in tasks] == [spoken("abc"), spoken("abd")]
    assert (await switch).phase is Phase.DONE
    assert [request.past for request in bench.engines[B].heard] == [(), (1, 2)]
    assert (bench.router.counts.lost, bench.router.counts.duplicates) == (0, 0)


async def test_what_a_replica_says_of_a_request_that_was_given_away_is_dropped(bench):
    (task, _) = await bench.begun("abc", "abd")
    bench.replicas.patience_s = 0
    switch = asyncio.create_task(bench.switch(B))
    await comes(lambda: bench.replicas.topology == B)
    bench.engines[A].turn()
    bench.engines[A].turn()
    bench.resume()
    assert text_of(await task) == spoken("abc")
    await switch


async def test_steps_of_one_are_filled_otherwise(bench):
    usual = bench.engines[A].capabilities.batching
    small = Batching(8, 64)
    report = await bench.switch(A, B, batching=Batching.of_replicas([usual, small]))
    assert report.phase is Phase.DONE
    assert bench.replicas.capabilities.running == Batching.of_replicas([usual, small])
    assert bench.engines[B].capabilities.running == small


async def transition(bench: Bench, *target: Topology) -> tuple[CutoverReport, list[Phase]]:
    """All the way to a target, and the phases that were told."""
    told = list[Phase]()
    way = Transition(bench.coordinator, bench.replicas, "op-1", lambda progress: told.append(progress.phase))
    return await way.run(Topology.of_replicas(target), None), told


async def test_all_changes_to_a_target_are_one_report(bench):
    report, told = await transition(bench, replica((0, 1)), C)
    assert (report.phase, report.source) == (Phase.DONE, str(Topology.of_replicas([A, B])))
    assert bench.replicas.topology == Topology.of_replicas([replica((0, 1)), C])
    assert told.count(Phase.DONE) == 1
    assert told.count(Phase.COMMITTED) == 2


async def test_a_transition_that_nobody_wants_between_two_cuts_is_undone(bench):
    (task, _) = await bench.begun("abc", "abd")
    bench.replicas.patience_s = 3600
    way = Transition(bench.coordinator, bench.replicas, "op-1", lambda _: None)
    under_way = asyncio.create_task(way.run(replica((0, 1, 2, 3)), None))
    await comes(
        lambda: len(bench.replicas.replicas) == 1
    )  # one stops, and waits for what it has; then the other switches
    assert way.give_up()
    bench.resume()
    report = await under_way
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.CANCELLED)
    assert bench.replicas.topology == Topology.of_replicas([A, B])
    assert text_of(await task) == spoken("abc")


async def test_what_is_lost_for_good_gives_its_devices_to_another(bench):
    bench.engines[A].lose("device 1 is gone")
    await settled(bench.engines[B])
    report, _ = await transition(bench, replica((0,)), B)
    assert report.phase is Phase.DONE, report.detail
    assert bench.replicas.topology == Topology.of_replicas([replica((0,)), B])
    assert text_of(await bench.generate("abc")) == spoken("abc")


async def test_where_one_change_fails_those_before_are_undone(bench):
    report, told = await transition(bench, replica((0, 1)), B, replica((7,)))
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.LOAD_FAILED)
    assert "on fire, after 1 changes that were undone" in report.detail
    assert bench.replicas.topology == Topology.of_replicas([A, B])
    assert report.source == str(bench.replicas.topology)
    assert told[-1] is Phase.ABORTED
    assert Phase.DONE not in told


@rows(("target", "more"), [((C,), 2), ((replica((0,)), replica((2,))), 2)])
async def test_what_is_more_than_one_change_away_is_refused(bench, target, more):
    report = await bench.switch(*target)
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.UNSUPPORTED)
    assert f"{more} changes away" in report.detail
    assert bench.replicas.topology == Topology.of_replicas([A, B])


async def test_one_that_ends_for_good_ends_its_streams_alone(bench):
    (first, second) = await bench.begun("abc", "abd")
    bench.engines[A].fail("a bug")
    bench.resume()
    with pytest.raises(StreamError):
        await first
    assert text_of(await second) == spoken("abd")


async def test_a_set_of_one_that_is_lost_says_so(bench):
    await bench.switch(B)
    bench.engines[B].state = EngineState.FAILED
    bench.engines[B].is_away = True
    bench.router._recovery.timeout_s = 0
    with pytest.raises(EngineLostError):
        await bench.generate("abc")


async def test_who_waits_for_the_only_replica_it_may_use_keeps_nobody_from_the_others(bench):
    bench.replicas.policy = Policy({str(B): Share(0.5, frozenset({"acme"}))})
    (waits,) = await bench.begun_of("acme")
    (goes_on,) = await bench.begun_of("")
    lost = bench.engines[A]
    lost.state = EngineState.RESTARTING
    submit = lost.submit
    lost.submit = partial(asyncio.sleep, 3600)
    lost.fail("the driver was killed", is_lost=True)
    bench.resume()
    async with asyncio.timeout(5):
        assert text_of(await goes_on) == spoken("abc")
    assert not waits.done()
    lost.submit = submit
    lost.state = EngineState.SERVING
    assert text_of(await waits) == spoken("abc")
    assert [request.tenant for request in bench.engines[B].heard] == [""]
    assert not any(each.requests or each.work.waiting or each.work.running for each in bench.replicas.replicas)


async def test_a_request_given_away_while_its_replica_is_asked_is_submitted_once(bench):
    gate = asyncio.Event()

    async def late(_: GenerationRequest) -> None:
        await gate.wait()
        raise EngineLostError("it is closed")

    bench.engines[A].submit = late
    bench.replicas.policy = Policy({str(B): Share(0.0, speed=ReplicaSpeed(step_s=1.0))})
    task = asyncio.create_task(bench.generate("abc"))
    await comes(lambda: bool(bench.replicas.replicas[0].requests))
    bench.engines[B].hold()
    bench.replicas.patience_s = 0
    switch = asyncio.create_task(bench.switch(B))
    await switch
    gate.set()
    await settled(bench.engines[B])
    bench.engines[B].resume()
    assert text_of(await task) == spoken("abc")
    assert len(bench.engines[B].heard) == 1
    (left,) = bench.replicas.replicas
    assert (left.work.running, left.work.waiting) == (0, 0)


async def test_a_replica_lost_in_the_cut_of_another_costs_no_stream(bench):
    tasks = await bench.begun("abc", "abd")
    bench.engines[A].script = Script(silent_while=Phase.CUTTING)
    switch = asyncio.create_task(bench.switch(replica((0, 1)), B))
    await bench.engines[A].until(lambda: "cut" in bench.engines[A].calls)
    lost = bench.engines[B]
    lost.state = EngineState.RESTARTING
    lost.is_away = True
    lost.fail("the driver was killed", is_lost=True)
    await bench.engines[A].until(lambda: len(bench.engines[A].heard) == 2)
    bench.engines[A].answer()
    assert (await switch).phase is Phase.DONE
    bench.resume()
    async with asyncio.timeout(5):
        assert [text_of(await task) for task in tasks] == [spoken("abc"), spoken("abd")]
    assert text_of(await bench.generate("xyz")) == spoken("xyz")


async def test_the_last_one_that_serves_is_not_stopped(bench):
    bench.engines[B].state = EngineState.RESTARTING
    bench.engines[B].is_away = True
    report = await bench.switch(B)
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.ENGINE_LOST)
    assert text_of(await bench.generate("abc")) == spoken("abc")
    assert bench.heard() == [1, 0]


async def test_a_replica_that_stalls_is_the_last_choice_however_slow_the_others_are(bench):
    bench.replicas.policy = Policy({str(A): Share(0.0, speed=ReplicaSpeed(step_s=100.0))})
    bench.engines[B].state = EngineState.STALLED
    await bench.generate("abc", 2)
    assert bench.heard() == [1, 0]


async def test_replicas_stand_in_the_order_of_the_topology_after_a_switch(bench):
    few = Batching(8, 64)
    await bench.switch(A, B, batching=Batching.of_replicas([few, bench.engines[B].capabilities.batching]))
    await bench.switch(C, B)
    assert [each.engine.topology for each in bench.replicas.replicas] == [B, C]
    assert bench.replicas.topology.replicas == (B, C)


async def test_stats_wait_for_no_replica_that_is_away(bench):
    asked = asyncio.Event()

    async def never() -> EngineStats:
        asked.set()
        await asyncio.Event().wait()

    bench.engines[A].state = EngineState.RESTARTING
    bench.engines[A].stats = never
    async with asyncio.timeout(1):
        assert (await bench.replicas.stats()).total_blocks == 64
    assert not asked.is_set()


async def test_an_ended_replica_is_remembered_by_no_prefix(bench):
    await bench.generate("abc" * 64, 2)
    assert any(bench.replicas._prefixes._blocks.values())
    await bench.switch(B)
    await bench.switch(C, B)
    gone = {each for owners in bench.replicas._prefixes._blocks.values() for each in owners}
    assert gone <= {*bench.replicas.replicas}


async def test_time_that_is_set_while_a_replica_is_emptied_counts(bench):
    tasks = await bench.begun("abc", "abd")
    bench.replicas.patience_s = 3600
    switch = asyncio.create_task(bench.switch(B))
    await comes(lambda: bench.replicas.topology == B)
    await settled(bench.engines[A])
    bench.replicas.be_patient(1800)
    await settled(bench.engines[A])
    assert len(bench.replicas.leaving[0].requests) == 1
    bench.replicas.be_patient(0)
    bench.engines[B].resume()
    assert [text_of(await task) for task in tasks] == [spoken("abc"), spoken("abd")]
    assert (await switch).phase is Phase.DONE


async def test_who_was_handed_on_and_finds_nobody_is_told_how_long_it_waited(bench, monkeypatch):
    monkeypatch.setattr("runtime.recovery.RECOVERY_TIMEOUT_S", 0.01)
    bench.router._recovery.timeout_s = 0
    (task, _) = await bench.begun("abc", "abd")
    switch = asyncio.create_task(bench.switch(B))
    await comes(lambda: bench.replicas.topology == B)
    bench.engines[B].is_away = True
    bench.replicas.be_patient(0)
    with pytest.raises(StreamError, match=r"in 0.01 s"):
        await task
    bench.resume()
    await switch
