"""A vLLM engine whose worker or driver hangs ends as if it had died, and another serves."""

import asyncio
import contextlib
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine import EngineState, Finish, SamplingParams
from runtime.errors import Reason, SwitchError
from runtime.process.launcher import Launcher, group_pids
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.instance import Instance
from runtime.vllm_engine.messages import Preparation
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
    await gone(groups)


async def gone(groups: set[int]) -> None:
    """Wait for no process to be left: a killed worker may take a moment."""
    async with asyncio.timeout(10):
        while [pid for group in groups for pid in group_pids(group)]:  # noqa: ASYNC110 - the system tells nobody
            await asyncio.sleep(0.1)


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


# --- every process, in every phase of a switch ---

SURE = replace(IMPATIENT, num_standby=0, start_timeout_s=60.0)
SHAPES = ("tp2", "pp2")
PHASES = ("serving", "warming", "syncing", "cutting", "committed")
VICTIMS = ("driver of the source", "worker of the source", "driver of the target", "worker of the target")
CELLS = [
    (victim, phase, name)
    for victim in VICTIMS
    for phase in PHASES
    if not (phase == "serving" and "target" in victim)
    for name in ("SIGSTOP", "SIGKILL")
]
GRACE_S, STARTS_WITHIN_S = 5.0, 120.0
ENDS, ABORTS, GOES_ON, MOVED = (
    "the model starts anew as it was, and its streams go on there",
    "the switch is given up, every stream goes on",
    "the switch ends well, every stream goes on",
    "the model starts anew as the target, and its streams go on there",
)


def stated(victim: str, phase: str) -> str:
    if phase == "committed":
        return GOES_ON if "source" in victim else MOVED
    return ENDS if "source" in victim else ABORTS


def table() -> str:
    """As it stands in docs/faults.md."""
    rows = ["| process | in plain serving | while the target starts | while KV is copied | in the cut | after it |"]
    rows += ["|---|---|---|---|---|---|"]
    for side in ("source", "target"):
        cells = ["–" if (side, phase) == ("target", "serving") else stated(side, phase) for phase in PHASES]
        rows.append(f"| driver or worker of the {side} | {' | '.join(cells)} |")
    return "\n".join(rows)


def test_the_table_stands_in_the_docs() -> None:
    assert table() in (Path(__file__).parents[3] / "docs" / "faults.md").read_text(encoding="utf-8")


def is_worker(pid: int) -> bool:
    """By the title that vLLM gives it."""
    with contextlib.suppress(OSError):
        return b"VLLM::Worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class Bench:
    """One engine through all cells: each begins where the one before ended."""

    def __init__(self, engine: VllmEngine, streams: Streams, started: list[Instance]) -> None:
        self.engine, self.streams, self.started = engine, streams, started
        self.count = 0

    async def strike(self, victim: str, name: str, group: int) -> None:
        """Kill or stop the driver, which leads the group, or the last of its workers."""
        pid = group
        while "worker" in victim and pid == group:
            workers = [one for one in group_pids(group) if is_worker(one)]
            pid = max(workers, default=group)
            await asyncio.sleep(0.05)
        os.kill(pid, getattr(signal, name))

    async def run(self, victim: str, phase: str, name: str) -> None:
        """Strike in this phase, and see what is stated."""
        source = self.engine.active
        other = next(shape for shape in SHAPES if topology(shape) != source.topology)
        self.count += 1
        stream = f"s{self.count}"
        await self.streams.submit(stream, prompts()["r3"], SamplingParams(max_tokens=1700))
        await self.streams.have(3, stream)
        outcome, moved = stated(victim, phase), False
        if phase == "serving":
            await self.strike(victim, name, source.pid)
        else:
            moved = await self.switch(victim, phase, name, other)
        is_over = outcome in {ENDS, MOVED}
        assert moved == (outcome in {GOES_ON, MOVED}), "whether it committed"
        async with asyncio.timeout(SURE.lost_after_s + GRACE_S + 10):
            if is_over:
                await self.streams.ended(stream)
        await reaches(self.engine, EngineState.SERVING)
        assert self.engine.topology == (topology(other) if moved else source.topology)
        await self.go_on(stream, is_over)

    async def switch(self, victim: str, phase: str, name: str, other: str) -> bool:
        """As a coordinator would bring it to its end; whether it committed."""
        source, shadow = self.engine.active.pid, await self.engine.prepare(topology(other))
        while not self.started or self.started[-1].pid == source:  # noqa: ASYNC110 - a task of the engine starts it
            await asyncio.sleep(0.01)
        struck = source if "source" in victim else self.started[-1].pid
        steps = {
            "warming": shadow.ready,
            "syncing": lambda: self.streams.synced(shadow),
            "cutting": lambda: shadow.cut(self.streams.ledger.announce("target"), deadline_s=3.0),
            "committed": shadow.release,
        }
        deadline_s = SURE.start_timeout_s if phase == "warming" else SURE.lost_after_s
        patience_s = STARTS_WITHIN_S
        try:
            for reached, go_on in steps.items():
                if reached == phase:
                    await self.strike(victim, name, struck)
                    patience_s = deadline_s + 2 * GRACE_S
                async with asyncio.timeout(patience_s):
                    await go_on()
        except SwitchError as error:
            await shadow.abort(error.reason)
            return False
        return True

    async def go_on(self, stream: str, is_over: bool) -> None:
        """The next switch succeeds, with what still runs and a new stream."""
        self.count += 1
        new = f"s{self.count}"
        await self.streams.submit(new, prompts()["r1"], SamplingParams(max_tokens=200))
        await self.streams.have(3, new)
        target = next(shape for shape in SHAPES if topology(shape) != self.engine.topology)
        await self.streams.switch(topology(target))
        await self.streams.ended(new, stream)
        assert self.streams.said[new][-1].finish is Finish.LENGTH
        assert (self.streams.said[stream][-1].finish is Finish.ERROR) == is_over


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
async def test_whatever_is_killed_or_stopped_ends_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Instance] = []

    class Recorded(Instance):
        def __init__(self, launcher: Launcher, preparation: Preparation) -> None:
            super().__init__(launcher, preparation)
            started.append(self)

    monkeypatch.setattr("runtime.vllm_engine.engine.Instance", Recorded)
    monkeypatch.setattr("runtime.process.liveness.MOST_PAUSE_S", 1.0)
    engine, failed = await VllmEngine.start(CHECKPOINT, topology("tp2"), CLUSTER, SURE), list[str]()
    try:
        async with hearing(engine) as streams:
            bench = Bench(engine, streams, started)
            for cell in CELLS:
                try:
                    await bench.run(*cell)
                except (AssertionError, TimeoutError, SwitchError) as error:
                    failed.append(f"{cell}: {type(error).__name__} {error}")
                    await reaches(engine, EngineState.SERVING)
    finally:
        await engine.close()
    assert not failed, "\n".join(failed)
    await gone({process.pid for process in started})
    assert not [process for process in started if process.process.folder and process.process.folder.exists()]
