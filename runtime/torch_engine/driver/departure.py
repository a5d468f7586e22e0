"""The source's part in a switch to another host: its requests leave.

Until it hears that they are the target's it holds them all, and can let them go on.
"""

import asyncio
import random
import time
from typing import Any

import numpy as np

from runtime.engine import GenerationRequest
from runtime.errors import Reason, SwitchError
from runtime.footprint import transfer
from runtime.kv.carrier.carrier import CALL_S
from runtime.kv.carrier.layout import num_tokens
from runtime.kv.carrier.messages import Fetched
from runtime.kv.pages import Runs
from runtime.process.channel import packed
from runtime.process.messages import Command
from runtime.sync.pace import Pace
from runtime.torch_engine import messages
from runtime.torch_engine.driver.handover import handed_over
from runtime.torch_engine.driver.station import CrossingPart, Station, Travelled
from runtime.torch_engine.driver.syncing import Syncing, uncollected

LINK_SHARE = 0.5
"""Share of the time in which the background copy may use the link between two hosts: streams use it too."""


class Departure(CrossingPart, Syncing):
    """The source's part."""

    def __init__(self, host: Station, command: messages.BeginDeparture) -> None:
        """Make room for what the target holds.

        Raises:
            SwitchError: it does not hold what lives now.
        """
        host.capacity.make_room_elsewhere(command.target)
        Syncing.__init__(self, host, command.target)
        CrossingPart.__init__(self, host, command.host, command.toward)
        self._to = command.target
        self._link = Pace(LINK_SHARE, self._pace.slots)
        self._sliced_s = time.monotonic()
        self._slots = 0
        self._copy_s = 0.0
        self._told: set[str] = set()
        self._patch: Runs = np.zeros((0, 2), np.int64)

    @property
    def copy_share(self) -> float:
        """Carriers copy, which serve nothing."""
        return self._parts.settings.beside_copy_share

    async def obey(self, command: Command[Any]) -> object:
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
            case messages.StayHere():
                self._go_on()
                return None
        raise SwitchError(Reason.CANCELLED, "requests leave this driver, none arrive")

    async def release(self) -> None:
        """Forget what left, and stand by. Idempotent."""
        if not self._is_over:
            if self._station.leaving:
                moved = SwitchError(Reason.BUSY, "requests have moved to another host")
                self._station.leaving.set_exception(moved)
                self._station.leaving.exception()  # whoever waits hears of it, as does who comes later; nobody has to
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
        elapsed_s = time.monotonic() - self._sliced_s
        copy_s = max(self._copy_s, fetched.copy_s)
        return max(
            self._pace.copied(self._slots, copy_s, elapsed_s),
            self._link.copied(self._slots, fetched.link_s, elapsed_s),
        )

    async def _gather(self, runs: Runs, within_s: float = CALL_S) -> None:
        self._slots = num_tokens(runs)
        self._copy_s = 0.0
        if not self._slots:
            return
        gathered = await self.carrier.gather(runs, within_s)
        self._copied_bytes += gathered.num_bytes
        self._copy_s = gathered.copy_s

    def _newcomers(self) -> list[GenerationRequest]:
        sequences = self._station.scheduler.sequences
        new = [each.request for each in sequences if each.request.request_id not in self._told]
        self._told.update(request.request_id for request in new)
        return new

    async def _sample(self) -> messages.Sample:
        """Of blocks that requests keep meanwhile.

        At the third attempt they may not give them away, and steps may lack blocks.
        """
        for is_last in (False, False, True):
            blocks, runs = self._sync.copied()
            pinned = blocks if is_last else []
            seed = random.getrandbits(32)
            self._parts.pool.share(pinned)
            try:
                sample = messages.Sample(runs.tobytes(), seed, await self.carrier.digest(runs, seed) if blocks else b"")
            finally:
                self._parts.pool.give_back(pinned)
            if self._sync.holds(blocks):
                break
        return sample

    async def _leave(self, deadline_s: float) -> messages.Departed:
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
            return messages.Departed(
                self._patch.tobytes(),
                newcomers=self._newcomers(),
                handover=packed(travelled),
                fence_s=fenced_s - began_s,
                drain_s=drained_s - fenced_s,
            )

    def _refuse_large(self, runs: Runs) -> None:
        slots = num_tokens(runs)
        most = self.carrier.most_slots
        if slots > most:
            raise SwitchError(
                Reason.NOT_CONVERGED,
                f"{slots:,} tokens were written since the last copy, and a carrier takes {most:,} at once; try again",
            )

    def _go_on(self) -> None:
        """Whatever was begun of a cut, requests run here as before."""
        self._hold_back(False)
        if self._station.leaving and not self._station.leaving.done():
            self._station.leaving.set_result(None)
            self._station.leaving = None
            self._station.resume()
