"""All pipelines that may be built, and those of several formats under a bound on the loss. Pure."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from runtime.models import Cluster
from selector.pipelines.balance import StageSlot
from selector.pipelines.operating import Points, Pool, Setting, StageKind, Times, capacities, times_of

Values = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int16]]
Pairs = tuple[tuple[int, int], ...]

UNITS = 8
"""Of a bound that binds: numbers of quantised layers go by what one buys."""
_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Rations:
    """What stages may be made of."""

    allowed: Counts
    """The most layers of a stage by the units it takes (from none to all), their kind and the operating point."""
    pairs: Pairs
    """Kinds, by number, that may share a stage: one that loses less, and one that loses more."""

    @classmethod
    def plain(cls, kinds: int, points: int, layers: int) -> "Rations":
        """Nothing bounds the loss: stages of one format, whichever."""
        return cls(np.full((1, kinds, points), layers, dtype=np.int16), ())

    @classmethod
    def under(cls, most: float, kinds: Sequence[StageKind], losses: Values, granted: Values, layers: int) -> "Rations":
        """With a mean loss of at most so much, where points grant every layer a loss (at most as much).

        By kind and by point.
        """
        beyond = np.maximum(0.0, losses[:, None] - granted)
        units = UNITS if beyond.any() else 0
        spent = np.arange(units + 1)[:, None, None] / max(1, units) * (most - granted) * layers
        bought = np.divide(spent, beyond, where=beyond > 0, out=np.full((units + 1, *beyond.shape), np.inf))
        return cls(np.minimum(layers, np.floor(bought + _CLOSE)).astype(np.int16), _pairs(kinds, losses, most))

    @property
    def shared(self) -> bool:
        """Whether stages may be of two formats, or have to share units."""
        return bool(self.pairs) or len(self.allowed) > 1

    def taken(self, places: Any) -> "Rations":
        """At some of the points."""
        return Rations(self.allowed[..., places], self.pairs)


def grants(losses: Values, most: float) -> Values:
    """The losses that may be granted to every layer under a bound: those of the formats.

    One will do if it covers all.
    """
    kept = np.unique(losses[losses <= most])
    return kept[-1:] if kept.size and kept[-1] == losses.max() else np.append(kept, [0.0] * (not kept.size))


def unmatched(kinds: Sequence[StageKind], figures: Values) -> list[int]:
    """The kinds, by number, that no other on their seat matches in everything.

    Figures (less is better) by what, kind, point.
    """
    found = list[int]()
    for kind in np.lexsort((np.arange(len(kinds)), figures.sum(axis=(0, 2)))).tolist():
        rivals = [rival for rival in found if _alike(kinds[rival], kinds[kind])]
        if not any((figures[:, rival] <= figures[:, kind]).all() for rival in rivals):
            found.append(kind)
    return sorted(found)


def _alike(kind: StageKind, other: StageKind) -> bool:
    """Whether they sit on the same devices and pass on values of one width."""
    return (kind.pool, kind.tp, _wide(kind)) == (other.pool, other.tp, _wide(other))


def _pairs(kinds: Sequence[StageKind], losses: Values, most: float) -> Pairs:
    """Kinds on one seat of which one may be granted its loss, alike in what goes between layers."""
    return tuple(
        (base, other)
        for base, other in itertools.permutations(range(len(kinds)), 2)
        if losses[base] < losses[other] and losses[base] <= most and _alike(kinds[base], kinds[other])
    )


def _wide(kind: StageKind) -> bool:
    return kind.formats.activations == "fp32"


@dataclass(frozen=True, slots=True)
class CapacityLine:
    """How many layers of a base format a stage has room for beside ``n`` of another.

    The least of lines in ``n``.
    """

    start: Values
    """By line, pair of kinds and point."""
    slope: Values
    """Layers of the base that one of the other takes the place of."""

    def held(self, others: Values) -> Values:
        """Layers in all, with fractions, by how many are of the other format.

        Any numbers of them by pair and point.
        """
        left = self.start[:, None] - self.slope[:, None] * others
        return np.asarray(others + left.min(axis=0))

    def fullest(self, layers: int) -> Values:
        """With how many of the other format, up to so many, a stage holds most.

        Up to there, more of them never hold less.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            alone = np.clip(np.floor((self.start / self.slope).min(axis=0) + _CLOSE), 0, layers)
            first, two = np.array(list(itertools.combinations(range(len(self.start)), 2))).T
            crossing = np.nan_to_num((self.start[first] - self.start[two]) / (self.slope[first] - self.slope[two]))
        inside = np.clip(crossing, 0, alone)
        tried = np.concatenate([[0 * alone, alone], np.floor(inside), np.ceil(inside)])
        best = self.held(tried).argmax(axis=0)
        return np.asarray(np.take_along_axis(tried, best[None], axis=0)[0])

    def bound(self, rations: Rations, layers: int) -> Values:
        """No fewer than the most layers with all units, by pair of kinds and point.

        Each line taken at its own best.
        """
        _, other = np.array(rations.pairs).T
        gained = (1 - self.slope) * np.minimum(layers, rations.allowed[-1, other])
        return np.asarray(np.clip(np.floor((self.start + np.maximum(0, gained)).min(axis=0) + _CLOSE), 0, layers))

    def within(self, rations: Rations, layers: int) -> Values:
        """The most layers by units, pair of kinds and point."""
        base, other = np.array(rations.pairs).T
        others = np.minimum(self.fullest(layers), rations.allowed[:, other])
        return np.asarray(np.clip(np.floor(self.held(others) + _CLOSE), 0, rations.allowed[0, base]))

    def by_others(self, pair: int, most: int) -> list[int]:
        """Layers in all with each number of the other format, up to so many, at the only point."""
        others = np.arange(most + 1)
        line = CapacityLine(self.start[:, [pair]], self.slope[:, [pair]])
        held = np.floor(line.held(others[:, None, None].astype(float))[:, 0, 0] + _CLOSE)
        return list(map(int, held[held >= others]))


