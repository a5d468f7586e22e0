"""How many layers pipelines hold within given times. Pure.

At many operating points and device counts at once.

Layers are alike, so within the times that a goal leaves each kind of stage holds so many and no more. The most layers of ``p``
stages on exactly so many devices of each pool is a max-plus knapsack over stages; the first stage (it holds the embedding) and
the last (it has the head) are added first. A pipeline of ``P`` stages exists at a point if and only if all layers fit.

Beside devices a stage may take *units* of one thing more (``quality``), of which a pipeline has at most so many.
"""

import math
import operator
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Counts = np.ndarray[Any, np.dtype[np.int16]]
Cell = tuple[int, ...]
"""Units, then devices of each pool."""
Slices = tuple[slice, ...]

MOST_STAGES = 8
_NEVER = np.int16(-3000)
"""Layers of what cannot be; eight of them still fit into 16 bits."""


@dataclass(frozen=True, slots=True)
class StageSlot:
    """Devices that a stage takes, whatever it does with them."""

    pool: int
    tp: int


@dataclass(frozen=True, slots=True)
class LayerCapacity:
    """The most layers of a stage, for each role.

    By slot, units it takes (from none to all) and operating point.

    More units never hold less.
    """

    inner: Counts
    first: Counts
    last: Counts
    only: Counts

    @property
    def units(self) -> int:
        """All there are."""
        return int(self.inner.shape[1]) - 1


def most_layers(
    holds: LayerCapacity, stage_slots: Sequence[StageSlot], budget: Sequence[int], stages: Sequence[int]
) -> Counts:
    """The most layers by point and device counts (each up to the budget).

    Negative where no pipeline has so many stages.

    ``stages`` has the number of stages at each point and does not fall. O(points x stages x seats x product of the counts), and
    times the square of the units.
    """
    found = _never(len(stages), tuple(count + 1 for count in budget))
    room = _Room(tuple(stage_slots), (holds.units, *budget))
    for here, table in _tables(holds, room, stages):
        found[here, *map(slice, table.shape[2:])] = table[:, -1]
    return found


def _tables(holds: LayerCapacity, room: "_Room", stages: Sequence[int]) -> Iterator[tuple[slice, Counts]]:
    """The points of each number of stages, and their table.

    The ends come first: so inner stages serve all that are longer.
    """
    start = bisect_right(stages, 1)
    yield slice(start), _with(room.nothing(start), _Added.of(holds.only[..., :start]), room, final=True)
    if start == len(stages):
        return
    table = _with(room.nothing(len(stages) - start), _Added.of(holds.first[..., start:]), room)
    inner = _Added.of(holds.inner)
    added = _Added.of(holds.last)
    for number in range(2, stages[-1] + 1):
        end = bisect_right(stages, number)
        ending = table[: end - start]
        table = table[end - start :]
        if len(ending):
            yield slice(start, end), _with(ending, added.at(slice(start, end)), room, final=True)
        if len(table):
            table = _with(table, added.at(slice(end, None)), room)
        start = end
        added = inner


@dataclass(frozen=True, slots=True)
class _Added:
    """The layers that one more stage may add, by way (a seat and units) and point."""

    ways: tuple[tuple[int, int], ...]
    layers: Counts

    @classmethod
    def of(cls, held: Counts) -> "_Added":
        """From layers by seat, units and point; more units for no more layers are of no use."""
        gained = np.diff(held, axis=1, prepend=0) > 0 if held.shape[1] > 1 else held > 0
        stage_slots, units = np.nonzero(gained.any(axis=-1))
        layers = held[stage_slots, units]
        layers = np.where(layers > 0, layers, _NEVER)
        return cls(tuple(zip(stage_slots.tolist(), units.tolist(), strict=True)), layers)

    def at(self, points: slice) -> "_Added":
        """At some of the points."""
        return _Added(self.ways, self.layers[:, points])


@dataclass(frozen=True, slots=True)
class _Room:
    """What stages may take. A table is by point and cell, and reaches only as far as its stages do."""

    stage_slots: tuple[StageSlot, ...]
    most: Cell

    def nothing(self, points: int) -> Counts:
        """No stage yet: no layers on no devices, whatever units are left."""
        units, *counts = self.most
        return np.zeros((points, units + 1, *[1] * len(counts)), dtype=np.int16)


