"""How candidates compare, and the words for it. Pure and deterministic.

The first difference decides: goals missed, soft goals missed, the objectives named (in their order), the lowest cost
(the fewest devices where some have no price), no switch for a gain within the error band, the lowest P95 TTFT, the fewest
bytes to move.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from selector import explain
from selector.models import Candidate, Problem
from selector.moves import bytes_to_move
from selector.objectives import Bound, Demands, holds, margin_of, value_of


@dataclass(frozen=True)
class Ranking:
    """The candidates for one problem and what is demanded of them."""

    demands: Demands
    problem: Problem
    candidates: Sequence[Candidate]

    @cached_property
    def best_first(self) -> list[Candidate]:
        """Every candidate, in order; the text of the topology settles what is equal in everything."""
        ordered = sorted(self.candidates, key=self._key)
        alike = (list(group) for _, group in groupby(ordered, key=self._key))
        return [one for group in alike for one in (self._fewest_bytes_first(group) if group[1:] else group)]

    @cached_property
    def today(self) -> Candidate | None:
        """What runs now, at the best of its batch limits."""
        now = [one for one in self.candidates if one.topology == self.problem.now]
        return min(now, key=lambda one: (self._worth(one), str(one.topology)), default=None)

    def missed(self, bounds: Sequence[Bound], candidate: Candidate) -> list[Bound]:
        """The bounds that a candidate is predicted not to hold."""
        return [bound for bound in bounds if not holds(bound, candidate, self.problem.workload)]

    def why_loses(self, loser: Candidate, winner: Candidate) -> str:
        """The first difference, as the rest of a sentence that begins with "it"."""
        stated = (*self.demands.bounds, *self.demands.wishes)
        for bound in self.missed(stated, loser):
            if holds(bound, winner, self.problem.workload):
                return explain.misses(
                    margin_of(bound, loser, self.problem.workload, explain.goal_words(bound))
                )
        for goal in self.demands.optimised:
            mine, best = self._signed(goal, loser), self._signed(goal, winner)
            if mine != best:
                return explain.optimises_less(goal, abs(mine), abs(best))
        if self.demands.balance and self._weighed_up(loser) != self._weighed_up(winner):
            return explain.balances_less(self.demands.balance, self._balanced(loser), self._balanced(winner))
        if self.cost(loser) != self.cost(winner):
            dearer = self.cost(loser) > self.cost(winner)
            return (
                explain.dearer(loser, winner, priced=not self.problem.unpriced) if dearer else explain.UNASKED
            )
        if self._needless(loser) and not self._needless(winner):
            return explain.not_worth_it(loser, winner)
        return explain.slower(loser, winner)

    def _key(self, candidate: Candidate) -> tuple[float, ...]:
        *worth, ttft_s, throughput, batch = self._worth(candidate)
        return (*worth, self._needless(candidate), ttft_s, throughput, batch)

    def _fewest_bytes_first(self, alike: Sequence[Candidate]) -> list[Candidate]:
        def moved(one: Candidate) -> tuple[int, str]:
            sizes = bytes_to_move(self.problem.now, one.topology, self.problem.model)
            return sum(sizes.values()), str(one.topology)

        return sorted(alike, key=moved)

    def _worth(self, candidate: Candidate) -> tuple[float, ...]:
        return (
            len(self.missed(self.demands.bounds, candidate)),
            len(self.missed(self.demands.wishes, candidate)),
            *(self._signed(goal, candidate) for goal in self.demands.optimised),
            self._weighed_up(candidate),
            self.cost(candidate),
            float(f"{candidate.prediction.ttft_s['p95']:.6g}"),
            -candidate.prediction.throughput_tok_s if math.isinf(candidate.prediction.ttft_s["p95"]) else 0.0,
            candidate.prediction.batch,
        )

    def _signed(self, goal: Bound, candidate: Candidate) -> float:
        """What an optimised goal reads, smaller is better; rounded so that the last digits decide nothing."""
        value = value_of(goal, candidate.topology, candidate.prediction, self.problem.workload)
        return float(f"{value if goal.op == 'minimize' else -value:.6g}")

    def cost(self, candidate: Candidate) -> float:
        """By the hour, or in devices where some have no price."""
        prediction = candidate.prediction
        return float(prediction.devices if self.problem.unpriced else f"{prediction.usd_per_hour:.6g}")

    def _balanced(self, candidate: Candidate) -> tuple[float, float]:
        """What the side that is weighed against cost reads, and the cost."""
        assert self.demands.balance is not None, "asked for only where there is one"
        better = self.demands.balance.better
        value = value_of(better, candidate.topology, candidate.prediction, self.problem.workload)
        return value, self.cost(candidate)

    def _weighed_up(self, candidate: Candidate) -> float:
        """The two together, smaller is better; 0 where nothing is weighed."""
        balance = self.demands.balance
        if balance is None:
            return 0.0
        value, cost = self._balanced(candidate)
        reading = 1 / value if balance.better.op == "maximize" else value
        return float(f"{balance.score(reading, cost):.6g}")

    def _needless(self, candidate: Candidate) -> bool:
        """A switch whose gain in TTFT the error band swallows."""
        today = self.today
        if today is None or candidate.topology == today.topology:
            return False
        return candidate.prediction.ttft_s["p95"] > today.prediction.ttft_s["p95"] * (
            1 - today.prediction.error_band
        )
