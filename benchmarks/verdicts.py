"""What can be wrong with an answer: beside others that are known, beside the agenda, and of what a refusal says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from benchmarks.answered import BANDED, Answered, Fault, shown
from benchmarks.questions import PROFILES
from benchmarks.refusals import Refused
from intent.models import Objective, Relative
from selector import explain
from selector.models import Candidate, Infeasible, Plan
from selector.objectives import Bound
from selector.prediction import candidate
from selector.space import blocker
from selector.switching import way
from service.promises.agenda import ActiveGoal, Segment
from service.promises.planner import Planner

KINDS = (
    "dominated", "pays for nothing", "worse", "dearer", "margin", "contradiction", "refused", "false reason",
    "false target", "false part", "not nearest", "error",
)  # fmt: skip
BEGINS = datetime(2026, 1, 5, 8, tzinfo=UTC)
MARGINS = 1e-9
LEAST_BAND = 0.01
"""Within which predictions are alike, whatever headroom is asked for."""


@dataclass
class Verdict(Answered):
    """One answer judged."""

    def faults(self) -> Iterator[Fault]:
        """All that is wrong."""
        if isinstance(self.answer, Plan):
            yield from self._of_plan(self.answer)
        else:
            yield from Refused(self, self.answer).faults()
        yield from self._beside_agenda()

    # --- plans -------------------------------------------------------------------------------------------------------

    def _of_plan(self, plan: Plan) -> Iterator[Fault]:
        mine = candidate(plan.target, self.problem, PROFILES, plan.batching)
        if mine is None or mine.prediction != plan.prediction:
            yield Fault("contradiction", f"candidate() gives another prediction of {plan.target} ({plan.batching})")
            return
        yield from self._margins(plan, mine)
        stays = plan.target == plan.now and (not self.demands.optimise or "stays: " in " ".join(plan.reasons))
        if not stays and self.is_free:
            yield from self._beside_others(mine)

    def _margins(self, plan: Plan, mine: Candidate) -> Iterator[Fault]:
        """Each margin as it is computed here, and no hard goal missed."""
        stated = (*self.demands.bounds, *self.demands.wishes)
        for number, (bound, margin) in enumerate(zip(stated, plan.margins, strict=True)):
            is_held = self._holds(bound, mine)
            if is_held is None:
                continue
            name = explain.goal_words(bound)
            if number < len(self.demands.bounds) and not is_held:
                yield Fault("margin", f"{name} is hard and missed: {self.ranking.reading(bound, mine):.4g}")
            elif is_held != (margin.margin >= 0):
                yield Fault("margin", f"{name}: margin {margin.margin:.3g}, held: {is_held}")

    def _holds(self, bound: Bound, mine: Candidate) -> bool | None:
        """Whether a bound holds with headroom; None for what is no figure."""
        if not isinstance(bound, Objective) or bound.op == "==" or bound.value is None:
            return None
        is_banded = bound.metric in BANDED and bound not in self.demands.relative
        off = mine.prediction.error_band * self.problem.limits.headroom if is_banded else 0.0
        read = self.ranking.reading(bound, mine)
        if bound.op == "<=":
            return read * (1 + off) <= bound.value * (1 + MARGINS)
        return read * (1 - off) >= bound.value * (1 - MARGINS)

    def _wishes_missed(self, one: Candidate) -> int:
        return len(self.ranking.missed(self.demands.wishes, one))

    def _others(self, mine: Candidate) -> list[Candidate]:
        """Everything else that is known and may run, and holds as much."""
        known = [*self.trial.candidates]
        if self.best_of_all is not None:
            known += self.everything.holding(self.demands.bounds)
        most = self._wishes_missed(mine)
        here = self.finder.problem
        ways = {"shadow", "stream", way(mine.topology, here)}  # an outage is offered where there is another way
        return [
            one
            for one in known
            if not self.ranking.missed(self.demands.bounds, one)
            and self._wishes_missed(one) <= most
            and not blocker(one.topology, here, self.finder.precisions)
            and way(one.topology, here) in ways
        ]

    def _beside_others(self, mine: Candidate) -> Iterator[Fault]:
        others = [mine, *self._others(mine)]
        fewest = min(others, key=self._wishes_missed)
        if self._wishes_missed(fewest) < self._wishes_missed(mine):
            yield Fault("worse", f"{self.told(mine)} misses more soft goals than {self.told(fewest)}")
            return
        if found := next((one for one in others if self._dominates(one, mine)), None):
            yield Fault("dominated", f"{self.told(mine)} by {self.told(found)}")
        cost = self.ranking.cost(mine)
        by_cost = sorted(others, key=self.ranking.cost)
        if self.demands.balance:
            best = min((self.ranking.weighed_up(one) for one in others), default=0.0)
            if self.ranking.weighed_up(mine) > best + 2 * mine.prediction.error_band:
                found = min(others, key=self.ranking.weighed_up)
                yield Fault("worse", f"{self.told(mine)} weighs more than {self.told(found)}")
        elif not self.demands.optimised:
            if by_cost and self.ranking.cost(by_cost[0]) < cost * (1 - 1e-6):
                yield Fault("dearer", f"{self.told(mine)} than {self.told(by_cost[0])}")
        else:
            yield from self._at_aim(self.demands.optimised[0], mine, by_cost)

    def _at_aim(self, aim: Bound, mine: Candidate, by_cost: Sequence[Candidate]) -> Iterator[Fault]:
        """As good as the best known but for the error band, and nothing as good is cheaper."""
        if isinstance(aim, Objective) and aim.metric == "gpu_util":
            aim = replace(aim, metric="gpu_count", op="minimize" if aim.op == "maximize" else "maximize")
        sign = 1 if aim.op == "minimize" else -1
        is_banded = isinstance(aim, Objective) and aim.metric in BANDED
        best = min((sign * self.ranking.reading(aim, one) for one in by_cost), default=0.0)
        band = max((one.prediction.error_band for one in by_cost), default=0.0) if is_banded else 1e-6
        room = best + abs(best) * (max(LEAST_BAND, band * self.problem.limits.headroom) if is_banded else band)
        if sign * self.ranking.reading(aim, mine) > room + 1e-9:
            found = min(by_cost, key=lambda one: sign * self.ranking.reading(aim, one))
            yield Fault("worse", f"{self.told(mine)} at {explain.goal_words(aim)} than {self.told(found)}")
            return
        within = [one for one in by_cost if sign * self.ranking.reading(aim, one) <= room - 1e-9 * abs(room)]
        if within and self.ranking.cost(within[0]) < self.ranking.cost(mine) * (1 - 1e-6):
            yield Fault("pays for nothing", f"{self.told(mine)} beside {self.told(within[0])}")

    def _dominates(self, one: Candidate, mine: Candidate) -> bool:
        """Costs no more, and is better in all that was said by more than the error band."""
        if self.ranking.cost(one) > self.ranking.cost(mine):
            return False
        better = [self._better(goal, one, mine) for goal in self.banded]
        return bool(better) and all(better)

    def _better(self, goal: Objective, one: Candidate, mine: Candidate) -> bool:
        band = max(one.prediction.error_band, mine.prediction.error_band)
        theirs = self.ranking.reading(goal, one)
        ours = self.ranking.reading(goal, mine)
        is_higher = goal.op in {">=", "maximize"}
        return theirs > ours * (1 + band) if is_higher else theirs < ours * (1 - band)

    # --- beside the agenda -------------------------------------------------------------------------------------------

    def _beside_agenda(self) -> Iterator[Fault]:
        """One segment with the same goals, and then one more of the same."""
        promised = tuple(ActiveGoal("one", goal, BEGINS) for goal in self.case.goals)
        hours = [BEGINS + timedelta(hours=number) for number in range(3)]
        segments = [Segment(begins, ends, (), promised) for begins, ends in pairwise(hours)]
        planner = Planner(self.case.deployment, self.case.model, PROFILES)
        one, again = planner.agenda(segments, self.problem.now, self.problem.capabilities)
        mine = self.answer
        if isinstance(mine, Infeasible) or isinstance(one.answer, Infeasible):
            if type(mine) is not type(one.answer):
                yield Fault("contradiction", f"plan: {shown(mine)}; agenda: {shown(one.answer)}")
            return
        if (mine.target, mine.batching, mine.prediction) != (
            one.answer.target,
            one.answer.batching,
            one.answer.prediction,
        ):
            yield Fault("contradiction", f"plan: {shown(mine)}; agenda: {shown(one.answer)}")
        elif any(isinstance(goal, Relative) for goal in self.case.goals):
            return  # beside what runs then
        elif again.changes or (again.plan and again.plan.batching != one.answer.batching):
            yield Fault("contradiction", f"agenda goes from {shown(one.answer)} to {shown(again.answer)} for the same")
