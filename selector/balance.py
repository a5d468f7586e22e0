"""How many layers pipelines hold within given times, at many operating points and device counts at once. Pure.

Layers are alike, so within the times that a goal leaves each kind of stage holds so many and no more. The most layers of ``p``
stages on exactly so many devices of each pool is a max-plus knapsack over stages; the first stage (it holds the embedding) and
the last (it has the head) are added at the end. A pipeline of ``P`` stages exists at a point if and only if all layers fit.
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
    """The most layers of a stage on each seat (rows) at each operating point (columns), by its role."""

    inner: Counts
    first: Counts
    last: Counts
    only: Counts

    def taken(self, places: Any) -> "Holds":
        """At some of the points."""
        return Holds(*(row[:, places] for row in (self.inner, self.first, self.last, self.only)))


def most_layers(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: Sequence[int]) -> Counts:
    """The most layers by point and device counts (each up to the budget); negative where no pipeline has so many stages.

    ``stages`` has the number of stages at each point and does not fall. O(points x stages x seats x product of the counts).
    """
    found = _none(len(stages), budget)
    size = max(1, _BLOCK // math.prod(found.shape[1:]))
    for start in range(0, len(stages), size):
        part = slice(start, start + size)
        found[part] = _most_layers(holds.taken(part), seats, budget, stages[part])
    return found


def _most_layers(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: Sequence[int]) -> Counts:
    found = _none(len(stages), budget)
    inner = _nothing(len(stages), budget)
    depth = 0
    for number, start, end in _runs(stages):
        if number == 1:
            found[start:end] = _with(inner[start:end], holds.only[:, start:end], seats)
            continue
        while depth < number - 2:
            inner[start:] = _with(inner[start:], holds.inner[:, start:], seats)
            depth += 1
        begun = _with(inner[start:end], holds.first[:, start:end], seats)
        found[start:end] = _with(begun, holds.last[:, start:end], seats)
    return found


def _nothing(points: int, budget: Sequence[int]) -> Counts:
    """No stage yet: no layers on no devices."""
    table = _none(points, budget)
    table.T[(0,) * len(budget)] = 0
    return table


def _none(points: int, budget: Sequence[int]) -> Counts:
    """A table without a pipeline; what is long lies together in memory."""
    shape = (points, *(count + 1 for count in budget))
    return np.full(shape, _NEVER, dtype=np.int16, order="F" if points > shape[-1] else "C")


def _runs(stages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each number of stages with where its points start and end."""
    edges = [0, *(place for place, (a, b) in enumerate(pairwise(stages), 1) if a != b), len(stages)]
    for start, end in pairwise(edges):
        if start < end:
            yield int(stages[start]), start, end


def _with(table: Counts, held: Counts, seats: Sequence[Seat]) -> Counts:
    """One more stage on whichever seat makes most of it."""
    grown = np.full_like(table, _NEVER)
    for seat, row in zip(seats, held, strict=True):
        if row.max(initial=0) < 1:
            continue
        into, source = _shifted(seat, table.ndim)
        layers = np.where(row > 0, row, _NEVER).reshape(-1, *[1] * (table.ndim - 1))
        np.maximum(grown[into], table[source] + layers, out=grown[into])
    return np.maximum(grown, _NEVER)


def _shifted(seat: Seat, dimensions: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a stage on a seat can be added, and what it is added to."""
    into = [slice(None)] * dimensions
    source = list(into)
    into[1 + seat.pool], source[1 + seat.pool] = slice(seat.tp, None), slice(None, -seat.tp)
    return tuple(into), tuple(source)


def fullest(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: int) -> list[int]:
    """The seats, from the first stage to the last, of a pipeline that holds ``most_layers`` at the only point of ``holds``."""
    tables = [_nothing(1, budget)]
    if stages == 1:
        return _walked(tables, [holds.only], seats, budget)
    rows = [*[holds.inner] * (stages - 2), holds.first, holds.last]
    for row in rows[:-1]:
        tables.append(_with(tables[-1], row, seats))
    *inner, first, last = _walked(tables, rows, seats, budget)
    return [first, *inner, last]


def _walked(
    tables: list[Counts], rows: list[Counts], seats: Sequence[Seat], budget: Sequence[int]
) -> list[int]:
    """Back through the tables: at each the seat that made most of it; in the order in which they were added."""
    left, found = list(budget), list[int]()
    for table, row in zip(tables[::-1], rows[::-1], strict=True):
        held = [_held_with(seat, table, row[number, 0], left) for number, seat in enumerate(seats)]
        best = held.index(max(held))
        left = _without(left, seats[best])
        found.append(best)
    return found[::-1]


def _held_with(seat: Seat, table: Counts, layers: int, left: Sequence[int]) -> int:
    """Layers of the devices that are left where a seat takes its part of them."""
    rest = _without(left, seat)
    return int(table[(0, *rest)]) + int(layers) if min(rest) >= 0 and layers > 0 else 2 * int(_NEVER)


def _without(left: Sequence[int], seat: Seat) -> list[int]:
    return [count - seat.tp * (place == seat.pool) for place, count in enumerate(left)]
