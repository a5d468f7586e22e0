"""Goals to the topologies that may hold them, cheapest first, by bounds alone. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

from intent.models import Config
from runtime.footprint import HEADROOM, block_bytes, weight_bytes
from runtime.models import Cluster, LayerRange, Node, Precision, Stage, Topology
from runtime.sync.swap import mixed
from selector.models import Profile, SearchInput, Way
from selector.objectives import Bound, thresholds
from selector.performance.load import IDLE_RPS
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BLOCK_TOKENS, Setting, dealt, pools_of
from selector.pipelines.optimum import Metric, Proof, Threshold, ladder, most_held, provably_none
from selector.space import blocks_to_move, groups, load_free_blocker, narrowed, stage_counts, stage_kinds
from selector.switching import way

_BEYOND = 1 - 1e-6
_SHAPES = 3
"""Pipelines of which layers are quantised in the order that was measured."""


@dataclass(frozen=True)
class Finder:
    """Finds topologies for one problem, in some precisions."""

    problem: SearchInput
    """What is to be solved, on the devices that goals leave."""
    profiles: Mapping[str, Profile]
    precisions: tuple[str, ...]
    most_quality_loss: float | None
    ways: tuple[Way, ...] = ("shadow", "stream")
    """How a switch may go, the best first."""

    def on(self, cluster: Cluster) -> "Finder":
        """The same on a part of the devices."""
        return replace(self, problem=replace(self.problem, cluster=cluster))

    def shortlist(self, goals: Sequence[Bound], objective: Bound | None = None) -> list[Topology]:
        """Topologies that may hold the goals, the cheapest first, and those that are good at an objective."""
        found = {topology: self._cost_of(topology) for part in self._parts(goals, objective) for topology in part}
        return sorted(found, key=lambda topology: (found[topology], str(topology)))

    def best_at(self, goals: Sequence[Bound], aim: Bound | None, most: int, ease: float = 1.0) -> list[Topology]:
        """About so many topologies that may hold the goals, eased, and are good at an aim, of each part some."""
        parts = self._parts(goals, aim, ease)
        each = max(2, most // max(1, len(parts)))
        return [topology for part in parts for topology in (part[-each:] if self.timed(aim) else part[:each])]

    def _parts(self, goals: Sequence[Bound], objective: Bound | None, ease: float = 1.0) -> list[list[Topology]]:
        """For each part that cannot stand with the others (one TP degree, machines without a network).

        The cheapest first. Where nothing can be reached from what runs, what fits beside it.
        """
        named = thresholds(goals, self.problem.workload)
        bounds = [
            *(bound if bound.metric == "least_devices" else bound.tightened(ease) for bound in named),
            *self._limits,
        ]
        wanted = self.timed(objective)
        found = list[list[Topology]]()
        for grid in self.grids(_wishes(goals)):
            placed = (self._placed(pipeline, grid) for pipeline in ladder(grid, bounds, wanted, self.cost))
            found.append(list(dict.fromkeys(filter(None, placed))))
        if not any(found):
            found = [self._where_it_fits(bounds, wanted, _wishes(goals))]
        return [part for part in found if part]

    def by_curve(self, topologies: Iterable[Topology]) -> list[Topology]:
        """Some pipelines with the layers quantised that lose least, in sets that were measured."""
        curve = self.problem.quality
        shapes = list(dict.fromkeys(_in_full(each) for each in topologies if len(each.replicas) == 1))[:_SHAPES]
        found = (
            _quantised(shape, layers, name)
            for name in (self.precisions if curve else ())
            if curve and name in curve.formats
            for layers in curve.formats[name].sets(self.most_quality_loss)
            for shape in shapes
        )
        return [each for each in found if self._may_run(each)]

    def _may_run(self, topology: Topology) -> bool:
        barred = load_free_blocker(topology, self.problem, self.precisions)
        return not barred and way(topology, self.problem) in self.ways

    def timed(self, objective: Bound | None) -> Threshold | None:
        """An objective as a latency or a rate; None of what is counted."""
        wanted = thresholds([objective] if objective else [], self.problem.workload)
        return next((threshold for threshold in wanted if threshold.metric not in {"devices", "usd_per_hour"}), None)

    def none_below(self, goals: Sequence[Bound], cost: float) -> Proof | None:
        """That nothing holds the goals for less than a cost, as far as bounds know it."""
        bounds = [*thresholds(goals, self.problem.workload), *self._limits]
        return provably_none(self.grids(_wishes(goals)), bounds, Threshold(self.cost, cost))

    def fits_below(self, cost: float) -> bool:
        """Whether a pipeline may fit that costs no more, with one request, whatever the goals."""
        alone = replace(self.problem, workload=replace(self.problem.workload, rate_rps=IDLE_RPS, concurrency=1))
        return replace(self, problem=alone).none_below((), cost / _BEYOND) is None

    @property
    def cost(self) -> Metric:
        """What is cheap: money, or devices where some have no price."""
        return "devices" if self.problem.unpriced else "usd_per_hour"

    @property
    def holds(self) -> int | None:
        """The most layers that fit anywhere, whatever the goals.

        None if there is no kind of stage to hold any.
        """
        return max((most_held(grid, self._limits) for grid in self.grids(())), default=None)

    @property
    def size(self) -> int:
        """Operating points and device counts that are looked at; each stands for every split of the layers."""
        return sum(grid.size for grid in self.grids(()))

    @property
    def _limits(self) -> list[Threshold]:
        """What holds for all that is searched, the nearest to goals that clash as well."""
        limits: list[tuple[Metric, float | None]] = [
            ("devices", self.problem.limits.max_gpus),
            ("quality_loss", self.most_quality_loss),
        ]
        return [Threshold(metric, most) for metric, most in limits if most is not None]

    def grids(self, wishes: Sequence[Config]) -> Sequence[Grid]:
        """What may be built, in parts that cannot stand together."""
        return self._grids(wishes) if wishes else self._any_grids

    @cached_property
    def _any_grids(self) -> Sequence[Grid]:
        return self._grids(())

    def _grids(self, wishes: Sequence[Config]) -> Sequence[Grid]:
        clusters = _connected(self.problem)
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

    def _where_it_fits(
        self, bounds: Sequence[Threshold], wanted: Threshold | None, wishes: Sequence[Config]
    ) -> list[Topology]:
        """On devices, or in memory, that what runs leaves free."""
        found = dict[Topology, float]()
        for grid in self.grids(wishes):
            for cluster in _beside(self.problem, grid.setting.cluster):
                part = _on_cluster(grid, cluster)
                for pipeline in ladder(part, bounds, wanted, self.cost) if part else ():
                    if part and (topology := self._bound(pipeline, part, "shadow")):
                        found[topology] = self._cost_of(topology)
        return sorted(found, key=lambda topology: (found[topology], str(topology)))

    def _cost_of(self, topology: Topology) -> float:
        prices = [self.problem.cluster.gpu(device).usd_per_hour for device in topology.devices]
        return float(len(prices)) if self.problem.unpriced else sum(prices)

    def _placed(self, pipeline: Pipeline, grid: Grid) -> Topology | None:
        """Beside what runs if there is room, else as the engine can get there."""
        return next(filter(None, (self._bound(pipeline, grid, how) for how in self.ways)), None)

    def _bound(self, pipeline: Pipeline, grid: Grid, how: Way) -> Topology | None:
        """The pipeline on devices to which a switch goes so: today's first, for what they hold need not move.

        Free ones if it does not fit there.
        """
        now = frozenset(self.problem.now.devices) if self.problem.now else frozenset[int]()
        every = frozenset(gpu.index for gpu in self.problem.cluster.gpus)
        wanted = [(parts[0][0].pool, parts[0][0].tp) for parts in pipeline.stages]
        for first in (now, every - now):
            devices = dealt(grid.pools, wanted, first)
            topology = _topology(pipeline, devices) if devices else None
            if topology and way(topology, self.problem) == how:
                return topology
        return None


def _wishes(goals: Sequence[Bound]) -> list[Config]:
    return [goal for goal in goals if isinstance(goal, Config)]


def _topology(pipeline: Pipeline, devices: Sequence[tuple[int, ...]]) -> Topology:
    stages = []
    start = 0
    for parts, given in zip(pipeline.stages, devices, strict=True):
        ends = list(accumulate((layers for _, layers in parts), initial=start))
        ranges = [LayerRange(*bounds) for bounds in pairwise(ends)]
        formats = [kind.formats for kind, _ in parts]
        stages.append(Stage.of(parts[0][0].kind, given, zip(ranges, formats, strict=True)))
        start = ends[-1]
    return Topology(tuple(stages))


def _in_full(topology: Topology) -> Topology:
    """Nothing quantised: weights as wide as KV."""
    stages = [(stage, Precision.named(stage.precision.kv, stage.kind)) for stage in topology.stages]
    return Topology(tuple(Stage(stage.kind, stage.devices, stage.layers, full) for stage, full in stages))


def _quantised(topology: Topology, layers: Collection[int], name: str) -> Topology:
    """With some layers in a format."""
    stages = [replace(stage, precision=stage.precision.beside(name, stage.kind)) for stage in topology.stages]
    return mixed(topology, Topology(tuple(stages)), {*layers})


def _connected(problem: SearchInput) -> list[Cluster]:
    """The parts over which a pipeline may reach: all of it, or each machine where there is no network.

    Of machines that are alike one is enough, and those on which something runs.
    """
    cluster = problem.cluster
    if cluster.network is not None or len(cluster.nodes) == 1:
        return [cluster]
    running = set(problem.now.devices) if problem.now else set[int]()
    distinct = dict[object, Node]()
    for node in cluster.nodes:
        devices = tuple((gpu.kind, gpu.memory_bytes, gpu.usd_per_hour) for gpu in node.gpus)
        is_used = any(gpu.index in running for gpu in node.gpus)
        distinct.setdefault(node.name if is_used else (devices, node.link), node)
    return [Cluster((node,)) for node in distinct.values()]


def _beside(problem: SearchInput, cluster: Cluster) -> list[Cluster]:
    """Parts of a cluster on which whatever fits fits beside what runs now."""
    now = problem.now
    if now is None or not set(now.devices) & {gpu.index for gpu in cluster.gpus}:
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
