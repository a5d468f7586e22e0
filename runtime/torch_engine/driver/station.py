"""What a driver's part in a switch to another host has, whichever end it is."""

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Protocol

from runtime.capabilities import Batching
from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer
from runtime.kv.carrier.carrier import Carrier
from runtime.models import Topology
from runtime.process.launcher import LocalLauncher
from runtime.process.messages import Command, WirePart
from runtime.torch_engine.driver.capacity import Capacity
from runtime.torch_engine.driver.grammars import Compiler
from runtime.torch_engine.driver.handover import Handover
from runtime.torch_engine.driver.host import Host, Underway
from runtime.torch_engine.driver.scheduler import Scheduler
from runtime.torch_engine.driver.workers import Ranks


class Travelled(WirePart, frozen=True):
    """What the target's driver is told of the source's."""

    handover: Handover
    wanted_blocks: int


class Station(Host, Protocol):
    """The driver, as far as requests that come or leave concern it."""

    scheduler: Scheduler
    capacity: Capacity
    grammars: Compiler
    switch: Underway | None
    """What is under way, of whichever kind."""
    leaving: asyncio.Future[None] | None
    """Who submits waits for this, and hears by its error that requests have left; none where they are served."""

    async def free_for(self, target: Topology) -> None:
        """Return when a switch to ``target`` can begin, or refuse it.

        Raises:
            SwitchError: another one is under way, or there is no such topology.
        """

    def fill(self, batching: Batching | None) -> None:
        """Fill steps so far from now on; None: as before."""

    def flush(self) -> None:
        """Send the outputs that waited since the fence."""

    def move(self, epoch: int) -> tuple[str, ...]:
        """Every request speaks under ``epoch`` from here on. Returns their ids."""


class CrossingPart(ABC):
    """One driver's part in a crossing; ``target`` is its own topology."""

    target: Ranks
    devices: frozenset[int] = frozenset()
    is_closing = False

    def __init__(self, host: Station, place: str, toward: str) -> None:
        """``place`` is the name of its host, ``toward`` an address of the other side's."""
        self._station = host
        self.target = host.active
        self._place = place
        self._toward = toward
        self._carrier: Carrier | None = None
        self._is_over = False

    def lose(self, error: SwitchError) -> None:  # noqa: B027 - for both sides there is nothing to do
        """No worker is this switch's alone: those of the topology are the driver's."""

    @abstractmethod
    async def obey(self, command: Command[Any]) -> object:
        """Do what the service asks."""

    async def _start_carrier(self, boxes: tuple[Transfer, ...]) -> Carrier:
        parts = self._station.parts
        stores = {device: parts.workers.hello(device).handle for device in self.target.topology.devices}
        carrier = await Carrier.start(LocalLauncher(self._place), parts.shape, boxes, stores, self._toward)
        if self._is_over:
            carrier.close()
            raise SwitchError(Reason.CANCELLED, "the switch was given up")
        self._carrier = carrier
        return carrier

    @property
    def carrier(self) -> Carrier:
        """This side's.

        Raises:
            SwitchError: there is none.
        """
        if self._carrier is None:
            raise SwitchError(Reason.CANCELLED, f"host {self._place} has no carrier for this switch")
        return self._carrier

    async def _end(self, *, holds: bool) -> None:
        """Close the carrier, and without requests give KV memory back; what serves or stands by goes on."""
        self._is_over = True
        if self._carrier:
            self._carrier.close()
        try:
            if not holds:
                self._station.scheduler.lose("it is served elsewhere")  # whom it is told, hears of it elsewhere
                await self.target.stand_by(self._station.parts.workers)
            await self._station.capacity.settle()
        finally:
            self._station.over(self.target)
