"""Distributions of seconds: sums of independent ones on a grid, mixtures, percentiles. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selector.performance.lengths import Atoms, Values

PERCENTILES = ("p50", "p90", "p95", "p99")
_CELLS = 2048
_POINTS = 192

Reading = dict[str, float]
"""``mean`` and percentiles, in seconds."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Chances of seconds by cell; what lies beyond the grid is left out."""

    cell_s: float
    chances: Values

    @classmethod
    def reaching(cls, most_s: float, chances: Values, width_s: float) -> "Spread":
        """A grid up to ``most_s``; the chances are given by cells of another width, each even within itself."""
        cell_s = most_s / _CELLS
        edges = np.arange(len(chances) + 1) * width_s
        below = np.concatenate([[0.0], np.cumsum(chances)])
        return cls(cell_s, np.diff(np.interp(np.arange(_CELLS + 1) * cell_s, edges, below)))

    def plus(self, other: Atoms) -> "Spread":
        """The sum with an independent one of weighted values, each split between two cells so that the mean stays."""
        places = np.minimum(other.values / self.cell_s, _CELLS - 2)
        below = places.astype(int)
        above = places - below
        if len(places) == 1:
            moved = _shifted(self.chances, int(below[0])), _shifted(self.chances, int(below[0]) + 1)
            return replace(self, chances=(1 - above[0]) * moved[0] + above[0] * moved[1])
        kernel = np.bincount(below, weights=other.weights * (1 - above), minlength=_CELLS)
        kernel += np.bincount(below + 1, weights=other.weights * above, minlength=_CELLS)
        product = np.fft.irfft(
            np.fft.rfft(self.chances, 2 * _CELLS) * np.fft.rfft(kernel, 2 * _CELLS), 2 * _CELLS
        )
        return replace(self, chances=np.clip(product[:_CELLS], 0.0, None))

    def plus_even(self, most_s: float) -> "Spread":
        """The sum with an independent one that is even from 0 to ``most_s``."""
        cells = max(1.0, most_s / self.cell_s)
        below = np.cumsum(self.chances)
        earlier = np.interp(np.arange(_CELLS) - cells, np.arange(_CELLS), below, left=0.0)
        return replace(self, chances=(below - earlier) / cells)

    def joined(self, other: "Spread") -> "Spread":
        """The chances of both, on the same grid."""
        return replace(self, chances=self.chances + other.chances)

    def wider(self, more_s: float) -> "Spread":
        """The same on a grid that reaches so much further."""
        return Spread.reaching(_CELLS * self.cell_s + more_s, self.chances, self.cell_s)

    def between(self, shares: Values) -> Values:
        """The mean between each two of these quantiles."""
        below = np.concatenate([[0.0], np.cumsum(self.chances / self.chances.sum())])
        sums = np.concatenate([[0.0], np.cumsum(np.diff(below) * self._places)])
        means: Values = np.diff(np.interp(shares, below, sums)) / np.diff(shares)
        return means

    def reading(self) -> Reading:
        """Mean and percentiles."""
        return _reading(self._places, self.chances)

    @property
    def _places(self) -> Values:
        return np.arange(0.5, _CELLS) * np.float64(self.cell_s)


def _shifted(values: Values, cells: int) -> Values:
    """Zeros first."""
    return np.concatenate([np.zeros(min(cells, _CELLS)), values[: max(0, _CELLS - cells)]])


def betas(support: tuple[float, float], means: Values, variances: Values, weights: Values) -> Reading:
    """A mixture of beta distributions over an interval, by their moments."""
    low, width = support[0], support[1] - support[0]
    centres = np.clip((means - low) / width, 1e-4, 1 - 1e-4)
    spreads = np.clip(variances / width**2, 1e-8, 0.98 * centres * (1 - centres))
    firmness = centres * (1 - centres) / spreads - 1
    angles = (np.arange(_POINTS) + 0.5) * (
        np.pi / 2 / _POINTS
    )  # squared sines are dense where betas are steep
    logs = np.outer(2 * centres * firmness - 1, np.log(np.sin(angles)))
    logs += np.outer(2 * (1 - centres) * firmness - 1, np.log(np.cos(angles)))
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    found = _reading(low + width * np.sin(angles) ** 2, (weights / chances.sum(axis=1)) @ chances)
    return {**found, "mean": float(weights @ means / weights.sum())}


def _reading(places: Values, chances: Values) -> Reading:
    """Mean and percentiles of places in rising order, each with its chance."""
    cumulated = np.cumsum(chances) / chances.sum()
    found = {name: float(np.interp(float(name[1:]) / 100, cumulated, places)) for name in PERCENTILES}
    return {"mean": float(chances @ places / chances.sum()), **found}


def reading_of(values: Values | Sequence[float], names: Sequence[str] = PERCENTILES) -> Reading:
    """Mean and percentiles of some values, by names such as ``p99.9``; zeros where there are none."""
    values = np.asarray(values, dtype=float).ravel()
    values = values if values.size else np.zeros(1)
    found = {name: float(np.quantile(values, float(name[1:]) / 100)) for name in names}
    return {"mean": float(values.mean()), **found}
