"""The switch as a pure state machine: ``step(state, event, at_s) -> (state, effects)``.

    planned -> warming -> syncing -> cutting -> committed -> cleaning -> done
                  any of the first four -> aborted

At most one operation is outstanding: it is answered by exactly one event, and a new operation supersedes it.
The journal is written before warming, before the cut and after the commit. Once the cut has been sent only
the engine's answer counts: neither a deadline nor a cancellation can know whether it happened.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import assert_never

from runtime.engine import Cut, Lag
from runtime.errors import Reason
from runtime.models import Phase

STALL_PAUSE_S = 0.005
"""Pause before the lag is asked again when nothing was copied since."""
RETRY_PAUSE_S = 0.2
"""Pause before a failed clean-up is tried again."""
STOP_PATIENCE = 4.0
"""By how much a stop may outlast its prediction before the cut is given up."""
REPORT_INTERVAL_S = 0.1
"""Progress of the sync is reported at most this often."""


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """How long each part of a switch may take, and when the lag is small enough to cut."""

    warming_timeout_s: float = 900.0
    """Engines give up a target that makes no progress much earlier; a large one may load from a slow disk."""
    syncing_timeout_s: float = 60.0
    cut_timeout_s: float = 2.0
    """For the journal before the cut, and again for the cut itself."""
    cleaning_timeout_s: float = 60.0
    """For giving back: after a commit what the old topology held, after an abort what the target held."""
    lag_tokens_per_request: int = 8
    """The cut may begin when the target lacks at most this many tokens per open request."""


# --- events: what happened ---


@dataclass(frozen=True, slots=True)
class Requested:
    """Somebody wants the switch."""


@dataclass(frozen=True, slots=True)
class Journaled:
    """The journal holds what it was asked to hold."""


@dataclass(frozen=True, slots=True)
class ShadowPrepared:
    """A shadow exists: from now on it is owed a release or an abort."""


@dataclass(frozen=True, slots=True)
class ShadowReady:
    """The target is loaded and every worker of it has run a step."""


@dataclass(frozen=True, slots=True)
class LagMeasured:
    """What the target still lacks, while ``num_requests`` streams are open."""

    lag: Lag
    num_requests: int


@dataclass(frozen=True, slots=True)
class CutCommitted:
    """Every request that can move has moved."""

    cut: Cut


@dataclass(frozen=True, slots=True)
class Drained:
    """What could not move has ended on the old topology."""


@dataclass(frozen=True, slots=True)
class OldReleased:
    """What only the losing side needed is given back."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The outstanding operation failed: a refusal, a lost shadow, a cut that did not happen, no journal."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The deadline of a phase went by."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody no longer wants the switch."""


Event = (
    Requested
    | Journaled
    | ShadowPrepared
    | ShadowReady
    | LagMeasured
    | CutCommitted
    | Drained
    | OldReleased
    | Failed
    | DeadlinePassed
    | CancelRequested
)


# --- effects: what to do now ---


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the observer where the switch stands."""


@dataclass(frozen=True, slots=True)
class RecordPhase:
    """Write down that this phase has been reached."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class Prepare:
    """Ask the engine for a shadow of the target."""


@dataclass(frozen=True, slots=True)
class AwaitReady:
    """Wait until the shadow is ready."""


@dataclass(frozen=True, slots=True)
class MeasureLag:
    """Go on copying and ask what is missing, after a pause."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SendCut:
    """Command the cut; the engine gives it up after ``timeout_s``."""

    timeout_s: float


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until what could not move has ended on the old topology."""


@dataclass(frozen=True, slots=True)
class ReleaseOld:
    """Give back what only the old topology needed, after a pause."""

    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Abort:
    """Give back what only the target needed."""

    reason: Reason


Action = RecordPhase | Prepare | AwaitReady | MeasureLag | SendCut | Drain | ReleaseOld | Abort
"""The effects that are answered by an event."""
Effect = Report | Action


class Holding(Enum):
    """Whether there is a shadow, which is then owed a release or an abort."""

    NONE = auto()
    ASKED = auto()
    """Prepare was sent and not answered."""
    HELD = auto()


