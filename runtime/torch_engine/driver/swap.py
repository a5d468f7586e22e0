"""The driver's side of a swap: layers get weights in other formats between two steps; KV stays.

A round is what there is room for beside what runs, mostly all layers. The last round is the cut: every step before it is of the
old formats, every step after it of the new. Earlier ones, where memory is short, happen while the switch is prepared.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from runtime.engine import Cut, Lag
from runtime.errors import Reason, SwitchError
from runtime.models import FULL, CutTimings, Topology
from runtime.process import messages as wire
from runtime.sync.swap import Round, mixed
from runtime.torch_engine.driver.capacity import Capacity
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.workers import Ranks
from runtime.torch_engine.messages import FetchLayer, LetGo, SwapLayers

log = logging.getLogger(__name__)

PATH = "swap"
"""What reports call the way that requests took: none, they stay where they are."""


class Swap:
    """One change of formats of the driver's active topology."""

    is_closing = False
    devices: frozenset[int] = frozenset()
    """A device that is lost ends the engine, not the swap alone."""

    def __init__(
        self, host: Host, capacity: Capacity, topology: Topology, tell: Callable[[wire.StoodIn], object]
    ) -> None:
        """Plan it, and begin to load; who is told hears where neither the old formats nor the new ones serve.

        Raises:
            SwitchError: there is no room.
        """
        self._host = host
        self._tell = tell
        self._workers = host.parts.workers
        self._capacity = capacity
        self._rounds = capacity.make_room_to_swap(topology)
        self._source = host.active.topology
        self._topology = topology
        self._done: list[Round] = []
        self._given_up = False
        """Nothing more is loaded for it; what changes at this moment still does."""
        self._hangs = False
        self._committed = False
        self._ended = False
        self._prepared = asyncio.create_task(self._prepare())
        self._prepared.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def target(self) -> Ranks:
        """What serves, under its generation."""
        return self._host.active

    def lose(self, error: SwitchError) -> None:
        """No role of its own can be lost."""

    async def ready(self) -> None:
        """Return when all but the last round has changed, and the last is loaded."""
        await asyncio.shield(self._prepared)

    async def lag(self) -> Lag:
        """Nothing is copied."""
        return Lag(0, 0)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Fence, the last round, commit, first step."""
        try:
            async with asyncio.timeout(deadline_s):
                fenced_s, drained_s = await self._host.fence()
            await self._exchange(self._rounds[-1])
        except TimeoutError:
            self._host.resume()
            raise SwitchError(Reason.DEADLINE, f"the cut was not ready after {deadline_s} s") from None
        except BaseException:
            self._host.resume()
            raise
        swapped_s = time.perf_counter()
        self._committed = True
        self._host.active.topology = self._topology
        moved = self._host.commit(self._host.active, epoch)
        self._host.parts.pool.forget_prefixes()
        committed_s = time.perf_counter()
        await self._host.resume()
        timings = CutTimings(
            drain_ms=(drained_s - fenced_s) * 1000,
            patch_ms=(swapped_s - drained_s) * 1000,
            commit_ms=(committed_s - swapped_s) * 1000,
            first_step_ms=(time.perf_counter() - committed_s) * 1000,
        )
        return Cut(epoch, moved, (), 0, timings, paths={PATH: len(moved)})

    async def release(self) -> None:
        """Free the old weights, and have KV blocks in their place."""
        if self._committed and not self._ended:
            self._ended = True
            await self._clean_up()

    async def abort(self, reason: Reason) -> None:
        """Change back what has changed, in its order backwards."""
        if self._committed or self._ended:
            return
        self._ended = True
        log.info("a swap was given up: %s", reason)
        self._given_up = True
        patience_s = self._host.parts.settings.load_after_s
        self._hangs = not (await asyncio.wait({self._prepared}, timeout=patience_s))[0]
        try:
            if self._hangs:
                self._stay_mixed(f"a layer was not there after {patience_s:.0f} s")
            else:
                await self._go_back()
        except SwitchError as error:
            self._stay_mixed(error.detail)
        finally:
            await self._clean_up()

    async def _go_back(self) -> None:
        await self._let_go()
        self._given_up = False
        while self._done:
            last = self._done[-1]
            await self._fetch({layer: (new, old) for layer, (old, new) in last.items()})
            await self._exchange(last)
            await self._let_go()
            self._done.pop()

    def _stay_mixed(self, why: str) -> None:
        """Each layer is whole in one format, though not all in those that were asked for."""
        if changed := {layer for each in self._done for layer in each}:
            stays = mixed(self._source, self._topology, changed)
            self._host.active.topology = stays
            layers = ", ".join(map(str, sorted(changed)))
            self._tell(wire.StoodIn(stays, f"layers {layers} could not be changed back: {why}"))

    async def _clean_up(self) -> None:
        """Whatever fails in it, the next switch can begin."""
        try:
            if not self._hangs:  # else it would wait behind what hangs; the next swap lets go first
                await self._let_go()
        finally:
            try:
                await self._capacity.settle()
            finally:
                self._host.over(self.target)

    async def _prepare(self) -> None:
        await self._host.parts.standby.clear()  # their weights are partly those that shall go
        await self._let_go()
        await self._capacity.shrunk(lambda: self._given_up)
        for number, each in enumerate(self._rounds, 1):
            await self._fetch(each)
            if number < len(self._rounds) and not self._given_up:
                await self._exchange(each)
                self._done.append(each)
                await self._let_go()

    async def _fetch(self, changes: Round) -> None:
        """Each rank lays its layers aside in their new formats."""
        for layer, (_, new) in changes.items():
            if self._given_up:
                return
            order = FetchLayer(self.target.generation, layer, None if new in FULL else new)
            devices = self._source.stage_of(layer).devices
            await asyncio.gather(*(self._workers.order(device, order) for device in devices))

    async def _exchange(self, changes: Round) -> None:
        """In all ranks between the same two steps; those that did change back if one could not."""
        order = SwapLayers(self.target.generation, tuple(changes))
        devices = self._source.devices
        outcomes = await asyncio.gather(*(self._workers.order(each, order) for each in devices), return_exceptions=True)
        if failed := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
            changed = [device for device, outcome in zip(devices, outcomes, strict=True) if outcome is None]
            await asyncio.gather(*(self._workers.order(device, order) for device in changed))
            raise failed[0]

    async def _let_go(self) -> None:
        order = LetGo()
        await asyncio.gather(*(self._workers.order(device, order) for device in self._source.devices))
