"""Baseline inside the torch engine: at the fence the whole cache is gathered in one place, then scattered to the target.

The scheme that needs no plan of who lacks what. The place is memory of the driver, which stays warm from switch to switch.
Run as ``python -m benchmarks.gather_scatter FD`` by ``GatherScatterEngine``, as the engine's own driver is.
"""

from benchmarks.stop_and_copy import StopAndCopy
from runtime.footprint import Transfer, heads_of
from runtime.kv.store import KvStore
from runtime.models import ModelSpec, Topology
from runtime.sync.patch import Integers
from runtime.torch_engine.driver.loop import TorchDriver, main
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.messages import Copied, Copy

_NOBODY = -1


class GatherScatter(StopAndCopy):
    """A switch that takes everything through one place."""

    async def _copy_rest(self) -> None:
        runs = self._sync.order()
        gather = held(self._source.topology, self._parts.model, target=_NOBODY)
        scatter = held(self.target.topology, self._parts.model, source=_NOBODY)
        hello = self._parts.workers.hello
        self._copied_bytes += self.place.copy([(box, hello(box.source).handle) for box in gather], runs)
        for box in scatter:
            self._copied_bytes += (await self._scatter(box, runs)).num_bytes

    async def _scatter(self, box: Transfer, runs: Integers) -> Copied:
        source = ((box, self.place.handle),)
        copied: Copied = await self._parts.workers.order(box.target, Copy(source, runs))
        return copied

    @property
    def place(self) -> KvStore:
        """Where everything is gathered."""
        assert isinstance(self._host, GatherScatterDriver), "only that driver makes this switch"
        return self._host.place


class GatherScatterDriver(TorchDriver):
    """A driver that switches so, and has the memory for it."""

    switch_class = GatherScatter
    _place: KvStore | None = None

    @property
    def place(self) -> KvStore:
        """Memory for the whole cache."""
        self._place = self._place or KvStore(self.parts.shape)
        return self._place


class GatherScatterEngine(TorchEngine):
    """An engine with such a driver."""

    driver_module = "benchmarks.gather_scatter"


def held(topology: Topology, model: ModelSpec, **other: int) -> list[Transfer]:
    """All that each device of a topology holds, as boxes; ``other`` names the end that is not the device."""
    mine = "source" if "target" in other else "target"
    return [
        Transfer(
            layers=(stage.layers.start, stage.layers.end),
            heads=heads_of(stage, rank, model),
            **{mine: device},
            **other,
        )
        for stage in topology.stages
        for rank, device in enumerate(stage.devices)
    ]


if __name__ == "__main__":
    main(GatherScatterDriver)
