"""Streams that stay open: when one ends the next begins in its slot, and every token is stamped when it arrives.

Streams are of all ages from the start, so that the work of a step stays the same while they run.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Self, TypeVar

from intentctl.measure import ClientStream, TimeInterval
from runtime.engine import Finish, SamplingParams
from runtime.errors import StreamError
from runtime.router import Router
from runtime.stream import Delta, GenerationParams

POLL_S = 0.02
"""How often the load is looked at."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Recording:
    """One generation as its client sees it while it grows; the lists are parallel."""

    prompt: tuple[int, ...]
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    """Unix time."""
    fingerprints: list[str] = field(default_factory=list)
    finish: Finish | None = None
    started_s: float = field(default_factory=time.time)
    """When its client asked; a recording is made when it is delivered."""
    temperature: float = 0.0
    seed: int | None = None

    @property
    def tokens_left(self) -> int:
        """Tokens that are still to come."""
        return self.max_tokens - len(self.token_ids)

    def add(self, delta: Delta, owner: str) -> None:
        """Stamp a token; ``owner`` tells routers apart that number their epochs alike."""
        if delta.token_id is not None:
            self.arrivals_s.append(time.time())
            self.token_ids.append(delta.token_id)
            self.fingerprints.append(owner + delta.fingerprint)
        self.finish = delta.finish

    def count_since(self, since_s: float) -> int:
        """Tokens that came at ``since_s`` or later."""
        count = 0
        for arrival_s in reversed(self.arrivals_s):
            if arrival_s < since_s:
                break
            count += 1
        return count

    def stream(self) -> ClientStream:
        """What ``intentctl.measure`` needs of it: arrivals and who made each token."""
        return ClientStream(tuple(self.arrivals_s), (), (), tuple(self.fingerprints))


async def listen(router: Router, recording: Recording, owner: str = "") -> None:
    """Let a router generate what is left of a recording, from its prompt and the tokens it has.

    Raises:
        RuntimeFault: refused, or broken on the way.
    """
    context = recording.prompt + tuple(recording.token_ids)
    sampling = SamplingParams(recording.tokens_left, recording.temperature, seed=recording.seed)
    async with aclosing(router.generate(context, GenerationParams(sampling, ignore_eos=True))) as deltas:
        async for delta in deltas:
            recording.add(delta, owner)
    if recording.finish is not Finish.LENGTH:
        raise StreamError(f"a stream ended with {recording.finish} after {len(recording.token_ids)} tokens")


async def until(is_so: Callable[[], bool]) -> None:
    """Return when something is so."""
    while not is_so():  # noqa: ASYNC110 - polled, so that recording a token costs nothing more
        await asyncio.sleep(POLL_S)


class Load:
    """Slots with one stream each. Use as an async context manager; leaving it ends the streams.

    ``make(number, max_tokens)`` makes the recording of each stream, ``deliver`` brings one to its end. The first stream
    of a slot has as much less to say than ``max_tokens`` as others have said at its age.
    """

    def __init__(
        self,
        num_slots: int,
        max_tokens: int,
        make: Callable[[int, int], Recording],
        deliver: Callable[[Recording], Awaitable[None]],
    ) -> None:
        self.recordings: list[Recording] = []
        """Every stream so far, oldest first."""
        self._max_tokens = max_tokens
        self._make, self._deliver = make, deliver
        self._slots: list[list[Recording]] = [[] for _ in range(num_slots)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        gc.disable()  # the more has been heard the longer a collection takes, 0.4 s in the end, and nothing is stamped
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await _ended(self._tasks)
        gc.enable()

    async def renew(self) -> None:
        """End every stream and begin others of all ages."""
        await _ended(self._tasks)
        self._begin()

    async def replace(self, tokens: int) -> None:
        """End the streams that have fewer tokens left than that; return when the next ones speak in their slots."""
        ending = [number for number, slot in enumerate(self._slots) if slot[-1].tokens_left < tokens]
        await _ended([self._tasks[number] for number in ending])
        for number in ending:
            self._tasks[number] = asyncio.create_task(self._fill(self._slots[number], self._max_tokens))
        await self.watch(until(lambda: all(self._slots[number][-1].token_ids for number in ending)))

    def tokens_within(self, interval: TimeInterval) -> int:
        """The most tokens that one slot has had in an interval."""
        start_s, end_s = interval.start_s, interval.end_s
        return max(_count_since(slot, start_s) - _count_since(slot, end_s) for slot in self._slots)

    async def grow(self, num_tokens: int, since_s: float) -> None:
        """Return when every slot has had that many tokens since a moment, the next stream's too where one ended."""
        await self.watch(until(lambda: all(_count_since(slot, since_s) >= num_tokens for slot in self._slots)))

    async def begin(self, num_streams: int) -> None:
        """Return when so many more streams have begun."""
        enough = len(self.recordings) + num_streams
        await self.watch(until(lambda: len(self.recordings) >= enough))

    async def watch(self, work: Coroutine[None, None, T]) -> T:
        """The result of ``work``, unless a stream breaks first.

        Raises:
            RuntimeFault: what broke the stream.
        """
        task = asyncio.create_task(work)
        try:
            done, _ = await asyncio.wait({task, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
            for broken in done - {task}:
                broken.result()
            return task.result()
        finally:
            task.cancel()

    def _begin(self) -> None:
        count = len(self._slots)
        self._tasks = [
            asyncio.create_task(self._fill(slot, max(1, self._max_tokens * number // count)))
            for number, slot in enumerate(self._slots, start=1)
        ]

    async def _fill(self, slot: list[Recording], max_tokens: int) -> None:
        while True:
            recording = self._make(len(self.recordings), max_tokens)
            self.recordings.append(recording)
            slot.append(recording)
            await self._deliver(recording)
            max_tokens = self._max_tokens


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _count_since(slot: Sequence[Recording], since_s: float) -> int:
    """Tokens of a slot since a moment, over all its streams."""
    count = 0
    for recording in reversed(slot):
        found = recording.count_since(since_s)
        count += found
        if found < len(recording.token_ids):
            break
    return count
