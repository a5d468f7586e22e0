"""What becomes of the service's work when a process is killed or stopped, whichever and whenever: the table of docs/faults.md.

Each cell kills (``SIGKILL``) or stops (``SIGSTOP``) one process of a built-in engine in one phase of a switch from one
device to two others, with streams, and sees what is stated, the next switch, and that nothing is left.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from runtime.engine import EngineState, Finish, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, Reason, SwitchError
from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.torch_engine.engine import TorchEngine, TorchShadow
from runtime.torch_engine.models import EngineSettings
from tests.runtime.scripted import reaches
from tests.runtime.torch_engine.ears import CUT_S, Ears

pytestmark = pytest.mark.slow

SETTINGS = EngineSettings(
    block_size=8, num_blocks=256, max_running=8, max_batch_tokens=24, closing_batch_tokens=16,
    stall_after_s=2.0, lost_after_s=3.0, load_after_s=5.0,
)  # fmt: skip
SOURCE, TARGET, LAYERS = "CPU[0]:0-5", "CPU[1,2]:0-5", 5
GRACE_S = 45.0
"""Beyond the deadline, for what has to be noticed and told: on a machine that others use."""
PHASES = ("serving", "warming", "syncing", "cutting", "committed")
ENDS, ABORTS, GOES_ON, MOVED = (
    "the model starts anew as it was, and its streams go on there",
    "the switch is given up, every stream goes on",
    "the switch ends well, every stream goes on",
    "the model starts anew as the target, and its streams go on there",
)
STATED = {
    ("rank of the source", "serving"): ENDS,
    ("rank of the source", "warming"): ENDS,
    ("rank of the source", "syncing"): ENDS,
    ("rank of the source", "cutting"): ENDS,
    ("rank of the source", "committed"): GOES_ON,
    ("rank of the target", "warming"): ABORTS,
    ("rank of the target", "syncing"): ABORTS,
    ("rank of the target", "cutting"): ABORTS,
    ("rank of the target", "committed"): MOVED,
    ("driver", "serving"): ENDS,
    ("driver", "warming"): ENDS,
    ("driver", "syncing"): ENDS,
    ("driver", "cutting"): ENDS,
    ("driver", "committed"): MOVED,
}
FEW = {
    ("rank of the source", "serving", "SIGSTOP"),
    ("rank of the target", "syncing", "SIGSTOP"),
    ("driver", "cutting", "SIGSTOP"),
}
"""In ``make test``; the others are exhaustive."""
CELLS = [(*cell, name) for cell in STATED for name in ("SIGSTOP", "SIGKILL")]
APART = {
    ("rank of the target", "committed", "SIGSTOP"),
}
"""In ``make test`` where ranks share no memory; the others of a rank are exhaustive there too."""


def table() -> str:
    """As it stands in docs/faults.md."""
    rows = ["| process | in plain serving | while the target loads | while KV is copied | in the cut | after it |"]
    rows += ["|---|---|---|---|---|---|"]
    for victim in dict.fromkeys(victim for victim, _ in STATED):
        rows.append(f"| {victim} | {' | '.join(STATED.get((victim, phase), '–') for phase in PHASES)} |")
    return "\n".join(rows)


def test_the_table_stands_in_the_docs() -> None:
    assert table() in (Path(__file__).parents[4] / "docs" / "faults.md").read_text(encoding="utf-8")


async def pid_of(engine: TorchEngine, victim: str) -> int:
    if victim == "driver":
        return engine._driver.pid
    device = 0 if victim == "rank of the source" else 2
    while True:
        pids = (await engine.stats()).worker_pids
        if device in pids:
            return pids[device]


async def within(work: Awaitable[object]) -> None:
    """Whatever comes of it, in time: a switch that is given up may be told by its error."""
    async with asyncio.timeout(SETTINGS.lost_after_s + GRACE_S + 5):
        with contextlib.suppress(SwitchError, EngineLostError):
            await work


async def switched(engine: TorchEngine, target: str, cluster: Cluster, epoch: int) -> None:
    shadow = await engine.prepare(parse_topology(target, cluster, LAYERS, "fp32"))
    await shadow.ready()
    while (await shadow.lag()).tokens > 8:
        pass
    await shadow.cut(epoch, deadline_s=CUT_S)
    await shadow.release()


async def struck(engine: TorchEngine, cell: tuple[str, str, str], cluster: Cluster) -> None:
    """Strike, and bring the switch to its end as a coordinator would."""
    victim, phase, name = cell

    async def strike() -> None:
        os.kill(await pid_of(engine, victim), getattr(signal, name))

    if phase == "serving":
        await strike()
        return
    shadow: TorchShadow = await engine.prepare(parse_topology(TARGET, cluster, LAYERS, "fp32"))
    if phase == "warming":
        await strike()
    await within(shadow.ready())
    if phase == "syncing":
        await strike()
    if phase != "warming":
        await within(shadow.lag())
    if phase == "cutting":
        await strike()
    if phase in {"cutting", "committed", "syncing"}:
        await within(shadow.cut(2, deadline_s=CUT_S if phase == "committed" else 2.0))
    if phase == "committed":
        await strike()
    await within(shadow.release() if shadow.moved else shadow.abort(Reason.CANCELLED))


def alive(group: int) -> list[str]:
    """Processes of a driver's group that run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(stat.parent.name)
    return found


