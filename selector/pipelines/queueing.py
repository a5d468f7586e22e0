"""How long a prompt waits for the prompts in front of it: M/D/1, in units of one prompt's service. Pure.

Pollaczek-Khinchine: the wait is the geometric compound of residual services, here uniform, since prompts are alike. Read off a
grid once; what the search needs of it is one monotone function of the time of a prompt, and its inverse.
"""

from functools import cache
from typing import Any

import numpy as np

from intent.models import PERCENTILES, Stat

Values = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.intp]]

STATISTICS: tuple[Stat, ...] = ("mean", *PERCENTILES)
UTILISATIONS = np.concatenate([np.linspace(0.0, 0.9, 19), np.linspace(0.92, 0.98, 4)])
"""Shares of the time in which prompts are computed at which waits are known; beyond the last a queue counts as endless."""
_CELLS = 4096
_STEPS = tuple(2**power for power in reversed(range(len(UTILISATIONS).bit_length())))


@cache
def waits(stat: Stat) -> Values:
    """The wait at each of ``UTILISATIONS``, in services; ``stat`` is ``mean`` or one of ``PERCENTILES``."""
    means = UTILISATIONS / (2 * (1 - UTILISATIONS))
    if stat == "mean":
        return np.asarray(means)
    return np.array(
        [_quantile(busy, mean, PERCENTILES[stat]) for busy, mean in zip(UTILISATIONS, means, strict=True)]
    )


def _quantile(busy: float, mean: float, share: float) -> float:
    """Of the wait at one utilisation; its chances on a grid of services."""
    cell = max(1 / 256, 16 * mean / _CELLS)
    residual = np.zeros(_CELLS)
    residual[: max(1, round(1 / cell))] = 1.0
    residual /= residual.sum()
    chances = np.fft.irfft((1 - busy) / (1 - busy * np.fft.rfft(residual, 2 * _CELLS)))[:_CELLS]
    place = int(np.searchsorted(np.cumsum(chances), share))
    return place * cell if share > 1 - busy else 0.0


def first_tokens_s(first_s: Values, overlap: Values, rate_rps: float, stat: Stat) -> Values:
    """TTFT of prompts that take ``first_s`` alone, ``overlap`` of it keeping the next waiting; infinite where they pile up."""
    busy = rate_rps * overlap * first_s
    queued = np.interp(busy, UTILISATIONS, UTILISATIONS * waits(stat))
    return np.where(busy > UTILISATIONS[-1], np.inf, first_s + queued / rate_rps)


def most_first_s(ttft_s: Values, overlap: Values, rate_rps: float, stat: Stat) -> Values:
    """The inverse: how long prompts may take alone for a TTFT; one row per row of ``overlap``, one column per TTFT."""
    queued, inverse = UTILISATIONS * waits(stat), 1 / overlap
    wanted = rate_rps * ttft_s
    below = _last_within(wanted, inverse, queued)
    low, slope = (
        UTILISATIONS[below],
        (queued[below + 1] - queued[below]) / (UTILISATIONS[below + 1] - UTILISATIONS[below]),
    )
    busy = low + (wanted - low * inverse - queued[below]) / (inverse + slope)
    return np.asarray(np.clip(busy, 0.0, UTILISATIONS[-1]) * inverse / rate_rps)


def _last_within(wanted: Values, inverse: Values, queued: Values) -> Places:
    """The last utilisation but one whose TTFT is within what is wanted, by bisection; the first where none is."""
    below = np.zeros(inverse.shape, dtype=np.intp)
    for step in _STEPS:
        tried = np.minimum(below + step, len(UTILISATIONS) - 2)
        below = np.where(UTILISATIONS[tried] * inverse + queued[tried] <= wanted, tried, below)
    return below
