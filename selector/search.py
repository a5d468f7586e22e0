"""The choice: the best topology for the goals, as simulated, or why there is none. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeGuard

from intent.models import FULL, Goal, Objective, Placement, PrecisionRule, ReconfigRule, Relative, TenantException
from runtime.capabilities import Batching
from runtime.models import BYTES_PER_VALUE, Cluster, Topology
from runtime.replicas.choice import Bounds
from runtime.replicas.steps import changes
from selector import explain
from selector.finder import Finder
from selector.layer_rules import in_formats
from selector.models import (
    Candidate,
    Infeasible,
    LeftOut,
    Plan,
    PlanRef,
    Profile,
    SearchInput,
    SwitchPrediction,
)
from selector.nearest import Infeasibility
from selector.objectives import (
    UNSAID,
    Bound,
    Demands,
    Places,
    absolute,
    hangs_on_the_load,
    places,
    precisions_for,
    said_for,
    sort_goals,
)
from selector.prediction import as_it_runs
from selector.ranking import Ranking
from selector.sets import SetSearch
from selector.space import blocker, weights_of
from selector.switching import bytes_to_move, crossing, switch, told, without_outage
from selector.trial import MOST, TUNED, Trial

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


@dataclass(frozen=True)
class _Question:
    """What is asked, where it is looked for, and what was simulated of it."""

    where: Places
    finder: Finder
    trial: Trial
    asked: _Asked
    inventory: Cluster
    """All there is, whatever goals leave of it."""
    bounds_stops: bool
    """Whether a goal bounds how long a switch stops streams."""
    for_sets: Finder
    """Where sets are looked for: with what was said for one tenant, which holds for that tenant's replicas alone."""
    searches: list[SetSearch] = field(default_factory=list)
    """For sets, those that were made."""

    @property
    def demands(self) -> Demands:
        """What is demanded."""
        return self.trial.ranking.demands

    @property
    def demands_apart(self) -> bool:
        """Whether something was said for one tenant, which holds for that tenant's replicas alone."""
        return bool(self.for_sets.problem.for_tenants)

    @property
    def may_stand_still(self) -> bool:
        """Whether what runs may end before its successor is up: not where a goal bounds stops."""
        return self.finder.problem.now is not None and not self.bounds_stops

    @property
    def today(self) -> Candidate | None:
        """What runs now, if it may go on."""
        now = self.finder.problem.now
        return self.trial.judge(now) if now and not self.barred else None

    @property
    def barred(self) -> str:
        """Why what runs may not go on; empty: it may."""
        now = self.finder.problem.now
        finder = self.for_sets if now and len(now.replicas) > 1 else self.finder
        rules = [rule for rule in self.demands.rules if rule.layers]
        if now and in_formats(now, rules, finder.problem.model.num_layers) != now:
            return f"{', '.join(repr(rule.evidence) for rule in rules)}: it has layers in other formats"
        return blocker(now, finder.problem, (*finder.precisions, *(rule.value for rule in rules))) if now else ""


def select(
    goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef
) -> Plan | Infeasible:
    """The best topology for the goals in force, or why there is none.

    ``goals`` are those of the window that ``ticket`` names (choosing them is the caller's), ``profiles`` go
    by device kind. A topology must hold every hard goal; among those the order is ``Ranking``'s. What runs
    stays where it holds as much as any and nothing is to be minimised or maximised.
    """
    question = _opened(goals, problem, profiles, ticket)
    available = _available(question.finder.problem, profiles)
    alike = problem.capabilities is not None and problem.capabilities.base is None  # all layers of a pipeline
    if lacking := [
        rule
        for rule in question.demands.rules
        if rule.layers and rule.leaves(BYTES_PER_VALUE).isdisjoint({*available} & {*FULL} if alike else available)
    ]:
        named = f"{lacking[0].evidence!r} cannot be met: limits, engine and profiles leave {explain.listed(available)}"
        return Infeasible((named + ", one for all layers" * alike,), None, left_out=question.asked.left_out)
    today = question.today
    bans = [goal for goal in goals if isinstance(goal, ReconfigRule) and goal.rule == "forbid"]
    if question.where.frozen or (problem.now and bans):
        return _stays(question, today, _why_it_stays(question.where.frozen, bans))
    if today and len(question.asked.left_out) == len(goals):
        return _plan(replace(question, asked=question.asked.noting(explain.NOTHING_ASKED)), today, today)
    return _searched(question, today)


