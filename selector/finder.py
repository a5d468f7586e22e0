"""Goals to the best topology on devices, or to what comes nearest. Pure."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations, pairwise

import numpy as np

from intent.models import Config, Objective
from runtime.footprint import HEADROOM, block_bytes, weight_bytes
from runtime.models import Cluster, LayerRange, Precision, Stage, Topology
from selector import explain
from selector.models import Candidate, Infeasible, Profile, SearchInput
from selector.objectives import Balance, Bound, Trade, margin_of, thresholds, value_of
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BLOCK_TOKENS, Setting, dealt, pools_of
from selector.pipelines.optimum import Metric, Proof, Threshold, device_costs, most_held, solve
from selector.prediction import candidate
from selector.ranking import Ranking
from selector.space import (
    blocks_to_move,
    groups,
    narrowed,
    no_room,
    no_room_beside,
    stage_counts,
    stage_kinds,
    why_never,
    why_no_stage,
)

_SOONEST = Threshold("ttft", 0.0, "p95")


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best topology for some goals, and why nothing is better."""

    best: Candidate
    proofs: Callable[[], tuple[Proof, ...]]
    """Computes why nothing is better."""
    considered: int
    """Operating points and device counts examined."""


def first_of(answers: Sequence[SearchResult], ranking: Ranking) -> SearchResult:
    """Of several answers, of which there is one at least, the one that ranks first."""
    order = replace(ranking, candidates=[answer.best for answer in answers]).best_first
    return next(answer for answer in answers if answer.best is order[0])


