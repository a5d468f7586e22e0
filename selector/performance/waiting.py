"""The queue in front of a server whose work for a request grows the longer the queue has lasted. Pure.

An M/G/1 whose service time depends on the work found on arrival (state-dependent storage: Harrison and Resnick, Math. Oper.
Res. 1, 1976). Level crossings give the density of that work: at every level, as much falls through as jumps over it,

    v(x) = rate * (P(idle) * P(light > x) + integral over y < x of v(y) * P(work of an arrival at y > x - y)),

a Volterra equation that is solved upwards cell by cell.
"""

from dataclasses import dataclass

import numpy as np

from selector.performance.lengths import Values

LEVELS = 128
"""Cells of the work found on arrival."""


@dataclass(frozen=True, slots=True)
class Service:
    """Seconds of work that a request brings, each as likely as its weight says."""

    seconds: Values
    weights: Values

    @property
    def mean_s(self) -> float:
        """First moment."""
        return float(self.weights @ self.seconds)

    @property
    def squared_s(self) -> float:
        """Second moment, in square seconds."""
        return float(self.weights @ self.seconds**2)

    def capped_s(self, levels: Values) -> Values:
        """The mean of the work capped at each level: the integral of its tail up to there."""
        order = np.argsort(self.seconds)
        seconds, weights = self.seconds[order], self.weights[order]
        below = np.searchsorted(seconds, levels, side="right")
        work = np.concatenate([[0.0], np.cumsum(seconds * weights)])
        chance = np.concatenate([[0.0], np.cumsum(weights)])
        capped: Values = work[below] + (1 - chance[below]) * levels
        return capped


@dataclass(frozen=True, slots=True)
class Waiting:
    """What an arrival finds."""

    idle: float
    """Chance of no work at all."""
    cell_s: float
    chances: Values
    """Of the work found, by cell; with ``idle`` they sum to 1."""
    heavy: Values
    """Chance, by cell, that an arrival there brings heavy work."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """How work becomes heavy while a queue lasts: exponentially in time, the queue growing by what is not spare.

    In a queue that has lasted ``t`` a share ``u = exp(-t / lasting)`` of the work is light. Its level moves by what the server
    has to spare, ``(full + u * (calm - full)) dt``; integrated, that gives the level for each ``u``.
    """

    lasting_s: float
    calm: float
    """Share of the time to spare when all work is light."""
    full: float
    """And when all of it is heavy."""

    def heavy(self, work_s: Values) -> Values:
        """Chance that work is heavy where so much is found."""
        light = np.exp(-np.linspace(0.0, 12.0, 100))
        levels_s = self.lasting_s * (-self.full * np.log(light) + (self.calm - self.full) * (1 - light))
        found: Values = 1 - np.interp(work_s, levels_s, light)
        return found


def waiting(rate_rps: float, light: Service, heavy: Service, ramp: Ramp) -> Waiting:
    """The work found by Poisson arrivals; ``rate_rps * heavy.mean_s`` has to be below 1."""
    spare = 1 - rate_rps * heavy.mean_s
    wait_s = rate_rps * max(light.squared_s, heavy.squared_s) / (2 * spare)
    cell_s = (9 * wait_s + 1.2 * float(heavy.seconds.max())) / LEVELS
    ends = np.arange(LEVELS + 1, dtype=np.float64) * cell_s
    first = np.diff(light.capped_s(ends)) / cell_s
    apart = np.maximum(0.0, ends - cell_s / 2)  # between the middles of two cells
    tails = np.diff(light.capped_s(apart))
    growth = np.diff(heavy.capped_s(apart)) - tails
    ripe = ramp.heavy(ends[:-1] + cell_s / 2)
    density, ripened = np.zeros(LEVELS), np.zeros(LEVELS)
    backwards, grown = tails[::-1].copy(), growth[::-1].copy()
    for cell in range(LEVELS):
        since = slice(LEVELS - 1 - cell, LEVELS - 1)
        above = first[cell] + backwards[since] @ density[:cell] + grown[since] @ ripened[:cell]
        density[cell] = rate_rps * above / (1 - rate_rps * (tails[0] + ripe[cell] * growth[0]))
        ripened[cell] = ripe[cell] * density[cell]
    chances = density * cell_s
    idle = 1 / (1 + float(chances.sum()))
    return Waiting(idle, cell_s, chances * idle, ripe)
