"""Paged attention equals dense attention, whatever the tables, chunks and neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.torch_engine.attention import Attention
from runtime.torch_engine.models import Span

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


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.sampled_from([1, 1, 2, 5])), min_size=1, max_size=5),
    st.integers(0, 10_000),
    st.sampled_from([(0, 4), (0, 2), (2, 4)]),
)
def test_paged_attention_equals_dense_attention(
    sequences: list[tuple[int, int]], seed: int, heads: tuple[int, int]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    own = heads[1] - heads[0]
    cache = torch.randn(2, LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, generator=generator)
    free = torch.randperm(BLOCKS, generator=generator).tolist()
    spans, want, steps = [], [], []
    for start, count in sequences:
        k, v = (torch.randn(start + count, own, DIM, generator=generator) for _ in range(2))
        q = torch.randn(count, own * GROUP, DIM, generator=generator)
        table = tuple(free.pop() for _ in range(-(-(start + count) // BLOCK_SIZE)))
        for position in range(start):
            block, slot = table[position // BLOCK_SIZE], position % BLOCK_SIZE
            cache[0, 1, slice(*heads), block, slot], cache[1, 1, slice(*heads), block, slot] = (
                k[position],
                v[position],
            )
        spans.append(Span(start, count, table))
        want.append(dense(q, k, v, start))
        steps.append((q, k[start:], v[start:]))
    untouched = cache[:, 0].clone()
    got = Attention(cache, slice(*heads), spans)(1, *(torch.cat(part) for part in zip(*steps, strict=True)))
    assert torch.allclose(got, torch.cat(want), atol=1e-5)
    assert torch.equal(cache[:, 0], untouched)


def test_positions_follow_the_spans() -> None:
    cache = torch.zeros(2, LAYERS, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM)
    attention = Attention(cache, slice(None), [Span(5, 2, (1, 2)), Span(0, 3, (3,)), Span(9, 1, (4, 5, 6))])
    assert attention.positions.tolist() == [5, 6, 0, 1, 2, 9]


def test_more_decodes_than_one_gather_holds() -> None:
    generator = torch.Generator().manual_seed(0)
    cache = torch.randn(2, 1, KV_HEADS, BLOCKS, BLOCK_SIZE, DIM, generator=generator)
    spans = [
        Span(length, 1, tuple(range(3 * n % 60, 3 * n % 60 + 3))) for n, length in enumerate([9, 2, 5, 7] * 5)
    ]
    q = torch.randn(20, KV_HEADS * GROUP, DIM, generator=generator)
    k, v = (torch.randn(20, KV_HEADS, DIM, generator=generator) for _ in range(2))
    together = Attention(cache.clone(), slice(None), spans)(0, q, k, v)
    for n, span in enumerate(spans):
        alone = Attention(cache.clone(), slice(None), [span])(0, q[n : n + 1], k[n : n + 1], v[n : n + 1])
        assert alone[0].tolist() == pytest.approx(together[n].tolist(), abs=1e-5)
