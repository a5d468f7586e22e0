"""The choice: the best topology for the goals, or why there is none. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from intent.models import LATENCIES, Goal, Objective, ReconfigRule, Relative, TenantException
from runtime.capabilities import Capabilities
from runtime.errors import TopologyError
from selector import explain
from selector.crossing import crossing
from selector.finder import Finder, SearchResult, first_of, why_infeasible
from selector.fleet import Fleets
from selector.models import (
    Candidate,
    Infeasible,
    LeftOut,
    Plan,
    PlanRef,
    Profile,
    ProfileError,
    SearchInput,
    SwitchPrediction,
)
from selector.objectives import (
    FULL,
    WORKLOAD_RATE,
    Bound,
    Demands,
    Places,
    absolute,
    margin_of,
    places,
    precisions_for,
    sort_goals,
    value_of,
)
from selector.prediction import candidate
from selector.ranking import Ranking, bytes_to_move, switch
from selector.space import blocker, weights_of

_ABOUT = 1.5
LONGEST_PAYBACK_S = 3600.0
"""A switch that takes longer to pay for itself is not made: by then the load is another."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a plan repeats of what it was asked, beside what was found."""

    ticket: PlanRef
    notes: tuple[str, ...]
    rules: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    preferred: frozenset[int] = frozenset()
    """Devices to run on where that is possible."""

    def noting(self, *notes: str) -> "_Asked":
        """With more notes, before the others."""
        return replace(self, notes=(*notes, *self.notes))


