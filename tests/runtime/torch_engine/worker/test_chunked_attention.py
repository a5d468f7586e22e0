"""The attention of GPUs, in Triton's interpreter, equals dense attention, and leaves alone what is not its own."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.store import KvShape
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.chunked_attention import ChunkedAttention, _cut
from tests.runtime.kv.chunked import fill, gained, read
from tests.tries import tries

pytestmark = pytest.mark.usefixtures("interpreted")

LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM = 2, 3, 40, 4, 16


@pytest.mark.slow
@tries(8)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 1, 2, 36])), min_size=1, max_size=2),
    st.integers(0, 10_000),
    st.sampled_from([(0, 2), (2, 3)]),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3, 4]),
)
def test_it_is_the_attention_of_the_cpu(sequences, seed, heads, stack, group):
    """Which is held against dense attention; the cache holds NaN where nobody has written."""
    generator = torch.Generator().manual_seed(seed)
    shape = KvShape(LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, torch.float32, stack)
    free, spans = torch.randperm(BLOCKS, generator=generator).tolist(), []
    cache = torch.full(shape.dims, float("nan"))
    for start, count in sequences:
        span = Span(start, count, tuple(free.pop() for _ in range(20)))
        for position in range(span.start):
            block, within = span.table[position // BLOCK_SIZE], position % BLOCK_SIZE
            cache[:, :, :, block, :, within] = torch.randn(
                2, shape.num_stacks, KV_HEADS, stack, DIM, generator=generator
            )
        spans.append(span)
    tokens = sum(span.count for span in spans)
    own = heads[1] - heads[0]
    qk = torch.randn(tokens, own * (group + 1), DIM, generator=generator)
    q, k = torch.split(qk, [own * group, own], dim=1)  # views, as in a shard
    v = torch.randn(tokens, 2 * own, DIM, generator=generator)[:, own:]
    store = gained(shape, 3)
    fill(store, cache)
    got = ChunkedAttention(store, slice(*heads), spans)
    plain = cache.nan_to_num()
    want = Attention(plain, slice(*heads), spans)
    assert torch.equal(got.positions, want.positions)
    assert torch.allclose(got(1, q, k, v), want(1, q, k, v), atol=1e-5)
    assert torch.equal(read(store).nan_to_num(), plain)


@pytest.mark.slow
def test_halves_come_near():
    """float16; the interpreter multiplies bfloat16 as if it were integers."""
    dtype = torch.float16
    generator = torch.Generator().manual_seed(7)
    cache = torch.randn(2, LAYERS, KV_HEADS, BLOCKS, 1, BLOCK_SIZE, DIM, generator=generator)
    spans = [Span(50, 1, tuple(range(13))), Span(3, 30, tuple(range(20, 40)))]
    q = torch.randn(31, 2 * KV_HEADS, DIM, generator=generator)
    k, v = torch.randn(2, 31, KV_HEADS, DIM, generator=generator)
    shape = KvShape(LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, dtype)
    store = gained(shape, 3)
    fill(store, cache.to(dtype))
    got = ChunkedAttention(store, slice(None), spans)(1, *(x.to(dtype) for x in (q, k, v)))
    want = Attention(cache, slice(None), spans)(1, q, k, v)
    assert got.dtype == dtype
    assert (got.float() - want).abs().max() < 0.03


@pytest.mark.slow
def test_what_a_sequence_gets_is_the_same_bits_beside_any_neighbours():
    generator = torch.Generator().manual_seed(2)
    cache = torch.randn(2, LAYERS, KV_HEADS, BLOCKS, 1, BLOCK_SIZE, DIM, generator=generator)
    store = gained(KvShape(LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, torch.float32), 3)
    fill(store, cache)
    spans = [Span(length, 1, tuple(range(n, 40, 3))) for n, length in enumerate((50, 13, 46))]
    q, k, v = torch.randn(3, 3, KV_HEADS, DIM, generator=generator)
    together = ChunkedAttention(store, slice(None), spans)(0, q, k, v)
    for n, span in enumerate(spans):
        one = slice(n, n + 1)
        assert torch.equal(ChunkedAttention(store, slice(None), [span])(0, q[one], k[one], v[one])[0], together[n])


@given(st.lists(st.integers(2, 50), min_size=0, max_size=5), st.integers(1, 20))
def test_tiles_have_every_token_once(counts, most):
    firsts = np.cumsum([0, *counts])[:-1]
    sequences = np.array([[f, f + 7, c, 9] for f, c in zip(firsts, counts, strict=True)]).reshape(-1, 4)
    tiles = _cut(sequences.astype(np.int64), most)
    rows = [row for first, _, count, _ in tiles.tolist() for row in range(first, first + count)]
    assert rows == list(range(sum(counts)))
    assert all(start == first + 7 and count <= most for first, start, count, _ in tiles.tolist())
