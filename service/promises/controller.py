"""One model's promises over time: what holds, what is missed, what was done and was it good.

Knows no clock and no engine: each look brings the time by both clocks and what was observed. Blocks where it has to plan.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from intent.models import LATENCIES, Objective, Window
from runtime.models import Topology
from selector.explain import goal_words
from selector.models import Plan, Workload
from service.deployment.models import is_about
from service.deployment.policy import Rules
from service.promises import limits
from service.promises.agenda import ActiveGoal, Segment, cut
from service.promises.attainment import (
    RequestSample,
    ServiceSample,
    Tally,
    counted_by,
    first_miss_s,
    look_meets,
    needed,
    saves,
    tally,
)
from service.promises.course import PlannedSegment, tokens_s
from service.promises.decide import ControlState, Decision, PastSwitch, decide
from service.promises.planner import Planner, Rescue, felt, off_by, predicted_of, tightened
from service.promises.verdict import GoalComparison, Judgement, Probation, judge
from service.promises.watch import LoopInput, by_chance, completed, mean, statistic

HORIZON = timedelta(days=2)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
MOST_PAST = 64
QUEUE = 5
"""Requests that wait at each look from which on a queue stands."""


@dataclass(frozen=True, slots=True)
class LoopOutput:
    """What came of a look."""

    decision: Decision
    segment: Segment
    """That the decision is for: the one in force, or the next where it makes ready for that."""
    plan: Plan | None = None
    """To the decision's target; None for a way back, which whoever makes it plans."""
    load: Workload | None = None
    """That was measured, where the plan is for it; None: the declared one."""
    counted: Mapping[ActiveGoal, Tally] = field(default_factory=dict)
    """What the look adds to how far each goal was kept."""
    judgement: Judgement | None = None
    """On the last switch, at the look at which its probation ended."""


