"""A request is an engine's only once the engine has it: whatever is lost, cut, cancelled or given up, it runs once."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import Finish, GenerationRequest, SamplingParams
from runtime.errors import EngineLostError, Reason, RuntimeFault, SwitchError
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.process.content import PinnedCheckpoint
from runtime.router import Router
from runtime.stream import GenerationParams
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.models import EngineSettings
from runtime.vllm_engine.engine import VllmEngine
from runtime.vllm_engine.models import VllmSettings
from tests.runtime.scripted import cluster_of
from tests.runtime.scripted_drivers import CHECKPOINT, World, right
from tests.runtime.torch_engine.driver.test_sampling_tasks import TOKENIZER
from tests.runtime.torch_engine.ears import MODEL
from tests.tries import tries

CLUSTER = cluster_of("cpu", 64 << 30, 4)
PLACES = [parse_topology(text, CLUSTER, MODEL.num_layers, "fp32") for text in ("cpu[0]", "cpu[1]", "cpu[2]")]
"""Two on one host, one on the other."""
TOKENS = 6
STREAMS, LOSSES, STEPS = 5, 2, 120
PATIENT = {"stall_after_s": 1800.0, "lost_after_s": 3600.0}
Engine = TorchEngine | VllmEngine
T = TypeVar("T")


async def built_in(world: World) -> TorchEngine:
    settings = EngineSettings(num_blocks=16, spare=False, **PATIENT)
    return await done(world, TorchEngine.start(CHECKPOINT, PLACES[0], CLUSTER, settings, world))


async def vllm(world: World) -> VllmEngine:
    settings = VllmSettings(kv_cache_bytes=1 << 20, num_standby=1, spare=False, drain_tokens=1, **PATIENT)
    engine = VllmEngine(PinnedCheckpoint.of(CHECKPOINT), MODEL, CLUSTER, settings, world)
    engine._serve(await done(world, engine.launch(PLACES[0])))
    return engine


async def done(world: World, work: Coroutine[Any, Any, T]) -> T:
    """Have drivers do and say what it takes."""
    task = asyncio.create_task(work)
    while not task.done():
        await quiet(world)
    return task.result()


async def settled() -> None:
    """Let everybody hear what has happened."""
    for _ in range(12):
        await asyncio.sleep(0)


async def quiet(world: World) -> None:
    """Let all be done and said that was asked for."""
    await settled()
    while waiting := [driver for driver in world.drivers if driver.inbox or driver.outbox]:
        for driver in waiting:
            if driver.inbox:
                driver.turn()
            if driver.outbox:
                driver.deliver()
        await settled()


class Day:
    """Streams, losses and switches of one engine, one thing after the other."""

    def __init__(self, world: World, engine: Engine, router: Router) -> None:
        self.world, self.engine, self.router = world, engine, router
        self.said: dict[int, list[int]] = {}
        self.streams: dict[int, asyncio.Task[None]] = {}
        self.num_losses = 0
        self.switching: asyncio.Task[None] | None = None
        self.gives_up = False

    def moves(self, draw: Callable[[int], int]) -> list[Callable[[], None]]:
        """What can happen next."""
        drivers = self.world.drivers
        able = [driver.turn for driver in drivers if driver.inbox] * 3
        able += [driver.deliver for driver in drivers if driver.outbox] * 3
        able += [driver.step for driver in drivers if driver.sequences and not driver.is_fenced]
        if len(self.streams) < STREAMS:
            able.append(self.submit)
        if running := [task for task in self.streams.values() if not task.done()]:
            able.append(running[draw(len(running))].cancel)
        if self.num_losses < LOSSES and (alive := self.world.alive):
            able.append(lambda: self.lose(alive[draw(len(alive))].kill))
        if self.switching is None or self.switching.done():
            able.append(lambda: self.switch(PLACES[draw(len(PLACES))]))
        else:
            able.append(self.give_up)
        return able

    def submit(self) -> None:
        number = len(self.streams)
        self.said[number] = []
        self.streams[number] = asyncio.create_task(self.listen(number))

    async def listen(self, number: int) -> None:
        params = GenerationParams(SamplingParams(TOKENS), ignore_eos=True)
        finish = None
        async for delta in self.router.generate([number + 1], params):
            finish = delta.finish
            if not delta.is_pause:
                assert delta.index == len(self.said[number])
                self.said[number].append(delta.token_id)
        assert finish is Finish.LENGTH

    def lose(self, kill: Callable[[], None]) -> None:
        self.num_losses += 1
        kill()

    def give_up(self) -> None:
        self.gives_up = True

    def switch(self, target: Topology) -> None:
        self.gives_up = False
        if target != self.engine.topology:
            self.switching = asyncio.create_task(self.switched(target))

    async def switched(self, target: Topology) -> None:
        with contextlib.suppress(SwitchError, EngineLostError):
            shadow = await self.engine.prepare(target)
            try:
                await shadow.ready()
                await shadow.lag()
                if self.gives_up:
                    raise SwitchError(Reason.CANCELLED, "somebody wants it no more")
                await shadow.cut(self.router.announce(target), 60.0)
            except RuntimeFault:
                await shadow.abort(Reason.CANCELLED)
                raise
            await shadow.drain()
            await shadow.release()

    def check(self) -> None:
        """No stream is computed twice, none broke, and nothing was lost or said twice."""
        for driver in self.world.alive:
            assert len({*driver.names}) == len(driver.names), f"driver {driver.pid} computes {driver.names}"
        counts = self.router.counts
        assert (counts.lost, counts.duplicates) == (0, 0)
        for number, said in self.said.items():
            wanted = GenerationRequest("", (number + 1,), SamplingParams(TOKENS), 0)
            assert said == right(wanted, len(said)), number
            task = self.streams[number]
            if task.done() and not task.cancelled():
                task.result()

    async def evening(self) -> None:
        """Everything ends, and nothing is left."""
        for _ in range(200):
            await quiet(self.world)
            self.check()
            if all(task.done() for task in (*self.streams.values(), self.switching) if task):
                break
            for driver in self.world.drivers:
                driver.step()
        assert all(task.done() for task in (*self.streams.values(), self.switching) if task), "something waits for ever"
        await quiet(self.world)
        assert self.router.num_streams == 0
        assert [driver.names for driver in self.world.alive if driver.names] == []
        assert not (self.engine.streams if isinstance(self.engine, VllmEngine) else self.engine._live)


async def lived(start: Callable[[World], Any], draw: Callable[[int], int]) -> None:
    world = World()
    engine = await start(world)
    async with Router(engine, TOKENIZER) as router:
        day = Day(world, engine, router)
        try:
            for _ in range(STEPS):
                able = day.moves(draw)
                able[draw(len(able))]()
                await settled()
                day.check()
            await day.evening()
        finally:
            await engine.give_up()
            for driver in world.alive:  # or whoever waits for one would not end
                driver.kill()
            await quiet(world)
    await engine.close()


@pytest.fixture(scope="module", autouse=True)
def at_once():
    """Nothing waits for a clock."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.process.liveness.Pauses.next_s", lambda _: 0.0)
        patch.setattr("runtime.recovery.AGAIN_S", 0.0)
        patch.setattr("runtime.vllm_engine.switch.DRAIN_PAUSE_S", 0.0)
        yield


