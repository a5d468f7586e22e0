"""What a switch was good for, by what requests met after it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.models import Topology
from selector.models import Workload
from service.deployment.policy import Rules
from service.documents.promises import Cause, Verdict
from service.promises.agenda import ActiveGoal, Segment
from service.promises.attainment import FEWEST, Tally


@dataclass(frozen=True, slots=True)
class GoalComparison:
    """One goal that is counted in requests, before and after a switch."""

    words: str
    needed: float
    """Share of requests."""
    before: Tally
    """On the topology that was left, under the load of then."""
    after: Tally
    measured: float | None = None
    """The goal's statistic since the switch, in its unit; None: there was no request."""
    left: float | None = None
    """What the topology that was left is predicted to do under the load of the new segment, corrected by how it was measured
    before; None: not known."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason."""

    verdict: Verdict
    why: str


def judge(
    readings: Sequence[GoalComparison],
    cause: Cause,
    elapsed_s: float,
    load_by_planned: float,
    rules: Rules,
    *,
    is_draining: bool = False,
) -> Judgement | None:
    """The verdict on a switch whose probation began ``elapsed_s`` ago; None: it is too early.

    ``load_by_planned`` is the load by the one that was planned for; by a rescue, the one that was measured then. While a
    queue shrinks (``is_draining``) nothing is worse.
    """
    num_requests = max((reading.after.total for reading in readings), default=0)
    missed = [reading for reading in readings if reading.after.falls_short(reading.needed)]
    worse = [comparison for comparison in missed if _is_worse(comparison, cause, load_by_planned, rules)]
    if worse and not is_draining and num_requests >= min(rules.probation_requests, 2 * FEWEST):
        return Judgement("worse", "; ".join(map(_worse, worse)))
    if num_requests < rules.probation_requests and elapsed_s < rules.probation_s:
        return None
    if num_requests < FEWEST:
        return Judgement("unknown", f"{num_requests} requests are too few")
    if missed:
        over = f"; the load is {load_by_planned:.2g} times what was planned for" if load_by_planned > 1 else ""
        return Judgement("not_recovered", "; ".join(map(_missed, missed)) + over)
    return Judgement("recovered", f"every goal was kept by {num_requests} requests")


def _is_worse(comparison: GoalComparison, cause: Cause, load_by_planned: float, rules: Rules) -> bool:
    """Whether what was left does better: as predicted, and where a switch was a rescue as measured, too."""
    if cause in {"roll_back", "recovery"} or load_by_planned > 1 + rules.tolerance:
        return False
    is_slower = (
        comparison.left is not None
        and comparison.measured is not None
        and comparison.measured > comparison.left * (1 + rules.tolerance)
    )
    if cause != "rescue":
        return is_slower
    did_better = comparison.after.share < comparison.before.share - rules.tolerance or (
        comparison.before.total >= FEWEST and not comparison.before.falls_short(comparison.needed)
    )
    return did_better and (is_slower or comparison.left is None)


def _missed(comparison: GoalComparison) -> str:
    return f"{comparison.words} was met by {comparison.after.share:.1%} of {comparison.after.total} requests"


def _worse(comparison: GoalComparison) -> str:
    left = f", where what was left is predicted {comparison.left:.3g}" if comparison.left is not None else ""
    return f"{_missed(comparison)}{left}, of {comparison.before.total} before it by {comparison.before.share:.1%}"


@dataclass(slots=True)
class Probation:
    """A switch whose verdict is to come, about the requests that arrive after its beginning."""

    earliest_s: float
    """The switch has ended, and its segment begun."""
    stop_s: float
    """When its standstill began, within its segment."""
    cause: Cause
    segment: Segment
    before: dict[ActiveGoal, Tally]
    left: Topology
    slower: float
    """How many times fewer requests than predicted what was left had answered."""
    off: dict[ActiveGoal, float]
    """How many times slower than predicted what was left had been measured."""
    load: Workload
    """That the switch was made for."""
    latest_s: float | None = None
    """When the queue of before is predicted to be gone."""
    began_s: float | None = None
    """When it was gone, or should have been."""
