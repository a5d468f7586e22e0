"""Bounds on what any pipeline can do, and the pipelines that come nearest to them. Pure.

Every prompt has the mean length and nobody waits for another: so nothing that a server does is quicker, but for ``LOOSE``.
What is ruled out here is not simulated; what is left only the simulation decides.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from intent.models import Stat
from selector.pipelines.balance import MOST_STAGES, Counts, LayerCapacity, fullest, most_layers
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import Pool
from selector.pipelines.stages import (
    ENDLESS,
    Limits,
    Places,
    at,
    bound_by_kinds,
    built,
    holds_of,
    layers_by_kinds,
)

Values = np.ndarray[Any, np.dtype[np.float64]]

Cells = np.ndarray[Any, np.dtype[np.bool_]]
Metric = Literal["ttft", "tpot", "e2e", "rate", "devices", "least_devices", "usd_per_hour", "quality_loss"]

LOOSE = 1.4
"""By how much a bound on a latency or a rate is eased before anything is ruled out: of 535 random deployments one needed 1.32,
and 1.16 for a latency. Batches are a grid, and a backlog has fewer bubbles."""
SHORT = 0.33
"""What of it a bound on a median is eased by besides: a median prompt by the mean one, of the most uneven lognormal."""
_TIGHTER = (1.0, 0.8, 0.65, 0.5, 0.35)
"""How much of a latency, and of the time between two requests, is left of what is asked on the rungs of a ladder."""
_ALIKE = 3
"""Pipelines of one cost that are built."""
_LIKELY = 0.9
"""How far to go at most between two bounds where layers say that the next one is near either."""
_CLOSE = 2e-2
"""How near bisection comes before the search goes on from one pipeline to the next better one."""
_TIMED = frozenset({"ttft", "tpot", "e2e", "rate"})
"""What leaves stages only so much time."""
_LESS = 1 - 1e-9
_BEYOND = 1 - 1e-8


@dataclass(frozen=True, slots=True)
class Threshold:
    """At most so many seconds, devices, USD/h or mean quality loss.

    ``rate`` and ``least_devices`` are at least so many.
    """

    metric: Metric
    value: float
    stat: Stat = "mean"

    def tightened(self, factor: float) -> "Threshold":
        """Harder to hold, by a factor below 1."""
        return replace(self, value=self.value / factor if self.metric == "rate" else self.value * factor)

    @property
    def time(self) -> float:
        """In seconds; of a rate, between two."""
        return 1 / self.value if self.metric == "rate" else self.value

    @property
    def eased(self) -> "Threshold":
        """What nothing misses that holds this one."""
        if self.metric not in _TIMED:
            return self
        return self.tightened(LOOSE / (SHORT if self.stat == "p50" else 1))


@dataclass(frozen=True, slots=True)
class Proof:
    """What bounds rule out.

    Beyond this bound at most so many layers fit on any pipeline that holds the goals.
    """

    bound: Threshold
    layers: int


def ladder(
    grid: Grid, bounds: Sequence[Threshold], objective: Threshold | None, cost: Metric, each: int = 2
) -> list[Pipeline]:
    """Pipelines that may hold the bounds, on rungs from eased to much tighter ones, the cheapest first.

    On each rung the ``each`` cheapest device counts with most room to spare are built, in several depths; where there is an
    objective the rungs lie between the loosest and the tightest bound on it, and only its. What is left out is no worse than
    what is built by these bounds alone.
    """
    grid = _rationed(grid, bounds)
    eased = eased_of(bounds)
    if "e2e" in [bound.metric for bound in (*bounds, *([objective] if objective else []))]:
        grid = grid.taken(_halved(grid, eased).within_reach()).dealt()
    search = _BoundSearch.begin(grid, eased)
    if not search.feasible:
        return []
    found = search.cheapest(cost, MOST_STAGES if len(grid.stage_slots) == 1 else each)  # then each depth is one choice
    for rung in search.rungs(objective) if objective else _tighter(search, bounds):
        found += rung.cheapest(cost, each)
    distinct = {(pipeline.stages, pipeline.batch): pipeline for pipeline in found}
    return sorted(distinct.values(), key=lambda pipeline: spent(pipeline, cost, grid))


def eased_of(bounds: Sequence[Threshold]) -> list[Threshold]:
    """What nothing misses that holds the bounds; a rate takes a larger batch than latencies do."""
    latencies = (_TIMED - {"rate"}) & {bound.metric for bound in bounds}
    return [bound.eased for bound in bounds if bound.metric != "rate" or not latencies]


def _tighter(search: "_BoundSearch", bounds: Sequence[Threshold]) -> Iterator["_BoundSearch"]:
    """Under bounds that are tighter and tighter, as far as something holds them."""
    timed = [bound for bound in bounds if bound.metric in _TIMED]
    for factor in _TIGHTER if timed else ():
        for bound in timed:
            search = search.further(bound.tightened(factor))
        if not search.feasible:
            return
        yield search


def spent(pipeline: Pipeline, cost: Metric, grid: Grid) -> float:
    """Devices, or USD per hour."""
    prices = [1.0 if cost == "devices" else pool.usd_per_hour for pool in grid.pools]
    return sum(parts[0][0].tp * prices[parts[0][0].pool] for parts in pipeline.stages)


def provably_none(grids: Sequence[Grid], bounds: Sequence[Threshold], below: Threshold) -> Proof | None:
    """That nothing holds the bounds for less than a cost; None where that is not known by bounds alone."""
    eased = [*eased_of(bounds), below.tightened(_BEYOND)]
    layers = max((most_held(grid, eased) for grid in grids), default=0)
    return Proof(below, layers) if all(layers < grid.setting.model.num_layers for grid in grids) else None


def most_held(grid: Grid, bounds: Sequence[Threshold]) -> int:
    """The most layers that fit on any pipeline within the bounds."""
    grid = _rationed(grid, bounds)
    if "e2e" not in [bound.metric for bound in bounds]:
        return _BoundSearch.begin(grid, bounds).most
    near = _halved(grid, bounds).most_by_point
    most = _BoundSearch.begin(grid.taken(np.argsort(-near)[:1]).dealt(), bounds).most
    return max(most, _BoundSearch.begin(grid.taken(np.flatnonzero(near > most)).dealt(), bounds).most)


def _halved(grid: Grid, bounds: Sequence[Threshold]) -> "_BoundSearch":
    """Under looser bounds, where each E2E becomes a bound on its parts.

    One of the first token alone, and one of the other tokens alone.
    """
    halves: tuple[tuple[Metric, int], ...] = (("ttft", 1), ("tpot", grid.setting.load.decoded))
    parts = [
        replace(bound, metric=metric, value=bound.value / divisor)
        for bound in bounds
        if bound.metric == "e2e"
        for metric, divisor in halves
    ]
    return _BoundSearch.begin(grid, [*parts, *(bound for bound in bounds if bound.metric != "e2e")])


def _rationed(grid: Grid, bounds: Sequence[Threshold]) -> Grid:
    """With stages of several formats, where a bound on quality says how many layers of each there may be."""
    losses = [bound.value for bound in bounds if bound.metric == "quality_loss"]
    return grid.with_format_budget(min(losses)) if losses else grid


@dataclass(frozen=True)
class _BoundSearch:
    """What is left of the grid under some bounds, and how many layers fit there."""

    grid: Grid
    bounds: tuple[Threshold, ...]
    cells: Cells
    """Device counts that the bounds allow."""
    left: Mapping[Threshold, Limits]
    """What each bound leaves of time, so that it is not computed again for fewer points."""
    limits: Limits
    """What they leave together."""
    layers: Counts
    """The most that fit, by point and device counts. No fewer than do, where not all do."""

    @classmethod
    def begin(
        cls, grid: Grid, bounds: Sequence[Threshold], known: Mapping[Threshold, Limits] = MappingProxyType({})
    ) -> "_BoundSearch":
        """``known`` is what some of the bounds leave."""
        cells = _cells(grid, bounds)
        budget = _budget(cells)
        cells = cells[tuple(slice(count + 1) for count in budget)]
        left = {bound: known.get(bound) or _limits(grid, bound) for bound in bounds if bound.metric in _TIMED}
        limits = _tightest(grid, left.values())
        layers = _fitting(grid, cells, holds_of(grid, limits, bound_by_kinds))
        search = cls(grid, tuple(bounds), cells, left, limits, layers)
        return search.split_shared() if grid.rations.shared else search

    def split_shared(self) -> "_BoundSearch":
        """With stages that share; only points at which all layers would fit if none had to."""
        near = self.within_reach()
        layers = self.layers.copy()
        here = self.grid.taken(near)
        layers[near] = _fitting(here, self.cells, holds_of(here, at(self.limits, near), layers_by_kinds))
        return replace(self, layers=layers)

    @property
    def most(self) -> int:
        return max(0, int(self.layers.max(initial=0)))

    @property
    def wanted(self) -> int:
        """All the layers."""
        return self.grid.setting.model.num_layers

    @property
    def most_by_point(self) -> Counts:
        """The most that fit at each point."""
        return np.asarray(self.layers.max(axis=tuple(range(1, self.layers.ndim)), initial=0))

    @property
    def feasible(self) -> bool:
        return self.most >= self.wanted

    def cheapest(self, cost: Metric, each: int) -> list[Pipeline]:
        """Of the ``each`` cheapest costs at which all layers fit, the pipelines with most room to spare."""
        if not self.feasible:
            return []
        most = np.maximum.reduceat(self.layers, self._depths, axis=0).reshape(len(self._depths), -1)
        costs = np.broadcast_to(device_costs(self.grid.pools, self.cells.shape)[cost].ravel(), most.shape)
        depths, cells = np.nonzero(most >= self.wanted)
        order = np.lexsort((-most[depths, cells], costs[depths, cells]))
        levels = dict[float, list[int]]()
        for place in order.tolist():
            levels.setdefault(round(float(costs[depths[place], cells[place]]), 6), []).append(place)
        taken = [place for level in list(levels.values())[:each] for place in level[:_ALIKE]]
        return [self.pipeline(int(depths[place]), int(cells[place])) for place in taken]

    @cached_property
    def _depths(self) -> list[int]:
        """Where the points of each number of stages begin."""
        stages = self.grid.points.stages
        return [0, *(np.flatnonzero(np.diff(stages)) + 1).tolist()]

    def rungs(self, objective: Threshold) -> Iterator["_BoundSearch"]:
        """From the loosest bound on an objective that is worth one to the tightest that holds all layers."""
        best, bound = self.with_lowest(objective)
        yield best
        for factor in _TIGHTER[::-1]:
            yield self.further(bound.tightened(1.05 / factor))

    def with_lowest(self, objective: Threshold) -> tuple["_BoundSearch", Threshold]:
        """Only what has the latency lowest, or the rate highest.

        From one pipeline to a better one, until there is none.
        """
        search = self if self.bounds_but(objective) != self.bounds else self.further(_loosest(objective))
        if not search.feasible:  # requests pile up on all there is: as good as any
            return self, replace(objective, value=math.inf)
        low = 0.0  # a bound that is out of reach, as a time
        few = 0  # the layers that fit into it
        while True:
            bound = replace(objective, value=reading(search.pipeline(), objective, search.grid))
            tried = search.further(bound.tightened(_LESS))
            if not tried.feasible:
                held = search.further(bound)  # an E2E dealt otherwise than the shares may not be met to the last digit
                return (held if held.feasible else search), bound
            search, low, few = tried.narrowed(bound, low, few)

    def narrowed(self, bound: Threshold, low: float, few: int) -> tuple["_BoundSearch", float, int]:
        """Under a bound about as tight as holds all layers.

        Looked for between the given one and a time that few fit into.
        """
        search = self
        high = bound.time
        while high - low > _CLOSE * high:
            middle = low + search.likely(few) * (high - low)
            tried = search.further(bound.tightened(middle / bound.time))
            if not tried.feasible:
                low = middle
                few = tried.most
                continue
            search = tried
            high = middle
            if search.most == self.wanted:
                break
        return search, low, few

    def likely(self, few: int) -> float:
        """How far up from a bound into which few layers fit all of them will.

        Layers go about in proportion to time.
        """
        return min(_LIKELY, max(1 - _LIKELY, (self.wanted + 0.5 - few) / max(1, self.most - few)))

    def bounds_but(self, objective: Threshold) -> tuple[Threshold, ...]:
        """The bounds on everything else."""
        return tuple(bound for bound in self.bounds if (bound.metric, bound.stat) != (objective.metric, objective.stat))

    def further(self, bound: Threshold) -> "_BoundSearch":
        """Under one more bound; points that hold none of it are left out for good."""
        places = self.within_reach()
        bounds = (*self.bounds_but(bound), bound)
        known = {threshold: at(limits, places) for threshold, limits in self.left.items()}
        return _BoundSearch.begin(self.grid.taken(places), bounds, known)

    def within_reach(self) -> Places:
        """The points at which all layers fit somewhere."""
        return np.flatnonzero(self.most_by_point >= self.wanted)

    def pipeline(self, depth: int | None = None, cell: int | None = None) -> Pipeline:
        """The one with most room to spare, of all or of a depth on some device counts (each by its place)."""
        points = self.layers.reshape(len(self.layers), -1)
        place, counts = divmod(int(points.argmax()), points.shape[1])
        if depth is not None and cell is not None:
            bounds = [*self._depths, len(points)]
            here = slice(bounds[depth], bounds[depth + 1])
            place = bounds[depth] + int(points[here, cell].argmax())
            counts = cell
        budget = [int(count) for count in np.unravel_index(counts, self.layers.shape[1:])]
        grid = self.grid.taken([place])
        limits = at(self.limits, [place])
        holds = holds_of(grid, limits, layers_by_kinds)
        stage_slots = fullest(holds, grid.stage_slots, budget, int(grid.points.stages[0]))
        return built(grid, stage_slots, limits)


def _loosest(objective: Threshold) -> Threshold:
    """The loosest bound of a latency or a rate; none of what is counted."""
    return replace(
        objective,
        value={"rate": 0.0, "devices": math.inf, "usd_per_hour": math.inf}.get(objective.metric, 1e9),
    )


def _fitting(grid: Grid, cells: Cells, holds: LayerCapacity) -> Counts:
    """The most layers by point and device counts; none where the bounds bar them."""
    budget = tuple(size - 1 for size in cells.shape)
    stages = grid.points.stages.astype(int)
    layers = most_layers(holds, grid.stage_slots, budget, stages.tolist())
    return np.where(cells, layers, np.int16(-1))


def _cells(grid: Grid, bounds: Sequence[Threshold]) -> Cells:
    shape = tuple(pool.size + 1 for pool in grid.pools)
    costs = device_costs(grid.pools, shape)
    mask = np.ones(shape, dtype=bool)
    for bound in bounds:
        if bound.metric in costs:
            mask &= costs[bound.metric] <= bound.value / _LESS
        if bound.metric == "least_devices":
            mask &= costs["devices"] >= bound.value
    return mask


def device_costs(pools: Sequence[Pool], shape: Sequence[int] | None = None) -> dict[str, Values]:
    """Devices and USD per hour by the number of devices of each pool, from none to all (or up to a shape)."""
    shape = tuple(shape or (pool.size + 1 for pool in pools))
    counts = np.indices(shape).reshape(len(shape), -1)
    prices = np.array([pool.usd_per_hour for pool in pools])
    return {
        "devices": counts.sum(axis=0).reshape(shape).astype(float),
        "usd_per_hour": (prices @ counts).reshape(shape),
    }


def _budget(cells: Cells) -> tuple[int, ...]:
    """The most devices of each pool that any allowed cell has."""
    places = np.argwhere(cells)
    return tuple(int(most) for most in places.max(axis=0)) if len(places) else (0,) * cells.ndim


def _limits(grid: Grid, bound: Threshold) -> Limits:
    """The longest *busy* that a bound leaves at each point, and the longest *first* of each kind there.

    As many requests run as come while each is served (Little's law): with more the batch would not be enough.
    """
    load = grid.setting.load
    batch = grid.points.batch
    if bound.metric == "rate":
        return np.full(len(batch), 1 / max(bound.value, 1e-12)), ENDLESS
    busy_s = np.full(len(batch), LOOSE / load.rate_rps)
    first_s = ENDLESS
    if bound.metric in {"tpot", "e2e"}:
        tokens_s = bound.value * (load.decoded if bound.metric == "tpot" else grid.shares)
        busy_s = np.minimum(busy_s, tokens_s / batch)
    if bound.metric in {"ttft", "e2e"}:
        ttft_s = bound.value * (np.ones(len(batch)) if bound.metric == "ttft" else 1 - grid.shares)
        first_s = np.broadcast_to(ttft_s, (len(grid.kinds), len(batch)))
    return busy_s, first_s


def _tightest(grid: Grid, left: Iterable[Limits]) -> Limits:
    """What several bounds leave together."""
    busy_s = np.full(len(grid.points), np.inf)
    first_s = ENDLESS
    for busy, first in left:
        busy_s = np.minimum(busy_s, busy)
        first_s = np.minimum(first_s, first)
    return busy_s, np.broadcast_to(first_s, (len(grid.kinds), len(grid.points)))


def reading(pipeline: Pipeline, wanted: Threshold, grid: Grid) -> float:
    """What a latency or a rate reads of a pipeline by these bounds, in seconds or per second."""
    decoded = grid.setting.load.decoded
    match wanted.metric:
        case "rate":
            return 1 / pipeline.busy_s
        case "ttft":
            return pipeline.first_s
        case "tpot":
            return pipeline.batch * pipeline.busy_s / decoded
        case _:
            return pipeline.first_s + pipeline.batch * pipeline.busy_s
