"""vLLM on another host: the same streams; a switch there copies KV through memory there, one to here computes it anew."""

import asyncio
from pathlib import Path

import pytest

from runtime.coordinator import Coordinator
from runtime.hosts import certificates
from runtime.hosts.cluster import Expected, Hosts
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, Node, Phase
from runtime.notation import parse_topology
from runtime.router import Router
from runtime.stream import Delta
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.hosts.machines import machine, namespaces
from tests.runtime.hosts.test_cluster import Written, begun, said, same
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, TOKENIZER
from tests.runtime.vllm_engine.streams import SETTINGS

__all__ = ["namespaces"]
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(600)]

LINK = Link("shared-memory", 5e9, 3e-5)
NODES = (
    Node(name, tuple(Gpu(index, "CPU", 3 << 30) for index in devices), LINK)
    for name, devices in (("a", (0,)), ("b", (1, 2)))
)
CLUSTER = Cluster(tuple(NODES))
NAMES = ("greedy 0", "greedy 1", "frequency")


async def test_streams_and_switches_of_vllm_on_another_host(namespaces: None, tmp_path: Path):
    certificates.write(tmp_path, ("b",))
    one, two, here = (parse_topology(text, CLUSTER, 8, "fp32") for text in ("CPU[1]", "CPU[1,2]", "CPU[0]"))
    with machine("b", tmp_path / "b.pem", tmp_path) as there:
        expected = Expected(CLUSTER, {"b": (there.address, 7443)}, (str(CHECKPOINT),), needs_vllm=True, visible="")
        hosts = Hosts(expected, tmp_path / "service.pem")
        await hosts.open()
        engine = await VllmEngine.start(CHECKPOINT, one, CLUSTER, SETTINGS, launchers=hosts)
        try:
            async with Router(engine, TOKENIZER) as router:
                unbroken = await said(router, {}, NAMES)
                coordinator = Coordinator(engine, router, Written(), SwitchSettings())
                for target in (two, here, one):  # they stand by then, for streams end sooner than vLLM starts
                    assert (await coordinator.switch(target, "op", lambda _: None)).phase is Phase.DONE
                for target, path in ((two, "patch"), (here, "follow")):
                    spoken: dict[str, list[Delta]] = {}
                    streams = asyncio.create_task(said(router, spoken, NAMES))
                    await begun(spoken, len(NAMES))
                    report = await coordinator.switch(target, "op", lambda _: None)
                    assert (report.phase, {*report.paths}) == (Phase.DONE, {path}), report.detail
                    await streams
                    same(spoken, unbroken, router)
        finally:
            await engine.close()
            await hosts.close()
        async with asyncio.timeout(30):
            while there.processes():  # noqa: ASYNC110 - the agent ends them
                await asyncio.sleep(0.05)
        assert there.inside("ls", "/dev/shm") == ""
