"""Frontiers over random histories: what they say is copied is the request's present KV, byte by byte."""

import itertools
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from runtime.vllm_engine.connector.frontier import (
    Copies,
    SourceFrontier,
    TargetFrontier,
    View,
    covering,
    tail_start,
)
from tests.tries import tries

BLOCK_SIZE, NUM_SLOTS, MAX_FLIGHT = 4, 7, 2


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))
def test_covering_is_the_blocks_that_hold_a_position_of_the_interval(start, end, size):
    assert set(covering(start, end, size)) == {position // size for position in range(start, end)}


@given(st.integers(1, 40), st.integers(1, 9))
def test_the_tail_starts_inside_the_last_block(computed, size):
    last_block = covering(computed - 1, computed, size)
    assert covering(tail_start(computed, size) - 1, computed, size) == last_block
    assert tail_start(computed, size) == last_block.start * size + 1


def test_a_request_without_kv_has_no_tail():
    assert tail_start(0, 4) == 0


@dataclass
class Running:
    """A request on the source."""

    blocks: list[int] = field(default_factory=list)
    computed: int = 0


@dataclass(frozen=True)
class Step:
    """What a scheduled step does once the workers carry it out."""

    writes: tuple[tuple[int, int], ...]
    """(block, position in it)"""
    copies: Copies | None


class Source(RuleBasedStateMachine):
    """An engine with a queue of steps; each write of a position is told from every other by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.frontier = SourceFrontier(NUM_SLOTS, BLOCK_SIZE)
        self.names = (f"r{number}" for number in itertools.count())
        self.fresh_blocks, self.write_numbers = itertools.count(), itertools.count()
        self.running: dict[str, Running] = {}
        self.flight: deque[Step] = deque()
        self.memory: dict[tuple[int, int], int] = {}
        self.staging: dict[tuple[int, int], int | None] = {}

    @initialize(lengths=st.lists(st.integers(1, 14), min_size=2, max_size=3))
    def begin(self, lengths: list[int]) -> None:
        for _ in lengths:
            self.arrive(0)
        self.step(lengths, 1)
        self.aim(set())

    @rule(shared=st.integers(0, 3))
    def arrive(self, shared: int) -> None:
        """A request arrives; a prefix of it may be cached from another."""
        donor = next(iter(self.running.values()), Running())
        whole = min(shared, donor.computed // BLOCK_SIZE)
        self.running[next(self.names)] = Running(donor.blocks[:whole], whole * BLOCK_SIZE)

    @rule(chunks=st.lists(st.integers(0, 9), max_size=4), max_blocks=st.integers(1, 4))
    def step(self, chunks: list[int], max_blocks: int) -> None:
        self.schedule(dict(zip(self.running, chunks, strict=False)), max_blocks)

    @rule(number=st.integers(0, 2), kept=st.integers(0, 3))
    def preempt(self, number: int, kept: int) -> None:
        """The next step takes a request's blocks away; some of them may be found in the prefix cache later."""
        name = list(self.running)[number % len(self.running)]
        victim = self.running[name]
        kept = min(kept, victim.computed // BLOCK_SIZE)
        self.running[name] = Running()
        self.schedule({}, 1)
        self.running[name] = Running(victim.blocks[:kept], 0)

    @precondition(lambda self: len(self.running) > 2)
    @rule()
    def finish(self) -> None:
        name = next(iter(self.running))
        del self.running[name]
        self.frontier.drop(name)

    @rule(left_out=st.sets(st.integers(0, 3), max_size=2))
    def aim(self, left_out: set[int]) -> None:
        """As the driver does: when no order is outstanding."""
        self.land_all()
        named = [name for number, name in enumerate(self.running) if number not in left_out]
        self.frontier.aim({name: self.running[name].computed for name in named})

    @rule(max_blocks=st.integers(1, 4))
    def suspend(self, max_blocks: int) -> None:
        """Nobody computes any more, and the rest is copied, as far as there is room."""
        self.aim(set())
        for _ in range(1 + NUM_SLOTS):
            if self.frontier.is_behind:
                self.schedule({}, max_blocks)
        self.land_all()
        assert not self.frontier.is_behind
        for name, request in self.running.items():
            room = len(self.frontier.slots(name)) * BLOCK_SIZE
            enough = request.computed if self.frontier.free_slots else min(room, request.computed)
            assert self.frontier.staged(name) >= enough

    @invariant()
    def slots_belong_to_one_request_or_are_free(self) -> None:
        held = [slot for name in self.running for slot in self.frontier.slots(name)]
        assert len(held) == len(set(held))
        assert len(held) + self.frontier.free_slots == NUM_SLOTS

    @invariant()
    def what_is_staged_is_what_the_blocks_hold(self) -> None:
        for name, request in self.running.items():
            slots = self.frontier.slots(name)
            # one that was preempted has nothing to compare with until it is back
            for position in range(self.frontier.staged(name) if request.computed else 0):
                index, offset = divmod(position, BLOCK_SIZE)
                there = self.memory[request.blocks[index], offset]
                assert self.staging[slots[index], offset] == there, (name, position)

    def teardown(self) -> None:
        self.land_all()
        for name in self.running:
            self.frontier.drop(name)
        assert self.frontier.free_slots == NUM_SLOTS

    def schedule(self, chunks: Mapping[str, int], max_blocks: int) -> None:
        writes = [place for name, chunk in chunks.items() for place in self.compute(self.running[name], chunk)]
        views = {
            name: View(tuple(request.blocks), request.computed)
            for name, request in self.running.items()
            if request.computed
        }
        copies = self.frontier.plan(views, max_blocks)
        assert copies is None or 0 < len(copies.pairs) <= max_blocks
        self.flight.append(Step(tuple(writes), copies))
        while len(self.flight) >= MAX_FLIGHT:
            self.land()

    def compute(self, request: Running, chunk: int) -> list[tuple[int, int]]:
        if not chunk:
            return []
        # what a request that was preempted finds in the cache counts as computed once it is back
        start = request.computed or len(request.blocks) * BLOCK_SIZE
        request.computed = start + chunk
        while len(request.blocks) * BLOCK_SIZE < request.computed:
            request.blocks.append(next(self.fresh_blocks))
        places = (divmod(position, BLOCK_SIZE) for position in range(start, request.computed))
        return [(request.blocks[index], offset) for index, offset in places]

    def land(self) -> None:
        step = self.flight.popleft()
        for place in step.writes:
            self.memory[place] = next(self.write_numbers)
        if step.copies is None:
            return
        for block, slot in step.copies.pairs:
            for offset in range(BLOCK_SIZE):
                self.staging[slot, offset] = self.memory.get((block, offset))
        self.frontier.done(step.copies)

    def land_all(self) -> None:
        while self.flight:
            self.land()


@pytest.mark.slow
def test_what_the_source_says_is_staged_is_what_its_blocks_hold():
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Source, settings=tries(150, stateful_step_count=30)
    )


def test_a_request_without_room_is_not_waited_for():
    frontier = SourceFrontier(num_slots=2, block_size=4)
    views = {"long": View((0, 1, 2), 10)}
    frontier.aim({"long": 10})
    copies = frontier.plan(views, 8)
    assert copies is not None
    frontier.done(copies)
    assert (frontier.staged("long"), frontier.is_behind) == (8, False)
    assert frontier.plan(views, 8) is None


def test_a_request_that_lost_positions_is_copied_anew_though_its_blocks_are_the_same():
    frontier = SourceFrontier(num_slots=4, block_size=4)
    frontier.aim({"r": 7})
    first = frontier.plan({"r": View((7, 8), 7)}, 8)
    assert first is not None
    frontier.done(first)
    assert frontier.plan({"r": View((7, 8), 5)}, 8) == Copies(first.pairs, {"r": 5})
    assert frontier.staged("r") == 0


def test_an_order_from_before_a_preemption_does_not_count_past_what_was_ordered_since():
    frontier = SourceFrontier(num_slots=4, block_size=4)
    frontier.aim({"r": 7})
    stale = frontier.plan({"r": View((7, 8), 7)}, 8)
    frontier.plan({"r": View((5, 6), 7)}, 1)
    assert stale is not None
    frontier.done(stale)
    assert frontier.staged("r") == 4


def test_nothing_is_copied_past_a_goal_that_is_reached():
    frontier = SourceFrontier(num_slots=4, block_size=4)
    frontier.aim({"r": 6})
    assert frontier.plan({"r": View((0, 1), 6)}, 8) is not None
    assert frontier.plan({"r": View((0, 1), 8)}, 8) is None


class Target(RuleBasedStateMachine):
    """Requests that wait on the target; staging grows, and blocks are given and added to."""

    def __init__(self) -> None:
        super().__init__()
        self.frontier = TargetFrontier(BLOCK_SIZE)
        self.numbers = itertools.count()
        self.offered: dict[str, int] = {}
        self.blocks: dict[str, list[int]] = {}
        self.slots: dict[str, list[int]] = {}
        self.present: dict[str, int] = {}
        self.brought: dict[int, tuple[int, int]] = {}
        """Block to its slot and to how much of the slot had been filled."""

    @rule()
    def arrive(self) -> None:
        name = f"r{next(self.numbers)}"
        self.offered[name], self.slots[name] = 0, []

    @precondition(lambda self: self.offered)
    @rule(data=st.data(), more=st.integers(1, 10))
    def offer(self, data: st.DataObject, more: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.offered)))
        self.offered[name] += more
        while len(self.slots[name]) * BLOCK_SIZE < self.offered[name]:
            self.slots[name].append(next(self.numbers))
        self.frontier.offer(name, self.offered[name], self.slots[name])
        assert self.frontier.staged(name) == self.offered[name]

    @precondition(lambda self: any(self.offered.values()))
    @rule(data=st.data(), room=st.integers(1, 5), cached=st.integers(0, 2))
    def admit(self, data: st.DataObject, room: int, cached: int) -> None:
        """The scheduler gives blocks, at first with a prefix that may be cached here, later more of them."""
        name = data.draw(st.sampled_from(sorted(name for name, staged in self.offered.items() if staged)))
        is_first = name not in self.blocks
        blocks = self.blocks.setdefault(name, [])
        blocks += [next(self.numbers) for _ in range(room)]
        if is_first:
            self.present[name] = min(cached, room) * BLOCK_SIZE
        self.frontier.admit(name, blocks, self.present[name] if is_first else 0)

    @rule(max_blocks=st.integers(1, 4))
    def step(self, max_blocks: int) -> None:
        was_behind = self.frontier.is_behind
        copies = self.frontier.plan(max_blocks)
        assert was_behind == (copies is not None)
        if copies is None:
            return
        assert len(copies.pairs) <= max_blocks
        for block, slot in copies.pairs:
            self.brought[block] = (slot, self.filled(slot))
        self.frontier.done(copies)

    @precondition(lambda self: self.offered)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.offered)))
        for books in (self.offered, self.blocks, self.slots, self.present):
            books.pop(name, None)
        self.frontier.drop(name)
        assert (self.frontier.loaded(name), self.frontier.staged(name)) == (0, 0)

    @invariant()
    def what_is_loaded_came_from_its_own_slot(self) -> None:
        for name, blocks in self.blocks.items():
            for position in range(self.present[name], self.frontier.loaded(name)):
                index, offset = divmod(position, BLOCK_SIZE)
                slot, filled = self.brought[blocks[index]]
                assert slot == self.slots[name][index]
                assert offset < filled

    @invariant()
    def a_cached_prefix_is_not_written_over(self) -> None:
        for name, blocks in self.blocks.items():
            assert not self.brought.keys() & set(blocks[: self.present[name] // BLOCK_SIZE])

    @invariant()
    def once_nothing_is_behind_all_that_can_be_here_is_here(self) -> None:
        if self.frontier.is_behind:
            return
        for name, blocks in self.blocks.items():
            reach = min(self.offered[name], len(blocks) * BLOCK_SIZE)
            assert self.frontier.loaded(name) == max(reach, self.present[name])

    def filled(self, slot: int) -> int:
        """Positions of a slot that hold KV by now."""
        name = next(name for name, slots in self.slots.items() if slot in slots)
        return min(BLOCK_SIZE, self.offered[name] - self.slots[name].index(slot) * BLOCK_SIZE)


@pytest.mark.slow
def test_the_target_loads_exactly_what_it_can_reach_from_the_slots_of_the_request():
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Target, settings=tries(150, stateful_step_count=30)
    )


def test_an_order_that_is_outstanding_is_not_loaded_yet():
    frontier = TargetFrontier(BLOCK_SIZE)
    frontier.offer("r", 6, (3, 1))
    frontier.admit("r", (8, 9), 0)
    copies = frontier.plan(4)
    assert (frontier.loaded("r"), frontier.is_behind) == (0, False)
    assert copies == Copies(((8, 3), (9, 1)), {"r": 6})
    frontier.done(copies)
    assert frontier.loaded("r") == 6
