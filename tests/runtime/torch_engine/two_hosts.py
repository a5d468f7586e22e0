"""Two hosts that are both this machine, and an engine that can be on either."""

import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.process.launcher import Launcher, LocalLauncher
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.ears import LAYERS, SETTINGS, Ears

PP2, TP2, ALONE = "CPU[0]:0-2 > CPU[1]:2-5", "CPU[2,3]:0-5", "CPU[2]:0-5"
"""The first on host a, the others on host b."""


class TwoHosts:
    """The first two devices are host a's."""

    def __init__(self) -> None:
        self.hosts = {"a": LocalLauncher("a", 0), "b": LocalLauncher("b", 2)}

    def host_of(self, devices: Collection[int]) -> str:
        return "a" if max(devices) < 2 else "b"

    def on(self, host: str) -> Launcher:
        return self.hosts[host]


@contextlib.asynccontextmanager
async def crossing(
    folder: Path, cluster: Cluster, settings: EngineSettings = SETTINGS, kind: type[TorchEngine] = TorchEngine
) -> AsyncIterator[Ears]:
    """An engine on host a, heard."""
    start = parse_topology(PP2, cluster, LAYERS, "fp32")
    engine = await kind.start(folder, start, cluster, settings, TwoHosts())
    ears = Ears(engine)
    try:
        yield ears
    finally:
        await engine.close()
        await ears.task
