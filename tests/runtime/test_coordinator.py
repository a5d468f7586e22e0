"""The coordinator performs a switch to its end, whatever the engine, the journal or the caller do."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
import tokenizers
from tokenizers import models

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import Lag, SamplingParams
from runtime.errors import JournalError, Reason, SwitchError
from runtime.machine import SwitchSettings
from runtime.models import CutoverReport, MeasuredLink, Phase, Progress, Topology
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.tokenizer import Tokenizer
from tests.rows import rows
from tests.runtime.scripted import Script, ScriptedEngine, topology

PP2, TP2 = topology(1, 1), topology(2)


@dataclass(slots=True)
class MemoryJournal:
    """A journal that remembers, beside what the engine was asked at the time."""

    engine: ScriptedEngine
    broken_at: Phase | None = None
    entries: list[tuple[Phase, tuple[str, ...]]] = field(default_factory=list)

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        if phase is self.broken_at:
            raise JournalError("disk full")
        self.entries.append((phase, tuple(self.engine.calls)))


@dataclass(slots=True)
class Bench:
    """An engine, its router and a coordinator, and everything they said."""

    engine: ScriptedEngine
    router: Router
    journal: MemoryJournal
    target: Topology = TP2
    progress: list[Progress] = field(default_factory=list)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)

    def coordinator(self, settings: SwitchSettings | None = None) -> Coordinator:
        return Coordinator(self.engine, self.router, self.journal, settings or SwitchSettings())

    async def switch(self, settings: SwitchSettings | None = None) -> CutoverReport:
        return await self.coordinator(settings).switch(self.target, "switch-1", self.observe)

    def begun(self) -> tuple[Coordinator, asyncio.Task[CutoverReport]]:
        made = self.coordinator()
        return made, asyncio.create_task(made.switch(TP2, "switch-1", self.observe))

    def observe(self, progress: Progress) -> None:
        self.progress.append(progress)
        if progress.phase is Phase.ABORTED:
            self.aborted.set()

    @property
    def phases(self) -> list[Phase]:
        return list(dict.fromkeys(progress.phase for progress in self.progress))

    async def asked(self, call: str) -> None:
        await self.engine.until(lambda: self.engine.calls[-1:] == [call])


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    engine = ScriptedEngine(PP2)
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")))
    async with Router(engine, tokenizer) as router:
        yield Bench(engine, router, MemoryJournal(engine))
        await engine.close()


async def test_a_switch_ends_done_with_streams_that_never_noticed(bench):
    bench.engine.hold()
    streams = [asyncio.create_task(count(bench.router)) for _ in range(6)]
    await bench.engine.until(lambda: len(bench.engine.requests) == 6)
    bench.engine.turn()
    bench.engine.turn()
    report = await bench.switch()
    bench.engine.resume()
    assert (report.phase, report.epoch, report.moved) == (Phase.DONE, 1, 6)
    assert (report.source, report.target) == (str(PP2), str(TP2))
    assert report.paths == {"patch": 6}
    assert await asyncio.gather(*streams) == [40] * 6
    counts = bench.router.counts
    assert (counts.lost, counts.duplicates, counts.wrong_epoch) == (0, 0, 0)
    assert bench.phases == [
        Phase.WARMING,
        Phase.SYNCING,
        Phase.CUTTING,
        Phase.COMMITTED,
        Phase.CLEANING,
        Phase.DONE,
    ]


async def test_a_switch_to_what_runs_changes_nothing_and_says_so(bench):
    bench.target = PP2
    report = await bench.switch()
    assert (report.phase, report.source, report.target) == (Phase.DONE, str(PP2), str(PP2))
    assert report.detail == f"{PP2} runs already; nothing was changed"
    assert bench.engine.calls == []
    assert bench.journal.entries == []


async def count(router: Router) -> int:
    return len([delta async for delta in router.generate((0, 1), GenerationParams(SamplingParams(40)))])


async def test_the_journal_is_written_before_warming_before_the_cut_and_after_it(bench):
    await bench.switch()
    assert bench.journal.entries == [
        (Phase.WARMING, ()),
        (Phase.CUTTING, ("prepare", "ready", "lag")),
        (Phase.COMMITTED, ("prepare", "ready", "lag", "cut")),
    ]


async def test_the_lag_is_asked_until_it_is_small_and_its_progress_reported(bench):
    lags = (Lag(90, 900, 100), Lag(40, 400, 600), Lag(0, 0, 1000))
    bench.engine.script = Script(lags=lags)
    report = await bench.switch()
    assert report.bytes_before == 1000
    last = [progress for progress in bench.progress if progress.phase is Phase.CUTTING][-1]
    assert (last.copied_bytes, last.lag_bytes) == (1000, 0)


async def test_a_report_has_what_went_between_hosts_before_the_cut_and_inside_it(bench):
    link = MeasuredLink(1e9, 2e-4, "tcp/eth0")
    lag = Lag(0, 0, 1000, transport="nixl", bytes_between_hosts=900, link=link)
    bench.engine.script = Script(lags=(lag,), bytes_between_hosts=970)
    report = await bench.switch()
    assert (report.transport, report.bytes_between_hosts, report.link) == ("nixl", 970, link)
    bench.engine.script, bench.target = Script(lags=(lag,), lost_while=Phase.CUTTING), PP2
    report = await bench.switch()
    assert (report.phase, report.transport, report.bytes_between_hosts) == (Phase.ABORTED, "nixl", 900)


@rows("phase", [Phase.WARMING, Phase.SYNCING, Phase.CUTTING])
async def test_a_lost_shadow_aborts_and_says_why(bench, phase):
    bench.engine.script = Script(lost_while=phase)
    report = await bench.switch()
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.RANK_LOST)
    assert phase.value in report.detail
    assert bench.engine.calls[-1] == "abort rank_lost"
    assert bench.engine.topology == PP2
    assert bench.progress[-1].detail.startswith("rank_lost: ")


async def test_a_refused_switch_is_a_report_not_an_exception(bench):
    await bench.engine.prepare(TP2)
    report = await bench.switch()
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.BUSY)


@rows(
    ("silent", "settings", "reason"),
    [
        (Phase.WARMING, SwitchSettings(warming_timeout_s=0.01), Reason.DEADLINE),
        (Phase.SYNCING, SwitchSettings(syncing_timeout_s=0.01), Reason.NOT_CONVERGED),
    ],
)
async def test_a_silent_engine_is_given_up_at_the_deadline(bench, silent, settings, reason):
    bench.engine.script = Script(silent_while=silent)
    report = await bench.switch(settings)
    assert (report.phase, report.reason) == (Phase.ABORTED, reason)
    assert bench.engine.calls[-1] == f"abort {reason.value}"


async def test_a_lag_that_never_shrinks_is_given_up_at_the_deadline(bench):
    bench.engine.script = Script(lags=(Lag(500, 5000),))
    report = await bench.switch(SwitchSettings(syncing_timeout_s=0.02))
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.NOT_CONVERGED)
    assert "500 tokens still to copy" in report.detail


async def test_a_shadow_that_comes_after_the_deadline_is_aborted(bench):
    bench.engine.script = Script(silent_while=Phase.PLANNED)
    task = asyncio.create_task(bench.switch(SwitchSettings(warming_timeout_s=0.0)))
    await bench.aborted.wait()
    bench.engine.answer()
    report = await task
    assert report.reason is Reason.DEADLINE
    assert bench.engine.calls == ["prepare", "abort deadline"]


@pytest.mark.parametrize("phase", [Phase.WARMING, Phase.SYNCING])
async def test_cancelling_the_caller_aborts_the_shadow(bench, phase):
    bench.engine.script = Script(silent_while=phase)
    task = asyncio.create_task(bench.switch())
    await bench.asked("ready" if phase is Phase.WARMING else "lag")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.engine.calls[-1] == "abort cancelled"


async def test_cancelling_during_the_cut_waits_for_its_outcome(bench):
    bench.engine.script = Script(silent_while=Phase.CUTTING)
    task = asyncio.create_task(bench.switch())
    await bench.asked("cut")
    task.cancel()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    bench.engine.answer()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.engine.calls[-1] == "release"
    assert bench.phases[-1] is Phase.DONE


@pytest.mark.parametrize(
    ("phase", "call"), [(Phase.PLANNED, "prepare"), (Phase.WARMING, "ready"), (Phase.SYNCING, "lag")]
)
async def test_a_switch_that_is_given_up_before_its_cut_ends_in_a_report(bench, phase, call):
    bench.engine.script = Script(silent_while=phase)
    coordinator, task = bench.begun()
    await bench.asked(call)
    assert coordinator.give_up()
    assert coordinator.give_up()  # two at once
    await bench.aborted.wait()
    assert not coordinator.give_up()  # it has been given up
    bench.engine.answer()  # a target that was asked for is waited for, and given back
    report = await task
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.CANCELLED)
    assert bench.engine.calls[-1] == "abort cancelled"
    assert not coordinator.give_up()


@pytest.mark.parametrize(("phase", "call"), [(Phase.CUTTING, "cut"), (Phase.CLEANING, "release")])
async def test_a_switch_is_not_given_up_once_its_cut_was_sent(bench, phase, call):
    bench.engine.script = Script(silent_while=phase)
    coordinator, task = bench.begun()
    await bench.asked(call)
    assert not coordinator.give_up()
    bench.engine.answer()
    assert (await task).phase is Phase.DONE


async def test_what_was_given_up_stays_so_though_the_engine_answers_at_the_same_moment(bench):
    bench.engine.script = Script(silent_while=Phase.SYNCING)
    coordinator, task = bench.begun()
    await bench.asked("lag")
    bench.engine.answer()
    assert coordinator.give_up()
    report = await task
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.CANCELLED)
    assert "cut" not in bench.engine.calls


async def test_a_journal_that_fails_before_the_cut_aborts(bench):
    bench.journal.broken_at = Phase.CUTTING
    report = await bench.switch()
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.JOURNAL_FAILED)
    assert "cut" not in bench.engine.calls
    assert bench.engine.calls[-1] == "abort journal_failed"


async def test_a_journal_that_fails_after_the_commit_stops_nothing(bench):
    bench.journal.broken_at = Phase.COMMITTED
    report = await bench.switch()
    assert (report.phase, report.detail) == (Phase.DONE, "disk full")
    assert bench.engine.calls[-1] == "release"


async def test_a_clean_up_that_fails_is_tried_again(bench, monkeypatch):
    monkeypatch.setattr("runtime.machine.RETRY_PAUSE_S", 0.0)
    bench.engine.script = Script(failed_releases=3)
    report = await bench.switch()
    assert report.phase is Phase.DONE
    assert await bench.engine.prepare(PP2)


async def test_an_engine_that_dies_aborts_the_switch(bench):
    bench.engine.script = Script(silent_while=Phase.WARMING)
    task = asyncio.create_task(bench.switch())
    await bench.asked("ready")
    bench.engine.lose("killed")
    report = await task
    assert (report.phase, report.reason) == (Phase.ABORTED, Reason.ENGINE_LOST)


async def test_one_switch_at_a_time(bench):
    bench.engine.script = Script(silent_while=Phase.WARMING)
    coordinator, first = bench.begun()
    await bench.asked("ready")
    with pytest.raises(SwitchError, match="switch-1 is under way"):
        await coordinator.switch(TP2, "switch-2", bench.observe)
    bench.engine.answer()
    assert (await first).phase is Phase.DONE
    assert (await coordinator.switch(PP2, "switch-3", bench.observe)).epoch == 2


async def test_what_runs_with_steps_filled_otherwise_is_a_switch_and_as_they_are_it_is_none(bench):
    coordinator = bench.coordinator()
    few = Batching(8, 64)
    made = await coordinator.switch(PP2, "switch-1", bench.observe, few)
    assert (made.phase, made.epoch, bench.engine.capabilities.running) == (Phase.DONE, 1, few)
    again = await coordinator.switch(PP2, "switch-2", bench.observe, few)
    assert (again.phase, again.epoch) == (Phase.DONE, 0)
    assert (await coordinator.switch(TP2, "switch-3", bench.observe)).epoch == 2
    assert bench.engine.capabilities.running == few
    refused = await coordinator.switch(TP2, "switch-4", bench.observe, Batching(8, 4))
    assert (refused.phase, refused.reason) == (Phase.ABORTED, Reason.UNSUPPORTED)
    assert "every running sequence has to fit a step" in refused.detail


async def test_a_failed_cut_uses_up_its_epoch(bench):
    bench.engine.script = Script(lost_while=Phase.CUTTING)
    await bench.switch()
    bench.engine.script = Script()
    assert (await bench.switch()).epoch == 2


async def test_an_observer_that_breaks_leaves_no_shadow_behind(bench):
    def break_at_sync(progress: Progress) -> None:
        if progress.phase is Phase.SYNCING:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await bench.coordinator().switch(TP2, "switch-1", break_at_sync)
    assert bench.engine.calls[-1] == "abort cancelled"