@dataclass(frozen=True, slots=True)
class SwitchState:
    """Where a switch stands and what was learnt on the way; times are monotonic seconds."""

    settings: SwitchSettings = field(default_factory=SwitchSettings)
    phase: Phase = Phase.PLANNED
    entered_s: float = 0.0
    """When the phase was entered."""
    deadline_s: float | None = None
    """When the phase is given up; None: only the answer ends it."""
    shadow: Holding = Holding.NONE
    cut_sent: bool = False
    warming_s: float = 0.0
    syncing_s: float = 0.0
    lag: Lag = field(default_factory=lambda: Lag(0, 0))
    reported_s: float = 0.0
    cut: Cut | None = None
    reason: Reason | None = None
    detail: str = ""

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do."""
        return self.phase is Phase.DONE or (self.phase is Phase.ABORTED and self.shadow is Holding.NONE)

    @property
    def can_abort(self) -> bool:
        """The old topology certainly still holds every request."""
        before = self.phase in {Phase.PLANNED, Phase.WARMING, Phase.SYNCING, Phase.CUTTING}
        return before and not self.cut_sent


Step = tuple[SwitchState, tuple[Effect, ...]]


def step(state: SwitchState, event: Event, at_s: float) -> Step:  # noqa: PLR0911 - one return per event
    """The next state and what to do now; an event that means nothing in this state changes nothing."""
    match event:
        case Requested():
            return _requested(state, at_s)
        case Journaled():
            return _journaled(state, at_s)
        case ShadowPrepared():
            return _shadow_prepared(state)
        case ShadowReady():
            return _shadow_ready(state, at_s)
        case LagMeasured():
            return _lag_measured(state, event, at_s)
        case CutCommitted():
            return _cut_committed(state, event.cut, at_s)
        case Drained():
            return _drained(state, at_s)
        case OldReleased():
            return _released(state, at_s)
        case Failed():
            return _failed(state, event, at_s)
        case DeadlinePassed():
            return _deadline_passed(state, event.phase, at_s)
        case CancelRequested():
            cancelled = f"cancelled while {state.phase.value}"
            return _abort(state, Reason.CANCELLED, cancelled, at_s) if state.can_abort else (state, ())
        case _:
            assert_never(event)


def _enter(state: SwitchState, phase: Phase, timeout_s: float | None, at_s: float) -> SwitchState:
    deadline_s = None if timeout_s is None else at_s + timeout_s
    return replace(state, phase=phase, entered_s=at_s, reported_s=at_s, deadline_s=deadline_s)


def _requested(state: SwitchState, at_s: float) -> Step:
    if state.phase is not Phase.PLANNED:
        return state, ()
    warming = _enter(state, Phase.WARMING, state.settings.warming_timeout_s, at_s)
    return warming, (Report(), RecordPhase(Phase.WARMING))


def _journaled(state: SwitchState, at_s: float) -> Step:
    if state.phase is Phase.WARMING and state.shadow is Holding.NONE:
        return replace(state, shadow=Holding.ASKED), (Prepare(),)
    if state.phase is Phase.CUTTING and not state.cut_sent:
        timeout_s = state.settings.cut_timeout_s + STOP_PATIENCE * state.lag.stop_s
        return replace(state, cut_sent=True, deadline_s=None), (SendCut(timeout_s),)
    if state.phase is Phase.COMMITTED:
        return _clean(state, "", at_s)
    return state, ()


def _shadow_prepared(state: SwitchState) -> Step:
    if state.shadow is not Holding.ASKED:
        return state, ()
    held = replace(state, shadow=Holding.HELD)
    if state.reason is not None:  # the switch was given up meanwhile
        return held, (Abort(state.reason),)
    return held, (AwaitReady(),)


def _shadow_ready(state: SwitchState, at_s: float) -> Step:
    if state.phase is not Phase.WARMING or state.shadow is not Holding.HELD:
        return state, ()
    warmed = replace(state, warming_s=at_s - state.entered_s)
    syncing = _enter(warmed, Phase.SYNCING, state.settings.syncing_timeout_s, at_s)
    return syncing, (Report(), MeasureLag())


def _lag_measured(state: SwitchState, event: LagMeasured, at_s: float) -> Step:
    if state.phase is not Phase.SYNCING:
        return state, ()
    lag = event.lag
    last = state.lag
    measured = replace(state, lag=lag)
    if lag.tokens <= event.num_requests * state.settings.lag_tokens_per_request:
        synced = replace(measured, syncing_s=at_s - state.entered_s)
        cutting = _enter(synced, Phase.CUTTING, state.settings.cut_timeout_s, at_s)
        return cutting, (Report(), RecordPhase(Phase.CUTTING))
    is_stalled = lag.copied_bytes <= last.copied_bytes and lag.tokens >= last.tokens
    again = MeasureLag(STALL_PAUSE_S if is_stalled else 0.0)
    if at_s - state.reported_s < REPORT_INTERVAL_S:
        return measured, (again,)
    return replace(measured, reported_s=at_s), (Report(), again)


def _cut_committed(state: SwitchState, cut: Cut, at_s: float) -> Step:
    if state.phase is not Phase.CUTTING or not state.cut_sent:
        return state, ()
    committed = _enter(state, Phase.COMMITTED, state.settings.cleaning_timeout_s, at_s)
    return replace(committed, cut=cut), (Report(), RecordPhase(Phase.COMMITTED))


def _clean(state: SwitchState, detail: str, at_s: float) -> Step:
    """What could not move may take as long as it takes; only then the clean-up has a deadline."""
    assert state.cut is not None, "there is nothing to clean up before a cut"
    if state.cut.left_to_drain:
        return replace(_enter(state, Phase.CLEANING, None, at_s), detail=detail), (Report(), Drain())
    cleaning = _enter(state, Phase.CLEANING, state.settings.cleaning_timeout_s, at_s)
    return replace(cleaning, detail=detail), (Report(), ReleaseOld())


def _drained(state: SwitchState, at_s: float) -> Step:
    if state.phase is not Phase.CLEANING:
        return state, ()
    return replace(state, deadline_s=at_s + state.settings.cleaning_timeout_s), (ReleaseOld(),)


def _released(state: SwitchState, at_s: float) -> Step:
    if state.phase is Phase.CLEANING:
        return _finish(state, at_s)
    return (_let_go(state), ()) if state.phase is Phase.ABORTED else (state, ())


def _failed(state: SwitchState, event: Failed, at_s: float) -> Step:
    match state.phase:
        case Phase.PLANNED | Phase.WARMING | Phase.SYNCING | Phase.CUTTING:
            # after the cut was sent too: this is the engine's own word that it did not happen
            refused = _let_go(state) if state.shadow is Holding.ASKED else state
            return _abort(refused, event.reason, event.detail, at_s)
        case Phase.COMMITTED:
            return _clean(state, event.detail, at_s)
        case Phase.CLEANING if event.reason is Reason.ENGINE_LOST:
            return _finish(replace(state, reason=event.reason, detail=event.detail), at_s)
        case Phase.CLEANING:
            deadline_s = state.deadline_s or at_s + state.settings.cleaning_timeout_s
            return replace(state, detail=event.detail, deadline_s=deadline_s), (ReleaseOld(RETRY_PAUSE_S),)
        case Phase.ABORTED if not state.is_finished:
            return replace(_let_go(state), detail=f"{state.detail}; afterwards: {event.detail}"), ()
        case Phase.DONE | Phase.ABORTED:
            return state, ()
        case _:
            assert_never(state.phase)


def _deadline_passed(state: SwitchState, phase: Phase, at_s: float) -> Step:
    if phase is not state.phase:
        return state, ()
    waited = f"{phase.value} not done after {at_s - state.entered_s:.1f} s"
    if state.can_abort and phase is Phase.SYNCING:
        detail = f"{waited}: {state.lag.tokens} tokens still to copy; try again under less load"
        return _abort(state, Reason.NOT_CONVERGED, detail, at_s)
    if state.can_abort:
        return _abort(state, Reason.DEADLINE, waited, at_s)
    if phase is Phase.COMMITTED:
        return _clean(state, f"journal of the commit missing: {waited}", at_s)
    if phase is Phase.CLEANING:
        detail = f"{waited}; memory of the old topology may stay taken: {state.detail or 'no answer'}"
        return _finish(replace(state, reason=Reason.DEADLINE, detail=detail), at_s)
    return (_let_go(state), ()) if phase is Phase.ABORTED else (state, ())


def _abort(state: SwitchState, reason: Reason, detail: str, at_s: float) -> Step:
    """Give up: the only way to ``ABORTED``. A shadow that was asked for is waited for, and aborted then."""
    aborted = _enter(state, Phase.ABORTED, state.settings.cleaning_timeout_s, at_s)
    aborted = replace(aborted, reason=reason, detail=detail)
    return aborted, (Report(), Abort(reason)) if state.shadow is Holding.HELD else (Report(),)


def _finish(state: SwitchState, at_s: float) -> Step:
    return _let_go(_enter(state, Phase.DONE, None, at_s)), (Report(),)


def _let_go(state: SwitchState) -> SwitchState:
    return replace(state, shadow=Holding.NONE)
