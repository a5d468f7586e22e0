"""What goals bound: their intervals, whether two of them can hold at once, and the devices they ask for. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from intent.models import Config, Goal, Objective

_HOURS = {"USD/h": 1.0, "USD/day": 24.0, "USD/month": 730.0}


@dataclass(frozen=True, slots=True)
class Interval:
    """Values a goal allows, both ends included."""

    low: float
    high: float


def interval(goal: Objective | Config) -> Interval:
    """The values a bound allows; costs per day or month as costs per hour, optimisations everything."""
    if goal.value is None:
        return Interval(-math.inf, math.inf)
    hours = _HOURS.get(goal.unit or "", 1.0) if isinstance(goal, Objective) else 1.0
    value = goal.value / hours
    low = value if goal.op in {">=", "=="} else -math.inf
    high = value if goal.op in {"<=", "=="} else math.inf
    return Interval(low, high)


def overlap(a: Goal, b: Goal) -> bool:
    """Whether both hold at some time for some request: nothing said covers everything, two other names nothing in common."""
    if a.window != b.window and "always" not in (a.window, b.window):
        return False
    return all(_same(getattr(a, name, None), getattr(b, name, None)) for name in ("tenant", "model"))


def _same(a: str | None, b: str | None) -> bool:
    return a is None or b is None or a == b


def satisfies(value: float, goal: Objective | Config) -> bool:
    """Whether a value lies in what the goal allows."""
    allowed = interval(goal)
    return allowed.low <= value <= allowed.high


def devices_asked(goals: Sequence[Goal]) -> Iterator[tuple[int, int]]:
    """Goal index to the least number of devices asked for so far: TP and PP of the same time are multiplied."""
    for number, goal in enumerate(goals):
        if isinstance(goal, Config) and goal.op != "<=" and goal.key in {"tp", "pp"}:
            yield number, goal.value * max((one.value for one in _partners(goal, goals[:number])), default=1)
        elif isinstance(goal, Objective) and goal.metric == "gpu_count" and goal.op in {">=", "=="}:
            yield number, int(goal.value or 0)


def _partners(goal: Config, earlier: Sequence[Goal]) -> Iterator[Config]:
    """The PP wishes beside a TP wish, and the other way round."""
    for one in earlier:
        if (
            isinstance(one, Config)
            and {one.key, goal.key} == {"tp", "pp"}
            and one.op != "<="
            and overlap(one, goal)
        ):
            yield one
