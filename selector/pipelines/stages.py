"""What stages hold within the times that a goal leaves, and pipelines built of them. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from runtime.models import BYTES_PER_VALUE
from selector.pipelines.balance import Counts, LayerCapacity, StageSlot
from selector.pipelines.grid import CapacityLine, Grid, Numbered, Pairs, Pipeline
from selector.pipelines.operating import StageKind, Times

Values = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.intp]]
Role = tuple[bool, bool]
"""Whether a stage is the first (embedding), and the last (head)."""
Limits = tuple[Values, Values]
"""The longest *busy* at each point, and the longest *first* of each kind there."""
ENDLESS = np.full((1, 1), np.inf)
"""A *first* that nothing bounds, for every kind and point."""
_CROWDED = 1e-6
"""Layers of a format that fit where there is no room for one."""
_ROLES: list[Role] = [(False, False), (True, False), (False, True), (True, True)]


def at(limits: Limits, places: Any) -> Limits:
    """Limits at some of the points."""
    busy_s, first_s = limits
    return busy_s[places], first_s if first_s is ENDLESS else first_s[:, places]


def holds_of(grid: Grid, limits: Limits, layers: Callable[[Grid, Role, Limits, Values], Values]) -> LayerCapacity:
    """Layers by seat and units, over all that it may be made of."""
    timed = {last: in_time(grid, limits, last=last) for last in (False, True)}
    return LayerCapacity(*(_by_seat(grid, layers(grid, role, limits, timed[role[1]])) for role in _ROLES))


def in_time(grid: Grid, limits: Limits, *, last: bool) -> Values:
    """Layers that each kind of stage gets done within the limits at each point, whatever fits into memory."""
    busy = grid.busy.layers_within(limits[0], last=last)
    return np.minimum(busy, grid.first.layers_within(limits[1], last=last), out=busy)


def bound_by_kinds(grid: Grid, role: Role, limits: Limits, timed: Values) -> Values:
    """No fewer than ``layers_by_kinds``, with all units, and quick.

    Exact if stages share none and have one format.
    """
    alone = _alone(grid.capacity[role], grid.rations.allowed[-1:], timed)
    if not grid.rations.pairs:
        return alone
    mixed = _room(grid, role, limits).bound(grid.rations, grid.setting.model.num_layers)
    return np.concatenate([alone, mixed[None]], axis=1)


def layers_by_kinds(grid: Grid, role: Role, limits: Limits, timed: Values) -> Values:
    """Layers, by units, that each kind of stage holds in a role (first, last) within the limits.

    Then each pair of kinds.
    """
    alone = _alone(grid.capacity[role], grid.rations.allowed, timed)
    if not grid.rations.pairs:
        return alone
    mixed = _room(grid, role, limits).within(grid.rations, grid.setting.model.num_layers)
    return np.concatenate([alone, mixed], axis=1)


def _alone(capacity: Values, allowed: Counts, timed: Values) -> Values:
    """Layers, by units, that stages of one kind hold."""
    return np.asarray(np.clip(np.minimum(timed, np.floor(capacity)), 0, allowed))


def _room(grid: Grid, role: Role, limits: Limits) -> CapacityLine:
    """Of the pairs of kinds in a role within the limits: in the two times, and in memory."""
    base, other = np.array(grid.rations.pairs).T
    memory = np.maximum(_CROWDED, grid.capacity[role])
    lines = [
        grid.busy.shared(base, other, limits[0], last=role[1]),
        grid.first.shared(base, other, np.minimum(limits[1][base], limits[1][other]), last=role[1]),
        (memory[base], memory[base] / memory[other]),
    ]
    start, slope = (np.stack(side) for side in zip(*lines, strict=True))
    return CapacityLine(start, slope)


def _by_seat(grid: Grid, layers: Values) -> Counts:
    order, starts = _by_seats(grid.seat_of, grid.rations.pairs)
    most = np.maximum.reduceat(layers[:, order], starts, axis=1)
    return np.asarray(most.swapaxes(0, 1).astype(np.int16))


@lru_cache(maxsize=64)
def _by_seats(seat_of: tuple[StageSlot, ...], pairs: Pairs) -> tuple[Places, Places]:
    """Kinds and pairs of kinds in the order of their seats, and where each seat starts."""
    number = {stage_slot: place for place, stage_slot in enumerate(dict.fromkeys(seat_of))}
    numbers = np.array([number[stage_slot] for stage_slot in (*seat_of, *(seat_of[base] for base, _ in pairs))])
    order = np.argsort(numbers, kind="stable")
    return order, np.searchsorted(numbers[order], np.arange(len(number)))


def built(grid: Grid, ways: Sequence[tuple[int, int]], limits: Limits) -> Pipeline:
    """The pipeline on these seats, with the units they take, at the only point of the grid.

    With no layer too many.
    """
    ordered = _ordered([(grid.stage_slots[number], units) for number, units in ways])
    end = len(ordered) - 1
    fillings_of = cache(partial(_fillings, grid, limits))
    fillings = [fillings_of(way, (place == 0, place == end)) for place, way in enumerate(ordered)]
    stages = _trimmed(grid, fillings)
    return _pipeline(grid, stages, 0, _timed(grid, stages))


def _ordered(ways: Sequence[tuple[StageSlot, int]]) -> list[tuple[StageSlot, int]]:
    """The first and the last stay where they are.

    Between them pools stand together, so that data crosses over once.
    """
    if len(ways) < 3:
        return list(ways)
    first, *inner, last = ways
    ends = first[0].pool, last[0].pool
    near = {ends[0]: -1, ends[1]: 1} | ({ends[0]: 0} if ends[0] == ends[1] else {})
    return [first, *sorted(inner, key=lambda way: (near.get(way[0].pool, 0), way[0].pool, -way[0].tp)), last]


@dataclass(frozen=True, slots=True)
class _Filling:
    """What a stage may be made of: layers of a base kind, and of another."""

    base: int
    other: int
    held: list[int]
    """Layers in all, by how many are of the other kind."""

    def parts(self, layers: int) -> Numbered | None:
        """So many layers, as many as can be of the base."""
        others = next((number for number, most in enumerate(self.held) if most >= layers), None)
        if others is None:
            return None
        return tuple(part for part in ((self.base, layers - others), (self.other, others)) if part[1])


def _fillings(grid: Grid, limits: Limits, way: tuple[StageSlot, int], role: Role) -> list[_Filling]:
    """Of a stage on a seat with some units, at the only point of the grid."""
    (stage_slot, units), allowed = way, grid.rations.allowed[way[1], :, 0]
    timed = in_time(grid, limits, last=role[1])
    alone = layers_by_kinds(grid, role, limits, timed)[units, :, 0].astype(int).tolist()
    found = [_Filling(kind, kind, [alone[kind]]) for kind, on in enumerate(grid.seat_of) if on == stage_slot]
    if not grid.rations.pairs:
        return found
    room = _room(grid, role, limits)
    for number, (base, other) in enumerate(grid.rations.pairs):
        if grid.seat_of[base] == stage_slot and alone[len(grid.kinds) + number]:
            held = room.by_others(number, int(allowed[other]))
            found.append(_Filling(base, other, held))
    return found


def _trimmed(grid: Grid, fillings: Sequence[Sequence[_Filling]]) -> list[Numbered]:
    """Parts for each stage: of the widest weights that hold its layers.

    What is too much goes where it takes longest.
    """
    end = len(fillings) - 1

    def width(parts: Numbered) -> float:
        return sum(layers * BYTES_PER_VALUE[grid.kinds[kind].precision] for kind, layers in parts)

    def parts_for(place: int, layers: int) -> Numbered:
        return max(filter(None, (filling.parts(layers) for filling in fillings[place])), key=width)

    @cache
    def busy_s(place: int, layers: int) -> float:
        return float(_stage_s(grid.busy, parts_for(place, layers), last=place == end)[0])

    counts = [max(max(way.held) for way in ways) for ways in fillings]
    while (more := sum(counts) - grid.setting.model.num_layers) > 0:
        slowest = max(
            (place for place, count in enumerate(counts) if count > 1),
            key=lambda place: busy_s(place, counts[place]),
        )
        counts[slowest] -= min(counts[slowest] - 1, max(1, more // (2 * len(counts))))
    return [parts_for(place, count) for place, count in enumerate(counts)]


def running(grid: Grid, stages: Sequence[Sequence[tuple[StageKind, int]]]) -> list[Pipeline]:
    """A given pipeline at every batch limit with which it fits; each stage by its kinds with their layers.

    A stage has several kinds where its layers differ in precision; the first says what it computes in.
    """
    end = len(stages) - 1
    places = np.flatnonzero(grid.points.stages == len(stages))
    cut_grid = grid.taken(places)
    fits = np.ones(len(places), dtype=bool)
    numbers = [tuple((grid.kinds.index(kind), layers) for kind, layers in parts) for parts in stages]
    for place, parts in enumerate(numbers):
        rooms = [np.maximum(1e-9, cut_grid.capacity[place == 0, place == end][kind]) for kind, _ in parts]
        fits &= sum(layers / room for (_, layers), room in zip(parts, rooms, strict=True)) <= 1
    times = _timed(cut_grid, numbers)
    return [_pipeline(cut_grid, numbers, int(place), times) for place in np.flatnonzero(fits)]


def _pipeline(grid: Grid, stages: Sequence[Numbered], place: int, times: tuple[Values, Values]) -> Pipeline:
    """At one of the points."""
    return Pipeline(
        tuple(tuple((grid.kinds[kind], layers) for kind, layers in parts) for parts in stages),
        float(grid.points.batch[place]),
        float(times[0][place]),
        float(times[1][place]),
    )


def _timed(grid: Grid, stages: Sequence[Numbered]) -> tuple[Values, Values]:
    """The longest *busy* and the longest *first* of the stages, at every point."""
    end = len(stages) - 1
    busy_s = np.zeros(len(grid.points))
    first_s = np.zeros(len(grid.points))
    for place, parts in enumerate(stages):
        busy_s = np.maximum(busy_s, _stage_s(grid.busy, parts, last=place == end))
        first_s = np.maximum(first_s, _stage_s(grid.first, parts, last=place == end))
    return busy_s, first_s


def _stage_s(times: Times, parts: Numbered, *, last: bool) -> Values:
    (kind, layers), *others = parts
    return np.asarray(times.of(kind, layers, last=last) + sum(more * times.layer_s[other] for other, more in others))
