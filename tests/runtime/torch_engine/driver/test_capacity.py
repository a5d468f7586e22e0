"""The books of the pool's size: what is punched when, and that nothing comes back meanwhile."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.errors import SwitchError
from runtime.footprint import Piece
from runtime.kv.blocks import BlockPool
from runtime.kv.store import Slice
from runtime.notation import parse_topology
from runtime.torch_engine.driver.capacity import Capacity, refuse_start
from runtime.torch_engine.driver.loop import TorchDriver
from runtime.torch_engine.driver.standby import Standby
from runtime.torch_engine.driver.workers import WorkerLostError
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import MODEL

Runs = list[tuple[int, int]]


class SlowCrew:
    """Workers that answer when told to."""

    gains = False

    def __init__(self, devices: list[int]) -> None:
        self.incarnations = dict.fromkeys(devices, 1)
        self.lost: set[int] = set()
        self.asked: list[tuple[int, Runs]] = []
        self.gained: list[tuple[Any, Runs]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.was_asked = asyncio.Event()

    async def give_back(self, device: int, pieces: Any, runs: Runs) -> list[Slice]:
        assert bool(pieces) == bool(runs)
        self.asked.append((device, runs))
        self.was_asked.set()
        await self.may_answer.wait()
        if device in self.lost:
            raise WorkerLostError(device)
        return [Slice(None, 100 * len(runs), 0.001)]

    async def gain(self, wanted: Any, runs: Runs) -> None:
        self.gained.append((wanted, runs))
        self.was_asked.set()
        await self.may_answer.wait()
        if self.lost & {*wanted}:
            raise WorkerLostError(*self.lost)

    async def reach(self, device: int, _: Any, runs: Runs) -> None:
        await self.gain({device: []}, runs)

    async def begun(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Something that waits for an answer."""
        self.may_answer.clear()
        task = asyncio.create_task(work)
        await self.was_asked.wait()
        return task

    def punched(self) -> list[Runs]:
        return [runs for _, runs in self.asked if runs]


@pytest.fixture
def driver(cluster) -> SimpleNamespace:
    pool = BlockPool(17)
    pool.reserve()
    active = SimpleNamespace(
        topology=parse_topology("tp2", cluster, 4, "fp32"), pieces=lambda _: frozenset({Piece(0, 0)})
    )
    made = SimpleNamespace(
        pool=pool,
        scheduler=SimpleNamespace(request_blocks=16, longest_blocks=0, least_blocks=0),
        workers=SlowCrew([0, 1]),
        standby=Standby(SlowCrew([]), MODEL, cluster, 1),  # nobody stands by
        model=MODEL,
        cluster=cluster,
        settings=SimpleNamespace(block_size=8),
        shape=SimpleNamespace(num_blocks=17, block_size=8, stack=1),
        active=active,
        rank_sets=(active,),
        schedule=lambda: None,
    )
    made.parts = made
    return made


async def test_all_workers_have_answered_before_any_memory_goes(driver):
    done = await Capacity(driver, driver.scheduler).resize(10)
    assert driver.workers.asked == [(0, []), (1, []), (0, [(10, 16)]), (1, [(10, 16)])]
    assert (done.num_blocks, done.owed, done.returned_bytes, done.slices_s) == (10, 0, 200, (0.001,) * 2)


async def test_no_block_comes_back_while_memory_is_being_punched_out(driver):
    capacity = Capacity(driver, driver.scheduler)
    shrinking = await driver.workers.begun(capacity.resize(4))
    growing = asyncio.create_task(capacity.resize(16))
    for _ in range(20):
        await asyncio.sleep(0)
    assert driver.pool.num_blocks == 4
    driver.workers.may_answer.set()
    await asyncio.gather(shrinking, growing)
    assert driver.pool.num_blocks == 16
    assert driver.workers.punched() == [[(4, 16)]] * 2


async def test_a_switch_that_ends_early_waits_until_its_room_was_made(driver):
    capacity = Capacity(driver, driver.scheduler)
    driver.pool.resize(4)
    giving = await driver.workers.begun(capacity.give_back())
    settling = asyncio.create_task(capacity.settle())
    for _ in range(20):
        await asyncio.sleep(0)
    assert driver.pool.num_blocks == 4
    driver.workers.may_answer.set()
    await asyncio.gather(giving, settling)
    assert driver.pool.num_blocks == 16


async def test_blocks_that_retire_meanwhile_are_punched_with_their_neighbours(driver):
    capacity, table = Capacity(driver, driver.scheduler), driver.pool.take(16)
    driver.pool.give_back(table[8:])
    shrinking = await driver.workers.begun(capacity.resize(4))
    driver.pool.give_back(table[6:8])
    driver.workers.may_answer.set()
    assert (await shrinking).owed == 2
    assert driver.workers.punched() == [[(8, 16)]] * 2 + [[(6, 16)]] * 2
    assert not capacity.is_owing
    driver.pool.give_back(table[:6])
    assert capacity.is_owing
    await capacity.give_back()
    assert driver.workers.punched()[4:] == [[(4, 16)]] * 2
    assert not capacity.is_owing


