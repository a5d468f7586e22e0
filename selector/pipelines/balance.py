"""How many layers pipelines hold within given times, at many operating points and device counts at once. Pure.

Layers are alike, so within the times that a goal leaves each kind of stage holds so many and no more. The most layers of ``p``
stages on exactly so many devices of each pool is a max-plus knapsack over stages; the first stage (it holds the embedding) and
the last (it has the head) are added at the end. A pipeline of ``P`` stages exists at a point if and only if all layers fit.

Beside devices a stage may take *units* of one thing more (``quality``), of which a pipeline has at most so many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

Counts = np.ndarray[Any, np.dtype[np.int16]]
Rows = np.ndarray[Any, np.dtype[np.intp]]

MOST_STAGES = 8
_NEVER = np.int16(-3000)
"""Layers of what cannot be; eight of them still fit into 16 bits."""
_BLOCK = 2**19
"""Values of a table that is worked on at a time, once for every way to add a stage: a few MB."""


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
    room = _Room(tuple(seats), tuple(budget), holds.units)
    size = max(1, _BLOCK // room.rows)
    parts = [slice(start, start + size) for start in range(0, len(stages), size)]
    tables = [_most_layers(holds.taken(part), room, stages[part]) for part in parts]
    none = np.empty((len(room.final), 0), dtype=np.int16)
    found = np.concatenate([none, *tables], axis=-1)
    return np.moveaxis(found.reshape(*room.shape[:-1], len(stages)), -1, 0)


@dataclass(frozen=True, slots=True)
class _Room:
    """The rows of a table: device counts and units, and one last row for what cannot be."""

    seats: tuple[Seat, ...]
    budget: tuple[int, ...]
    units: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(count + 1 for count in self.budget), self.units + 1)

    @property
    def rows(self) -> int:
        return math.prod(self.shape)

    @property
    def final(self) -> Rows:
        """The rows with all units."""
        return np.arange(self.units, self.rows, self.units + 1)

    def nothing(self, points: int) -> Counts:
        """No stage yet: no layers on no devices, whatever units are left. By row and point."""
        table = np.full((self.rows + 1, points), _NEVER, dtype=np.int16)
        table[: self.units + 1] = 0
        return table


@lru_cache(maxsize=64)
def _sources(room: _Room) -> Rows:
    """The row that a stage is added to, by seat and units taken, and by the row that it makes."""
    rows = np.arange(room.rows).reshape(room.shape)
    found = np.full((len(room.seats), room.units + 1, *room.shape), room.rows)
    for number, seat in enumerate(room.seats):
        for taken in range(room.units + 1):
            into, source = [slice(None)] * rows.ndim, [slice(None)] * rows.ndim
            into[seat.pool], source[seat.pool] = slice(seat.tp, None), slice(None, -seat.tp)
            into[-1], source[-1] = slice(taken, None), slice(None, room.units + 1 - taken)
            found[number, taken][tuple(into)] = rows[tuple(source)]
    return found.reshape(-1, room.rows)


def _most_layers(holds: Holds, room: _Room, stages: Sequence[int]) -> Counts:
    """By row with all units, then point."""
    found = np.full((len(room.final), len(stages)), _NEVER, dtype=np.int16)
    inner, depth, final = room.nothing(len(stages)), 0, room.final
    for number, start, end in _runs(stages):
        here = slice(start, end)
        if number == 1:
            found[:, here] = _with(inner[:, here], holds.only[..., here], room, final)
            continue
        while depth < number - 2:
            inner[:-1, start:] = _with(inner[:, start:], holds.inner[..., start:], room)
            depth += 1
        begun = inner[:, here].copy()
        begun[:-1] = _with(begun, holds.first[..., here], room)
        found[:, here] = _with(begun, holds.last[..., here], room, final)
    return found


def _runs(stages: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each number of stages with where its points start and end."""
    edges = [0, *(place for place, (a, b) in enumerate(pairwise(stages), 1) if a != b), len(stages)]
    for start, end in pairwise(edges):
        if start < end:
            yield int(stages[start]), start, end


def _with(table: Counts, held: Counts, room: _Room, rows: Any = slice(None)) -> Counts:
    """One more stage on whichever seat, with whatever units, makes most of it; at some of the rows."""
    gained = np.diff(held, axis=1, prepend=0) > 0  # more units for no more layers are of no use
    ways = np.flatnonzero(gained.any(axis=-1))
    if not len(ways):
        return np.full((len(table[:-1][rows]), table.shape[-1]), _NEVER, dtype=np.int16)
    layers = held.reshape(-1, held.shape[-1])[ways, None]
    grown = table[_sources(room)[ways][:, rows]]
    grown += np.where(layers > 0, layers, _NEVER)
    return np.asarray(np.maximum(grown.max(axis=0), _NEVER))


def fullest(holds: Holds, seats: Sequence[Seat], budget: Sequence[int], stages: int) -> list[tuple[int, int]]:
    """The seats and the units they take, first stage to last, of a pipeline that holds ``most_layers`` at the only point."""
    room = _Room(tuple(seats), tuple(budget), holds.units)
    tables = [room.nothing(1)]
    if stages == 1:
        return _walked(tables, [holds.only], room)
    parts = [*[holds.inner] * (stages - 2), holds.first, holds.last]
    for held in parts[:-1]:
        tables.append(np.concatenate([_with(tables[-1], held, room), tables[0][-1:]]))
    *inner, first, last = _walked(tables, parts, room)
    return [first, *inner, last]


def _walked(tables: list[Counts], parts: list[Counts], room: _Room) -> list[tuple[int, int]]:
    """Back through the tables: at each the way that made most of it; in the order in which they were added."""
    row, found = room.rows - 1, list[tuple[int, int]]()
    sources = _sources(room)
    for table, held in zip(tables[::-1], parts[::-1], strict=True):
        layers = held[..., 0].reshape(-1)
        made = np.where(layers > 0, table[sources[:, row], 0] + layers, 2 * _NEVER)
        way = int(made.argmax())
        row = int(sources[way, row])
        found.append(divmod(way, room.units + 1))
    return found[::-1]