@dataclass(slots=True)
class PromiseController:
    """Keeps what was promised of one model."""

    model: str
    windows: Mapping[str, Window]
    planner: Planner
    rules: Rules
    promised: tuple[ActiveGoal, ...] = ()
    past: list[PastSwitch] = field(default_factory=list)
    began_s: float = -1e9
    """When the segment in force was entered."""
    _activated: datetime | None = None
    _segments: list[Segment] = field(default_factory=list)
    _missed_since: dict[ActiveGoal, float] = field(default_factory=dict)
    _soon: list[ActiveGoal] = field(default_factory=list)
    """Of what is missed, what is only foreseen to be."""
    _uneasy_s: float = -1e9
    _counted_s: float = -1e9
    _probation: Probation | None = None
    _queues: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=64))
    """Of the last looks: when, and how many requests waited."""
    _rescued: Rescue | None = None

    def promise(self, promised: Sequence[ActiveGoal], activated: datetime | None = None) -> None:
        """What is promised from now on; the newest of it was activated then."""
        self.promised = tuple(goal for goal in promised if is_about(goal.goal, self.model))
        self._activated = activated
        self._segments = []

    def look(self, seen: LoopInput) -> LoopOutput:
        """What to do now."""
        segment = self.enter(seen.now, seen.now_s)
        self._queues.append((seen.now_s, len(seen.observed.waits_s)))
        if not self.promised:
            self._counted_s = seen.now_s
            return LoopOutput(Decision("wait", "nothing is promised"), segment)
        self._begin_probation(seen)
        look = self._look(segment, seen)
        counted_now = self._count(segment, look, seen)
        judgement = self._judge(seen)
        missed = self._note_misses(segment, look, seen)
        state, outlooks, rescue = self._state(segment, missed, seen)
        decision = decide(state, self.rules)
        chosen = _chosen(decision, outlooks, rescue)
        return LoopOutput(
            decision,
            chosen.segment if chosen else segment,
            chosen.plan if chosen and decision.cause != "roll_back" else None,
            chosen.workload if chosen and chosen is rescue else None,
            counted_now,
            judgement,
        )

    def switched(self, past: PastSwitch, segment: Segment, left: Topology, before: LoopInput) -> None:
        """A switch for a segment ended; ``before`` is the last look at the topology that was ``left``."""
        goals = counted_by(segment, "requests")
        load = self._measured(segment, before)
        slower, off = self._off_by([goal for goal, _ in goals], load, before)
        self.past = [*self.past[-MOST_PAST:], past]
        self._missed_since.clear()
        self._uneasy_s = past.ended_s
        if not past.is_done or not self.promised:
            return
        samples = before.observed.since(before.now_s - self.rules.lookback_s)
        kept = {active: tally(goal, segment, samples) for active, goal in goals}
        until_s = (segment.begins - before.now.astimezone(UTC)).total_seconds() + before.now_s
        earliest_s = max(past.ended_s, until_s)
        is_rescue = load is not None and past.cause in {"rescue", "recovery"}
        made_for = load if load and is_rescue else self.planner.workload(segment)
        stop_s = earliest_s if past.stopped_s is None or until_s > past.ended_s else past.stopped_s
        self._probation = Probation(earliest_s, stop_s, past.cause, segment, kept, left, slower, off, made_for)

    # -- the time -----------------------------------------------------------------------------------

    def enter(self, now: datetime, now_s: float) -> Segment:
        """The segment in force; it is entered where it is another than at the last look."""
        old = self._segments[0] if self._segments else None
        if old is not None and old.begins <= now < old.ends:
            return old
        self._segments = cut(self.promised, self.windows, now, now + HORIZON)
        new = self._segments[0]
        if old is None:
            self.began_s = max(self.began_s, self._since(now, now_s))
        elif (old.windows, old.promised) != (new.windows, new.promised):
            late_s = (now - old.ends).total_seconds()
            self.began_s = now_s - (late_s if 0 <= late_s <= now_s - self._counted_s else 0.0)
            self._missed_since.clear()
        return new

    def is_last(self, segment: Segment) -> bool:
        """Whether nothing is known to come after a segment."""
        return segment is self._segments[-1]

    def _since(self, now: datetime, now_s: float) -> float:
        """When the segment in force began; the newest promise is the earliest moment."""
        began = cut(self.promised, self.windows, now - DAY, now + SECOND)[-1].begins
        if self._activated is not None:
            began = max(began, self._activated)
        return now_s - (now.astimezone(UTC) - began).total_seconds()

    # -- what is kept, and what is missed -------------------------------------------------------------

    def _count(self, segment: Segment, look: ServiceSample, seen: LoopInput) -> dict[ActiveGoal, Tally]:
        """What is new since the last look."""
        samples = seen.observed.since(self._counted_s)
        self._counted_s = seen.now_s
        counted_now = {active: tally(goal, segment, samples) for active, goal in counted_by(segment, "requests")}
        counted_now |= {
            active: Tally(int(meets), 1)
            for active, goal in counted_by(segment, "ticks")
            if (meets := look_meets(goal, look)) is not None
        }
        return {active: found for active, found in counted_now.items() if found.total}

    def _look(self, segment: Segment, seen: LoopInput) -> ServiceSample:
        """What can be seen of the service at once."""
        observed = seen.observed
        load = self._measured(segment, seen) or self.planner.workload(segment)
        predicted = self.planner.prediction(seen.runs, load, seen.engine)
        lately = observed.since(self._fresh_s(seen))
        return ServiceSample(
            devices=len(seen.runs.devices),
            gpu_util=observed.answered_tok_s / predicted.throughput_tok_s if predicted else None,
            usd_per_hour=predicted.usd_per_hour if predicted else None,
            rate_rps=observed.answered_rps,
            rate_tok_s=observed.answered_tok_s,
            waiting=len(observed.waits_s),
            means={
                kind: mean(values)
                for kind in LATENCIES
                if (values := [sample.value for sample in lately if sample.kind == kind and not sample.is_cut_short])
            },
        )

    def _note_misses(self, segment: Segment, look: ServiceSample, seen: LoopInput) -> list[ActiveGoal]:
        """The hard goals that are missed now, or soon under a load beyond the planned one; keeps since when."""
        samples = seen.observed.since(self._fresh_s(seen))
        began_s = {
            active: first_miss_s(goal, segment, samples)
            for active, goal in counted_by(segment, "requests")
            if not goal.soft and self._waiting_too(goal, segment, samples, seen).falls_short(needed(goal))
        }
        missed = list(began_s)
        missed += [
            active for active, goal in counted_by(segment, "ticks") if not goal.soft and look_meets(goal, look) is False
        ]
        is_beyond = self._is_beyond(segment, seen)
        self._soon = [goal for goal in self._foreseen(segment, seen) if goal not in missed] if is_beyond else []
        missed += self._soon
        self._missed_since = {goal: self._missed_since.get(goal, began_s.get(goal) or seen.now_s) for goal in missed}
        if is_beyond or not all(saves(goal.goal) for goal in missed):
            self._uneasy_s = seen.now_s
        return missed

    def _goes_on(self, missed: Sequence[ActiveGoal], segment: Segment, seen: LoopInput) -> bool:
        """Whether one of these is missed since the last look, too: a few misses at once may be chance."""
        samples = seen.observed.since(max(self._fresh_s(seen), seen.now_s - self.rules.tick_s))
        counted_here = {active: goal for active, goal in counted_by(segment, "requests") if active not in self._soon}
        return any(
            goal not in counted_here or self._waiting_too(counted_here[goal], segment, samples, seen).share < 1
            for goal in missed
        )

    def _foreseen(self, segment: Segment, seen: LoopInput) -> list[ActiveGoal]:
        """The goals that what runs is predicted to miss under the load that is measured."""
        load = self._measured(segment, seen)
        predicted = self.planner.prediction(seen.runs, load, seen.engine) if load else None
        return [
            active
            for active, goal in counted_by(segment, "requests")
            if not goal.soft
            and goal.metric in LATENCIES
            and (predicted is None or (predicted_of(goal, predicted) or 0.0) > (goal.value or 0.0))
        ]

    def _fresh_s(self, seen: LoopInput) -> float:
        """From when on measurements are of what runs, in this segment, and not of a queue from before."""
        last_s = self.past[-1].ended_s if self.past else -1e9
        if self._probation is not None and seen.now_s >= self._probation.earliest_s:
            last_s = max(last_s, self._probation.began_s or seen.now_s)
        return max(last_s, self.began_s, seen.now_s - self.rules.lookback_s)

    def _waiting_too(
        self, goal: Objective, segment: Segment, samples: Sequence[RequestSample], seen: LoopInput
    ) -> Tally:
        """Requests that wait longer than they may have missed a goal already."""
        most_s = seen.now_s - self._fresh_s(seen)
        waits_s = seen.observed.waits_s
        waiting = [
            RequestSample("ttft", tenant, seen.now_s, age_s)
            for tenant, age_s in (waits_s if goal.metric == "ttft" else ())
            if (goal.value or 0.0) < age_s <= most_s
        ]
        return tally(goal, segment, [*samples, *waiting])

    # -- what to do -----------------------------------------------------------------------------------

    def _state(
        self, segment: Segment, missed: Sequence[ActiveGoal], seen: LoopInput
    ) -> tuple[ControlState, list[PlannedSegment], PlannedSegment | None]:
        made = [past for past in self.past if past.is_done and past.cause == "window"]
        since = seen.now - timedelta(seconds=seen.now_s - made[-1].ended_s) if made else None
        outlooks = self.planner.agenda(self._segments, seen.runs, seen.engine, upto=2, since=since)
        here = outlooks[0]
        after = outlooks[1] if len(outlooks) > 1 else None
        served = [goal for goal in missed if not saves(goal.goal)]
        missed = served or missed
        since_s = min((self._missed_since[goal] for goal in missed), default=seen.now_s)
        patience_s = self.rules.patience_s if served else self.rules.calm_s
        is_late = bool(missed) and seen.now_s - since_s >= patience_s and self._goes_on(missed, segment, seen)
        rescue = self._rescue(segment, missed, seen) if is_late else None
        state = ControlState(
            now_s=seen.now_s,
            runs=str(seen.runs),
            target=here.target,
            began_s=self.began_s,
            ahead=after.ahead(seen.now) if after else None,
            rescue=rescue.target if rescue else None,
            best_effort=rescue.nearly if rescue else "",
            missed=", ".join(goal_words(goal.goal) + " (soon)" * (goal in self._soon) for goal in missed),
            missed_s=seen.now_s - since_s,
            wastes=bool(missed) and not served,
            calm_s=seen.now_s - self._uneasy_s,
            data_age_s=seen.now_s - seen.observed.at_s,
            is_switching=seen.is_switching,
            hold=seen.hold,
            refused=seen.refused,
            barred=limits.barred(segment.promised, seen.switched_s, seen.now),
            past=self.past,
        )
        return state, outlooks, rescue

    def _rescue(self, segment: Segment, missed: Sequence[ActiveGoal], seen: LoopInput) -> PlannedSegment:
        """What would hold the goals under the measured load, were all predictions off as for what runs."""
        load = self._measured(segment, seen)
        load = load and seen.observed.surging(load, self.rules.span_s)
        question = (*missed, *self._soon)  # what was only foreseen is asked again once it is measured
        if self._rescued and self._rescued.is_for(question, load, seen, self.rules.tolerance):
            return self._rescued.outlook
        slower, off = self._off_by(missed, load, seen)
        promised = tuple(replace(goal, goal=tightened(goal.goal, off.get(goal, 1.0))) for goal in segment.promised)
        harder = replace(segment, promised=promised)
        found = self.planner.outlook(harder, seen.runs, seen.engine, workload=load and felt(load, slower))
        # what runs misses what it is predicted to hold: something is off that is not known
        is_refuted = not found.changes and not all(goal in self._soon or saves(goal.goal) for goal in missed)
        if load is not None and (found.plan is None or is_refuted):
            found = self._nearest(segment, load, seen)
        found = replace(found, segment=segment, workload=load or found.workload)
        self._rescued = Rescue(question, load, seen.runs, seen.now_s, found)
        return self._rescued.outlook

    def _nearest(self, segment: Segment, load: Workload, seen: LoopInput) -> PlannedSegment:
        """What does better than what runs where, as far as that is measured, nothing holds the load.

        What runs may be slow for a reason of its own (a sick device), so the others are taken as they are predicted.
        """
        found = self.planner.outlook(segment, seen.runs, seen.engine, workload=load)
        if found.plan is None or not found.changes:
            found = self.planner.best_effort(segment, seen.runs, seen.engine, load)
        here = self.planner.prediction(seen.runs, load, seen.engine)
        if found.plan is None or here is None:
            return found
        held = self.planner.held(seen.runs, segment, seen.engine, load)
        most = 1 + self.rules.tolerance
        is_faster = found.plan.prediction.throughput_tok_s > here.throughput_tok_s * most
        if found.share > held * most or (found.share >= held and is_faster):
            return found
        return replace(found, answer=replace(found.plan, target=seen.runs), share=held)

    def _measured(self, segment: Segment, seen: LoopInput) -> Workload | None:
        """The load that is measured; what it does not tell is as declared."""
        load = seen.observed.load
        return load and completed(load, self.planner.workload(segment))

    def _off_by(
        self, goals: Sequence[ActiveGoal], load: Workload | None, seen: LoopInput
    ) -> tuple[float, dict[ActiveGoal, float]]:
        """How much slower than predicted what runs is: by throughput, and by each goal's latency."""
        slower = self._slower(load, seen)
        samples = seen.observed.since(self._fresh_s(seen))
        found = self.planner.prediction(seen.runs, felt(load, slower), seen.engine) if load else None
        bounds = [(goal, goal.goal) for goal in goals if isinstance(goal.goal, Objective)]
        pairs = [(bound, statistic(goal, samples), predicted_of(goal, found)) for bound, goal in bounds]
        return slower, {
            pair: max(slower, off_by(took, foreseen, self.rules.tolerance)) for pair, took, foreseen in pairs
        }

    def _slower(self, load: Workload | None, seen: LoopInput) -> float:
        """By its throughput, where a queue stood for a patience: so many are sustained as were begun in it."""
        since_s = seen.now_s - self.rules.span_s
        found = load and self.planner.prediction(seen.runs, load, seen.engine)
        begun = sum(sample.kind == "ttft" for sample in seen.observed.since(since_s))
        queues = [waiting for at_s, waiting in self._queues if at_s >= since_s]
        if not load or not found or self._fresh_s(seen) > since_s or min(begun, *queues, QUEUE) < QUEUE:
            return 1.0
        predicted_s = max(1, load.output_tokens) / found.throughput_tok_s
        return off_by((seen.now_s - since_s) / begun, predicted_s, self.rules.tolerance)

    def _load_by(self, planned: Workload, segment: Segment, seen: LoopInput) -> float:
        """Tokens asked for by those of another load."""
        load = self._measured(segment, seen)
        return tokens_s(load) / tokens_s(planned) if load else 0.0

    def _is_beyond(self, segment: Segment, seen: LoopInput) -> bool:
        """Whether more is asked than was planned for, and than chance explains: tokens, or requests at once."""
        load = self._measured(segment, seen)
        planned = self.planner.workload(segment)
        most = planned.concurrency * (1 + self.rules.tolerance)
        is_more = load is not None and load.concurrency > max(most, planned.concurrency + 1)
        chance = by_chance(planned.rate_rps * self.rules.lookback_s)
        return is_more or self._load_by(planned, segment, seen) > 1 + max(self.rules.tolerance, chance)

    # -- what it was good for -------------------------------------------------------------------------

    def _judge(self, seen: LoopInput) -> Judgement | None:
        """The verdict on the last switch, once there is one."""
        probation = self._probation
        if probation is None or seen.is_switching or seen.now_s < probation.earliest_s:
            return None
        is_over = seen.now >= probation.segment.ends
        if probation.began_s is None and not is_over:
            return None
        began_s = probation.began_s or seen.now_s
        samples = seen.observed.arrived_since(began_s)
        readings = [
            self._reading(active, goal, probation, samples, seen)
            for active, goal in counted_by(probation.segment, "requests")
        ]
        elapsed_s = self.rules.probation_s if is_over else seen.now_s - began_s
        by_planned = self._load_by(probation.load, probation.segment, seen)
        is_draining = self._is_draining(probation.segment, seen)
        found = judge(readings, probation.cause, elapsed_s, by_planned, self.rules, is_draining=is_draining)
        if found is not None:
            self._probation = None
            place = max(number for number, past in enumerate(self.past) if past.is_done)
            self.past[place] = replace(self.past[place], verdict=found.verdict)
        return found

    def _begin_probation(self, seen: LoopInput) -> None:
        """From when on requests meet what was switched to alone: the queue of before is gone, or should be."""
        probation = self._probation
        if probation is None or probation.began_s is not None or seen.now_s < probation.earliest_s:
            return
        begins_s = seen.now_s
        if probation.latest_s is None:
            drain_s = min(self._drain_s(probation, seen), self.rules.probation_s)
            probation.latest_s = probation.earliest_s + drain_s
            # with no queue, who came in the standstill waited for the switch alone
            begins_s = probation.stop_s
        if len(seen.observed.waits_s) <= self._steady_queue(probation.segment, seen):
            probation.began_s = begins_s
        elif seen.now_s >= probation.latest_s:
            probation.began_s = probation.latest_s

    def _drain_s(self, probation: Probation, seen: LoopInput) -> float:
        """How long those who wait now are predicted to take, beside those who come."""
        load = self._measured(probation.segment, seen)
        predicted = self.planner.prediction(seen.runs, load, seen.engine) if load else None
        if load is None or predicted is None:
            return 0.0
        sustained_rps = predicted.throughput_tok_s / max(1, load.output_tokens) / probation.slower
        spare_rps = sustained_rps - load.rate_rps
        return len(seen.observed.waits_s) / spare_rps if spare_rps > 0 else math.inf

    def _steady_queue(self, segment: Segment, seen: LoopInput) -> float:
        """How many requests wait for their first token where nothing is piled up (Little's law), and one more."""
        load = self._measured(segment, seen)
        predicted = self.planner.prediction(seen.runs, load, seen.engine) if load else None
        return 1 + (load.rate_rps * predicted.ttft_s.get("mean", 0.0) if load and predicted else 0.0)

    def _is_draining(self, segment: Segment, seen: LoopInput) -> bool:
        """Whether a queue is piled up, and shorter than a patience ago."""
        before = [waited for at_s, waited in self._queues if at_s <= seen.now_s - self.rules.patience_s]
        return bool(before) and self._steady_queue(segment, seen) < len(seen.observed.waits_s) < before[-1]

    def _reading(
        self,
        active: ActiveGoal,
        goal: Objective,
        probation: Probation,
        samples: Sequence[RequestSample],
        seen: LoopInput,
    ) -> GoalComparison:
        load = felt(probation.load, probation.slower)
        left = predicted_of(goal, self.planner.prediction(probation.left, load, seen.engine))
        after_it = [sample for sample in samples if (sample.arrived_s or sample.at_s) >= probation.earliest_s]
        return GoalComparison(
            words=goal_words(goal),
            needed=needed(goal),
            before=probation.before.get(active, Tally()),
            after=tally(goal, probation.segment, samples),
            measured=statistic(goal, after_it),  # a way back would stand still, too
            left=left * probation.off.get(active, 1.0) if left is not None else None,
        )


def _chosen(
    decision: Decision, outlooks: Sequence[PlannedSegment], rescue: PlannedSegment | None
) -> PlannedSegment | None:
    """What a decision's target comes from."""
    if decision.cause in {"rescue", "saving"}:
        return rescue
    if decision.target is None:
        return None
    return next((segment for segment in outlooks if segment.target == decision.target and segment.changes), None)
