"""Where an engine comes back: as it was, or without a device whose worker dies at each start."""

import asyncio
import os
import signal

import pytest

from runtime.coordinator import Coordinator
from runtime.engine import EngineState, SamplingParams
from runtime.errors import EngineLostError
from runtime.machine import SwitchSettings
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.process.launcher import group_pids
from runtime.router import Router
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.driver.workers import names_device
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from tests.rows import rows
from tests.runtime.scripted import cluster_of, reaches
from tests.runtime.torch_engine.driver.test_sampling_tasks import CHECKPOINT, TOKENIZER
from tests.runtime.torch_engine.ears import started

CLUSTER = cluster_of("cpu", 2 << 30, 3)
WHOLE = GenerationParams(SamplingParams(240), ignore_eos=True)


class Forgetful:
    """A journal that nobody reads."""

    async def write(self, *_: object) -> None:
        """Nothing is kept."""


class SickEngine(TorchEngine):
    """A device of it may be sick from some moment on."""

    driver_module = "benchmarks.sick_driver"


def two_of(*devices: int) -> Topology:
    first, second = devices
    return parse_topology(f"cpu[{first}]:0-4 > cpu[{second}]:4-8", CLUSTER, 8, "fp32")


class Rest:
    """What is left of three devices, two at a time."""

    def __init__(self) -> None:
        self.out: dict[int, str] = {}
        self.came: list[tuple[Topology, Topology]] = []
        self.tries: list[Topology] = []

    async def place(self, lost: Topology) -> Topology:
        left = [device for device in range(3) if device not in self.out]
        self.tries.append(two_of(*left[:2]) if {*lost.devices} & self.out.keys() else lost)
        return self.tries[-1]

    async def take_out(self, device: int, why: str) -> bool:
        self.out[device] = why
        return True

    def came_back(self, lost: Topology, runs: Topology, why: str) -> None:
        self.came.append((lost, runs))


async def heard(router: Router, prompt: str, deltas: list[Delta]) -> list[int | None]:
    async for delta in router.generate(prompt, WHOLE):
        if not delta.is_pause:
            deltas.append(delta)  # noqa: PERF401 - others look at it while it grows
    return [delta.token_id for delta in deltas]


@pytest.mark.exhaustive  # tests/service/promises/test_relocation.py has it with the service
async def test_streams_go_on_without_a_device_whose_worker_dies_at_each_start(tmp_path, monkeypatch):
    sick = tmp_path / "sick"
    sick.write_text("")
    monkeypatch.setenv("SICK", str(sick))
    settings = EngineSettings(num_blocks=256, max_running=12)
    prompts = [f"count by {number} from 11: " for number in range(1, 5)]
    async with started(CHECKPOINT, "pp2", CLUSTER, settings, SickEngine) as engine:
        engine.comeback = rest = Rest()
        async with Router(engine, TOKENIZER) as router:
            unbroken = [await heard(router, prompt, []) for prompt in prompts]
            spoken: list[list[Delta]] = [[] for _ in prompts]
            tasks = [asyncio.create_task(heard(router, *one)) for one in zip(prompts, spoken, strict=True)]
            while min(map(len, spoken)) < 3:  # noqa: ASYNC110 - processes bring it about
                await asyncio.sleep(0.005)
            sick.write_text("1")
            os.kill((await engine.stats()).worker_pids[1], signal.SIGKILL)
            assert await asyncio.gather(*tasks) == unbroken
            assert [*rest.out] == [1]
            assert "the worker on device 1 died" in rest.out[1]
            assert rest.tries == [two_of(0, 1), two_of(0, 1), two_of(0, 2)]
            assert rest.came == [(two_of(0, 1), two_of(0, 2))]
            assert engine.topology == two_of(0, 2)


