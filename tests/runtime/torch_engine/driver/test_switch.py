"""The driver's side of a cut on a driver that only remembers: what may start when, what is copied when, what is forgotten."""

import asyncio
import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from runtime.errors import Reason, SwitchError
from runtime.footprint import Piece, Transfer
from runtime.kv.blocks import BlockPool
from runtime.kv.carrier.layout import SAMPLES
from runtime.kv.store import KvHandle
from runtime.models import Cluster
from runtime.notation import parse_topology
from runtime.torch_engine.driver.digests import refuse_other_bytes
from runtime.torch_engine.driver.switch import Switch
from runtime.torch_engine.messages import Copied, Copy, Digest
from runtime.torch_engine.models import EngineSettings
from tests.rows import rows
from tests.runtime.torch_engine.ears import MODEL

SIZE = 4
SETTINGS = EngineSettings(block_size=SIZE, copy_slice_bytes=1)


def sources_of(boxes: list[Transfer]) -> tuple[tuple[Transfer, KvHandle], ...]:
    """Each worker's memory is a path with its device's number."""
    return tuple((box, KvHandle(str(box.source))) for box in boxes)


async def nothing(*_: Any) -> None:
    """What a bring-up waits for is there."""


class ScriptedHost:
    """A driver that runs no steps and notes what is asked of it."""

    def __init__(self, cluster: Cluster, now: str) -> None:
        self.model, self.cluster, self.settings = MODEL, cluster, SETTINGS
        self.pool = BlockPool(16)
        self.shape = SimpleNamespace(piece_slot_bytes=8)
        self.num_running, self.is_held = 0, False
        self.active = self.ranks(now)
        self.workers = SimpleNamespace(sources=sources_of, order=self.order, gains=False)
        self.capacity = SimpleNamespace(beside=lambda _: {}, give_back=nothing, gain=nothing, warm=self.warm)
        self.standby = SimpleNamespace(give_way=nothing)
        self.asked: list[str] = []
        self.trouble: Exception | None = None
        self.at_fence: Callable[[], None] = lambda: None
        self.may_answer = asyncio.Event()
        """From the fence on workers wait for this."""
        self.may_answer.set()
        self.at_digest: Callable[[int], None] = lambda _: None
        self.wrong_bytes = ""
        """When one of device 1's digests is another."""
        self.given_up = asyncio.Event()
        """Nobody waits for them any more."""
        self.parts, self.rank_sets, self.load_bytes_per_s = self, (self.active,), 1.0
        self.turns = 0
        """Of the event loop, that an answer takes then."""
        self.notes: list[tuple[str, str]] = []
        """What happened, and whether new sequences might start then."""
        self.warmed: tuple[dict[int, set[Piece]], list[int]] = {}, []

    def ranks(self, text: str, is_loaded: bool = False) -> Any:
        topology = parse_topology(text, self.cluster, MODEL.num_layers, "fp32")
        return SimpleNamespace(topology=topology, is_loaded=is_loaded, load=nothing, warm_up=self.warm_up)

    async def probe(self, ranks: Any) -> None:
        self.asked.append(f"probe of {ranks.topology.shape}")

    async def warm_up(self, _: Any) -> None:
        self.asked.append("warm-up")

    async def warm(self, pieces: dict[int, set[Piece]], blocks: list[int]) -> None:
        self.warmed = pieces, blocks

    def note(self, what: str) -> None:
        self.notes.append((what, "held" if self.is_held else "open"))

    async def order(self, device: int, order: Copy | Digest) -> Copied | list[str]:
        if isinstance(order, Digest):
            when = "behind the fence" if ("fence", "held") in self.notes else "before the fence"
            self.note(f"{len(order.places)} digests of {device} {when}")
            is_wrong = device == 1 and when == self.wrong_bytes
            self.at_digest(device)
            return [str(number == 0 and is_wrong) for number in range(len(order.places))]
        self.note(f"copy {int((order.runs[:, 1] - order.runs[:, 0]).sum())}")
        if ("fence", "held") in self.notes:
            await self.answer()
        return Copied(1, 0.001)

    async def answer(self) -> None:
        try:
            await self.may_answer.wait()
            for _ in range(self.turns):
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.given_up.set()
            raise

    async def fence(self) -> tuple[float, float]:
        self.note("fence")
        if self.trouble:
            raise self.trouble
        self.at_fence()
        return 0.0, 0.0

    def commit(self, ranks: Any, epoch: int) -> tuple[str, ...]:
        self.note("commit")
        return ()

    def resume(self) -> asyncio.Future[None]:
        self.note(f"resume with {len(self.pool.cached)} cached")
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def hold(self) -> None:
        self.is_held = True

    def admit(self) -> None:
        self.is_held = False

    def over(self, target: Any) -> None:
        self.note("over")

    def fail(self, fatal: Any) -> None:
        self.note(f"fail {fatal.reason}")

    def schedule(self) -> None:
        self.note(f"schedule with {len(self.pool.cached)} cached")