@pytest.mark.parametrize("start", [built_in, vllm])
@pytest.mark.parametrize("stage", ["asked", "answered", "spoken"])
async def test_the_loss_of_a_request_is_told_once_however_far_it_came(start, stage):
    world = World()
    engine = await start(world)
    (driver,) = world.drivers
    outputs = engine.outputs()
    submitting = asyncio.create_task(engine.submit(GenerationRequest("r", (1,), SamplingParams(TOKENS), 0)))
    await settled()
    if stage != "asked":
        driver.turn()
    if stage == "spoken":
        driver.step()
    driver.kill()
    while driver.outbox:  # in one go, as from one read of a socket
        driver.deliver()
    await engine.give_up()
    (refused,) = await asyncio.gather(submitting, return_exceptions=True)
    await engine.close()
    told = [isinstance(refused, EngineLostError)]
    told += [token.is_lost async for batch in outputs for token in batch if token.finish]
    assert sum(told) == 1, told
    assert (refused is None) is (stage == "spoken")


@pytest.mark.parametrize("start", [built_in, vllm])
@tries(150)
@given(data=st.data())
def test_whatever_comes_each_request_runs_once_and_each_stream_is_whole(start, data):
    asyncio.run(lived(start, lambda count: data.draw(st.integers(0, count - 1))))
