"""Baselines that any engine can do: a second engine of the same kind stands at the target topology.

``Replay`` cancels every stream at the cut and submits it to the other engine with its prompt and the tokens so far.
``Drain`` lets running streams end where they are while new ones wait, and starts those on the other engine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.load import Recording, listen, until
from benchmarks.strategy import Side, Start, Strategy, Switched, running
from intentctl.measure import TimeInterval
from runtime.ledger import Counts
from runtime.models import Topology
from runtime.tokenizer import Tokenizer


class Sides:
    """The engines that are up, of which one serves. A topology's engine starts when it is first asked for."""

    def __init__(self, start: Start, tokenizer: Tokenizer, stack: AsyncExitStack) -> None:
        self._start, self._tokenizer, self._stack = start, tokenizer, stack
        self._sides: list[Side] = []
        self.serving: Side

    async def at(self, topology: Topology) -> Side:
        """The engine at a topology."""
        for side in self._sides:
            if side.topology == topology:
                return side
        up = running(self._start, topology, self._tokenizer)
        _, router = await self._stack.enter_async_context(up)
        self._sides.append(Side(f"engine {len(self._sides)} ", topology, router))
        return self._sides[-1]

    @property
    def counts(self) -> Counts:
        """What the ledgers of all saw."""
        return total([side.router.counts for side in self._sides])


class Parts:
    """Streams that can be taken from one engine and given to the next: each is heard in parts."""

    def __init__(self) -> None:
        self._parts: dict[asyncio.Task[None], Recording] = {}

    async def deliver(self, recording: Recording, serving: Callable[[], Awaitable[Side]]) -> None:
        """Bring a stream to its end, from part to part on the engine that is ``serving``.

        Raises:
            RuntimeFault: it was refused or broke.
        """
        while recording.finish is None:
            side = await serving()
            part = asyncio.create_task(listen(side.router, recording, side.name))
            self._parts[part] = recording
            try:
                await asyncio.wait({part})
            finally:
                part.cancel()
                del self._parts[part]
            if not part.cancelled():
                part.result()

    def interrupt(self) -> list[Recording]:
        """End every part; the streams go on with the next. Returns them."""
        moving = list(self._parts.values())
        for part in self._parts:
            part.cancel()
        return moving


class Replay:
    """At the cut every stream is computed anew on the other engine."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._parts = Parts()

    @property
    def counts(self) -> Counts:
        """What the ledgers saw."""
        return self._sides.counts

    async def deliver(self, recording: Recording) -> None:
        """Listen to the engine that serves, from cut to cut; see the protocol."""
        await self._parts.deliver(recording, self._serving)

    async def switch(self, target: Topology) -> Switched:
        """Start the target while streams run, then replay them there; see the protocol."""
        planned_s = time.time()
        side = await self._sides.at(target)
        ready_s = time.time()
        self._sides.serving = side
        moving = self._parts.interrupt()
        recomputed = sum(map(computed_tokens, moving))
        await until(lambda: all(speaks(recording, side) for recording in moving))
        return Switched(
            interval=TimeInterval(planned_s, time.time()),
            prepare_s=ready_s - planned_s,
            paths={"replay": len(moving)},
            tokens_recomputed=recomputed,
        )

    async def _serving(self) -> Side:
        return self._sides.serving


class Drain:
    """Running streams end where they are; those that come meanwhile wait, and start on the other engine."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()
        self._num_running = 0
        self._arrivals_s: list[float] = []
        """Of the requests that wait."""

    @property
    def counts(self) -> Counts:
        """What the ledgers saw."""
        return self._sides.counts

    async def deliver(self, recording: Recording) -> None:
        """Wait until requests are admitted, then listen to the engine that serves; see the protocol."""
        if not self._open.is_set():
            self._arrivals_s.append(time.time())
            await self._open.wait()
        side = self._sides.serving
        self._num_running += 1
        self._idle.clear()
        try:
            await listen(side.router, recording, side.name)
        finally:
            self._num_running -= 1
            if not self._num_running:
                self._idle.set()

    async def switch(self, target: Topology) -> Switched:
        """Start the target while streams run, then admit nothing until the last has ended; see the protocol."""
        planned_s = time.time()
        side = await self._sides.at(target)
        closed_s, num_running = time.time(), self._num_running
        self._open.clear()
        await self._idle.wait()
        opened_s = time.time()
        waits_s = tuple(opened_s - arrived_s for arrived_s in self._arrivals_s)
        self._arrivals_s.clear()
        self._sides.serving = side
        self._open.set()
        return Switched(
            interval=TimeInterval(planned_s, opened_s),
            prepare_s=closed_s - planned_s,
            paths={"wait": len(waits_s)},
            left_to_drain=num_running,
            waits_s=waits_s,
            drain_s=opened_s - closed_s,
        )


@asynccontextmanager
async def two_engines(
    make: Callable[[Sides], Strategy], start: Start, source: Topology, tokenizer: Tokenizer
) -> AsyncIterator[Strategy]:
    """A baseline whose first engine serves at ``source``."""
    async with AsyncExitStack() as stack:
        sides = Sides(start, tokenizer, stack)
        sides.serving = await sides.at(source)
        yield make(sides)


def computed_tokens(recording: Recording) -> int:
    """Tokens whose KV exists while a stream decodes: all but the newest. None before its first token."""
    outputs = len(recording.token_ids)
    return len(recording.prompt) + outputs - 1 if outputs else 0


def total(every: Sequence[Counts]) -> Counts:
    """Sums of what several ledgers saw."""
    return Counts(
        accepted=sum(counts.accepted for counts in every),
        lost=sum(counts.lost for counts in every),
        duplicates=sum(counts.duplicates for counts in every),
        wrong_epoch=sum(counts.wrong_epoch for counts in every),
    )


def speaks(recording: Recording, side: Side) -> bool:
    """Whether a stream's newest token came from a side, or none will come any more."""
    return recording.finish is not None or bool(
        recording.fingerprints and recording.fingerprints[-1].startswith(side.name)
    )
