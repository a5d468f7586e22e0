"""How the latencies of Poisson arrivals are spread, in closed form. Pure.

A server is calm where prompts come and go faster than the number of decoding sequences follows; a queue that lasts brings it
towards the crowd of saturation (``crowd``), which computes prompts more slowly and at times lacks KV. TTFT is the work
found on arrival (``waiting``) and the own prompt. TPOT starts beside the prompts that came in meanwhile, and falls back
to what it is on the mean.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from selector.performance.crowd import Crowd
from selector.performance.lengths import Atoms, Lengths, Values
from selector.performance.simulator import Server
from selector.performance.spread import Reading, Spread, betas, reading_of
from selector.performance.waiting import Ramp, Service, Waiting, waiting
from selector.performance.work import Pace, Work, work_of

_CLOSE = 1e-3
"""By how much the number of decoding sequences may be off, relative to it."""
_ROUNDS = 24
"""In which it settles at the latest."""
_SHARES = np.array([0, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0])
"""Quantiles of TTFT between which requests are taken to leave alike queues behind."""
_SCATTER = np.array([-1.2816, -0.5244, 0.0, 0.5244, 1.2816])
"""Equally likely values of a standard normal."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Means and percentiles."""

    ttft_s: Reading
    tpot_s: Reading
    e2e_s: Reading


@dataclass(frozen=True, slots=True)
class _Calm:
    """What arrivals at a rate keep going without a queue that lasts."""

    work: Work
    pace: Pace
    service: Service
    """A prompt's time of the slowest stage."""
    busy: float
    """Share of the time in which some prompt is being computed."""
    tpot_s: float
    decoding: float
    """Sequences that decode, mean."""


def latencies(server: Server, lengths: Lengths, rate_rps: float, full: Crowd) -> Latencies:
    """Of Poisson arrivals at a rate below ``full.rate_rps``, which is saturation."""
    calm = _calm(server, lengths, rate_rps)
    rush = work_of(server, full.decoding, lengths.context_tokens, lengths.prompts)
    ramp = Ramp(_filling_s(lengths, rush, full), 1 - calm.busy, 1 - rate_rps / full.rate_rps)
    queue = waiting(rate_rps, calm.service, _heavy(calm, rush, full), ramp)
    ttft = _first_tokens(calm, rush, queue)
    means, variances, chances = _tpots(calm, rush, full, _left(rate_rps, calm, ttft, ramp), lengths.answers)
    e2e = _whole(ttft, lengths.answers, means, chances)
    if lengths.output_tokens <= 1:
        return Latencies(ttft.reading(), reading_of([]), e2e.reading())
    decoded = chances * (lengths.answers.values >= 1)
    slowest_s = max(
        (rush.packed_s / rush.parts).max() * rush.stages, (calm.work.first_s / calm.work.chunks).max()
    )
    support = (0.98 * calm.work.plain_s, 1.02 * float(slowest_s))
    return Latencies(
        ttft.reading(), betas(support, means.ravel(), variances.ravel(), decoded.ravel()), e2e.reading()
    )


def _calm(server: Server, lengths: Lengths, rate_rps: float) -> _Calm:
    """As many sequences decode as Little's law asks for at the mean step."""
    decoding = before = 0.0
    for _ in range(_ROUNDS):
        before, decoding = (
            decoding,
            _kept_up(server, lengths, rate_rps, (decoding, lengths.few_prompts)).decoding,
        )
        if abs(decoding - before) < _CLOSE * decoding:
            break
    return _kept_up(server, lengths, rate_rps, (decoding, lengths.prompts))


def _kept_up(server: Server, lengths: Lengths, rate_rps: float, beside: tuple[float, Atoms]) -> _Calm:
    """What so many decoding sequences and these prompts keep going."""
    decoding, prompts = beside
    work = work_of(server, decoding, lengths.context_tokens, prompts)
    pace = Pace.at(work, rate_rps)
    busy = min(0.999, rate_rps * pace.service_s)
    tpot_s = 1 / (busy / pace.period_s + (1 - busy) / work.plain_s)
    service = Service(pace.mixed(work.packed_s, work.alone_s), work.weights)
    return _Calm(work, pace, service, busy, tpot_s, rate_rps * lengths.steps * tpot_s)


def _heavy(calm: _Calm, rush: Work, full: Crowd) -> Service:
    """A prompt's work in a full server: its part of full steps, and its share of the time in which no KV was free for one."""
    starved_s = 1 / full.rate_rps - rush.mean.packed_s
    seconds = np.maximum(rush.packed_s + starved_s, calm.service.seconds)
    return Service(seconds / (float(rush.weights @ seconds) * full.rate_rps), rush.weights)


def _filling_s(lengths: Lengths, rush: Work, full: Crowd) -> float:
    """How long a server in a rush takes to become full: the mean time for which it is not, by how much it is not.

    Full steps would bring it to ``most`` decoding sequences, exponentially as these end; where KV ends that sooner, at a share of
    them, the integral ends there.
    """
    decodes_s = lengths.steps * rush.full_s
    most = decodes_s / rush.mean.packed_s
    share = min(1 - 1e-9, full.decoding / most)
    return decodes_s * (1 + (1 - share) / share * math.log1p(-share))


