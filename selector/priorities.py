"""Orders of priority as objectives. Pure.

What is put first is made good first. Where it costs money to make latency or throughput better, the two are weighed instead of
one taking all: the better side counts double, so that half the latency is worth up to four times the cost, or, the other way
round, half the cost up to four times the latency.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from intent.models import Goal, Objective, Priority

Choice = TypeVar("Choice")

FIRST, SECOND = 2.0, 1.0
"""Weights of two sides: exponents of what they read."""
_SIDES = ("latency", "throughput", "cost")
_NEAR = 1e-3


def weighed(goal: Priority) -> bool:
    """Whether both sides are something that a topology decides."""
    return goal.higher in _SIDES and (goal.lower is None or goal.lower in _SIDES)


def sides(goals: Sequence[Goal]) -> tuple[str, ...]:
    """The sides that were said, what is put first before what is put after it."""
    pairs = [goal for goal in goals if isinstance(goal, Priority) and weighed(goal)]
    said = dict.fromkeys(side for goal in pairs for side in (goal.higher, goal.lower) if side)
    order: list[str] = []
    while len(order) < len(said):
        left = [side for side in said if side not in order]
        beaten = {goal.lower for goal in pairs if goal.higher in left}
        above_all = [goal.higher for goal in pairs if goal.lower is None and goal.higher in left]
        free = [side for side in left if side not in beaten] or left  # the validator lets no circle pass
        order.append(next((side for side in above_all if side in free), free[0]))
    return tuple(order)


def above_cost(goals: Sequence[Goal]) -> bool:
    """Whether latency or throughput is put before everything else, cost included: ``throughput first``."""
    return any(
        isinstance(goal, Priority) and weighed(goal) and goal.lower is None and goal.higher != "cost"
        for goal in goals
    )


def objective(side: str, bounds: Sequence[Goal]) -> Objective:
    """What making a side good means; latency is the one that a goal bounds, else the mean TTFT."""
    if side == "throughput":
        return Objective("throughput_tok", "maximize", evidence="priority")
    if side == "cost":
        return Objective("cost", "minimize", evidence="priority", unit="USD/h")
    bound = next(
        (goal for goal in bounds if isinstance(goal, Objective) and goal.metric in {"ttft", "tpot", "e2e"}),
        None,
    )
    if bound is None:
        return Objective("ttft", "minimize", evidence="priority", stat="mean", unit="s")
    return Objective(bound.metric, "minimize", evidence="priority", stat=bound.stat, unit="s")


@dataclass(frozen=True, slots=True)
class Balance:
    """A side that costs money to make better, weighed against the cost."""

    better: Objective
    exponents: tuple[float, float]
    """Of what it reads, and of the cost."""

    def score(self, reading: float, cost: float) -> float:
        """Smaller is better; ``reading`` is smaller where it is better, too."""
        if not math.isfinite(reading):
            return math.inf
        return self.exponents[0] * math.log(max(reading, 1e-12)) + self.exponents[1] * math.log(
            max(cost, 1e-12)
        )


def balance(goals: Sequence[Goal], bounds: Sequence[Goal]) -> Balance | None:
    """Latency or throughput against cost, where one of them is put before the other."""
    order = sides(goals)
    better = next((side for side in order if side != "cost"), None)
    if better is None or not ("cost" in order or above_cost(goals)):
        return None
    first = order[0] != "cost"
    return Balance(objective(better, bounds), (FIRST, SECOND) if first else (SECOND, FIRST))


@dataclass(frozen=True, slots=True)
class Trade(Generic[Choice]):
    """The best choice for a product of powers of a cost and of what it buys, which falls as the cost may rise."""

    buys: Callable[[float], tuple[Choice, float, float] | None]
    """The best choice for at most a cost, what it reads (smaller is better) and what it really costs; None if there is none."""
    score: Callable[[float, float], float]
    """Of what it reads and what it costs; smaller is better."""

    def best(self, costs: Sequence[float]) -> Choice | None:
        """Branch and bound over the costs, which rise: between two, nothing beats the lower cost with the upper one's reading."""
        found = self.buys(costs[-1])
        if found is None:
            return None
        best, score = found[0], self.score(*found[1:])
        open_ranges = [(0, len(costs) - 1, found[1])]
        while open_ranges:
            low, high, reading = open_ranges.pop()
            if low >= high or self.score(reading, costs[low]) >= score - _NEAR:
                continue
            middle = (low + high) // 2
            tried = self.buys(costs[middle])
            if tried is not None:
                if self.score(*tried[1:]) < score:
                    best, score = tried[0], self.score(*tried[1:])
                open_ranges.append((low, middle, tried[1]))
            open_ranges.append((middle + 1, high, reading))
        return best
