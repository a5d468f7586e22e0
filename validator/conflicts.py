"""Goals that cannot hold together: disjoint bounds, crossed percentiles, opposite wishes. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from intent.models import HIGHER_IS_BETTER, Config, Finding, Goal, Objective
from validator.intervals import devices_asked, interval, overlap

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def check(goals: Sequence[Goal]) -> Iterator[Finding]:
    """One finding for each pair that clashes, at the later of the two."""
    for (first, a), (second, b) in combinations(enumerate(goals), 2):
        if overlap(a, b) and (clash := _clash(a, b)):
            code, words = clash
            message = f"{a.evidence!r} and {b.evidence!r} cannot both hold: {words}"
            yield Finding(
                code,
                f"/goals/{second}",
                message,
                b.evidence,
                f"drop one of /goals/{first} and /goals/{second}",
            )
    yield from _too_many_devices(goals)


def _clash(a: Goal, b: Goal) -> tuple[str, str] | None:
    if isinstance(a, Config) and isinstance(b, Config) and a.key == b.key:
        return ("different_settings", f"there is one {a.key.upper()} at a time") if _disjoint(a, b) else None
    if isinstance(a, Objective) and isinstance(b, Objective) and a.metric == b.metric:
        return _objectives(a, b)
    return None


def _objectives(a: Objective, b: Objective) -> tuple[str, str] | None:
    if {a.op, b.op} == {"minimize", "maximize"}:
        return "opposite_wishes", "the least and the most of one metric are opposites"
    if "USD/Mtok" in {a.unit, b.unit} and a.unit != b.unit:
        return None  # a price per token and one per hour compare only at a known load
    if a.stat == b.stat:
        return _same_statistic(a, b)
    if a.stat in _PERCENTILES and b.stat in _PERCENTILES:
        lower, higher = sorted((a, b), key=lambda goal: _PERCENTILES.index(goal.stat or ""))
        return _percentiles(lower, higher)
    return None


def _same_statistic(a: Objective, b: Objective) -> tuple[str, str] | None:
    if _disjoint(a, b):
        return "disjoint_bounds", "no value lies within both bounds"
    if replace(a, value=b.value, unit=b.unit, evidence=b.evidence) == b and interval(a) != interval(b):
        return "bounded_twice", "they bound the same thing differently"
    return None


def _percentiles(lower: Objective, higher: Objective) -> tuple[str, str] | None:
    """A lower percentile is never above a higher one, so its bound should not be either."""
    low, high = interval(lower), interval(higher)
    if low.low > high.high or (
        low.high > high.high and low.high != float("inf") and lower.metric not in HIGHER_IS_BETTER
    ):
        return "percentiles_crossed", f"{lower.stat} is never above {higher.stat}"
    return None


def _disjoint(a: Objective | Config, b: Objective | Config) -> bool:
    one, other = interval(a), interval(b)
    return max(one.low, other.low) > min(one.high, other.high)


def _too_many_devices(goals: Sequence[Goal]) -> Iterator[Finding]:
    """A topology that needs more devices than a goal of the same text allows."""
    counts = [goal for goal in goals if isinstance(goal, Objective) and goal.metric == "gpu_count"]
    for number, asked in devices_asked(goals):
        goal = goals[number]
        for count in counts:
            if isinstance(goal, Config) and overlap(goal, count) and asked > interval(count).high:
                message = f"{goal.evidence!r} needs {asked} devices, more than {count.evidence!r} allows"
                yield Finding("disjoint_bounds", f"/goals/{number}", message, goal.evidence)
