"""The driver's side of a live switch: bring the target up, copy, cut, clean up.

Or give up and leave no trace.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Iterator
from itertools import chain

from runtime.engine import Cut, Lag
from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer, transfer
from runtime.kv.carrier.layout import SAMPLES
from runtime.models import CutTimings, LayerRange
from runtime.process.liveness import in_time
from runtime.process.messages import Fatal
from runtime.process.supervised import cancel
from runtime.sync.patch import Integers
from runtime.sync.stream import StreamPlan
from runtime.sync.swap import weights_by_layer
from runtime.torch_engine.driver.capacity import Capacity
from runtime.torch_engine.driver.digests import refuse_other_bytes
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.syncing import Syncing, uncollected
from runtime.torch_engine.driver.workers import Ranks, WorkerLostError
from runtime.torch_engine.messages import Copied, Copy, Exchange

_MOST_IN_CUT = 2_000
"""Pieces of single blocks that are compared behind the fence: all of a small patch. Of 100 streams all took 0.7 s on an H100."""
_BLOCKS_AHEAD = 4
"""Blocks per sequence whose memory is there before copying begins."""


class Switch(Syncing):
    """One switch from the driver's active topology to a target topology."""

    path = "patch"
    """What reports call the way that requests took."""

    def __init__(self, host: Host, capacity: Capacity, target: Ranks) -> None:
        super().__init__(host, target.topology)
        self._capacity = capacity
        self.target = target
        """The topology that is being brought up."""
        self._is_back = target.is_loaded
        self._committed = False
        self._ended = False
        self._bring_up = asyncio.create_task(self._build())
        self._bring_up.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def devices(self) -> frozenset[int]:
        """Devices of the target."""
        return frozenset(self.target.topology.devices)

    def lose(self, error: SwitchError) -> None:
        """A target-only worker is gone: the switch is over, the old topology goes on."""
        self._call_off(error)
        self.target.lose(error)

    async def ready(self) -> None:
        """Wait for the target's roles, and for a step of each."""
        await asyncio.wait({self._bring_up, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        self._check()
        await self._bring_up

    async def lag(self) -> Lag:
        """Copy one slice of what the target lacks, then tell what is left."""
        upcoming = self._upcoming()
        began_s = time.monotonic()
        slots, copying_s = await self._copy(self._boxes, self._sync.order(self._pace.slots, upcoming))
        pause_s = self._pace.copied(slots, copying_s, time.monotonic() - began_s)
        if self._host.num_running:
            await asyncio.sleep(pause_s)
        return self._measured(slots)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Fence, drain, last patch, commit, first step.

        Before the commit any failure leaves the source serving.
        """
        before = self._copied_bytes
        with uncollected():
            self._hold_back(True)  # a newcomer's cached prefix may be much to copy at once
            try:
                async with asyncio.timeout(deadline_s):
                    await self._catch_up()
                    fenced_s, drained_s = await self._host.fence()
                    await self._copy_rest()
                    self._check()
            except TimeoutError:
                self._go_on()
                raise SwitchError(Reason.DEADLINE, f"the cut was not ready after {deadline_s} s") from None
            except BaseException:
                self._go_on()
                raise
            patched_s = time.perf_counter()
            self._committed = True
            self.is_closing = False
            moved = self._host.commit(self.target, epoch)
            committed_s = time.perf_counter()
            first_step = self._host.resume()
            self._forget_prefixes()  # while workers compute, and before anybody new looks for one
            self._hold_back(False)
            self._host.schedule()
            await first_step
        timings = CutTimings(
            drain_ms=(drained_s - fenced_s) * 1000,
            patch_ms=(patched_s - drained_s) * 1000,
            commit_ms=(committed_s - patched_s) * 1000,
            first_step_ms=(time.perf_counter() - committed_s) * 1000,
        )
        return Cut(epoch, moved, (), self._copied_bytes - before, timings, paths={self.path: len(moved)})

    async def release(self) -> None:
        """Give back what only the source needed; it stays on standby."""
        if self._committed and not self._ended:
            self._ended = True
            await self._clean_up(self._retire_source())

    async def abort(self, reason: Reason) -> None:
        """Give back what only the target needed; if it stood by before, it does again."""
        if self._committed or self._ended:
            return
        self._ended = True
        self._hold_back(False)
        stays = self._is_back and not self._lost.done()
        given_up = SwitchError(reason, "the switch was given up")
        if stays:
            self._call_off(given_up)
        else:
            self.lose(given_up)
        await cancel({self._bring_up})
        if stays:
            await self._clean_up(self._parts.standby.keep(self.target, self._source))
        else:
            await self._clean_up(self.target.release_all(self._parts.workers, keep=self._source))

    async def _clean_up(self, giving_back: Awaitable[None]) -> None:
        """Whatever fails in it, the next switch can begin."""
        try:
            await giving_back
        finally:
            try:
                await self._capacity.settle()
            finally:
                self._host.over(self.target)

    async def _retire_source(self) -> None:
        await self._parts.standby.keep(self._source, self.target)

    async def _build(self) -> None:
        await self._parts.standby.give_way(self._capacity.beside(self.target.topology), self.target.topology)
        await self._capacity.give_back()  # the target's weights come where retired blocks were
        await self._capacity.gain(self.target)
        await self.target.load(self._parts.workers)
        await self._warm()
        if self._is_back:  # ranks that wait for each other would hold up the steps of those that serve
            await self.target.warm_up(self._parts.workers)
        else:
            await self._host.probe(self.target)

    async def _warm(self) -> None:
        """Have memory behind what is copied first, and behind the blocks that are taken while it is.

        And the memory open that it comes from.
        """
        blocks = [*self._parts.pool.holding, *self._upcoming(_BLOCKS_AHEAD)]
        pieces = {device: {piece for box in boxes for piece in box.pieces} for device, boxes in self._boxes.items()}
        await self._capacity.warm(pieces, blocks)
        self._sync.warmed(blocks)
        if self._parts.workers.gains:  # elsewhere one mapping reaches all
            await self._capacity.reach(self._boxes, blocks)

    def _go_on(self) -> None:
        """The cut is given up: requests run on the source as before."""
        self._hold_back(False)
        self._host.resume()

    async def _catch_up(self) -> None:
        """While requests still run.

        What came since the lag was measured need not wait for the fence, nor the first step.
        """
        slots = max(self._pace.slots, 1)
        upcoming = self._upcoming()
        for _ in range(0, self._sync.lag(upcoming), slots):
            await self._copy(self._boxes, self._sync.order(slots, upcoming))
        if self._parts.settings.check_copies:
            await self._check_sample()

    async def _check_sample(self) -> None:
        """A block that a request gave away meanwhile may differ: then a sample is taken anew, twice."""
        for is_last in (False, False, True):
            blocks, runs = self._sync.copied()
            try:
                await refuse_other_bytes(self._host, [*chain(*self._boxes.values())], runs, SAMPLES)
                break
            except SwitchError:
                if is_last or self._sync.holds(blocks):
                    raise

    async def _copy_rest(self) -> None:
        """What the target lacks.

        Nothing runs meanwhile, so it is not waited for as long as for the rest of the cut.
        """
        await in_time(
            self._patch(self._boxes, self._sync.order()), self._parts.settings.stop_timeout_s, "the last patch"
        )

    async def _patch(self, boxes: dict[int, list[Transfer]], runs: Integers) -> None:
        await self._copy(boxes, runs)
        if self._parts.settings.check_copies:
            await refuse_other_bytes(self._host, [*chain(*boxes.values())], runs, _MOST_IN_CUT)

    def _forget_prefixes(self) -> None:
        """Cached blocks that no request uses stay so where the target has all their bytes.

        To copy them is not worth a stop.
        """
        pool = self._parts.pool
        if weights_by_layer(self._source.topology) != weights_by_layer(self.target.topology):
            pool.forget_prefixes()
        elif self._boxes:
            pool.forget(self._sync.lacking(pool.cached))

    async def _copy(self, boxes: dict[int, list[Transfer]], runs: Integers) -> tuple[int, float]:
        """Have every target worker copy its boxes of these slots.

        Returns the slots and the seconds of the slowest.
        """
        self._check()
        if not len(runs):
            return 0, 0.0
        workers = self._parts.workers
        orders = {device: Copy(workers.sources(some), runs) for device, some in boxes.items()}
        done: list[Copied] = await asyncio.gather(*(workers.order(device, order) for device, order in orders.items()))
        self._copied_bytes += sum(copied.num_bytes for copied in done)
        slots = int((runs[:, 1] - runs[:, 0]).sum())
        return slots, max((copied.seconds for copied in done), default=0.0)


class StreamingSwitch(Switch):
    """Before the cut the target has its group and roles without weights.

    Inside it, step by step, the rest (``sync.stream``).

    A step that fails is undone, and those before it, so that the source goes on. A worker that dies after the first
    step takes KV with it that nobody else has: then the engine starts anew.
    """

    path = "stream"

    def __init__(self, host: Host, capacity: Capacity, target: Ranks, plan: StreamPlan) -> None:
        self._plan = plan
        super().__init__(host, capacity, target)

    async def lag(self) -> Lag:
        """There is nothing to copy before the cut, but a prediction of how long it takes."""
        self._check()
        loading_s = max(self._plan.load_bytes.values()) / self._host.load_bytes_per_s
        return Lag(0, 0, self._copied_bytes, loading_s)

    async def _build(self) -> None:
        await self._parts.standby.clear()
        await self._capacity.give_back()
        await self.target.load_without_weights(self._parts.workers)

    async def _catch_up(self) -> None:
        """Nothing is copied while requests run."""

    async def _copy_rest(self) -> None:
        runs = self._sync.order()
        way = (self._source, self.target)
        moved = list[LayerRange]()
        try:
            for step in self._plan.steps:
                await self._bring(step, runs, way)
                moved.append(step)
                await self._clear(step, way)
            await self._host.probe(self.target)
        except BaseException as error:
            try:
                await self._undo(moved, runs, error)
            except Exception as second:  # noqa: BLE001 - whatever it is, the source is not whole
                detail = f"{error}; the layers that had moved could not be brought back: {second}"
                self._host.fail(Fatal(Reason.ENGINE_LOST, detail))
            raise

    async def _undo(self, moved: list[LayerRange], runs: Integers, error: BaseException) -> None:
        """Bring back what has moved.

        The step after that may be half done, but what it took from is still whole.
        """
        is_lost = isinstance(error, SwitchError) and error.reason is Reason.RANK_LOST
        if is_lost and moved:
            self._host.fail(Fatal(Reason.RANK_LOST, f"{error}, with KV that had moved to it"))
            return
        back = self.target, self._source
        for step in self._plan.steps[len(moved) : len(moved) + 1]:
            await self._exchange(step, back)
            await self._clear(step, back)
        for step in reversed(moved):
            await self._bring(step, runs, back)
            await self._clear(step, back)
        self._forget_prefixes()  # cached blocks that no request used did not come along

    async def _bring(self, layers: LayerRange, runs: Integers, way: tuple[Ranks, Ranks]) -> None:
        """Bring KV, then weights.

        The KV that was copied from goes only afterwards, so that until then nothing is lost.
        """
        old, new = way
        boxes: dict[int, list[Transfer]] = {}
        for box in transfer(old.topology, new.topology, self._parts.model):
            first = max(box.layers[0], layers.start)
            last = min(box.layers[1], layers.end)
            if first < last:
                part = Transfer(box.target, box.source, (first, last), box.heads)
                boxes.setdefault(box.target, []).append(part)
        await self._capacity.gain(new, layers)
        await self._patch(boxes, runs)
        await self._exchange(layers, way)

    async def _exchange(self, layers: LayerRange, way: tuple[Ranks, Ranks]) -> None:
        old, new = way
        for device in {*old.topology.devices, *new.topology.devices}:
            with self._needing(device, new):
                await self._parts.workers.order(device, Exchange(old.generation, new.generation, layers))

    @contextlib.contextmanager
    def _needing(self, device: int, new: Ranks) -> Iterator[None]:
        """A lost worker ends the switch; on the way back only those of the source are needed."""
        try:
            yield
        except WorkerLostError:
            if new is not self._source or device in self._source.topology.devices:
                raise

    async def _clear(self, layers: LayerRange, way: tuple[Ranks, Ranks]) -> None:
        """Give back the KV memory of the old side."""
        old, new = way
        workers = self._parts.workers
        for device in old.topology.devices:
            gone = {piece for piece in old.pieces(device) - new.pieces(device) if piece.layer in layers}
            with self._needing(device, new):
                await workers.give_back(device, gone, workers.all_blocks)

    async def _retire_source(self) -> None:
        """It has no weights to stand by with."""
        await self._source.release(self._parts.workers)
