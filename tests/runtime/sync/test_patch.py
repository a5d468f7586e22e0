"""Patch bookkeeping: whatever the order of writes, copies and owners, nothing that counts stays uncopied."""

import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.engine import GenerationRequest, SamplingParams
from runtime.kv.blocks import BlockPool
from runtime.sync.patch import Integers, PatchSync
from runtime.torch_engine.driver.scheduler import Chunk, ModelLimits, Scheduler
from runtime.torch_engine.sampling_tasks import Sampled
from tests.tries import tries

SIZE = 4


def slots_of(runs: Integers) -> list[int]:
    return [slot for start, stop in runs for slot in range(start, stop)]


def synced(pool: BlockPool, *blocks: int) -> PatchSync:
    """One that has copied these blocks."""
    sync = PatchSync(pool, SIZE)
    sync.order(upcoming=blocks)
    sync.order()
    return sync


def test_the_first_copy_of_a_block_is_of_all_its_slots_so_that_memory_is_warm():
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.written(block, 0, 2)
    sync = PatchSync(pool, SIZE)
    assert sync.lag(pool.next_free(1)) == sync.lag(2 * pool.next_free(1)) == 2 * SIZE
    assert slots_of(sync.order(upcoming=pool.next_free(1))) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert sync.lag(pool.next_free(1)) == 0
    pool.written(block, 2, 3)
    assert slots_of(sync.order()) == [2]


def test_of_a_block_whose_memory_is_there_only_filled_slots_are_copied():
    pool = BlockPool(4)
    (block,) = pool.take(1)
    pool.written(block, 0, 2)
    sync = PatchSync(pool, SIZE)
    sync.warmed([block, *pool.next_free(1)])
    assert sync.lag(pool.next_free(1)) == 2
    assert slots_of(sync.order(upcoming=pool.next_free(2))) == [
        0,
        1,
        8,
        9,
        10,
        11,
    ]  # the one after that is cold


def test_a_block_that_is_written_again_from_an_earlier_slot_is_copied_from_its_start():
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.written(block, 0, 3)
    sync = synced(pool, block)
    pool.written(block, 1, 4)
    assert slots_of(sync.order()) == [0, 1, 2, 3]


def test_a_slice_is_bounded_and_has_one_block_at_least():
    pool = BlockPool(8)
    for block in pool.take(8):
        pool.written(block, 0, SIZE)
    sync = PatchSync(pool, SIZE)
    assert slots_of(sync.order(most=1)) == list(range(4))
    assert slots_of(sync.order(most=9)) == list(range(4, 16))
    assert sync.lag() == 16


def test_a_slice_of_a_few_slots_is_not_used_up_by_the_blocks_that_are_being_filled():
    """100 streams write 100 slots a step; slices of 32 that began with those would never come to the rest."""
    pool = BlockPool(8)
    growing, full = pool.take(2), pool.take(6)
    sync = synced(pool, *growing, *full)
    for block in growing:
        pool.written(block, 0, 1)
    for block in full:
        pool.written(block, 0, SIZE)
    assert slots_of(sync.order(most=5)) == list(range(8, 16))
    assert slots_of(sync.order(most=100)) == [0, 4, *range(16, 32)]


def cached(pool: BlockPool, block: int) -> None:
    """Fill a block and have it outlive its table."""
    pool.written(block, 0, SIZE)
    pool.cache(b"hash", block)
    pool.give_back([block])


def test_a_cached_block_is_copied_when_it_comes_back_and_once_for_all_tables():
    pool = BlockPool(4)
    (block,) = pool.take(1)
    sync = synced(pool)
    cached(pool, block)
    assert (sync.lag(), sync.lacking(pool.cached)) == (0, [block])
    pool.share([block])
    pool.share([block])
    assert slots_of(sync.order()) == [0, 1, 2, 3]
    pool.give_back([block])
    pool.give_back([block])
    assert (sync.lag(), sync.lacking(pool.cached)) == (0, [])
    pool.share([block])
    assert sync.lag() == 0


def test_a_cached_block_that_was_copied_when_it_held_something_else_is_lacking():
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.written(block, 0, SIZE)
    sync = synced(pool, block)
    pool.give_back([block])
    cached(pool, *pool.take(1))
    assert sync.lacking(pool.cached) == [block]


def test_a_cached_block_that_was_copied_while_it_was_filled_is_lacking():
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.written(block, 0, 2)
    sync = synced(pool, block)
    pool.written(block, 2, SIZE)
    pool.cache(b"hash", block)
    pool.give_back([block])
    assert sync.lacking(pool.cached) == [block]


