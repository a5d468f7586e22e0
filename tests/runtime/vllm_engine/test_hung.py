"""A vLLM engine whose worker or driver hangs ends as if it had died, and another serves."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from runtime.engine import EngineState, Finish, SamplingParams
from runtime.errors import SwitchError
from runtime.models import Reason
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.processes import group_pids
from tests.runtime.scripted import reaches
from tests.runtime.vllm_engine.streams import (
    CHECKPOINT,
    CLUSTER,
    SETTINGS,
    Streams,
    hearing,
    prompts,
    topology,
)

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

IMPATIENT = replace(SETTINGS, stall_after_s=3.0, lost_after_s=5.0)


async def test_what_hangs_ends_as_if_it_had_died() -> None:
    engine = await VllmEngine.start(CHECKPOINT, topology("tp2"), CLUSTER, IMPATIENT)
    groups = {engine.active.pid}
    try:
        async with hearing(engine) as streams:
            await a_hung_worker_ends_its_engine(engine, streams)
            groups.add(engine.active.pid)
            await a_hung_target_ends_its_switch(engine, streams)
            await a_hung_driver_ends_its_engine(engine, streams)
            groups.add(engine.active.pid)
    finally:
        await engine.close()
    assert not [pid for group in groups for pid in group_pids(group)]


async def a_hung_worker_ends_its_engine(engine: VllmEngine, streams: Streams) -> None:
    await streams.submit("a", prompts()["r2"], SamplingParams(max_tokens=1500))
    await streams.have(3, "a")
    os.kill(engine.active.started.pids[1], signal.SIGSTOP)
    async with asyncio.timeout(IMPATIENT.lost_after_s + 5):
        await streams.ended("a")
    end = streams.said["a"][-1]
    assert end.finish is Finish.ERROR
    assert "the worker of rank 1" in end.detail
    await reaches(engine, EngineState.SERVING)


async def a_hung_target_ends_its_switch(engine: VllmEngine, streams: Streams) -> None:
    await streams.submit("b", prompts()["r3"], SamplingParams(max_tokens=300))
    shadow = await streams.prepared(topology("1x1"))
    os.kill(shadow._target.pid, signal.SIGSTOP)
    with pytest.raises(SwitchError) as failed:
        async with asyncio.timeout(IMPATIENT.lost_after_s + 5):
            await streams.synced(shadow)
    assert failed.value.reason is Reason.RANK_LOST
    await shadow.abort(failed.value.reason)
    await streams.ended("b")
    assert streams.said["b"][-1].finish is Finish.LENGTH


async def a_hung_driver_ends_its_engine(engine: VllmEngine, streams: Streams) -> None:
    await streams.submit("c", prompts()["r3"], SamplingParams(max_tokens=1500))
    await streams.have(3, "c")
    os.kill(engine.active.pid, signal.SIGSTOP)
    async with asyncio.timeout(IMPATIENT.lost_after_s + 5):
        await streams.ended("c")
    assert "no sign of life" in streams.said["c"][-1].detail
    await reaches(engine, EngineState.SERVING)
    await streams.submit("d", prompts()["r1"], SamplingParams(max_tokens=20))
    await streams.ended("d")
    assert streams.said["d"][-1].finish is Finish.LENGTH
