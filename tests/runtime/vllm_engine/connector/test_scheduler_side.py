"""The connector beside the scheduler, asked and told in the order in which vLLM and the driver do."""

import pytest

from runtime.vllm_engine.connector.pasts import RequestPast
from runtime.vllm_engine.connector.worker_side import Ack
from runtime.vllm_engine.messages import Extent
from tests.rows import rows
from tests.runtime.vllm_engine.sides import Clock, Side, VllmRequest


@pytest.fixture
def target() -> Side:
    side = Side()
    side.side.attach_target(side.handle, 2)
    return side


def parked(side: Side, num_tokens: int = 15) -> VllmRequest:
    side.side.park("r")
    return side.add("r", num_tokens)


# --- idle ---


def test_without_a_switch_nothing_comes_from_outside_and_nothing_rides_on_steps():
    idle = Side()
    request = idle.add("r", 10, num_computed=5)
    assert idle.side.matched_tokens("r", 0) == (0, False)
    assert idle.side.matched_tokens("", 0) == (0, False)
    idle.side.allocated("r", (1, 2), 0)
    assert idle.side.order({request.request_id: 1}) is None
    assert not idle.side.is_busy


def test_without_a_switch_extents_tell_what_is_computed():
    idle = Side()
    idle.add("r", 10, num_computed=5)
    idle.side.aim(("r",))
    idle.side.aim_at_all(("r",))
    assert idle.side.extents() == {"r": Extent(10, 5, 0, ())}


# --- the source ---


@pytest.fixture
def source() -> Side:
    side = Side()
    side.side.attach_source(side.handle, 8)
    return side


def test_the_source_copies_what_was_computed_in_slices(source):
    source.side.attach_source(source.handle, 3)
    request = source.add("r", 15, num_computed=14)
    source.side.aim(("r",))
    orders = source.run_orders()
    assert [len(order.store) for order in orders] == [3, 1]
    stored = [pair for order in orders for pair in order.store]
    assert [block for block, _ in stored] == source.blocks.tables[request.request_id]
    slots = tuple(slot for _, slot in stored)
    assert source.side.extents() == {"r": Extent(15, 14, 14, slots)}
    assert not source.side.is_busy


def test_between_steps_the_source_copies_for_its_share_of_the_time_and_in_the_cut_all_at_once():
    clock = Clock()
    source = Side(num_slots=40, num_blocks=40, now=clock)
    source.side.attach_source(source.handle, 2)
    request = source.add("r", 100, num_computed=78)
    step = {request.request_id: 1}
    source.side.aim(("r",))
    order = source.side.order(step)
    assert len(order.store) == 2
    clock.s += 0.01
    source.side.acknowledged(Ack(order.number, storing_s=0.01))
    assert source.side.order(step) is None, "10 ms of 40 are its share, and 30 have not gone by"
    assert len(source.side.order({}).store) == 2, "nobody waits for a step that computes nothing"
    clock.s += 0.2
    assert len(source.side.order(step).store) == 2
    source.side.aim_at_all(("r",))
    assert len(source.side.order(step).store) == 14, "what is left"


def test_an_order_covers_what_its_own_step_computes(source):
    request = source.add("r", 15, num_computed=4)
    source.side.aim(("r",))
    source.blocks.allocate_slots(request, 5, delay_cache_blocks=True)
    order = source.side.order({request.request_id: 5})
    assert order is not None
    source.side.acknowledged(Ack(order.number))
    request.num_computed_tokens += 5
    assert source.side.extents()["r"].staged == 9


def test_in_the_background_the_last_block_is_copied_once_and_at_the_cut_to_its_end(source):
    request = source.add("r", 15, num_computed=9)
    source.side.aim(("r",))
    source.run_orders()
    source.compute(request, 2)
    source.side.aim(("r",))
    assert not source.side.is_busy
    source.side.aim_at_all(("r",))
    (order,) = source.run_orders()
    assert [block for block, _ in order.store] == source.blocks.tables[request.request_id][2:]
    assert source.side.extents()["r"].staged == 11


