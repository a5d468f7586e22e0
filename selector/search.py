"""The choice: the best topology for the goals, or why there is none. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from intent.models import Goal, Objective, Relative, TenantException
from runtime.capabilities import Capabilities
from runtime.errors import TopologyError
from selector import explain
from selector.errors import ProfileError
from selector.finder import FEWEST, Answer, Finder
from selector.fleet import Fleets
from selector.infeasible import why_infeasible
from selector.models import Candidate, Infeasible, Plan, Problem, Profile, Switch, Ticket
from selector.moves import bytes_to_move, switch
from selector.objectives import FULL, Bound, Demands, margin_of, precisions_for, sort_goals, value_of
from selector.placement import places
from selector.prediction import candidates
from selector.priorities import FIRST, SECOND, objective
from selector.ranking import Ranking
from selector.relatives import absolute
from selector.space import obstacle, weights_of

_ABOUT = 1.5
LONGEST_PAYBACK_S = 3600.0
"""A switch that takes longer to pay for itself is not made: by then the load is another."""


def select(
    goals: Sequence[Goal], problem: Problem, profiles: Mapping[str, Profile], ticket: Ticket
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none.

    ``goals`` are those of the window that ``ticket`` names (choosing them is the caller's), ``profiles`` go
    by device kind. A topology must hold every hard goal; among those the order is ``Ranking``'s.
    """
    where = places(goals, problem)
    here = replace(problem, cluster=where.allowed, capabilities=_for_goals(goals, problem.capabilities))
    relative = [goal for goal in goals if isinstance(goal, Relative)]
    settled = absolute(goals, _as_it_runs(problem, profiles) if relative else None, problem.workload)
    demands = sort_goals(settled, here)
    finder = Finder(
        Ranking(demands, here, ()), profiles, _precisions(demands, here, profiles), problem.cluster
    )
    beside_today = [new for old, new in zip(goals, settled, strict=True) if new is not old]
    notes = (*where.notes, *map(explain.relative_to_today, beside_today), *_notes(finder, goals))
    today = _today(finder)
    if where.frozen:
        return _stays(finder, today, (notes, ticket), where.frozen)
    answer = _with_wishes(finder.on(where.preferred) if where.preferred else finder)
    if answer is None and where.preferred:
        answer, notes = (
            _with_wishes(finder),
            (*notes, "no topology on the preferred devices alone holds the goals"),
        )
    if answer:
        return _plan(finder, answer, today, (notes, ticket))
    near = replace(finder.ranking, candidates=_nearest(finder, today))
    if near.candidates and not near.missed(demands.bounds, near.best_first[0]):
        # each goal is held at a batch of its own, where the search asks for one that holds all of them
        return _plan(finder, Answer(near.best_first[0], tuple, len(near.candidates)), today, (notes, ticket))
    found = why_infeasible(near, finder)
    offer = _other_precision(finder)
    return replace(
        found, reasons=(*found.reasons, *notes), feasible_targets=(*found.feasible_targets, *offer)
    )


def _for_goals(goals: Sequence[Goal], engine: Capabilities | None) -> Capabilities | None:
    """What the engine may do: nothing with a long stop where a goal bounds stops."""
    bounded = any(isinstance(goal, Objective) and goal.metric == "reconfig_pause" for goal in goals)
    return replace(engine, streams=False) if engine and bounded else engine


def _as_it_runs(problem: Problem, profiles: Mapping[str, Profile]) -> Candidate | None:
    """Today's topology with all the batch that fits, whether or not it may go on."""
    if problem.now is None:
        return None
    try:
        found = candidates(problem.now, problem, profiles)
    except (KeyError, ProfileError, TopologyError):
        return None
    return found[-1] if found else None


def _stays(
    finder: Finder, today: Sequence[Candidate], said: tuple[tuple[str, ...], Ticket], frozen: Sequence[int]
) -> Plan | Infeasible:
    """What runs goes on, for devices of it may not be touched; or that it misses a goal."""
    devices = f"device{'s' if len(frozen) > 1 else ''} {', '.join(map(str, frozen))}"
    note = f"{devices} may not be touched, so what runs there stays as it is"
    best = replace(finder.ranking, candidates=today).today
    if best is None:
        return Infeasible((f"{note}, but it may not go on: {_barred(finder)}", *said[0]), None)
    missed = finder.ranking.missed(finder.ranking.demands.bounds, best)
    if missed:
        words = explain.listed([explain.goal_words(goal) for goal in missed])
        nearest = replace(best, reason=f"is all that may run; misses {words}")
        return Infeasible((f"{note}, but it misses {words}", *said[0]), nearest)
    return _plan(finder, Answer(best, tuple, len(today)), today, ((note, *said[0]), said[1]))


def _barred(finder: Finder) -> str:
    now = finder.problem.now
    return obstacle(now, finder.problem, finder.precisions) if now else ""


