"""Baseline that any engine can do: all streams stop, the engine ends, one starts at the target and computes them anew."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.load import Recording, until
from benchmarks.strategy import Side, Start, Switched, running
from benchmarks.two_engines import Parts, computed_tokens, speaks, total
from intentctl.measure import TimeInterval
from runtime.ledger import Counts
from runtime.models import Topology
from runtime.tokenizer import Tokenizer


class Restart:
    """One engine at a time."""

    def __init__(self, start: Start, tokenizer: Tokenizer, stack: AsyncExitStack) -> None:
        self._start, self._tokenizer, self._stack = start, tokenizer, stack
        self._sides: list[Side] = []
        """Of all engines so far; the last one serves, if one is up."""
        self._is_up = asyncio.Event()
        self._parts = Parts()

    @property
    def counts(self) -> Counts:
        """What the ledgers of all saw."""
        return total([side.router.counts for side in self._sides])

    async def deliver(self, recording: Recording) -> None:
        """Listen to the engine that is up, from start to start; see the protocol."""
        await self._parts.deliver(recording, self._serving)

    async def switch(self, target: Topology) -> Switched:
        """End the engine and start one at the target, while every stream waits; see the protocol."""
        planned_s = time.time()
        self._is_up.clear()
        moving = self._parts.interrupt()
        recomputed = sum(map(computed_tokens, moving))
        await self._stack.aclose()
        side = await self.start(target)
        await until(lambda: all(speaks(recording, side) for recording in moving))
        return Switched(
            interval=TimeInterval(planned_s, time.time()),
            prepare_s=0.0,
            paths={"restart": len(moving)},
            tokens_recomputed=recomputed,
        )

    async def start(self, topology: Topology) -> Side:
        """Start an engine, and let streams go to it."""
        up = running(self._start, topology, self._tokenizer)
        _, router = await self._stack.enter_async_context(up)
        self._sides.append(Side(f"engine {len(self._sides)} ", topology, router))
        self._is_up.set()
        return self._sides[-1]

    async def _serving(self) -> Side:
        await self._is_up.wait()
        return self._sides[-1]


@asynccontextmanager
async def restart(start: Start, source: Topology, tokenizer: Tokenizer) -> AsyncIterator[Restart]:
    """The baseline with an engine at ``source``."""
    async with AsyncExitStack() as stack:
        strategy = Restart(start, tokenizer, stack)
        await strategy.start(source)
        yield strategy
