"""All pipelines that may be built, with their times and capacities at every operating point; and one of them. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from runtime.models import Cluster
from selector.pipelines.balance import Seat
from selector.pipelines.operating import Points, Setting, StageKind, Times, capacities, times_of
from selector.pipelines.pools import Pool
from selector.pipelines.quality import Rations, grants, unmatched

Values = np.ndarray[Any, np.dtype[np.float64]]
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
    points: Points
    busy: Times
    first: Times
    capacity: dict[tuple[bool, bool], Values]
    overlap: Values
    """Of a prompt's time, the share for which it keeps the next one waiting, by kind and point."""
    shares: Values
    """Part of an E2E bound that goes to the tokens at a point."""
    rations: Rations
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
        points = Points.all(counts, setting.batches, setting.batching)
        busy, first, overlap = times_of(kinds, points, setting)
        capacity = capacities(kinds, points, pools, setting)
        seats = tuple(Seat(kind.pool, kind.tp) for kind in kinds)
        return cls(
            setting,
            tuple(pools),
            tuple(kinds),
            seats,
            points,
            busy,
            first,
            capacity,
            overlap,
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
            overlap=self.overlap[:, places],
            shares=self.shares[places],
            rations=self.rations.taken(places),
        )

    def on(self, pools: Sequence[Pool], cluster: Cluster) -> "Grid | None":
        """The same stages on devices of other pools of the same kinds: as quick, but what fits is another matter."""
        places = np.flatnonzero(self.points.stages <= sum(pool.size for pool in pools))
        moved = {
            replace(kind, pool=place): number
            for place, pool in enumerate(pools)
            for number, kind in enumerate(self.kinds)
            if kind.kind == pool.kind and kind.tp <= pool.node_size
        }
        if not moved or not len(places):
            return None
        kinds, setting = (
            sorted(moved, key=lambda kind: (kind.pool, kind.tp)),
            replace(self.setting, cluster=cluster),
        )
        here = self.taken(places).of_kinds(kinds, [moved[kind] for kind in kinds])
        return replace(
            here,
            setting=setting,
            pools=tuple(pools),
            capacity=capacities(kinds, here.points, pools, setting),
            barred=None,
        )

    def dealt(self) -> "Grid":
        """Every point once for each way to deal an E2E bound."""
        places = np.repeat(np.arange(len(self.points)), len(SHARES))
        return replace(self.taken(places), shares=np.tile(SHARES, len(self.points)))

    def rationed(self, most: float) -> "Grid":
        """Under a bound on the mean quality loss, every point once for each way to deal it."""
        layers, grid = self.setting.model.num_layers, self._unmatched()
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
        times = [(one.layer_s, one.inner_s, one.last_s) for one in (self.busy, self.first)]
        lost = np.broadcast_to(self.losses[:, None], self.overlap.shape)
        rooms = [-room for room in self.capacity.values()]
        kept = unmatched(self.kinds, np.stack([*times[0], *times[1], self.overlap, lost, *rooms]))
        return self.of_kinds([self.kinds[kind] for kind in kept], kept)

    def of_kinds(self, kinds: Sequence[StageKind], rows: Sequence[int]) -> "Grid":
        """Of some kinds, with the times of these rows."""
        return replace(
            self,
            kinds=tuple(kinds),
            seat_of=tuple(Seat(kind.pool, kind.tp) for kind in kinds),
            busy=self.busy.of_kinds(rows),
            first=self.first.of_kinds(rows),
            capacity={role: held[rows] for role, held in self.capacity.items()},
            overlap=self.overlap[rows],
            rations=replace(self.rations, allowed=self.rations.allowed[:, rows]),
        )

    @property
    def size(self) -> int:
        """Operating points and device counts; each stands for every split of the layers."""
        return len(self.points) * math.prod(pool.size + 1 for pool in self.pools)

    @property
    def seats(self) -> tuple[Seat, ...]:
        """The devices that a stage may take; kinds of one seat stand together."""
        return tuple(dict.fromkeys(self.seat_of))