def _precisions(demands: Demands, problem: Problem, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The weight formats to search: by the rules, and any in which a bound on quality leaves a layer."""
    available = _available(problem, profiles)
    running = weights_of(problem.now) if problem.now else set[str]()
    chosen = precisions_for(demands.rules, running, available)
    most = demands.most_quality_loss
    if most is None:
        return chosen
    ruled_out = set(available) - set(precisions_for(demands.rules, set(available), available))
    losses = dict.fromkeys(FULL, 0.0) | dict(problem.limits.quality_loss)
    in_all = most * problem.model.num_layers
    return tuple(name for name in available if losses.get(name, math.inf) <= in_all and name not in ruled_out)


def _available(problem: Problem, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The precisions that some device kind has figures for and that limits and engine allow."""
    kinds = (kind for kind in problem.cluster.kinds if kind in profiles)
    names = dict.fromkeys(name for kind in kinds for name in profiles[kind].precisions)
    limits, engine = problem.limits.allowed_precisions, problem.capabilities
    allowed = [name for name in names if limits is None or name in limits]
    return tuple(name for name in allowed if engine is None or name in engine.precisions)


def _with_wishes(finder: Finder) -> Answer | None:
    """The best that holds the hard goals and as many of the soft ones as can be held; of equally many the first ones."""
    demands = finder.ranking.demands
    for count in range(len(demands.wishes), -1, -1):
        for wishes in combinations(demands.wishes, count):
            goals = (*demands.bounds, *wishes)
            answer = _by_priority(finder, goals)
            if answer and finder.ranking.missed(goals, answer.best):
                answer = None  # a goal that the search does not bound
            if found := _or_fleet(finder, goals, answer):
                return found
    return None


def _or_fleet(finder: Finder, goals: Sequence[Bound], alone: Answer | None) -> Answer | None:
    """One pipeline, or several where they do better."""
    fleet = Fleets(finder).best(goals, finder.ranking.demands.optimised, alone.best if alone else None)
    if alone is None or fleet is None:
        return alone or fleet
    ranking = replace(finder.ranking, candidates=[alone.best, fleet.best])
    return alone if ranking.best_first[0] is alone.best else fleet


def _by_priority(finder: Finder, goals: Sequence[Bound]) -> Answer | None:
    """The best by the objectives that were named, then by the order of priority."""
    demands = finder.ranking.demands
    order = [objective(side, demands.bounds) for side in demands.sides]
    better = next((one for one in order if one.metric != "cost"), None)
    if demands.optimised or better is None or "cost" not in demands.sides:
        return finder.best(goals, (*demands.optimised, *order))
    first = order[0].metric != "cost"
    return finder.traded(goals, better, (FIRST, SECOND) if first else (SECOND, FIRST))


def _today(finder: Finder) -> list[Candidate]:
    """What runs now at each of its batch limits, if it may go on."""
    problem, now = finder.problem, finder.problem.now
    if now is None or obstacle(now, problem, finder.precisions):
        return []
    try:
        return candidates(now, problem, finder.profiles)
    except (ProfileError, TopologyError):
        return []


def _nearest(finder: Finder, today: Sequence[Candidate]) -> list[Candidate]:
    """What comes near: the best there is for each goal that nothing near holds yet, and the best for it beside the others.

    If each goal is held by something, pairs of them are looked at as well.
    """
    bounds = finder.ranking.demands.bounds
    others = {place: [*bounds[:place], *bounds[place + 1 :]] for place in range(len(bounds))}

    def best(place: int, held: Sequence[Bound]) -> list[Candidate]:
        answer = finder.best(held, (bounds[place],), then=FEWEST[:1])
        return [answer.best] if answer else []

    def missed(place: int) -> bool:
        return all(finder.ranking.missed([bounds[place]], one) for one in found)

    found = list(today)
    for place in others:
        if missed(place):
            found += best(place, ())
    hopeless = list(filter(missed, others))
    for place, rest in others.items():
        if rest and (place in hopeless or not hopeless):
            found += best(place, rest)
    if len(bounds) > 2 and not hopeless:
        found += [one for place, other in combinations(others, 2) for one in best(place, [bounds[other]])]
    return list({(str(one.topology), one.prediction.batch): one for one in found}.values())


def _other_precision(finder: Finder) -> tuple[str, ...]:
    """What would hold every goal if its precision were allowed, as a sentence; never taken unasked."""
    demands = finder.ranking.demands
    others = [name for name in _available(finder.problem, finder.profiles) if name not in finder.precisions]
    if demands.rules or demands.most_quality_loss is not None:
        return ()
    answer = replace(finder, precisions=tuple(others)).best(demands.bounds, ())
    if answer is None:
        return ()
    return (f"every goal would hold with {explain.summary(answer.best)}, if that precision is allowed",)


def _notes(finder: Finder, goals: Sequence[Goal]) -> tuple[str, ...]:
    """What was kept, left out or not weighed."""
    problem, demands, precisions = finder.problem, finder.ranking.demands, finder.precisions
    silent = not demands.rules and demands.most_quality_loss is None
    kept = problem.now and silent and weights_of(problem.now) == set(precisions)
    said = [goal for goal in demands.bounds if isinstance(goal, Objective) and goal.tenant]
    exceptions = [
        goal for goal in goals if isinstance(goal, TenantException) and goal not in demands.not_evaluated
    ]
    return (
        *([f"keeps {'/'.join(precisions)}: no goal asks for another precision"] if kept else ()),
        *(
            f"{kind} is left out: it has no profile"
            for kind in problem.cluster.kinds
            if kind not in finder.profiles
        ),
        *map(explain.for_everyone, said),
        *(explain.not_needed(goal) for goal in exceptions),
        *map(explain.not_evaluated, demands.not_evaluated),
    )


def _plan(
    finder: Finder, answer: Answer, today: Sequence[Candidate], said: tuple[tuple[str, ...], Ticket]
) -> Plan:
    """The plan: what was found, unless what runs now is as good."""
    (notes, ticket), problem, demands = said, finder.problem, finder.ranking.demands
    ranking = replace(finder.ranking, candidates=[answer.best, *today])
    best, unpaid = _worth_it(finder, ranking)
    second = _runner_up(finder, best, answer)
    stated = (*demands.bounds, *demands.wishes)
    margins = tuple(margin_of(goal, best, problem.workload, explain.goal_words(goal)) for goal in stated)
    found = _switch(finder, ranking.today, best)
    waits = [explain.streams(found)] if found and found.strategy == "stream" else []
    missed = [f"{explain.misses(margin)}: a soft goal" for margin in margins if margin.margin < 0]
    return Plan(
        id=ticket.plan_id,
        intent_id=ticket.intent_id,
        generation=ticket.generation,
        model=problem.model.name,
        window=ticket.window,
        now=problem.now,
        target=best.topology,
        replicas=best.replicas,
        prediction=best.prediction,
        now_prediction=ranking.today.prediction if ranking.today else None,
        runner_up=replace(second, reason=ranking.why_loses(second, best)) if second else None,
        reasons=(
            f"chosen: {explain.summary(best)}",
            *(unpaid or _becomes_of_today(ranking, finder)),
            *waits,
            *missed,
            *notes,
        ),
        margins=margins,
        considered=answer.considered,
        bytes_to_move={} if best.replicas else bytes_to_move(problem.now, best.topology, problem.model),
        switch=found,
        certificate=_certificate(answer, problem) if best is answer.best else (),
    )


def _certificate(answer: Answer, problem: Problem) -> tuple[str, ...]:
    return tuple(explain.proof(proof, problem.model.num_layers) for proof in answer.proofs())


def _worth_it(finder: Finder, ranking: Ranking) -> tuple[Candidate, list[str]]:
    """What comes first, unless getting there from a topology that holds as much costs more than it wins back in time."""
    best, today = ranking.best_first[0], ranking.today
    stated = (*ranking.demands.bounds, *ranking.demands.wishes)
    if today is None or ranking.missed(stated, today) != ranking.missed(stated, best):
        return best, []
    found = _switch(finder, today, best)
    if found is None or found.payback_s is None or found.payback_s <= LONGEST_PAYBACK_S:
        return best, []
    return today, [explain.not_paid(today, best, found)]


def _switch(finder: Finder, today: Candidate | None, best: Candidate) -> Switch | None:
    """Between places of the whole inventory, whatever goals leave of it; no engine here switches to several replicas."""
    if today is None or best.replicas:
        return None
    return switch(today, best, replace(finder.problem, cluster=finder.inventory))


def _runner_up(finder: Finder, best: Candidate, answer: Answer) -> Candidate | None:
    """The best of another shape."""
    demands = finder.ranking.demands
    if answer.best.topology != best.topology:
        return answer.best
    goals = [goal for goal in (*demands.bounds, *demands.wishes) if not finder.ranking.missed([goal], best)]
    near = [bound for goal in demands.optimised[:1] if (bound := _about(goal, best, finder.problem))]
    for held in ([*goals, *near], goals, ()) if near else (goals, ()):
        if second := finder.best(held, demands.optimised, best.topology):
            return second.best
    return None


def _about(goal: Bound, best: Candidate, problem: Problem) -> Objective | None:
    """An objective as a bound that what is about as good as the best holds: there the next best is found sooner."""
    reached = value_of(goal, best.topology, best.prediction, problem.workload)
    if not isinstance(goal, Objective) or not math.isfinite(reached):
        return None
    op, value = (">=", reached / _ABOUT) if goal.op == "maximize" else ("<=", reached * _ABOUT)
    return replace(goal, op=op, value=value)  # type: ignore[arg-type]  # one of two


def _becomes_of_today(ranking: Ranking, finder: Finder) -> list[str]:
    """What becomes of today's topology, and why."""
    now, best, today = ranking.problem.now, ranking.best_first[0], ranking.today
    if now is None:
        return []
    name = explain.topology_words(now)
    if best is today:
        return [f"{name} stays: it is already the best for these goals, nothing has to move"]
    if today:
        return [f"today's {name} loses: it {ranking.why_loses(today, best)}"]
    return [f"today's {name} is out: {_barred(finder) or 'its device kind has no profile'}"]
