"""Which engines stand by: in the order of their use, as many as the file says, and while memory allows."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from runtime.capabilities import Batching
from runtime.engine import EngineState, GenerationRequest, SamplingParams
from runtime.errors import Reason, SwitchError, TopologyError
from runtime.models import Precision, Stage, Topology
from runtime.process.content import PinnedCheckpoint
from runtime.process.driver import SamePlace
from runtime.process.launcher import group_pids
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.instance import Instance, TrackedRequest
from runtime.vllm_engine.models import VllmSettings
from tests.runtime.scripted import cluster_of, reaches, topology
from tests.runtime.vllm_engine.sides import MODEL

pytestmark = pytest.mark.slow

CLUSTER = cluster_of("cpu", 7 << 30)
SETTINGS = VllmSettings(kv_cache_bytes=3 << 30, num_standby=2, spare=False)
"""Two engines fit a device, three do not."""

ONE, TWO = topology(1), topology(2)


def on(devices: tuple[int, ...]) -> Topology:
    """One stage on these devices."""
    stage = topology(len(devices)).stages[0]
    return Topology((replace(stage, devices=devices),))


@pytest.fixture
async def engine(scripted_drivers: None) -> AsyncIterator[VllmEngine]:
    """It serves on device 0; its driver processes compute nothing."""
    made = VllmEngine(PinnedCheckpoint(Path("/models/m"), {}), MODEL, CLUSTER, SETTINGS)
    made._serve(await made.launch(ONE))
    yield made
    await made.close()


async def retired(engine: VllmEngine, *devices: tuple[int, ...]) -> list[Instance]:
    """Engines that served one after the other."""
    found = [await engine.launch(on(each)) for each in devices]
    for instance in found:
        await engine.retire(instance)
    return found


async def test_as_many_stand_by_as_the_file_says_those_used_last(engine):
    first, second, third = await retired(engine, (1,), (2,), (3,))
    assert engine.standby == [second, third]
    assert group_pids(first.pid) == []


async def test_a_target_that_stands_by_is_taken_and_was_used_last_when_it_is_given_back(engine):
    first, second = await retired(engine, (1,), (2,))
    shadow = await engine.prepare(on((1,)))
    assert await shadow._starting is first
    assert engine.standby == [second]
    await shadow.abort(Reason.CANCELLED)
    assert engine.standby == [second, first]


async def test_the_least_recently_used_on_the_devices_of_a_target_give_way_as_far_as_they_have_to(engine):
    for older, newer, target, staying in (
        ((2, 3), (0, 1), topology(1, 1), [0]),
        ((1,), (1, 2), TWO, [1]),
        ((2,), (3,), TWO, [0, 1]),
    ):
        both = await retired(engine, older, newer)
        shadow = await engine.prepare(target)
        assert engine.standby == [both[number] for number in staying]
        assert [bool(group_pids(one.pid)) for one in both] == [one in engine.standby for one in both]
        await shadow.abort(Reason.CANCELLED)
        while engine.standby:
            await engine.standby.pop().close()


async def test_none_gives_way_to_a_target_that_cannot_fit(engine):
    both = await retired(engine, (1,), (2,))
    engine.settings = replace(engine.settings, kv_cache_bytes=4 << 30)
    with pytest.raises(SwitchError, match="2 vLLM engines side by side need"):
        await engine.prepare(TWO)
    assert engine.standby == both
    assert all(group_pids(one.pid) for one in both)


async def test_what_stands_by_serves_at_once_when_what_serves_is_lost(engine):
    class Heard(SamePlace):
        came: ClassVar[list[tuple[Topology, Topology]]] = []

        def came_back(self, lost: Topology, runs: Topology, why: str) -> None:
            self.came.append((lost, runs))

    engine.comeback = Heard()
    (second,) = await retired(engine, (1,))
    first = engine.active
    engine.streams["r"] = TrackedRequest(GenerationRequest("r", (1,), SamplingParams(9), 0), first, is_had=True)
    os.kill(first.pid, signal.SIGKILL)
    ((end,),) = [await engine._outputs.get()]
    assert (end.request_id, end.is_lost) == ("r", True)
    assert (engine.active, engine.state, engine.standby) == (second, EngineState.SERVING, [])
    assert Heard.came == [(ONE, on((1,)))]
    os.kill(second.pid, signal.SIGKILL)  # nothing stands by now: it starts anew as it was
    await reaches(engine, EngineState.RESTARTING)
    await reaches(engine, EngineState.SERVING)
    assert engine.topology == on((1,))


async def test_a_format_that_is_not_served_or_that_tp_would_cut_is_refused_before_anything_starts(engine):
    def in_format(name: str, stage: Stage) -> Topology:
        return Topology((replace(stage, precision=Precision(name, "bf16", "bf16")),))

    with pytest.raises(SwitchError, match="the engine vllm serves no fp8 here") as refused:
        await engine.prepare(in_format("fp8", ONE.stages[0]))
    assert refused.value.reason is Reason.UNSUPPORTED
    with pytest.raises(TopologyError, match="TP 2 cuts groups of 32 of int4 in the mlp width 96"):
        await engine.prepare(in_format("int4", TWO.stages[0]))


async def test_with_steps_filled_otherwise_another_engine_starts_beside_the_same(engine):
    assert engine.capabilities.running == engine.active.started.batching == Batching(128, 2048)
    few = Batching(8, 256)
    shadow = await engine.prepare(ONE, few)
    other = await shadow._starting
    assert (other.topology, other.started.batching, other.pid == engine.active.pid) == (ONE, few, False)
    await shadow.abort(Reason.CANCELLED)
    with pytest.raises(SwitchError, match="at most 128 sequences at once, 2048 tokens a step"):
        await engine.prepare(ONE, Batching(129, 2048))
    engine.settings = replace(engine.settings, kv_cache_bytes=4 << 30)
    with pytest.raises(SwitchError, match="2 vLLM engines side by side need"):
        await engine.prepare(ONE, few)


async def test_what_stands_by_with_steps_filled_otherwise_takes_no_place_of_what_serves(engine):
    """Of a plan nothing would be left; nor is it the target of a switch that says nothing of it."""
    other = await engine.launch(on((1,)), Batching(8, 256))
    await engine.retire(other)
    shadow = await engine.prepare(on((1,)))
    assert await shadow._starting is not other
    await shadow.abort(Reason.CANCELLED)
    first = engine.active
    os.kill(first.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while engine.active is first:  # noqa: ASYNC110 - another process brings it about
            await asyncio.sleep(0.01)
    assert (engine.topology, engine.active.started.batching, engine.standby) == (ONE, first.started.batching, [other])