def cached(pool: BlockPool, count: int) -> list[int]:
    """Free blocks, filled and cached."""
    table = pool.take(count)
    for block in table:
        pool.written(block, 0, SIZE)
        pool.cache(bytes([block]), block)
    pool.give_back(table)
    return table


@pytest.fixture
def driver(cluster: Cluster) -> ScriptedHost:
    return ScriptedHost(cluster, "CPU[0]:0-4")


def begun(driver: ScriptedHost, target: str, is_loaded: bool = False) -> Switch:
    return Switch(driver, driver.capacity, driver.ranks(target, is_loaded))  # type: ignore[arg-type] - what it needs of one


async def test_nothing_starts_from_before_the_last_copies_until_stale_prefixes_are_forgotten(driver):
    cached(driver.pool, 5)
    switch = begun(driver, "CPU[0,1]:0-4")
    driver.pool.share(driver.pool.find([bytes([0]), bytes([1])]))  # a newcomer's, after the lag was measured
    await switch.cut(2, deadline_s=5)
    assert driver.notes == [
        (f"copy {SIZE}", "held"),
        (f"copy {SIZE}", "held"),
        ("fence", "held"),
        ("commit", "held"),
        ("resume with 3 cached", "held"),
        ("schedule with 0 cached", "open"),
    ]


async def test_blocks_that_attention_reads_over_are_warm_on_the_target_before_the_cut(driver):
    """A hole that the first step reads is a page fault each: seen as stops of 100 ms."""
    table = driver.pool.take(3)
    driver.pool.written(table[0], 0, SIZE)
    driver.pool.written(table[2], 0, SIZE)
    driver.pool.give_back([table[1]])
    switch = begun(driver, "CPU[0,1]:0-4")
    await switch.ready()
    assert {*driver.warmed[1]} == {*table}
    (later,) = driver.pool.take(1)
    driver.pool.written(later + 1, 0, SIZE)
    while (await switch.lag()).tokens:
        pass
    assert switch._sync._is_warm[[*table, later]].all()


async def test_memory_comes_before_the_copies_which_then_are_of_filled_slots_only(driver):
    """Page faults were nearly all that copying took, and slots that nobody had filled most of what was copied."""
    first, second = driver.pool.take(2)
    driver.pool.written(first, 0, 2)
    driver.pool.written(second, 0, 1)
    driver.num_running = 1
    switch = begun(driver, "CPU[0,1]:0-4")
    await switch.ready()
    pieces, blocks = driver.warmed
    assert pieces == {1: {Piece(layer, head) for layer in range(4) for head in (2, 3)}}
    assert {first, second, *driver.pool.next_free(4)} == {*blocks}
    while (await switch.lag()).tokens:
        pass
    assert sum(int(what.split()[1]) for what, _ in driver.notes) == 2 + 1


async def test_the_block_that_the_first_step_takes_is_warm_before_the_fence(driver):
    driver.num_running = 1
    switch = begun(driver, "CPU[0,1]:0-4")
    await switch.ready()
    driver.pool.take(4)  # all that had memory
    await switch.cut(2, deadline_s=5)
    assert switch._sync._is_warm[driver.pool.next_free(1)].all()
    assert [what for what, _ in driver.notes[:2]] == [f"copy {SIZE}", "fence"]


