"""KV memory: copies between stores, digests that ignore the topology, memory that returns."""

import mmap
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from runtime.errors import TopologyError
from runtime.footprint import Piece, Transfer
from runtime.kv.store import KvHandle, KvShape, KvStore
from tests.rows import rows

SHAPE = KvShape(num_layers=3, num_kv_heads=4, num_blocks=8, block_size=32, head_dim=32, dtype=torch.float32)


def filled() -> KvStore:
    store = KvStore(SHAPE)
    store.cache.copy_(torch.randn(SHAPE.dims, generator=torch.Generator().manual_seed(1)))
    return store


def by_token(store: KvStore) -> torch.Tensor:
    """``[2, layers, KV heads, tokens, dim]``, a copy where layers are stacked; the last stack may be padded."""
    return store.cache.movedim(4, 2).flatten(4, 5).flatten(1, 2)


@rows("stack", [1, 2])
@rows("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_brings_exactly_the_boxes_and_tokens_asked_for(dtype, stack):
    shape = KvShape(5, 4, 8, 32, 32, dtype, stack)
    source, target = KvStore(shape), KvStore(shape)
    source.cache.copy_(torch.randn(shape.dims))
    box = Transfer(target=1, source=0, layers=(2, 4), heads=(2, 4))
    runs = np.array([[64, 128], [170, 171], [200, 203], [255, 256]])
    copied = target.copy([(box, source.handle)], runs)
    slots = [*range(64, 128), 170, 200, 201, 202, 255]
    want = torch.zeros_like(by_token(source))
    want[:, 2:4, 2:4, slots] = by_token(source)[:, 2:4, 2:4, slots]
    assert torch.equal(by_token(target), want)
    assert copied == len(slots) * 4 * shape.piece_slot_bytes


def test_a_digest_depends_on_the_valid_positions_only():
    store = filled()
    piece = Piece(1, 2)
    before = store.digest(piece, 3, 20)
    store.cache[:, 1, 2, 3, 0, 20:] = 7.0
    assert store.digest(piece, 3, 20) == before
    store.cache[1, 1, 2, 3, 0, 19, 31] += 1.0
    assert store.digest(piece, 3, 20) != before


def test_a_digest_is_of_one_layer_however_layers_are_stacked():
    single = KvStore(KvShape(3, 1, 4, 8, 16, torch.float32))
    pairs = KvStore(KvShape(3, 1, 4, 8, 16, torch.float32, stack=2))
    for layer in range(3):
        rows = torch.randn(2, 1, 4, 8, 16)
        single.cache[:, layer, :, :, 0] = rows
        pairs.cache[:, layer // 2, :, :, layer % 2] = rows
    everywhere = [(Piece(layer, 0), block) for layer in range(3) for block in range(4)]
    assert [pairs.digest(*place, 5) for place in everywhere] == [single.digest(*place, 5) for place in everywhere]


def test_a_block_of_several_layers_fills_pages_that_one_layer_does_not():
    """PipeLive's reason to stack."""
    returned = []
    for stack in (1, 4):
        store = KvStore(KvShape(4, 1, 8, 16, 16, torch.float32, stack))  # one layer's part is a quarter of a page
        store.cache.fill_(1.0)
        pieces = [Piece(layer, 0) for layer in range(4)]
        returned.append(store.give_back(pieces, [(0, 1), (2, 3)], seconds=60).bytes)
    assert returned == [0, 2 * 2 * mmap.PAGESIZE]


def test_pieces_give_their_memory_back_and_read_as_zeros():
    store = filled()
    descriptor = int(store.handle.path.rsplit("/", 1)[1])
    before = os.fstat(descriptor).st_blocks * 512
    kept = store.cache[:, 0, 0].clone()
    done = store.give_back([Piece(2, 3), Piece(2, 1)], [(0, 8)], seconds=60)
    assert before - os.fstat(descriptor).st_blocks * 512 == done.bytes == 4 * SHAPE.slab_bytes
    assert done.rest is None
    assert not store.cache[:, 2, [1, 3]].any()
    assert torch.equal(store.cache[:, 0, 0], kept)


def test_runs_of_blocks_give_their_memory_back_and_the_other_blocks_stay():
    store = filled()
    before, want = store.held_bytes, store.cache.clone()
    pieces = [Piece(layer, head) for layer in range(3) for head in range(4)]
    store.give_back(pieces, [(1, 3), (6, 7)], seconds=60)
    want[:, :, :, [1, 2, 6]] = 0
    assert before - store.held_bytes == 3 * 12 * SHAPE.piece_slot_bytes * SHAPE.block_size
    assert torch.equal(store.cache, want)


def test_slices_of_no_time_at_all_come_to_an_end():
    store, pieces = filled(), [Piece(0, 0), Piece(2, 3)]
    slices = [store.give_back(pieces, [(0, 2), (5, 8)], seconds=0)]
    while (rest := slices[-1].rest) is not None:
        slices.append(store.give_back(pieces, [(0, 2), (5, 8)], seconds=0, after=rest))
    assert len(slices) == 2 * 2 * 2 + 1
    assert sum(each.bytes for each in slices) == 2 * 5 * SHAPE.piece_slot_bytes * SHAPE.block_size
    assert store.cache[:, 0, 0, 2:5].all()


def test_giving_back_rests_as_long_as_it_works(monkeypatch):
    now, rests = [0.0], list[float]()
    store = filled()
    monkeypatch.setattr("runtime.kv.store.time", SimpleNamespace(perf_counter=lambda: now[0], sleep=rests.append))
    advise = store._advise
    monkeypatch.setattr(store, "_advise", lambda *given: now.append(now.pop() + 0.5) or advise(*given))
    assert store.give_back([Piece(0, 0)], [(0, 2), (5, 8)], seconds=60).rest is None
    assert rests == [0.5] * 4


def test_a_long_run_is_given_back_in_slices_too():
    shape = KvShape(1, 1, 768, 32, 32, torch.float32)  # 3 MiB of K
    store = KvStore(shape)
    store.cache.fill_(1.0)
    first = store.give_back([Piece(0, 0)], [(0, 768)], seconds=0)
    assert (first.rest, first.bytes) == (1 << 20, 1 << 20)
    last = store.give_back([Piece(0, 0)], [(0, 768)], seconds=60, after=1 << 20)
    assert (last.rest, last.bytes, store.held_bytes) == (None, 5 << 20, 0)


def test_runs_of_blocks_gain_their_memory_and_what_was_written_stays():
    store = KvStore(SHAPE)
    store.cache[:, 1, 1, 4] = 3.0
    before, pieces = store.held_bytes, [Piece(1, 1), Piece(2, 0)]
    slices = [store.gain(pieces, [(1, 3), (4, 5)], seconds=0)]
    while (rest := slices[-1].rest) is not None:
        slices.append(store.gain(pieces, [(1, 3), (4, 5)], seconds=0, after=rest))
    gained = 5 * SHAPE.piece_slot_bytes * SHAPE.block_size  # of six blocks in two pieces one was there
    assert sum(each.bytes for each in slices) == store.held_bytes - before == gained
    assert len(slices) == 2 * 2 * 2 + 1
    assert store.cache[:, 1, 1, 4].eq(3.0).all()


def test_what_was_given_back_can_be_written_at_once():
    store = filled()
    before = store.held_bytes
    store.give_back([Piece(1, 1)], [(0, 8)], seconds=60)
    store.cache[:, 1, 1, 4] = 3.0
    assert before - store.held_bytes == 7 * SHAPE.piece_slot_bytes * SHAPE.block_size
    assert store.cache[:, 1, 1, 4].eq(3.0).all()
    assert not store.cache[:, 1, 1, 5].any()


def test_a_page_that_a_live_block_shares_stays():
    shape = KvShape(1, 1, 16, 8, 16, torch.float32)  # eight blocks to a page
    store = KvStore(shape)
    store.cache.fill_(1.0)
    before = store.held_bytes
    store.give_back([Piece(0, 0)], [(0, 7), (8, 16)], seconds=60)
    assert before - store.held_bytes == 2 * mmap.PAGESIZE
    assert store.cache[:, 0, 0, 7].eq(1.0).all()


def test_what_is_never_written_takes_no_memory():
    store = KvStore(KvShape(80, 8, 10_000, 32, 128, torch.float32))
    store.cache[0, 5, 3, 9_999, 0, 0] = 1.0
    descriptor = int(store.handle.path.rsplit("/", 1)[1])
    assert os.fstat(descriptor).st_blocks * 512 < 1 << 20


def test_a_peer_that_is_gone_is_named():
    with pytest.raises(TopologyError, match="peer is gone"):
        KvStore(SHAPE).copy([(Transfer(1, 0, (0, 1), (0, 1)), KvHandle("/proc/1/fd/99999"))], np.array([[0, 1]]))
