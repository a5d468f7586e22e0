"""What a switch was good for, by what requests met after it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.documents.promises import Cause, Verdict
from service.promises.attainment import FEWEST, Tally
from service.promises.decide import Rules


@dataclass(frozen=True, slots=True)
class Reading:
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
    readings: Sequence[Reading],
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
    num_requests = max((one.after.total for one in readings), default=0)
    missed = [one for one in readings if one.after.falls_short(one.needed)]
    worse = [one for one in missed if _is_worse(one, cause, load_by_planned, rules)]
    if worse and not is_draining and num_requests >= min(rules.probation_requests, 2 * FEWEST):
        return Judgement("worse", "; ".join(map(_worse, worse)))
    if num_requests < rules.probation_requests and elapsed_s < rules.probation_s:
        return None
    if num_requests < FEWEST:
        return Judgement("unknown", f"{num_requests} requests are too few")
    if missed:
        over = (
            f"; the load is {load_by_planned:.2g} times what was planned for" if load_by_planned > 1 else ""
        )
        return Judgement("not_recovered", "; ".join(map(_missed, missed)) + over)
    return Judgement("recovered", f"every goal was kept by {num_requests} requests")


def _is_worse(one: Reading, cause: Cause, load_by_planned: float, rules: Rules) -> bool:
    """Whether what was left does better: as predicted, and where a switch was a rescue as measured, too."""
    if cause in {"roll_back", "recovery"} or load_by_planned > 1 + rules.tolerance:
        return False
    is_slower = (
        one.left is not None and one.measured is not None and one.measured > one.left * (1 + rules.tolerance)
    )
    if cause != "rescue":
        return is_slower
    did_better = one.after.share < one.before.share - rules.tolerance or (
        one.before.total >= FEWEST and not one.before.falls_short(one.needed)
    )
    return did_better and (is_slower or one.left is None)


def _missed(one: Reading) -> str:
    return f"{one.words} was met by {one.after.share:.1%} of {one.after.total} requests"


def _worse(one: Reading) -> str:
    left = f", where what was left is predicted {one.left:.3g}" if one.left is not None else ""
    return f"{_missed(one)}{left}, of {one.before.total} before it by {one.before.share:.1%}"