async def test_steps_are_short_only_when_the_cut_is_near(driver):
    for block in driver.pool.take(16):
        driver.pool.written(block, 0, SIZE)
    switch = begun(driver, "CPU[0,1]:0-4")
    await switch.ready()
    switch._pace = SimpleNamespace(slots=SIZE, copied=lambda *_: 0.0)  # type: ignore[assignment]
    seen = [switch.is_closing]
    while (await switch.lag()).tokens:
        seen.append(switch.is_closing)
    assert seen == [False] * 12 + [True] * 4


@rows(
    ("now", "target", "share"),
    [
        ("CPU[0]:0-4", "CPU[1]:0-4", 0.15),
        ("CPU[0]:0-4", "CPU[0,1]:0-4", 0.15),
        ("CPU[0,1]:0-4", "CPU[0]:0-4", 0.04),
    ],
)
async def test_who_serves_copies_slower(cluster, now, target, share):
    assert begun(ScriptedHost(cluster, now), target).copy_share == share


async def test_what_was_copied_stays_cached_and_where_nothing_is_to_be_copied_all(driver):
    blocks = cached(driver.pool, 5)
    switch = begun(driver, "CPU[0,1]:0-4")
    driver.pool.share(blocks[:2])
    await switch.lag()
    await switch.lag()
    driver.pool.give_back(blocks[:2])
    await switch.cut(2, deadline_s=5)
    assert sorted(driver.pool.cached) == sorted(blocks[:2])
    await begun(driver, "CPU[0]:0-4").cut(3, deadline_s=5)
    assert len(driver.pool.cached) == 2


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        (TimeoutError(), Reason.DEADLINE),
        (SwitchError(Reason.RANK_LOST, "a worker died"), Reason.RANK_LOST),
    ],
)
async def test_a_cut_that_is_given_up_forgets_nothing_and_lets_requests_start(driver, trouble, reason):
    cached(driver.pool, 5)
    switch = begun(driver, "CPU[0,1]:0-4")
    driver.trouble = trouble
    with pytest.raises(SwitchError) as given_up:
        await switch.cut(2, deadline_s=5)
    assert given_up.value.reason is reason
    assert driver.notes == [("fence", "held"), ("resume with 5 cached", "open")]


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_what_served_before_warms_up_rank_by_rank_and_what_is_new_runs_a_probe_step(driver, is_loaded):
    """A step of two ranks that wait for each other made one in two gaps of the streams 8 ms longer."""
    await begun(driver, "CPU[0,1]:0-4", is_loaded).ready()
    assert driver.asked == ["warm-up" if is_loaded else "probe of TP2"]


def begun_with_a_last_patch(driver: ScriptedHost, settings: EngineSettings) -> Switch:
    """Something is written after the last copy before the fence."""
    driver.settings = settings
    (block,) = driver.pool.take(1)
    driver.at_fence = lambda: driver.pool.written(block, 0, 1)
    return begun(driver, "CPU[0,1]:0-4")


async def test_a_last_patch_that_takes_too_long_lets_requests_go_on_where_they_were(driver):
    switch = begun_with_a_last_patch(driver, replace(SETTINGS, stop_timeout_s=0.0))
    driver.may_answer.clear()
    with pytest.raises(SwitchError, match=r"last patch took more than 0 s; requests go on where they were"):
        await switch.cut(2, deadline_s=60)
    assert driver.notes[-2:] == [("copy 4", "held"), ("resume with 0 cached", "open")]
    await driver.given_up.wait()


async def test_a_last_patch_whose_answer_is_there_but_not_read_counts(driver):
    switch = begun_with_a_last_patch(driver, replace(SETTINGS, stop_timeout_s=0.0))
    driver.turns = 5
    assert (await switch.cut(2, deadline_s=60)).epoch == 2


