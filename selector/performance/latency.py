"""Distributions of seconds, the queue whose work grows, and latencies under Poisson arrivals. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from selector.performance.simulator import ServerModel
from selector.performance.work import Atoms, Lengths, PromptMeans, Saturation, Values, Work, work_of

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
        seconds = self.seconds[order]
        weights = self.weights[order]
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
    """How work becomes heavy while a queue lasts.

    Exponentially in time, the queue growing by what is not spare.

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
    density = np.zeros(LEVELS)
    ripened = np.zeros(LEVELS)
    backwards = tails[::-1].copy()
    grown = growth[::-1].copy()
    for cell in range(LEVELS):
        since = slice(LEVELS - 1 - cell, LEVELS - 1)
        above = first[cell] + backwards[since] @ density[:cell] + grown[since] @ ripened[:cell]
        density[cell] = rate_rps * above / (1 - rate_rps * (tails[0] + ripe[cell] * growth[0]))
        ripened[cell] = ripe[cell] * density[cell]
    chances = density * cell_s
    idle = 1 / (1 + float(chances.sum()))
    return Waiting(idle, cell_s, chances * idle, ripe)


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
        """The sum with an independent distribution of weighted values.

        Each sum is split between two cells so that the mean stays.
        """
        places = np.minimum(other.values / self.cell_s, _CELLS - 2)
        below = places.astype(int)
        above = places - below
        if len(places) == 1:
            moved = _shifted(self.chances, int(below[0])), _shifted(self.chances, int(below[0]) + 1)
            return replace(self, chances=(1 - above[0]) * moved[0] + above[0] * moved[1])
        kernel = np.bincount(below, weights=other.weights * (1 - above), minlength=_CELLS)
        kernel += np.bincount(below + 1, weights=other.weights * above, minlength=_CELLS)
        product = np.fft.irfft(np.fft.rfft(self.chances, 2 * _CELLS) * np.fft.rfft(kernel, 2 * _CELLS), 2 * _CELLS)
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
    low = support[0]
    width = support[1] - support[0]
    centres = np.clip((means - low) / width, 1e-4, 1 - 1e-4)
    spreads = np.clip(variances / width**2, 1e-8, 0.98 * centres * (1 - centres))
    firmness = centres * (1 - centres) / spreads - 1
    angles = (np.arange(_POINTS) + 0.5) * (np.pi / 2 / _POINTS)  # squared sines are dense where betas are steep
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
    pace: PromptMeans
    service: Service
    """A prompt's time of the slowest stage."""
    busy: float
    """Share of the time in which some prompt is being computed."""
    tpot_s: float
    decoding: float
    """Sequences that decode, mean."""


def latencies(server: ServerModel, lengths: Lengths, rate_rps: float, full: Saturation) -> Latencies:
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
    slowest_s = max((rush.packed_s / rush.parts).max() * rush.stages, (calm.work.first_s / calm.work.chunks).max())
    support = (0.98 * calm.work.plain_s, 1.02 * float(slowest_s))
    return Latencies(ttft.reading(), betas(support, means.ravel(), variances.ravel(), decoded.ravel()), e2e.reading())


def _calm(server: ServerModel, lengths: Lengths, rate_rps: float) -> _Calm:
    """As many sequences decode as Little's law asks for at the mean step."""
    decoding = before = 0.0
    for _ in range(_ROUNDS):
        before = decoding
        decoding = _kept_up(server, lengths, rate_rps, (decoding, lengths.few_prompts)).decoding
        if abs(decoding - before) < _CLOSE * decoding:
            break
    return _kept_up(server, lengths, rate_rps, (decoding, lengths.prompts))


def _kept_up(server: ServerModel, lengths: Lengths, rate_rps: float, beside: tuple[float, Atoms]) -> _Calm:
    """What so many decoding sequences and these prompts keep going."""
    decoding, prompts = beside
    work = work_of(server, decoding, lengths.context_tokens, prompts)
    pace = PromptMeans.at(work, rate_rps)
    busy = min(0.999, rate_rps * pace.service_s)
    tpot_s = 1 / (busy / pace.period_s + (1 - busy) / work.plain_s)
    service = Service(pace.mixed(work.packed_s, work.alone_s), work.weights)
    return _Calm(work, pace, service, busy, tpot_s, rate_rps * lengths.steps * tpot_s)


