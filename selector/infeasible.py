"""Why no topology holds the goals, what comes nearest, and which bounds could be held. Pure."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from intent.models import Config, Objective
from selector import explain
from selector.finder import Finder
from selector.models import Candidate, Infeasible
from selector.objectives import Bound, margin_of, value_of
from selector.ranking import Ranking
from selector.space import why_never, why_no_stage


def why_infeasible(ranking: Ranking, finder: Finder) -> Infeasible:
    """The goals or limits that clash, the nearest candidate and, for each goal it misses, what would hold."""
    if not ranking.candidates:
        return Infeasible(_nothing_runs(finder), None)
    nearest = min(
        ranking.candidates,
        key=lambda one: (_shortfall(ranking, one), one.prediction.devices, str(one.topology)),
    )
    missed = ranking.missed(ranking.demands.bounds, nearest)
    words = explain.listed([explain.goal_words(bound) for bound in missed])
    targets = tuple(
        _target(ranking, bound) for bound in missed if isinstance(bound, Objective) and bound.op != "=="
    )
    return Infeasible(
        _clashes(ranking, finder), replace(nearest, reason=f"comes nearest; misses {words}"), targets
    )


def _nothing_runs(finder: Finder) -> tuple[str, ...]:
    """Why not one topology is left."""
    if finder.holds is not None:
        model, in_flight = finder.problem.model, finder.problem.workload.concurrency
        what = f"layers of {model.name} fit, with the KV of {in_flight} requests in flight, into the devices that may be used"
        return (f"at most {finder.holds} of the {model.num_layers} {what}",)
    reasons = why_no_stage(finder.problem, finder.precisions)
    return reasons or ("no device kind of the inventory has a profile with an allowed precision",)


def _shortfall(ranking: Ranking, candidate: Candidate) -> float:
    """Sum of the logs of the relative shortfalls: a miss by ten times is far from one by a hundred."""
    workload = ranking.problem.workload
    margins = (margin_of(bound, candidate, workload, "").margin for bound in ranking.demands.bounds)
    return sum(math.log1p(-margin) for margin in margins if margin < 0)


def _clashes(ranking: Ranking, finder: Finder) -> tuple[str, ...]:
    """Goals that nothing holds; if each is held by something, the pairs that exclude each other."""
    bounds = ranking.demands.bounds
    if alone := [bound for bound in bounds if not _any_holds(ranking, (bound,))]:
        return tuple(_unreachable(ranking, bound, finder) for bound in alone)
    pairs: list[tuple[Bound, ...]] = [
        pair for pair in combinations(bounds, 2) if not _any_holds(ranking, pair)
    ]
    groups = pairs or [bounds]
    return tuple(
        f"{explain.listed([explain.goal_words(bound) for bound in group])} exclude each other: "
        "each can be held alone, no allowed topology holds them together"
        for group in groups
    )


def _any_holds(ranking: Ranking, bounds: Sequence[Bound]) -> bool:
    return any(not ranking.missed(bounds, one) for one in ranking.candidates)


def _unreachable(ranking: Ranking, bound: Bound, finder: Finder) -> str:
    words = explain.goal_words(bound)
    if isinstance(bound, Config):
        reason = why_never(bound, finder.problem, finder.precisions)
        return f"{words}: no allowed topology has it" + (f" ({reason})" if reason else "")
    best = _best(ranking, bound, ranking.candidates)
    reading = explain.amount(_reading(ranking, bound, best), bound.unit)
    where = explain.topology_words(best.topology)
    return f"{words}: no allowed topology holds it; the best is {reading} on {where}"


def _target(ranking: Ranking, bound: Objective) -> str:
    """The nearest bound that could be held with every other goal or, if there is none, alone."""
    others = [other for other in ranking.demands.bounds if other is not bound]
    joint = [one for one in ranking.candidates if not ranking.missed(others, one)]
    best = _best(ranking, bound, joint or ranking.candidates)
    eased = replace(bound, value=_outward(_reading(ranking, bound, best), bound.op))
    alone = "" if joint else ", without the other goals"
    return f"{explain.goal_words(eased)} would hold on {explain.topology_words(best.topology)}{alone}"


def _best(ranking: Ranking, bound: Bound, candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda one: margin_of(bound, one, ranking.problem.workload, "").margin)


def _reading(ranking: Ranking, bound: Bound, candidate: Candidate) -> float:
    return value_of(bound, candidate.topology, candidate.prediction, ranking.problem.workload)


def _outward(value: float, op: str) -> float:
    """Two significant digits, rounded to the side that still holds."""
    if not value or not math.isfinite(value):
        return value
    scale = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return (math.ceil(value / scale) if op == "<=" else math.floor(value / scale)) * scale
