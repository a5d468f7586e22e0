"""How many KV blocks the driver has in circulation, over wishes and switches.

And giving back the memory of the others.

Books first, memory after: a block is retired in the pool at once, then its pages are punched out slice by slice, beside
steps where the device can. Retired blocks come back only while nothing is being punched, so no live block can lose its bytes.
"""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass

from runtime import footprint
from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, Transfer, value_bytes
from runtime.kv.pages import runs
from runtime.kv.store import Slice
from runtime.models import Cluster, LayerRange, ModelSpec, Precision, Stage, Topology
from runtime.sync.stream import KvSize, StreamPlan, plan
from runtime.sync.swap import Round, least_room, rounds
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.scheduler import Scheduler
from runtime.torch_engine.driver.workers import Ranks, WorkerLostError
from runtime.torch_engine.messages import TorchDriverConfig
from runtime.torch_engine.models import SCRATCH, Resized, default_blocks, quantised_on

log = logging.getLogger(__name__)

_LOOK_S = 0.02
"""Between two looks whether blocks have come free that shall retire."""


class Capacity:
    """The driver's pool, made to fit what runs and what comes up beside it."""

    def __init__(self, host: Host, scheduler: Scheduler, wanted: int | None = None) -> None:
        """``wanted``: while no weights are quantised; None: as many as there are."""
        self._host = host
        self._parts = host.parts
        self._scheduler = scheduler
        self._pool = self._parts.pool
        self.wanted = self._pool.num_blocks if wanted is None else wanted
        """KV blocks that there shall be where devices hold them, and no weights are quantised: what that frees comes to it."""
        self._most = self.wanted
        self._least = 0
        """What a person asked for, whatever formats free."""
        self._returned: set[int] = set()
        """Retired blocks whose memory the system has back."""
        self._turn = asyncio.Lock()
        """Held while memory is punched out, and to put blocks back into circulation."""

    @property
    def is_owing(self) -> bool:
        """Blocks have retired whose memory nobody is giving back."""
        return len(self._returned) < len(self._pool.retired) and not self._turn.locked()

    async def resize(self, num_blocks: int) -> Resized:
        """Have ``num_blocks`` blocks, as far as blocks are free at once, the rest as they come free.

        Raises:
            SwitchError: a switch is under way, the devices hold fewer, or an accepted request may come to need more.
        """
        async with self._turn:
            self._refuse_size(num_blocks)
            self.wanted = num_blocks - self._freed(self._host.active.topology)
            self._least = num_blocks
            await self._have(num_blocks)
            slices = await self._punch()
        returned = sum(each.bytes for each in slices)
        seconds = tuple(each.seconds for each in slices)
        return Resized(self._pool.num_blocks, self._pool.num_blocks - self._pool.capacity, returned, seconds)

    async def resized(self) -> None:
        """Return when no resize is under way: it would undo the room that is made next."""
        async with self._turn:
            pass

    def make_room(self, target: Topology) -> StreamPlan | None:
        """Shrink the pool to what fits while ``target`` comes up beside what runs.

        ``give_back`` does the rest.

        Where only one copy of the weights fits, to what fits while layers move one by one: how they do is returned.

        Raises:
            SwitchError: what lives now would not fit either way; nothing was touched.
        """
        now = self._host.active.topology
        least = max(1, self._scheduler.least_blocks)
        beside = footprint.blocks_beside(
            now,
            target,
            model=self._parts.model,
            cluster=self._parts.cluster,
            block_size=self._parts.settings.block_size,
        )
        fits = beside - SCRATCH
        streamed = None
        if fits < least:
            fits, streamed = self._room_to_stream(now, target, least)
        self._scheduler.request_blocks = min(self._settled(now), self._settled(target))
        self._pool.resize(min(self._pool.capacity, fits))
        return streamed

    def make_room_to_swap(self, target: Topology) -> tuple[Round, ...]:
        """Shrink the pool to what ``target`` holds, and say in which rounds layers change.

        ``shrunk`` does the rest.

        Raises:
            SwitchError: it does not hold what lives now, or a layer has no room; nothing was touched.
        """
        now = self._host.active.topology
        least = max(1, self._scheduler.longest_blocks)  # what runs beside it may have to wait, and be computed anew
        fits = self._settled(target)
        if fits < least:
            raise SwitchError(
                Reason.NO_MEMORY,
                f"{target} leaves room for {fits} KV blocks, and a request needs {least}; wait until it has ended",
            )
        usable = _usable_bytes(now, self._parts.cluster)
        beside = least_room(now, target, self._parts.model)
        blocks = min(self._pool.capacity, fits, max(least, self._beside(now, usable, beside)))
        standing = standing_bytes(now, self._parts.model, blocks + SCRATCH, self._parts.settings.block_size)
        found = rounds(now, target, self._parts.model, {each: usable[each] - standing[each] for each in usable})
        self._scheduler.request_blocks = min(self._settled(now), fits)
        self._pool.resize(blocks)
        return found

    def _beside(self, now: Topology, usable: Mapping[int, float], beside: Mapping[int, float]) -> int:
        """KV blocks that leave so many bytes of each device beside what runs."""
        model = self._parts.model
        per_block = footprint.block_bytes(now, model, self._parts.settings.block_size)
        held = footprint.weight_bytes(now, model)
        left = (int((usable[each] - held[each] - beside.get(each, 0.0)) // per_block[each]) for each in usable)
        return min(left) - SCRATCH

    async def shrunk(self, is_given_up: Callable[[], bool]) -> None:
        """Return when every block that has to retire has, and the system has its memory."""
        await self.give_back()
        while self._pool.num_blocks > self._pool.capacity and not is_given_up():
            await asyncio.sleep(_LOOK_S)  # they come free as requests end
            await self.give_back()

    def make_room_elsewhere(self, target: Topology) -> None:
        """Shrink the pool to what ``target``, on other devices, holds.

        Raises:
            SwitchError: it does not hold what lives now; nothing was touched.
        """
        fits = self._settled(target)
        least = max(1, self._scheduler.least_blocks)
        if fits < least:
            raise SwitchError(
                Reason.NO_MEMORY,
                f"{target.shape} holds {fits} KV blocks there, and requests need {least}; wait until some have ended, "
                "or take other devices",
            )
        self._scheduler.request_blocks = min(self._settled(self._host.active.topology), fits)
        self._pool.resize(min(self._pool.capacity, fits))

    def be_whole(self) -> None:
        """Have every block id in circulation: what another driver's blocks are copied to is no hole."""
        self._pool.resize(self._parts.shape.num_blocks - SCRATCH)

    def take_over(self, wanted: int) -> None:
        """Have as many blocks as another driver wanted, or as fit here; books only, ``settle`` does the rest."""
        self.wanted = wanted
        self._scheduler.request_blocks = self._settled(self._host.active.topology)
        self._returned.clear()  # what was copied here took memory
        self._pool.resize(self._scheduler.request_blocks)

    def _room_to_stream(self, now: Topology, target: Topology, least: int) -> tuple[int, StreamPlan]:
        """The most KV blocks, up to those there are, with which layers can move one by one; and how."""
        shape = self._parts.shape
        cluster = self._parts.cluster
        devices = {*now.devices, *target.devices}
        usable = {device: cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM) for device in devices}

        def planned(num_blocks: int) -> StreamPlan:
            kv = KvSize(num_blocks + SCRATCH, shape.block_size, shape.stack)
            return plan(now, target, self._parts.model, kv, usable)

        def is_too_much(num_blocks: int) -> bool:
            return any(size > usable[device] for device, size in planned(num_blocks).peak_bytes.items())

        fits = bisect_left(range(least, self._pool.capacity + 1), True, key=is_too_much) + least - 1
        if fits < least:
            what = (
                f"going from {now.shape} to {target.shape}, even layer by layer, with {least + SCRATCH} KV blocks, "
                "which requests need, needs"
            )
            advice = "wait until some have ended, or take other devices"
            _refuse(planned(least).peak_bytes, cluster, what, advice)
        return fits, planned(fits)

    async def give_back(self) -> None:
        """Return when the system has the memory of every retired block."""
        async with self._turn:
            await self._punch()

    async def gain(self, ranks: Ranks, layers: LayerRange | None = None) -> None:
        """Have a topology's devices hold its KV, of some layers or of all, before it is written to.

        Raises:
            SwitchError: one has not so much memory, or is lost.
        """
        if not self._parts.workers.gains:
            return
        async with self._turn:
            await self._parts.workers.ensure(ranks.topology.devices)
            held = {*range(self._parts.shape.num_blocks)} - self._pool.retired
            await self._gain(ranks, runs(held, held), layers)

    async def warm(self, pieces: Mapping[int, Collection[Piece]], blocks: Collection[int]) -> None:
        """Have memory behind what a switch will copy to first.

        A page fault while it copies would hold up a step.

        Raises:
            SwitchError: a worker is lost.
        """
        if self._parts.workers.gains:
            return  # it is there
        async with self._turn:
            held = {*blocks} - self._pool.retired
            await self._gain_pieces(pieces, runs(held, held))

    async def reach(self, boxes: Mapping[int, Collection[Transfer]], blocks: Collection[int]) -> None:
        """Have the memory of peers open that a switch will copy these blocks from, by target device.

        None is given back meanwhile: what is freed while a peer has it open, or opens it again, is undefined.

        Raises:
            SwitchError: a worker is lost.
        """
        async with self._turn:
            held = {*blocks} - self._pool.retired
            orders = (self._parts.workers.reach(to, some, runs(held, held)) for to, some in boxes.items())
            await asyncio.gather(*orders)

    async def _gain(self, ranks: Ranks, blocks: list[tuple[int, int]], layers: LayerRange | None = None) -> None:
        wanted = {
            device: [piece for piece in ranks.pieces(device) if layers is None or piece.layer in layers]
            for device in ranks.topology.devices
        }
        await self._gain_pieces(wanted, blocks)

    async def _gain_pieces(self, wanted: Mapping[int, Collection[Piece]], blocks: list[tuple[int, int]]) -> None:
        if blocks:
            await self._parts.workers.gain(wanted, blocks)

    async def settle(self) -> None:
        """A switch is over: have as many blocks as are wanted, or as what is active now holds.

        Where a device has less memory than it should the pool stays as it is.
        """
        async with self._turn:
            with suppress(SwitchError):
                await self._have(self._settled(self._host.active.topology))

    def can_serve(self, topology: Topology) -> bool:
        """Whether a topology holds each of the accepted requests."""
        return self._settled(topology) >= max(1, self._scheduler.longest_blocks)

    def _settled(self, topology: Topology) -> int:
        held = footprint.blocks(topology, self._parts.model, self._parts.cluster, self._parts.settings.block_size)
        wanted = max(self._least, self.wanted + self._freed(topology))
        return min(wanted, held - SCRATCH, self._parts.shape.num_blocks - SCRATCH)

    def _freed(self, topology: Topology) -> int:
        return footprint.freed_blocks(topology, self._parts.model, self._parts.settings.block_size)

    async def _have(self, num_blocks: int) -> None:
        active = self._host.active.topology
        size = self._parts.settings.block_size
        standing = standing_bytes(active, self._parts.model, num_blocks + SCRATCH, size)
        await self._parts.standby.give_way(standing)
        await self._gain_back(num_blocks)
        self._pool.resize(num_blocks)
        self._returned &= self._pool.retired
        self._scheduler.request_blocks = num_blocks
        self._host.schedule()

    async def _gain_back(self, num_blocks: int) -> None:
        """Have memory for retired blocks before they come back. Which do may change meanwhile."""
        if not self._parts.workers.gains:
            return
        gained: set[int] = set()
        while fresh := {*self._pool.returning(num_blocks)} - gained:
            self._returned -= fresh
            await self._gain(self._host.active, runs(fresh, fresh))
            gained |= fresh

    def beside(self, target: Topology) -> Mapping[int, int]:
        """Bytes each device needs while ``target`` stands beside what runs, with the blocks that there are."""
        now = self._host.active.topology
        size = self._parts.settings.block_size
        return footprint.peak_bytes(now, target, self._parts.model, self._pool.num_blocks + SCRATCH, size)

    async def _punch(self) -> list[Slice]:
        slices: list[Slice] = []
        while fresh := self._pool.retired - self._returned:
            pages = runs(self._pool.retired, fresh)
            devices = list(self._parts.workers.incarnations)
            # orders are obeyed in turn: once all have answered, no peer still copies a block that retired meanwhile
            await asyncio.gather(*(self._punch_on(device, []) for device in devices))
            for done in await asyncio.gather(*(self._punch_on(device, pages) for device in devices)):
                slices += done
            self._returned |= fresh
        return slices

    async def _punch_on(self, device: int, pages: list[tuple[int, int]]) -> list[Slice]:
        pieces = {piece for ranks in self._host.rank_sets for piece in ranks.pieces(device)} if pages else ()
        try:
            return await self._parts.workers.give_back(device, pieces, pages)
        except WorkerLostError:
            return []  # its memory went with it
        except SwitchError as error:
            log.warning("memory of KV blocks that are gone stays taken: %s", error.detail)
            return []

    def _refuse_size(self, num_blocks: int) -> None:
        if len(self._host.rank_sets) > 1:
            raise SwitchError(Reason.BUSY, "a switch is under way; resize before or after it")
        least = max(1, self._scheduler.longest_blocks)
        active = self._host.active.topology
        most = self._most + self._freed(active)
        held = footprint.blocks(active, self._parts.model, self._parts.cluster, self._parts.settings.block_size)
        if not least <= num_blocks <= min(most, held - SCRATCH):
            raise SwitchError(
                Reason.NO_MEMORY,
                f"{num_blocks} KV blocks: {active.shape} holds {held - SCRATCH}, {most} are reserved, and a request "
                f"that runs or waits may come to need {least}",
            )


@dataclass(frozen=True, slots=True)
class StartBlocks:
    """KV blocks of a driver that starts, ``SCRATCH`` included."""

    wanted: int
    """While no weights are quantised."""
    held: int
    """Now."""
    reserved: int
    """Block ids: what the least weights leave room for."""


def start_blocks(config: TorchDriverConfig, model: ModelSpec) -> StartBlocks:
    """How many blocks there are to be, and how many of them devices have memory for.

    Raises:
        SwitchError: they have too little.
        TopologyError: a slice cuts groups of a weight format.
    """
    footprint.refuse_cut_groups(config.topology, model)
    settings = config.settings
    cluster = config.cluster
    topology = config.topology
    size = settings.block_size
    wanted = settings.num_blocks or default_blocks(model, cluster, topology, size)
    held = wanted
    reserved = config.reserved_blocks or wanted + most_freed(topology, model, size)
    fits = max(1 + SCRATCH, min(reserved, footprint.blocks(topology, model, cluster, size)))
    if config.reserved_blocks:
        held = fits
    elif freed := footprint.freed_blocks(topology, model, size):
        held = min(wanted + freed, fits)  # what was wanted may not fit beside full weights
    refuse_start(topology, model, cluster, held, size)
    return StartBlocks(wanted, held, reserved)


def most_freed(topology: Topology, model: ModelSpec, block_size: int) -> int:
    """The most blocks that weights in fewer bits make room for."""
    stage = topology.stages[0]
    least = min(quantised_on(stage.kind), key=lambda name: value_bytes(name, model))
    precision = Precision.named(stage.precision.kv, stage.kind).beside(least, stage.kind)
    whole = Stage(stage.kind, (stage.devices[0],), LayerRange(0, model.num_layers), precision)
    return footprint.freed_blocks(Topology((whole,)), model, block_size)


def refuse_start(topology: Topology, model: ModelSpec, cluster: Cluster, num_blocks: int, block_size: int) -> None:
    """Refuse to start with more KV blocks than leave each device its headroom.

    Raises:
        SwitchError: they do not fit.
    """
    needed = standing_bytes(topology, model, num_blocks, block_size)
    _refuse(needed, cluster, f"{topology.shape} with {num_blocks} KV blocks needs", "lower torch.kv_blocks")


def standing_bytes(topology: Topology, model: ModelSpec, num_blocks: int, block_size: int) -> dict[int, int]:
    """Bytes each device needs for a topology that stands alone."""
    weights = footprint.weight_bytes(topology, model)
    per_block = footprint.block_bytes(topology, model, block_size)
    return {device: weights[device] + num_blocks * per_block[device] for device in topology.devices}


def _usable_bytes(topology: Topology, cluster: Cluster) -> dict[int, float]:
    return {device: cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM) for device in topology.devices}


def _refuse(needed: Mapping[int, int], cluster: Cluster, what: str, advice: str) -> None:
    for device, size in needed.items():
        usable = int(cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM))
        if size > usable:
            raise SwitchError(
                Reason.NO_MEMORY, f"device {device} has {usable:,} bytes to use but {what} {size:,}; {advice}"
            )
