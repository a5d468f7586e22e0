"""KV memory: copies between stores, digests that ignore the topology, memory that returns."""

import os

import numpy as np
import pytest
import torch

from runtime.errors import TopologyError
from runtime.footprint import Piece, Transfer
from runtime.kv.store import KvHandle, KvShape, KvStore

SHAPE = KvShape(num_layers=3, num_kv_heads=4, num_blocks=8, block_size=32, head_dim=32, dtype=torch.float32)


def filled() -> KvStore:
    store = KvStore(SHAPE)
    store.cache.copy_(torch.randn(SHAPE.dims, generator=torch.Generator().manual_seed(1)))
    return store


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_copy_brings_exactly_the_boxes_and_slots_asked_for(dtype: torch.dtype) -> None:
    shape = KvShape(3, 4, 8, 32, 32, dtype)
    source, target = KvStore(shape), KvStore(shape)
    source.cache.copy_(torch.randn(shape.dims))
    box = Transfer(target=1, source=0, layers=(1, 3), heads=(2, 4))
    runs = np.array([[64, 128], [170, 171], [200, 203], [255, 256]])
    copied = target.copy([(box, source.handle)], runs)
    slots = [*range(64, 128), 170, 200, 201, 202, 255]
    want = torch.zeros(shape.dims, dtype=dtype).flatten(3, 4)
    want[:, 1:3, 2:4, slots] = source.cache.flatten(3, 4)[:, 1:3, 2:4, slots]
    assert torch.equal(target.cache.flatten(3, 4), want)
    assert copied == len(slots) * 4 * shape.piece_slot_bytes


def test_a_digest_depends_on_the_valid_positions_only() -> None:
    store = filled()
    piece = Piece(1, 2)
    before = store.digest(piece, 3, 20)
    store.cache[:, 1, 2, 3, 20:] = 7.0
    assert store.digest(piece, 3, 20) == before
    store.cache[1, 1, 2, 3, 19, 31] += 1.0
    assert store.digest(piece, 3, 20) != before


def test_dropped_pieces_give_their_memory_back_and_read_as_zeros() -> None:
    store = filled()
    descriptor = int(store.handle.path.rsplit("/", 1)[1])
    before = os.fstat(descriptor).st_blocks * 512
    kept = store.cache[:, 0, 0].clone()
    store.drop([Piece(2, 1), Piece(2, 3)])
    assert before - os.fstat(descriptor).st_blocks * 512 == 4 * SHAPE.slab_bytes
    assert not store.cache[:, 2, [1, 3]].any()
    assert torch.equal(store.cache[:, 0, 0], kept)


def test_what_is_never_written_takes_no_memory() -> None:
    store = KvStore(KvShape(80, 8, 10_000, 32, 128, torch.float32))
    store.cache[0, 5, 3, 9_999, 0] = 1.0
    descriptor = int(store.handle.path.rsplit("/", 1)[1])
    assert os.fstat(descriptor).st_blocks * 512 < 1 << 20


def test_a_peer_that_is_gone_is_named() -> None:
    with pytest.raises(TopologyError, match="peer is gone"):
        KvStore(SHAPE).copy(
            [(Transfer(1, 0, (0, 1), (0, 1)), KvHandle("/proc/1/fd/99999"))], np.array([[0, 1]])
        )
