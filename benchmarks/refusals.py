"""What can be wrong with a refusal: checked by asking for the opposite, and by trying everything."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from benchmarks.answered import TICKET, Answered, Fault
from benchmarks.deployments import structural
from benchmarks.questions import PROFILES
from intent.models import Goal, Relative
from selector import explain
from selector.models import Candidate, Infeasible, Plan, SearchInput
from selector.objectives import UNSAID, Bound, absolute
from selector.prediction import as_it_runs, candidate
from selector.search import select

NEAR = 0.05
"""By which the nearest may be further than the nearest of all: a share of its shortfall, or that much of it."""
BEYOND = 1.25
"""Times a rate at which something is said to hold, where it does no longer."""
FAR = 7.0
"""A shortfall that is a reading without end."""
SCALES = {"s": 1.0, "ms": 1e-3, "%": 1e-2}

_GOAL = re.compile(r"^(?P<name>.+) (?P<op><=|>=) (?P<number>[\d.,e+-]+)(?: (?P<unit>[^,]+))?(?:, .*)?$")
_NOTHING = re.compile(r"^(?P<goal>.+): nothing (?:that was simulated |on fewer devices that was simulated )?holds it; ")
_EXCLUDE = re.compile(r"^(?P<goals>.+) exclude each other: ")
_TARGET = re.compile(r"^(?P<goal>.+?) would hold on (?P<where>.+?)(?P<alone>, without the other goals)?$")
_PART = re.compile(
    r"^(?P<who>.+ buys|every goal holds at) (?P<part>[\d.e+-]+) of your [\d.e+-]+ requests/s on (?P<where>.+)$"
)


@dataclass
class Refused:
    """A refusal and its question."""

    asked: Answered
    answer: Infeasible

    def faults(self) -> Iterator[Fault]:
        """All that is wrong."""
        answer = self.answer
        found = self.asked.best_of_all
        if found and not self.asked.ranking.missed(self.asked.demands.bounds, found):
            yield Fault("refused", f"though {self.asked.told(found)} holds it; said was: {answer.reasons[0]}")
            return
        if self.asked.is_free:
            for reason in answer.reasons:
                yield from self._of_reason(reason)
            for target in answer.feasible_targets:
                yield from self._of_target(target, answer)
        if found and self.asked.ranking.shortfall(found) < FAR:
            yield from self._of_nearest(answer, found)

    def _of_nearest(self, answer: Infeasible, found: Candidate) -> Iterator[Fault]:
        least = self.asked.ranking.shortfall(found)
        if answer.nearest is None:
            yield Fault("not nearest", f"none is named, and {self.asked.told(found)} misses by {least:.3g}")
            return
        mine = self.asked.ranking.shortfall(answer.nearest)
        if mine > max(least * (1 + NEAR), least + NEAR):
            yield Fault(
                "not nearest", f"{self.asked.told(answer.nearest)}: {mine:.3g}; {self.asked.told(found)}: {least:.3g}"
            )

    def _ask(self, goals: Sequence[Goal], problem: SearchInput | None = None) -> Plan | Infeasible:
        return select(goals, problem or self.asked.problem, PROFILES, TICKET)

    def _alone(self, *bounds: Bound) -> list[Goal]:
        """Some bounds as said, with what narrows the space."""
        kept = structural(self.asked.case.goals)
        originals = [self._original(bound) for bound in bounds]
        return [*kept, *(goal for goal in originals if goal not in kept)]

    def _original(self, bound: Bound) -> Goal:
        return next((old for old, new in zip(self.asked.case.goals, self._settled, strict=True) if new == bound), bound)

    @cached_property
    def _settled(self) -> list[Goal]:
        return absolute(self.asked.case.goals, as_it_runs(self.asked.problem, PROFILES), self.asked.problem.workload)

    def _bounds(self, text: str) -> list[Bound]:
        """The bounds that a text names."""
        return [bound for bound in self.asked.demands.bounds if explain.goal_words(bound) in text]

    def _of_reason(self, reason: str) -> Iterator[Fault]:
        if told := _NOTHING.match(reason):
            (bound,) = self._bounds(told["goal"]) or (None,)
            if bound is None:
                yield Fault("error", f"no goal is called {told['goal']}")
                return
            yield from self._held(reason, [bound])
        elif told := _EXCLUDE.match(reason):
            group = self._bounds(told["goals"])
            yield from self._held(reason, group)
            for bound in group:
                others = [one for one in group if one is not bound]
                if not any(one.evidence in UNSAID for one in others) and not isinstance(
                    self._ask(self._alone(bound)), Plan
                ):
                    yield Fault("false reason", f"{reason}: {explain.goal_words(bound)} is refused alone")

    def _held(self, reason: str, bounds: Sequence[Bound]) -> Iterator[Fault]:
        """Whether something does hold what nothing is said to hold."""
        plan = self._ask(self._alone(*bounds))
        if isinstance(plan, Plan):
            yield Fault("false reason", f"{reason} -- asked for that alone: {plan.target} ({plan.batching})")
        elif self.asked.case.is_small and self.asked.is_free:
            found = self.asked.everything.nearest(bounds)
            if found and not self.asked.ranking.missed(bounds, found):
                yield Fault("false reason", f"{reason} -- holds it: {self.asked.told(found)}")

    def _of_target(self, text: str, answer: Infeasible) -> Iterator[Fault]:
        if told := _PART.match(text):
            yield from self._of_part(text, told, answer)
        elif (told := _TARGET.match(text)) and (goal := _GOAL.match(told["goal"])):
            named = [
                one
                for one in self.asked.demands.bounds
                if explain.goal_words(one).startswith(f"{goal['name']} {goal['op']} ")
            ]
            if not named:
                yield Fault("error", f"no goal is called {goal['name']}")
                return
            (bound,) = named[:1]
            eased = replace(bound, value=read_number(goal["number"], goal["unit"]))  # type: ignore[arg-type]
            whole = [eased if goal == self._original(bound) else goal for goal in self.asked.case.goals]
            asked = whole if not told["alone"] else [*structural(self.asked.case.goals), eased]
            found = self._ask(asked)
            if not isinstance(found, Plan):
                yield Fault("false target", f"{text} -- refused: {found.reasons[0]}")

    def _of_part(self, text: str, told: re.Match[str], answer: Infeasible) -> Iterator[Fault]:
        if any(isinstance(goal, Relative) for goal in self.asked.case.goals):
            return
        rate_rps = float(told["part"])
        found = self._ask(self.asked.case.goals, self._at(rate_rps))
        near = answer.nearest
        if not isinstance(found, Plan):
            yield Fault("false part", f"{text} -- refused at that rate: {found.reasons[0]}")
        if (
            near
            and told["where"] == explain.candidate_words(near)
            and rate_rps * BEYOND <= self.asked.problem.workload.rate_rps
        ):
            more = self._at(rate_rps * BEYOND)
            beyond = candidate(near.topology, more, PROFILES, near.batching)
            ranking = replace(self.asked.ranking, problem=replace(self.asked.ranking.problem, workload=more.workload))
            if beyond and not ranking.missed(self.asked.demands.bounds, beyond):
                yield Fault("false part", f"{text} -- it holds at {BEYOND} times that rate, too")

    def _at(self, rate_rps: float) -> SearchInput:
        return replace(self.asked.problem, workload=replace(self.asked.problem.workload, rate_rps=rate_rps))


def read_number(number: str, unit: str | None) -> float:
    """An amount in a text, in the unit that goals have."""
    return float(number.replace(",", "")) * SCALES.get(unit or "", 1.0)
