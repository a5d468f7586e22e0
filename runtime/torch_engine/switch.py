"""The driver's side of a live switch: bring the target up, copy, cut, clean up; or give up and leave no trace."""

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

from runtime.engine import Cut, Lag
from runtime.errors import SwitchError
from runtime.footprint import Transfer, transfer
from runtime.models import CutTimings, Reason
from runtime.sync.patch import PatchSync
from runtime.torch_engine.crew import WorkerLostError
from runtime.torch_engine.lineup import Lineup
from runtime.torch_engine.messages import Copy

if TYPE_CHECKING:
    from runtime.torch_engine.driver import Driver


class Switch:
    """One switch from the driver's active lineup to a target lineup."""

    def __init__(self, driver: "Driver", target: Lineup) -> None:
        self._driver, self._target, self._source = driver, target, driver.active
        self._sync = PatchSync(driver.pool.versions)
        self._boxes: dict[int, list[Transfer]] = {}
        for box in transfer(self._source.topology, target.topology, driver.model):
            self._boxes.setdefault(box.target, []).append(box)
        self._copied_bytes = 0
        self._warm_blocks: set[int] = set()
        self.is_syncing = False
        """KV is being copied: no step may take long, or it would delay the cut."""
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost.add_done_callback(lambda future: future.exception())
        self._committed = False
        self._ended = False
        self._bring_up = asyncio.create_task(self._build())
        self._bring_up.add_done_callback(lambda task: task.cancelled() or task.exception())

    @property
    def devices(self) -> frozenset[int]:
        """Devices of the target."""
        return frozenset(self._target.topology.devices)

    @property
    def target(self) -> Lineup:
        """The lineup that is being brought up."""
        return self._target

    def lose(self, error: SwitchError) -> None:
        """A target-only worker is gone: the switch is over, the old topology goes on."""
        if not self._lost.done():
            self._lost.set_exception(error)
        self._target.lose(error)

    async def ready(self) -> None:
        """Wait for the target's roles and its probe step."""
        await asyncio.wait({self._bring_up, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        self._check()
        await self._bring_up

    async def lag(self) -> Lag:
        """Copy one slice of what the target lacks, then tell what is left."""
        self.is_syncing = True
        began = time.monotonic()
        behind = self._sync.behind(self._driver.scheduler.tables())
        await self._copy([*behind, *self._upcoming()][: self._slice_blocks()])
        if self._driver.scheduler.running:
            share = self._driver.settings.copy_share
            await asyncio.sleep((time.monotonic() - began) * (1 / share - 1))
        left = self._sync.behind(self._driver.scheduler.tables())
        tokens = self._sync.tokens(left, self._driver.settings.block_size)
        return Lag(tokens, len(left) * sum(self._block_bytes().values()), self._copied_bytes)

    async def cut(self, epoch: int, deadline_s: float) -> Cut:
        """Fence, drain, last patch, commit, first step. Before the commit any failure leaves the source serving."""
        before, began = self._copied_bytes, time.perf_counter()
        self._driver.fence()
        try:
            async with asyncio.timeout(deadline_s):
                await self._driver.drained()
                drained = time.perf_counter()
                await self._copy(self._sync.behind(self._driver.scheduler.tables()))
                self._check()
        except TimeoutError:
            self._driver.resume()
            raise SwitchError(Reason.DEADLINE, f"the cut was not ready after {deadline_s} s") from None
        except BaseException:
            self._driver.resume()
            raise
        self.is_syncing = False
        patched = time.perf_counter()
        self._committed = True
        moved = self._driver.commit(self._target, epoch)
        first_step = self._driver.resume()
        committed = time.perf_counter()
        await first_step
        parts = itertools.pairwise((began, drained, patched, committed, time.perf_counter()))
        timings = CutTimings(*((end - start) * 1000 for start, end in parts))
        return Cut(epoch, moved, (), self._copied_bytes - before, timings, paths={"patch": len(moved)})

    async def release(self) -> None:
        """Give back what only the source needed; it stays on standby."""
        if self._committed and not self._ended:
            self._ended = True
            await self._driver.standby.keep(self._source, self._target)
            await self._driver.capacity.settle()
            self._driver.forget(self)

    async def abort(self, reason: Reason) -> None:
        """Give back what only the target needed."""
        if self._committed or self._ended:
            return
        self._ended = True
        self.lose(SwitchError(reason, "the switch was given up"))
        self._bring_up.cancel()
        await asyncio.gather(self._bring_up, return_exceptions=True)
        await self._target.disband(self._driver.crew, keep=self._source)
        await self._driver.capacity.settle()
        self._driver.forget(self)

    async def _build(self) -> None:
        await self._driver.standby.give_way(
            self._driver.capacity.beside(self._target.topology), self._target.topology
        )
        await self._driver.capacity.give_back()  # the target's weights come where retired blocks were
        await self._target.load(self._driver.crew)
        await self._driver.probe(self._target)

    async def _copy(self, blocks: list[int]) -> None:
        """Have every target worker copy its boxes of these blocks."""
        self._check()
        if not blocks:
            return
        self._sync.ordered(blocks)
        self._warm_blocks.update(blocks)
        orders = [self._copy_to(device, boxes, blocks) for device, boxes in self._boxes.items()]
        try:
            self._copied_bytes += sum(await asyncio.gather(*orders))
        except WorkerLostError as error:
            raise SwitchError(Reason.RANK_LOST, str(error)) from error

    async def _copy_to(self, device: int, boxes: list[Transfer], blocks: list[int]) -> int:
        crew = self._driver.crew
        sources = tuple((box, crew.handle(box.source)) for box in boxes)
        copied: int = await crew.order(device, lambda number: Copy(number, sources, blocks))
        return copied

    def _check(self) -> None:
        if self._lost.done() and (error := self._lost.exception()):
            raise error

    def _upcoming(self) -> list[int]:
        """Blocks the next steps will take: copied once too, so that the target's memory is warm when they come."""
        pool = self._driver.pool
        upcoming = pool.next_free(len(self._driver.scheduler.running))
        return [block for block in upcoming if block not in self._warm_blocks]

    def _block_bytes(self) -> dict[int, int]:
        piece = self._driver.shape.piece_block_bytes
        return {
            device: sum(len(box.pieces) for box in boxes) * piece for device, boxes in self._boxes.items()
        }

    def _slice_blocks(self) -> int:
        largest = max(self._block_bytes().values(), default=1)
        return max(1, self._driver.settings.copy_slice_bytes // largest)
