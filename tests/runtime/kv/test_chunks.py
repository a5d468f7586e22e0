"""A store in chunks, on host memory, does what the store of a CPU does; Triton's interpreter runs its kernels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import TopologyError
from runtime.footprint import Piece, Transfer
from runtime.kv.memory import MemoryFaultError
from runtime.kv.store import KvShape, KvStore
from tests.rows import rows
from tests.runtime.kv.chunked import fill, gained, pieces_of, read, store_of
from tests.tries import tries

pytestmark = pytest.mark.usefixtures("interpreted")

SHAPE = KvShape(num_layers=5, num_kv_heads=4, num_blocks=11, block_size=8, head_dim=16, dtype=torch.float32)
PIECES = pieces_of(SHAPE)
EVERYWHERE = [(0, 11)]


@pytest.mark.slow
@tries(12)
@given(
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.sampled_from([1, 2]),
    st.sets(st.integers(0, 88), min_size=2, max_size=8),
    st.sampled_from([1, 3, 4, 16]),
)
def test_a_copy_brings_what_the_store_of_a_cpu_brings(dtype, stack, cuts, chunk_blocks):
    shape = KvShape(5, 4, 11, 8, 16, dtype, stack)
    runs = np.array(sorted(cuts)[: len(cuts) // 2 * 2]).reshape(-1, 2)
    boxes = Transfer(1, 0, (2, 5), (1, 3)), Transfer(1, 0, (0, 2), (3, 4))
    want, other = KvStore(shape), KvStore(shape)
    other.cache.copy_(torch.randn(shape.dims))
    got, source = gained(shape, chunk_blocks), gained(shape, chunk_blocks)
    fill(source, other.cache)
    assert got.copy([(box, source.handle) for box in boxes], runs) == want.copy(
        [(box, other.handle) for box in boxes], runs
    )
    layers = min(stack * shape.num_stacks, 5)
    mine, theirs = (c.movedim(4, 2).flatten(1, 2)[:, :layers] for c in (read(got), want.cache))
    assert torch.equal(mine, theirs)


@rows("stack", [1, 2])
def test_a_digest_is_that_of_the_store_of_a_cpu(stack):
    shape = KvShape(5, 4, 11, 8, 16, torch.float32, stack)
    plain, store = KvStore(shape), gained(shape)
    plain.cache.copy_(torch.randn(shape.dims))
    fill(store, plain.cache)
    for piece in (Piece(0, 0), Piece(3, 2), Piece(4, 3)):
        for block in (0, 5, 10):
            assert store.digest(piece, block, 5) == plain.digest(piece, block, 5)


def test_only_pieces_that_were_gained_hold_memory():
    store = store_of(SHAPE)
    assert store.held_bytes == 0
    done = store.gain([Piece(1, 2), Piece(4, 0)], [(0, 2), (9, 11)], seconds=60)
    assert (done.rest, done.bytes) == (None, store.held_bytes)
    assert np.argwhere(store.table.numpy()).tolist() == [[1, 2, 0], [1, 2, 2], [4, 0, 0], [4, 0, 2]]


def test_what_is_held_is_not_gained_again():
    store = gained(SHAPE)
    fill(store, torch.ones(SHAPE.dims))
    assert store.gain(PIECES, EVERYWHERE, seconds=60).bytes == 0
    assert read(store).all()


def test_only_whole_chunks_are_given_back():
    store = gained(SHAPE)
    cache = torch.randn(SHAPE.dims)
    fill(store, cache)
    before = store.held_bytes
    done = store.give_back([Piece(0, 1)], [(1, 8), (9, 11)], seconds=60)
    assert done.bytes == before - store.held_bytes == before // 60
    want = cache.clone()
    want[:, 0, 1, 4:8] = 0
    assert torch.equal(read(store), want)


def test_the_last_chunk_goes_though_it_has_fewer_blocks():
    store = gained(SHAPE)
    store.give_back(PIECES, EVERYWHERE, seconds=60)
    assert store.held_bytes == 0
    assert not store.table.any()


def test_slices_of_no_time_at_all_come_to_an_end():
    store = store_of(SHAPE)
    for change in (store.gain, store.give_back):
        slices = [change(PIECES[:2], EVERYWHERE, seconds=0)]
        while (rest := slices[-1].rest) is not None:
            slices.append(change(PIECES[:2], EVERYWHERE, seconds=0, after=rest))
        assert sum(each.bytes for each in slices) == 6 * 4 * SHAPE.block_slots * SHAPE.piece_slot_bytes
        assert max(each.bytes for each in slices) == 4 * SHAPE.block_slots * SHAPE.piece_slot_bytes
    assert store.held_bytes == 0


def test_a_peer_sees_what_was_given_back_and_gained_anew():
    source, target = gained(SHAPE), gained(SHAPE)
    box, runs = Transfer(1, 0, (1, 2), (1, 2)), np.array([[0, 88]])
    fill(source, torch.ones(SHAPE.dims))
    target.copy([(box, source.handle)], runs)
    source.give_back([Piece(1, 1)], EVERYWHERE, seconds=60)
    with pytest.raises(TopologyError, match="given back"):
        target.copy([(box, source.handle)], runs)
    source.gain([Piece(1, 1)], EVERYWHERE, seconds=60)
    fill(source, torch.full(SHAPE.dims, 2.0))
    target.copy([(box, source.handle)], runs)
    assert read(target)[:, 1, 1].eq(2).all()


def test_a_peer_opens_only_what_it_copies_and_closes_it():
    source, target = gained(SHAPE), gained(SHAPE)
    target.copy([(Transfer(1, 0, (1, 3), (1, 2)), source.handle)], np.array([[0, 5], [80, 88]]))
    assert len(target._memory._opened) == 2 * 2
    counts, rest = [], 0
    while rest is not None:
        rest = target.forget_peers(seconds=0).rest
        counts.append(len(target._memory._opened))
    assert counts == [3, 2, 1, 0]


def test_a_chunk_that_cannot_be_closed_keeps_no_other_open(monkeypatch):
    source, target = gained(SHAPE), gained(SHAPE)
    target.copy([(Transfer(1, 0, (1, 3), (1, 2)), source.handle)], np.array([[0, 5], [80, 88]]))
    close, failing = target._memory.close, [True]

    def closed(address: int) -> None:
        if failing and failing.pop():
            raise MemoryFaultError("its owner is gone")
        close(address)

    monkeypatch.setattr(target._memory, "close", closed)
    with pytest.raises(MemoryFaultError, match="its owner is gone"):
        target.forget_peers(seconds=60)
    assert target.forget_peers(seconds=60).rest is None
    assert len(target._memory._opened) == 1


def test_what_copies_will_read_is_opened_before_slice_by_slice_and_nothing_else():
    source, target = gained(SHAPE), gained(SHAPE)
    boxes, opened = [(Transfer(1, 0, (1, 3), (1, 2)), source.handle)], target._memory._opened
    counts, rest = [], 0
    while rest is not None:
        rest = target.reach(boxes, [(0, 3), (5, 6), (9, 11)], seconds=0, after=rest).rest
        counts.append(len(opened))
    assert counts == [1, 2, 3, 4, 5, 6], "chunks 0, 1 and 2 of two layers"
    target.copy(boxes, np.array([[0, 5], [80, 88]]))
    assert len(opened) == 6


def test_a_copy_to_where_nothing_was_gained_is_refused():
    with pytest.raises(TopologyError, match="gained"):
        store_of(SHAPE).copy([(Transfer(1, 0, (0, 1), (0, 1)), gained(SHAPE).handle)], np.array([[0, 1]]))


def test_memory_that_runs_out_leaves_what_was_gained():
    store = store_of(SHAPE)
    allocate, left = store._memory.allocate, [1, 2, 3]

    def scarce(num_bytes: int) -> int:
        if not left:
            raise MemoryFaultError("cudaErrorMemoryAllocation")
        left.pop()
        return allocate(num_bytes)

    store._memory.allocate = scarce
    with pytest.raises(MemoryFaultError):
        store.gain(PIECES, EVERYWHERE, seconds=60)
    assert store.table.count_nonzero() == 3
    assert store.held_bytes == 3 * 4 * SHAPE.block_slots * SHAPE.piece_slot_bytes


def test_warming_up_a_copy_needs_no_memory_and_changes_none():
    store_of(SHAPE).warm_up_copy()
    store = gained(SHAPE)
    fill(store, torch.randn(SHAPE.dims))
    before = read(store)
    store.warm_up_copy()
    assert torch.equal(read(store), before)


def test_slices_take_every_place_once_where_not_all_chunks_are_wanted():
    store, wanted = store_of(SHAPE), [(5, 6), (9, 11)]  # chunks 1 and 2 of 3
    held, after = [0], 0
    while True:
        done = store.gain(PIECES, wanted, seconds=0, after=after)
        held.append(store.held_bytes)
        if done.rest is None:
            break
        after = done.rest
    chunk_bytes = held[1]
    places = 2 * len(PIECES)
    assert held[1:] in (
        [chunk_bytes * (number + 1) for number in range(places)],
        [*(chunk_bytes * (number + 1) for number in range(places)), chunk_bytes * places],
    )
    assert {int(place[2]) for place in np.argwhere(store.table.numpy())} == {1, 2}
