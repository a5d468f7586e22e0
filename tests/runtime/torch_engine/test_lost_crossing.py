"""What becomes of requests when a process of a switch between hosts is killed or stopped: the table of docs/faults.md."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.engine import EngineState, Finish, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, Reason, SwitchError
from runtime.models import Cluster
from tests.runtime.scripted import reaches
from tests.runtime.torch_engine.driver.test_hung import (
    ABORTS,
    ENDS,
    GOES_ON,
    MOVED,
    SETTINGS,
    alive,
    sampled,
)  # fmt: skip
from tests.runtime.torch_engine.ears import CUT_S, Ears
from tests.runtime.torch_engine.two_hosts import PP2, TP2, crossing

pytestmark = pytest.mark.slow

PHASES = ("warming", "syncing", "cutting", "committed")
STATED = {
    "driver of the source": (ENDS, ENDS, ENDS, GOES_ON),
    "driver of the target": (ABORTS, ABORTS, ABORTS, MOVED),
    "carrier of the source": (ABORTS, ABORTS, ABORTS, GOES_ON),
    "carrier of the target": (ABORTS, ABORTS, ABORTS, GOES_ON),
}
CELLS = [(victim, phase, name) for victim in STATED for phase in PHASES for name in ("SIGSTOP", "SIGKILL")]
FEW = {
    ("driver of the target", "committed", "SIGKILL"),
}


def table() -> str:
    """As it stands in docs/faults.md."""
    rows = [
        "| process | while the target loads | while KV is copied | in the cut | after it |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*rows, *(f"| {victim} | {' | '.join(stated)} |" for victim, stated in STATED.items())])


def test_the_table_stands_in_the_docs() -> None:
    assert table() in (Path(__file__).parents[3] / "docs" / "faults.md").read_text(encoding="utf-8")


PATIENCE_S = 60.0
"""Longer than whatever is waited for: carriers have up to 40 s to start and to meet, on a machine that others use."""


async def within(work: Awaitable[object]) -> None:
    """Whatever comes of it, in time: a switch that is given up may be told by its error."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(SwitchError, EngineLostError):
            await work


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between hosts, where UCX would take shared memory on one; and a start that hangs is noticed sooner."""
    monkeypatch.setenv("UCX_TLS", "tcp")
    monkeypatch.setattr("runtime.process.liveness.START_S", 20.0)


def carriers(driver: int) -> list[int]:
    """Process ids of the carriers that a driver started."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == driver and b"carrier.transfer_side" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


async def pid_of(source: int, target: int, victim: str) -> int:
    driver = source if "source" in victim else target
    if "driver" in victim:
        return driver
    while not (found := carriers(driver)):  # noqa: ASYNC110 - a driver brings it about
        await asyncio.sleep(0.01)
    return found[0]


async def struck(ears: Ears, cell: tuple[str, str, str]) -> set[int]:
    """Strike, and bring the switch to its end as a coordinator would. The groups of both drivers."""
    victim, phase, name = cell
    engine = ears.engine
    source = engine.driver.pid
    shadow = await engine.prepare(ears.topology(TP2))
    while engine.coming is None:  # noqa: ASYNC110 - it is started beside
        await asyncio.sleep(0.01)
    target = engine.coming.pid

    async def strike(at: str) -> None:
        if at == phase:
            with contextlib.suppress(ProcessLookupError):
                os.kill(await pid_of(source, target, victim), getattr(signal, name))

    await strike("warming")
    await within(shadow.ready())
    await strike("syncing")
    if phase != "warming":
        await within(shadow.lag())
    await strike("cutting")
    if phase != "warming":
        await within(shadow.cut(2, 2.0 if phase != "committed" else CUT_S))
    if shadow.moved:
        await strike("committed")
    await within(shadow.release() if shadow.moved else shadow.abort(Reason.CANCELLED))
    return {source, target}


@sampled(FEW, CELLS)
async def test_what_is_stated_comes_in_time(
    checkpoints: dict[str, Path], cluster: Cluster, cell: tuple[str, str, str]
) -> None:
    victim, phase, _ = cell
    stated = STATED[victim][PHASES.index(phase)]
    groups: set[int] = set()
    async with crossing(checkpoints["qwen3-tied"], cluster, replace(SETTINGS, num_blocks=1024)) as ears:
        engine = ears.engine
        await ears.run(
            *(GenerationRequest(f"r{number}", (5, 9, number + 1), SamplingParams(1900), 1) for number in range(4))
        )
        groups = await struck(ears, cell)
        is_over = stated in {ENDS, MOVED}
        if is_over:
            async with asyncio.timeout(PATIENCE_S):
                await ears.all_ended(4)
            assert {(tokens[-1].finish, tokens[-1].is_lost) for tokens in ears.tokens.values()} == {
                (Finish.ERROR, True)
            }
        await reaches(engine, EngineState.SERVING)
        groups.add(engine.driver.pid)
        assert engine.topology == ears.topology(TP2 if stated in {MOVED, GOES_ON} else PP2)
        ears.epoch = 9
        await ears.run(GenerationRequest("next", (7, 8), SamplingParams(60), 9))
        await ears.switch(PP2 if stated in {MOVED, GOES_ON} else TP2)
        await ears.ended("next")
        for number in range(0 if is_over else 4):
            await ears.goes_on(f"r{number}")
            await ears.cancel(f"r{number}")
        right = {name for name, tokens in ears.tokens.items() if tokens[-1].finish is not Finish.ERROR}
        assert right == ({"next"} if is_over else {*ears.tokens})
        groups.add(engine.driver.pid)
    assert not any(alive(group) for group in groups)