def select(
    goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none.

    ``goals`` are those of the window that ``ticket`` names (choosing them is the caller's), ``profiles`` go
    by device kind. A topology must hold every hard goal; among those the order is ``Ranking``'s. What runs
    stays where it holds as much as any and nothing is to be minimised or maximised.
    """
    where, finder, wanted = _opened(goals, problem, profiles, ticket)
    today = _today(finder)
    if where.frozen or (problem.now and _forbids_a_switch(goals)):
        return _stays(finder, today, wanted, _why_it_stays(where.frozen, goals))
    if today and len(wanted.left_out) == len(goals):
        return _plan(finder, SearchResult(today, tuple, 1), today, wanted.noting(explain.NOTHING_ASKED))
    return _searched(finder, where, today, wanted)


def choose(
    goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef
) -> Plan | Infeasible:
    """The best of what was observed, or why none of it holds the goals; as ``select`` otherwise."""
    _, finder, wanted = _opened(goals, problem, profiles, ticket)
    allowed = (topology for topology in problem.observed if not blocker(topology, finder.problem, finder.precisions))
    found = [
        candidate for candidate in (candidate(topology, finder.problem, profiles) for topology in allowed) if candidate
    ]
    return _best_of(found, finder, _today(finder), wanted)


def _opened(
    goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef
) -> tuple[Places, Finder, _Asked]:
    """Where to search, with what, and what is to be repeated of the goals."""
    where = places(goals, problem)
    here = replace(problem, cluster=where.allowed, capabilities=_for_goals(goals, problem.capabilities))
    relative = [goal for goal in goals if isinstance(goal, Relative)]
    settled = absolute(goals, _as_it_runs(problem, profiles) if relative else None, problem.workload)
    demands = sort_goals(settled, here)
    finder = Finder(Ranking(demands, here, ()), profiles, _precisions(demands, here, profiles), problem.cluster)
    beside_today = [new for old, new in zip(goals, settled, strict=True) if new is not old]
    notes = (*where.notes, *map(explain.relative_to_today, beside_today), *_notes(finder, goals))
    return where, finder, _Asked(ticket, notes, *_accounted(settled, finder))


def _searched(finder: Finder, where: Places, today: Candidate | None, wanted: _Asked) -> Plan | Infeasible:
    """The best there is, on preferred devices if some hold the goals."""
    if where.preferred:
        if answer := _with_wishes(finder.on(where.preferred)):
            devices = frozenset(gpu.index for gpu in where.preferred.gpus)
            return _plan(finder, answer, today, replace(wanted, preferred=devices))
        wanted = replace(wanted, notes=(*wanted.notes, "no topology on the preferred devices alone holds the goals"))
    if answer := _with_wishes(finder):
        return _plan(finder, answer, today, wanted)
    return _best_of(_nearest(finder, today), finder, today, wanted)


def _best_of(found: Sequence[Candidate], finder: Finder, today: Candidate | None, wanted: _Asked) -> Plan | Infeasible:
    """The best of what comes near if it holds every goal.

    The search asks for one batch that holds all of them.
    """
    near = replace(finder.ranking, candidates=found)
    if found and not near.missed(near.demands.bounds, near.best_first[0]):
        return _plan(finder, SearchResult(near.best_first[0], tuple, len(found)), today, wanted)
    refusal = why_infeasible(near, finder)
    offer = _other_precision(finder)
    return replace(
        refusal,
        reasons=(*refusal.reasons, *wanted.notes),
        feasible_targets=(*refusal.feasible_targets, *offer),
        left_out=wanted.left_out,
    )


def _cost_by_devices(goals: Sequence[Goal], problem: SearchInput) -> bool:
    """Whether cost is to be minimised where some devices have no price."""
    optimised = [goal for goal in goals if isinstance(goal, Objective) and goal.op in {"minimize", "maximize"}]
    return bool(problem.unpriced) and any(goal.metric == "cost" for goal in optimised)


def _accounted(goals: Sequence[Goal], finder: Finder) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """The goals that are no bounds: those that narrowed the space or order it, and those left out."""
    demands = finder.ranking.demands
    problem = finder.problem
    stated = (*demands.bounds, *demands.wishes)
    rules = [goal for goal in goals if goal not in stated and goal not in demands.not_evaluated]
    left_out = tuple(explain.left_out(goal, problem) for goal in demands.not_evaluated)
    return tuple(map(explain.goal_words, rules)), left_out


def _forbids_a_switch(goals: Sequence[Goal]) -> bool:
    return any(isinstance(goal, ReconfigRule) and goal.rule == "forbid" for goal in goals)


def _why_it_stays(frozen: Sequence[int], goals: Sequence[Goal]) -> str:
    if not frozen:
        bans = [goal for goal in goals if isinstance(goal, ReconfigRule) and goal.rule == "forbid"]
        return f"{bans[0].evidence!r} forbids a switch, so what runs stays as it is"
    devices = f"device{'s' if len(frozen) > 1 else ''} {', '.join(map(str, frozen))}"
    return f"{devices} may not be touched, so what runs there stays as it is"


def _for_goals(goals: Sequence[Goal], engine: Capabilities | None) -> Capabilities | None:
    """What the engine may do: nothing with a long stop where a goal bounds stops."""
    bounded = any(isinstance(goal, Objective) and goal.metric == "reconfig_pause" for goal in goals)
    return replace(engine, streams=False) if engine and bounded else engine


def _as_it_runs(problem: SearchInput, profiles: Mapping[str, Profile]) -> Candidate | None:
    """Today's topology, whether or not it may go on."""
    if problem.now is None:
        return None
    try:
        return candidate(problem.now, problem, profiles)
    except (KeyError, ProfileError, TopologyError):
        return None


def _stays(finder: Finder, today: Candidate | None, wanted: _Asked, note: str) -> Plan | Infeasible:
    """What runs goes on, for it may not be touched; or that it misses a goal."""
    if today is None:
        return Infeasible(
            (f"{note}, but it may not go on: {_barred(finder)}", *wanted.notes),
            None,
            left_out=wanted.left_out,
        )
    missed = finder.ranking.missed(finder.ranking.demands.bounds, today)
    if missed:
        words = explain.listed([explain.goal_words(goal) for goal in missed])
        nearest = replace(today, reason=f"is all that may run; misses {words}")
        return Infeasible((f"{note}, but it misses {words}", *wanted.notes), nearest, left_out=wanted.left_out)
    return _plan(finder, SearchResult(today, tuple, 1), today, wanted.noting(note))


def _barred(finder: Finder) -> str:
    now = finder.problem.now
    return blocker(now, finder.problem, finder.precisions) if now else ""


def _precisions(demands: Demands, problem: SearchInput, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
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


def _available(problem: SearchInput, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The precisions that some device kind has figures for and that limits and engine allow."""
    kinds = (kind for kind in problem.cluster.kinds if kind in profiles)
    names = dict.fromkeys(name for kind in kinds for name in profiles[kind].precisions)
    limits = problem.limits.allowed_precisions
    engine = problem.capabilities
    allowed = [name for name in names if limits is None or name in limits]
    return tuple(name for name in allowed if engine is None or name in engine.precisions)


def _with_wishes(finder: Finder) -> SearchResult | None:
    """The best that holds the hard goals and as many of the soft ones as can be held.

    Of equally many the first ones.
    """
    demands = finder.ranking.demands
    for count in range(len(demands.wishes), -1, -1):
        for wishes in combinations(demands.wishes, count):
            goals = (*demands.bounds, *wishes)
            answer = _by_objectives(finder, goals)
            if answer and finder.ranking.missed(goals, answer.best):
                answer = None  # a goal that the search does not bound
            if found := _or_fleet(finder, goals, answer):
                return found
    return None


def _or_fleet(finder: Finder, goals: Sequence[Bound], alone: SearchResult | None) -> SearchResult | None:
    """One pipeline, or several where they do better."""
    fleet = Fleets(finder).best(goals, finder.ranking.demands.optimised, alone.best if alone else None)
    if alone is None or fleet is None:
        return alone or fleet
    return first_of([alone, fleet], finder.ranking)


def _by_objectives(finder: Finder, goals: Sequence[Bound]) -> SearchResult | None:
    """The best by what was to be minimised or maximised, or by the balance that a priority asks for."""
    demands = finder.ranking.demands
    if demands.balance:
        return finder.traded(goals, demands.balance)
    found = finder.best(goals, demands.optimised)
    looser = [finder.best(held, demands.optimised) for held in _but_one(goals)]
    held = [result for result in looser if result and not finder.ranking.missed(goals, result.best)]
    answers = [*([found] if found else []), *held]
    return first_of(answers, finder.ranking) if answers else None


def _but_one(goals: Sequence[Bound]) -> list[list[Bound]]:
    """The goals without one bound on latency, where there are some on different statistics.

    The search holds all bounds in one batch, but each statistic is predicted for the batch that is enough for it: what is best
    without a bound may hold that one, too.
    """
    latencies = [goal for goal in goals if isinstance(goal, Objective) and goal.metric in LATENCIES]
    if len({goal.stat for goal in latencies}) < 2:
        return []
    return [[goal for goal in goals if goal is not left_out] for left_out in latencies]


def _today(finder: Finder) -> Candidate | None:
    """What runs now, if it may go on."""
    problem = finder.problem
    now = problem.now
    if now is None or blocker(now, problem, finder.precisions):
        return None
    try:
        return candidate(now, problem, finder.profiles)
    except (ProfileError, TopologyError):
        return None


def _nearest(finder: Finder, today: Candidate | None) -> list[Candidate]:
    """The nearest topologies: the best for each goal that nothing near holds yet.

    And the best for that goal beside the others.

    If each goal is held by something, pairs that nothing near holds yet are looked at as well.
    """
    bounds = finder.ranking.demands.bounds
    others = {place: [*bounds[:place], *bounds[place + 1 :]] for place in range(len(bounds))}

    def best(place: int, held: Sequence[Bound]) -> list[Candidate]:
        answer = finder.best(held, (bounds[place],), then=finder.cheapest)
        return [answer.best] if answer else []

    def missed(*places: int) -> bool:
        return all(finder.ranking.missed([bounds[place] for place in places], candidate) for candidate in found)

    found = [today] if today else []
    for place in others:
        if missed(place):
            found += best(place, ())
    hopeless = list(filter(missed, others))
    for place, rest in others.items():
        if rest and (place in hopeless or not hopeless):
            found += best(place, rest)
    for pair in combinations(others, 2) if len(bounds) > 2 and not hopeless else ():
        if missed(*pair):
            found += best(pair[0], [bounds[pair[1]]])
    return list({(str(candidate.topology), candidate.prediction.batch): candidate for candidate in found}.values())


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
    problem = finder.problem
    demands = finder.ranking.demands
    precisions = finder.precisions
    silent = not demands.rules and demands.most_quality_loss is None
    kept = problem.now and silent and weights_of(problem.now) == set(precisions)
    objectives = [goal for goal in demands.bounds if isinstance(goal, Objective) and goal.tenant]
    exceptions = [goal for goal in goals if isinstance(goal, TenantException) and goal not in demands.not_evaluated]
    return (
        *([f"keeps {'/'.join(precisions)}: no goal asks for another precision"] if kept else ()),
        *(f"{kind} is left out: it has no profile" for kind in problem.cluster.kinds if kind not in finder.profiles),
        *map(explain.for_everyone, objectives),
        *([explain.devices_for_cost(problem)] if _cost_by_devices(goals, problem) else ()),
        *(explain.not_needed(goal) for goal in exceptions),
    )


def _plan(finder: Finder, answer: SearchResult, today: Candidate | None, wanted: _Asked) -> Plan:
    """The plan: what was found, unless what runs now does as well."""
    problem = finder.problem
    demands = finder.ranking.demands
    ticket = wanted.ticket
    ranking = replace(finder.ranking, candidates=[answer.best, *([today] if today else [])])
    best, unpaid = _worth_it(finder, ranking, answer, wanted.preferred)
    second = _runner_up(finder, best, answer)
    stated = (*demands.bounds, *demands.wishes)
    margins = tuple(margin_of(goal, best, problem.workload, explain.goal_words(goal)) for goal in stated)
    found = _switch(finder, today, best)
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
        now_prediction=today.prediction if today else None,
        runner_up=replace(second, reason=ranking.why_loses(second, best)) if second else None,
        reasons=(
            f"chosen: {explain.summary(best)}",
            *(unpaid or _becomes_of_today(ranking, best, finder)),
            *waits,
            *missed,
            *wanted.notes,
        ),
        margins=margins,
        rules=wanted.rules,
        left_out=wanted.left_out,
        offers=_offers(ranking, best, answer),
        considered=answer.considered,
        bytes_to_move={} if best.replicas else bytes_to_move(problem.now, best.topology, problem.model),
        switch=found,
        certificate=_certificate(answer, problem) if best is answer.best else (),
    )


def _offers(ranking: Ranking, best: Candidate, answer: SearchResult) -> tuple[str, ...]:
    """What a change could save beside what stays, or that it would keep up."""
    if best is answer.best:
        return ()
    unsaid = [goal for goal in ranking.demands.wishes if goal.evidence == WORKLOAD_RATE]
    if unsaid and ranking.missed(unsaid, best):
        rate = explain.amount(unsaid[0].value or 0.0, "requests/s")
        return () if ranking.missed(unsaid, answer.best) else (explain.offer_to_keep_up(best, answer.best, rate),)
    if ranking.cost(answer.best) >= ranking.cost(best):
        return ()
    return (explain.offer(best, answer.best, priced=not ranking.problem.unpriced),)


def _certificate(answer: SearchResult, problem: SearchInput) -> tuple[str, ...]:
    return tuple(explain.proof(proof, problem.model.num_layers) for proof in answer.proofs())


def _worth_it(
    finder: Finder, ranking: Ranking, answer: SearchResult, preferred: Collection[int]
) -> tuple[Candidate, list[str]]:
    """The found topology, unless what runs is as good or the switch would not pay."""
    today = ranking.today
    demands = ranking.demands
    if today is None or (preferred and not set(today.topology.devices) <= set(preferred)):
        return answer.best, []
    best = ranking.best_first[0]
    named = [goal for goal in (*demands.bounds, *demands.wishes) if demands.optimise or goal.evidence != WORKLOAD_RATE]
    if ranking.missed(named, today) != ranking.missed(named, best):
        return best, []
    if not demands.optimise:
        return today, []
    found = _switch(finder, today, best)
    if found is None or found.payback_s is None or found.payback_s <= LONGEST_PAYBACK_S:
        return best, []
    return today, [explain.not_paid(today, best, found)]


def _switch(finder: Finder, today: Candidate | None, best: Candidate) -> SwitchPrediction | None:
    """Between places of the whole inventory, whatever goals leave of it.

    No engine here switches to several replicas.
    """
    if today is None or best.replicas:
        return None
    whole = replace(finder.problem, cluster=finder.inventory)
    return switch(today, best, whole, crossing(today, best, whole, finder.profiles))


def _runner_up(finder: Finder, best: Candidate, answer: SearchResult) -> Candidate | None:
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


def _about(goal: Bound, best: Candidate, problem: SearchInput) -> Objective | None:
    """An objective as a bound that what is about as good as the best holds.

    There the next best is found sooner.
    """
    reached = value_of(goal, best.topology, best.prediction, problem.workload)
    if not isinstance(goal, Objective) or not math.isfinite(reached):
        return None
    op, value = (">=", reached / _ABOUT) if goal.op == "maximize" else ("<=", reached * _ABOUT)
    return replace(goal, op=op, value=value)  # type: ignore[arg-type]  # one of two


def _becomes_of_today(ranking: Ranking, best: Candidate, finder: Finder) -> list[str]:
    """What becomes of today's topology, and why."""
    now = ranking.problem.now
    today = ranking.today
    if now is None:
        return []
    name = explain.topology_words(now)
    if best is today:
        stands = "is already the best for these goals" if ranking.demands.optimise else "holds what was asked"
        return [f"{name} stays: it {stands}, nothing has to move"]
    if today:
        return [f"today's {name} loses: it {ranking.why_loses(today, best)}"]
    return [f"today's {name} is out: {_barred(finder) or 'its device kind has no profile'}"]
