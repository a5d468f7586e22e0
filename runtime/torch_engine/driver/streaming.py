"""A switch where only one copy of the weights fits: requests stand still while layers move one after the other."""

import contextlib
from collections.abc import Iterator

from runtime.engine import Lag
from runtime.errors import Reason, SwitchError
from runtime.footprint import Transfer, transfer
from runtime.models import LayerRange
from runtime.process.channel import Fatal
from runtime.sync.patch import Integers
from runtime.sync.stream import StreamPlan
from runtime.torch_engine.driver.capacity import Capacity
from runtime.torch_engine.driver.crew import WorkerLostError
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.driver.lineup import Lineup
from runtime.torch_engine.driver.switch import Switch
from runtime.torch_engine.messages import Exchange


class StreamingSwitch(Switch):
    """Before the cut the target has its group and roles without weights; inside it, step by step, the rest (``sync.stream``).

    A step that fails is undone, and those before it, so that the source goes on. A worker that dies after the first
    step takes KV with it that nobody else has: then the engine starts anew.
    """

    path = "stream"

    def __init__(self, host: Host, capacity: Capacity, target: Lineup, plan: StreamPlan) -> None:
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
        await self._target.enlist(self._parts.crew)

    async def _catch_up(self) -> None:
        """Nothing is copied while requests run."""

    async def _copy_rest(self) -> None:
        runs, way, moved = self._sync.order(), (self._source, self._target), list[LayerRange]()
        try:
            for step in self._plan.steps:
                await self._bring(step, runs, way)
                moved.append(step)
                await self._clear(step, way)
            await self._host.probe(self._target)
        except BaseException as error:
            try:
                await self._undo(moved, runs, error)
            except Exception as second:  # noqa: BLE001 - whatever it is, the source is not whole
                detail = f"{error}; the layers that had moved could not be brought back: {second}"
                self._host.fail(Fatal(Reason.ENGINE_LOST, detail))
            raise

    async def _undo(self, moved: list[LayerRange], runs: Integers, error: BaseException) -> None:
        """Bring back what has moved. The step after that may be half done, but what it took from is still whole."""
        is_lost = isinstance(error, SwitchError) and error.reason is Reason.RANK_LOST
        if is_lost and moved:
            self._host.fail(Fatal(Reason.RANK_LOST, f"{error}, with KV that had moved to it"))
            return
        back = self._target, self._source
        for step in self._plan.steps[len(moved) : len(moved) + 1]:
            await self._exchange(step, back)
            await self._clear(step, back)
        for step in reversed(moved):
            await self._bring(step, runs, back)
            await self._clear(step, back)
        self._forget_prefixes()  # cached blocks that no request used did not come along

    async def _bring(self, layers: LayerRange, runs: Integers, way: tuple[Lineup, Lineup]) -> None:
        """KV, then weights. The KV that was copied from goes only afterwards, so that until then nothing is lost."""
        old, new = way
        boxes: dict[int, list[Transfer]] = {}
        for box in transfer(old.topology, new.topology, self._parts.model):
            first, last = max(box.layers[0], layers.start), min(box.layers[1], layers.end)
            if first < last:
                part = Transfer(box.target, box.source, (first, last), box.heads)
                boxes.setdefault(box.target, []).append(part)
        await self._capacity.gain(new, layers)
        await self._copy_boxes(boxes, runs)
        await self._exchange(layers, way)

    async def _exchange(self, layers: LayerRange, way: tuple[Lineup, Lineup]) -> None:
        old, new = way
        for device in {*old.topology.devices, *new.topology.devices}:
            with self._needing(device, new):
                await self._parts.crew.order(
                    device, lambda number: Exchange(number, old.generation, new.generation, layers)
                )

    @contextlib.contextmanager
    def _needing(self, device: int, new: Lineup) -> Iterator[None]:
        """A lost worker ends the switch; on the way back only those of the source are needed."""
        try:
            yield
        except WorkerLostError as error:
            if new is not self._source or device in self._source.topology.devices:
                raise SwitchError(Reason.RANK_LOST, str(error)) from error

    async def _clear(self, layers: LayerRange, way: tuple[Lineup, Lineup]) -> None:
        """Give back the KV memory of the old side."""
        old, new = way
        crew = self._parts.crew
        for device in old.topology.devices:
            gone = {piece for piece in old.pieces(device) - new.pieces(device) if piece.layer in layers}
            with self._needing(device, new):
                await crew.give_back(device, gone, crew.all_blocks)

    async def _retire_source(self) -> None:
        """It has no weights to stand by with."""
        await self._source.dismiss(self._parts.crew)