def _never(points: int, cells: Cell) -> Counts:
    """A table of what cannot be.

    Whichever are more, points or cells, lie side by side in memory: long loops are quick.
    """
    if points > math.prod(cells[-2:]):
        return np.moveaxis(np.full((*cells, points), _NEVER, dtype=np.int16), -1, 0)
    return np.full((points, *cells), _NEVER, dtype=np.int16)


def _with(table: Counts, added: _Added, room: _Room, *, final: bool = False) -> Counts:
    """One more stage, in whichever way makes most of it; the ``final`` one with whatever units are left."""
    cells, shifts = _shifts(room, table.shape[1:], final)
    grown = _never(len(table), cells)
    layers = added.layers.reshape(*added.layers.shape, *[1] * len(cells))
    for way, more in zip(added.ways, layers, strict=True):
        if way in shifts:
            into, source = shifts[way]
            part = grown[into]
            np.maximum(part, table[source] + more, out=part)
    return grown


@lru_cache(maxsize=512)
def _shifts(room: _Room, cells: Cell, final: bool) -> tuple[Cell, dict[tuple[int, int], tuple[Slices, Slices]]]:
    """How far a table of some cells reaches with one more stage.

    And for each way where in it that leads, and from where.
    """
    units, *counts = cells
    widest = [
        max((stage_slot.tp for stage_slot in room.stage_slots if stage_slot.pool == pool), default=0)
        for pool in range(len(counts))
    ]
    grown = [min(count + tp, most + 1) for count, tp, most in zip(counts, widest, room.most[1:], strict=True)]
    found = dict[tuple[int, int], tuple[Slices, Slices]]()
    for number, stage_slot in enumerate(room.stage_slots):
        kept = min(counts[stage_slot.pool], grown[stage_slot.pool] - stage_slot.tp)
        for taken in range(units if kept > 0 else 0):
            into = list(map(slice, counts))
            source = list(map(slice, counts))
            into[stage_slot.pool], source[stage_slot.pool] = (
                slice(stage_slot.tp, stage_slot.tp + kept),
                slice(kept),
            )
            left = slice(units - taken - 1 if final else 0, units - taken)
            reached = slice(0 if final else taken, None)
            found[number, taken] = (slice(None), reached, *into), (slice(None), left, *source)
    return (1 if final else units, *grown), found


def fullest(
    holds: LayerCapacity, stage_slots: Sequence[StageSlot], budget: Sequence[int], stages: int
) -> list[tuple[int, int]]:
    """The slots and their units of a pipeline that holds ``most_layers`` at the only point.

    First stage to last.
    """
    room = _Room(tuple(stage_slots), (holds.units, *budget))
    parts = [holds.only] if stages == 1 else [holds.first, holds.last, *[holds.inner] * (stages - 2)]
    tables = [room.nothing(1)]
    for held in parts[:-1]:
        tables.append(_with(tables[-1], _Added.of(held), room))
    first, *others = _walked(tables, parts, room)
    return [first, *others[1:], *others[:1]]


def _walked(tables: list[Counts], parts: list[Counts], room: _Room) -> list[tuple[int, int]]:
    """Back through the tables: at each the way that made most of it.

    In the order in which they were added.
    """
    cell = room.most
    found = list[tuple[int, int]]()
    for table, held in zip(tables[::-1], parts[::-1], strict=True):
        ways = {
            way: before
            for way in zip(*map(np.ndarray.tolist, np.nonzero(held[..., 0] > 0)), strict=True)
            if (before := _before(cell, room.stage_slots[way[0]], way[1]))
            and all(map(operator.lt, before, table.shape[1:]))
        }
        best = max(ways, key=lambda way: int(table[(0, *ways[way])]) + int(held[(*way, 0)]))
        cell = ways[best]
        found.append(best)
    return found[::-1]


def _before(cell: Cell, stage_slot: StageSlot, units: int) -> Cell | None:
    """The cell before a stage took its devices and units; None if it has not so many."""
    before = list(cell)
    before[0] -= units
    before[stage_slot.pool + 1] -= stage_slot.tp
    return tuple(before) if min(before) >= 0 else None