@pytest.mark.slow
async def test_an_engine_that_may_be_nowhere_fails_in_these_words_and_serves_when_it_may(tmp_path, monkeypatch):
    monkeypatch.setenv("SICK", str(tmp_path / "sick"))
    (tmp_path / "sick").write_text("")

    class Nowhere(Rest):
        is_barred = True

        async def place(self, lost: Topology) -> Topology:
            if self.is_barred:
                raise EngineLostError("all devices are out")
            return lost

    async with started(CHECKPOINT, "pp2", CLUSTER, EngineSettings(num_blocks=64), SickEngine) as engine:
        engine.comeback = nowhere = Nowhere()
        os.kill(engine._driver.pid, signal.SIGKILL)
        await reaches(engine, EngineState.FAILED)
        with pytest.raises(EngineLostError, match="all devices are out"):
            await engine.stats()
        nowhere.is_barred = False
        await reaches(engine, EngineState.SERVING)
        assert nowhere.came == []


@rows(
    ("detail", "is_named"),
    [
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: an illegal memory access was encountered", False),
        ("CUDA error: invalid device ordinal", True),
        ("died", False),
    ],
)
def test_cuda_names_a_device_that_is_broken_or_gone(detail, is_named):
    assert names_device(detail) == is_named


@pytest.mark.slow
async def test_what_stands_by_serves_at_once_when_what_runs_loses_a_rank():
    settings = EngineSettings(num_blocks=256, max_running=12)
    prompts = [f"count by {number} from 11: " for number in range(1, 5)]
    async with started(CHECKPOINT, "pp2", CLUSTER, settings) as engine:
        engine.comeback = rest = Rest()
        async with Router(engine, TOKENIZER) as router:
            unbroken = [await heard(router, prompt, []) for prompt in prompts]
            coordinator = Coordinator(engine, router, Forgetful(), SwitchSettings())
            await coordinator.switch(alone := parse_topology("cpu[2]:0-8", CLUSTER, 8, "fp32"), "1", lambda _: None)
            driver, spoken = engine._driver.pid, [[] for _ in prompts]
            tasks = [asyncio.create_task(heard(router, *one)) for one in zip(prompts, spoken, strict=True)]
            while min(map(len, spoken)) < 3:  # noqa: ASYNC110 - processes bring it about
                await asyncio.sleep(0.005)
            os.kill((await engine.stats()).worker_pids[2], signal.SIGKILL)
            assert await asyncio.gather(*tasks) == unbroken
            assert (engine.topology, engine._driver.pid) == (two_of(0, 1), driver)
            assert rest.came == [(alone, two_of(0, 1))]
            shapes = [[delta.fingerprint.partition("-")[2] for delta in deltas] for deltas in spoken]
            assert [(one[0], one[-1]) for one in shapes] == [("1x1", "PP2")] * 4
            await coordinator.switch(alone, "2", lambda _: None)  # on another worker
            assert await heard(router, prompts[0], []) == unbroken[0]
            stats = await engine.stats()
            assert (stats.free_blocks, [*stats.standby]) == (stats.total_blocks, [two_of(0, 1)])


@pytest.mark.slow
@pytest.mark.parametrize("start", ["forked_drivers", pytest.param("real_start", marks=pytest.mark.exhaustive)])
async def test_the_next_driver_waits_while_one_serves_and_one_that_is_gone_is_not_missed(request, start):
    request.getfixturevalue(start)  # a real one imports at the lowest priority: on a busy machine for minutes
    async with started(CHECKPOINT, "pp2", CLUSTER, EngineSettings(num_blocks=64, spare=True)) as engine:
        for is_there in (True, False):
            await reaches(engine, EngineState.SERVING)
            waits = engine._spare
            while not waits.is_prepared:  # noqa: ASYNC110 - it imports
                await asyncio.sleep(0.01)
            if not is_there:
                os.kill(waits.pid, signal.SIGKILL)
                while engine._spare is waits:  # noqa: ASYNC110 - the system brings it about
                    await asyncio.sleep(0.01)
            os.kill(engine._driver.pid, signal.SIGKILL)
            await reaches(engine, EngineState.RESTARTING)
            await reaches(engine, EngineState.SERVING)
            assert (engine._driver is waits) == is_there
        last = engine._spare.pid
    assert group_pids(last) == []
