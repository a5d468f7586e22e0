"""The best pipeline for goals and objectives: exact over all stages, splits and batch limits of the operating points. Pure.

A goal leaves each operating point two times, the longest *busy* and the longest *first* (``selector.operating``), and what fits
into them is a knapsack (``selector.balance``) that answers for all points and device counts at once. An objective is a goal
whose bound is tightened until nothing holds it: the last pipeline found is the optimum, and what the knapsack holds just
below is its certificate.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from runtime.models import BYTES_PER_VALUE
from selector.balance import Counts, Holds, Seat, fullest, most_layers
from selector.operating import Points, Setting, StageKind, Times, capacities, times_of
from selector.pools import Pool
from selector.queueing import first_tokens_s, most_first_s

Values = np.ndarray[Any, np.dtype[np.float64]]
Cells = np.ndarray[Any, np.dtype[np.bool_]]
Metric = Literal["ttft", "tpot", "e2e", "rate", "devices", "least_devices", "usd_per_hour"]

DEVIATIONS = {"p90": 1.2816, "p95": 1.6449, "p99": 2.3263, "p99.9": 3.0902}
"""Statistic to its distance from the mean in standard deviations, of how many sequences run (a Poisson number)."""
SHARES = (
    0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.985, 0.995,
)  # fmt: skip
"""Parts of an E2E bound that may go to the tokens; what remains is the first token's."""
_LIKELY = 0.97
"""Where layers say that less can be tightened, bisection is as good."""
_CLOSE = 2e-2
"""How near bisection comes before the search goes on from one pipeline to the next better one."""
_LESS = 1 - 1e-9
_BEYOND = 1 - 1e-8
_WITHOUT_END = (1e9, 0.0)
"""The loosest bound of a latency (seconds), and of a rate."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """At most so many seconds, devices or USD/h; ``rate`` and ``least_devices`` are at least so many."""

    metric: Metric
    value: float
    stat: str = "mean"

    def tightened(self, factor: float) -> "Threshold":
        """Harder to hold, by a factor below 1."""
        return replace(self, value=self.value / factor if self.metric == "rate" else self.value * factor)


@dataclass(frozen=True, slots=True)
class Proof:
    """Why nothing is better: beyond this bound at most so many layers fit on any pipeline that holds the goals."""

    bound: Threshold
    layers: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in order with their layers, at an operating point."""

    stages: tuple[tuple[StageKind, int], ...]
    batch: int
    busy_s: float
    """Of the slowest stage."""
    firsts: tuple[tuple[float, float], ...]
    """Of each stage: the time of a prompt (s), and the share of it for which it keeps the next waiting."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All that may be built, with its times and capacities at every operating point."""

    setting: Setting
    pools: tuple[Pool, ...]
    kinds: tuple[StageKind, ...]
    seat_of: tuple[Seat, ...]
    """Of each kind, in order of seats."""
    starts: tuple[int, ...]
    """The first kind of each seat."""
    points: Points
    busy: Times
    first: Times
    capacity: dict[tuple[bool, bool], Values]
    overlap: Values
    """Of a prompt's time, the share for which it keeps the next one waiting, by kind and point."""
    shares: Values
    """Part of an E2E bound that goes to the tokens at a point."""
    barred: tuple[int, tuple[int, ...]] | None = None
    """Stages and devices of each pool of a pipeline that does not count: to find the next best."""

    @classmethod
    def of(
        cls, kinds: Sequence[StageKind], stages: Sequence[int], pools: Sequence[Pool], setting: Setting
    ) -> "Grid":
        """Pipelines of these kinds of stages and numbers of stages.

        Raises:
            ProfileError: a format or group size without figures.
        """
        kinds = sorted(kinds, key=lambda kind: (kind.pool, kind.tp))
        counts = sorted(number for number in stages if number <= setting.model.num_layers)
        points = Points.all(counts, setting.batches)
        busy, first, overlap = times_of(kinds, points, setting)
        capacity = capacities(kinds, points, pools, setting)
        seats = tuple(Seat(kind.pool, kind.tp) for kind in kinds)
        return cls(
            setting,
            tuple(pools),
            tuple(kinds),
            seats,
            tuple(seats.index(seat) for seat in dict.fromkeys(seats)),
            points,
            busy,
            first,
            capacity,
            overlap,
            np.full(len(points), 0.5),
        )

    def taken(self, places: Any) -> "Grid":
        """At some of the points, which may be named more than once."""
        return replace(
            self,
            points=self.points.taken(places),
            busy=self.busy.taken(places),
            first=self.first.taken(places),
            capacity={role: rows[:, places] for role, rows in self.capacity.items()},
            overlap=self.overlap[:, places],
            shares=self.shares[places],
        )

    def dealt(self) -> "Grid":
        """Every point once for each way to deal an E2E bound."""
        places = np.repeat(np.arange(len(self.points)), len(SHARES))
        return replace(self.taken(places), shares=np.tile(SHARES, len(self.points)))

    @property
    def size(self) -> int:
        """Operating points and device counts; each stands for every split of the layers."""
        return len(self.points) * math.prod(pool.size + 1 for pool in self.pools)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The devices that a stage may take; kinds of one seat stand together."""
        return tuple(self.seat_of[start] for start in self.starts)


Prove = Callable[[Sequence[Grid]], tuple[Proof, ...]]
"""Counts, over all grids that were searched, how much fits beyond what was reached."""


def solve(
    grid: Grid, bounds: Sequence[Threshold], objectives: Sequence[Threshold]
) -> tuple[Pipeline | None, Prove]:
    """The pipeline that holds the bounds and, of those, has the first objective lowest, of those the second, and so on.

    The values of the objectives do not count, only what they measure. None if no pipeline holds the bounds. What is returned
    beside it computes the proofs: of each objective or, without a pipeline, of what the first bound leaves room for.
    """
    dealt = "e2e" in [bound.metric for bound in (*bounds, *objectives)]
    search = _Search.begin(_within_reach(grid, bounds).dealt() if dealt else grid, bounds)
    if not search.feasible:
        return None, lambda _: tuple(Proof(bound, search.most) for bound in bounds[:1])
    reached: list[tuple[Threshold, tuple[Threshold, ...]]] = []
    for objective in objectives:
        counted = objective.metric in {"devices", "usd_per_hour"}
        search, bound = search.with_fewest(objective) if counted else search.with_lowest(objective)
        reached.append((bound, search.bounds_but(objective)))
    return search.pipeline(), lambda grids: tuple(_proof(grids, *one) for one in reached)


def _proof(grids: Sequence[Grid], bound: Threshold, others: Sequence[Threshold]) -> Proof:
    """How much fits on any of the grids beyond a bound."""
    bounds = (*others, bound.tightened(_BEYOND))
    dealt = "e2e" in [one.metric for one in bounds]
    return Proof(bound, max(_Search.begin(grid.dealt() if dealt else grid, bounds).most for grid in grids))


def _within_reach(grid: Grid, bounds: Sequence[Threshold]) -> Grid:
    """The grid without points that miss a bound on E2E with the first token alone, or with the other tokens alone."""
    halves: tuple[tuple[Metric, int], ...] = (("ttft", 1), ("tpot", grid.setting.load.decoded))
    parts = [
        replace(bound, metric=metric, value=bound.value / divisor)
        for bound in bounds
        if bound.metric == "e2e"
        for metric, divisor in halves
    ]
    looser = [bound for bound in bounds if bound.metric != "e2e"]
    return _Search.begin(grid, (*looser, *parts)).within_reach() if parts else grid


def feasible_counts(grid: Grid, bounds: Sequence[Threshold]) -> Cells:
    """By the number of devices of each pool: whether a pipeline on exactly these holds the bounds."""
    search = _Search.begin(
        grid, [bound for bound in bounds if bound.metric not in {"devices", "usd_per_hour"}]
    )
    return np.asarray((search.layers >= grid.setting.model.num_layers).any(axis=0))


def most_held(grid: Grid, bounds: Sequence[Threshold]) -> int:
    """The most layers that fit on any pipeline within the bounds."""
    return _Search.begin(grid, bounds).most


@dataclass(frozen=True, slots=True)
class _Search:
    """What is left of the grid under some bounds, and how many layers fit there."""

    grid: Grid
    bounds: tuple[Threshold, ...]
    cells: Cells
    """Device counts that the bounds allow."""
    busy_s: Values
    first_s: Values
    layers: Counts
    """The most that fit, by point and device counts; barred ones have none."""

    @classmethod
    def begin(cls, grid: Grid, bounds: Sequence[Threshold]) -> "_Search":
        cells = _cells(grid, bounds)
        budget = _budget(cells)
        cells = cells[tuple(slice(count + 1) for count in budget)]
        busy_s, first_s = _limits(grid, bounds)
        stages = grid.points.stages.astype(int).tolist()
        layers = most_layers(_holds(grid, busy_s, first_s), grid.seats, budget, stages)
        if grid.barred and all(map(operator.le, grid.barred[1], budget)):
            layers[(grid.points.stages == grid.barred[0], *grid.barred[1])] = -1
        return cls(grid, tuple(bounds), cells, busy_s, first_s, np.where(cells, layers, np.int16(-1)))

    @property
    def most(self) -> int:
        return max(0, int(self.layers.max(initial=0)))

    @property
    def feasible(self) -> bool:
        return self.most >= self.grid.setting.model.num_layers

    def with_fewest(self, objective: Threshold) -> tuple["_Search", Threshold]:
        """Only the device counts that cost least."""
        cost = device_costs(self.grid.pools, self.cells.shape)[objective.metric]
        fits = (self.layers >= self.grid.setting.model.num_layers).any(axis=0)
        bound = replace(objective, value=float(cost[fits].min()))
        return self.further(bound), bound

    def with_lowest(self, objective: Threshold) -> tuple["_Search", Threshold]:
        """Only what has the latency lowest, or the rate highest: bisected, then from one pipeline to the next better one."""
        search = self.further(replace(objective, value=_WITHOUT_END[objective.metric == "rate"]))
        if not search.feasible:  # requests pile up on all there is: as good as any
            return self, replace(objective, value=math.inf)
        bound = replace(objective, value=reading(search.pipeline(), objective, search.grid))
        low, high = 0.0, 1.0  # of the bound
        while high - low > _CLOSE * high:
            middle = search.likely(low / high) * high
            tried = search.further(bound.tightened(middle))
            low, high, search = (low, middle, tried) if tried.feasible else (middle, high, search)
        while True:
            bound = replace(objective, value=reading(search.pipeline(), objective, search.grid))
            tried = search.further(bound.tightened(_LESS))
            if not tried.feasible:
                held = search.further(
                    bound
                )  # an E2E dealt otherwise than the shares may not be met to the last digit
                return (held if held.feasible else search), bound
            search = tried

    def likely(self, low: float) -> float:
        """By what to tighten: layers that fit are about in proportion to time; where that says nothing, half way to ``low``."""
        guess = self.grid.setting.model.num_layers / self.most
        return guess if low < guess * _LIKELY and guess < _LIKELY else (low + 1) / 2

    def bounds_but(self, objective: Threshold) -> tuple[Threshold, ...]:
        """The bounds on everything else."""
        return tuple(
            one for one in self.bounds if (one.metric, one.stat) != (objective.metric, objective.stat)
        )

    def further(self, bound: Threshold) -> "_Search":
        """Under one more bound; points that hold none of it are left out for good."""
        return _Search.begin(self.within_reach(), (*self.bounds_but(bound), bound))

    def within_reach(self) -> Grid:
        """The points at which all layers fit somewhere."""
        fits = self.layers >= self.grid.setting.model.num_layers
        return self.grid.taken(fits.reshape(len(self.layers), -1).any(axis=1))

    def pipeline(self) -> Pipeline:
        """The one with most room to spare."""
        place, *counts = (int(one) for one in np.unravel_index(int(self.layers.argmax()), self.layers.shape))
        one = self.grid.taken([place])
        limits = self.busy_s[[place]], self.first_s[:, [place]]
        holds = _holds(one, *limits)
        seats = fullest(holds, one.seats, counts, int(one.points.stages[0]))
        return _built(one, seats, limits)


def _cells(grid: Grid, bounds: Sequence[Threshold]) -> Cells:
    shape = tuple(pool.size + 1 for pool in grid.pools)
    costs, mask = device_costs(grid.pools, shape), np.ones(shape, dtype=bool)
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


def _limits(grid: Grid, bounds: Sequence[Threshold]) -> tuple[Values, Values]:
    """The longest *busy* that the bounds leave at each point, and the longest *first* of each kind there."""
    load, points, overlap = grid.setting.load, grid.points, grid.overlap
    busy_s, first_s = np.full(len(points), np.inf), np.full(overlap.shape, np.inf)
    for bound in bounds:
        if bound.metric == "rate":
            busy_s = np.minimum(busy_s, 1 / max(bound.value, 1e-12))
        if bound.metric in {"ttft", "tpot", "e2e"}:
            busy_s = np.minimum(busy_s, staffed_s(points.batch, load.rate_rps, bound))
        if bound.metric in {"tpot", "e2e"}:
            tokens_s = bound.value * (load.decoded if bound.metric == "tpot" else grid.shares)
            busy_s = np.minimum(busy_s, tokens_s / points.batch)
        if bound.metric in {"ttft", "e2e"}:
            ttft_s = bound.value * (np.ones(len(points)) if bound.metric == "ttft" else 1 - grid.shares)
            first_s = np.minimum(first_s, most_first_s(ttft_s, overlap, load.rate_rps, bound.stat))
    return busy_s, first_s


def staffed_s(batch: Values, rate_rps: float, bound: Threshold) -> Values:
    """The longest *busy* at which the batch is enough for the sequences that run, up to the statistic of the bound.

    They are a Poisson number of mean ``n = rate batch busy``; ``n + z sqrt(n) <= batch`` (square-root staffing). With fewer,
    tokens of the busiest moments would come later than in a full batch, and first tokens would wait for a place.
    """
    z = DEVIATIONS.get(bound.stat, 0.0)
    root = (np.sqrt(z * z + 4 * batch) - z) / 2
    return np.asarray(root * root / (rate_rps * batch))


def _holds(grid: Grid, busy_s: Values, first_s: Values) -> Holds:
    """Layers by seat, over the weight formats that it may have."""
    roles = [(False, False), (True, False), (False, True), (True, True)]
    return Holds(*(_by_seat(grid, _by_kind(grid, role, (busy_s, first_s))) for role in roles))


def _by_kind(grid: Grid, role: tuple[bool, bool], limits: tuple[Values, Values]) -> Values:
    """Layers that each kind of stage holds in a role (first, last) within the limits."""
    last = role[1]
    within = np.minimum(
        grid.busy.layers_within(limits[0], last=last), grid.first.layers_within(limits[1], last=last)
    )
    return np.asarray(np.clip(np.minimum(within, grid.capacity[role]), 0, grid.setting.model.num_layers))


def _by_seat(grid: Grid, layers: Values) -> Counts:
    return np.asarray(np.maximum.reduceat(layers, grid.starts, axis=0).astype(np.int16))


def _built(grid: Grid, seats: Sequence[int], limits: tuple[Values, Values]) -> Pipeline:
    """The pipeline on these seats at the only point of the grid, with no layer too many."""
    ordered = _ordered([grid.seats[number] for number in seats])
    tables = {
        (first, last): _by_kind(grid, (first, last), limits)[:, 0].astype(int)
        for first in (False, True)
        for last in (False, True)
    }
    end = len(ordered) - 1
    options = [_kinds_on(grid, seat, tables[place == 0, place == end]) for place, seat in enumerate(ordered)]
    counts = [max(layers for _, layers in ways) for ways in options]
    chosen = _trimmed(grid, options, counts)
    busy_s, firsts = 0.0, []
    for place, (kind, layers) in enumerate(chosen):
        busy_s = max(busy_s, float(grid.busy.of(kind, layers, last=place == end)[0]))
        firsts.append(
            (float(grid.first.of(kind, layers, last=place == end)[0]), float(grid.overlap[kind, 0]))
        )
    stages = tuple((grid.kinds[kind], layers) for kind, layers in chosen)
    return Pipeline(stages, int(grid.points.batch[0]), busy_s, tuple(firsts))


def _ordered(seats: Sequence[Seat]) -> list[Seat]:
    """The first and the last stay where they are; between them pools stand together, so that data crosses over once."""
    if len(seats) < 3:
        return list(seats)
    first, *inner, last = seats
    near = {first.pool: -1, last.pool: 1} | ({first.pool: 0} if first.pool == last.pool else {})
    return [first, *sorted(inner, key=lambda seat: (near.get(seat.pool, 0), seat.pool, -seat.tp)), last]


def _kinds_on(grid: Grid, seat: Seat, layers: Any) -> list[tuple[int, int]]:
    """Kinds on a seat with the layers they hold, the widest weights first."""
    found = [
        (number, int(layers[number]))
        for number in range(len(grid.kinds))
        if grid.seat_of[number] == seat and layers[number] > 0
    ]
    return sorted(found, key=lambda one: -BYTES_PER_VALUE[grid.kinds[one[0]].precision])


def _trimmed(
    grid: Grid, options: Sequence[Sequence[tuple[int, int]]], counts: list[int]
) -> list[tuple[int, int]]:
    """A kind and layers for each stage: of the widest weights that hold them; what is too much goes where it takes longest."""
    end = len(options) - 1

    def kind_for(place: int, layers: int) -> int:
        return next(kind for kind, most in options[place] if most >= layers)

    def busy_s(place: int) -> float:
        return float(grid.busy.of(kind_for(place, counts[place]), counts[place], last=place == end)[0])

    times = [busy_s(place) for place in range(len(counts))]
    for _ in range(sum(counts) - grid.setting.model.num_layers):
        slowest = max((place for place, count in enumerate(counts) if count > 1), key=times.__getitem__)
        counts[slowest] -= 1
        times[slowest] = busy_s(slowest)
    return [(kind_for(place, count), count) for place, count in enumerate(counts)]


def running(grid: Grid, stages: Sequence[Sequence[tuple[StageKind, int]]]) -> list[Pipeline]:
    """A given pipeline at every batch limit with which it fits; each stage by its kinds with their layers, the widest first.

    A stage has several kinds where its layers differ in precision.
    """
    end, places = len(stages) - 1, np.flatnonzero(grid.points.stages == len(stages))
    one, firsts = grid.taken(places), list[tuple[Values, Values]]()
    busy_s, fits = np.zeros(len(places)), np.ones(len(places), dtype=bool)
    for place, parts in enumerate(stages):
        numbers = [(grid.kinds.index(kind), layers) for kind, layers in parts]
        rooms = [np.maximum(1e-9, one.capacity[place == 0, place == end][kind]) for kind, _ in numbers]
        fits &= sum(layers / room for (_, layers), room in zip(numbers, rooms, strict=True)) <= 1
        busy_s = np.maximum(busy_s, _stage_s(one.busy, numbers, last=place == end))
        firsts.append((_stage_s(one.first, numbers, last=place == end), one.overlap[numbers[0][0]]))
    kinds = tuple((parts[0][0], sum(layers for _, layers in parts)) for parts in stages)
    batches = one.points.batch.astype(int).tolist()
    return [
        Pipeline(
            kinds,
            batches[n],
            float(busy_s[n]),
            tuple((float(first_s[n]), float(share[n])) for first_s, share in firsts),
        )
        for n in np.flatnonzero(fits)
    ]


def _stage_s(times: Times, parts: Sequence[tuple[int, int]], *, last: bool) -> Values:
    (kind, layers), *others = parts
    return np.asarray(
        times.of(kind, layers, last=last) + sum(more * times.layer_s[other] for other, more in others)
    )


def reading(pipeline: Pipeline, wanted: Threshold, grid: Grid) -> float:
    """What a bound or objective reads of a pipeline."""
    if wanted.metric == "rate":
        return 1 / pipeline.busy_s
    if wanted.metric in {"devices", "usd_per_hour"}:
        prices = [1.0 if wanted.metric == "devices" else pool.usd_per_hour for pool in grid.pools]
        return sum(kind.tp * prices[kind.pool] for kind, _ in pipeline.stages)
    return float(latencies_s([pipeline], wanted, grid)[0])


def latencies_s(pipelines: Sequence[Pipeline], wanted: Threshold, grid: Grid) -> Values:
    """A latency of each of some pipelines with as many stages; infinite where its batch is not enough for the load."""
    load = grid.setting.load
    batch = np.array([float(one.batch) for one in pipelines])
    busy_s = np.array([one.busy_s for one in pipelines])
    firsts = np.array([one.firsts for one in pipelines])
    found = np.zeros(len(pipelines))
    if wanted.metric != "tpot":
        found = first_tokens_s(firsts[..., 0], firsts[..., 1], load.rate_rps, wanted.stat).max(axis=-1)
    if wanted.metric != "ttft":
        found = found + batch * busy_s / (load.decoded if wanted.metric == "tpot" else 1)
    enough = busy_s <= staffed_s(batch, load.rate_rps, wanted) / _LESS
    return np.where(enough, found, np.inf)
