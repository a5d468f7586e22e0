"""What a switch did to streams, measured at the client. Pure: arrivals in, figures out.

One arrival per token, stamped by the client in unix seconds. A stream's own cut is where the fingerprint of
its chunks changes. ``gap`` is the interval that straddles the cut, or the one before it where that is longer: an engine
may hold back what its last step before the fence said until requests run again, and the pause then lies before these tokens.
``stop = gap - max(median gap before planned, median gap after done)`` with at least 50 gaps on each side. A sham cut
is the same arithmetic at a random moment at which nothing happened: the noise floor of the same run.
"""

import bisect
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

MIN_GAPS = 50
"""Gaps needed on each side of a cut for a median."""


@dataclass(frozen=True, slots=True)
class ClientStream:
    """One streamed answer as its client saw it; the tuples are parallel, one entry per token."""

    arrivals_s: tuple[float, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    fingerprints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimeInterval:
    """Unix seconds, from ``start_s`` to ``end_s``."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """What one cut did to one stream, in milliseconds."""

    gap_ms: float
    stop_ms: float
    worst_gap_ms: float
    """The longest gap between planned and done."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """p50, p99 and max by nearest rank."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How a stream differs from the same request run without a switch."""

    lost: int
    """Tokens of the reference that never came."""
    duplicated: int
    """Tokens that came beyond the reference's."""
    changed: int
    """Tokens that came as others."""
    worst_logprob: float
    """Largest difference of two logprobs at the same index."""

    @property
    def tokens_equal(self) -> bool:
        """Whether every token is the same."""
        return not (self.lost or self.duplicated or self.changed)


def percentiles(values: Sequence[float]) -> Percentiles | None:
    """By nearest rank; None when there is no value."""
    if not values:
        return None
    return Percentiles(*map(float, np.quantile(values, (0.5, 0.99, 1), method="inverted_cdf")))


def cut_index(stream: ClientStream, switch: TimeInterval) -> int | None:
    """The index of the first token under a new fingerprint that arrived after the switch was planned."""
    for index, (old, new) in enumerate(pairwise(stream.fingerprints), start=1):
        if old != new and stream.arrivals_s[index] >= switch.start_s:
            return index
    return None


def gaps_within(stream: ClientStream, interval: TimeInterval) -> list[float]:
    """Every interval between two arrivals of a stream that lies wholly inside, in seconds."""
    first = bisect.bisect_left(stream.arrivals_s, interval.start_s)
    last = bisect.bisect_right(stream.arrivals_s, interval.end_s)
    return [b - a for a, b in pairwise(stream.arrivals_s[first:last])]


def stop_of(stream: ClientStream, switch: TimeInterval, quiet: tuple[TimeInterval, TimeInterval]) -> Stop | None:
    """The stop of one stream at one switch; None when it has no cut there or too few gaps beside it.

    ``switch`` is from planned to done; ``quiet`` are the undisturbed intervals before and after it.
    """
    index = cut_index(stream, switch)
    before, after = (gaps_within(stream, interval) for interval in quiet)
    if index is None or stream.arrivals_s[index] > quiet[1].end_s or min(len(before), len(after)) < MIN_GAPS:
        return None
    gap = max(b - a for a, b in pairwise(stream.arrivals_s[max(index - 2, 0) : index + 1]))
    stop = gap - max(statistics.median(before), statistics.median(after))
    worst = max([gap, *gaps_within(stream, switch)])
    return Stop(gap * 1000, stop * 1000, worst * 1000)


def sham_stops(stream: ClientStream, quiet: Sequence[TimeInterval], count: int, seed: int) -> list[float]:
    """Stops in milliseconds of ``count`` sham cuts in every quiet interval that is long enough."""
    chance = random.Random(seed)
    return [stop for interval in quiet for stop in _sham_stops(stream, interval, count, chance)]


def _sham_stops(stream: ClientStream, interval: TimeInterval, count: int, chance: random.Random) -> list[float]:
    first = bisect.bisect_left(stream.arrivals_s, interval.start_s)
    last = bisect.bisect_right(stream.arrivals_s, interval.end_s)
    gaps = [b - a for a, b in pairwise(stream.arrivals_s[first:last])]
    if len(gaps) < 2 * MIN_GAPS + 1:
        return []
    low = stream.arrivals_s[first + MIN_GAPS]
    high = stream.arrivals_s[last - 1 - MIN_GAPS]
    stops = []
    for _ in range(count):
        moment = chance.uniform(low, high)
        straddling = min(bisect.bisect_right(stream.arrivals_s, moment) - 1 - first, len(gaps) - 1 - MIN_GAPS)
        usual = max(statistics.median(gaps[:straddling]), statistics.median(gaps[straddling + 1 :]))
        stops.append((max(gaps[straddling - 1 : straddling + 1]) - usual) * 1000)
    return stops


def difference(stream: ClientStream, reference: ClientStream) -> Difference:
    """Compare a stream with the same request run without a switch, by the fewest edits between the two."""
    from rapidfuzz.distance import Levenshtein  # other benchmarks run where it is not

    edits = Counter(edit.tag for edit in Levenshtein.editops(reference.tokens, stream.tokens))
    pairs = zip(stream.logprobs, reference.logprobs, strict=False)
    worst = max((abs(a - b) for a, b in pairs), default=0.0)
    return Difference(edits["delete"], edits["insert"], edits["replace"], worst)
