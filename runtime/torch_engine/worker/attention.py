"""Paged attention of one step.

Write this step's K and V into their blocks, then attend over each sequence's table.

Decodes attend together (see ``decodes``), prefill chunks one by one. Everything that does not depend on the layer is
computed once per step.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from numpy.typing import NDArray

from runtime.torch_engine.models import Span

GAP = 8  # from one block to the next: those between are computed in vain, for a new stretch costs more
_SHORT = 16  # a stretch with fewer blocks of its own is gathered: it is copied sooner than begun
_CHUNK = 64  # blocks gathered at once: they are still in the processor's cache when they are used

Ids = NDArray[np.int64]


class Decodes:
    """Sequences that each add one token, over keys and values ``[KV heads, blocks, block size, dim]``.

    A *row* is one block of one KV head; rows lie in the order in which they are read.
    """

    def __init__(
        self, spans: Sequence[Span], block_size: int, kv_heads: int, is_hole: NDArray[np.bool_] | None = None
    ) -> None:
        """``spans`` have one token each; blocks that ``is_hole`` marks are not read over (see ``KvStore``)."""
        self._count = len(spans)
        self._kv_heads = kv_heads
        last = np.array([span.start for span in spans])
        used = last // block_size + 1
        ids = [span.table[:number] for span, number in zip(spans, used.tolist(), strict=True)]
        blocks = np.fromiter(itertools.chain.from_iterable(ids), np.int64, used.sum())
        self._stretches, self._gathered, rows = _reading(blocks, kv_heads, is_hole)
        self._sizes = [
            *(stop - start for start, stop in self._stretches for _ in range(kv_heads)),
            *(len(chunk) * kv_heads for chunk in self._gathered),
        ]
        ends = np.cumsum(used)
        heads = np.arange(kv_heads)[:, None]
        owners = np.zeros(sum(self._sizes), dtype=np.int64)  # where nobody owns a row nobody looks at it
        owners[rows] = heads * len(spans) + np.repeat(np.arange(len(spans)), used)
        self._owners = torch.from_numpy(owners)
        past_end = np.arange(block_size) > (last % block_size)[:, None]
        bias = np.zeros((len(owners), 1, block_size), dtype=np.float32)
        bias[rows[:, ends - 1], 0] = np.where(past_end, -np.inf, 0)
        self._bias = torch.from_numpy(bias)
        self._rows = torch.from_numpy(rows.ravel())
        self._offsets = torch.from_numpy((heads * len(blocks) + ends - used).ravel())
        padded = np.minimum(np.arange(used.max()), used[:, None] - 1) + (ends - used)[:, None]
        self._table = torch.from_numpy(rows[:, padded].ravel())  # the last block as often as it takes

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``q`` ``[sequences, heads, dim]`` over the blocks of each sequence; returns the same shape."""
        _, _, size, dim = keys.shape
        grouped = (q * dim**-0.5).view(self._count, self._kv_heads, -1, dim).transpose(0, 1).flatten(0, 1)
        queries = grouped.index_select(0, self._owners)
        weights = queries.new_empty(*queries.shape[:2], size)
        parts = list(zip(queries.split(self._sizes), weights.split(self._sizes), strict=True))
        for (some, out), blocks in zip(parts, self._blocks(keys), strict=True):
            torch.bmm(some, blocks.transpose(1, 2), out=out)
        top = weights.add_(self._bias).amax(-1).index_select(0, self._table)
        top = top.view(len(grouped), -1, queries.shape[1]).amax(1)
        weights.sub_(top.index_select(0, self._owners).unsqueeze(-1)).exp_()
        total = self._summed(weights.sum(-1)).unsqueeze(-1)
        for (out, some), blocks in zip(parts, self._blocks(values), strict=True):
            torch.bmm(some, blocks, out=out)
        answer = self._summed(queries.flatten(1)).view(grouped.shape).div_(total)
        return answer.view(self._kv_heads, self._count, -1, dim).transpose(0, 1).reshape(q.shape)

    def _blocks(self, pool: torch.Tensor) -> Iterator[torch.Tensor]:
        """``[rows, block size, dim]`` in the order of the rows."""
        heads = pool.unbind()
        for start, stop in self._stretches:
            for head in heads:
                yield head[start:stop]
        for chunk in self._gathered:
            yield pool.index_select(1, chunk).flatten(0, 1)

    def _summed(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums of ``[rows, columns]`` over the rows of each sequence and head, in the order of its tokens."""
        return F.embedding_bag(self._rows, rows, self._offsets, mode="sum")


def _reading(
    blocks: Ids, kv_heads: int, is_hole: NDArray[np.bool_] | None = None
) -> tuple[list[tuple[int, int]], list[torch.Tensor], Ids]:
    """What a step reads: stretches of the pool, blocks to gather, and each block's rows.

    Rows are ``[KV heads, blocks]``.

    A block that several sequences have comes several times, and is read as often.
    """
    order = _order(blocks)
    heads = np.arange(kv_heads)[:, None]
    rows = np.empty((kv_heads, len(blocks)), dtype=np.int64)
    stretches = []
    loose = []
    row = 0
    ascending = blocks[order]
    steps = np.diff(ascending)
    is_apart = (steps > GAP) | (steps <= 0)
    if is_hole is not None and is_hole.any():
        upto = np.cumsum(is_hole)
        is_apart |= upto[ascending[1:] - 1] > upto[ascending[:-1]]
    for members in np.split(order, np.flatnonzero(is_apart) + 1):
        start = int(blocks[members[0]])
        stop = int(blocks[members[-1]]) + 1
        if len(members) < max(_SHORT, (stop - start) // 2):
            loose.append(members)
            continue
        stretches.append((start, stop))
        rows[:, members] = row + heads * (stop - start) + blocks[members] - start
        row += kv_heads * (stop - start)
    scattered = np.concatenate(loose) if loose else order[:0]
    gathered = []
    for at in range(0, len(scattered), _CHUNK):
        members = scattered[at : at + _CHUNK]
        gathered.append(torch.from_numpy(blocks[members]))
        rows[:, members] = row + heads * len(members) + np.arange(len(members))
        row += kv_heads * len(members)
    return stretches, gathered, rows


def _order(blocks: Ids) -> Ids:
    """Ascending as far as each comes first, then as each comes the second time, and so on."""
    order = np.argsort(blocks, kind="stable")
    ascending = blocks[order]
    times = np.arange(len(blocks)) - np.searchsorted(ascending, ascending)
    return order[np.argsort(times, kind="stable")] if times.any() else order


class StepAttention(Protocol):
    """Attention of one step, wherever KV lies."""

    @property
    def positions(self) -> torch.Tensor:
        """``[tokens]``, on the rank's device."""

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write ``k`` and ``v`` ``[tokens, KV heads, dim]``, attend with ``q`` ``[tokens, heads, dim]``.

        Returns ``[tokens, heads * dim]``.
        """


@dataclass(frozen=True, slots=True)
class _Prefill:
    rows: slice
    blocks: torch.Tensor
    bias: torch.Tensor  # [count, positions]


class Attention:
    """One step over a cache (see ``KvShape``), of which this rank has ``heads``."""

    def __init__(
        self, cache: torch.Tensor, heads: slice, spans: Sequence[Span], is_hole: NDArray[np.bool_] | None = None
    ) -> None:
        self._cache = cache
        self._heads = heads
        self._stack, self._block_size = cache.shape[4:6]
        counts = np.array([span.count for span in spans])
        firsts = np.cumsum(counts) - counts
        starts = np.array([span.start for span in spans])
        positions = np.repeat(starts - firsts, counts) + np.arange(counts.sum())
        self.positions = torch.from_numpy(positions)
        """``[tokens]``"""
        blocks = blocks_of_tokens(spans, counts, positions // self._block_size)
        if is_hole is not None:
            is_hole[blocks] = False
        slots = torch.from_numpy(blocks * self._stack * self._block_size + positions % self._block_size)
        self._slots = [slots + layer * self._block_size for layer in range(self._stack)]
        singles = [(span, row) for span, row in zip(spans, firsts.tolist(), strict=True) if span.count == 1]
        self._decodes = None
        if singles:
            kv_heads = len(range(cache.shape[2])[heads])
            self._decodes = Decodes([span for span, _ in singles], self._block_size, kv_heads, is_hole)
        self._rows = torch.tensor([row for _, row in singles])
        self._prefills = [
            self._prefill(span, row) for span, row in zip(spans, firsts.tolist(), strict=True) if span.count > 1
        ]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys, values = self._write(layer, k, v)
        if self._decodes and not self._prefills:
            return self._decodes.attend(q, keys, values).flatten(1)
        out = torch.empty_like(q)
        if self._decodes:
            out[self._rows] = self._decodes.attend(q[self._rows], keys, values)
        for chunk in self._prefills:
            out[chunk.rows] = self._attend_prefill(chunk, q[chunk.rows], keys, values)
        return out.flatten(1)

    def _write(self, layer: int, *new: torch.Tensor) -> list[torch.Tensor]:
        """Put K and V into their slots. Returns the layer's ``[KV heads, blocks, block size, dim]`` of both."""
        stack, within = divmod(layer, self._stack)
        slabs = self._cache[:, stack, self._heads]
        for slab, rows in zip(slabs, new, strict=True):
            slab.flatten(1, 3).index_copy_(1, self._slots[within], rows.transpose(0, 1))
        return [slab[:, :, within] for slab in slabs]

    def _attend_prefill(
        self, chunk: _Prefill, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        kv_heads, _, _, dim = keys.shape
        k, v = (pool.index_select(1, chunk.blocks).view(kv_heads, 1, -1, dim) for pool in (keys, values))
        grouped = q.view(len(q), kv_heads, -1, dim).permute(1, 2, 0, 3)
        shape = (-1, grouped.shape[1], -1, -1)  # the query heads of a KV head share it, uncopied
        out = F.scaled_dot_product_attention(grouped, k.expand(shape), v.expand(shape), attn_mask=chunk.bias)
        return out.permute(2, 0, 1, 3).reshape(q.shape)

    def _prefill(self, span: Span, row: int) -> _Prefill:
        used = -(-(span.start + span.count) // self._block_size)
        at = torch.arange(span.start, span.start + span.count).unsqueeze(1)
        hidden = torch.arange(used * self._block_size).unsqueeze(0) > at
        bias = torch.zeros(hidden.shape, dtype=self._cache.dtype).masked_fill_(hidden, float("-inf"))
        return _Prefill(slice(row, row + span.count), torch.tensor(span.table[:used]), bias)


def blocks_of_tokens(spans: Sequence[Span], counts: Ids, logical: Ids) -> Ids:
    """The block of each token, given its place in the sequence's table."""
    sizes = np.array([len(span.table) for span in spans])
    tables = np.fromiter(itertools.chain.from_iterable(span.table for span in spans), np.int64, sizes.sum())
    blocks: Ids = tables[np.repeat(np.cumsum(sizes) - sizes, counts) + logical]
    return blocks
