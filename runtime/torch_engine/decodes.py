"""Attention of one step's decodes: each KV block is attended to where it lies, and what the blocks say is merged.

The blocks of one sequence are scattered over the pool, but those of all sequences together lie close. So keys and values
are read in stretches of the pool, one small product per block and nothing copied; copies of that size would cost more
than the products. The softmax takes its maximum and its sum over the blocks of a sequence (as Flash-Decoding does), so
what a sequence gets does not depend on its neighbours.
"""

import itertools
from collections.abc import Iterator, Sequence

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

    def __init__(self, spans: Sequence[Span], block_size: int, kv_heads: int) -> None:
        """``spans`` have one token each."""
        self._count, self._kv_heads = len(spans), kv_heads
        last = np.array([span.start for span in spans])
        used = last // block_size + 1
        ids = [span.table[:number] for span, number in zip(spans, used.tolist(), strict=True)]
        blocks = np.fromiter(itertools.chain.from_iterable(ids), np.int64, used.sum())
        self._stretches, self._gathered, rows = _reading(blocks, kv_heads)
        self._sizes = [
            *(stop - start for start, stop in self._stretches for _ in range(kv_heads)),
            *(len(chunk) * kv_heads for chunk in self._gathered),
        ]
        ends, heads = np.cumsum(used), np.arange(kv_heads)[:, None]
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
        asked = grouped.index_select(0, self._owners)
        weights = asked.new_empty(*asked.shape[:2], size)
        parts = list(zip(asked.split(self._sizes), weights.split(self._sizes), strict=True))
        for (some, out), blocks in zip(parts, self._blocks(keys), strict=True):
            torch.bmm(some, blocks.transpose(1, 2), out=out)
        top = weights.add_(self._bias).amax(-1).index_select(0, self._table)
        top = top.view(len(grouped), -1, asked.shape[1]).amax(1)
        weights.sub_(top.index_select(0, self._owners).unsqueeze(-1)).exp_()
        total = self._summed(weights.sum(-1)).unsqueeze(-1)
        for (out, some), blocks in zip(parts, self._blocks(values), strict=True):
            torch.bmm(some, blocks, out=out)
        answer = self._summed(asked.flatten(1)).view(grouped.shape).div_(total)
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


def _reading(blocks: Ids, kv_heads: int) -> tuple[list[tuple[int, int]], list[torch.Tensor], Ids]:
    """Stretches of the pool to read where they lie, blocks to gather, and each block's rows ``[KV heads, blocks]``.

    A block that several sequences have comes several times, and is read as often.
    """
    order, heads = _order(blocks), np.arange(kv_heads)[:, None]
    rows = np.empty((kv_heads, len(blocks)), dtype=np.int64)
    stretches, loose, row = [], [], 0
    steps = np.diff(blocks[order])
    for members in np.split(order, np.flatnonzero((steps > GAP) | (steps <= 0)) + 1):
        start, stop = int(blocks[members[0]]), int(blocks[members[-1]]) + 1
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
