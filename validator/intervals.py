"""What goals bound: their intervals, and whether two of them hold at once. Pure."""

import math
from dataclasses import dataclass

from intent.models import HOURS_OF_COST, Config, Goal, Objective, Placement
from validator.models import Site
from validator.overlap import defined, overlap


@dataclass(frozen=True, slots=True)
class Interval:
    """Values a goal allows, both ends included."""

    low: float
    high: float

    def disjoint(self, other: "Interval") -> bool:
        """Whether no value lies in both."""
        return max(self.low, other.low) > min(self.high, other.high)


def bounded(op: str, value: float) -> Interval:
    """What a comparison with a value allows."""
    return Interval(
        value if op in {">=", "=="} else -math.inf,
        value if op in {"<=", "=="} else math.inf,
    )


def interval(goal: Objective | Config) -> Interval:
    """The values a bound allows; costs per day or month as costs per hour, optimisations everything."""
    if goal.value is None:
        return Interval(-math.inf, math.inf)
    return bounded(
        goal.op,
        goal.value / (HOURS_OF_COST.get(goal.unit or "", 1.0) if isinstance(goal, Objective) else 1.0),
    )


def satisfies(value: float, goal: Objective | Config) -> bool:
    """Whether a value lies in what the goal allows."""
    allowed = interval(goal)
    return allowed.low <= value <= allowed.high


def hard(goal: Goal) -> bool:
    """Whether a goal must hold; what is only preferred yields, and so never clashes."""
    return not (goal.rule == "prefer" if isinstance(goal, Placement) else getattr(goal, "soft", False))


def together(a: Goal, b: Goal, site: Site) -> bool:
    """Whether both hold at some time for some request: nothing said covers everything, two other names nothing in common."""
    return all(_alike(a, b, name) for name in ("tenant", "model")) and overlap(
        a.window, b.window, site.windows, site.now
    )


def _alike(a: Goal, b: Goal, name: str) -> bool:
    one, other = getattr(a, name, None), getattr(b, name, None)
    return one is None or other is None or one == other


def covers(a: Goal, b: Goal, site: Site) -> bool:
    """Whether ``a`` holds whenever and for whomever ``b`` does (as far as their words show)."""
    for name in ("tenant", "model"):
        if getattr(a, name, None) not in {None, getattr(b, name, None)}:
            return False
    window = defined(a.window, site.windows)
    return window == "always" or window == defined(b.window, site.windows)
