"""How long a prompt waits, and the best of all pipelines. Pure."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from intent.models import PERCENTILES, Stat
from selector.pipelines.balance import Counts, Holds, fullest, most_layers
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

STATISTICS: tuple[Stat, ...] = ("mean", *PERCENTILES)
UTILISATIONS = np.concatenate([np.linspace(0.0, 0.9, 19), np.linspace(0.92, 0.98, 4)])
"""Shares of the time in which prompts are computed at which waits are known; beyond the last a queue counts as endless."""
_CELLS = 4096
_STEPS = tuple(2**power for power in reversed(range(len(UTILISATIONS).bit_length())))


@cache
def waits(stat: Stat) -> Values:
    """The wait at each of ``UTILISATIONS``, in services; ``stat`` is ``mean`` or one of ``PERCENTILES``."""
    means = UTILISATIONS / (2 * (1 - UTILISATIONS))
    if stat == "mean":
        return np.asarray(means)
    return np.array([_quantile(busy, mean, PERCENTILES[stat]) for busy, mean in zip(UTILISATIONS, means, strict=True)])


def _quantile(busy: float, mean: float, share: float) -> float:
    """Of the wait at one utilisation; its chances on a grid of services."""
    cell = max(1 / 256, 16 * mean / _CELLS)
    residual = np.zeros(_CELLS)
    residual[: max(1, round(1 / cell))] = 1.0
    residual /= residual.sum()
    chances = np.fft.irfft((1 - busy) / (1 - busy * np.fft.rfft(residual, 2 * _CELLS)))[:_CELLS]
    place = int(np.searchsorted(np.cumsum(chances), share))
    return place * cell if share > 1 - busy else 0.0


def first_tokens_s(first_s: Values, overlap: Values, rate_rps: float, stat: Stat) -> Values:
    """TTFT of prompts that take ``first_s`` alone, ``overlap`` of it keeping the next waiting.

    Infinite where they pile up.
    """
    busy = rate_rps * overlap * first_s
    queued = np.interp(busy, UTILISATIONS, UTILISATIONS * waits(stat))
    return np.where(busy > UTILISATIONS[-1], np.inf, first_s + queued / rate_rps)


def most_first_s(ttft_s: Values, overlap: Values, rate_rps: float, stat: Stat) -> Values:
    """The inverse: how long prompts may take alone for a TTFT.

    One row per row of ``overlap``, one column per TTFT.
    """
    queued = UTILISATIONS * waits(stat)
    inverse = 1 / overlap
    wanted = rate_rps * ttft_s
    below = _last_within(wanted, inverse, queued)
    low = UTILISATIONS[below]
    slope = (queued[below + 1] - queued[below]) / (UTILISATIONS[below + 1] - UTILISATIONS[below])
    busy = low + (wanted - low * inverse - queued[below]) / (inverse + slope)
    return np.asarray(np.clip(busy, 0.0, UTILISATIONS[-1]) * inverse / rate_rps)


def _last_within(wanted: Values, inverse: Values, queued: Values) -> Places:
    """The last utilisation but one whose TTFT is within what is wanted, by bisection.

    The first where none is.
    """
    below = np.zeros(inverse.shape, dtype=np.intp)
    for step in _STEPS:
        tried = np.minimum(below + step, len(UTILISATIONS) - 2)
        below = np.where(UTILISATIONS[tried] * inverse + queued[tried] <= wanted, tried, below)
    return below


Cells = np.ndarray[Any, np.dtype[np.bool_]]
Metric = Literal["ttft", "tpot", "e2e", "rate", "devices", "least_devices", "usd_per_hour", "quality_loss"]

DEVIATIONS = {"p90": 1.2816, "p95": 1.6449, "p99": 2.3263, "p99.9": 3.0902}
"""Statistic to its distance from the mean in standard deviations, of how many sequences run (a Poisson number)."""
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


@dataclass(frozen=True, slots=True)
class Proof:
    """Why nothing is better.

    Beyond this bound at most so many layers fit on any pipeline that holds the goals.
    """

    bound: Threshold
    layers: int


Prove = Callable[[Sequence[Grid]], tuple[Proof, ...]]
"""Counts, over all grids that were searched, how much fits beyond what was reached."""


def solve(
    grid: Grid,
    bounds: Sequence[Threshold],
    objectives: Sequence[Threshold],
    then: Sequence[Threshold] = (),
) -> tuple[Pipeline | None, Prove]:
    """The pipeline that holds the bounds and has the objectives lowest, in their order.

    The values of the objectives do not count, only what they measure; ``then`` decides among equals. None if no pipeline holds
    the bounds. What is returned beside it computes the proofs: of each objective or, without a pipeline, of what the first bound
    leaves room for.
    """
    grid = _rationed(grid, bounds)
    if "e2e" in [bound.metric for bound in (*bounds, *objectives)]:
        grid = grid.taken(_halved(grid, bounds).within_reach()).dealt()
    search = _BoundSearch.opened(grid, bounds, objectives)
    if not search.feasible:
        return None, lambda _: tuple(Proof(bound, search.most) for bound in bounds[:1])
    reached: list[tuple[Threshold, tuple[Threshold, ...]]] = []
    for objective in (*objectives, *then):
        counted = objective.metric in {"devices", "usd_per_hour"}
        search, bound = search.with_fewest(objective) if counted else search.with_lowest(objective)
        reached.append((bound, search.bounds_but(objective)))
    return search.pipeline(), lambda grids: tuple(
        _proof(grids, *thresholds) for thresholds in reached[: len(objectives)]
    )


def _proof(grids: Sequence[Grid], bound: Threshold, others: Sequence[Threshold]) -> Proof:
    """How much fits on any of the grids beyond a bound."""
    bounds = (*others, bound.tightened(_BEYOND))
    return Proof(bound, max(most_held(grid, bounds) for grid in grids))


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


def feasible_counts(grid: Grid, bounds: Sequence[Threshold]) -> Cells:
    """By the number of devices of each pool: whether a pipeline on exactly these holds the bounds."""
    timed = [bound for bound in bounds if bound.metric not in {"devices", "usd_per_hour"}]
    search = _BoundSearch.begin(_rationed(grid, bounds), timed)
    return np.asarray((search.layers >= grid.setting.model.num_layers).any(axis=0))


def _rationed(grid: Grid, bounds: Sequence[Threshold]) -> Grid:
    """With stages of several formats, where a bound on quality says how many layers of each there may be."""
    losses = [bound.value for bound in bounds if bound.metric == "quality_loss"]
    return grid.with_format_budget(min(losses)) if losses else grid


@dataclass(frozen=True, slots=True)
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
    """The most that fit, by point and device counts; barred ones have none. No fewer than do, where not all do."""

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

    @classmethod
    def opened(cls, grid: Grid, bounds: Sequence[Threshold], objectives: Sequence[Threshold]) -> "_BoundSearch":
        """Under the bounds, and as loose a one on the first objective if anything holds that."""
        first = [objective for objective in map(_loosest, objectives[:1]) if math.isfinite(objective.value)]
        bounded = [(bound.metric, bound.stat) for bound in bounds]
        if first and (first[0].metric, first[0].stat) not in bounded:
            search = cls.begin(grid, (*bounds, *first))
            if search.feasible:
                return search
        return cls.begin(grid, bounds)

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

    def with_fewest(self, objective: Threshold) -> tuple["_BoundSearch", Threshold]:
        """Only the device counts that cost least."""
        cost = device_costs(self.grid.pools, self.cells.shape)[objective.metric]
        fits = (self.layers >= self.wanted).any(axis=0)
        bound = replace(objective, value=float(cost[fits].min()))
        return self.further(bound), bound

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

    def pipeline(self) -> Pipeline:
        """The one with most room to spare."""
        place, *counts = (int(index) for index in np.unravel_index(int(self.layers.argmax()), self.layers.shape))
        grid = self.grid.taken([place])
        limits = at(self.limits, [place])
        holds = holds_of(grid, limits, layers_by_kinds)
        stage_slots = fullest(holds, grid.stage_slots, counts, int(grid.points.stages[0]))
        return built(grid, stage_slots, limits)


def _loosest(objective: Threshold) -> Threshold:
    """The loosest bound of a latency or a rate; none of what is counted."""
    return replace(
        objective,
        value={"rate": 0.0, "devices": math.inf, "usd_per_hour": math.inf}.get(objective.metric, 1e9),
    )


def _fitting(grid: Grid, cells: Cells, holds: Holds) -> Counts:
    """The most layers by point and device counts; none where the bounds or the grid bar them."""
    budget = tuple(size - 1 for size in cells.shape)
    stages = grid.points.stages.astype(int)
    layers = most_layers(holds, grid.stage_slots, budget, stages.tolist())
    if grid.barred and all(map(operator.le, grid.barred[1], budget)):
        layers[(stages == grid.barred[0], *grid.barred[1])] = -1
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
    """The longest *busy* that a bound leaves at each point, and the longest *first* of each kind there."""
    load = grid.setting.load
    batch = grid.points.batch
    if bound.metric == "rate":
        return np.full(len(batch), 1 / max(bound.value, 1e-12)), ENDLESS
    busy_s = staffed_s(batch, load.rate_rps, bound)
    first_s = ENDLESS
    if bound.metric in {"tpot", "e2e"}:
        tokens_s = bound.value * (load.decoded if bound.metric == "tpot" else grid.shares)
        busy_s = np.minimum(busy_s, tokens_s / batch)
    if bound.metric in {"ttft", "e2e"}:
        ttft_s = bound.value * (np.ones(len(batch)) if bound.metric == "ttft" else 1 - grid.shares)
        first_s = most_first_s(ttft_s, grid.overlap, load.rate_rps, bound.stat)
    return busy_s, first_s


def _tightest(grid: Grid, left: Iterable[Limits]) -> Limits:
    """What several bounds leave together."""
    busy_s = np.full(len(grid.points), np.inf)
    first_s = ENDLESS
    for busy, first in left:
        busy_s = np.minimum(busy_s, busy)
        first_s = np.minimum(first_s, first)
    return busy_s, np.broadcast_to(first_s, grid.overlap.shape)


def staffed_s(batch: Values, rate_rps: float, bound: Threshold) -> Values:
    """The longest *busy* at which the batch is enough for the sequences that run.

    Up to the statistic of the bound.

    They are a Poisson number of mean ``n = rate batch busy``; ``n + z sqrt(n) <= batch`` (square-root staffing). With fewer,
    tokens of the busiest moments would come later than in a full batch, and first tokens would wait for a place.
    """
    z = DEVIATIONS.get(bound.stat, 0.0)
    root = (np.sqrt(z * z + 4 * batch) - z) / 2
    return np.asarray(root * root / (rate_rps * batch))


def reading(pipeline: Pipeline, wanted: Threshold, grid: Grid) -> float:
    """What a bound or objective reads of a pipeline."""
    if wanted.metric == "rate":
        return 1 / pipeline.busy_s
    if wanted.metric in {"devices", "usd_per_hour"}:
        prices = [1.0 if wanted.metric == "devices" else pool.usd_per_hour for pool in grid.pools]
        return sum(parts[0][0].tp * prices[parts[0][0].pool] for parts in pipeline.stages)
    if wanted.metric == "quality_loss":
        lost = [
            layers * grid.setting.quality_loss.get(kind.precision, 0.0)
            for parts in pipeline.stages
            for kind, layers in parts
        ]
        return sum(lost) / grid.setting.model.num_layers
    return float(latencies_s([pipeline], wanted, grid)[0])


def latencies_s(pipelines: Sequence[Pipeline], wanted: Threshold, grid: Grid) -> Values:
    """A latency of each of some pipelines with as many stages.

    Infinite where its batch is not enough for the load.
    """
    load = grid.setting.load
    batch = np.array([float(pipeline.batch) for pipeline in pipelines])
    busy_s = np.array([pipeline.busy_s for pipeline in pipelines])
    firsts = np.array([pipeline.firsts for pipeline in pipelines])
    found = np.zeros(len(pipelines))
    if wanted.metric != "tpot":
        found = first_tokens_s(firsts[..., 0], firsts[..., 1], load.rate_rps, wanted.stat).max(axis=-1)
    if wanted.metric != "ttft":
        found = found + batch * busy_s / (load.decoded if wanted.metric == "tpot" else 1)
    enough = busy_s <= staffed_s(batch, load.rate_rps, wanted) / _LESS
    return np.where(enough, found, np.inf)
