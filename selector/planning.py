"""A plan held against the simulator and against the bound on its pause. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from intent.models import Goal, Objective, ReconfigRule
from runtime.errors import TopologyError
from runtime.models import Topology
from selector import explain
from selector.crossing import crossing
from selector.models import (
    Candidate,
    Corrections,
    Infeasible,
    Margin,
    Plan,
    PlanRef,
    Prediction,
    Profile,
    ProfileError,
    SearchInput,
)
from selector.performance.load import saturation_tok_s
from selector.performance.work import Lengths
from selector.pipelines.operating import OperatingLoad
from selector.prediction import Simulated, candidate, server_of, simulated
from selector.ranking import bytes_to_move, switch
from selector.search import choose, select

SEARCHES = 3
_STEPS = 40_000
"""Of a stage that one simulation computes: about a quarter of a second."""
_LATENCIES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class SimulatedPrediction:
    """What a simulation gave of a topology, beside what the closed forms say of it."""

    predicted: Prediction
    simulation: Simulated
    sustained_tok_s: float
    """Output tokens it sustains with every slot taken."""

    @property
    def corrections(self) -> Corrections:
        """What predictions have to be multiplied by; nothing for those without end."""
        found = {("rate", "mean"): self.sustained_tok_s / self.predicted.throughput_tok_s}
        for metric in _LATENCIES:
            closed = _readings(self.predicted, metric)
            served = _readings(self.simulation, metric)
            found |= {
                (metric, stat): served[stat] / value
                for stat, value in closed.items()
                if 0 < value < math.inf and served[stat] > 0
            }
        return found

    def believed(self, goals: Sequence[Goal], rate_tok_s: float) -> Prediction:
        """The closed forms, but for what the simulation tells better, under a load of so many output tokens."""
        if rate_tok_s > self.sustained_tok_s and self.simulation.waits_grow:
            return self.predicted
        wrong = [metric for metric in _LATENCIES if self._is_off(metric, goals)]
        ttft_s, tpot_s, e2e_s = (
            _readings(self.simulation if metric in wrong else self.predicted, metric) for metric in _LATENCIES
        )
        throughput = self.predicted.throughput_tok_s
        if abs(self.sustained_tok_s / throughput - 1) > self.predicted.error_band:
            throughput = self.sustained_tok_s
        return replace(
            self.predicted,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            e2e_s=e2e_s,
            throughput_tok_s=throughput,
            gpu_util=min(1.0, rate_tok_s / throughput),
            simulated=tuple(wrong),
        )

    def _is_off(self, metric: str, goals: Sequence[Goal]) -> bool:
        """By more than the error band, or on the other side of a bound."""
        closed = _readings(self.predicted, metric)
        served = _readings(self.simulation, metric)
        bounds = [
            (goal.stat or "mean", goal.value)
            for goal in goals
            if isinstance(goal, Objective) and goal.metric == metric and goal.value is not None
        ]
        return any(
            abs(closed[stat] - served[stat]) > self.predicted.error_band * served[stat] for stat in closed
        ) or any((closed[stat] <= value) != (served[stat] <= value) for stat, value in bounds)


def planned(
    goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none.

    As ``select`` has it and a simulation bears out.

    What is told of a topology is what its simulation says where that differs. At most ``SEARCHES`` topologies beside what
    runs are simulated, in about a second altogether; then the best of those is the answer.
    """
    known = dict[Topology, Prediction]()
    corrections: Corrections = {}
    if problem.now is not None and (seen := _seen(problem.now, problem, profiles)):
        known[problem.now] = _believed(seen, goals, problem)
    for _ in range(SEARCHES):
        here = replace(problem, observed=known, corrections=corrections)
        answer = select(goals, here, profiles, ticket)
        topology = _told(answer)
        seen = _seen(topology, problem, profiles) if topology and topology not in known else None
        if topology is None or seen is None:
            return answer
        known = {**known, topology: _believed(seen, goals, problem)}
        answer = select(goals, replace(here, observed=known), profiles, ticket)
        if isinstance(answer, Plan) and answer.target in known:
            return answer
        corrections = seen.corrections
    return choose(goals, replace(problem, observed=known), profiles, ticket)


