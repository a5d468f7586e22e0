"""The engine's own switch, as the service does it: coordinator, router, and a journal in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.load import Recording, listen
from benchmarks.strategy import Start, Switched, running
from intentctl.measure import TimeInterval
from runtime.coordinator import Coordinator
from runtime.engine import Engine
from runtime.errors import Reason, SwitchError
from runtime.ledger import Counts
from runtime.machine import SwitchSettings
from runtime.models import Phase, Progress, Topology
from runtime.router import Router
from runtime.tokenizer import Tokenizer


class MemoryJournal:
    """A journal that lasts as long as the benchmark."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Phase, str]] = []

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        """Keep an entry."""
        self.entries.append((switch_id, phase, detail))


class OwnSwitch:
    """One engine that switches by itself."""

    def __init__(self, engine: Engine, router: Router) -> None:
        self._router = router
        self._coordinator = Coordinator(engine, router, MemoryJournal(), SwitchSettings())
        self._num_switches = 0

    @property
    def counts(self) -> Counts:
        """What the ledger saw."""
        return self._router.counts

    async def deliver(self, recording: Recording) -> None:
        """Listen to the router; see the protocol."""
        await listen(self._router, recording)

    async def switch(self, target: Topology) -> Switched:
        """Let the coordinator switch; see the protocol."""
        seen: list[Progress] = []
        self._num_switches += 1
        report = await self._coordinator.switch(target, f"benchmark-{self._num_switches}", seen.append)
        if report.phase is not Phase.DONE:
            raise SwitchError(report.reason or Reason.CANCELLED, f"to {target.shape}: {report.detail}")
        return Switched(
            interval=TimeInterval(seen[0].at_s, seen[-1].at_s),
            prepare_s=report.prepare_s,
            paths=report.paths,
            left_to_drain=report.left_to_drain,
            bytes_before=report.bytes_before,
            bytes_inside=report.bytes_inside,
            tokens_recomputed=report.tokens_recomputed,
            timings=report.timings,
            bytes_between_hosts=report.bytes_between_hosts,
            link=report.link,
            phases_s={one.phase: one.at_s for one in reversed(seen)},  # the first of each phase stands
        )


@asynccontextmanager
async def own_switch(start: Start, source: Topology, tokenizer: Tokenizer) -> AsyncIterator[OwnSwitch]:
    """The engine at a topology, ready to switch by itself."""
    async with running(start, source, tokenizer) as (engine, router):
        yield OwnSwitch(engine, router)
