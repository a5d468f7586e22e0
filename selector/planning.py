"""A plan to what is named, and one whose switch keeps the bound on its pause. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from intent.models import Goal, Objective, ReconfigRule
from runtime.capabilities import Batching
from runtime.errors import TopologyError
from runtime.models import Topology
from selector import explain
from selector.models import Candidate, Infeasible, Margin, Plan, PlanRef, Profile, ProfileError, SearchInput
from selector.prediction import as_it_runs, candidate
from selector.search import select
from selector.switching import bytes_to_move, crossing, switch, told


def named(
    target: Topology,
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    ticket: PlanRef,
    batching: Batching | None = None,
) -> Plan:
    """A plan to a named topology that nothing blocks, with steps filled so, as a simulation bears it out.

    Raises:
        TopologyError: it does not hold the workload, or has no figures.
    """
    found = _told_of(target, problem, profiles, batching)
    today = as_it_runs(problem, profiles)
    change = switch(today, found, problem, crossing(today, found, problem, profiles)) if today else None
    return Plan(
        id=ticket.plan_id,
        intent_id=ticket.intent_id,
        generation=ticket.generation,
        model=problem.model.name,
        window=ticket.window,
        workload=problem.workload,
        now=problem.now,
        target=target,
        batching=found.batching,
        now_batching=(problem.running or problem.batching) if problem.now else None,
        prediction=found.prediction,
        replicas=found.replicas,
        now_prediction=today.prediction if today else None,
        runner_up=None,
        reasons=(f"named, not searched for: {explain.summary(found)}", *(told(change) if change else ())),
        bytes_to_move=bytes_to_move(problem.now, target, problem.model, problem.capabilities),
        switch=change,
    )


def _told_of(
    target: Topology, problem: SearchInput, profiles: Mapping[str, Profile], batching: Batching | None
) -> Candidate:
    try:
        found = candidate(target, problem, profiles, batching)
    except (KeyError, ProfileError) as error:
        raise TopologyError(f"{target}: nothing is known of how fast it is ({error})") from error
    if found is None:
        raise TopologyError(f"{target}: does not hold the workload of this window")
    return found


PAUSE = "reconfig_pause"
SHORT_ENOUGH = "the pause"
"""What stands for evidence in the goal that follows from a bound on the stop."""


Search = Callable[[Sequence[Goal], SearchInput, Mapping[str, Profile], PlanRef], Plan | Infeasible]


def planned_within(
    goals: Sequence[Goal],
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    ticket: PlanRef,
    search: Search = select,
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
