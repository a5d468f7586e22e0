"""Which engines stand by: in the order of their use, as many as the file says, and while memory allows."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import SwitchError
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Reason, Topology
from runtime.vllm_engine import driver_process
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.instance import Instance
from runtime.vllm_engine.models import VllmSettings
from runtime.vllm_engine.processes import group_pids
from tests.runtime.scripted import topology

pytestmark = pytest.mark.slow

MODEL = ModelSpec("m", "LlamaForCausalLM", 8, 64, 96, 8, 4, 8, 100, 512)
GPUS = tuple(Gpu(index, "cpu", 7 << 30) for index in range(4))
CLUSTER = Cluster((Node("n", GPUS, Link("shared-memory", 1e9, 1e-5)),))
SETTINGS = VllmSettings(kv_cache_bytes=3 << 30, num_standby=2, spare=False)
"""Two engines fit a device, three do not."""

ONE, TWO = topology(1), topology(2)


def on(devices: tuple[int, ...]) -> Topology:
    """One stage on these devices."""
    stage = topology(len(devices)).stages[0]
    return Topology((replace(stage, devices=devices),))


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VllmEngine]:
    """It serves on device 0; its driver processes compute nothing."""
    monkeypatch.setattr(driver_process, "MODULE", "tests.runtime.vllm_engine.scripted_driver")
    made = VllmEngine(Path("/models/m"), MODEL, CLUSTER, SETTINGS)
    made._serve(await made.launch(ONE))
    yield made
    await made.close()


async def retired(engine: VllmEngine, *devices: tuple[int, ...]) -> list[Instance]:
    """Engines that served one after the other."""
    found = [await engine.launch(on(each)) for each in devices]
    for instance in found:
        await engine.retire(instance)
    return found


async def test_as_many_stand_by_as_the_file_says_those_used_last(engine: VllmEngine) -> None:
    first, second, third = await retired(engine, (1,), (2,), (3,))
    assert engine.standby == [second, third]
    assert group_pids(first.pid) == []


async def test_a_target_that_stands_by_is_taken_and_was_used_last_when_it_is_given_back(
    engine: VllmEngine,
) -> None:
    first, second = await retired(engine, (1,), (2,))
    shadow = await engine.prepare(on((1,)))
    assert await shadow._starting is first
    assert engine.standby == [second]
    await shadow.abort(Reason.CANCELLED)
    assert engine.standby == [second, first]


async def test_the_least_recently_used_on_the_devices_of_a_target_gives_way(engine: VllmEngine) -> None:
    elsewhere, in_the_way = await retired(engine, (2, 3), (0, 1))
    shadow = await engine.prepare(topology(1, 1))
    assert engine.standby == [elsewhere]
    assert group_pids(in_the_way.pid) == []
    await shadow.abort(Reason.CANCELLED)


async def test_only_as_many_give_way_as_have_to(engine: VllmEngine) -> None:
    older, newer = await retired(engine, (1,), (1, 2))
    shadow = await engine.prepare(TWO)
    assert engine.standby == [newer]
    assert group_pids(older.pid) == []
    await shadow.abort(Reason.CANCELLED)


async def test_none_gives_way_to_a_target_that_fits(engine: VllmEngine) -> None:
    both = await retired(engine, (2,), (3,))
    shadow = await engine.prepare(TWO)
    assert engine.standby == both
    await shadow.abort(Reason.CANCELLED)


async def test_none_gives_way_to_a_target_that_cannot_fit(engine: VllmEngine) -> None:
    both = await retired(engine, (1,), (2,))
    engine.settings = replace(engine.settings, kv_cache_bytes=4 << 30)
    with pytest.raises(SwitchError, match="2 vLLM engines side by side need"):
        await engine.prepare(TWO)
    assert engine.standby == both
    assert all(group_pids(one.pid) for one in both)