def named(target: Topology, problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef) -> Plan:
    """A plan to a named topology that nothing blocks, as a simulation bears it out.

    Raises:
        TopologyError: it does not hold the workload, or has no figures.
    """
    sides = [topology for topology in (problem.now, target) if topology]
    seen = {side: _seen(side, problem, profiles) for side in sides}
    known = {topology: _believed(found, (), problem) for topology, found in seen.items() if found}
    here = replace(problem, observed=known)
    found = _told_of(target, here, profiles)
    today = None
    if problem.now in known:
        today = candidate(problem.now, here, profiles)
    change = switch(today, found, problem, crossing(today, found, problem, profiles)) if today else None
    waits = (explain.streams(change),) if change and change.strategy == "stream" else ()
    return Plan(
        id=ticket.plan_id,
        intent_id=ticket.intent_id,
        generation=ticket.generation,
        model=problem.model.name,
        window=ticket.window,
        now=problem.now,
        target=target,
        prediction=found.prediction,
        now_prediction=today.prediction if today else None,
        runner_up=None,
        reasons=(f"named, not searched for: {explain.summary(found)}", *waits),
        bytes_to_move=bytes_to_move(problem.now, target, problem.model),
        switch=change,
    )


def _told_of(target: Topology, problem: SearchInput, profiles: Mapping[str, Profile]) -> Candidate:
    try:
        found = candidate(target, problem, profiles)
    except (KeyError, ProfileError) as error:
        raise TopologyError(f"{target}: nothing is known of how fast it is ({error})") from error
    if found is None:
        raise TopologyError(f"{target}: does not hold the workload of this window")
    return found


def _told(answer: Plan | Infeasible) -> Topology | None:
    """The topology that an answer speaks of; none of several replicas, which nothing here runs."""
    if isinstance(answer, Plan):
        return None if answer.replicas else answer.target
    return answer.nearest.topology if answer.nearest and not answer.nearest.replicas else None


def _seen(topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile]) -> SimulatedPrediction | None:
    """A topology in the simulator; None where it does not hold the load, or has no figures."""
    load = OperatingLoad.of(problem.workload)
    try:
        found = candidate(topology, problem, profiles)
        simulation = simulated(topology, problem, profiles, _STEPS) if found else None
        server = server_of(topology, problem.model, problem.cluster, profiles, problem.batching)
    except (KeyError, ProfileError, TopologyError):
        return None
    if found is None or simulation is None:
        return None
    lengths = Lengths.fixed(max(1, load.input_tokens), load.output_tokens)
    return SimulatedPrediction(found.prediction, simulation, saturation_tok_s(server, lengths))


def _believed(seen: SimulatedPrediction, goals: Sequence[Goal], problem: SearchInput) -> Prediction:
    load = OperatingLoad.of(problem.workload)
    return seen.believed(goals, load.rate_rps * load.output_tokens)


def _readings(of: Prediction | Simulated, metric: str) -> Mapping[str, float]:
    readings: Mapping[str, float] = getattr(of, f"{metric}_s")
    return readings


PAUSE = "reconfig_pause"
SHORT_ENOUGH = "the pause"
"""What stands for evidence in the goal that follows from a bound on the stop."""


Search = Callable[[Sequence[Goal], SearchInput, Mapping[str, Profile], PlanRef], Plan | Infeasible]


