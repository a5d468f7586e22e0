"""Baseline inside the torch engine: at the fence everything stops, all that the target lacks is copied, then the target goes on.

Its memory is warm: the background copy has been there before, and what it copied does not count. Run as
``python -m benchmarks.stop_and_copy FD`` by ``StopAndCopyEngine``, as the engine's own driver is.
"""

from runtime.sync.patch import PatchSync
from runtime.torch_engine.driver.loop import TorchDriver, main
from runtime.torch_engine.driver.switch import Switch
from runtime.torch_engine.engine import TorchEngine


class StopAndCopy(Switch):
    """A switch whose books begin at the fence."""

    async def _catch_up(self) -> None:
        self._sync = PatchSync(self._parts.pool, self._parts.settings.block_size)

    async def _copy_rest(self) -> None:
        """However long it takes: that is what is measured."""
        await self._copy(self._boxes, self._sync.order())


class StopAndCopyDriver(TorchDriver):
    """A driver that switches so."""

    switch_class = StopAndCopy


class StopAndCopyEngine(TorchEngine):
    """An engine with such a driver."""

    driver_module = "benchmarks.stop_and_copy"


if __name__ == "__main__":
    main(StopAndCopyDriver)
