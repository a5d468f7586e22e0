"""Background work: an error that nobody foresaw is logged and counted, and ends neither it nor the engine's comeback."""

import asyncio
from typing import Any

import pytest

from runtime.engine import EngineState
from runtime.errors import EngineLostError
from runtime.models import Topology
from runtime.process.driver import Revived, SamePlace
from runtime.process.liveness import DriverWatchdog
from runtime.process.supervised import ERRORS, begin, cancel, supervised
from tests.runtime.scripted import topology


async def test_long_lived_work_begins_again_until_it_returns_and_each_error_is_told(caplog):
    tries = list[int]()

    async def work() -> None:
        tries.append(1)
        if len(tries) < 2:
            raise ValueError("a bug")

    before = ERRORS["work"]
    await supervised("work", work)
    assert (len(tries), ERRORS["work"]) == (2, before + 1)
    assert "ValueError: a bug" in caplog.text
    assert "work: an unforeseen error" in caplog.text


async def test_a_cancelled_task_is_over_and_no_error():
    ERRORS.pop("cancelled", None)
    task = asyncio.create_task(supervised("cancelled", asyncio.Event().wait))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ERRORS["cancelled"] == 0


async def test_somebody_looks_at_the_end_of_work_that_nobody_waits_for(caplog):
    async def work() -> None:
        raise ValueError("a bug")

    before = ERRORS["short"]
    running = set[asyncio.Task[None]]()
    for one in (work(), asyncio.sleep(0)):
        begin("short", one, running)
    endless = begin("short", asyncio.sleep(600), running)
    while len(running) > 1:  # noqa: ASYNC110 - both end by themselves
        await asyncio.sleep(0)
    await cancel(running)
    await asyncio.sleep(0)
    assert not running
    assert endless.cancelled()
    assert ERRORS["short"] == before + 1
    assert "ValueError: a bug" in caplog.text


class Talkative(SamePlace):
    """A comeback whose report fails."""

    async def place(self, lost: Topology) -> Topology:
        return topology(1, 1)

    def came_back(self, *_: Any) -> None:
        raise ValueError("another bug")


@pytest.mark.parametrize("comeback", [SamePlace(), Talkative()], ids=["as it was", "elsewhere"])
async def test_a_lost_engine_comes_back_whatever_its_first_restart_raises(comeback):
    states = list[EngineState]()
    vigil = DriverWatchdog(2, 3, print)

    class Buggy(Revived):
        def end_serving(self, why: str) -> tuple[str, ...]:
            raise NotImplementedError

        async def start_anew(self, *_: Any) -> None:
            states.append(self.state_of(vigil))
            if len(states) < 2:
                raise ValueError("a bug")

    engine = Buggy()
    engine.comeback = comeback
    engine.revive(topology(1), EngineLostError("it was killed"))
    assert engine._restart is not None
    await asyncio.wait_for(engine._restart, 20)
    assert states == [EngineState.RESTARTING, EngineState.FAILED]
    assert engine.state_of(vigil) is EngineState.SERVING
    vigil.stop()
    assert ERRORS["engine restart"]
