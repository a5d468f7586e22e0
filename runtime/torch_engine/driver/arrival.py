"""The target's part in a switch to another host: requests arrive."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runtime.engine import GenerationRequest
from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, transfer
from runtime.kv.carrier.messages import Fetched
from runtime.kv.pages import Runs
from runtime.process.channel import decode
from runtime.process.messages import Command
from runtime.torch_engine import messages
from runtime.torch_engine.driver.handover import take_over
from runtime.torch_engine.driver.station import CrossingPart, Station, Travelled
from runtime.torch_engine.driver.syncing import uncollected


class Arrival(CrossingPart):
    """The target's part: nothing runs here before ``Begin``."""

    def __init__(self, host: Station, command: messages.BeginArrival) -> None:
        super().__init__(host, command.host, command.toward)
        self._boxes = transfer(command.source, self.target.topology, host.parts.model)
        self._pieces: dict[int, set[Piece]] = {}
        for box in self._boxes:
            self._pieces.setdefault(box.target, set()).update(box.pieces)
        self._warm: set[int] = set()
        self._requests: dict[str, GenerationRequest] = {}
        self._compiling: dict[str, asyncio.Task[Any]] = {}
        self._has_begun = False
        host.capacity.be_whole()

    async def obey(self, command: Command[Any]) -> object:
        """Do what the service asks of the target."""
        match command:
            case messages.BeginArrival(_, peer):
                return await (await self._start_carrier(self._boxes)).meet(peer)
            case messages.FetchSlice(gathered):
                self._hear_of(gathered.newcomers)
                return await self._fetch(gathered.runs)
            case messages.CompareSample(sample):
                there = sample.digest
                return there == (await self.carrier.digest(sample.runs, sample.seed) if len(sample.runs) else b"")
            case messages.Arrive(left, epoch):
                return await self._arrive(left, epoch)
            case messages.Begin(batching):
                self._station.fill(batching)
                self._has_begun = True
                self._station.leaving = None
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

    async def _arrive(self, left: messages.Departed, epoch: int) -> messages.Arrived:
        with uncollected():
            await self._station.fence()
            self._hear_of(left.newcomers)
            fetched = await self._fetch(left.runs, self._station.parts.settings.stop_timeout_s)
            digesting = asyncio.ensure_future(self.carrier.digest(left.runs)) if len(left.runs) else None
            travelled: Travelled = decode(left.handover, Travelled)
            handover = travelled.handover
            matchers = {}
            for passage in (*handover.running, *handover.waiting):
                if compiling := self._compiling.get(passage.request_id):
                    matchers[passage.request_id] = await compiling
            self._station.capacity.take_over(travelled.wanted_blocks)
            take_over(self._station.scheduler, handover, epoch, self._requests, matchers)
            moved = self._station.move(epoch)
            return messages.Arrived(moved, await digesting if digesting else b"", fetched)