def _opened(goals: Sequence[Goal], problem: SearchInput, profiles: Mapping[str, Profile], ticket: PlanRef) -> _Question:
    where = places(goals, problem)
    bounds_stops = any(isinstance(goal, Objective) and goal.metric == "reconfig_pause" for goal in goals)
    here = replace(problem, cluster=where.allowed)
    if here.capabilities and bounds_stops:
        here = replace(here, capabilities=replace(here.capabilities, streams=False))
    is_relative = any(isinstance(goal, Relative) for goal in goals)
    settled = absolute(goals, as_it_runs(problem, profiles) if is_relative else None, problem.workload)
    new = [
        fresh for old, fresh in zip(goals, settled, strict=True) if fresh is not old and isinstance(fresh, Objective)
    ]
    demands = replace(sort_goals(settled, here), relative=frozenset(new))
    finder = Finder(here, profiles, _precisions(demands.rules, demands, here, profiles), demands.most_quality_loss)
    for_sets = _for_sets(goals, demands, problem, finder)
    notes = (*where.notes, *map(explain.relative_to_today, new), *_notes(finder, demands, goals))
    repeated = _Asked(ticket, notes, *_accounted(settled, demands, here))
    trial = Trial(Ranking(demands, for_sets.problem), profiles)
    return _Question(where, finder, trial, repeated, problem.cluster, bounds_stops, for_sets)


def _for_sets(goals: Sequence[Goal], demands: Demands, problem: SearchInput, finder: Finder) -> Finder:
    """As a finder, with the places and formats that some tenant may have, and the router's bounds."""
    for_one = [goal for goal in goals if said_for(goal) or _is_leave(goal)]
    for_all = [rule for rule in demands.rules if rule not in for_one]
    formats = _precisions(for_all, demands, finder.problem, finder.profiles)
    narrow = tuple(
        goal
        for goal in for_one
        if isinstance(goal, PrecisionRule | Placement)
        and not (_is_leave(goal) and getattr(goal, "value", "") in formats)
    )
    opened = {getattr(goal, "value", "") for goal in narrow if _is_leave(goal)}
    available = _available(finder.problem, finder.profiles)
    cluster = (
        places([goal for goal in goals if not said_for(goal)], problem).allowed if narrow else finder.problem.cluster
    )
    limits = {
        metric: min((goal.value or math.inf for goal in demands.bounds if _bounds(goal, metric)), default=math.inf)
        for metric in ("ttft", "tpot")
    }
    here = replace(finder.problem, cluster=cluster, bounds=Bounds(limits["ttft"], limits["tpot"]), for_tenants=narrow)
    wide = tuple(name for name in available if name in {*formats, *opened})
    return replace(finder, problem=here, precisions=wide if narrow else finder.precisions)


def _is_leave(goal: Goal) -> bool:
    """Whether it opens a format for one tenant alone."""
    return isinstance(goal, PrecisionRule) and goal.rule == "allow" and goal.tenant is not None and not goal.layers


def _bounds(goal: Bound, metric: str) -> TypeGuard[Objective]:
    return isinstance(goal, Objective) and goal.metric == metric and goal.op == "<="


def _searched(question: _Question, today: Candidate | None) -> Plan | Infeasible:
    """The best there is, on preferred devices if some hold the goals."""
    repeated = question.asked
    if preferred := question.where.preferred:
        devices = frozenset(gpu.index for gpu in preferred.gpus)
        if held := _held(question, _explored(question, question.finder.on(preferred))):
            question = replace(question, asked=replace(repeated, preferred=devices))
            return _plan(question, question.trial.ranking.best(held), today)
        repeated = repeated.noting("no topology on the preferred devices alone holds the goals")
        question = replace(question, asked=repeated)
    if held := _held(question, _explored(question, question.finder)):
        return _plan(question, question.trial.ranking.best(held), today)
    finder = question.finder
    if question.may_stand_still:  # what an outage would make possible makes no reason false
        _explored(question, replace(finder, ways=("restart",)))
        finder = replace(finder, ways=(*finder.ways, "restart"))
    refusal = Infeasibility(question.trial, finder).infeasible()
    held = _held(question, question.trial.candidates)  # found on the way to why there is nothing
    if held:
        gentle = without_outage(held, finder.problem)
        return _plan(question, question.trial.ranking.best(gentle or held), today)
    return replace(
        refusal,
        reasons=(*refusal.reasons, *repeated.notes),
        feasible_targets=(*refusal.feasible_targets, *_other_precision(question)),
        left_out=repeated.left_out,
    )