def test_who_is_not_aimed_at_is_not_copied_and_gives_its_slots_back(source):
    source.add("a", 10, num_computed=8)
    source.add("b", 10, num_computed=8)
    source.side.aim(("a", "b", "unknown"))
    source.run_orders()
    source.side.aim(("b",))
    extents = source.side.extents()
    assert (extents["a"].staged, extents["a"].slots) == (0, ())
    assert extents["b"].staged == 8


def test_a_request_without_room_in_staging_stays_behind_and_holds_nobody_up():
    source = Side(num_slots=3)
    source.side.attach_source(source.handle, 8)
    source.add("small", 10, num_computed=4)
    source.add("large", 30, num_computed=20)
    source.side.aim_at_all(("small", "large"))
    source.run_orders()
    extents = source.side.extents()
    assert (extents["small"].staged, extents["large"].staged) == (4, 8)
    assert not source.side.is_busy


def test_a_preempted_request_is_left_alone_until_it_is_back_and_then_copied_anew(source):
    request = source.add("r", 15, num_computed=14)
    source.side.aim(("r",))
    source.run_orders()
    source.preempt(request)
    source.side.aim_at_all(("r",))
    assert source.run_orders() == []
    source.compute(request, 6)
    source.side.aim_at_all(("r",))
    source.side.order({request.request_id: 1})
    assert source.side.extents()["r"].staged == 0


def test_the_source_forgets_what_has_ended(source):
    source.add("r", 10, num_computed=8)
    source.side.aim(("r",))
    source.side.request_finished("r")
    assert source.side.extents() == {}
    assert not source.side.is_busy
    assert source.run_orders() == []


# --- orders ---


def test_orders_are_numbered_and_outstanding_until_they_are_acknowledged(source):
    source.side.attach_source(source.handle, 1)
    source.add("r", 20, num_computed=8)
    source.side.aim(("r",))
    first, second = source.side.order({}), source.side.order({})
    assert first is not None
    assert second is not None
    assert second.number == first.number + 1
    assert first.staging == source.handle
    assert source.side.order({}) is None
    source.side.acknowledged(Ack(first.number, stored_bytes=30))
    assert source.side.extents()["r"].staged == 4
    assert source.side.is_busy
    source.side.acknowledged(Ack(second.number, stored_bytes=20, loaded_bytes=5))
    assert not source.side.is_busy
    assert source.side.copied_bytes == 55


def test_a_new_switch_counts_from_zero_and_takes_no_old_acknowledgement_for_its_own(source):
    source.add("r", 20, num_computed=8)
    source.side.aim(("r",))
    old = source.side.order({})
    source.side.acknowledged(Ack(0, stored_bytes=7))
    source.side.attach_source(source.handle, 8)
    assert source.side.copied_bytes == 0
    assert not source.side.is_busy
    assert old is not None
    source.side.acknowledged(Ack(old.number))
    source.side.aim(("r",))
    assert source.side.extents()["r"].staged == 0
    new = source.side.order({})
    assert new is not None
    assert new.number > old.number


def test_after_the_switch_nothing_rides_on_steps(source):
    source.add("r", 20, num_computed=8)
    source.side.aim(("r",))
    source.side.order({})
    source.side.detach()
    assert not source.side.is_busy
    assert source.side.order({}) is None


# --- the target: parked ---


def test_a_parked_request_waits_until_something_is_staged(target):
    parked(target)
    assert target.side.matched_tokens("r", 0) == (None, False)
    target.side.offer("r", Extent(15, 14, 0, ()))
    assert target.side.matched_tokens("r", 0) == (None, False)
    assert not target.side.wants_step
    target.side.offer("r", Extent(15, 14, 8, (0, 1)))
    assert target.side.matched_tokens("r", 0) == (8, True)
    assert target.side.matched_tokens("r", 4) == (4, True)


def test_a_prefix_that_is_cached_here_as_far_as_staging_goes_is_no_reason_to_admit(target):
    parked(target)
    target.side.offer("r", Extent(15, 14, 8, (0, 1)))
    assert target.side.matched_tokens("r", 8) == (None, False)


