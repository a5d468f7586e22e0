"""Streams that stay open: when one ends the next begins in its slot, and every token is stamped when it arrives."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Self, TypeVar

from intentctl.measure import Interval, Stream
from runtime.engine import Finish
from runtime.errors import StreamError
from runtime.router import Delta, GenerationParams, Router

POLL_S = 0.02
"""How often the load is looked at."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Recording:
    """One greedy generation as its client sees it while it grows; the lists are parallel."""

    prompt: tuple[int, ...]
    max_tokens: int
    token_ids: list[int] = field(default_factory=list)
    arrivals_s: list[float] = field(default_factory=list)
    """Unix time."""
    fingerprints: list[str] = field(default_factory=list)
    finish: Finish | None = None
    started_s: float = field(default_factory=time.time)
    """When its client asked; a recording is made when it is delivered."""

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

    def stream(self) -> Stream:
        """What ``intentctl.measure`` needs of it: arrivals and who made each token."""
        return Stream(tuple(self.arrivals_s), (), (), tuple(self.fingerprints))


async def listen(router: Router, recording: Recording, owner: str = "") -> None:
    """Let a router generate what is left of a recording, from its prompt and the tokens it has.

    Raises:
        RuntimeFault: refused, or broken on the way.
    """
    context = recording.prompt + tuple(recording.token_ids)
    params = GenerationParams(max_tokens=recording.tokens_left, temperature=0.0, ignore_eos=True)
    async with aclosing(router.generate(context, params)) as deltas:
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

    ``first_tokens`` has the output length of the first stream of each slot, ``make(number, max_tokens)`` makes the
    recording of each stream, ``deliver`` brings one to its end.
    """

    def __init__(
        self,
        first_tokens: Sequence[int],
        max_tokens: int,
        make: Callable[[int, int], Recording],
        deliver: Callable[[Recording], Awaitable[None]],
    ) -> None:
        self.recordings: list[Recording] = []
        """Every stream so far, oldest first."""
        self._first_tokens, self._max_tokens = first_tokens, max_tokens
        self._make, self._deliver = make, deliver
        self._slots: list[list[Recording]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    @property
    def tokens_left(self) -> int:
        """What the stream that ends first has left."""
        return min(slot[-1].tokens_left if slot else 0 for slot in self._slots)

    def tokens_within(self, interval: Interval) -> int:
        """The most tokens that one slot has had in an interval."""
        start_s, end_s = interval.start_s, interval.end_s
        return max(_count_since(slot, start_s) - _count_since(slot, end_s) for slot in self._slots)

    async def settle(self, needed_tokens: int) -> bool:
        """Return when every slot's stream speaks; new ones begin if one has less than ``needed_tokens`` left: then True."""
        is_new = self.tokens_left < needed_tokens
        if is_new:
            await self._end()
            self._begin()
        await self.watch(until(lambda: all(slot and slot[-1].token_ids for slot in self._slots)))
        return is_new

    async def grow(self, num_tokens: int, since_s: float) -> None:
        """Return when every slot has had that many tokens since a moment."""
        await self.watch(
            until(lambda: all(_count_since(slot, since_s) >= num_tokens for slot in self._slots))
        )

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
        self._slots = [[] for _ in self._first_tokens]
        self._tasks = [
            asyncio.create_task(self._fill(slot, tokens))
            for slot, tokens in zip(self._slots, self._first_tokens, strict=True)
        ]

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fill(self, slot: list[Recording], max_tokens: int) -> None:
        while True:
            recording = self._make(len(self.recordings), max_tokens)
            self.recordings.append(recording)
            slot.append(recording)
            await self._deliver(recording)
            max_tokens = self._max_tokens


def _count_since(slot: Sequence[Recording], since_s: float) -> int:
    """Tokens of a slot since a moment, over all its streams."""
    count = 0
    for recording in reversed(slot):
        found = recording.count_since(since_s)
        count += found
        if found < len(recording.token_ids):
            break
    return count
