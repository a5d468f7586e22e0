"""The search for lost hosts, over loopback: no error of one host ends it, for none of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from runtime.hosts import agent as agents
from runtime.hosts import certificates, cluster
from runtime.hosts.cluster import Expected, Hosts
from runtime.hosts.remote import RemoteHost
from runtime.models import Cluster, Gpu, Link, Node
from runtime.process.facts import gather, wrong_devices
from runtime.process.supervised import ERRORS
from tests.runtime.hosts.test_agent import Heard, There

pytestmark = pytest.mark.slow

CLUSTER = Cluster(
    tuple(
        Node(name, (Gpu(index, "CPU", 1 << 20),), Link("shared-memory", 5e9, 3e-5)) for index, name in enumerate("abc")
    )
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys")
    certificates.write(folder, ("b", "c"))
    return folder


@contextlib.asynccontextmanager
async def reached(keys: Path) -> AsyncIterator[tuple[Hosts, dict[str, There]]]:
    """A service that reaches hosts b and c, and their agents."""
    there = {name: There(keys, name) for name in "bc"}
    addresses = {name: one.address for name, one in there.items()}
    hosts = Hosts(Expected(CLUSTER, addresses, (), needs_vllm=False, visible=""), keys / "service.pem")
    try:
        await hosts.open()
        yield hosts, there
    finally:
        await hosts.close()
        for one in there.values():
            await one.close()


async def is_back_after(hosts: Hosts, there: dict[str, There]) -> None:
    """Lose both hosts, and wait until both are back."""
    lost = set[str]()
    hosts.on_out = lambda device, _: lost.add(CLUSTER.nodes[device].name)
    for one in there.values():
        for session in [*one.agent._sessions]:
            session.channel.lose("a test ends it")
    async with asyncio.timeout(20):
        while lost != {"b", "c"} or hosts.lost:  # noqa: ASYNC110 - the search brings it about
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_S", 0.01)


async def test_a_host_whose_disk_fails_is_looked_for_until_it_is_well(keys, monkeypatch):
    failing = list[str]()

    def fails(*arguments: Any) -> Any:
        if len(failing) < 4:
            failing.append("")
            raise OSError(5, "Input/output error")
        return gather(*arguments)

    async with reached(keys) as (hosts, there):
        monkeypatch.setattr(agents, "gather", fails)
        await is_back_after(hosts, there)
    assert len(failing) == 4


async def test_a_host_whose_disk_fails_at_the_start_counts_as_lost_and_is_looked_for(keys, monkeypatch):
    failing = [""]

    def fails(*arguments: Any) -> Any:
        if failing:
            raise OSError(5, "Input/output error")
        return gather(*arguments)

    monkeypatch.setattr(agents, "gather", fails)
    async with reached(keys) as (hosts, _):
        assert "Input/output error; the agent's log may say more" in hosts.lost["b"]
        failing.clear()
        async with asyncio.timeout(20):
            while hosts.lost:  # noqa: ASYNC110 - the search brings it about
                await asyncio.sleep(0.01)


async def test_processes_of_a_lost_host_hear_of_it_though_its_devices_cannot_be_taken_out(keys, caplog):
    caplog.set_level("CRITICAL", "runtime.process.supervised")
    out = list[int]()

    def fails(device: int, *_: str) -> None:
        out.append(device)
        raise RuntimeError("can't start new thread")

    async with reached(keys) as (hosts, there):
        heard = Heard(cast("RemoteHost", hosts.on("b")))
        hosts.on_out = hosts.on_back = fails
        for session in [*there["b"].agent._sessions]:
            session.channel.lose("a test ends it")
        await heard.until(0, ends=1)
        async with asyncio.timeout(20):
            while hosts.lost:  # noqa: ASYNC110 - the search brings it about
                await asyncio.sleep(0.01)
    assert "host b is lost" in heard.ends[0]
    assert out == [1, 1]


async def test_an_error_that_nobody_foresaw_ends_the_search_for_no_host(keys, monkeypatch, caplog):
    caplog.set_level("CRITICAL", "runtime.process.supervised")
    before = ERRORS["search for host b"]
    failing = list[str]()

    def fails(gpus: tuple[Gpu, ...], facts: Any) -> str:
        if gpus[0].index == 1 and not failing:
            failing.append("")
            raise ValueError("a bug")
        return wrong_devices(gpus, facts)

    async with reached(keys) as (hosts, there):
        monkeypatch.setattr(cluster, "wrong_devices", fails)
        await is_back_after(hosts, there)
    assert failing
    assert ERRORS["search for host b"] == before + 1


async def test_a_host_that_is_lost_while_others_are_waited_for_stays_out(keys, monkeypatch):
    reach, is_lost, back = Hosts._reach, asyncio.Event(), list[int]()

    async def slow(hosts: Hosts, name: str) -> None:
        if name == "c":
            await is_lost.wait()
        await reach(hosts, name)
        if name == "b":
            hosts._reached["b"].lose("its host died")
            is_lost.set()

    monkeypatch.setattr(Hosts, "_reach", slow)
    monkeypatch.setattr(cluster, "RETRY_S", 3600.0)
    there = {name: There(keys, name) for name in "bc"}
    addresses = {name: one.address for name, one in there.items()}
    hosts = Hosts(Expected(CLUSTER, addresses, (), needs_vllm=False, visible=""), keys / "service.pem")
    hosts.on_back = back.append
    try:
        await hosts.open()
        assert (back, [*hosts.lost]) == ([2], ["b"])
    finally:
        await hosts.close()
        for one in there.values():
            await one.close()
