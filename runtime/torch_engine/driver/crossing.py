"""A switch between two drivers, each on its host: what the source does, and the target.

The service takes what one says to the other. Until it says that requests are the target's the source holds them all, and
can let them go on.
"""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import numpy as np

from runtime.engine import GenerationRequest
from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, Transfer, transfer
from runtime.kv.carrier.carrier import Carrier
from runtime.kv.carrier.layout import num_tokens
from runtime.kv.carrier.messages import Fetched
from runtime.kv.pages import Runs
from runtime.models import Topology
from runtime.process.channel import decode, packed
from runtime.process.launcher import LocalLauncher
from runtime.process.messages import Command
from runtime.sync.pace import Pace
from runtime.torch_engine import messages
from runtime.torch_engine.driver.capacity import Capacity
from runtime.torch_engine.driver.grammars import Compiler
from runtime.torch_engine.driver.handover import Handover, handed_over, take_over
from runtime.torch_engine.driver.host import Host, Underway
from runtime.torch_engine.driver.scheduler import Scheduler
from runtime.torch_engine.driver.syncing import Syncing, uncollected
from runtime.torch_engine.driver.workers import Ranks

LINK_SHARE = 0.5
"""Share of the time in which the background copy may use the link between two hosts: streams use it too."""


class Travelled(msgspec.Struct, frozen=True):
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
    """Who submits waits for this, and hears by its error that requests have left."""

    async def free_for(self, target: Topology) -> None:
        """Return when a switch to ``target`` can begin, or refuse it.

        Raises:
            SwitchError: another one is under way, or there is no such topology.
        """

    def flush(self) -> None:
        """Send the outputs that waited since the fence."""

    def move(self, epoch: int) -> tuple[str, ...]:
        """Every request speaks under ``epoch`` from here on. Returns their ids."""


class Part:
    """One driver's part in a crossing; ``target`` is its own topology."""

    target: Ranks
    devices: frozenset[int] = frozenset()
    is_closing = False

    def __init__(self, host: Station, place: str) -> None:
        self._station, self.target, self._place = host, host.active, place
        self._carrier: Carrier | None = None
        self._is_over = False

    def lose(self, error: SwitchError) -> None:
        """No worker is this switch's alone: those of the topology are the driver's."""

    async def obey(self, command: Command) -> object:
        """Do what the service asks."""
        raise NotImplementedError

    async def _start_carrier(self, boxes: tuple[Transfer, ...]) -> Carrier:
        workers, devices = self._station.parts.workers, self.target.topology.devices
        stores = {device: workers.hello(device).handle for device in devices}
        carrier = await Carrier.start(LocalLauncher(self._place), self._station.parts.shape, boxes, stores)
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
        """Without the carrier, and where nothing is held here without its memory, what serves or stands by goes on."""
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


