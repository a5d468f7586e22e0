"""The switch as a pure machine: it commits at most once, never turns back, and leaves no shadow behind."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import machine
from runtime.engine import Cut, Lag
from runtime.errors import Reason
from runtime.machine import Action, Effect, Event, Holding, SwitchSettings, SwitchState, step
from runtime.models import CutTimings, Phase
from tests.rows import rows
from tests.tries import tries

CUT = Cut(1, ("a",), (), 0, CutTimings(0.0, 0.0, 0.0, 0.0))
FAILED = machine.Failed(Reason.RANK_LOST, "a rank was lost")
CONVERGED = machine.LagMeasured(Lag(8, 800, 5000), num_requests=1)
LEAVING = replace(CUT, left_to_drain=("r9",), stays={"nearly done": 1})
BEHIND = machine.LagMeasured(Lag(9, 900, 5000), num_requests=1)

EVENTS = st.one_of(
    st.sampled_from(
        [
            machine.Requested(),
            machine.Journaled(),
            machine.ShadowPrepared(),
            machine.ShadowReady(),
            CONVERGED,
            BEHIND,
            machine.CutCommitted(CUT),
            machine.CutCommitted(LEAVING),
            machine.Drained(),
            machine.OldReleased(),
            FAILED,
            machine.Failed(Reason.ENGINE_LOST, "the engine ended"),
            machine.CancelRequested(),
        ]
    ),
    st.sampled_from(list(Phase)).map(machine.DeadlinePassed),
)

ANSWERS: dict[type[Action], Event] = {
    machine.RecordPhase: machine.Journaled(),
    machine.Prepare: machine.ShadowPrepared(),
    machine.AwaitReady: machine.ShadowReady(),
    machine.MeasureLag: CONVERGED,
    machine.SendCut: machine.CutCommitted(CUT),
    machine.Drain: machine.Drained(),
    machine.ReleaseOld: machine.OldReleased(),
    machine.Abort: machine.OldReleased(),
}
"""What comes back when all goes well."""


def drive(state: SwitchState, *events: Event, at_s: float = 0.0) -> tuple[SwitchState, list[Effect]]:
    """Feed events one second apart; the state they lead to and all effects on the way."""
    effects: list[Effect] = []
    for number, event in enumerate(events):
        state, new = step(state, event, at_s + number)
        effects += new
    return state, effects


def run_to(phase: Phase) -> SwitchState:
    """A switch that reached a phase without trouble."""
    state, effects = step(SwitchState(), machine.Requested(), 0.0)
    while state.phase is not phase:
        state, effects = step(state, ANSWERS[type(operation_of(effects))], 0.0)
    return state


def operation_of(effects: tuple[Effect, ...]) -> Action:
    """The one operation among the effects."""
    (operation,) = [effect for effect in effects if not isinstance(effect, machine.Report)]
    return operation


def test_a_switch_without_trouble_goes_through_all_phases_and_journals_three():
    state, effects = drive(
        SwitchState(),
        machine.Requested(),
        machine.Journaled(),
        machine.ShadowPrepared(),
        machine.ShadowReady(),
        BEHIND,
        CONVERGED,
        machine.Journaled(),
        machine.CutCommitted(CUT),
        machine.Journaled(),
        machine.OldReleased(),
    )
    assert state.phase is Phase.DONE
    assert state.is_finished
    assert (state.warming_s, state.syncing_s) == (3.0, 2.0)
    operations = [effect for effect in effects if not isinstance(effect, machine.Report)]
    assert operations == [
        machine.RecordPhase(Phase.WARMING),
        machine.Prepare(),
        machine.AwaitReady(),
        machine.MeasureLag(),
        machine.MeasureLag(),
        machine.RecordPhase(Phase.CUTTING),
        machine.SendCut(2.0),
        machine.RecordPhase(Phase.COMMITTED),
        machine.ReleaseOld(),
    ]


@rows(
    ("phase", "reason"),
    [
        (Phase.WARMING, Reason.DEADLINE),
        (Phase.SYNCING, Reason.NOT_CONVERGED),
        (Phase.CUTTING, Reason.DEADLINE),
    ],
)
def test_a_deadline_before_the_cut_is_sent_aborts_with_its_reason(phase, reason):
    state, _ = step(run_to(phase), machine.DeadlinePassed(phase), 7.0)
    assert (state.phase, state.reason) == (Phase.ABORTED, reason)
    assert "7.0 s" in state.detail


def test_the_deadline_of_an_earlier_phase_changes_nothing():
    syncing = run_to(Phase.SYNCING)
    assert step(syncing, machine.DeadlinePassed(Phase.WARMING), 9.0) == (syncing, ())


@rows("event", [machine.CancelRequested(), machine.DeadlinePassed(Phase.CUTTING)])
def test_a_cut_that_was_sent_is_waited_for(event):
    sent, _ = step(run_to(Phase.CUTTING), machine.Journaled(), 0.0)
    assert step(sent, event, 99.0) == (sent, ())
    assert sent.deadline_s is None


@rows(
    ("event", "then"),
    [(machine.Drained(), machine.ReleaseOld()), (FAILED, machine.ReleaseOld(machine.RETRY_PAUSE_S))],
)
def test_what_could_not_move_may_take_its_time_and_the_clean_up_after_it_may_not(event, then):
    committed = replace(run_to(Phase.COMMITTED), cut=LEAVING)
    draining, effects = step(committed, machine.Journaled(), 1.0)
    assert operation_of(effects) == machine.Drain()
    assert (draining.phase, draining.deadline_s) == (Phase.CLEANING, None)
    cleaning, effects = step(draining, event, 500.0)
    assert operation_of(effects) == then
    assert cleaning.deadline_s == 560.0


def test_a_failed_clean_up_is_tried_again_until_its_deadline():
    cleaning = run_to(Phase.CLEANING)
    state, effects = step(cleaning, FAILED, 1.0)
    assert operation_of(effects) == machine.ReleaseOld(machine.RETRY_PAUSE_S)
    state, _ = step(state, machine.DeadlinePassed(Phase.CLEANING), 60.0)
    assert (state.phase, state.reason) == (Phase.DONE, Reason.DEADLINE)
    assert "a rank was lost" in state.detail


def test_a_clean_up_that_fails_again_gets_no_more_time():
    first, _ = step(run_to(Phase.CLEANING), FAILED, 1.0)
    second, _ = step(first, FAILED, 40.0)
    assert second.deadline_s == first.deadline_s is not None


def test_a_clean_up_is_not_tried_again_on_an_engine_that_is_gone():
    state, _ = step(run_to(Phase.CLEANING), machine.Failed(Reason.ENGINE_LOST, "gone"), 1.0)
    assert (state.phase, state.reason) == (Phase.DONE, Reason.ENGINE_LOST)


def test_the_lag_may_be_a_few_tokens_for_each_open_request():
    syncing = run_to(Phase.SYNCING)
    measured, _ = step(syncing, machine.LagMeasured(Lag(17, 1), num_requests=2), 1.0)
    assert measured.phase is Phase.SYNCING
    measured, _ = step(syncing, machine.LagMeasured(Lag(16, 1), num_requests=2), 1.0)
    assert measured.phase is Phase.CUTTING


def test_the_lag_is_asked_again_at_once_unless_nothing_was_copied():
    first, effects = step(run_to(Phase.SYNCING), machine.LagMeasured(Lag(90, 1, 10), 1), 0.0)
    assert operation_of(effects) == machine.MeasureLag()
    _, effects = step(first, machine.LagMeasured(Lag(90, 1, 20), 1), 0.0)
    assert operation_of(effects) == machine.MeasureLag()
    _, effects = step(first, machine.LagMeasured(Lag(90, 1, 10), 1), 0.0)
    assert operation_of(effects) == machine.MeasureLag(machine.STALL_PAUSE_S)


def test_progress_of_the_sync_is_reported_a_few_times_a_second():
    state, reports = run_to(Phase.SYNCING), 0
    for number in range(1000):
        state, effects = step(state, BEHIND, number / 1000)
        reports += machine.Report() in effects
    assert reports == 9


@given(st.lists(EVENTS, max_size=60))
def test_whatever_happens_it_commits_once_and_never_turns_back(events):
    state, has_committed = SwitchState(), False
    for number, event in enumerate(events):
        before = state
        state, effects = step(state, event, float(number))
        operations = [effect for effect in effects if not isinstance(effect, machine.Report)]
        assert len(operations) <= 1
        if state.phase is Phase.COMMITTED and before.phase is not Phase.COMMITTED:
            assert not has_committed
            assert before.cut_sent
            has_committed = True
        if has_committed:
            assert state.phase in {Phase.COMMITTED, Phase.CLEANING, Phase.DONE}
            assert not any(isinstance(effect, machine.Abort) for effect in effects)
        else:
            assert not any(isinstance(effect, (machine.Drain, machine.ReleaseOld)) for effect in effects)
        if any(isinstance(effect, machine.SendCut) for effect in effects):
            assert isinstance(event, machine.Journaled)
            assert not before.cut_sent
        if before.is_finished:
            assert (state, effects) == (before, ())


@pytest.mark.slow
@tries(750)
@given(st.data())
def test_every_switch_ends_and_settles_its_shadow_exactly_one_way(data):
    """Operations are answered rightly or fail; deadlines and cancellations come at any time, but not for ever."""
    state, effects = step(SwitchState(SwitchSettings()), machine.Requested(), 0.0)
    operation = operation_of(effects)
    seen: list[type[Effect]] = []
    was_prepared = False
    for number in range(60):
        if state.is_finished:
            break
        event = ANSWERS[type(operation)]
        if number < 40:
            event = data.draw(st.sampled_from([event, *trouble(state, operation)]))
        was_prepared = was_prepared or isinstance(event, machine.ShadowPrepared)
        state, effects = step(state, event, float(number))
        for effect in effects:
            seen.append(type(effect))
            if not isinstance(effect, machine.Report):
                operation = effect
    assert state.is_finished
    assert state.shadow is Holding.NONE
    assert (machine.ReleaseOld in seen) + (machine.Abort in seen) == was_prepared


def trouble(state: SwitchState, operation: Action) -> list[Event]:
    """What else may happen while an operation is outstanding."""
    events: list[Event] = [FAILED, machine.CancelRequested()]
    if state.deadline_s is not None:
        events.append(machine.DeadlinePassed(state.phase))
    if isinstance(operation, machine.MeasureLag):
        events.append(BEHIND)
    if isinstance(operation, machine.SendCut):
        events.append(machine.CutCommitted(LEAVING))
    return events


def test_a_refused_prepare_leaves_nothing_to_abort():
    state, effects = drive(SwitchState(), machine.Requested(), machine.Journaled(), FAILED)
    assert (state.is_finished, state.phase) == (True, Phase.ABORTED)
    assert not any(isinstance(effect, machine.Abort) for effect in effects)
