"""A lineup: the ranks of one topology, each with its role, and the group they share."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from runtime import footprint
from runtime.engine import SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, owned
from runtime.models import Cluster, LayerRange, ModelSpec, Topology
from runtime.torch_engine.driver.crew import Crew, WorkerLostError
from runtime.torch_engine.messages import Drop, Load, Run, WarmUp
from runtime.torch_engine.models import Span, Wish
from runtime.torch_engine.worker.group import GroupMemory, GroupShape
from runtime.torch_engine.worker.shard import ShardSpec


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a step may hold; sizes the group's buffers."""

    tokens: int
    sequences: int


class Lineup:
    """One topology on the crew. ``generation`` names it to the workers."""

    def __init__(self, generation: int, topology: Topology, model: ModelSpec, limits: BatchLimits) -> None:
        self.generation, self.topology, self._model = generation, topology, model
        widest = max(-(-model.vocab_size // stage.tp_size) for stage in topology.stages)
        values = max(limits.tokens * model.hidden_size, limits.sequences * widest)
        shape = GroupShape(tuple(stage.tp_size for stage in topology.stages), values)
        self._memory = GroupMemory(shape)
        self._pids: dict[int, int] = {}
        self._loading = set(topology.devices)
        self._asked = False
        self.heard_s: float | None = None
        """When, by the awake clock, a layer of it was loaded last."""
        self._loaded = asyncio.get_running_loop().create_future()
        self._loaded.add_done_callback(lambda future: future.cancelled() or future.exception())

    @property
    def is_loaded(self) -> bool:
        """Every worker has its role, or can have none."""
        return self._loaded.done()

    def is_stuck(self, now_s: float, patience_s: float) -> bool:
        """Roles were given, and none got a layer for so long."""
        if self.heard_s is None or not self._asked or self.is_loaded:
            self.heard_s = now_s
        return now_s - self.heard_s > patience_s

    async def load(self, crew: Crew) -> None:
        """Give every worker its role and wait until each has loaded and warmed up alone. A standby has all that."""
        if not self._loaded.done():
            await self._give_roles(crew, lambda layers: layers)
        await self._loaded

    async def enlist(self, crew: Crew) -> None:
        """The same without weights: they come layer by layer."""
        await self._give_roles(crew, lambda layers: LayerRange(layers.start, layers.start))
        await self._loaded

    async def _give_roles(self, crew: Crew, loading: Callable[[LayerRange], LayerRange]) -> None:
        await crew.muster(self.topology.devices)
        self._pids = {device: crew.pids[device] for device in self.topology.devices}
        last, self._asked = self.topology.pp_size - 1, True
        for number, stage in enumerate(self.topology.stages):
            for rank, device in enumerate(stage.devices):
                shard = ShardSpec(stage.layers, rank, stage.tp_size, number == 0, number == last)
                order = Load(
                    self.generation,
                    shard,
                    loading(stage.layers),
                    number,
                    self._memory.path,
                    self._memory.shape,
                )
                crew.broadcast([device], order)

    def is_whole(self, crew: Crew) -> bool:
        """Every worker that was given a role is still there; one that was forked since has none."""
        return all(crew.pids.get(device) == pid for device, pid in self._pids.items())

    async def warm_up(self, crew: Crew) -> None:
        """Have every worker of a lineup that served before run a step alone: no rank waits for another.

        Raises:
            SwitchError: one is lost, or has lost its role.
        """
        devices = self.topology.devices
        orders = [crew.order(device, lambda number: WarmUp(number, self.generation)) for device in devices]
        try:
            are_there = await asyncio.gather(*orders)
        except WorkerLostError as error:
            raise SwitchError(Reason.RANK_LOST, str(error)) from error
        for device, is_there in zip(devices, are_there, strict=True):
            if not is_there:
                raise SwitchError(Reason.RANK_LOST, f"the worker on device {device} has lost its role")

    def hung(self, crew: Crew) -> list[int]:
        """Devices whose worker keeps a step from its end, as far as anybody can see."""
        devices = self.topology.devices
        return crew.stopped(devices) or [devices[rank] for rank in self._memory.computing()]

    def loaded(self, device: int) -> None:
        """A worker has its role."""
        self._loading.discard(device)
        if not self._loading and not self._loaded.done():
            self._loaded.set_result(None)

    def lose(self, error: SwitchError) -> None:
        """A member is gone or cannot load: wake whoever waits, here and in the group."""
        self._memory.abort()
        if not self._loaded.done():
            self._loaded.set_exception(error)

    def probe(self, batch_id: int, scratch_block: int) -> Run:
        """A one-token step through the whole group that touches no sequence's KV."""
        span = Span(0, 1, (scratch_block,))
        return Run(self.generation, batch_id, [0], (span,), [0], [Wish(SamplingParams(max_tokens=1), 0)])

    def pieces(self, device: int) -> frozenset[Piece]:
        """KV pieces a device holds for this topology."""
        return owned(self.topology, self._model).get(device, frozenset())

    async def stand_by(self, crew: Crew, keep: "Lineup") -> None:
        """Give back the KV memory that ``keep`` does not need. Roles and group stay.

        Raises:
            SwitchError: devices that could not, after all others did.
        """
        failed = list[str]()
        for device in self.topology.devices:
            try:
                await crew.give_back(device, self.pieces(device) - keep.pieces(device), crew.all_blocks)
            except WorkerLostError:
                pass  # its memory went with it
            except SwitchError as error:
                failed.append(error.detail)
        if failed:
            raise SwitchError(Reason.NO_MEMORY, f"KV memory stays taken: {'; '.join(failed)}")

    async def disband(self, crew: Crew, keep: "Lineup") -> None:
        """The same, and forget the roles and the group."""
        try:
            await self.stand_by(crew, keep)
        finally:
            await self.dismiss(crew)

    async def dismiss(self, crew: Crew) -> None:
        """Forget the roles and the group, as far as workers can."""
        try:
            for device in self.topology.devices:
                with suppress(WorkerLostError):
                    await crew.order(device, lambda number: Drop(number, self.generation))
        finally:
            self._memory.close()


def load_failed(device: int, detail: str) -> SwitchError:
    """What a worker that cannot take its role means for the switch."""
    return SwitchError(Reason.LOAD_FAILED, f"device {device} could not take its role: {detail}")


class Standby:
    """At most so many lineups, and only where nobody needs their memory."""

    def __init__(self, crew: Crew, model: ModelSpec, cluster: Cluster, most: int) -> None:
        self._crew, self._model, self._cluster, self._most = crew, model, cluster, most
        self._lineups: list[Lineup] = []

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The oldest first."""
        return tuple(lineup.topology for lineup in self._lineups)

    def take(self, topology: Topology) -> Lineup | None:
        """The lineup of a topology, which stands by no longer; none whose worker died."""
        for lineup in self._lineups:
            if lineup.topology == topology and lineup.is_whole(self._crew):
                self._lineups.remove(lineup)
                return lineup
        return None

    async def keep(self, lineup: Lineup, active: Lineup) -> None:
        """Have what is loaded but does not serve stand by, without KV memory that ``active`` does not need."""
        await lineup.stand_by(self._crew, keep=active)
        self._lineups.append(lineup)
        if not lineup.is_whole(self._crew):  # ``lose`` was told before it stood here
            await self._disband(lineup)
        while len(self._lineups) > self._most:
            await self._disband(self._lineups[0])

    async def give_way(self, needed: Mapping[int, int], target: Topology | None = None) -> None:
        """Disband the oldest, but not ``target``, until the others fit beside what is needed (bytes by device)."""
        while others := [lineup for lineup in self._lineups if lineup.topology != target]:
            held = Counter[int]()
            for lineup in others:
                held.update(footprint.weight_bytes(lineup.topology, self._model))
            if all(size + needed.get(device, 0) <= self._usable(device) for device, size in held.items()):
                return
            await self._disband(others[0])

    async def clear(self) -> None:
        """Disband all."""
        while self._lineups:
            await self._disband(self._lineups[0])

    async def lose(self, device: int, error: SwitchError) -> None:
        """A worker died: what stood by on it is of no use."""
        for lineup in [one for one in self._lineups if device in one.topology.devices]:
            lineup.lose(error)
            await self._disband(lineup)

    async def _disband(self, lineup: Lineup) -> None:
        self._lineups.remove(lineup)
        await lineup.dismiss(self._crew)

    def _usable(self, device: int) -> float:
        return self._cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM)
