"""Two real engines as one set: one switches, one is killed, one is emptied, and every stream says what it says alone."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from runtime.capabilities import Batching
from runtime.coordinator import Coordinator
from runtime.engine import Engine, EngineState
from runtime.machine import SwitchSettings
from runtime.models import Phase, Topology
from runtime.notation import parse_topology
from runtime.replicas.engine import ReplicaSet
from runtime.replicas.replica import Replica
from runtime.replicas.transition import Transition
from runtime.router import Router
from runtime.stream import Delta
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.engine import VllmEngine
from tests.runtime.scripted import cluster_of
from tests.runtime.test_lost_engines import CHECKPOINT, LOGPROB_TOLERANCE, STREAMS, TOKENIZER, difference, said
from tests.runtime.vllm_engine.streams import CLUSTER, SETTINGS

pytestmark = pytest.mark.slow

PLACE = cluster_of("cpu", 2 << 30, 4)
TORCH = EngineSettings(num_blocks=256, max_running=12)
LOAD = 1
"""Times all streams."""


async def torch_engine(replica: Topology, batching: Batching | None) -> Engine:
    return await TorchEngine.start(CHECKPOINT, replica, PLACE, TORCH, batching=batching)


async def vllm_engine(replica: Topology, batching: Batching | None) -> Engine:
    return await VllmEngine.start(CHECKPOINT, replica, CLUSTER, SETTINGS, batching=batching)


class NoJournal:
    """Nobody starts again from it."""

    async def write(self, switch_id: str, phase: Phase, detail: str) -> None: ...


@dataclass(slots=True)
class Bench:
    """A set behind its router."""

    replicas: ReplicaSet
    router: Router
    unbroken: dict[str, list[Delta]]

    def topology(self, text: str) -> Topology:
        return parse_topology(text, PLACE, 8, "fp32")

    async def while_streams_run(self, act: Callable[[], Awaitable[None]]) -> None:
        """Some of every kind; each says what it says where nothing happens."""
        rounds = [dict[str, list[Delta]]() for _ in range(LOAD)]
        tasks = [asyncio.create_task(said(self.router, spoken)) for spoken in rounds]
        while min(len(deltas) for spoken in rounds for deltas in (spoken.values() or [[]])) < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await act()
        await asyncio.gather(*tasks)
        for spoken in rounds:
            assert spoken.keys() == STREAMS.keys()
            for name, deltas in spoken.items():
                assert [delta.index for delta in deltas] == list(range(len(deltas))), name
                if "unseeded" not in name:
                    wanted = self.unbroken[name]
                    assert [delta.token_id for delta in deltas] == [delta.token_id for delta in wanted], name
                    assert difference(deltas, wanted) < LOGPROB_TOLERANCE, name
        counts = self.router.counts
        assert (counts.lost, counts.duplicates) == (0, 0)

    async def go(self, target: str) -> None:
        coordinator = Coordinator(self.replicas, self.router, NoJournal(), SwitchSettings())
        way = Transition(coordinator, self.replicas, "op-1", lambda _: None)
        report = await way.run(self.topology(target), None)
        assert report.phase is Phase.DONE, report.detail
        assert self.replicas.topology == self.topology(target)

    async def kill(self) -> None:
        victim = max(self.replicas.replicas, key=lambda each: len(each.requests))
        assert victim.requests, "it has something to lose"
        os.kill(driver_of(victim), signal.SIGKILL)

    async def empty(self) -> None:
        self.replicas.patience_s = 0.0
        await self.go("cpu[1]")


def driver_of(replica: Replica) -> int:
    engine = replica.engine
    return engine.active.pid if isinstance(engine, VllmEngine) else engine._driver.pid  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "start", [torch_engine, pytest.param(vllm_engine, marks=[pytest.mark.vllm, pytest.mark.timeout(600)])]
)
async def test_streams_of_two_replicas_are_whole_whatever_becomes_of_one(start):
    replicas = ReplicaSet([await start(parse_topology(f"cpu[{n}]", PLACE, 8, "fp32"), None) for n in (0, 1)], start)
    try:
        async with Router(replicas, TOKENIZER) as router:
            bench = Bench(replicas, router, await said(router))
            await bench.while_streams_run(lambda: bench.go("cpu[0,2] | cpu[1]"))
            await bench.while_streams_run(bench.kill)
            async with asyncio.timeout(120):
                while not all(each.engine.state is EngineState.SERVING for each in replicas.replicas):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await bench.while_streams_run(bench.empty)
            assert not replicas.leaving
    finally:
        await replicas.close()