@dataclass(frozen=True)
class Finder:
    """Finds topologies for one problem, in some precisions."""

    ranking: Ranking
    profiles: Mapping[str, Profile]
    precisions: tuple[str, ...]
    inventory: Cluster
    """All there is, whatever goals leave of it."""

    @property
    def problem(self) -> SearchInput:
        """What is to be solved."""
        return self.ranking.problem

    def on(self, cluster: Cluster) -> "Finder":
        """The same on a part of the devices."""
        return replace(self, ranking=replace(self.ranking, problem=replace(self.problem, cluster=cluster)))

    def best(
        self,
        goals: Sequence[Bound],
        objectives: Sequence[Bound],
        other_than: Topology | None = None,
        then: Sequence[Threshold] | None = None,
    ) -> SearchResult | None:
        """The topology that holds the goals and has the objectives best, in their order.

        ``then`` decides among equals; by default the lowest cost and then the lowest P95 TTFT.

        ``other_than`` leaves out all pipelines with as many stages on as many devices of each kind. Of what cannot stand
        together (an engine with one TP degree, machines without a network) each part is searched, and the best of all taken.
        """
        then = (*self.cheapest, _SOONEST) if then is None else then
        bounds = [*thresholds(goals, self.problem), *self._limits]
        wanted = thresholds(objectives, self.problem) or then[:1]
        wishes = [goal for goal in goals if isinstance(goal, Config)]
        grids = self.grids(wishes)
        answers = [answer for grid in grids if (answer := self._on(grid, (bounds, wanted, then), (grids, other_than)))]
        if not answers:
            return None
        best = first_of(answers, self.ranking)
        return replace(best, considered=sum(answer.considered for answer in answers))

    @property
    def cheapest(self) -> tuple[Threshold]:
        """The lowest cost, or the fewest devices where some have no price.

        What decides after all that was asked for.
        """
        return (Threshold("devices" if self.problem.unpriced else "usd_per_hour", 0.0),)

    def traded(self, goals: Sequence[Bound], balance: Balance) -> SearchResult | None:
        """The topology that holds the goals with the best trade of latency or throughput and cost.

        See ``selector.objectives``.
        """
        problem = self.problem
        workload = problem.workload
        better = balance.better
        priced = not problem.unpriced
        metric, unit = ("cost", "USD/h") if priced else ("gpu_count", "gpus")

        def buys(most: float) -> tuple[SearchResult, float, float] | None:
            answer = self.best((*goals, Objective(metric, "<=", "", value=most, unit=unit)), (better,))  # type: ignore[arg-type]  # one of two
            if answer is None:
                return None
            best = answer.best
            read = value_of(better, best.topology, best.prediction, workload)
            cost = best.prediction.usd_per_hour if priced else float(best.prediction.devices)
            return answer, 1 / read if better.op == "maximize" else read, cost

        pools = pools_of(problem.cluster, problem.cluster.kinds)
        costs = device_costs(pools)["usd_per_hour" if priced else "devices"]
        return Trade(buys, balance.score).best(np.unique(costs)[1:].tolist())

    @property
    def holds(self) -> int | None:
        """The most layers that fit anywhere, whatever the goals.

        None if there is no kind of stage to hold any.
        """
        return max((most_held(grid, self._limits) for grid in self.grids(())), default=None)

    @property
    def _limits(self) -> list[Threshold]:
        """What holds for all that is searched, the nearest to goals that clash as well."""
        devices = self.problem.limits.max_gpus
        loss = self.ranking.demands.most_quality_loss
        limits: list[tuple[Metric, float | None]] = [("devices", devices), ("quality_loss", loss)]
        return [Threshold(metric, most) for metric, most in limits if most is not None]

    def grids(self, wishes: Sequence[Config]) -> Sequence[Grid]:
        """What may be built, in parts that cannot stand together."""
        return self._grids(wishes) if wishes else self._any_grids

    @cached_property
    def _any_grids(self) -> Sequence[Grid]:
        return self._grids(())

    def _grids(self, wishes: Sequence[Config]) -> Sequence[Grid]:
        clusters = _connected(self.problem.cluster)
        return [grid for cluster in clusters for grid in self._grids_on(cluster, wishes)]

    def _grids_on(self, cluster: Cluster, wishes: Sequence[Config]) -> Iterator[Grid]:
        pools = pools_of(cluster, [kind for kind in cluster.kinds if kind in self.profiles])
        here = replace(self.problem, cluster=cluster)
        setting = Setting.of(here, self.profiles)
        kinds = stage_kinds(pools, self.precisions, self.problem, self.profiles)
        kinds, counts = narrowed(kinds, stage_counts(here), wishes)
        if kinds and counts:
            for group in groups(kinds, here):
                yield Grid.of(group, counts, pools, setting)

    def _on(
        self,
        grid: Grid,
        thresholds: tuple[Sequence[Threshold], Sequence[Threshold], Sequence[Threshold]],
        beside: tuple[Sequence[Grid], Topology | None],
    ) -> SearchResult | None:
        """The best on one grid.

        Where it does not fit beside what runs now, the best on devices, or in memory, that are free.

        The latter is proven by nothing: what else would fit beside what runs is not known. Where nothing is free either, the
        best again, if the engine can stream it.
        """
        grids, other_than = beside
        pipeline, prove = solve(_without(grid, other_than), *thresholds)
        if pipeline is None:
            return None

        def answer(topology: Topology) -> SearchResult:
            here = replace(self.problem, cluster=grid.setting.cluster)
            found = candidate(topology, here, self.profiles)
            assert found is not None, "the search holds the KV of the load"
            return SearchResult(found, lambda: self._proven(prove(grids) if grids else ()), grid.size)

        if topology := self._bound(pipeline, grid, no_room_beside):
            return answer(topology)
        narrower = [_on_cluster(grid, cluster) for cluster in _beside(self.problem, grid.setting.cluster)]
        found = [result for part in narrower if part and (result := self._on(part, thresholds, ((), other_than)))]
        if found:
            return first_of(found, self.ranking)
        topology = self._bound(pipeline, grid, no_room) if grids else None
        return answer(topology) if topology else None

    def _proven(self, proofs: Sequence[Proof]) -> tuple[Proof, ...]:
        """Those that prove something: not where another part would fit in a full batch and is worse otherwise."""
        return tuple(proof for proof in proofs if proof.layers < self.problem.model.num_layers)

    def _bound(self, pipeline: Pipeline, grid: Grid, barred: Callable[[Topology, SearchInput], str]) -> Topology | None:
        """The pipeline on devices: today's first, since what they hold need not move.

        Free ones if it does not fit there.
        """
        now = frozenset(self.problem.now.devices) if self.problem.now else frozenset[int]()
        every = frozenset(gpu.index for gpu in self.problem.cluster.gpus)
        wanted = [(parts[0][0].pool, parts[0][0].tp) for parts in pipeline.stages]
        for first in (now, every - now):
            devices = dealt(grid.pools, wanted, first)
            topology = _topology(pipeline, devices) if devices else None
            if topology and not barred(topology, self.problem):
                return topology
        return None


def _topology(pipeline: Pipeline, devices: Sequence[tuple[int, ...]]) -> Topology:
    stages = []
    start = 0
    for parts, given in zip(pipeline.stages, devices, strict=True):
        ends = list(accumulate((layers for _, layers in parts), initial=start))
        ranges = [LayerRange(*bounds) for bounds in pairwise(ends)]
        precision, *others = [Precision.named(kind.precision, kind.kind) for kind, _ in parts]
        overrides = tuple(zip(ranges[1:], others, strict=True))
        stages.append(Stage(parts[0][0].kind, given, LayerRange(start, ends[-1]), precision, overrides))
        start = ends[-1]
    return Topology(tuple(stages))


