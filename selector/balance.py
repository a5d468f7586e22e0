"""How many layers pipelines hold within given times, at many operating points and device counts at once. Pure.

Layers are alike, so within the times that a goal leaves each kind of stage holds so many and no more. The most layers of ``p``
stages on exactly so many devices of each pool is a max-plus knapsack over stages; the first stage (it holds the embedding) and
the last (it has the head) are added at the end. A pipeline of ``P`` stages exists at a point if and only if all layers fit.

Beside devices a stage may take *units* of one thing more (``selector.quality``), of which a pipeline has at most so many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Counts = np.ndarray[Any, np.dtype[np.int16]]

MOST_STAGES = 8
_NEVER = np.int16(-3000)
"""Layers of what cannot be; eight of them still fit into 16 bits."""
_BLOCK = 2**17
"""Values of a table that is worked on at a time: so much stays in the cache."""


@dataclass(frozen=True, slots=True)
class Seat:
    """Devices that a stage takes, whatever it does with them."""

    pool: int
    tp: int


@dataclass(frozen=True, slots=True)
class Holds:
    """The most layers of a stage by seat, units it takes (from none to all) and operating point, for each role.

    More units never hold less.
    """

    inner: Counts
    first: Counts
    last: Counts
    only: Counts

    def taken(self, places: Any) -> "Holds":
        """At some of the points."""
        return Holds(*(rows[..., places] for rows in (self.inner, self.first, self.last, self.only)))

    @property
    def units(self) -> int:
        """All there are."""
        return int(self.inner.shape[1]) - 1


def most_layers(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: Sequence[int]) -> Counts:
    """The most layers by point and device counts (each up to the budget); negative where no pipeline has so many stages.

    ``stages`` has the number of stages at each point and does not fall. O(points x stages x seats x product of the counts), and
    times the square of the units.
    """
    values = math.prod(count + 1 for count in budget) * (holds.units + 1)
    size = max(1, _BLOCK // values)
    parts = [slice(start, start + size) for start in range(0, len(stages), size)]
    tables = [_most_layers(holds.taken(part), seats, budget, stages[part]) for part in parts]
    none = np.empty((*(count + 1 for count in budget), 0), dtype=np.int16)
    return np.moveaxis(np.concatenate([none, *tables], axis=-1), -1, 0)


def _most_layers(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: Sequence[int]) -> Counts:
    """By device counts, then point."""
    found = np.full((*(count + 1 for count in budget), len(stages)), _NEVER, dtype=np.int16)
    inner, units = _nothing(len(stages), budget, holds.units), holds.units
    depth = 0
    for number, start, end in _runs(stages):
        here = slice(start, end)
        if number == 1:
            found[..., here] = _with(inner[..., here], holds.only[..., here], seats, units)[..., 0, :]
            continue
        while depth < number - 2:
            inner[..., start:] = _with(inner[..., start:], holds.inner[..., start:], seats)
            depth += 1
        begun = _with(inner[..., here], holds.first[..., here], seats)
        found[..., here] = _with(begun, holds.last[..., here], seats, units)[..., 0, :]
    return found


def _nothing(points: int, budget: Sequence[int], units: int) -> Counts:
    """No stage yet: no layers on no devices, whatever units are left. By device counts, units and point."""
    table = np.full((*(count + 1 for count in budget), units + 1, points), _NEVER, dtype=np.int16)
    table[(0,) * len(budget)] = 0
    return table


def _runs(stages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each number of stages with where its points start and end."""
    edges = [0, *(place for place, (a, b) in enumerate(pairwise(stages), 1) if a != b), len(stages)]
    for start, end in pairwise(edges):
        if start < end:
            yield int(stages[start]), start, end


def _with(table: Counts, held: Counts, seats: Sequence[Seat], least: int = 0) -> Counts:
    """One more stage on whichever seat makes most of it; for so many units and more."""
    units = table.shape[-2] - 1
    grown = np.full((*table.shape[:-2], units + 1 - least, table.shape[-1]), _NEVER, dtype=np.int16)
    for seat, rows in zip(seats, held, strict=True):
        into, source = _shifted(seat, table.ndim)
        for taken, row in enumerate(rows):
            if row.max(initial=0) < 1 or (taken and not (row > rows[taken - 1]).any()):
                continue
            into[-2] = slice(max(0, taken - least), None)
            source[-2] = slice(max(0, least - taken), units + 1 - taken)
            layers, better = np.where(row > 0, row, _NEVER), grown[tuple(into)]
            np.maximum(better, table[tuple(source)] + layers, out=better)
    return np.maximum(grown, _NEVER)


def _shifted(seat: Seat, dimensions: int) -> tuple[list[slice], list[slice]]:
    """Where a stage on a seat can be added, and what it is added to."""
    into = [slice(None)] * dimensions
    source = list(into)
    into[seat.pool], source[seat.pool] = slice(seat.tp, None), slice(None, -seat.tp)
    return into, source


def fullest(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: int) -> list[tuple[int, int]]:
    """The seats and the units they take, first stage to last, of a pipeline that holds ``most_layers`` at the only point."""
    tables = [_nothing(1, budget, holds.units)]
    if stages == 1:
        return _walked(tables, [holds.only], seats, budget)
    rows = [*[holds.inner] * (stages - 2), holds.first, holds.last]
    for row in rows[:-1]:
        tables.append(_with(tables[-1], row, seats))
    *inner, first, last = _walked(tables, rows, seats, budget)
    return [first, *inner, last]


def _walked(
    tables: list[Counts], rows: list[Counts], seats: Sequence[Seat], budget: Sequence[int]
) -> list[tuple[int, int]]:
    """Back through the tables: at each the seat that made most of it; in the order in which they were added."""
    units = rows[0].shape[1] - 1
    left, found = [*budget, units], list[tuple[int, int]]()
    for table, row in zip(tables[::-1], rows[::-1], strict=True):
        ways = [(number, taken) for number in range(len(seats)) for taken in range(units + 1)]
        held = [_held_with(_without(left, seats[way[0]], way[1]), table, row[(*way, 0)]) for way in ways]
        best = ways[held.index(max(held))]
        left = _without(left, seats[best[0]], best[1])
        found.append(best)
    return found[::-1]


def _held_with(rest: Sequence[int], table: Counts, layers: int) -> int:
    """Layers of a stage and of what is left of the devices and units beside it."""
    return int(table[(*rest, 0)]) + int(layers) if min(rest) >= 0 and layers > 0 else 2 * int(_NEVER)


def _without(left: Sequence[int], seat: Seat, taken: int) -> list[int]:
    *devices, units = left
    return [*(count - seat.tp * (place == seat.pool) for place, count in enumerate(devices)), units - taken]