def sampled(few: set[tuple[str, str, str]], cells: list[tuple[str, str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "cell",
        [pytest.param(cell, marks=() if cell in few else pytest.mark.exhaustive) for cell in cells],
        ids=lambda cell: "-".join(cell).replace(" ", "_"),
    )


@sampled(APART, [cell for cell in CELLS if cell[0] != "driver"])
async def test_the_same_comes_where_ranks_share_no_memory(
    checkpoints: dict[str, Path], cluster: Cluster, cell: tuple[str, str, str]
) -> None:
    settings = dataclasses.replace(SETTINGS, rank_transport="torch_distributed")
    await stated_comes_in_time(checkpoints["qwen3-tied"], cluster, cell, settings)


@sampled(FEW, CELLS)
async def test_what_is_stated_comes_in_time(
    checkpoints: dict[str, Path], cluster: Cluster, cell: tuple[str, str, str]
) -> None:
    await stated_comes_in_time(checkpoints["qwen3-tied"], cluster, cell, SETTINGS)


async def stated_comes_in_time(
    checkpoint: Path, cluster: Cluster, cell: tuple[str, str, str], settings: EngineSettings
) -> None:
    victim, phase, _ = cell
    stated, start = STATED[victim, phase], parse_topology(SOURCE, cluster, LAYERS, "fp32")
    engine = await TorchEngine.start(checkpoint, start, cluster, settings)
    ears, groups = Ears(engine), {engine._driver.pid}
    try:
        for number in range(4):
            await engine.submit(GenerationRequest(f"r{number}", (5, 9, number + 1), SamplingParams(1200), 1))
        await ears.have("r3", 3)
        await struck(engine, cell, cluster)
        is_over = stated in {ENDS, MOVED}
        if is_over:
            async with asyncio.timeout(SETTINGS.lost_after_s + GRACE_S):
                await ears.all_ended(4)
            broken = [tokens[-1] for tokens in ears.tokens.values()]
            assert {(token.finish, token.is_lost) for token in broken} == {(Finish.ERROR, True)}
            named = "driver" if victim == "driver" else f"device {0 if 'source' in victim else 2}"
            assert all(named in token.detail for token in broken)
        await reaches(engine, EngineState.SERVING)
        groups.add(engine._driver.pid)
        assert engine.topology.shape == ("TP2" if stated in {MOVED, GOES_ON} else "1x1")
        others = {"CPU[3]:0-5", "CPU[0]:0-5"} - {str(engine.topology).partition("@")[0]}
        await engine.submit(GenerationRequest("next", (7, 8), SamplingParams(40), engine._epoch or 1))
        await ears.have("next", 1)
        await switched(engine, max(others), cluster, 9)
        await ears.ended("next")
        for number in range(0 if is_over else 4):
            await ears.goes_on(f"r{number}")
            await ears.cancel(f"r{number}")
        right = {name for name, tokens in ears.tokens.items() if tokens[-1].finish is not Finish.ERROR}
        assert right == ({"next"} if is_over else {*ears.tokens})
    finally:
        await engine.close()
    assert not any(alive(group) for group in groups)


class FaultyEngine(TorchEngine):
    driver_module = "tests.runtime.torch_engine.driver.faulty_driver"


SWITCHES, STREAMS = 200, 12
FAULTS = (
    *("kill", "stop"), *("raise 3", "die 3", "copy 0"), "none",
)  # fmt: skip
PLACES = ("CPU[0]:0-5", "CPU[1,2]:0-5", "CPU[3]:0-5", "CPU[0,1]:0-5", "CPU[0]:0-2 > CPU[3]:2-5")


class Crowd:
    """Streams that are submitted again when they end, each with what it says undisturbed."""

    def __init__(self, engine: TorchEngine, cluster: Cluster) -> None:
        self.engine, self.cluster, self.ears = engine, cluster, Ears(engine)
        self.right: dict[int, list[int | None]] = {}
        self.names: dict[str, int] = {}
        self.count = self.epoch = 0
        self.broken: list[str] = []

    def request(self, number: int, name: str) -> GenerationRequest:
        sampling = SamplingParams(60, temperature=1.0 if number % 3 == 0 else 0.0, seed=number)
        return GenerationRequest(name, tuple(range(3, 20 + 3 * number)), sampling, self.epoch)

    async def learn(self) -> None:
        for number in range(STREAMS):
            await self.engine.submit(self.request(number, f"right{number}"))
        await self.ears.all_ended(STREAMS)
        for number in range(STREAMS):
            self.right[number] = [token.token_id for token in self.ears.tokens.pop(f"right{number}")]

    async def fill(self) -> None:
        """Look at what ended, and submit others for it."""
        for name, number in list(self.names.items()):
            tokens = self.ears.tokens.get(name, [])
            if tokens and tokens[-1].finish:
                said = [token.token_id for token in tokens if token.token_id is not None]
                assert said == self.right[number][: len(said)], name
                if tokens[-1].finish is Finish.ERROR:
                    assert "send the request again" in tokens[-1].detail
                    self.broken.append(tokens[-1].detail)
                else:
                    assert len(said) == len(self.right[number])
                del self.names[name], self.ears.tokens[name]
        for number in sorted({*range(STREAMS)} - {*self.names.values()}):
            self.count += 1
            name = f"s{self.count}"
            with contextlib.suppress(EngineLostError):
                await self.engine.submit(self.request(number, name))
                self.names[name] = number

    async def switch(self, target: str, fault: str, at: int, draw: random.Random, file: Path) -> None:
        """One switch, with its fault at one of four moments; as a coordinator brings it to its end."""
        moments = 0

        async def moment() -> None:
            nonlocal moments
            if moments == at and fault in {"kill", "stop"}:
                pids = [self.engine._driver.pid, *(await self.engine.stats()).worker_pids.values()]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(draw.choice(pids), signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
            moments += 1

        if fault not in {"kill", "stop", "none"}:
            file.write_text(fault)  # noqa: ASYNC240 - nothing waits for it
        self.epoch += 1
        shadow = await self.engine.prepare(parse_topology(target, self.cluster, LAYERS, "fp32"))
        try:
            await moment()
            await shadow.ready()
            await moment()
            while (await shadow.lag()).tokens > 8 * STREAMS:
                await self.fill()
            await moment()
            await shadow.cut(self.epoch, 2.0)
            await moment()
        except (SwitchError, EngineLostError):
            pass
        finally:
            with contextlib.suppress(SwitchError, EngineLostError):
                await (shadow.release() if shadow.moved else shadow.abort(Reason.CANCELLED))
            file.unlink(missing_ok=True)  # noqa: ASYNC240 - the same


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
async def test_random_switches_with_random_faults_say_no_wrong_token(
    checkpoints: dict[str, Path], cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, file = random.Random(32), tmp_path / "fault"
    monkeypatch.setenv("INTENTCTL_TEST_FAULT", str(file))
    monkeypatch.setattr("runtime.process.liveness.MOST_PAUSE_S", 1.0)
    start = parse_topology(PLACES[0], cluster, LAYERS, "fp32")
    settings = dataclasses.replace(SETTINGS, max_running=STREAMS, max_batch_tokens=48)
    engine = await FaultyEngine.start(checkpoints["qwen3-tied"], start, cluster, settings)
    crowd, ended, groups = Crowd(engine, cluster), Counter[str](), {engine._driver.pid}
    try:
        await crowd.learn()
        for _ in range(SWITCHES):
            await reaches(engine, EngineState.SERVING)
            groups.add(engine._driver.pid)
            await crowd.fill()
            now = str(engine.topology).replace("@fp32", "")
            fault = draw.choice(FAULTS)
            target = draw.choice([place for place in PLACES if place != now])
            async with asyncio.timeout(60):
                with contextlib.suppress(SwitchError, EngineLostError):
                    await crowd.switch(target, fault, draw.randrange(4), draw, file)
            ended[f"{fault}: {'moved' if str(engine.topology).replace('@fp32', '') == target else 'stayed'}"] += 1
        await reaches(engine, EngineState.SERVING)
        async with asyncio.timeout(60):
            await crowd.switch(
                PLACES[1] if "TP2" not in str(engine.topology.shape) else PLACES[2], "none", 9, draw, file
            )
        logging.getLogger(__name__).info("%s; %s broken of %s streams", dict(ended), len(crowd.broken), crowd.count)
    finally:
        await engine.close()
    assert not any(alive(group) for group in groups)


NO_ALARM_S = 1800.0
ASLEEP_S = 60


@contextlib.contextmanager
def hogs() -> Iterator[None]:
    """Two processes that want a core each."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for one in busy:
            one.kill()
            one.wait()


async def fall_asleep(engine: TorchEngine) -> None:
    """All processes stand still for a minute, this one too, as those of a laptop that sleeps."""
    pids = [engine._driver.pid, *(await engine.stats()).worker_pids.values(), os.getpid()]
    names = " ".join(map(str, pids))
    waker = f"kill -STOP {names}; sleep {ASLEEP_S}; kill -CONT {names}"
    with subprocess.Popen(["sh", "-c", waker]):  # noqa: ASYNC220 - nobody else works meanwhile
        pass


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
async def test_a_busy_machine_that_sleeps_is_no_fault(checkpoints: dict[str, Path], cluster: Cluster) -> None:
    draw, start = random.Random(32), parse_topology(PLACES[0], cluster, LAYERS, "fp32")
    usual = EngineSettings()
    settings = dataclasses.replace(
        SETTINGS, num_blocks=2048, max_running=STREAMS, max_batch_tokens=2048, closing_batch_tokens=256,
        stall_after_s=usual.stall_after_s, lost_after_s=usual.lost_after_s, load_after_s=usual.load_after_s,
    )  # fmt: skip
    engine = await TorchEngine.start(checkpoints["qwen3-tied"], start, cluster, settings)
    ears, driver, epoch, began_s, slept = Ears(engine), engine._driver.pid, 0, time.monotonic(), False
    try:
        with hogs():
            while (passed_s := time.monotonic() - began_s) < NO_ALARM_S:
                names = [f"{epoch}-{number}" for number in range(STREAMS)]
                for name in names:
                    prompt = tuple(draw.randrange(3, 90) for _ in range(draw.choice((1, 7, 300, 1500))))
                    sampling = SamplingParams(draw.randrange(1, 300), temperature=1.0, seed=epoch)
                    await engine.submit(GenerationRequest(name, prompt, sampling, epoch))
                now, epoch = str(engine.topology).replace("@fp32", ""), epoch + 1
                target = draw.choice([place for place in PLACES if place != now])
                try:
                    await switched(engine, target, cluster, epoch)
                except SwitchError as late:  # a cut may not take long, however busy the machine
                    assert late.reason is Reason.DEADLINE  # noqa: PT017 - it need not come
                    await engine._shadow.abort(late.reason)
                if passed_s > NO_ALARM_S / 2 and not slept:
                    slept = True
                    await fall_asleep(engine)
                await ears.all_ended(STREAMS)
                assert {ears.tokens[name][-1].finish for name in names} <= {Finish.LENGTH, Finish.STOP}
                ears.tokens.clear()
                assert (engine._driver.pid, engine.state) == (driver, EngineState.SERVING)
    finally:
        await engine.close()
    assert slept
