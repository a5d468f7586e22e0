"""A real spare: prepared for any topology, ordered for one; and its end is heard of though its workers were forked."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from runtime.process.launcher import group_pids
from runtime.vllm_engine.instance import Spare
from tests.runtime.vllm_engine.streams import run_through, topology

pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

UNEVEN = "cpu[0]:0-3 > cpu[1]:3-8"


async def test_an_engine_in_a_spare_is_as_any_other(streams, unswitched):
    engine = streams.engine
    await streams.be(topology("1x1"))
    engine.spare = spare = Spare(engine._launchers.on(""), engine._surroundings, engine.settings)
    spare.begin()
    waited = spare._process
    assert waited is not None
    async with asyncio.timeout(300):
        while not waited.is_prepared:  # noqa: ASYNC110 - it says so by itself
            await asyncio.sleep(0.01)
    try:
        await run_through(streams, unswitched, "1x1", UNEVEN, "patch")
    finally:
        engine.spare = None
        await spare.close()
    ordered = engine.active
    assert ordered is waited
    assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in ordered.started.pids} == {
        os.getpriority(os.PRIO_PROCESS, 0)
    }

    # a worker that held the driver's channel would keep the driver's end from being heard of
    assert all(_channel(ordered.pid) not in _open_files(worker).values() for worker in ordered.started.pids)

    await streams.be(topology("1x1"))
    lost = asyncio.Event()
    ordered.on_lost = lambda *_: lost.set()
    os.kill(ordered.pid, signal.SIGKILL)
    await asyncio.wait_for(lost.wait(), 60)
    engine.standby.remove(ordered)
    await ordered.close()
    while group_pids(ordered.pid):
        os.sched_yield()


def _open_files(pid: int) -> dict[int, str]:
    """File descriptor to what it is."""
    return {int(entry.name): str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()}


def _channel(pid: int) -> str:
    """The socket that a driver was started with."""
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return _open_files(pid)[int(command[command.index("runtime.vllm_engine.driver.boot") + 1])]
