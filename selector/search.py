"""The choice: every legal topology is predicted, checked against the goals and ranked. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from intent.models import Goal
from runtime.errors import TopologyError
from selector import explain
from selector.errors import ProfileError
from selector.infeasible import why_infeasible
from selector.models import Candidate, Infeasible, Plan, Problem, Profile, Ticket
from selector.moves import bytes_to_move
from selector.objectives import Demands, margin_of, precisions_for, sort_goals
from selector.pipelines import mixed
from selector.prediction import predict
from selector.ranking import Ranking
from selector.space import Space, survey, weights_of


def select(
    goals: Sequence[Goal], problem: Problem, profiles: Mapping[str, Profile], ticket: Ticket
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none.

    ``goals`` are those of the window that ``ticket`` names (choosing them is the caller's), ``profiles`` go
    by device kind. A topology must hold every hard goal; among those the order is ``Ranking``'s.
    """
    demands = sort_goals(goals, problem.model.name, problem.workload)
    available = _available(problem, profiles)
    running = weights_of(problem.now) if problem.now else set[str]()
    precisions = precisions_for(demands.rules, running, available)
    space, candidates = _explore(problem, profiles, precisions)
    ranking = Ranking(demands, problem, candidates)
    notes = _notes(demands, problem, profiles, precisions)
    if candidates and not ranking.missed(demands.bounds, ranking.best_first[0]):
        return _plan(ranking, space, notes, ticket)
    answer = why_infeasible(ranking, space)
    offer = _other_precision(ranking, profiles, [name for name in available if name not in precisions])
    return replace(
        answer, reasons=(*answer.reasons, *notes), feasible_targets=(*answer.feasible_targets, *offer)
    )


def _available(problem: Problem, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The precisions that some device kind has figures for and that limits and engine allow."""
    kinds = (kind for kind in problem.cluster.kinds if kind in profiles)
    names = dict.fromkeys(name for kind in kinds for name in profiles[kind].precisions)
    limits, engine = problem.limits.allowed_precisions, problem.capabilities
    allowed = [name for name in names if limits is None or name in limits]
    return tuple(name for name in allowed if engine is None or name in engine.precisions)


def _explore(
    problem: Problem, profiles: Mapping[str, Profile], precisions: Collection[str]
) -> tuple[Space, list[Candidate]]:
    """The space, and a prediction for each topology in it; what cannot be predicted is rejected."""
    space = survey(problem, [kind for kind in problem.cluster.kinds if kind in profiles], precisions)
    candidates, rejected = [], list(space.rejected)
    pipelines = list(mixed(problem, profiles, precisions))
    rejected += [(topology, reason) for topology, reason in pipelines if reason]
    found = dict.fromkeys([*space.topologies, *(topology for topology, reason in pipelines if not reason)])
    for topology in found:
        try:
            prediction = predict(topology, problem.workload, problem.model, problem.cluster, profiles)
        except (ProfileError, TopologyError) as error:
            rejected.append((topology, str(error)))
        else:
            candidates.append(Candidate(topology, prediction, ""))
    return Space(tuple(one.topology for one in candidates), tuple(rejected)), candidates


def _other_precision(
    ranking: Ranking, profiles: Mapping[str, Profile], precisions: Collection[str]
) -> tuple[str, ...]:
    """What would hold every goal if its precision were allowed, as a sentence; never taken unasked."""
    _, candidates = _explore(ranking.problem, profiles, precisions)
    other = replace(ranking, candidates=candidates)
    if ranking.demands.rules or not candidates or other.missed(ranking.demands.bounds, other.best_first[0]):
        return ()
    return (
        f"every goal would hold with {explain.summary(other.best_first[0])}, if that precision is allowed",
    )


def _notes(
    demands: Demands, problem: Problem, profiles: Mapping[str, Profile], precisions: Collection[str]
) -> tuple[str, ...]:
    """What was kept, left out or not weighed."""
    kept = problem.now and not demands.rules and weights_of(problem.now) == set(precisions)
    return (
        *([f"keeps {'/'.join(precisions)}: no goal asks for another precision"] if kept else ()),
        *(f"{kind} is left out: it has no profile" for kind in problem.cluster.kinds if kind not in profiles),
        *(explain.for_everyone(goal) for goal in demands.bounds if getattr(goal, "tenant", None)),
        *map(explain.not_evaluated, demands.not_evaluated),
    )


def _plan(ranking: Ranking, space: Space, notes: tuple[str, ...], ticket: Ticket) -> Plan:
    problem, (best, *others) = ranking.problem, ranking.best_first
    second = replace(others[0], reason=ranking.why_loses(others[0], best)) if others else None
    stated = (*ranking.demands.bounds, *ranking.demands.wishes)
    margins = tuple(margin_of(goal, best, problem.workload, explain.goal_words(goal)) for goal in stated)
    missed = [f"{explain.misses(margin)}: a soft goal" for margin in margins if margin.margin < 0]
    return Plan(
        id=ticket.plan_id,
        intent_id=ticket.intent_id,
        generation=ticket.generation,
        model=problem.model.name,
        window=ticket.window,
        now=problem.now,
        target=best.topology,
        prediction=best.prediction,
        now_prediction=ranking.today.prediction if ranking.today else None,
        runner_up=second,
        reasons=(
            f"chosen: {explain.summary(best)}",
            *_today(ranking, space),
            *missed,
            *notes,
        ),
        margins=margins,
        considered=space.considered,
        bytes_to_move=bytes_to_move(problem.now, best.topology, problem.model),
    )


def _today(ranking: Ranking, space: Space) -> list[str]:
    """What becomes of today's topology, and why."""
    now, best, today = ranking.problem.now, ranking.best_first[0], ranking.today
    if now is None:
        return []
    name = explain.topology_words(now)
    if best is today:
        return [f"{name} stays: it is already the best for these goals, nothing has to move"]
    if today:
        return [f"today's {name} loses: it {ranking.why_loses(today, best)}"]
    rejected = [reason for what, reason in space.rejected if what == now]
    return [f"today's {name} is out: {rejected[0] if rejected else 'its device kind has no profile'}"]