def _heavy(calm: _Calm, rush: Work, full: Saturation) -> Service:
    """A prompt's work in a full server.

    Its part of full steps, and its share of the time in which no KV was free for one.
    """
    starved_s = 1 / full.rate_rps - rush.mean.packed_s
    seconds = np.maximum(rush.packed_s + starved_s, calm.service.seconds)
    return Service(seconds / (float(rush.weights @ seconds) * full.rate_rps), rush.weights)


def _filling_s(lengths: Lengths, rush: Work, full: Saturation) -> float:
    """How long a server in a rush takes to become full.

    The mean time for which it is not, by how much it is not.

    Full steps would bring it to ``most`` decoding sequences, exponentially as these end; where KV ends that sooner, at a share of
    them, the integral ends there.
    """
    decodes_s = lengths.steps * rush.full_s
    most = decodes_s / rush.mean.packed_s
    share = min(1 - 1e-9, full.decoding / most)
    return decodes_s * (1 + (1 - share) / share * math.log1p(-share))


def _first_tokens(calm: _Calm, rush: Work, queue: Waiting) -> Spread:
    """TTFT. A prompt that meets nobody waits for the step that runs and is computed alone.

    One that queues may share its steps with later ones, and then waits for the end of the last of them.
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
    """What a request leaves behind at its first token.

    Seconds until the prompts that came meanwhile and those that come upon them are computed, the chance of
    it, and how near to saturation the server then is (0 to 1).

    So many busy periods as came prompts: a Poisson number, each with the moments of the M/G/1's, taken together as lognormal.
    """
    came = rate_rps * ttft.between(_SHARES)
    none = np.exp(-came)
    spare = 1 - calm.busy
    mean = came * calm.service.mean_s / spare
    squared = mean**2 + came * calm.service.squared_s / spare**3
    mean = mean / (1 - none)
    squared = squared / (1 - none)
    width = np.sqrt(np.log(squared / mean**2))[:, None]
    seconds = (mean[:, None] * np.exp(width * _SCATTER - width**2 / 2)).ravel()
    chances = np.diff(_SHARES)
    some = np.repeat(chances * (1 - none), len(_SCATTER)) / len(_SCATTER)
    near = ramp.heavy(seconds * spare)
    return np.append(0.0, seconds), np.append(chances @ none, some), np.append(0.0, near)


def _tpots(
    calm: _Calm, rush: Work, full: Saturation, left: tuple[Values, Values, Values], answers: Atoms
) -> tuple[Values, Values, Values]:
    """Mean, variance and chance of TPOT, by what was left behind (rows) and steps of the answer (columns)."""
    steps = answers.values
    seconds, chances, near = (column[:, None] for column in left)
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
    """Of the steps with prompts that answers of so many steps begin beside.

    Mean, variance, and how many belong to one prompt.
    """
    work = calm.work
    counts = calm.pace.mixed(work.parts, work.chunks)
    each_s = calm.pace.mixed(work.stages * work.packed_s, work.first_s) / counts
    met = work.weights[:, None] * np.minimum(counts[:, None], steps)
    met = met / met.sum(axis=0)
    mean_s = each_s @ met
    return mean_s, each_s**2 @ met - mean_s**2, counts @ met


def _afterwards(calm: _Calm, steps: Values) -> tuple[Values, Values]:
    """Share of so many steps that carry prompts, after one without, and the variance of that share.

    A chain of two states.

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
    decoded_s = np.where(answers.values < 1, 0.0, answers.values) * (chances * means).sum(axis=0) / chances.sum(axis=0)
    return ttft.wider(float(decoded_s.max())).plus(replace(answers, values=decoded_s))
