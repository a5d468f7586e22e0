"""Layers in several weight formats under a bound on the mean quality loss: how many of each a stage may have and hold. Pure.

What layers may lose in all is cut into equal *units*, of which a stage takes some, like devices. Every layer is granted a loss,
and units pay for what its format loses beyond that: a grant of 0 quantises some layers among full ones, and one of a format's
own loss has all that lose no more for nothing, so that uniform pipelines do not depend on how the units are cut. Each grant is
a way to deal the bound; the search tries all of them. A stage has layers of one format, or of two where one needs no units.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.models import Precision
from selector.pipelines.operating import StageKind

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
    def under(
        cls, most: float, kinds: Sequence[StageKind], losses: Values, granted: Values, layers: int
    ) -> "Rations":
        """With a mean loss of at most so much, where points grant every layer a loss (at most as much); by kind and by point."""
        beyond = np.maximum(0.0, losses[:, None] - granted)
        units = UNITS if beyond.any() else 0
        spent = np.arange(units + 1)[:, None, None] / max(1, units) * (most - granted) * layers
        bought = np.divide(spent, beyond, where=beyond > 0, out=np.full((units + 1, *beyond.shape), np.inf))
        return cls(
            np.minimum(layers, np.floor(bought + _CLOSE)).astype(np.int16), _pairs(kinds, losses, most)
        )

    @property
    def shared(self) -> bool:
        """Whether stages may be of two formats, or have to share units."""
        return bool(self.pairs) or len(self.allowed) > 1

    def taken(self, places: Any) -> "Rations":
        """At some of the points."""
        return Rations(self.allowed[..., places], self.pairs)


def grants(losses: Values, most: float) -> Values:
    """The losses that may be granted to every layer under a bound: those of the formats; one will do if it covers all."""
    kept = np.unique(losses[losses <= most])
    return kept[-1:] if kept.size and kept[-1] == losses.max() else np.append(kept, [0.0] * (not kept.size))


def unmatched(kinds: Sequence[StageKind], figures: Values) -> list[int]:
    """The kinds, by number, that no other on their seat matches in everything; figures (less is better) by what, kind, point."""
    found = list[int]()
    for kind in np.lexsort((np.arange(len(kinds)), figures.sum(axis=(0, 2)))).tolist():
        rivals = [one for one in found if _alike(kinds[one], kinds[kind])]
        if not any((figures[:, one] <= figures[:, kind]).all() for one in rivals):
            found.append(kind)
    return sorted(found)


def _alike(one: StageKind, other: StageKind) -> bool:
    """Whether they sit on the same devices and pass on values of one width."""
    return (one.pool, one.tp, _wide(one)) == (other.pool, other.tp, _wide(other))


def _pairs(kinds: Sequence[StageKind], losses: Values, most: float) -> Pairs:
    """Kinds on one seat of which one may be granted its loss, alike in what goes between layers."""
    return tuple(
        (base, other)
        for base, other in itertools.permutations(range(len(kinds)), 2)
        if losses[base] < losses[other] and losses[base] <= most and _alike(kinds[base], kinds[other])
    )


def _wide(kind: StageKind) -> bool:
    return Precision.named(kind.precision, kind.kind).activations == "fp32"


@dataclass(frozen=True, slots=True)
class Room:
    """How many layers of a base format a stage has room for beside ``n`` of another: the least of lines in ``n``."""

    start: Values
    """By line, pair of kinds and point."""
    slope: Values
    """Layers of the base that one of the other takes the place of."""

    def held(self, others: Values) -> Values:
        """Layers in all, with fractions, by how many are of the other format: any numbers of them by pair and point."""
        left = self.start[:, None] - self.slope[:, None] * others
        return np.asarray(others + left.min(axis=0))

    def fullest(self, layers: int) -> Values:
        """With how many of the other format, up to so many, a stage holds most; up to there, more of them never hold less."""
        with np.errstate(invalid="ignore", divide="ignore"):
            alone = np.clip(np.floor((self.start / self.slope).min(axis=0) + _CLOSE), 0, layers)
            one, two = np.array(list(itertools.combinations(range(len(self.start)), 2))).T
            crossing = np.nan_to_num(
                (self.start[one] - self.start[two]) / (self.slope[one] - self.slope[two])
            )
        inside = np.clip(crossing, 0, alone)
        tried = np.concatenate([[0 * alone, alone], np.floor(inside), np.ceil(inside)])
        best = self.held(tried).argmax(axis=0)
        return np.asarray(np.take_along_axis(tried, best[None], axis=0)[0])

    def bound(self, rations: Rations, layers: int) -> Values:
        """No fewer than the most layers with all units, by pair of kinds and point: each line taken at its own best."""
        _, other = np.array(rations.pairs).T
        gained = (1 - self.slope) * np.minimum(layers, rations.allowed[-1, other])
        return np.asarray(
            np.clip(np.floor((self.start + np.maximum(0, gained)).min(axis=0) + _CLOSE), 0, layers)
        )

    def within(self, rations: Rations, layers: int) -> Values:
        """The most layers by units, pair of kinds and point."""
        base, other = np.array(rations.pairs).T
        others = np.minimum(self.fullest(layers), rations.allowed[:, other])
        return np.asarray(np.clip(np.floor(self.held(others) + _CLOSE), 0, rations.allowed[0, base]))

    def by_others(self, pair: int, most: int) -> list[int]:
        """Layers in all with each number of the other format, up to so many, at the only point."""
        others = np.arange(most + 1)
        one = Room(self.start[:, [pair]], self.slope[:, [pair]])
        held = np.floor(one.held(others[:, None, None].astype(float))[:, 0, 0] + _CLOSE)
        return list(map(int, held[held >= others]))