def _held(question: _Question, found: Sequence[Candidate]) -> list[Candidate]:
    return question.trial.ranking.holding(question.demands.bounds, found)


def _explored(question: _Question, finder: Finder) -> list[Candidate]:
    """What was simulated of what may hold the goals, with steps as they are and as they suit better."""
    trial = question.trial
    demands = question.demands
    whole = (*demands.bounds, *demands.wishes)
    objective = demands.balance.better if demands.balance else next(iter(demands.optimised), None)
    today = [question.today] if question.today else []
    for goals in (whole, demands.bounds) if demands.wishes else (whole,):
        topologies = finder.shortlist(goals, objective)
        if finder.timed(objective) is None:  # the cheapest is what is looked for
            trial.tune(today, goals)
            trial.judge_until(topologies, goals)
        else:
            found = [*today, *trial.judge_all(topologies[:MOST])]
            trial.tune(found, goals, objective)
            if demands.balance:
                trial.tune(sorted(found, key=trial.ranking.weighed_up)[:TUNED], goals, objective)
        near = sorted(_within(question, finder), key=lambda each: trial.ranking.shortfall(each, goals))
        trial.judge_all(finder.by_curve([*(each.topology for each in (*today, *near)), *topologies]))
        if held := trial.ranking.holding(goals, _within(question, finder)):
            trial.tune([trial.ranking.best(held)], goals)
        _try_sets(question, finder, goals, objective)
        if trial.ranking.holding(goals, _within(question, finder)):
            break
    return _within(question, finder)


def _within(question: _Question, finder: Finder) -> list[Candidate]:
    """What was simulated of what a finder may use."""
    allowed = {gpu.index for gpu in finder.problem.cluster.gpus}
    wide = {gpu.index for gpu in question.for_sets.problem.cluster.gpus} if question.demands_apart else allowed
    return [
        each
        for each in question.trial.candidates
        if (wide if each.replicas else allowed).issuperset(each.topology.devices)
    ]


def _try_sets(question: _Question, finder: Finder, goals: Sequence[Bound], objective: Bound | None) -> None:
    """Simulate sets of replicas, where one may win.

    That is where no pipeline holds the goals, where as much as can be is to be served, or where what holds them costs more than
    two of the smallest replicas.
    """
    trial = question.trial
    held = trial.ranking.holding(goals, _within(question, finder))
    best = trial.ranking.best(held) if held else None
    wanted = finder.timed(objective)
    below = math.inf
    if len(question.for_sets.problem.cluster.gpus) < 2 or trial.wants_use:
        return
    if best and not (wanted and wanted.metric == "rate"):
        below = trial.ranking.cost(best)
        if wanted or (question.today in held and not question.demands.optimise) or not finder.fits_below(below / 2):
            return
    looked = question.for_sets if question.demands_apart else finder
    bounds = question.for_sets.problem.bounds
    where = replace(looked, problem=replace(looked.problem, bounds=bounds), ways=finder.ways)
    search = SetSearch(where, trial, tuple(goals))
    search.judged(objective, below)
    question.searches.append(search)


def _accounted(
    goals: Sequence[Goal], demands: Demands, problem: SearchInput
) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """The goals that are no bounds: those that narrowed the space or order it, and those left out."""
    stated = (*demands.bounds, *demands.wishes)
    rules = [goal for goal in goals if goal not in stated and goal not in demands.not_evaluated]
    return tuple(map(explain.goal_words, rules)), tuple(
        explain.left_out(goal, problem) for goal in demands.not_evaluated
    )


