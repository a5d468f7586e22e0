"""How candidates compare, each as simulated. Pure."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from intent.models import LATENCIES, Objective
from selector import explain
from selector.models import Candidate, Margin, SearchInput
from selector.objectives import Bound, Demands, margin_of, value_of
from selector.switching import bytes_to_move

_FAR = 7.0
"""What a reading without end counts as missing: the logarithm of about a thousand times."""


@dataclass(frozen=True)
class Ranking:
    """What is demanded of candidates, and which of them is best."""

    demands: Demands
    problem: SearchInput

    def margin(self, bound: Bound, candidate: Candidate) -> Margin:
        """How far a candidate is from a bound, with the headroom that the limits ask for."""
        headroom = 0.0 if bound in self.demands.relative else self.problem.limits.headroom
        return margin_of(bound, candidate, self.problem.workload, explain.goal_words(bound), headroom)

    def missed(self, bounds: Sequence[Bound], candidate: Candidate) -> list[Bound]:
        """The bounds that a candidate is predicted not to hold."""
        return [bound for bound in bounds if self.margin(bound, candidate).margin < 0]

    def holding(self, bounds: Sequence[Bound], candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates that are predicted to hold all bounds."""
        return [each for each in candidates if not self.missed(bounds, each)]

    def shortfall(self, candidate: Candidate, bounds: Sequence[Bound] | None = None) -> float:
        """By how much bounds (all hard ones) are missed: the sum of logarithms, relative to them. Finite."""
        margins = (self.margin(bound, candidate) for bound in (self.demands.bounds if bounds is None else bounds))
        return sum(min(_FAR, math.log1p(-margin.margin)) for margin in margins if margin.margin < 0)

    def best(self, candidates: Sequence[Candidate]) -> Candidate:
        """The one that ranks first of some, one at least; ``docs/plans.md`` has the order.

        What is better at what is to be optimised by less than the error band pays for no devices.
        """
        pool = _fewest(candidates, lambda each: len(self.missed(self.demands.bounds, each)))
        pool = _fewest(pool, lambda each: len(self.missed(self.demands.wishes, each)))
        pool = _fewest(pool, self.piles_up)
        for goal in self.demands.optimised:
            pool = self._as_good(goal, pool)
        if self.demands.balance:
            pool = _fewest(pool, self.weighed_up)
        pool = _fewest(pool, self.cost)
        best = min(pool, key=self._order)
        usual = next((each for each in pool if each.topology == best.topology and self._is_usual(each)), None)
        return usual if usual and not self._is_worse(usual, best) else best

    def read(self, each: Candidate) -> float:
        """The sum of the logarithms of the latencies that were said, smaller is better; 0 without any."""
        return sum(math.log(max(1e-9, min(1e9, self.reading(goal, each)))) for goal in self._latencies)

    def _is_worse(self, each: Candidate, other: Candidate) -> bool:
        """Whether it reads worse for every latency that was said, by more than the error band."""
        room = 1 + other.prediction.error_band * self.problem.limits.headroom
        readings = [(self.reading(goal, each), self.reading(goal, other)) for goal in self._latencies]
        return bool(readings) and all(mine > theirs * room for mine, theirs in readings)

    @property
    def _latencies(self) -> list[Bound]:
        """Those that were said."""
        bounds = (*self.demands.bounds, *self.demands.wishes)
        return [goal for goal in bounds if isinstance(goal, Objective) and goal.metric in LATENCIES]

    def piles_up(self, each: Candidate) -> bool:
        """Whether it does not keep up with the load at all."""
        return not math.isfinite(each.prediction.ttft_s["mean"])

    def _is_usual(self, each: Candidate) -> bool:
        """Whether its steps are filled as nobody asked for otherwise."""
        runs = each.topology == self.problem.now
        return each.batching == ((self.problem.running if runs else None) or self.problem.batching)

    def why_loses(self, loser: Candidate, winner: Candidate) -> str:
        """The first difference, as the rest of a sentence that begins with "it"."""
        for bound in self.missed((*self.demands.bounds, *self.demands.wishes), loser):
            if not self.missed([bound], winner):
                return explain.misses(self.margin(bound, loser))
        for goal in self.demands.optimised:
            mine = self.reading(goal, loser)
            best = self.reading(goal, winner)
            if mine != best and (
                loser not in self._as_good(goal, [loser, winner]) or self.cost(loser) <= self.cost(winner)
            ):
                return explain.optimises_less(goal, mine, best)
        if self.demands.balance and self.weighed_up(loser) != self.weighed_up(winner):
            return explain.balances_less(self.demands.balance, self._balanced(loser), self._balanced(winner))
        return self._costs_more(loser, winner)

    def _costs_more(self, loser: Candidate, winner: Candidate) -> str:
        if self.cost(loser) > self.cost(winner):
            holds = not self.missed(self.demands.said, winner)
            return explain.dearer(loser, winner, priced=not self.problem.unpriced, holds=holds)
        if self.cost(loser) < self.cost(winner):
            return explain.UNASKED
        if self.problem.now == winner.topology:
            return explain.not_worth_it(loser, winner)
        return explain.slower(loser, winner)

    def reading(self, goal: Bound, candidate: Candidate) -> float:
        """What a goal reads of a candidate, in the goal's unit."""
        return value_of(goal, candidate, self.problem.workload)

    def cost(self, candidate: Candidate) -> float:
        """By the hour, or in devices where some have no price."""
        prediction = candidate.prediction
        return float(prediction.devices if self.problem.unpriced else f"{prediction.usd_per_hour:.6g}")

    def weighed_up(self, candidate: Candidate) -> float:
        """Latency or throughput and cost together, smaller is better; 0 where nothing is weighed."""
        balance = self.demands.balance
        if balance is None:
            return 0.0
        value, cost = self._balanced(candidate)
        reading = 1 / value if balance.better.op == "maximize" else value
        return float(f"{balance.score(reading, cost):.6g}")

    def _as_good(self, goal: Bound, pool: Sequence[Candidate]) -> list[Candidate]:
        """Those that are as good at a goal as the best, or worse by less than the error band."""
        first = min(pool, key=lambda each: self._signed(goal, each))
        best = self._signed(goal, first)
        if not math.isfinite(best):
            return list(pool)
        band = first.prediction.error_band * self.problem.limits.headroom
        is_predicted = isinstance(goal, Objective) and goal.metric in {*LATENCIES, "throughput_tok", "throughput_req"}
        room = abs(best) * (band if is_predicted else 1e-9)
        return [each for each in pool if self._signed(goal, each) <= best + room]

    def _order(self, each: Candidate) -> tuple[float | str, ...]:
        """Of those that cost the same: what runs, what is optimised, the quickest, the least to move."""
        read = self.read(each)
        return (
            each.topology != self.problem.now,
            *(self._signed(goal, each) for goal in self.demands.optimised),
            float(f"{read:.4g}") if read else min(1e9, float(f"{each.prediction.ttft_s['p95']:.4g}")),
            -each.prediction.throughput_tok_s,
            sum(bytes_to_move(self.problem.now, each.topology, self.problem.model).values()),
            str(each.topology),
            str(each.batching),
        )

    def _signed(self, goal: Bound, candidate: Candidate) -> float:
        """What an optimised goal reads, smaller is better; rounded so that the last digits decide nothing."""
        value = self.reading(goal, candidate)
        return float(f"{value if goal.op == 'minimize' else -value:.6g}")

    def _balanced(self, candidate: Candidate) -> tuple[float, float]:
        """What the side that is weighed against cost reads, and the cost."""
        assert self.demands.balance is not None, "asked for only where there is one"
        return self.reading(self.demands.balance.better, candidate), self.cost(candidate)


def _fewest(candidates: Sequence[Candidate], count: Callable[[Candidate], float]) -> list[Candidate]:
    """Those of which least is counted."""
    counts = [count(candidate) for candidate in candidates]
    return [candidate for candidate, number in zip(candidates, counts, strict=True) if number == min(counts)]
