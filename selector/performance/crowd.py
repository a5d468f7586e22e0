"""A server with a fixed number of requests in it: a closed loop, and saturation. Pure.

Requests alternate between the prompt in front, one server, and decoding, all at once: the machine repair model. The chance that
all of them decode, so that no prompt can be computed though some wait outside, is Erlang's loss formula. Where KV is what keeps
requests out, lengths that differ make it fuller at some times than at others; Hayward's approximation counts in lumps instead of
requests (Fredericks, Bell Syst. Tech. J. 59, 1980).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from selector.performance.lengths import Lengths
from selector.performance.simulator import Server
from selector.performance.work import Pace, Work, work_of

_CLOSE = 1e-4
"""By how much the number of decoding sequences may be off, relative to how many fit, and the share of full steps."""
_ROUNDS = 60
"""In which shares and rates agree at the latest."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """What so many requests at a time get."""

    rate_rps: float
    decoding: float
    """Sequences that decode, mean."""
    tpot_s: float


def slots_for(server: Server, lengths: Lengths) -> float:
    """Sequences that fit at once, KV reserved for their whole length."""
    return min(float(server.slots), server.kv_tokens / lengths.total)


def crowd(server: Server, lengths: Lengths, clients: float) -> Crowd:
    """The steady state with so many requests, or as many as fit: what a step takes belongs to how many decode on the mean."""

    def at(decoding: float) -> Crowd:
        work = work_of(server, decoding, lengths.context_tokens, lengths.few_prompts)
        return _repaired(server, lengths, clients, work)

    most = min(float(clients), slots_for(server, lengths))
    return at(_crossing(lambda decoding: at(decoding).decoding - decoding, most))


def _crossing(excess: Callable[[float], float], high: float) -> float:
    """Where a falling function of 0 to ``high`` is zero: regula falsi, an end that stays put counting half (Illinois)."""
    low, close = 0.0, high * _CLOSE
    above, below = excess(low), excess(high)
    if below >= 0:
        return high
    for _ in range(_ROUNDS):
        middle = (low * below - high * above) / (below - above)
        value = excess(middle)
        if abs(value) < close / 10:
            return middle
        if value > 0:
            low, above, below = middle, value, below / 2
        else:
            high, below, above = middle, value, above / 2
    return (low + high) / 2


def _repaired(server: Server, lengths: Lengths, clients: float, work: Work) -> Crowd:
    """So many requests that alternate between the prompt in front and decoding, at these step times."""
    lumps = lengths.lump_tokens / lengths.held_tokens
    bounds = [(min(float(clients), server.slots), 1.0), (server.kv_tokens / lengths.lump_tokens, lumps)]
    places = bounds if lumps > 1 + 1e-9 else [min(bounds)]
    others = max(0.0, 1 - 1 / min(bounds)[0])  # a request alone comes at the end of its own last step
    pace, starved = Pace.of(work, 1.0), 0.0
    for _ in range(_ROUNDS):
        running_s = starved * work.plain_s + (1 - starved) * pace.period_s
        late_s = pace.late_s + others * running_s / 2
        away_s = lengths.steps * pace.period_s + late_s
        shorter = (lengths.steps * work.plain_s + late_s) / away_s
        starved, away = max(
            _all_away(many, away_s / pace.service_s / lump, shorter, lump) for many, lump in places
        )
        rate_rps = (1 - starved) / pace.service_s
        decoding = (
            away - rate_rps * late_s
        )  # by Little's law so many wait for a step to end, or for other stages
        packed, pace = pace.packed, Pace.at(work, rate_rps)
        if abs(packed - pace.packed) < _CLOSE:
            break
    return Crowd(rate_rps, decoding, decoding / (rate_rps * lengths.steps))


def _all_away(places: float, offered: float, shorter: float, lump: float) -> tuple[float, float]:
    """Erlang's loss formula for any number of places: share of the time in which all are away, and how many are on the mean.

    That state's steps carry no prompt, so it ends ``1 / shorter`` times as fast as decoding beside prompts would end it.
    """
    if places > offered + 10 * math.sqrt(offered) + 20:  # never
        return 0.0, lump * offered
    states = math.ceil(places)
    ratios = np.log((places - np.arange(states)) / offered)
    exponents = np.concatenate([[math.log(shorter)], np.cumsum(ratios)])
    chances = np.exp(exponents - exponents.max())
    chances /= chances.sum()
    away = np.maximum(0.0, places - np.arange(states + 1))
    return float(chances[0]), lump * float(chances @ away)
