"""Why nothing holds the goals, what comes nearest, and what one would get. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from intent.models import Config, Objective
from selector import explain
from selector.finder import Finder
from selector.models import Candidate, Infeasible
from selector.objectives import UNSAID, WORKLOAD_RATE, Bound, hangs_on_the_load, margin_of, wants_use
from selector.space import why_never, why_no_stage
from selector.switching import without_outage
from selector.trial import Trial, first_of_each

_EASES = (1.5, 3.0)
"""By how much all bounds are eased together, to look for what is near all of them."""
_IDLE = 1 / 64
_CALM = 1 / 4
"""Of a load: what is near there may hold a part of it."""
_LOOKED = 5
"""Topologies that are simulated for what is best at one goal."""


@dataclass(frozen=True)
class Infeasibility:
    """What is said where no topology holds all hard goals."""

    trial: Trial
    finder: Finder

    def infeasible(self) -> Infeasible:
        """The goals or limits that clash, the nearest candidate and, for each goal it misses, what would hold."""
        bounds = self.trial.ranking.demands.bounds
        for bound in bounds:
            self._look_for(bound)
        if not self._holding(bounds):
            for ease in _EASES:
                self.trial.judge_all(self.finder.best_at(bounds, None, _LOOKED, ease))
        self.trial.tune(self.trial.candidates, bounds)
        found = self.trial.candidates
        if not found:
            return Infeasible(self._nothing_runs(), None)
        gentle = without_outage(found, self.finder.problem) or found
        nearest = self._nearest(gentle)
        if self.trial.ranking.piles_up(nearest):
            nearest = self._serving_most(gentle) or nearest
        missed = self.trial.ranking.missed(bounds, nearest)
        words = explain.listed([explain.instead(bound, self.trial.ranking.margin(bound, nearest)) for bound in missed])
        targets = [target for bound in missed if (target := self._target(bound))]
        nearest = replace(nearest, reason=f"comes nearest; {words}")
        share, part = self._part(nearest)
        return Infeasible(self._clashes(), nearest, (*part, *targets), share=share)

    def _look_for(self, bound: Bound) -> None:
        """Simulate what is best at one goal, alone and beside the others."""
        bounds = self.trial.ranking.demands.bounds
        if self._holding(bounds):
            return
        aim = _aim(bound)
        others = [other for other in bounds if other is not bound]
        for held in (
            (*others, *self.trial.ranking.demands.wishes),
            [other for other in others if isinstance(other, Config)],
        ):
            found = self.trial.judge_all(self.finder.best_at(held, aim, _LOOKED))
            self.trial.tune(found, held, aim)

    def _nearest(self, found: Sequence[Candidate]) -> Candidate:
        ranking = self.trial.ranking
        now = self.trial.problem.now

        def order(each: Candidate) -> tuple[object, ...]:
            return (
                round(ranking.shortfall(each), 6),
                ranking.piles_up(each),
                each.topology != now,
                ranking.cost(each),
                str(each.topology),
            )

        return min(found, key=order)

    def _serving_most(self, found: Sequence[Candidate]) -> Candidate | None:
        """Where requests pile up on what is nearest: what holds all goals at the largest part of the load."""
        timed = [bound for bound in self.trial.ranking.demands.bounds if hangs_on_the_load(bound)]
        others = [bound for bound in self.trial.ranking.demands.bounds if bound not in timed]
        calm = sorted(
            self.trial.ranking.holding(others, found), key=lambda each: self.trial.shortfall_at(_CALM, each, timed)
        )
        shares = {self.trial.share(each, timed): each for each in first_of_each(calm)[:_LOOKED][::-1]}
        return shares[max(shares)] if shares and max(shares) > 0 else None

    def _nothing_runs(self) -> tuple[str, ...]:
        """Why not one topology is left."""
        problem = self.finder.problem
        rules = self.trial.ranking.demands.rules
        if rules and not self.finder.precisions:
            words = explain.listed([repr(rule.evidence) for rule in rules])
            return (f"{words} leave no format for the one pipeline that serves everyone",)
        if not problem.cluster.nodes:
            return ("the goals leave no device",)
        reasons = why_no_stage(problem, self.finder.precisions)
        held = self.finder.holds
        if held is not None and held < problem.model.num_layers:
            what = (
                f"layers of {problem.model.name} fit, with the KV of {problem.workload.concurrency} requests in flight"
            )
            return (
                f"at most {held} of the {problem.model.num_layers} {what}, into the devices that may be used",
                *reasons,
            )
        configs = [bound for bound in self.trial.ranking.demands.bounds if isinstance(bound, Config)]
        why = [self._never(config) for config in configs]
        if held is not None and not why:
            why = ["what fits does not fit beside what runs now, and cannot be reached from it layer by layer"]
        return (*why, *reasons) or ("no device kind of the inventory has a profile with an allowed precision",)

    def _clashes(self) -> tuple[str, ...]:
        """Goals that nothing holds; if each is held by something, the pairs that exclude each other."""
        bounds = self.trial.ranking.demands.bounds
        unheld = [bound for bound in bounds if not self._holding((bound,))]
        # What is busy enough may be so on more devices than are asked for: then nothing else is to blame.
        alone = unheld or [bound for bound in bounds if wants_use(bound)]
        if alone:
            return tuple(map(self._unreachable, alone))
        pairs: list[tuple[Bound, ...]] = [pair for pair in combinations(bounds, 2) if not self._holding(pair)]
        usual = [pair for pair in pairs if UNSAID.intersection(bound.evidence for bound in pair)]
        groups = usual or pairs or [bounds]
        return tuple(
            f"{explain.listed([explain.goal_words(bound) for bound in group])} exclude each other: "
            "each can be held alone, nothing that was simulated holds them together"
            for group in groups
        )

    def _unreachable(self, bound: Bound) -> str:
        if isinstance(bound, Config):
            return self._never(bound)
        best = self._best(bound, self.trial.candidates)
        nothing = "nothing on fewer devices that was simulated" if wants_use(bound) else "nothing that was simulated"
        reads = explain.reading(self.trial.ranking.margin(bound, best))
        on = explain.candidate_words(best)
        return f"{explain.goal_words(bound)}: {nothing} holds it; the best is {reads} on {on}"

    def _never(self, bound: Config) -> str:
        reason = why_never(bound, self.finder.problem, self.finder.precisions)
        return f"{explain.goal_words(bound)}: no allowed topology has it" + (f" ({reason})" if reason else "")

    def _target(self, bound: Bound) -> str | None:
        """The nearest bound that could be held with every other goal or, if there is none, alone."""
        if not isinstance(bound, Objective) or bound.op == "==" or bound.evidence == WORKLOAD_RATE or wants_use(bound):
            return None
        demands = self.trial.ranking.demands
        others = [other for other in demands.bounds if other is not bound]
        unsaid = [other for other in others if other.evidence in UNSAID]
        joint = self._holding(others)
        held = joint or self._holding(unsaid)
        if not held:
            return None
        best = self._best(bound, held)
        worst = margin_of(bound, best, self.trial.problem.workload, "", self.trial.problem.limits.headroom).worst
        eased = (
            replace(bound, value=explain.to_digits(worst, 2, up=bound.op == "<=")) if math.isfinite(worst) else bound
        )
        if eased.value == bound.value or (bound.op == "<=") is not ((eased.value or 0.0) > (bound.value or 0.0)):
            return None
        alone = "" if joint else ", without the other goals"
        return f"{explain.goal_words(eased)} would hold on {explain.candidate_words(best)}{alone}"

    def _holding(self, bounds: Sequence[Bound]) -> list[Candidate]:
        return self.trial.ranking.holding(bounds, self.trial.candidates)

    def _part(self, nearest: Candidate) -> tuple[float, tuple[str, ...]]:
        """How much of the load the nearest holds all goals at, or what may be spent buys; and that in words."""
        demands = self.trial.ranking.demands
        timed = [bound for bound in demands.bounds if hangs_on_the_load(bound)]
        counted = [bound for bound in demands.bounds if bound not in timed]
        if not timed or any(map(wants_use, counted)):
            return 0.0, ()
        rate_rps = self.trial.problem.workload.rate_rps
        is_within = not self.trial.ranking.missed(counted, nearest)
        if not is_within and any(isinstance(bound, Objective) and bound.unit == "USD/Mtok" for bound in counted):
            return 0.0, ()  # fewer requests cost more each
        for each in [nearest] if is_within else self._within(counted, timed):
            share = self.trial.share(each, timed)
            if share and self._is_within(counted, share, each):
                words = explain.part(each, share * rate_rps, rate_rps, self._money(counted))
                return (share if is_within else 0.0), (words,)
        idle = self.trial.at(_IDLE, nearest)
        ranking = self.trial.ranking_at(_IDLE)
        missed = ranking.missed(timed, idle) if idle else []
        if not idle or not missed:
            return 0.0, ()
        readings = explain.listed([explain.reading(ranking.margin(bound, idle)) for bound in missed])
        return 0.0, (f"with hardly any load {explain.missed_goals(missed)} would be {readings} there",)

    def _is_within(self, counted: Sequence[Bound], share: float, candidate: Candidate) -> bool:
        """Whether it costs no more than may be spent at a share of the load: fewer requests cost more each."""
        at_share = self.trial.at(share, candidate)
        return at_share is not None and not self.trial.ranking_at(share).missed(counted, at_share)

    def _within(self, counted: Sequence[Bound], timed: Sequence[Bound]) -> list[Candidate]:
        """What serves most of what costs no more than may be spent."""
        most = Objective("throughput_tok", "maximize", evidence="what may be spent buys")
        self.trial.judge_all(self.finder.best_at(counted, most, _LOOKED))
        quickest = sorted(self._holding(counted), key=lambda each: -each.prediction.throughput_tok_s)[:_LOOKED]
        return sorted(quickest, key=lambda each: -self.trial.share(each, timed))[:1]

    def _money(self, counted: Sequence[Bound]) -> str:
        costs = [bound for bound in counted if isinstance(bound, Objective) and bound.metric == "cost"]
        return explain.amount(costs[0].value or 0.0, costs[0].unit) if costs else ""

    def _best(self, bound: Bound, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=lambda each: self.trial.ranking.margin(bound, each).margin)


def _aim(bound: Bound) -> Objective | None:
    """What to make as good as can be so that a bound holds."""
    if not isinstance(bound, Objective) or bound.op == "==" or wants_use(bound):
        return None
    return replace(bound, op="minimize" if bound.op == "<=" else "maximize", value=None)
