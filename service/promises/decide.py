"""What the controller does next: one decision from one look. Pure: clocks and measurements come in.

Two clocks: windows go by the clock on the wall, which may jump; how long ago something was goes by one that cannot.
Each rule answers with a decision, or leaves it to the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import Literal

from service.deployment.policy import Rules
from service.documents.promises import Cause, Verdict

LEARNED_S = 4 * 3600.0
"""For which a target that was rolled back from is not tried again, at most; when its segment ends it may be."""


@dataclass(frozen=True, slots=True)
class PastSwitch:
    """A switch that was made, or given up."""

    ended_s: float
    """By the clock that cannot jump."""
    source: str
    target: str
    cause: Cause
    is_done: bool
    verdict: Verdict | None = None
    """None: it is on probation."""
    stopped_s: float | None = None
    """When streams began to stand still for it, by the same clock; None: not known."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next segment to which a switch leads."""

    begins_in_s: float
    target: str
    takes_s: float
    """Predicted, with its standstill."""
    is_early: bool
    """Its target holds what is promised until then, too."""


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps the controller from switching anything, in words, and until when."""

    why: str
    until: datetime


@dataclass(frozen=True, slots=True)
class ControlState:
    """All that a decision depends on. Topologies are texts."""

    now_s: float
    """By the clock that cannot jump."""
    runs: str
    target: str | None
    """Planned from what runs for the segment in force; None: nothing holds it."""
    began_s: float = -1e9
    """When the segment in force began, by the clock that cannot jump; when it was last entered, if the other one jumped."""
    ahead: Ahead | None = None
    rescue: str | None = None
    """Planned from what runs for the load that is measured, where a goal is missed: what holds it or comes nearest; None: nothing
    better is known."""
    best_effort: str = ""
    """What comes nearest where nothing holds the load, and how near, in words."""
    missed: str = ""
    """The goals that are missed, in words."""
    missed_s: float = 0.0
    """For so long."""
    wastes: bool = False
    """Nothing is missed but by taking too much: devices, money, utilisation."""
    calm_s: float = 0.0
    """For so long nothing was missed, and the load no more than declared."""
    data_age_s: float = 0.0
    is_switching: bool = False
    hold: str = ""
    """Who paused it, or pinned or applied what runs, and until when nothing is switched."""
    barred: str = ""
    """The promised limit on reconfiguration that forbids a switch now."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Targets that a person said no to, with who did and until when it holds."""
    past: Sequence[PastSwitch] = ()
    """The oldest first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and why."""

    kind: Literal["wait", "hold", "switch"]
    reason: str
    target: str | None = None
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A topology to switch to, and why."""

    target: str
    cause: Cause
    reason: str


def decide(state: ControlState, rules: Rules) -> Decision:
    """The one thing to do now; ``wait``: nothing is wished, ``hold``: something stands against it."""
    if stopped := _stopped(state, rules):
        return stopped
    weighed = [_weighed(wish, state, rules) for wish in _wishes(state, rules)]
    weighed = weighed or [_content(state)]
    return next((decision for decision in weighed if decision.kind == "switch"), weighed[0])


def _stopped(state: ControlState, rules: Rules) -> Decision | None:
    """What stops the controller whatever it wishes."""
    if state.hold:
        return Decision("hold", state.hold)
    if state.is_switching:
        return Decision("wait", "a switch is under way")
    if state.data_age_s > rules.data_s:
        return Decision("hold", f"nothing was measured for {state.data_age_s:.0f} s; without data nothing is changed")
    return None


# -- what is wished --------------------------------------------------------------------------------


def _wishes(state: ControlState, rules: Rules) -> list[Proposal]:
    """Back from what is worse, ready for what comes, and out of what is missed or else as planned.

    One that has to wait keeps none after it waiting.
    """
    found = [_back(state)]
    ahead = state.ahead
    if ahead and ahead.is_early and ahead.begins_in_s <= ahead.takes_s * rules.margin:
        reason = f"the next window begins in {ahead.begins_in_s:.0f} s"
        found.append(_to(ahead.target, "window", reason, state))
    if not found[1:] or found[1]:  # what is ready for the next window stays until then
        found.append(_missed_or_planned(state, rules))
    return [proposal for proposal in found if proposal]


def _missed_or_planned(state: ControlState, rules: Rules) -> Proposal | None:
    if state.missed and state.missed_s >= (rules.calm_s if state.wastes else rules.patience_s):
        cause: Cause = "saving" if state.wastes else "rescue"
        missed = f"{state.missed} is missed for {state.missed_s:.0f} s"
        return _to(state.rescue, cause, "; ".join(filter(None, (missed, state.best_effort))), state)
    if _was_rescued(state):
        return _to(state.target, "return", "what a rescue was for is over", state)
    return _to(state.target, "window", "this window asks for it", state)


def _to(target: str | None, cause: Cause, reason: str, state: ControlState) -> Proposal | None:
    return None if target is None or target == state.runs else Proposal(target, cause, reason)


def _back(state: ControlState) -> Proposal | None:
    """Out of what the controller's own last switch made worse, until that is done.

    A person's switch is a person's.
    """
    last = _last_done(state)
    if (
        last
        and last.verdict == "worse"
        and last.cause not in {"roll_back", "person", "recovery"}
        and last.target == state.runs
    ):
        return Proposal(last.source, "roll_back", "the last switch made it worse")
    return None


def _last_done(state: ControlState) -> PastSwitch | None:
    return next((past for past in reversed(state.past) if past.is_done), None)


def _was_rescued(state: ControlState) -> bool:
    """Whether what runs is there because of a rescue in this segment."""
    since = [past for past in state.past if past.is_done and past.ended_s >= state.began_s]
    return bool(since) and since[-1].cause == "rescue"


# -- what stands against it ------------------------------------------------------------------------

Rule = Callable[[Proposal, ControlState, Rules], str]
"""Why a wish has to wait; empty: this rule does not mind."""


def _weighed(wish: Proposal, state: ControlState, rules: Rules) -> Decision:
    for rule in _RULES:
        if why := rule(wish, state, rules):
            return Decision("hold", f"{wish.reason}, but {why}", wish.target, wish.cause)
    return Decision("switch", wish.reason, wish.target, wish.cause)


def _content(state: ControlState) -> Decision:
    if state.missed:
        return Decision("wait", f"{state.missed} is missed, and {state.best_effort or 'nothing better is known'}")
    if state.target is None:
        return Decision("wait", "nothing holds what is promised now; what runs goes on")
    return Decision("wait", "what runs is what is planned")


def _keeps_limits(wish: Proposal, state: ControlState, rules: Rules) -> str:  # noqa: ARG001 - a rule
    """What was promised about reconfigurations binds the controller without exception."""
    return state.barred


def _heeds_a_no(wish: Proposal, state: ControlState, rules: Rules) -> str:  # noqa: ARG001 - a rule
    """What a person rejected or cancelled is not tried again, whatever for."""
    return state.refused.get(wish.target, "")


def _waits_for_calm(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """What a rescue did is taken back when it has been calm for a while."""
    is_early = wish.cause == "return" and state.calm_s < rules.calm_s
    return f"it is calm for {state.calm_s:.0f} s only, of {rules.calm_s:g}" if is_early else ""


def _rescues_seldom(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """One way back from a rescue, or one saving, in a dwell time.

    One rescue until it has its verdict or was given up.
    """
    unplanned = {"rescue", "return", "saving"}
    if wish.cause not in unplanned:
        return ""
    lately = [past for past in state.past if past.cause in unplanned and _age_s(past, state) < rules.dwell_s]
    if wish.cause == "rescue":
        lately = [past for past in lately if past.cause != "rescue" or (past.is_done and past.verdict is None)]
    return f"the last {lately[-1].cause} was {_age_s(lately[-1], state):.0f} s ago" if lately else ""


def _undoes_nothing(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """No switch back to where the last one came from within a dwell time, except out of what is worse."""
    last = _last_done(state)
    if wish.cause == "roll_back" or last is None or wish.target != last.source:
        return ""
    age_s = _age_s(last, state)
    return f"it would undo what was done {age_s:.0f} s ago" if age_s < rules.dwell_s else ""


def _learns(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """Objects to targets that were rolled back from in this segment or shortly before it.

    They are not tried again in it for some hours.
    """
    left = {
        past.source
        for past in _since(state, rules)
        if past.cause == "roll_back" and past.is_done and _age_s(past, state) < LEARNED_S
    }
    return "it was rolled back before, in this window" if wish.target in left else ""


def _switches_twice_at_most(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """Into a window, and back out of what is worse: no more for its sake."""
    made = [past for past in _since(state, rules) if past.is_done and past.cause in {"window", "roll_back"}]
    return "two switches were made for this window" if wish.cause == "window" and len(made) >= 2 else ""


def _since(state: ControlState, rules: Rules) -> list[PastSwitch]:
    """The switches of this segment, those that made ready for it included."""
    return [past for past in state.past if past.ended_s >= state.began_s - rules.dwell_s]


def _backs_off(wish: Proposal, state: ControlState, rules: Rules) -> str:
    """After switches to its target that were given up it waits longer and longer.

    Other targets are not to blame.
    """
    tries = [past for past in state.past if past.target == wish.target]
    failures = list(takewhile(lambda past: not past.is_done, reversed(tries)))
    if not failures:
        return ""
    waits_s = min(rules.retry_s * 2 ** (len(failures) - 1), max(rules.dwell_s, rules.retry_s) * 12)
    age_s = _age_s(failures[0], state)
    if age_s >= waits_s:
        return ""
    return f"the last switch to it was given up {age_s:.0f} s ago; the next try is after {waits_s:g} s"


def _age_s(past: PastSwitch, state: ControlState) -> float:
    return state.now_s - past.ended_s


_RULES: Sequence[Rule] = (
    _keeps_limits,
    _heeds_a_no,
    _learns,
    _switches_twice_at_most,
    _waits_for_calm,
    _rescues_seldom,
    _undoes_nothing,
    _backs_off,
)