def _why_it_stays(frozen: Sequence[int], bans: Sequence[ReconfigRule]) -> str:
    if not frozen:
        return f"{bans[0].evidence!r} forbids a switch, so what runs stays as it is"
    devices = f"device{'s' if len(frozen) > 1 else ''} {', '.join(map(str, frozen))}"
    return f"{devices} may not be touched, so what runs there stays as it is"


def _stays(question: _Question, today: Candidate | None, note: str) -> Plan | Infeasible:
    """What runs goes on, for it may not be touched; or that it misses a goal."""
    repeated = question.asked
    if today is None:
        reason = f"{note}, but it may not go on: {question.barred}"
        return Infeasible((reason, *repeated.notes), None, left_out=repeated.left_out)
    if missed := question.trial.ranking.missed(question.demands.bounds, today):
        words = explain.missed_goals(missed)
        nearest = replace(today, reason=f"is all that may run; misses {words}")
        return Infeasible((f"{note}, but it misses {words}", *repeated.notes), nearest, left_out=repeated.left_out)
    return _plan(replace(question, asked=repeated.noting(note)), today, today)


def _precisions(
    rules: Sequence[PrecisionRule], demands: Demands, problem: SearchInput, profiles: Mapping[str, Profile]
) -> tuple[str, ...]:
    """The weight formats to search: by the rules, and any in which a bound on quality leaves a layer."""
    available = _available(problem, profiles)
    others = {*range(problem.model.num_layers)}.difference(
        *(r.held(problem.model.num_layers) for r in rules if r.layers)
    )
    running = weights_of(problem.now, others) if problem.now else {problem.precision or ""}
    chosen = precisions_for(rules, running, available)
    most = demands.most_quality_loss
    if most is None:
        return chosen
    ruled_out = set(available) - set(precisions_for(rules, set(available), available))
    losses = dict.fromkeys(FULL, 0.0) | dict(problem.losses)
    in_all = most * problem.model.num_layers
    return tuple(name for name in available if losses.get(name, math.inf) <= in_all and name not in ruled_out)


def _available(problem: SearchInput, profiles: Mapping[str, Profile]) -> tuple[str, ...]:
    """The precisions that some device kind has figures for and that limits and engine allow."""
    kinds = (kind for kind in problem.cluster.kinds if kind in profiles)
    names = dict.fromkeys(name for kind in kinds for name in profiles[kind].precisions)
    limits = problem.limits.allowed_precisions
    engine = problem.capabilities
    return tuple(
        name for name in names if (limits is None or name in limits) and (engine is None or name in engine.precisions)
    )


def _other_precision(question: _Question) -> tuple[str, ...]:
    """What would hold every goal if its precision were allowed, as a sentence; never taken unasked."""
    finder = question.finder
    demands = question.demands
    others = tuple(name for name in _available(finder.problem, finder.profiles) if name not in finder.precisions)
    if demands.rules or demands.most_quality_loss is not None or not others:
        return ()
    trial = Trial(question.trial.ranking, question.trial.profiles)
    elsewhere = replace(question, finder=replace(finder, precisions=others), trial=trial)
    held = _held(elsewhere, _explored(elsewhere, elsewhere.finder))
    if not held:
        return ()
    words = explain.summary(trial.ranking.best(held))
    return (f"every goal would hold with {words}, if that precision is allowed",)


def _notes(finder: Finder, demands: Demands, goals: Sequence[Goal]) -> tuple[str, ...]:
    """What was kept, left out or not weighed."""
    problem = finder.problem
    precisions = finder.precisions
    silent = not demands.rules and demands.most_quality_loss is None
    kept = problem.now and silent and weights_of(problem.now) == set(precisions)
    objectives = [goal for goal in demands.bounds if isinstance(goal, Objective) and goal.tenant]
    is_cheap_asked = any(
        isinstance(goal, Objective) and goal.metric == "cost" and goal.op in {"minimize", "maximize"} for goal in goals
    )
    exceptions = [goal for goal in goals if isinstance(goal, TenantException) and goal not in demands.not_evaluated]
    return (
        *([f"keeps {'/'.join(precisions)}: no goal asks for another precision"] if kept else ()),
        *(f"{kind} is left out: it has no profile" for kind in problem.cluster.kinds if kind not in finder.profiles),
        *map(explain.for_everyone, objectives),
        *([explain.devices_for_cost(problem)] if problem.unpriced and is_cheap_asked else ()),
        *(explain.not_needed(goal) for goal in exceptions),
    )