def test_what_is_staged_past_the_tokens_known_here_is_not_matched(target):
    parked(target, num_tokens=6)
    target.side.offer("r", Extent(12, 11, 11, (0, 1, 2)))
    assert target.side.matched_tokens("r", 0) == (5, True)


def test_an_offer_wants_one_step_for_admission(target):
    request = parked(target)
    target.side.offer("r", Extent(15, 14, 8, (0, 1)))
    assert target.side.wants_step
    assert target.side.order({}) is None
    assert not target.side.wants_step
    target.side.offer("r", Extent(15, 14, 8, (0, 1)))
    target.admit("r", request)
    target.run_orders()
    target.side.offer("r", Extent(15, 14, 8, (0, 1)))
    assert not target.side.wants_step, "it is admitted, and there is nothing new to load"


def test_only_parked_requests_are_idle(target):
    parked(target)
    target.side.park("s")
    target.add("s", 6)
    target.add("other", 6)
    assert target.side.num_idle == 2
    target.release("r", (), Extent(15, 0, 0, ()))
    assert target.side.num_idle == 1
    target.side.request_finished("s")
    assert target.side.num_idle == 0


def test_an_admitted_request_is_loaded_in_slices_and_told_of_only_once_released(target):
    request = parked(target)
    target.side.offer("r", Extent(15, 14, 12, (7, 8, 9)))
    assert target.admit("r", request)
    orders = target.run_orders()
    table = target.blocks.tables[request.request_id]
    assert [order.load for order in orders] == [((table[0], 7), (table[1], 8)), ((table[2], 9),)]
    assert not any(order.arrived for order in orders)
    assert target.side.loaded() == {"r": 12}
    assert not target.side.is_busy

    target.release("r", (70, 71), Extent(17, 16, 16, (7, 8, 9, 3)))
    assert request.num_computed_tokens == 16
    (last,) = target.run_orders()
    assert last.load == ((target.blocks.tables[request.request_id][3], 3),)
    assert last.arrived == (request.request_id,)
    assert target.run_orders() == []
    assert "r" not in target.side.parked


def test_an_admitted_request_gets_blocks_as_more_is_staged(target):
    request = parked(target, num_tokens=6)
    target.side.offer("r", Extent(6, 5, 5, (7, 8)))
    target.admit("r", request)
    target.run_orders()
    target.side.extend("r", tuple(range(6)))
    target.side.offer("r", Extent(12, 12, 12, (7, 8, 9)))
    orders = target.run_orders()
    table = target.blocks.tables[request.request_id]
    assert [pair for order in orders for pair in order.load] == [(table[1], 8), (table[2], 9)]
    assert request.num_computed_tokens == 11, "the last token is computed here"
    assert not any(order.arrived for order in orders)


def test_a_parked_request_learns_what_is_said_elsewhere(target):
    request = parked(target)
    target.side.extend("r", (70, 71))
    target.side.extend("r", (72,))
    assert (request.output_token_ids, request.num_tokens) == ([70, 71, 72], 18)
    assert request.is_counted, "its prompt is not counted again here"


def test_a_request_brings_its_past_to_the_step_that_shows_it_to_the_workers_and_to_no_other(target):
    request, other = parked(target), target.add("new", 6)
    target.side.extend("r", (70, 71))
    target.side.generators |= {"r": b"state", "waits": b"later"}
    assert target.side.pasts([other.request_id]) == ()
    assert target.side.pasts([request.request_id, "x"]) == (RequestPast(request.request_id, (70, 71), b"state"),)
    assert target.side.pasts([request.request_id]) == ()
    assert target.side.generators == {"waits": b"later"}


def test_a_request_that_ends_before_the_workers_see_it_leaves_nothing(target):
    request = parked(target)
    target.side.extend("r", (70, 71))
    target.side.generators["r"] = b"state"
    target.side.request_finished("r")
    assert target.side.pasts([request.request_id]) == ()
    assert target.side.generators == {}


