"""Paged attention of one step: write this step's K and V into their blocks, then attend over each sequence's table.

Decodes attend together (see ``decodes``), prefill chunks one by one. Everything that does not depend on the layer is
computed once per step.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.torch_engine.decodes import Decodes, Ids
from runtime.torch_engine.models import Span


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

    def __init__(self, cache: torch.Tensor, heads: slice, spans: Sequence[Span]) -> None:
        self._cache, self._heads = cache, heads
        self._stack, self._block_size = cache.shape[4:6]
        counts = np.array([span.count for span in spans])
        firsts = np.cumsum(counts) - counts
        starts = np.array([span.start for span in spans])
        positions = np.repeat(starts - firsts, counts) + np.arange(counts.sum())
        self.positions = torch.from_numpy(positions)
        """``[tokens]``"""
        blocks = blocks_of_tokens(spans, counts, positions // self._block_size)
        slots = torch.from_numpy(blocks * self._stack * self._block_size + positions % self._block_size)
        self._slots = [slots + layer * self._block_size for layer in range(self._stack)]
        singles = [(span, row) for span, row in zip(spans, firsts.tolist(), strict=True) if span.count == 1]
        self._decodes = None
        if singles:
            kv_heads = len(range(cache.shape[2])[heads])
            self._decodes = Decodes([span for span, _ in singles], self._block_size, kv_heads)
        self._rows = torch.tensor([row for _, row in singles])
        self._prefills = [
            self._prefill(span, row)
            for span, row in zip(spans, firsts.tolist(), strict=True)
            if span.count > 1
        ]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See the protocol."""
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