def _plan(question: _Question, found: Candidate, today: Candidate | None) -> Plan:
    """The plan: what was found, unless what runs now does as well."""
    problem = question.finder.problem
    demands = question.demands
    ranking = question.trial.ranking
    repeated = question.asked
    best, unpaid = _worth_it(question, found, today)
    second = _runner_up(question, best, found)
    margins = tuple(ranking.margin(goal, best) for goal in (*demands.bounds, *demands.wishes))
    missed = [ranking.margin(goal, best) for goal in ranking.missed(demands.wishes, best)]
    change = _switch(question, today, best)
    return Plan(
        id=repeated.ticket.plan_id,
        intent_id=repeated.ticket.intent_id,
        generation=repeated.ticket.generation,
        model=problem.model.name,
        window=repeated.ticket.window,
        workload=problem.workload,
        now=problem.now,
        target=best.topology,
        batching=best.batching,
        now_batching=(problem.running or problem.batching) if problem.now else None,
        prediction=best.prediction,
        replicas=best.replicas,
        now_prediction=today.prediction if today else None,
        runner_up=replace(second, reason=ranking.why_loses(second, best)) if second else None,
        reasons=(
            f"chosen: {explain.summary(best)}",
            *(unpaid or _becomes_of_today(question, best, today)),
            *(told(change) if change else ()),
            *_meanwhile(question, best, change),
            *(f"{explain.misses(margin)}: a soft goal" for margin in missed),
            *repeated.notes,
        ),
        margins=margins,
        rules=repeated.rules,
        left_out=repeated.left_out,
        offers=(*_offers(question, best, found), *_after_an_outage(question, best, today)),
        considered=question.finder.size,
        bytes_to_move=bytes_to_move(problem.now, best.topology, problem.model, problem.capabilities),
        switch=change,
        certificate=_certificate(question, best) if best is found else (),
    )


def _meanwhile(question: _Question, best: Candidate, change: SwitchPrediction | None) -> list[str]:
    """What the others of a set miss while a replica changes: new requests avoid it then."""
    now = question.finder.problem.now
    trial = question.trial
    if now is None or change is None or max(len(side.replicas) for side in (now, best.topology)) == 1:
        return []
    filled = dict(
        zip(now.replicas, map((question.finder.problem.running or trial.problem.batching).of, count()), strict=False)
    )
    filled |= {each.topology: each.batching for each in best.replicas}
    timed = [goal for goal in question.demands.bounds if hangs_on_the_load(goal)]
    found = []
    for step in changes(now, best.topology):
        others = [each for each in step.leads_to.replicas if each != step.after]
        if step.before is None or not others:
            continue
        steps = Batching.of_replicas([filled.get(each, trial.problem.batching) for each in others])
        left = trial.judge(Topology.of_replicas(others), steps)
        missed = [trial.ranking.margin(goal, left) for goal in trial.ranking.missed(timed, left)] if left else []
        if missed:
            found.append(explain.meanwhile(explain.topology_words(step.before), change.prepare_s, missed))
    return found


def _offers(question: _Question, best: Candidate, found: Candidate) -> tuple[str, ...]:
    """What a change could save beside what stays, or that it would keep up."""
    if best is found:
        return ()
    ranking = question.trial.ranking
    unsaid = [goal for goal in question.demands.wishes if goal.evidence in UNSAID]
    if ranking.missed(unsaid, best):
        missed = [ranking.margin(goal, best) for goal in ranking.missed(unsaid, best)]
        return () if ranking.missed(unsaid, found) else (explain.offer_to_keep_up(best, found, missed),)
    if ranking.cost(found) >= ranking.cost(best):
        return ()
    return (explain.offer(best, found, priced=not ranking.problem.unpriced),)