def test_a_prefix_that_is_cached_here_is_not_loaded(target):
    request = parked(target)
    target.side.offer("r", Extent(15, 14, 12, (7, 8, 9)))
    target.admit("r", request, present=4)
    (order,) = target.run_orders()
    assert order.load == tuple(zip(target.blocks.tables[request.request_id][1:], (8, 9), strict=True))


# --- the target: released ---


SLOTS = (7, 8, 9, 3, 2)


@rows(
    ("offered", "said", "released", "loaded", "computed", "num_blocks"),
    [
        (Extent(15, 14, 14, SLOTS[:4]), (70,), Extent(16, 15, 15, SLOTS[:4]), (3,), 15, 20),
        (Extent(20, 4, 4, SLOTS[:1]), (), Extent(20, 19, 19, SLOTS), (8, 9, 3, 2), 19, 20),
        (Extent(15, 14, 14, SLOTS[:4]), (), Extent(15, 14, 14, SLOTS[:4]), (), 14, 20),
        (Extent(15, 14, 12, SLOTS[:3]), (70,), Extent(16, 0, 14, SLOTS[:4]), (), 12, 20),
        (Extent(15, 14, 8, SLOTS[:2]), (70, 71), Extent(17, 16, 16, SLOTS[:4]), (), 8, 2),
    ],
    ids=["the last block again", "all that is left", "nothing", "kept after a preemption", "without room"],
)
def test_a_release_loads_what_is_left_at_once_and_is_told_of(offered, said, released, loaded, computed, num_blocks):
    target = Side(num_blocks=num_blocks)
    target.side.attach_target(target.handle, 2)
    request = parked(target, offered.num_tokens)
    target.side.offer("r", offered)
    target.admit("r", request)
    target.run_orders()
    target.release("r", said, released)
    assert request.num_computed_tokens == computed
    (last,) = target.run_orders()
    table = target.blocks.tables[request.request_id]
    assert last.load == tuple((table[SLOTS.index(slot)], slot) for slot in loaded)
    assert last.arrived == (request.request_id,)


def test_a_request_that_was_never_admitted_is_loaded_with_its_first_step(target):
    request = parked(target, num_tokens=6)
    target.release("r", (70,), Extent(7, 6, 6, (5, 4)))
    assert target.side.matched_tokens("r", 4) == (2, False)
    assert target.side.order({}) is None, "it waits for the scheduler"
    assert target.admit("r", request)
    (order,) = target.run_orders()
    table = target.blocks.tables[request.request_id]
    assert (order.load, order.arrived) == (((table[0], 5), (table[1], 4)), ())
    assert "r" not in target.side.parked


def test_a_released_request_whose_kv_is_cached_here_gets_nothing_from_outside(target):
    request = parked(target)
    target.release("r", (), Extent(15, 6, 6, (5, 4)))
    assert target.side.matched_tokens("r", 8) == (0, False)
    assert target.admit("r", request, present=8)
    assert target.run_orders() == []


def test_a_request_that_the_source_had_not_begun_is_computed_here(target):
    request = parked(target)
    target.release("r", (), Extent(15, 0, 0, ()))
    assert target.side.matched_tokens("r", 0) == (0, False)
    assert target.admit("r", request)
    assert target.run_orders() == []
    assert "r" not in target.side.parked


def test_a_request_that_ends_while_parked_is_forgotten_with_its_loads(target):
    request = parked(target)
    target.side.offer("r", Extent(15, 14, 12, (7, 8, 9)))
    target.admit("r", request)
    first = target.side.order({})
    target.side.request_finished("r")
    assert first is not None
    target.side.acknowledged(Ack(first.number))
    assert target.side.loaded() == {}
    assert target.side.num_idle == 0
    assert not target.side.is_busy
    assert target.run_orders() == []


def test_a_released_request_that_ends_before_its_kv_is_here_is_not_told_of(target):
    request = parked(target)
    target.side.offer("r", Extent(15, 14, 12, (7, 8, 9)))
    target.admit("r", request)
    target.release("r", (), Extent(15, 14, 14, (7, 8, 9, 3)))
    target.side.request_finished("r")
    assert target.run_orders() == []
