"""The best split of layers over pipeline stages of mixed devices: exact, with a certificate. Pure.

A stage of ``n`` layers is busy ``fixed_s + n layer_s`` in each step (the last one ``last_s`` more), and the slowest stage sets
the pace. Within a time ``T`` a kind of stage holds so many layers; a max-plus knapsack over stages and devices says how many fit
in all. That number never falls as ``T`` grows and changes only at the finitely many times at which one stage holds one layer
more, so bisection over those finds the smallest ``T`` at which all layers fit. The certificate is the next smaller time, with
the layers that fit there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[np.int64]]

_NEVER = -(10**9)


@dataclass(frozen=True, slots=True)
class StageKind:
    """One way to build a stage."""

    kind: str
    tp: int
    precision: str
    fixed_s: float
    layer_s: float
    last_s: float
    """What the output head adds where it is the last stage."""
    capacity: int
    """Layers that its memory holds."""

    def layers_within(self, time_s: float, *, last: bool) -> int:
        """How many layers it gets done in a time."""
        left_s = time_s - self.fixed_s - (self.last_s if last else 0.0)
        return max(0, min(self.capacity, int(left_s / self.layer_s + 1e-9)))

    def time_s(self, layers: int, *, last: bool) -> float:
        """How long it takes."""
        return self.fixed_s + layers * self.layer_s + (self.last_s if last else 0.0)


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why nothing is faster: any faster pipeline has every stage done within ``time_s``, and so holds too few layers."""

    time_s: float
    layers: int


@dataclass(frozen=True, slots=True)
class Split:
    """Stages in order with their layers."""

    stages: tuple[tuple[StageKind, int], ...]
    slowest_s: float
    certificate: Certificate


def fastest(
    kinds: Sequence[StageKind], devices: Mapping[str, int], layers: int, most_stages: int
) -> Split | None:
    """The pipeline of at most so many stages, on at most so many devices of each kind, whose slowest stage is fastest.

    None if no such pipeline holds all layers. O(log(kinds x layers) x stages x kinds x product of the device counts).
    """
    times = np.unique(
        [
            kind.time_s(count, last=last)
            for kind in kinds
            for count in range(1, min(kind.capacity, layers) + 1)
            for last in (False, True)
        ]
    )
    if not times.size or _Knapsack(kinds, devices, float(times[-1]), most_stages).layers < layers:
        return None
    low, high = -1, len(times) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _Knapsack(kinds, devices, float(times[middle]), most_stages).layers >= layers:
            high = middle
        else:
            low = middle
    best = _Knapsack(kinds, devices, float(times[high]), most_stages)
    below_s = float(times[low]) if low >= 0 else 0.0
    fewer = _Knapsack(kinds, devices, below_s, most_stages).layers
    return Split(_trimmed(best.stages(), layers), float(times[high]), Certificate(below_s, fewer))


def _trimmed(stages: list[tuple[StageKind, int]], layers: int) -> tuple[tuple[StageKind, int], ...]:
    """The stages with no layer too many: taken from whichever is slowest, one at a time; an empty stage goes."""
    counts = [count for _, count in stages]
    for _ in range(sum(counts) - layers):
        busy = [
            kind.time_s(count, last=place == len(stages) - 1) if count else -1.0
            for place, ((kind, _), count) in enumerate(zip(stages, counts, strict=True))
        ]
        busy[-1] = busy[-1] if counts[-1] > 1 else -1.0  # the last stage stays: it has the head
        counts[int(np.argmax(busy))] -= 1
    return tuple((kind, count) for (kind, _), count in zip(stages, counts, strict=True) if count)


class _Knapsack:
    """How many layers fit within a time, for every number of stages and devices."""

    def __init__(
        self, kinds: Sequence[StageKind], devices: Mapping[str, int], time_s: float, most_stages: int
    ) -> None:
        self.names = list(devices)
        self.budget = tuple(devices.values())
        self.most = most_stages
        self.inner = self._best(kinds, time_s, last=False)
        self.final = self._best(kinds, time_s, last=True)
        self.tables = self._filled()
        self.layers = self._total()[0]

    def _best(self, kinds: Sequence[StageKind], time_s: float, *, last: bool) -> list[tuple[StageKind, int]]:
        """For each device kind and TP degree the stage that holds most layers, if it holds any."""
        found: dict[tuple[str, int], tuple[StageKind, int]] = {}
        for kind in kinds:
            count = kind.layers_within(time_s, last=last)
            fits = kind.kind in self.names and kind.tp <= self.budget[self.names.index(kind.kind)]
            if fits and count > found.get((kind.kind, kind.tp), (kind, 0))[1]:
                found[kind.kind, kind.tp] = (kind, count)
        return list(found.values())

    def _filled(self) -> list[Table]:
        """Tables of the most layers in 0, 1, ... stages before the last, by the devices they may use."""
        tables = [np.zeros([count + 1 for count in self.budget], dtype=np.int64)]
        for _ in range(self.most - 1):
            table = tables[-1].copy()
            for kind, count in self.inner:
                into, source = self._shifted(kind)
                np.maximum(table[into], tables[-1][source] + count, out=table[into])
            if np.array_equal(table, tables[-1]):
                break
            tables.append(table)
        return tables

    def _shifted(self, kind: StageKind) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Where a stage of a kind can be added, and what it is added to."""
        axis = self.names.index(kind.kind)
        into = [slice(None)] * len(self.names)
        source = list(into)
        into[axis], source[axis] = slice(kind.tp, None), slice(None, -kind.tp)
        return tuple(into), tuple(source)

    def _total(self) -> tuple[int, StageKind | None]:
        """The most layers in all, and the last stage that it takes."""
        best: tuple[int, StageKind | None] = (_NEVER, None)
        for kind, count in self.final:
            total = count + int(self.tables[-1][self._without(self.budget, kind)])
            if total > best[0]:
                best = (total, kind)
        return best

    def _without(self, left: tuple[int, ...], kind: StageKind) -> tuple[int, ...]:
        axis = self.names.index(kind.kind)
        return (*left[:axis], left[axis] - kind.tp, *left[axis + 1 :])

    def stages(self) -> list[tuple[StageKind, int]]:
        """The stages that reach the total, the last one at the end; walked back through the tables."""
        last = self._total()[1]
        if last is None:
            return []
        found = [next(one for one in self.final if one[0] is last)]
        left = self._without(self.budget, last)
        for number in range(len(self.tables) - 1, 0, -1):
            if self.tables[number][left] == self.tables[number - 1][left]:
                continue
            for kind, count in self.inner:
                rest = self._without(left, kind)
                if min(rest) >= 0 and self.tables[number - 1][rest] + count == self.tables[number][left]:
                    found.append((kind, count))
                    left = rest
                    break
        return found[::-1]
