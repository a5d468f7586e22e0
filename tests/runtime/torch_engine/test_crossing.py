"""Running requests move between drivers of two hosts with their KV: no token, no byte and no logprob is another one."""

import contextlib
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.process.launcher import Launcher, LocalLauncher
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.torch_engine.ears import LAYERS, SETTINGS, Ears, all_same, requests

pytestmark = pytest.mark.slow

PP2, TP2, ALONE = "CPU[0]:0-2 > CPU[1]:2-5", "CPU[2,3]:0-5", "CPU[2]:0-5"
"""The first on host a, the others on host b."""


class TwoHosts:
    """Both are this machine."""

    def __init__(self) -> None:
        self.hosts = {"a": LocalLauncher("a", 0), "b": LocalLauncher("b", 2)}

    def host_of(self, devices: Collection[int]) -> str:
        return "a" if max(devices) < 2 else "b"

    def on(self, host: str) -> Launcher:
        return self.hosts[host]


@pytest.fixture(autouse=True)
def over_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between hosts; UCX takes shared memory on one."""
    monkeypatch.setenv("UCX_TLS", "tcp")


@contextlib.asynccontextmanager
async def crossing(folder: Path, cluster: Cluster, settings: EngineSettings = SETTINGS) -> AsyncIterator[Ears]:
    start = parse_topology(PP2, cluster, LAYERS, "fp32")
    engine = await TorchEngine.start(folder, start, cluster, settings, TwoHosts())
    ears = Ears(engine)
    try:
        yield ears
    finally:
        await engine.close()
        await ears.task


async def test_streams_go_on_over_hosts_and_back_and_nothing_of_them_is_another(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        want = await ears.whole(*requests(200))
        await ears.submit(*requests(200))
        await ears.have("r3", 20)
        for target in (TP2, ALONE, PP2):
            shadow = await ears.synced(target)
            before = await ears.engine.digests()
            await ears.commit(shadow)
            after = await ears.engine.digests(before.positions)
            assert {**after.digests, **before.digests} == after.digests
            assert ears.engine.topology == ears.topology(target)
        await ears.all_ended(8)
        assert len(ears.moves) == 3
        all_same(ears.tokens, want)
