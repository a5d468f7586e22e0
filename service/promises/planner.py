"""A topology for each segment, planned from the one before. Pure, but for what it remembers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import pairwise

from intent.models import LATENCIES, Goal, Objective
from runtime.capabilities import Batching, Capabilities
from runtime.models import Topology
from selector.models import (
    Infeasible,
    Plan,
    PlanRef,
    Prediction,
    Profile,
    SearchInput,
    SwitchPrediction,
    Workload,
)
from selector.objectives import absolute, sort_goals
from selector.planning import planned_within
from selector.prediction import as_it_runs, candidate, known
from selector.ranking import Ranking
from selector.switching import bytes_to_move, crossing, switch
from selector.trial import Trial
from service.deployment.file import Deployment
from service.deployment.models import ServedModel, is_about
from service.promises.agenda import ActiveGoal, Segment
from service.promises.attainment import saves
from service.promises.course import Course, PlannedSegment, tokens_s
from service.promises.decide import Hold
from service.promises.watch import LoopInput, rounded

LEAST_SHARE = 1 / 32
"""Of a load, for which best effort plans where goals hold at no load."""
MOST_OFF = 4.0
"""By how much a measurement may correct a prediction."""
PLANNED_S = 60.0
"""For which a rescue that was planned stands, where the load is much the same: planning takes time from serving."""
REMEMBERED = 256
"""Answers: many times those of a week."""


@dataclass(frozen=True, slots=True)
class Rescue:
    """What was planned against goals that are missed; it stands while all is much the same."""

    missed: tuple[ActiveGoal, ...]
    load: Workload | None
    runs: Topology
    at_s: float
    outlook: PlannedSegment

    def is_for(self, missed: Sequence[ActiveGoal], load: Workload | None, seen: LoopInput, tolerance: float) -> bool:
        """Whether it answers this question, too."""
        same = (self.missed, self.runs) == (tuple(missed), seen.runs) and seen.now_s - self.at_s < PLANNED_S
        if not same or load is None or self.load is None:
            return same and load is self.load
        least, most = sorted((tokens_s(load), tokens_s(self.load)))
        return most <= (1 + tolerance) * least and load.concurrency <= self.load.concurrency


class Planner:
    """Plans for one model's segments; what was asked before is not searched again."""

    def __init__(
        self,
        deployment: Deployment,
        model: ServedModel,
        profiles: Mapping[str, Profile],
        search: Callable[..., Plan | Infeasible] = planned_within,
    ) -> None:
        """``search`` is ``planned_within``, wherever it is done."""
        self._deployment = deployment
        self._model = model
        self._profiles = profiles
        self._search = search
        self._found = lru_cache(REMEMBERED)(self._search_for)
        self._predicted = lru_cache(REMEMBERED)(self._predict)

    def agenda(
        self,
        segments: Sequence[Segment],
        now: Topology | None,
        engine: Capabilities | None,
        *,
        upto: int | None = None,
        since: datetime | None = None,
        hold: Hold | None = None,
    ) -> list[PlannedSegment]:
        """What is to serve each segment, or the first ``upto``, from what runs ``now``, ``since`` then.

        One from which a switch would come too early, or in which a ``hold`` ends, is divided.
        """
        found = Course(self, engine, self._deployment.rules, hold=hold).through(segments, now, upto, since)
        for number, (before, outlook) in enumerate(pairwise(found), start=1):
            if outlook.changes and self._is_early(before.segment, outlook, engine):
                found[number] = replace(self._reached(outlook, before.workload, engine), is_early=True)
        return found

    def moved(self, outlook: PlannedSegment, now: Topology, engine: Capabilities | None) -> PlannedSegment:
        """The same from another topology than it was planned from."""
        plan = outlook.plan
        assert plan is not None, "it leads somewhere"
        load = outlook.workload
        changed = replace(
            plan,
            now=now,
            now_prediction=self.prediction(now, load, engine),
            bytes_to_move=bytes_to_move(now, plan.target, self._model.spec, engine),
            switch=self.change(now, plan.target, load, engine),
        )
        return replace(outlook, answer=changed)

    def change(
        self, now: Topology, target: Topology, load: Workload, engine: Capabilities | None
    ) -> SwitchPrediction | None:
        """What a switch takes under a load, or under hardly any where what runs is overloaded."""
        for part in (load, _calm(load)):
            problem = self._problem(part, now, engine)
            today = known(now, problem, self._profiles)
            there = known(target, problem, self._profiles)
            if today is None or there is None:
                continue
            found = switch(today, there, problem, crossing(today, there, problem, self._profiles))
            if math.isfinite(found.stop_s):
                return found
        return None

    def outlook(
        self,
        segment: Segment,
        now: Topology | None,
        engine: Capabilities | None,
        *,
        workload: Workload | None = None,
        running: Batching | None = None,
    ) -> PlannedSegment:
        """What is to serve a segment from what runs ``now``, under its declared load or the one that is given."""
        load = workload or self.workload(segment)
        outlook = PlannedSegment(segment, load, self._planned(segment, load, now, engine, running))
        change = outlook.plan.switch if outlook.plan else None
        is_known = change is not None and math.isfinite(change.stop_s)  # no stop is known of what is overloaded
        return outlook if is_known else self._reached(outlook, _calm(load), engine)

    def best_effort(
        self, segment: Segment, now: Topology | None, engine: Capabilities | None, load: Workload
    ) -> PlannedSegment:
        """Where nothing holds a load: what holds the largest share of it, as far as was looked.

        Where goals hold at no load at all the latencies are left out, and the share is that of the throughput.
        """
        answer = self.outlook(segment, now, engine, workload=load).answer
        share = answer.share if isinstance(answer, Infeasible) else 1.0
        if share:
            found = self.outlook(segment, now, engine, workload=_part(load, share))
            if found.plan:
                return replace(found, segment=segment, workload=load, share=share)
        kept = tuple(goal for goal in segment.promised if not _is_latency(goal.goal))
        most = ActiveGoal("", Objective("throughput_tok", "maximize", evidence="best effort"), segment.begins)
        fastest = replace(segment, promised=(*kept, most))
        found = self.outlook(fastest, now, engine, workload=_part(load, LEAST_SHARE))
        served = _served(found.plan.prediction, load) if found.plan else 0.0
        return replace(found, segment=segment, workload=load, share=served)

    def held(self, topology: Topology, segment: Segment, engine: Capabilities | None, load: Workload) -> float:
        """The share of a load that a topology is predicted to serve within its latencies, as plans are judged.

        Else by its throughput alone.
        """
        problem = self._problem(load, topology, engine)
        found = as_it_runs(problem, self._profiles)
        if found is None:
            return 0.0
        latencies = [goal for goal in segment.goals if _is_latency(goal)]
        ranking = Ranking(sort_goals(latencies, problem), problem)
        bounds = ranking.demands.bounds
        if not ranking.missed(bounds, found):
            return _served(found.prediction, load)
        return Trial(ranking, self._profiles).share(found, bounds) or _served(found.prediction, load)

    def workload(self, segment: Segment) -> Workload:
        """What is declared for it; of several windows in force at once the busiest."""
        declared = self._model.workload
        known = [declared[name] for name in segment.windows if name in declared]
        return max(known or [self._model.workload_in("always")], key=tokens_s)

    def settled(
        self, goals: Sequence[Goal], window: str, now: Topology | None, engine: Capabilities | None
    ) -> list[Goal]:
        """The goals with those that were said beside what runs as bounds, which they keep from now on."""
        workload = self._model.workload_in(window)
        today = candidate(now, self._problem(workload, now, engine), self._profiles) if now else None
        return absolute(goals, today, workload)

    def prediction(self, topology: Topology, workload: Workload, engine: Capabilities | None) -> Prediction | None:
        """What a topology is predicted to do under a load; None where nobody can tell."""
        return self._predicted(topology, workload, engine)

    def _predict(self, topology: Topology, workload: Workload, engine: Capabilities | None) -> Prediction | None:
        found = known(topology, self._problem(workload, topology, engine), self._profiles)
        return found.prediction if found else None

    def _problem(self, workload: Workload, now: Topology | None, engine: Capabilities | None) -> SearchInput:
        return replace(self._model.problem("always", self._deployment.limits, now, engine), workload=workload)

    def _reached(self, outlook: PlannedSegment, load: Workload, engine: Capabilities | None) -> PlannedSegment:
        """With what the switch takes under the load that there is when it is made."""
        plan = outlook.plan
        if plan is None or plan.now is None or not outlook.changes:
            return outlook
        change = self.change(plan.now, plan.target, load, engine)
        return replace(outlook, answer=replace(plan, switch=change)) if change else outlook

    def _is_early(self, before: Segment, outlook: PlannedSegment, engine: Capabilities | None) -> bool:
        """Whether a target serves well before its segment begins, though it may take too much until then."""
        target = outlook.plan.target if outlook.plan else None
        served = tuple(goal for goal in before.promised if not saves(goal.goal))
        stays = self.outlook(replace(before, promised=served), target, engine).plan
        return stays is not None and stays.target == target

    def _planned(
        self,
        segment: Segment,
        workload: Workload,
        now: Topology | None,
        engine: Capabilities | None,
        running: Batching | None,
    ) -> Plan | Infeasible:
        goals = tuple(goal for goal in segment.goals if is_about(goal, self._model.name))
        found = self._found(goals, workload, now, engine, running)
        return replace(found, window=called(segment)) if isinstance(found, Plan) else found

    def _search_for(
        self,
        goals: tuple[Goal, ...],
        workload: Workload,
        now: Topology | None,
        engine: Capabilities | None,
        running: Batching | None,
    ) -> Plan | Infeasible:
        problem = self._problem(workload, now, engine)
        problem = replace(problem, running=running or problem.running)
        return self._search(goals, problem, dict(self._profiles), PlanRef("", "", 0, ""))


