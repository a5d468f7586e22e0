"""An answer with all that is known of its question: what was searched and simulated, and what trying everything finds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.deployments import Case
from benchmarks.exhaustive import Everything
from benchmarks.questions import PROFILES
from intent.models import LATENCIES, Objective, ReconfigRule
from selector import explain, search
from selector.finder import Finder
from selector.models import Candidate, Infeasible, Plan, PlanRef, SearchInput
from selector.objectives import UNSAID, Demands, places
from selector.ranking import Ranking
from selector.search import select
from selector.trial import Trial

TICKET = PlanRef("benchmark", "benchmark", 1, "always")
BANDED = frozenset({*LATENCIES, "throughput_tok", "throughput_req"})
"""Metrics that a prediction is off by its error band."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with an answer."""

    kind: str
    text: str


@dataclass
class Watched:
    """The first finder and trial of an answer: what was searched, and all that was simulated."""

    finder: Finder | None = None
    trial: Trial | None = None


@contextmanager
def watched() -> Iterator[Watched]:
    """Look at what ``select`` simulates, as it does it."""
    seen = Watched()
    made: dict[str, Any] = {"Finder": Finder, "Trial": Trial}

    def first(name: str, **how: Any) -> Any:
        found = made[name](**how)
        if getattr(seen, name.lower()) is None:
            setattr(seen, name.lower(), found)
        return found

    def finder(*values: Any) -> Any:
        return first(
            "Finder", **dict(zip(("problem", "profiles", "precisions", "most_quality_loss"), values, strict=True))
        )

    def trial(*values: Any) -> Any:
        return first("Trial", **dict(zip(("ranking", "profiles"), values, strict=True)))

    try:
        search.__dict__.update(Finder=finder, Trial=trial)
        yield seen
    finally:
        search.__dict__.update(made)


@dataclass
class Answered:
    """One answer and all that is known of its question."""

    case: Case

    def __post_init__(self) -> None:
        """Ask, and keep what was simulated."""
        with watched() as seen:
            self.answer = select(self.case.goals, self.problem, PROFILES, TICKET)
        assert seen.finder is not None
        assert seen.trial is not None
        self.finder = seen.finder
        self.trial = seen.trial

    @property
    def problem(self) -> SearchInput:
        """The whole problem."""
        return self.case.problem

    @property
    def ranking(self) -> Ranking:
        """How the search compared."""
        return self.trial.ranking

    @property
    def demands(self) -> Demands:
        """What the goals came to."""
        return self.ranking.demands

    @cached_property
    def everything(self) -> Everything:
        """All of a small inventory."""
        return Everything(self.ranking, dict(PROFILES), self.finder.precisions)

    @cached_property
    def is_free(self) -> bool:
        """Whether the search was free to choose: nothing is frozen, preferred or still."""
        where = places(self.case.goals, self.problem)
        is_still = any(isinstance(goal, ReconfigRule) for goal in self.case.goals) and self.problem.now
        return not (where.frozen or where.preferred or is_still)

    @cached_property
    def best_of_all(self) -> Candidate | None:
        """The nearest, or cheapest, that trying everything finds."""
        return self.everything.nearest(self.demands.bounds) if self.case.is_small and self.is_free else None

    @property
    def banded(self) -> list[Objective]:
        """What was said and is known within an error band."""
        balance = self.demands.balance
        goals = [*self.demands.said, *self.demands.optimised, *([balance.better] if balance else [])]
        return [
            goal
            for goal in goals
            if isinstance(goal, Objective) and goal.evidence not in UNSAID and goal.metric in BANDED
        ]

    def told(self, one: Candidate) -> str:
        """A candidate with what it reads, in short."""
        reads = ", ".join(f"{explain.goal_words(goal)}: {self.ranking.reading(goal, one):.3g}" for goal in self.banded)
        return f"{one.topology} ({one.batching}) at {self.ranking.cost(one):.3g} [{reads}]"


def shown(answer: Plan | Infeasible) -> str:
    """An answer in short."""
    if isinstance(answer, Plan):
        return f"{answer.target} ({answer.batching}), {answer.prediction.ttft_s['p99']:.3g} s"
    return f"refused: {answer.reasons[0]}"