def _after_an_outage(question: _Question, best: Candidate, today: Candidate | None) -> tuple[str, ...]:
    """What would be better at what is to be optimised, if what runs ended first."""
    if today is None or not question.demands.optimise or not question.may_stand_still:
        return ()
    ranking = question.trial.ranking
    held = _held(question, _explored(question, replace(question.finder, ways=("restart",))))
    better = ranking.best([best, *held])
    change = _switch(question, today, better)
    if better.topology == best.topology or change is None or change.strategy != "restart":
        return ()
    return (explain.after_an_outage(better, change, ranking.why_loses(best, better)),)


def _certificate(question: _Question, best: Candidate) -> tuple[str, ...]:
    """Why nothing cheaper holds the goals, and how many topologies were simulated."""
    ranking = question.trial.ranking
    costs = {each.topology: ranking.cost(each) for each in question.trial.candidates}
    cost = ranking.cost(best)
    finder = question.finder
    proof = finder.none_below(question.demands.bounds, cost)
    alone = bool(best.replicas) or (best.prediction.devices > 1 and finder.fits_below(cost / 2))
    less = [search.most_below(cost) for search in question.searches[-1:]]
    rate_rps = ranking.problem.workload.rate_rps
    return (
        *([explain.proof(proof, ranking.problem.model.num_layers, alone=alone)] if proof and proof.layers else ()),
        *(
            explain.set_bound(cost, most, rate_rps, priced=finder.cost != "devices")
            for most in less
            if 0 < most < rate_rps
        ),
        explain.simulated(len(costs), sum(other < cost for other in costs.values())),
    )


def _worth_it(question: _Question, found: Candidate, today: Candidate | None) -> tuple[Candidate, list[str]]:
    """The found topology, unless what runs is as good or the switch would not pay."""
    demands = question.demands
    ranking = question.trial.ranking
    preferred: Collection[int] = question.asked.preferred
    if today is None or found is today or (preferred and not set(today.topology.devices) <= set(preferred)):
        return found, []
    if ranking.missed(demands.said, today) != ranking.missed(demands.said, found):
        return found, []
    if not demands.optimise:
        return today, []
    change = _switch(question, today, found)
    if change is None or change.payback_s is None or change.payback_s <= LONGEST_PAYBACK_S:
        return found, []
    return today, [explain.not_paid(today, found, change)]


def _switch(question: _Question, today: Candidate | None, best: Candidate) -> SwitchPrediction | None:
    """Between places of the whole inventory, whatever goals leave of it."""
    whole = replace(question.finder.problem, cluster=question.inventory)
    today = today or as_it_runs(whole, question.finder.profiles)
    if today is None:
        return None
    return switch(today, best, whole, crossing(today, best, whole, question.finder.profiles))


def _runner_up(question: _Question, best: Candidate, found: Candidate) -> Candidate | None:
    """The best of another shape."""
    if found.topology != best.topology:
        return found
    others = [each for each in question.trial.candidates if _shape(each.topology) != _shape(best.topology)]
    return question.trial.ranking.best(others) if others else None


def _shape(topology: Topology) -> tuple[object, ...]:
    """How many replicas and stages, on how many devices of each kind."""
    return (
        len(topology.replicas),
        topology.pp_size,
        tuple(sorted(stage.kind for stage in topology.stages for _ in stage.devices)),
    )


def _becomes_of_today(question: _Question, best: Candidate, today: Candidate | None) -> list[str]:
    """What becomes of today's topology, and why."""
    now = question.finder.problem.now
    demands = question.demands
    ranking = question.trial.ranking
    if now is None:
        return []
    name = explain.topology_words(now)
    if best is today:
        missed = ranking.missed(demands.said, today)
        holds = (
            f"misses as much as anything else would ({explain.missed_goals(missed)})"
            if missed
            else "holds what was asked"
        )
        stands = "is already the best for these goals" if demands.optimise and not missed else holds
        return [f"{name} stays: it {stands}, nothing has to move"]
    if best.topology == now:
        return [f"{name} stays with {best.batching}; as it runs it {ranking.why_loses(today, best)}"] if today else []
    if today:
        return [f"today's {name} loses: it {ranking.why_loses(today, best)}"]
    is_known = all(stage.kind in question.finder.profiles for stage in now.stages)
    unsaid = (
        "the engine keeps KV of fewer requests than are in flight" if is_known else "its device kind has no profile"
    )
    return [f"today's {name} is out: {question.barred or unsaid}"]