def predicted_of(goal: Objective, prediction: Prediction | None) -> float | None:
    """What a prediction says of a goal on a latency; None of any other."""
    if prediction is None or goal.metric not in LATENCIES:
        return None
    readings: Mapping[str, float] = getattr(prediction, f"{goal.metric}_s")
    return readings.get(goal.stat or "mean")


def off_by(measured: float | None, predicted: float | None, tolerance: float) -> float:
    """How many times longer something takes than predicted.

    1 where that is not known, or is within the tolerance.
    """
    ratio = measured / predicted if measured and predicted else 1.0
    return round(min(ratio, MOST_OFF), 1) if ratio > 1 + tolerance else 1.0


def felt(load: Workload, slower: float) -> Workload:
    """The load under which a prediction that is so many times too fast tells of the one that is given."""
    return replace(load, rate_rps=rounded(load.rate_rps * slower))


def tightened(goal: Goal, times: float) -> Goal:
    """A bound on a latency as it has to be asked of predictions that are too low by so many times.

    Others stay.
    """
    if not isinstance(goal, Objective) or goal.metric not in LATENCIES or goal.value is None:
        return goal
    return replace(goal, value=goal.value / times)


def _served(predicted: Prediction, load: Workload) -> float:
    """The share of a load for which a topology has the throughput."""
    return min(1.0, predicted.throughput_tok_s / max(1e-6, load.rate_rps * load.output_tokens))


def _part(load: Workload, share: float) -> Workload:
    """So much of a load."""
    rate_rps = max(rounded(load.rate_rps * share), 1e-6)
    return replace(load, rate_rps=rate_rps, concurrency=max(1, round(load.concurrency * share)))


def _is_latency(goal: Goal) -> bool:
    return isinstance(goal, Objective) and goal.metric in LATENCIES


def _calm(load: Workload) -> Workload:
    """A load of the same lengths that any topology holds which holds a request."""
    return replace(load, rate_rps=load.rate_rps / 100, concurrency=1)


def called(segment: Segment) -> str:
    """The name of its time: of the first window in force, or ``always``."""
    return next(iter(segment.windows), "always")