@dataclass
class World:
    """A scheduler whose source memory is written in steps and whose target memory is copied in pieces.

    Memory holds, per slot, what was written there last: a number that never comes twice.
    """

    scheduler: Scheduler
    sync: PatchSync
    source: Integers
    target: Integers
    flying: list[list[Chunk]] = field(default_factory=list)
    copying: list[int] = field(default_factory=list)
    """Slots that were ordered and not yet read."""
    clock: itertools.count = field(default_factory=itertools.count)
    names: int = 0
    tokens: int = 12
    """That each sequence generates."""

    @classmethod
    def of(cls, blocks: int) -> "World":
        pool = BlockPool(blocks)
        scheduler = Scheduler(pool, SIZE, 4, ModelLimits(tokens=blocks * SIZE, vocab_size=50))
        nothing = np.full(blocks * SIZE, -1)
        return cls(scheduler, PatchSync(pool, SIZE), nothing.copy(), nothing.copy())

    def turn(self, kind: str, argument: int) -> None:
        match kind:
            case "submit":
                params, first = SamplingParams(self.tokens), 15 * (self.names % 3)  # some begin as others did
                prompt = tuple(range(first, first + argument))
                self.scheduler.submit(GenerationRequest(f"r{self.names}", prompt, params, 1))
                self.names += 1
            case "batch" if len(self.flying) < 2:
                if batch := self.scheduler.next_batch(argument, 2):
                    self.flying.append(batch)
                    self.write(batch)  # half-way: what the step writes is not yet what it will be
            case "complete" if self.flying:
                batch = self.flying.pop(0)
                self.write(batch)
                self.scheduler.complete(batch, [Sampled(9, -0.5, ()) for chunk in batch if chunk.samples])
            case "cancel":
                self.scheduler.cancel(f"r{argument}")
            case "order" if not self.copying:
                ahead = self.scheduler.pool.next_free(argument % 3)
                self.copying = slots_of(self.sync.order(argument, ahead))
            case "read":
                self.read(argument)
            case "step":
                self.step()
            case "copy":
                self.read(len(self.copying))
                self.turn("order", 1000)
                self.read(len(self.copying))

    def step(self) -> None:
        """One token more for every sequence, in two micro-batches."""
        for kind in ("batch", "batch", "complete", "complete"):
            self.turn(kind, 64)

    def write(self, batch: list[Chunk]) -> None:
        for chunk in batch:
            for at in range(chunk.span.start, chunk.span.start + chunk.span.count):
                self.source[chunk.span.table[at // SIZE] * SIZE + at % SIZE] = next(self.clock)

    def read(self, count: int) -> None:
        """Copy the bytes of some of the slots that were ordered, as they are now."""
        now, self.copying = self.copying[:count], self.copying[count:]
        self.target[now] = self.source[now]

    def cut(self) -> list[int]:
        """Drain, copy the rest, forget the prefixes that stay behind; returns the slots of that last patch."""
        while self.flying:
            self.turn("complete", 0)
        self.read(len(self.copying))
        self.copying = slots_of(self.sync.order())
        patch = list(self.copying)
        self.read(len(patch))
        self.scheduler.pool.forget(self.sync.lacking(self.scheduler.pool.cached))
        return patch

    @property
    def valid(self) -> list[int]:
        """Every slot whose token counts as computed."""
        return [
            sequence.table[at // SIZE] * SIZE + at % SIZE
            for sequence in self.scheduler.running
            for at in range(sequence.num_computed)
        ]

    @property
    def cached(self) -> list[int]:
        """Every slot of a free block in which a prefix may be found."""
        return [block * SIZE + at for block in self.scheduler.pool.cached for at in range(SIZE)]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 20)),
        st.tuples(st.just("batch"), st.integers(1, 24)),
        st.tuples(st.just("complete"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("order"), st.integers(1, 12)),
        st.tuples(st.just("read"), st.integers(1, 12)),
        st.tuples(st.sampled_from(("step", "copy")), st.just(0)),
    ),
    max_size=120,
)


@pytest.mark.slow
@tries(750)
@given(ACTIONS, st.integers(7, 12), st.integers(1, 6))
def test_after_the_cut_every_valid_slot_on_the_target_equals_the_source(actions, blocks, tokens):
    world = World.of(blocks)
    world.tokens = tokens
    for kind, argument in actions:
        world.turn(kind, argument)
    world.cut()
    valid = world.valid + world.cached
    assert world.target[valid].tolist() == world.source[valid].tolist()
    assert world.sync.lag() == 0


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 8))
def test_once_all_is_copied_the_last_patch_is_what_was_computed_since_and_no_more(prompts, steps):
    world = World.of(32)
    for prompt in prompts:
        world.turn("submit", prompt)
    world.step()
    world.copying = slots_of(world.sync.order(upcoming=world.scheduler.pool.next_free(16)))
    before = len(world.valid)
    for _ in range(steps):
        world.step()
    assert len(world.cut()) == len(world.valid) - before > 0
