"""How long the steps of a running engine take, measured at the client through its streams.

A decode step is the median gap between tokens while so many streams run; a prefill step is the TTFT of a request alone, less what
a request costs beside its steps: the TTFT of one token over a decode step. The whole design is run several times, the first time
to warm up, and each point's median counts: what slows the machine for a while spoils no point.
"""

import asyncio
import bisect
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intentctl import render
from intentctl.arguments import POLL_S
from intentctl.measure import ClientStream, TimeInterval, gaps_within
from intentctl.status import failure
from intentctl.streams import BackgroundLoad, Recording
from runtime.models import ModelSpec
from selector.performance.fit import StepSample

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from intentctl.client import Client

PREFILLS = 4
"""Requests in a row, of which the first only finds what the last point left behind."""
GAPS = 24
"""Gaps per stream that a decode step is the median of."""
MAX_TOKENS = 1024
"""Of a stream: while the last prompts are prefilled, the first streams go on."""
LEAST_SHARE = 0.2
"""A prefill that is less of its TTFT than this cannot be told from the rest."""
IDLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Point:
    """What is measured at once: so many requests with prompts of so many tokens.

    A decode if streams are to run.
    """

    sequences: int
    tokens: int
    is_decode: bool

    def __str__(self) -> str:
        if self.is_decode:
            return f"decode of {self.sequences} at {self.tokens} tokens"
        return f"prefill of {self.tokens} tokens"


@dataclass(frozen=True, slots=True)
class Design:
    """The points, and how often each counts."""

    input_tokens: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    batches: tuple[int, ...] = (1, 4, 16)
    contexts: tuple[int, ...] = (128, 512, 2048)
    rounds: int = 3

    def points(self) -> Iterator[Point]:
        """Prefills first; one token is what a request costs beside its steps."""
        for tokens in (1, *self.input_tokens):
            yield Point(1, tokens, is_decode=False)
        for context in self.contexts:
            for batch in self.batches:
                yield Point(batch, context, is_decode=True)


@dataclass(frozen=True, slots=True)
class StepRun:
    """One run of a point."""

    seconds: float
    cached_tokens: float
    """KV of a sequence, mean over the run."""


@dataclass(slots=True)
class Readings:
    """What was read at each point, and why some were left out."""

    taken: dict[Point, list[StepRun]] = field(default_factory=dict)
    left_out: dict[Point, str] = field(default_factory=dict)

    def request_s(self) -> float:
        """What a request costs beside its steps: HTTP, tokenizer, queue."""
        alone = [point for point in self.taken if point.is_decode and point.sequences == 1]
        one_token = Point(1, 1, is_decode=False)
        if not alone or one_token not in self.taken:
            return 0.0
        step_s = self._median(min(alone, key=lambda point: point.tokens)).seconds
        return max(0.0, self._median(one_token).seconds - step_s)

    def samples(self) -> list[StepSample]:
        """Step times; a prefill that is lost in what its request costs is left out."""
        request_s = self.request_s()
        found = []
        for point in self.taken:
            reading = self._median(point)
            if point.is_decode:
                found.append(StepSample(point.sequences, 1, round(reading.cached_tokens), reading.seconds))
            elif point.tokens > 1 and reading.seconds - request_s >= LEAST_SHARE * reading.seconds:
                found.append(StepSample(1, point.tokens, 0, reading.seconds - request_s))
            elif point.tokens > 1:
                self.left_out[point] = f"all but lost in the {request_s * 1000:.3g} ms of a request"
        return found

    def scatter(self) -> float:
        """How far apart the rounds are at a point, relative to its median; the median over the points."""
        spreads = []
        for point, readings in self.taken.items():
            times = [reading.seconds for reading in readings]
            spreads.append((max(times) - min(times)) / self._median(point).seconds)
        return statistics.median(spreads) if spreads else 0.0

    def _median(self, point: Point) -> StepRun:
        readings = self.taken[point]
        return StepRun(
            statistics.median(reading.seconds for reading in readings),
            statistics.median(reading.cached_tokens for reading in readings),
        )


