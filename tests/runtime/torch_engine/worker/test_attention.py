"""Paged attention equals dense attention, whatever the tables, chunks and neighbours."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.footprint import Piece
from runtime.kv.store import KvShape, KvStore
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention, Decodes, _reading
from tests.rows import rows
from tests.tries import tries

LAYERS, KV_HEADS, GROUP, BLOCKS, BLOCK_SIZE, DIM = 2, 4, 2, 64, 4, 8


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> torch.Tensor:
    """Causal attention of queries at ``start`` onwards over all keys, one head at a time."""
    out = torch.empty_like(q)
    for row in range(len(q)):
        for head in range(q.shape[1]):
            keys, values = k[: start + row + 1, head // GROUP], v[: start + row + 1, head // GROUP]
            weights = torch.softmax(keys @ q[row, head] / DIM**0.5, dim=0)
            out[row, head] = weights @ values
    return out.flatten(1)


@pytest.mark.slow
@tries(40)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from([1, 1, 2, 5])), min_size=1, max_size=5),
    st.integers(0, 10_000),
    st.sampled_from([(0, 4), (0, 2), (2, 4)]),
    st.sampled_from([1, 2, 3]),
)
def test_paged_attention_equals_dense_attention(sequences, seed, heads, stack):
    generator = torch.Generator().manual_seed(seed)
    own = heads[1] - heads[0]
    stacks = -(-LAYERS // stack)
    cache = torch.randn(2, stacks, KV_HEADS, BLOCKS, stack, BLOCK_SIZE, DIM, generator=generator)
    written = cache.movedim(4, 2)  # a view, layer by layer
    free = torch.randperm(BLOCKS, generator=generator).tolist()
    spans, want, steps = [], [], []
    for start, count in sequences:
        k, v = (torch.randn(start + count, own, DIM, generator=generator) for _ in range(2))
        q = torch.randn(count, own * GROUP, DIM, generator=generator)
        table = tuple(free.pop() for _ in range(-(-(start + count) // BLOCK_SIZE)))
        for position in range(start):
            block, slot = table[position // BLOCK_SIZE], position % BLOCK_SIZE
            place = (*divmod(1, stack), slice(*heads), block, slot)
            written[0][place], written[1][place] = k[position], v[position]
        spans.append(Span(start, count, table))
        want.append(dense(q, k, v, start))
        steps.append((q, k[start:], v[start:]))
    untouched = written[:, 0, 0].clone()
    got = Attention(cache, slice(*heads), spans)(1, *(torch.cat(part) for part in zip(*steps, strict=True)))
    assert torch.allclose(got, torch.cat(want), atol=1e-5)
    assert torch.equal(written[:, 0, 0], untouched)


def test_positions_follow_the_spans():
    cache = torch.zeros(2, LAYERS, KV_HEADS, BLOCKS, 1, BLOCK_SIZE, DIM)
    attention = Attention(cache, slice(None), [Span(5, 2, (1, 2)), Span(0, 3, (3,)), Span(9, 1, (4, 5, 6))])
    assert attention.positions.tolist() == [5, 6, 0, 1, 2, 9]


def test_more_decodes_than_one_gather_holds():
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, 1, KV_HEADS, BLOCKS, 1, BLOCK_SIZE, DIM, generator=generator)
    spans = [Span(length, 1, tuple(range(3 * n % 60, 3 * n % 60 + 3))) for n, length in enumerate([9, 2, 5, 7] * 5)]
    q = torch.randn(20, KV_HEADS * GROUP, DIM, generator=generator)
    k, v = (torch.randn(20, KV_HEADS, DIM, generator=generator) for _ in range(2))
    together = Attention(cache.clone(), slice(None), spans)(0, q, k, v)
    for n, span in enumerate(spans):
        alone = Attention(cache.clone(), slice(None), [span])(0, q[n : n + 1], k[n : n + 1], v[n : n + 1])
        assert alone[0].tolist() == pytest.approx(together[n].tolist(), abs=1e-5)


CROWDS = {
    "a sequence of its own": [list(range(20, 60))],
    "sequences that grew side by side": [list(range(first, 60, 3)) for first in range(3)],
    "a stretch with strangers in it": [[b for b in range(60) if b % 7 not in (2, 3)]],
    "far apart": [list(range(0, 60, 20)), list(range(9, 60, 21))],
    "a stretch, and blocks far from it": [list(range(34, 4, -1)), [63, 50, 48]],
    "too thin for a stretch": [list(range(0, 64, 8))],
    "a long prefix that is shared": [[*range(8, 40), last, last + 3] for last in (40, 41, 60)],
    "short prefixes that are shared, and one that is all of it": [
        [1, 2, 3, 9],
        [1, 2, 3, 10],
        [1, 2, 3],
        [*range(20, 50)],
        [*range(20, 50), 60],
    ],
}


@rows("tables", [*CROWDS.values()], ids=[*CROWDS])
@rows("query_heads", [1, 3])
def test_decodes_equal_dense_attention_wherever_blocks_lie(tables, query_heads):
    generator = torch.Generator().manual_seed(1)
    keys, values = torch.randn(2, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, generator=generator)
    spans = [Span(len(table) * BLOCK_SIZE - 2, 1, tuple(table)) for table in tables]
    q = torch.randn(len(tables), KV_HEADS * query_heads, DIM, generator=generator)
    got = Decodes(spans, BLOCK_SIZE, KV_HEADS).attend(q, keys, values)
    for row, span in enumerate(spans):
        k, v = (
            pool[:, list(span.table)].flatten(1, 2)[:, : span.start + 1].repeat_interleave(query_heads, dim=0)
            for pool in (keys, values)
        )
        weights = torch.softmax(torch.einsum("hd,hpd->hp", q[row], k) / DIM**0.5, dim=1)
        assert torch.allclose(got[row], torch.einsum("hp,hpd->hd", weights, v), atol=1e-5)


def test_what_a_decode_gets_is_the_same_bits_beside_any_neighbours():
    generator = torch.Generator().manual_seed(2)
    keys, values = torch.randn(2, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, generator=generator)
    spans = [Span(length, 1, tuple(range(n, 60, 3))) for n, length in enumerate((79, 13, 46))]
    q = torch.randn(3, KV_HEADS * GROUP, DIM, generator=generator)
    together = Decodes(spans, BLOCK_SIZE, KV_HEADS).attend(q, keys, values)
    for n, span in enumerate(spans):
        alone = Decodes([span], BLOCK_SIZE, KV_HEADS).attend(q[n : n + 1], keys, values)
        assert torch.equal(alone[0], together[n])


def test_blocks_of_nobody_may_hold_anything():
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, generator=generator)
    table = [block for block in range(60) if block % 7 not in (2, 3)]
    q = torch.randn(1, KV_HEADS * GROUP, DIM, generator=generator)
    decodes = Decodes([Span(len(table) * BLOCK_SIZE - 1, 1, tuple(table))], BLOCK_SIZE, KV_HEADS)
    want = decodes.attend(q, keys, values)
    for pool in (keys, values):
        pool[:, 2::7] = float("nan")
    assert torch.equal(decodes.attend(q, keys, values), want)


def test_blocks_are_read_in_place_where_they_lie_close_and_gathered_elsewhere():
    close, apart = list(range(100, 140)), [3, 700, 1500]
    stretches, gathered, rows = _reading(np.array([*close, *apart]), 2)
    assert stretches == [(100, 140)]
    assert [chunk.tolist() for chunk in gathered] == [apart]
    assert sorted(rows.ravel().tolist()) == list(range(86)), "every block of every head has a row of its own"


def test_shared_blocks_are_read_in_place_for_each_that_has_them():
    shared = list(range(100, 140))
    stretches, gathered, rows = _reading(np.array([*shared, 140, *shared, 3, *shared[:20]]), 2)
    assert stretches == [(100, 141), (100, 140), (100, 120)]
    assert [chunk.tolist() for chunk in gathered] == [[3]]
    assert sorted(rows.ravel().tolist()) == list(range(2 * 102)), "and every one has a row of its own"


def test_blocks_that_lie_thin_are_gathered_rather_than_read_with_all_between():
    thin = np.arange(0, 400, 8)
    stretches, gathered, _ = _reading(thin, 1)
    assert stretches == []
    assert torch.cat(gathered).tolist() == thin.tolist()


def test_blocks_that_were_given_back_are_not_read_over_and_their_memory_stays_away():
    store = KvStore(KvShape(1, 1, 64, 16, 64, torch.float32))  # a page for each block
    store.cache.fill_(1.0)
    table, given_back = tuple(range(0, 64, 2)), [(9, 10)]
    attend = partial(Attention, store.cache, slice(None), [Span(32 * 16 - 1, 1, table)])
    q, k, v = torch.randn(3, 1, 1, 64)
    want = attend()(0, q, k, v)
    store.avoid(given_back)
    store.give_back([Piece(0, 0)], given_back, seconds=60)
    held = store.held_bytes
    torch.testing.assert_close(attend(store.is_hole)(0, q, k, v), want)
    assert store.held_bytes == held
    attend()(0, q, k, v)
    assert store.held_bytes > held, "as it would have been"
    Attention(store.cache, slice(None), [Span(0, 1, (9,))], store.is_hole)
    assert not store.is_hole.any(), "what is written is no hole"
    store.avoid([(0, 64)])
    assert not store.is_hole.any(), "a piece that goes makes none in others"


def test_no_temporary_of_a_decode_grows_with_the_context_times_the_width():
    """Copies of K and V would be allocated anew in each layer: page faults, once they are over malloc's threshold."""
    keys = values = torch.randn(KV_HEADS, 512, 32, 64)
    spans = [Span(4000, 1, tuple(range(first, 512, 4))) for first in range(4)]
    decodes = Decodes(spans, 32, KV_HEADS)
    q = torch.randn(4, KV_HEADS, 64)
    with torch.profiler.profile(profile_memory=True) as profile:
        decodes.attend(q, keys, values)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest < keys.nbytes / 16
