"""Ways to bring running streams from one topology to another, all behind one face."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.load import Recording
from intentctl.measure import TimeInterval
from runtime.engine import Engine
from runtime.ledger import Counts
from runtime.models import CutTimings, MeasuredLink, Phase, Topology
from runtime.router import Router
from runtime.tokenizer import Tokenizer

Start = Callable[[Topology], Awaitable[Engine]]
"""Starts an engine that serves at a topology."""


@dataclass(frozen=True, slots=True)
class Switched:
    """One switch that happened."""

    interval: TimeInterval
    """From planned to done."""
    prepare_s: float
    """Planned to ready to cut."""
    paths: Mapping[str, int]
    """How requests came over: path to their number."""
    left_to_drain: int = 0
    bytes_before: int = 0
    bytes_inside: int = 0
    tokens_recomputed: int = 0
    timings: CutTimings | None = None
    """The parts of the cut as the engine saw them."""
    waits_s: tuple[float, ...] | None = None
    """What requests queued; None where streams are cut, whose stops are measured at the client."""
    drain_s: float | None = None
    phases_s: Mapping[Phase, float] | None = None
    """When each phase began, Unix time; None where there are none."""
    bytes_between_hosts: int = 0
    link: MeasuredLink | None = None
    """Between two hosts, as the engine measured it."""


class Strategy(Protocol):
    """Serves streams, and switches while they run."""

    async def deliver(self, recording: Recording) -> None:
        """Bring one stream to its end, through any number of switches.

        Raises:
            RuntimeFault: it was refused or broke.
        """
        ...

    async def switch(self, target: Topology) -> Switched:
        """Go to a topology and return when nothing of the switch is left to do.

        Raises:
            RuntimeFault: it was given up.
        """
        ...

    @property
    def counts(self) -> Counts:
        """What the ledgers of its routers saw."""
        ...


@dataclass(slots=True)
class Side:
    """An engine with its router."""

    name: str
    topology: Topology
    router: Router


@asynccontextmanager
async def running(start: Start, topology: Topology, tokenizer: Tokenizer) -> AsyncIterator[tuple[Engine, Router]]:
    """An engine at a topology and its router, ended in reverse."""
    engine = await start(topology)
    try:
        async with Router(engine, tokenizer) as router:
            yield engine, router
    finally:
        await engine.close()