def _first_tokens(calm: _Calm, rush: Work, queue: Waiting) -> Spread:
    """TTFT. A prompt that meets nobody waits for the step that runs and is computed alone; one that queues may share its steps
    with later ones, and then waits for the end of the last of them.
    """

    def after(chances: Values, work: Work) -> Spread:
        own_s = calm.pace.mixed(work.stages * work.packed_s, work.first_s)
        found = Spread.reaching(most_s, chances, queue.cell_s)
        return found.plus(Atoms(own_s, work.weights)).plus_even(calm.pace.packed * work.full_s)

    longest_s = float(max(calm.work.first_s.max(), (rush.stages * rush.packed_s).max(), rush.first_s.max()))
    most_s = len(queue.chances) * queue.cell_s + longest_s + rush.full_s
    idle = Spread.reaching(most_s, np.array([queue.idle]), calm.work.plain_s)
    alone = idle.plus(Atoms(calm.work.first_s, calm.work.weights))
    young = after(queue.chances * (1 - queue.heavy), calm.work)
    return alone.joined(young).joined(after(queue.chances * queue.heavy, rush))


def _left(rate_rps: float, calm: _Calm, ttft: Spread, ramp: Ramp) -> tuple[Values, Values, Values]:
    """What a request leaves behind at its first token: seconds until the prompts that came meanwhile and those that come upon
    them are computed, the chance of it, and how near to saturation the server then is (0 to 1).

    So many busy periods as came prompts: a Poisson number, each with the moments of the M/G/1's, taken together as lognormal.
    """
    came = rate_rps * ttft.between(_SHARES)
    none, spare = np.exp(-came), 1 - calm.busy
    mean = came * calm.service.mean_s / spare
    squared = mean**2 + came * calm.service.squared_s / spare**3
    mean, squared = mean / (1 - none), squared / (1 - none)
    width = np.sqrt(np.log(squared / mean**2))[:, None]
    seconds = (mean[:, None] * np.exp(width * _SCATTER - width**2 / 2)).ravel()
    chances = np.diff(_SHARES)
    some = np.repeat(chances * (1 - none), len(_SCATTER)) / len(_SCATTER)
    near = ramp.heavy(seconds * spare)
    return np.append(0.0, seconds), np.append(chances @ none, some), np.append(0.0, near)


def _tpots(
    calm: _Calm, rush: Work, full: Crowd, left: tuple[Values, Values, Values], answers: Atoms
) -> tuple[Values, Values, Values]:
    """Mean, variance and chance of TPOT, by what was left behind (rows) and steps of the answer (columns)."""
    steps, (seconds, chances, near) = answers.values, (one[:, None] for one in left)
    met_s, own, span = _steps_met(calm, steps)
    period_s = met_s + near * max(0.0, full.tpot_s - calm.pace.period_s)
    plain_s = calm.work.plain_s + near * (rush.plain_s - calm.work.plain_s)
    begun = np.minimum(1.0, seconds / period_s / steps)
    share, scatter = _afterwards(calm, np.maximum(steps * (1 - begun), 1e-9))
    more_s = calm.pace.period_s - calm.work.plain_s
    means = plain_s + begun * (period_s - plain_s) + (1 - begun) * share * more_s
    variances = ((1 - begun) * more_s) ** 2 * scatter + begun * own * np.minimum(1.0, span / steps)
    return means, variances, chances * answers.weights


def _steps_met(calm: _Calm, steps: Values) -> tuple[Values, Values, Values]:
    """Of the steps with prompts that answers of so many steps begin beside: mean, variance, and how many belong to one prompt."""
    work = calm.work
    counts = calm.pace.mixed(work.parts, work.chunks)
    each_s = calm.pace.mixed(work.stages * work.packed_s, work.first_s) / counts
    met = work.weights[:, None] * np.minimum(counts[:, None], steps)
    met = met / met.sum(axis=0)
    mean_s = each_s @ met
    return mean_s, each_s**2 @ met - mean_s**2, counts @ met


def _afterwards(calm: _Calm, steps: Values) -> tuple[Values, Values]:
    """Share of so many steps that carry prompts, after one without, and the variance of that share: a chain of two states.

    How long prompts follow each other is such that over a long time their share varies as much as the work that comes in does.
    """
    mixed = calm.busy * calm.tpot_s / calm.pace.period_s
    swing = calm.tpot_s**3 * (1 / calm.work.plain_s - 1 / calm.pace.period_s) ** 2
    swing *= calm.busy * calm.service.squared_s / calm.service.mean_s
    alike = max(1.0, swing / ((calm.pace.period_s - calm.work.plain_s) ** 2 * mixed * (1 - mixed)))
    fading = (alike - 1) / (alike + 1)
    many = np.maximum(steps, 1.0)
    faded = (1 - fading**many) / (1 - fading) / many
    share = mixed * np.where(steps < 1, 1 - fading, 1 - faded)
    scatter = share * (1 - share) * np.clip((alike - 2 * fading * faded / (1 - fading)) / many, 0.0, 1.0)
    return share, scatter


def _whole(ttft: Spread, answers: Atoms, means: Values, chances: Values) -> Spread:
    """E2E: TTFT and all the steps of the answer at their mean."""
    decoded_s = (
        np.where(answers.values < 1, 0.0, answers.values)
        * (chances * means).sum(axis=0)
        / chances.sum(axis=0)
    )
    return ttft.wider(float(decoded_s.max())).plus(replace(answers, values=decoded_s))
