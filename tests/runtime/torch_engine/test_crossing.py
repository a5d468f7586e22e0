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


async def test_what_goes_between_hosts_is_counted_and_the_link_measured(checkpoints, cluster) -> None:
    async with crossing(checkpoints["qwen3-tied"], cluster) as ears:
        shadow = await ears.prepared(TP2)
        await ears.submit(*requests(200))
        await ears.have("r3", 20)
        while (lag := await shadow.lag()).tokens > 6 * 8:
            pass
        cut = await ears.commit(shadow)
        assert cut.moved
        assert (lag.transport, lag.bytes_between_hosts) == ("nixl", lag.copied_bytes)
        assert lag.link is not None
        assert min(lag.link.bytes_s, lag.link.round_trip_s) > 0
        assert cut.bytes_between_hosts >= lag.copied_bytes + cut.bytes_inside > cut.bytes_inside > 0
        within = await ears.synced(ALONE)
        assert ((await within.lag()).transport, (await ears.commit(within)).bytes_between_hosts) == ("file", 0)