async def test_a_block_that_retires_again_is_punched_again(driver):
    capacity = Capacity(driver, driver.scheduler)
    for size in (8, 16, 8):
        await capacity.resize(size)
    assert driver.workers.punched() == [[(8, 16)]] * 4


async def test_a_worker_that_is_lost_takes_its_memory_with_it(driver):
    driver.workers.lost.add(1)
    assert (await Capacity(driver, driver.scheduler).resize(8)).returned_bytes == 100


async def test_nothing_is_punched_out_while_memory_is_warmed_and_what_retired_is_not_warmed(driver):
    capacity, wanted = Capacity(driver, driver.scheduler), {1: [Piece(0, 0)]}
    driver.pool.resize(14)  # 14 and 15 retire
    warming = await driver.workers.begun(capacity.warm(wanted, [9, 12, 13, 14]))
    giving = asyncio.create_task(capacity.give_back())
    for _ in range(10):  # turns of the loop: enough for its first order
        await asyncio.sleep(0)
    assert (driver.workers.gained, driver.workers.asked) == ([(wanted, [(9, 10), (12, 14)])], [])
    driver.workers.may_answer.set()
    await asyncio.gather(warming, giving)
    assert driver.workers.punched() == [[(14, 16)]] * 2


async def test_nothing_is_given_back_while_peers_open_what_they_will_copy_and_what_retired_is_not_opened(driver):
    """What a device frees while a peer has it open is undefined."""
    capacity = Capacity(driver, driver.scheduler)
    driver.pool.resize(14)
    reaching = await driver.workers.begun(capacity.reach({1: ()}, [9, 12, 13, 14]))
    giving = asyncio.create_task(capacity.give_back())
    for _ in range(10):  # turns of the loop: enough for its first order
        await asyncio.sleep(0)
    assert (driver.workers.gained, driver.workers.asked) == ([({1: []}, [(9, 10), (12, 14)])], [])
    driver.workers.may_answer.set()
    await asyncio.gather(reaching, giving)
    assert driver.workers.punched() == [[(14, 16)]] * 2
    driver.workers.lost.add(1)
    with pytest.raises(SwitchError, match="device 1"):
        await capacity.reach({1: ()}, [3])


async def test_nothing_to_warm_and_memory_that_is_there_are_no_order(driver):
    await Capacity(driver, driver.scheduler).warm({1: [Piece(0, 0)]}, [])
    driver.workers.gains = True
    await Capacity(driver, driver.scheduler).warm({1: [Piece(0, 0)]}, [3])
    assert driver.workers.gained == []


async def test_a_worker_that_is_lost_while_memory_is_warmed_ends_the_switch(driver):
    driver.workers.lost.add(1)
    with pytest.raises(SwitchError, match="device 1"):
        await Capacity(driver, driver.scheduler).warm({1: [Piece(0, 0)]}, [3])


async def test_giving_up_half_way_leaves_nothing_behind(driver):
    capacity = Capacity(driver, driver.scheduler)
    driver.pool.resize(8)
    giving = await driver.workers.begun(capacity.give_back())
    giving.cancel()
    await asyncio.gather(giving, return_exceptions=True)
    await asyncio.wait_for(capacity.settle(), 5)
    assert driver.pool.num_blocks == 16
    driver.pool.check_integrity([])


async def test_a_switch_waits_for_a_resize_under_way_before_it_makes_room(driver, cluster):
    driver.capacity = capacity = Capacity(driver, driver.scheduler)
    driver.workers.gains, driver.switch, driver._fenced = True, None, False
    driver.shape.check = lambda _: None
    driver.free_for = partial(TorchDriver.free_for, driver)
    driver.standby.take = lambda _: object()
    driver.switch_class = lambda *_: object()
    driver.pool.resize(4)
    growing = await driver.workers.begun(capacity.resize(16))
    driver.cluster = cluster_of(memory_bytes=1_600_000)
    preparing = asyncio.create_task(TorchDriver.begin_switch(driver, parse_topology("1x1", cluster, 4, "fp32")))
    await asyncio.sleep(0)
    driver.workers.may_answer.set()
    await asyncio.gather(growing, preparing)
    assert driver.pool.num_blocks < 16


async def test_an_idle_engine_still_needs_one_block(driver, cluster):
    driver.cluster = cluster_of(memory_bytes=1000)
    with pytest.raises(SwitchError, match="from TP2 to 1x1, even layer by layer, with 2 KV blocks, which requests"):
        Capacity(driver, driver.scheduler).make_room(parse_topology("1x1", cluster, 4, "fp32"))
    assert driver.pool.num_blocks == 16


def test_starting_with_more_than_fits_is_refused_with_the_figures(cluster):
    with pytest.raises(SwitchError, match="TP2 with 5 KV blocks needs"):
        refuse_start(parse_topology("tp2", cluster, 4, "fp32"), MODEL, cluster_of(memory_bytes=1000), 5, 8)