def _connected(cluster: Cluster) -> list[Cluster]:
    """The parts over which a pipeline may reach: all of it, or each machine where there is no network."""
    if cluster.network is not None or len(cluster.nodes) == 1:
        return [cluster]
    return [Cluster((node,)) for node in cluster.nodes]


def _without(grid: Grid, topology: Topology | None) -> Grid:
    """The grid but for pipelines of a topology's shape."""
    if topology is None:
        return grid
    used = set(topology.devices)
    counts = tuple(len(used & {device for node in pool.nodes for device in node}) for pool in grid.pools)
    return replace(grid, barred=(topology.pp_size, counts))


def _beside(problem: SearchInput, cluster: Cluster) -> list[Cluster]:
    """Parts of a cluster on which whatever fits fits beside what runs now; none if they have been tried."""
    now = problem.now
    whole = sum(gpu.memory_bytes for gpu in cluster.gpus) == sum(
        problem.cluster.gpu(gpu.index).memory_bytes for gpu in cluster.gpus
    )
    if now is None or not whole or not set(now.devices) & {gpu.index for gpu in cluster.gpus}:
        return []
    needed = blocks_to_move(problem)
    weights = weight_bytes(now, problem.model)
    per_block = block_bytes(now, problem.model, BLOCK_TOKENS)
    taken = {device: round((weights[device] + needed * per_block[device]) / (1 - HEADROOM)) for device in now.devices}
    return [_kept(cluster, taken, now.devices), _kept(cluster, taken, ())]


def _kept(cluster: Cluster, taken: Mapping[int, int], out: Collection[int]) -> Cluster:
    """The cluster without some devices, and without the memory that is taken on others."""
    nodes = [
        replace(
            node,
            gpus=tuple(
                replace(gpu, memory_bytes=max(1, gpu.memory_bytes - taken.get(gpu.index, 0)))
                for gpu in node.gpus
                if gpu.index not in out
            ),
        )
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(node for node in nodes if node.gpus))


def _on_cluster(grid: Grid, cluster: Cluster) -> Grid | None:
    """The same kinds of stages on other devices of the same machines."""
    kinds = {kind.kind for kind in grid.kinds}
    pools = pools_of(cluster, [kind for kind in cluster.kinds if kind in kinds])
    return grid.on(pools, cluster) if pools else None


def why_infeasible(ranking: Ranking, finder: Finder) -> Infeasible:
    """The goals or limits that clash, the nearest candidate and, for each goal it misses, what would hold."""
    if not ranking.candidates:
        return Infeasible(_nothing_runs(finder), None)
    nearest = min(
        ranking.candidates,
        key=lambda candidate: (
            _shortfall(ranking, candidate),
            candidate.prediction.devices,
            str(candidate.topology),
        ),
    )
    missed = ranking.missed(ranking.demands.bounds, nearest)
    words = explain.listed([explain.goal_words(bound) for bound in missed])
    targets = tuple(_target(ranking, bound) for bound in missed if isinstance(bound, Objective) and bound.op != "==")
    return Infeasible(_clashes(ranking, finder), replace(nearest, reason=f"comes nearest; misses {words}"), targets)


def _nothing_runs(finder: Finder) -> tuple[str, ...]:
    """Why not one topology is left."""
    if finder.holds is not None:
        model = finder.problem.model
        in_flight = finder.problem.workload.concurrency
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
    pairs: list[tuple[Bound, ...]] = [pair for pair in combinations(bounds, 2) if not _any_holds(ranking, pair)]
    groups = pairs or [bounds]
    return tuple(
        f"{explain.listed([explain.goal_words(bound) for bound in group])} exclude each other: "
        "each can be held alone, no allowed topology holds them together"
        for group in groups
    )


def _any_holds(ranking: Ranking, bounds: Sequence[Bound]) -> bool:
    return any(not ranking.missed(bounds, candidate) for candidate in ranking.candidates)


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
    joint = [candidate for candidate in ranking.candidates if not ranking.missed(others, candidate)]
    best = _best(ranking, bound, joint or ranking.candidates)
    eased = replace(bound, value=_outward(_reading(ranking, bound, best), bound.op))
    alone = "" if joint else ", without the other goals"
    return f"{explain.goal_words(eased)} would hold on {explain.topology_words(best.topology)}{alone}"


def _best(ranking: Ranking, bound: Bound, candidates: Sequence[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: margin_of(bound, candidate, ranking.problem.workload, "").margin)


def _reading(ranking: Ranking, bound: Bound, candidate: Candidate) -> float:
    return value_of(bound, candidate.topology, candidate.prediction, ranking.problem.workload)


def _outward(value: float, op: str) -> float:
    """Two significant digits, rounded to the side that still holds."""
    if not value or not math.isfinite(value):
        return value
    scale = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    return (math.ceil(value / scale) if op == "<=" else math.floor(value / scale)) * scale
