"""A service here, its engine on another host: the same streams, switches there, and whatever becomes of that host."""

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.coordinator import Coordinator
from runtime.engine import EngineState, Finish
from runtime.errors import EngineStartError, TopologyError
from runtime.hosts import certificates
from runtime.hosts.cluster import Expected, Hosts
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, Node, Phase, Topology
from runtime.notation import parse_topology
from runtime.process.driver import SamePlace
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.runtime.hosts.machines import Machine, machine, namespaces
from tests.runtime.scripted import reaches
from tests.runtime.test_lost_engines import LOGPROB_TOLERANCE, STREAMS, difference
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, TOKENIZER
from tests.runtime.torch_engine.test_crossing import are_moved

__all__ = ["namespaces"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

log = logging.getLogger(__name__)

LINK = Link("shared-memory", 5e9, 3e-5)
CLUSTER = Cluster(
    tuple(
        Node(name, (Gpu(first, "CPU", 1 << 30), Gpu(first + 1, "CPU", 1 << 30)), LINK)
        for name, first in (("a", 0), ("b", 2))
    )
)
SETTINGS = EngineSettings(num_blocks=256, max_running=12)


def on(devices: str) -> Topology:
    return parse_topology(devices, CLUSTER, 8, "fp32")


ONE, TWO, HERE = on("CPU[2]"), on("CPU[2,3]"), on("CPU[0,1]")


FEW = ("seeded", "greedy 0", "document")


async def said(
    router: Router, spoken: dict[str, list[Delta]], names: Iterable[str] = STREAMS
) -> dict[str, list[Delta]]:
    """All deltas of each stream, also while they come."""

    async def listen(name: str) -> None:
        async for delta in router.generate(f"count by {len(name)} from 11: 11 ", GenerationParams(STREAMS[name])):
            if not delta.is_pause:
                spoken.setdefault(name, []).append(delta)

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(listen(name))
    return spoken


class Elsewhere(SamePlace):
    """Comes back here where a device is out."""

    def __init__(self) -> None:
        self.out: dict[int, str] = {}
        self.came: list[str] = []

    async def place(self, lost: Topology) -> Topology:
        return HERE if self.out.keys() & {*lost.devices} else lost

    def came_back(self, lost: Topology, runs: Topology, why: str) -> None:
        self.came.append(why)


class Written:
    async def write(self, switch_id: str, phase: Phase, detail: str) -> None:
        """A journal nobody reads."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory, namespaces: None) -> Path:
    folder: Path = tmp_path_factory.mktemp("keys")
    certificates.write(folder, ("b",))
    return folder


@contextlib.asynccontextmanager
async def reached(there: Machine, keys: Path) -> AsyncIterator[tuple[Hosts, Elsewhere]]:
    expected = Expected(CLUSTER, {"b": (there.address, 7443)}, (str(CHECKPOINT),), needs_vllm=False, visible="")
    hosts, elsewhere = Hosts(expected, keys / "service.pem"), Elsewhere()
    hosts.on_out = elsewhere.out.__setitem__
    hosts.on_back = lambda device: elsewhere.out.pop(device, None)
    await hosts.open()
    try:
        yield hosts, elsewhere
    finally:
        await hosts.close()


@contextlib.asynccontextmanager
async def serving(hosts: Hosts | None, topology: Topology) -> AsyncIterator[tuple[TorchEngine, Router]]:
    engine = await TorchEngine.start(CHECKPOINT, topology, CLUSTER, SETTINGS, launchers=hosts)
    try:
        async with Router(engine, TOKENIZER) as router:
            yield engine, router
    finally:
        await engine.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unbroken(namespaces: None) -> dict[str, list[Delta]]:
    """What each stream says on one host."""
    async with serving(None, HERE) as (_, router):
        return await said(router, {})


def same(spoken: dict[str, list[Delta]], unbroken: dict[str, list[Delta]], router: Router) -> None:
    """Every stream is whole, and says what it says on one host."""
    for name, deltas in spoken.items():
        assert [delta.index for delta in deltas] == list(range(len(deltas))), name
        assert deltas[-1].finish in {Finish.STOP, Finish.LENGTH}, name
        if "unseeded" in name:
            continue
        assert [delta.token_id for delta in deltas] == [delta.token_id for delta in unbroken[name]], name
        assert difference(deltas, unbroken[name]) < LOGPROB_TOLERANCE, name
    counts = router.counts
    assert (counts.lost, counts.duplicates, counts.wrong_epoch) == (0, 0, 0)


async def begun(spoken: dict[str, list[Delta]], streams: int) -> None:
    async with asyncio.timeout(120):
        while len(spoken) < streams or min(map(len, spoken.values())) < 5:  # noqa: ASYNC110 - processes bring it about
            await asyncio.sleep(0.005)


async def test_streams_that_switch_on_another_host_are_those_of_one(keys, unbroken, tmp_path):
    with machine("b", keys / "b.pem", tmp_path) as there:
        async with reached(there, keys) as (hosts, _), serving(hosts, ONE) as (engine, router):
            assert len(there.processes()) == 2  # a driver and its worker
            await are_moved(engine, router, unbroken, TWO)
            assert (router.counts.lost, router.counts.duplicates, router.counts.wrong_epoch) == (0, 0, 0)
            with pytest.raises(TopologyError, match="on the hosts a and b: a topology runs on one"):
                await engine.prepare(on("CPU[1,2]"))
        async with asyncio.timeout(60):
            while there.processes():  # noqa: ASYNC110 - the agent ends them
                await asyncio.sleep(0.02)


SWITCHES = 30


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("delay_s", "rate"), [(0.0, "1gbit"), (0.005, "200mbit")], ids=["near", "far"])
async def test_many_switches_on_another_host_under_streams(keys, unbroken, tmp_path, delay_s, rate):
    with machine("b", keys / "b.pem", tmp_path, delay_s) as there:
        there.shape(rate)
        async with reached(there, keys) as (hosts, _), serving(hosts, ONE) as (engine, router):
            coordinator = Coordinator(engine, router, Written(), SwitchSettings())
            targets = itertools.cycle((TWO, ONE))
            for number in range(0, SWITCHES, 3):
                spoken: dict[str, list[Delta]] = {}
                streams = asyncio.create_task(said(router, spoken))
                await begun(spoken, len(STREAMS))
                for target in itertools.islice(targets, 3):
                    report = await coordinator.switch(target, f"op-{number}", lambda _: None)
                    assert report.phase is Phase.DONE, report.detail
                await streams
                same(spoken, unbroken, router)


LOSSES = {
    "killed": Machine.kill,
    "its agent killed": Machine.kill_agent,
    "frozen": Machine.freeze,
    "silent": Machine.fall_silent,
    "hears nothing": Machine.hear_nothing,
    "cut off": Machine.cut_off,
}
IN_CI = ("killed",)


@pytest.mark.parametrize(
    "losses",
    [IN_CI, pytest.param((*LOSSES,) * 5, marks=[pytest.mark.exhaustive, pytest.mark.timeout(3600)])],
    ids=["killed", "all"],
)
async def test_streams_of_a_lost_host_go_on_here(keys, unbroken, tmp_path, losses):
    for loss in losses:
        names = FEW if losses == IN_CI or loss != losses[0] else tuple(STREAMS)
        await streams_go_on(loss, names, keys, unbroken, tmp_path)


async def streams_go_on(
    loss: str, names: Collection[str], keys: Path, unbroken: dict[str, list[Delta]], folder: Path
) -> None:
    with machine("b", keys / "b.pem", folder) as there:
        async with reached(there, keys) as (hosts, elsewhere), serving(hosts, TWO) as (engine, router):
            engine.comeback = elsewhere
            spoken: dict[str, list[Delta]] = {}
            streams = asyncio.create_task(said(router, spoken, names))
            await begun(spoken, len(names))
            LOSSES[loss](there)
            await asyncio.gather(streams, timed(loss, elsewhere, spoken))
            same(spoken, unbroken, router)
            await reaches(engine, EngineState.SERVING)
            assert engine.topology == HERE
            assert elsewhere.out.keys() == {2, 3}
            assert "host b is lost" in elsewhere.came[0]
            with pytest.raises(ConnectionError, match="host b is lost"):
                hosts.on("b")
        if loss == "its agent killed":
            assert there.processes() == []


async def timed(loss: str, elsewhere: Elsewhere, spoken: dict[str, list[Delta]]) -> None:
    """Say how long it took (``-o log_cli=true --log-cli-level=INFO``)."""
    lost_s = time.monotonic()
    while not elsewhere.out:  # noqa: ASYNC110 - heartbeats bring it about
        await asyncio.sleep(0.01)
    noticed_s, known = time.monotonic() - lost_s, sum(map(len, spoken.values()))
    while sum(map(len, spoken.values())) == known:  # noqa: ASYNC110 - the next engine brings it about
        await asyncio.sleep(0.01)
    log.info("%s: noticed after %.2f s, the next token after %.2f s", loss, noticed_s, time.monotonic() - lost_s)


@pytest.mark.exhaustive
async def test_a_host_that_is_back_serves_again(keys, tmp_path):
    with machine("b", keys / "b.pem", tmp_path) as there:
        async with reached(there, keys) as (hosts, elsewhere):
            there.kill_agent()
            async with asyncio.timeout(120):
                while not elsewhere.out:  # noqa: ASYNC110 - the connection's end brings it about
                    await asyncio.sleep(0.01)
            there.start_agent()
            async with asyncio.timeout(120):
                while elsewhere.out:  # noqa: ASYNC110 - it is looked for
                    await asyncio.sleep(0.01)
            async with serving(hosts, ONE) as (engine, _):
                assert engine.topology == ONE


async def test_a_host_that_cannot_be_reached_counts_as_lost_and_one_that_differs_is_refused(keys, tmp_path):
    with machine("b", keys / "b.pem", tmp_path) as there:
        more = Cluster((CLUSTER.nodes[0], Node("b", (Gpu(2, "L40S", 48 << 30),), LINK)))
        expected = Expected(more, {"b": (there.address, 7443)}, (), needs_vllm=False, visible="")
        with pytest.raises(EngineStartError, match="host b: the deployment gives it 1 GPUs, and it has none"):
            await Hosts(expected, keys / "service.pem").open()
        there.cut_off()
        async with reached(there, keys) as (hosts, elsewhere):
            assert elsewhere.out.keys() == {2, 3}
            with pytest.raises(EngineStartError, match="host b is lost"):
                await TorchEngine.start(CHECKPOINT, ONE, CLUSTER, SETTINGS, launchers=hosts)