class Departure(Part, Syncing):
    """The source's part."""

    def __init__(self, host: Station, command: messages.BeginDeparture) -> None:
        """Make room for what the target holds.

        Raises:
            SwitchError: it does not hold what lives now.
        """
        host.capacity.make_room_elsewhere(command.target)
        Syncing.__init__(self, host, command.target)
        Part.__init__(self, host, command.host)
        self._to = command.target
        self._link = Pace(LINK_SHARE, self._pace.slots)
        self._sliced_s, self._slots, self._copy_s = time.monotonic(), 0, 0.0
        self._told: set[str] = set()
        self._patch: Runs = np.zeros((0, 2), np.int64)

    @property
    def copy_share(self) -> float:
        """Carriers copy, which serve nothing."""
        return self._parts.settings.beside_copy_share

    async def obey(self, command: Command) -> object:
        """Do what the service asks of the source."""
        match command:
            case messages.OpenDeparture():
                boxes = transfer(self.target.topology, self._to, self._parts.model)
                return (await self._start_carrier(boxes)).address
            case messages.NextSlice(fetched, is_last):
                return await self._next_slice(fetched, is_last=is_last)
            case messages.TakeSample():
                return await self._sample()
            case messages.Leave(deadline_s):
                return await self._leave(deadline_s)
            case messages.DigestPatch():
                return await self.carrier.digest(self._patch) if len(self._patch) else b""
            case messages.Stay():
                self._go_on()
                return None
        raise SwitchError(Reason.CANCELLED, "requests leave this driver, none arrive")

    async def release(self) -> None:
        """Forget what left, and stand by. Idempotent."""
        if not self._is_over:
            if self._station.leaving:
                moved = SwitchError(Reason.BUSY, "requests have moved to another host")
                self._station.leaving.set_exception(moved)
                self._station.leaving.exception()  # whoever waits hears of it; nobody has to
            self._station.leaving = None
            await self._end(holds=False)
            self._hold_back(False)
            self._station.resume()

    async def abort(self, reason: Reason) -> None:  # noqa: ARG002 - the coordinator reports it
        """Go on as before. Idempotent."""
        if not self._is_over:
            self._go_on()
            await self._end(holds=True)

    async def _next_slice(self, fetched: Fetched | None, *, is_last: bool) -> messages.Sliced:
        pause_s = self._booked(fetched)
        if is_last:
            self._hold_back(True)  # a newcomer's cached prefix may be much to copy at once
        elif self._station.num_running:
            await asyncio.sleep(pause_s)
        self._sliced_s = time.monotonic()
        room = self.carrier.most_slots - self._parts.settings.block_size
        most = room if is_last else min(self._pace.slots, self._link.slots, room)
        runs = self._sync.order(most, self._upcoming())
        await self._gather(runs)
        return messages.Sliced(runs.tobytes(), self._newcomers(), self._measured(self._slots))

    def _booked(self, fetched: Fetched | None) -> float:
        """Book the slice before with both paces; how long to pause."""
        if fetched is None:
            return 0.0
        elapsed_s, copy_s = time.monotonic() - self._sliced_s, max(self._copy_s, fetched.copy_s)
        return max(
            self._pace.copied(self._slots, copy_s, elapsed_s),
            self._link.copied(self._slots, fetched.link_s, elapsed_s),
        )

    async def _gather(self, runs: Runs, within_s: float | None = None) -> None:
        self._slots, self._copy_s = num_tokens(runs), 0.0
        if not self._slots:
            return
        gathered = await self.carrier.gather(runs, *([] if within_s is None else [within_s]))
        self._copied_bytes += gathered.num_bytes
        self._copy_s = gathered.copy_s

    def _newcomers(self) -> list[GenerationRequest]:
        sequences = self._station.scheduler.sequences
        new = [each.request for each in sequences if each.request.request_id not in self._told]
        self._told.update(request.request_id for request in new)
        return new

    async def _sample(self) -> messages.Sample:
        """While it is taken no block of it is given to anybody else."""
        blocks, runs = self._sync.copied()
        pool, seed = self._parts.pool, random.getrandbits(32)
        pool.share(blocks)
        try:
            return messages.Sample(runs.tobytes(), seed, await self.carrier.digest(runs, seed) if blocks else b"")
        finally:
            pool.give_back(blocks)

    async def _leave(self, deadline_s: float) -> messages.Left:
        self._station.leaving = asyncio.get_running_loop().create_future()
        began_s = time.perf_counter()
        with uncollected():
            try:
                async with asyncio.timeout(deadline_s):
                    fenced_s, drained_s = await self._station.fence()
                self._patch = self._sync.order()
                self._refuse_large(self._patch)
                await self._gather(self._patch, self._parts.settings.stop_timeout_s)
            except TimeoutError:
                self._go_on()
                raise SwitchError(Reason.DEADLINE, f"the last step did not end within {deadline_s} s") from None
            except BaseException:
                self._go_on()
                raise
            pool = self._parts.pool
            travelled = Travelled(
                handed_over(self._station.scheduler, self._sync.lacking(pool.cached)), self._station.capacity.wanted
            )
            self._station.flush()
            times = fenced_s - began_s, drained_s - fenced_s
            return messages.Left(self._patch.tobytes(), self._newcomers(), packed(travelled), *times)

    def _refuse_large(self, runs: Runs) -> None:
        slots, most = num_tokens(runs), self.carrier.most_slots
        if slots > most:
            what = f"{slots:,} tokens were written since the last copy, and a carrier takes {most:,} at once"
            raise SwitchError(Reason.NOT_CONVERGED, f"{what}; try again")

    def _go_on(self) -> None:
        """Whatever was begun of a cut, requests run here as before."""
        self._hold_back(False)
        if self._station.leaving:
            self._station.leaving.set_result(None)
            self._station.leaving = None
            self._station.resume()