class Bench:
    """A running service that is asked for steps."""

    def __init__(self, client: "Client", openai: "AsyncOpenAI", model: ModelSpec) -> None:
        self._client = client
        self._openai = openai
        self._model = model
        self._chance = random.Random()  # no seed: a prefix cache must not know the prompts from an earlier run
        self._fingerprints: set[str] = set()

    async def run(self, design: Design, kv_tokens: int) -> Readings:
        """Measure a design; points that do not fit ``kv_tokens``, or whose requests break, are left out.

        Raises:
            CommandError: the topology changed, or others use the service.
        """
        return await read(design, RequestLimits(self._model.max_position_embeddings, kv_tokens), self._unchanged)

    async def _unchanged(self, point: Point) -> list[Recording]:
        """The same as ``_recorded``, refused where the topology is no longer that of the points before."""
        recordings = await self._recorded(point)
        self._fingerprints |= {name for recording in recordings for name in recording.fingerprints}
        if len(self._fingerprints) > 1:
            seen = ", ".join(sorted(self._fingerprints))
            raise failure("error", f"the topology changed while it was measured ({seen}); measure again")
        return recordings

    async def _recorded(self, point: Point) -> list[Recording]:
        """The recordings of a point's requests, when nothing of them runs any more."""
        if not point.is_decode:
            return [(await self._load(point, 1).finish())[0] for _ in range(PREFILLS)]
        load = self._load(point, min(MAX_TOKENS, self._model.max_position_embeddings - point.tokens))
        await load.grow(1)
        since_s = max((recording.arrivals_s[0] for recording in load.recordings if recording.arrivals_s), default=0.0)
        await load.grow(GAPS + 1, since_s)
        recordings = await load.stop()
        await self._idle()
        return recordings

    def _load(self, point: Point, max_tokens: int) -> BackgroundLoad:
        """Requests with prompts that nobody has sent before."""
        tokens = range(point.tokens)
        vocabulary = self._model.vocab_size
        prompts = [[self._chance.randrange(vocabulary) for _ in tokens] for _ in range(point.sequences)]
        return BackgroundLoad(self._openai, self._model.name, prompts, max_tokens)

    async def _idle(self) -> None:
        """Wait until the service has heard that the streams were left."""
        from service import api

        polls = round(IDLE_TIMEOUT_S / POLL_S)
        for _ in range(polls):
            if not (await asyncio.to_thread(self._client, api.state.topology_of, self._model.name)).streams:
                return
            await asyncio.sleep(POLL_S)
        raise failure("error", "others began to use the service; measure again when nobody does")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What requests may take."""

    context_tokens: int
    """Of one request, prompt and output."""
    kv_tokens: int
    """Of all that run at once."""

    def lacks(self, point: Point) -> str | None:
        """Why a point cannot be run, if it cannot."""
        length = point.tokens + (2 * GAPS if point.is_decode else 1)
        if length > self.context_tokens:
            return f"the model's context is {self.context_tokens} tokens"
        if point.sequences * length > self.kv_tokens:
            return f"about {self.kv_tokens} tokens of KV cache are there"
        return None


async def read(
    design: Design, room: RequestLimits, record: Callable[[Point], Awaitable[Sequence[Recording]]]
) -> Readings:
    """Have every point of a design recorded once to warm up and then in each round.

    Those without room are left out.
    """
    readings = Readings()
    points = list(design.points())
    readings.left_out = {point: reason for point in points if (reason := room.lacks(point))}
    for number in range(design.rounds + 1):
        render.talk(f"round {number} of {design.rounds}" if number else "warming up")
        for point in points:
            if point not in readings.left_out:
                _note(reading_of(point, await record(point)), point, readings, warm=number > 0)
    return readings


def _note(reading: StepRun | str, point: Point, readings: Readings, *, warm: bool) -> None:
    if isinstance(reading, str):
        readings.left_out[point] = reading
        readings.taken.pop(point, None)
    elif warm:
        readings.taken.setdefault(point, []).append(reading)


def decode_reading(streams: Sequence[ClientStream], prompt_tokens: int) -> StepRun | None:
    """The median gap while all streams ran, and the KV of a sequence meanwhile.

    None if they did not run together. Pure.
    """
    together = TimeInterval(
        max(stream.arrivals_s[0] for stream in streams), min(stream.arrivals_s[-1] for stream in streams)
    )
    gaps: list[float] = []
    places: list[int] = []
    for stream in streams:
        gaps += gaps_within(stream, together)
        first = bisect.bisect_left(stream.arrivals_s, together.start_s)
        places += range(first, bisect.bisect_right(stream.arrivals_s, together.end_s))
    if len(gaps) < len(streams) * GAPS // 2:
        return None
    return StepRun(statistics.median(gaps), prompt_tokens + statistics.fmean(places) - 1)


def reading_of(point: Point, recordings: Sequence[Recording]) -> StepRun | str:
    """What a point gave, or why it gave nothing. Pure."""
    for recording in recordings:
        if recording.error or not recording.arrivals_s:
            return recording.error or "no token came"
    if not point.is_decode:
        return StepRun(
            statistics.median(recording.arrivals_s[0] - recording.asked_s for recording in recordings[1:]),
            0.0,
        )
    streams = [recording.stream() for recording in recordings]
    return decode_reading(streams, point.tokens) or "the engine does not run so many at once"