Parts = tuple[tuple[StageKind, int], ...]
"""A stage by the kinds of its layers, with how many of each, in their order; the first says what the stage computes in."""
Numbered = tuple[tuple[int, int], ...]
"""The same by numbers of kinds of a grid."""

SHARES = (
    0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.985, 0.995,
)  # fmt: skip
"""Parts of an E2E bound that may go to the tokens; what remains is the first token's."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages in order with their layers, at an operating point."""

    stages: tuple[Parts, ...]
    batch: float
    busy_s: float
    """Of the slowest stage."""
    first_s: float
    """Of a prompt, alone, by the slowest stage."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All that may be built, with its times and capacities at every operating point."""

    setting: Setting
    pools: tuple[Pool, ...]
    kinds: tuple[StageKind, ...]
    seat_of: tuple[StageSlot, ...]
    """Of each kind, in order of seats."""
    points: Points
    busy: Times
    first: Times
    capacity: dict[tuple[bool, bool], Values]
    shares: Values
    """Part of an E2E bound that goes to the tokens at a point."""
    rations: Rations

    @classmethod
    def of(cls, kinds: Sequence[StageKind], stages: Sequence[int], pools: Sequence[Pool], setting: Setting) -> "Grid":
        """Pipelines of these kinds of stages and numbers of stages.

        Raises:
            ProfileError: a format or group size without figures.
        """
        kinds = sorted(kinds, key=lambda kind: (kind.pool, kind.tp))
        counts = sorted(number for number in stages if number <= setting.model.num_layers)
        points = Points.all(counts, setting.batches, setting.batching)
        busy, first = times_of(kinds, points, setting)
        capacity = capacities(kinds, points, pools, setting)
        stage_slots = tuple(StageSlot(kind.pool, kind.tp) for kind in kinds)
        return cls(
            setting,
            tuple(pools),
            tuple(kinds),
            stage_slots,
            points,
            busy,
            first,
            capacity,
            np.full(len(points), 0.5),
            Rations.plain(len(kinds), len(points), setting.model.num_layers),
        )

    def taken(self, places: Any) -> "Grid":
        """At some of the points, which may be named more than once."""
        return replace(
            self,
            points=self.points.taken(places),
            busy=self.busy.taken(places),
            first=self.first.taken(places),
            capacity={role: rows[:, places] for role, rows in self.capacity.items()},
            shares=self.shares[places],
            rations=self.rations.taken(places),
        )

    def on(self, pools: Sequence[Pool], cluster: Cluster) -> "Grid | None":
        """The same stages on devices of other pools of the same kinds.

        As quick, but what fits is another matter.
        """
        places = np.flatnonzero(self.points.stages <= sum(pool.size for pool in pools))
        moved = {
            replace(kind, pool=place): number
            for place, pool in enumerate(pools)
            for number, kind in enumerate(self.kinds)
            if kind.kind == pool.kind and kind.tp <= pool.node_size
        }
        if not moved or not len(places):
            return None
        kinds = sorted(moved, key=lambda kind: (kind.pool, kind.tp))
        setting = replace(self.setting, cluster=cluster)
        here = self.taken(places).of_kinds(kinds, [moved[kind] for kind in kinds])
        return replace(
            here,
            setting=setting,
            pools=tuple(pools),
            capacity=capacities(kinds, here.points, pools, setting),
        )

    def dealt(self) -> "Grid":
        """Every point once for each way to deal an E2E bound."""
        places = np.repeat(np.arange(len(self.points)), len(SHARES))
        return replace(self.taken(places), shares=np.tile(SHARES, len(self.points)))

    def with_format_budget(self, most: float) -> "Grid":
        """Under a bound on the mean quality loss, every point once for each way to deal it."""
        layers = self.setting.model.num_layers
        grid = self._unmatched()
        dealt = grants(grid.losses, most)
        granted = np.tile(dealt, len(grid.points))
        rations = Rations.under(most, grid.kinds, grid.losses, granted, layers)
        return replace(grid.taken(np.repeat(np.arange(len(grid.points)), len(dealt))), rations=rations)

    @property
    def losses(self) -> Values:
        """Of quality, by kind, were all layers of it."""
        return np.array([self.setting.quality_loss.get(kind.precision, 0.0) for kind in self.kinds])

    def _unmatched(self) -> "Grid":
        """Without kinds that cannot make anything better."""
        times = [(times.layer_s, times.inner_s, times.last_s) for times in (self.busy, self.first)]
        lost = np.broadcast_to(self.losses[:, None], self.busy.layer_s.shape)
        rooms = [-room for room in self.capacity.values()]
        kept = unmatched(self.kinds, np.stack([*times[0], *times[1], lost, *rooms]))
        return self.of_kinds([self.kinds[kind] for kind in kept], kept)

    def of_kinds(self, kinds: Sequence[StageKind], rows: Sequence[int]) -> "Grid":
        """Of some kinds, with the times of these rows."""
        return replace(
            self,
            kinds=tuple(kinds),
            seat_of=tuple(StageSlot(kind.pool, kind.tp) for kind in kinds),
            busy=self.busy.of_kinds(rows),
            first=self.first.of_kinds(rows),
            capacity={role: held[rows] for role, held in self.capacity.items()},
            rations=replace(self.rations, allowed=self.rations.allowed[:, rows]),
        )

    @property
    def size(self) -> int:
        """Operating points and device counts; each stands for every split of the layers."""
        return len(self.points) * math.prod(pool.size + 1 for pool in self.pools)

    @property
    def stage_slots(self) -> tuple[StageSlot, ...]:
        """The devices that a stage may take; kinds of one seat stand together."""
        return tuple(dict.fromkeys(self.seat_of))