class Arrival(Part):
    """The target's part: nothing runs here before ``Begin``."""

    def __init__(self, host: Station, command: messages.BeginArrival) -> None:
        super().__init__(host, command.host)
        self._boxes = transfer(command.source, self.target.topology, host.parts.model)
        self._pieces: dict[int, set[Piece]] = {}
        for box in self._boxes:
            self._pieces.setdefault(box.target, set()).update(box.pieces)
        self._warm: set[int] = set()
        self._requests: dict[str, GenerationRequest] = {}
        self._compiling: dict[str, asyncio.Task[Any]] = {}
        self._has_begun = False
        host.capacity.be_whole()

    async def obey(self, command: Command) -> object:
        """Do what the service asks of the target."""
        match command:
            case messages.BeginArrival(_, peer):
                return await (await self._start_carrier(self._boxes)).meet(peer)
            case messages.Fetch(gathered):
                self._hear_of(gathered.newcomers)
                return await self._fetch(gathered.runs)
            case messages.CompareSample(sample):
                there = sample.digest
                return there == (await self.carrier.digest(sample.runs, sample.seed) if len(sample.runs) else b"")
            case messages.Arrive(left, epoch):
                return await self._arrive(left, epoch)
            case messages.Begin():
                self._has_begun = True
                await self._station.resume()
                return None
        raise SwitchError(Reason.CANCELLED, "requests arrive at this driver, none leave")

    async def release(self) -> None:
        """Have as many blocks as fit. Idempotent."""
        if not self._is_over:
            await self._end(holds=True)

    async def abort(self, reason: Reason) -> None:  # noqa: ARG002 - the coordinator reports it
        """Hold nothing. Idempotent."""
        if not self._is_over and not self._has_begun:
            for task in self._compiling.values():
                task.cancel()
            await self._end(holds=False)
            self._station.resume()

    def _hear_of(self, newcomers: Iterable[GenerationRequest]) -> None:
        """Their grammars are compiled before they are waited for."""
        for request in newcomers:
            self._requests[request.request_id] = request
            if request.sampling.grammar:
                task = asyncio.create_task(self._station.grammars.matcher(request))
                task.add_done_callback(lambda done: done.cancelled() or done.exception())
                self._compiling[request.request_id] = task

    async def _fetch(self, runs: Runs, within_s: float | None = None) -> Fetched:
        if not len(runs):
            return Fetched(0, 0.0, 0.0)
        size = self._station.parts.shape.block_size
        blocks = {block for start, stop in runs.tolist() for block in range(start // size, -(-stop // size))}
        if cold := blocks - self._warm:
            await self._station.capacity.warm(self._pieces, cold)
            self._warm |= cold
        return await self.carrier.fetch(runs, within_s)

    async def _arrive(self, left: messages.Left, epoch: int) -> messages.Arrived:
        with uncollected():
            await self._station.fence()
            self._hear_of(left.newcomers)
            fetched = await self._fetch(left.runs, self._station.parts.settings.stop_timeout_s)
            digesting = asyncio.ensure_future(self.carrier.digest(left.runs)) if len(left.runs) else None
            travelled: Travelled = decode(left.handover, Travelled)
            handover, matchers = travelled.handover, {}
            for passage in (*handover.running, *handover.waiting):
                if compiling := self._compiling.get(passage.request_id):
                    matchers[passage.request_id] = await compiling
            self._station.capacity.take_over(travelled.wanted_blocks)
            take_over(self._station.scheduler, handover, epoch, self._requests, matchers)
            moved = self._station.move(epoch)
            return messages.Arrived(moved, await digesting if digesting else b"", fetched)


async def obey(host: Station, command: Command) -> object:
    """Do what the service asks of a driver for a crossing.

    Raises:
        SwitchError: it fails, or there is none.
    """
    match command:
        case messages.BeginDeparture(target):
            await host.free_for(target)
            host.switch = Departure(host, command)
            return None
        case messages.BeginArrival():
            await host.free_for(host.active.topology)
            host.switch = Arrival(host, command)
        case messages.Serve(tokens):
            await _serve(host, tokens)
            return None
    if not isinstance(host.switch, Part):
        raise SwitchError(Reason.CANCELLED, "there is no switch to another host under way")
    return await host.switch.obey(command)


async def _serve(host: Station, tokens: int) -> None:
    """A driver that stands by serves, as nobody else does; ``tokens`` of one request have to fit."""
    await host.capacity.settle()
    held = host.scheduler.request_blocks * host.parts.settings.block_size
    if tokens > held:
        raise SwitchError(Reason.NO_MEMORY, f"it holds {held} tokens of one request, one has {tokens}")
    await host.capacity.gain(host.active)
    await host.active.warm_up(host.parts.workers)