async def test_the_deadline_of_a_cut_holds_for_its_last_patch(driver):
    switch = begun_with_a_last_patch(driver, replace(SETTINGS, stop_timeout_s=60))
    driver.may_answer.clear()
    with pytest.raises(SwitchError, match=r"the cut was not ready after 0\.01 s"):
        await switch.cut(2, deadline_s=0.01)
    await driver.given_up.wait()


@rows(
    ("wrong_bytes", "after"),
    [
        ("", ["commit", "resume with 0 cached", "schedule with 0 cached"]),
        ("before the fence", ["resume with 0 cached"]),
        ("behind the fence", ["resume with 0 cached"]),
    ],
)
async def test_copies_are_compared_before_a_cut_commits(cluster, wrong_bytes, after):
    """What was copied before the fence by a sample, what was copied behind it whole; both ends say the same or it is over."""
    driver = ScriptedHost(cluster, "CPU[0]:0-4")
    driver.wrong_bytes = wrong_bytes
    (early,) = driver.pool.take(1)
    driver.pool.written(early, 0, SIZE)
    switch = begun_with_a_last_patch(driver, replace(SETTINGS, check_copies=True))
    refused = pytest.raises(SwitchError, match="KV has other bytes on device 1 than on device 0")
    with refused if wrong_bytes else nullcontext():
        await switch.cut(2, deadline_s=5)
    pieces = 4 * 2  # of four layers, the two heads that move
    wanted = [
        (f"copy {SIZE}", "held"),
        *((f"{pieces} digests of {device} before the fence", "held") for device in (0, 1)),
    ]
    if wrong_bytes != "before the fence":
        wanted += [("fence", "held"), (f"copy {SIZE}", "held")]
        wanted += [(f"{pieces} digests of {device} behind the fence", "held") for device in (0, 1)]
    assert driver.notes[: len(wanted)] == wanted
    assert [what for what, _ in driver.notes[len(wanted) :]] == after
    assert not any(driver.pool._references[block] > 1 for block in range(16)), "the sample holds no block any more"


@rows(("times", "is_refused"), [(1, False), (2, False), (3, True)])
async def test_a_sample_is_taken_anew_where_its_blocks_were_given_away_meanwhile(cluster, times, is_refused):
    """Nobody has to wait for a block on its account; pinned, all copied ones were taken from whoever ran."""
    driver = ScriptedHost(cluster, "CPU[0]:0-4")
    driver.settings, driver.wrong_bytes = replace(SETTINGS, check_copies=True), "before the fence"
    copied, rounds = driver.pool.take(5), list[int]()
    for block in copied:
        driver.pool.written(block, 0, SIZE)

    def give_away(device: int) -> None:
        if device == 1:
            rounds.append(copied.pop())
            driver.pool.give_back(rounds[-1:])
            driver.wrong_bytes = "before the fence" if len(rounds) < times else ""

    driver.at_digest = give_away
    switch = begun(driver, "CPU[0,1]:0-4")
    with pytest.raises(SwitchError, match="other bytes") if is_refused else nullcontext():
        await switch.cut(2, deadline_s=5)
    assert ("commit" in [what for what, _ in driver.notes]) != is_refused
    assert len(rounds) == min(times + 1, 3)


async def test_a_sample_sees_a_fault_in_a_hundredth_of_the_pieces(cluster):
    """With 99.9 %: 700 of 2,000 pieces, of which 20 are wrong."""
    random.seed(0)
    driver = ScriptedHost(cluster, "CPU[0]:0-4")
    wrong, asked = [7], set[tuple[int, int, Piece]]()

    async def order(device: int, order: Digest) -> list[str]:
        asked.update(order.places)
        return [str(device == 1 and place[0] in wrong) for place in order.places]

    driver.workers.order = order
    boxes, runs = [Transfer(1, 0, (0, 4), (0, 5))], np.array([[0, 100 * SIZE]])
    for _ in range(20):
        with pytest.raises(SwitchError, match="other bytes"):
            await refuse_other_bytes(driver, boxes, runs, SAMPLES)  # type: ignore[arg-type]
    wrong.clear()
    asked.clear()
    await refuse_other_bytes(driver, boxes, runs, SAMPLES)  # type: ignore[arg-type]
    assert len(asked) == SAMPLES