def planned_within(
    goals: Sequence[Goal],
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    ticket: PlanRef,
    search: Search = planned,
) -> Plan | Infeasible:
    """As ``search``, with a switch that keeps the hard bounds on its stop.

    Soft ones it may miss, and says so.
    """
    bounds = [goal for goal in goals if isinstance(goal, Objective) and goal.metric == PAUSE and goal.value]
    answer = search(goals, problem, profiles, ticket)
    hard = [bound for bound in bounds if not bound.soft]
    if not isinstance(answer, Plan) or not _missed(hard, answer):
        return _told_pause(answer, bounds)
    tightest = min(hard, key=_value)
    too_long = _too_long(answer, tightest)
    quicker = _quicker(tightest)
    found = search([*goals, quicker], problem, profiles, ticket)
    if isinstance(found, Plan) and not _missed(hard, found):
        return _told_pause(_without(found, quicker, tightest), bounds, too_long)
    stays = search([*goals, ReconfigRule("forbid", SHORT_ENOUGH)], problem, profiles, ticket)
    if isinstance(stays, Plan):
        return _told_pause(stays, bounds, too_long)
    return _refused(stays, answer, tightest)


def _value(bound: Objective) -> float:
    return bound.value or 0.0


def _pause_s(plan: Plan) -> float:
    """The pause of a plan's switch, as predicted; 0 where it makes none."""
    return plan.switch.pause_s if plan.switch and plan.now != plan.target else 0.0


def _missed(bounds: Sequence[Objective], plan: Plan) -> bool:
    return any(_pause_s(plan) > _value(bound) for bound in bounds)


def _too_long(plan: Plan, bound: Objective) -> str:
    where = explain.topology_words(plan.target)
    return (
        f"a switch to {where} would pause its streams for about {_pause_s(plan) * 1e3:.3g} ms, "
        f"more than {explain.goal_words(bound)} allows"
    )


def _rounded_up(seconds: float) -> float:
    """To a whole millisecond."""
    return math.ceil(seconds * 1e3) / 1e3


def _quicker(bound: Objective) -> Objective:
    """What the target has to be where what runs is slower than the bound."""
    return Objective("tpot", "<=", SHORT_ENOUGH, stat="mean", value=_value(bound), unit="s")


def _refused(stays: Infeasible, switched: Plan, bound: Objective) -> Infeasible:
    """That neither a switch nor what runs holds the goals, and what pause could be held."""
    near = stays.nearest
    what_runs = f"{explain.topology_words(near.topology)} {near.reason}" if near else stays.reasons[0]
    unsaid = {explain.goal_words(bound), repr(SHORT_ENOUGH)}
    return Infeasible(
        reasons=(_too_long(switched, bound), what_runs),
        nearest=near,
        feasible_targets=(explain.goal_words(replace(bound, value=_rounded_up(_pause_s(switched)))),),
        left_out=tuple(left_out for left_out in stays.left_out if left_out.goal not in unsaid),
    )


def _without(plan: Plan, quicker: Objective, bound: Objective) -> Plan:
    """A plan that speaks of the bound where it means a goal that nobody said."""
    unsaid = explain.goal_words(quicker)
    bound_words = explain.goal_words(bound)
    second = plan.runner_up
    return replace(
        plan,
        margins=tuple(margin for margin in plan.margins if margin.goal != unsaid),
        reasons=tuple(reason.replace(unsaid, bound_words) for reason in plan.reasons),
        runner_up=replace(second, reason=second.reason.replace(unsaid, bound_words)) if second else None,
    )


def _told_pause(answer: Plan | Infeasible, bounds: Sequence[Objective], *reasons: str) -> Plan | Infeasible:
    """With each bound beside the stop that is predicted, and no longer among what is not weighed."""
    if not isinstance(answer, Plan) or not bounds:
        return answer
    pause_s = _pause_s(answer)
    words = [explain.goal_words(bound) for bound in bounds]
    margins = tuple(
        Margin(goal, pause_s, _value(bound), "s", 1 - pause_s / _value(bound))
        for goal, bound in zip(words, bounds, strict=True)
    )
    missed = [f"{explain.misses(margin)}: a soft goal" for margin in margins if margin.margin < 0]
    return replace(
        answer,
        margins=(*answer.margins, *margins),
        reasons=(*answer.reasons, *reasons, *missed),
        left_out=tuple(left_out for left_out in answer.left_out if left_out.goal not in words),
    )
