"""A plan that is borne out by the simulator: what is chosen serves its workload in virtual time before it is told. Pure.

The search works with closed forms. Where a simulation of what it chose differs from them by more than the error band, or
says otherwise about a goal, its figures stand in the plan; where it then misses a goal, by how much the closed
forms were off corrects the next search.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from intent.models import Goal, Objective
from runtime.errors import TopologyError
from runtime.models import Topology
from selector import explain
from selector.errors import ProfileError
from selector.models import Candidate, Corrections, Infeasible, Plan, Prediction, Problem, Profile, Ticket
from selector.moves import bytes_to_move, switch
from selector.outlook import Simulated, simulated
from selector.performance.lengths import Lengths
from selector.performance.load import saturation_tok_s
from selector.pipelines.operating import Load
from selector.prediction import candidate, server_of
from selector.search import choose, select

SEARCHES = 3
_STEPS = 40_000
"""Of a stage that one simulation computes: about a quarter of a second."""
_LATENCIES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Seen:
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
            closed, served = _readings(self.predicted, metric), _readings(self.simulation, metric)
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
        closed, served = _readings(self.predicted, metric), _readings(self.simulation, metric)
        bounds = [
            (goal.stat or "mean", goal.value)
            for goal in goals
            if isinstance(goal, Objective) and goal.metric == metric and goal.value is not None
        ]
        return any(
            abs(closed[stat] - served[stat]) > self.predicted.error_band * served[stat] for stat in closed
        ) or any((closed[stat] <= value) != (served[stat] <= value) for stat, value in bounds)


def planned(
    goals: Sequence[Goal], problem: Problem, profiles: Mapping[str, Profile], ticket: Ticket
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none, as ``select`` has it and a simulation bears out.

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


def named(target: Topology, problem: Problem, profiles: Mapping[str, Profile], ticket: Ticket) -> Plan:
    """A plan to a topology that somebody named and nothing bars (``space.obstacle``), told as a simulation bears it out.

    Raises:
        TopologyError: it does not hold the workload, or has no figures.
    """
    sides = [one for one in (problem.now, target) if one]
    seen = {one: _seen(one, problem, profiles) for one in sides}
    known = {one: _believed(found, (), problem) for one, found in seen.items() if found}
    here = replace(problem, observed=known)
    found, today = _told_of(target, here, profiles), None
    if problem.now in known:
        today = candidate(problem.now, here, profiles)
    change = switch(today, found, problem) if today else None
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


def _told_of(target: Topology, problem: Problem, profiles: Mapping[str, Profile]) -> Candidate:
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


def _seen(topology: Topology, problem: Problem, profiles: Mapping[str, Profile]) -> Seen | None:
    """A topology in the simulator; None where it does not hold the load, or has no figures."""
    load = Load.of(problem.workload)
    try:
        found = candidate(topology, problem, profiles)
        simulation = simulated(topology, problem, profiles, _STEPS) if found else None
        server = server_of(topology, problem.model, problem.cluster, profiles, problem.batching)
    except (KeyError, ProfileError, TopologyError):
        return None
    if found is None or simulation is None:
        return None
    lengths = Lengths.fixed(max(1, load.input_tokens), load.output_tokens)
    return Seen(found.prediction, simulation, saturation_tok_s(server, lengths))


def _believed(seen: Seen, goals: Sequence[Goal], problem: Problem) -> Prediction:
    load = Load.of(problem.workload)
    return seen.believed(goals, load.rate_rps * load.output_tokens)


def _readings(of: Prediction | Simulated, metric: str) -> Mapping[str, float]:
    readings: Mapping[str, float] = getattr(of, f"{metric}_s")
    return readings
