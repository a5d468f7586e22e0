"""Paged attention of one step: write this step's K and V into their blocks, then attend over each sequence's table.

Decodes are batched: their blocks are gathered into one padded tensor per group of similar lengths. Prefill chunks
attend one by one. Everything that does not depend on the layer is computed once per step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.torch_engine.models import Span

_GROUP = 16  # sequences gathered at once: larger groups cost page faults and padding


@dataclass(frozen=True, slots=True)
class _Decodes:
    rows: torch.Tensor  # [n] rows of the step
    blocks: torch.Tensor  # [n * blocks] ids
    bias: torch.Tensor  # [1, n, 1, positions]: 0 or -inf
    shape: tuple[int, int]  # n, blocks per sequence


@dataclass(frozen=True, slots=True)
class _Prefill:
    rows: slice
    blocks: torch.Tensor
    bias: torch.Tensor  # [count, positions]


class Attention:
    """One step over a cache ``[2, layers, KV heads, blocks, block size, dim]``, of which this rank has ``heads``."""

    def __init__(self, cache: torch.Tensor, heads: slice, spans: Sequence[Span]) -> None:
        self._cache, self._heads = cache, heads
        self._block_size, self._dim = cache.shape[4], cache.shape[5]
        starts = [0]
        for span in spans:
            starts.append(starts[-1] + span.count)
        self.positions = torch.cat([torch.arange(span.start, span.start + span.count) for span in spans])
        """``[tokens]``"""
        self._slots = torch.cat([self._slots_of(span) for span in spans])
        placed = list(zip(spans, starts[:-1], strict=True))
        single = sorted(((s, row) for s, row in placed if s.count == 1), key=lambda item: item[0].start)
        groups = [single[i : i + _GROUP] for i in range(0, len(single), _GROUP)]
        self._decodes = [self._decode_group(group) for group in groups]
        self._prefills = [self._prefill(span, row) for span, row in placed if span.count > 1]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write ``k`` and ``v`` ``[tokens, KV heads, dim]``, attend with ``q`` ``[tokens, heads, dim]``.

        Returns ``[tokens, heads * dim]``.
        """
        keys, values = self._cache[0, layer, self._heads], self._cache[1, layer, self._heads]
        keys.flatten(1, 2).index_copy_(1, self._slots, k.transpose(0, 1))
        values.flatten(1, 2).index_copy_(1, self._slots, v.transpose(0, 1))
        out = torch.empty_like(q)
        for group in self._decodes:
            out[group.rows] = self._attend_decodes(group, q[group.rows], keys, values)
        for chunk in self._prefills:
            out[chunk.rows] = self._attend_prefill(chunk, q[chunk.rows], keys, values)
        return out.flatten(1)

    def _attend_decodes(
        self, group: _Decodes, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        n, blocks = group.shape
        kv_heads = keys.shape[0]
        shape = (kv_heads, n, blocks * self._block_size, self._dim)
        k = keys.index_select(1, group.blocks).view(shape)
        v = values.index_select(1, group.blocks).view(shape)
        grouped = q.view(n, kv_heads, -1, self._dim).transpose(0, 1)
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=group.bias)
        return out.transpose(0, 1).reshape(q.shape)

    def _attend_prefill(
        self, chunk: _Prefill, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> torch.Tensor:
        count, heads = q.shape[0], q.shape[1]
        k = keys.index_select(1, chunk.blocks).flatten(1, 2)
        v = values.index_select(1, chunk.blocks).flatten(1, 2)
        repeat = heads // keys.shape[0]
        k, v = (x.repeat_interleave(repeat, dim=0) for x in (k, v))
        out = F.scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=chunk.bias)
        return out.transpose(0, 1).reshape(count, heads, self._dim)

    def _slots_of(self, span: Span) -> torch.Tensor:
        at = torch.arange(span.start, span.start + span.count)
        table = torch.tensor(span.table)
        return table[at // self._block_size] * self._block_size + at % self._block_size

    def _decode_group(self, group: Sequence[tuple[Span, int]]) -> _Decodes:
        blocks = max(span.start // self._block_size + 1 for span, _ in group)
        table = torch.zeros(len(group), blocks, dtype=torch.int64)
        for row, (span, _) in enumerate(group):
            used = span.start // self._block_size + 1
            table[row, :used] = torch.tensor(span.table[:used])
        lengths = torch.tensor([span.start + 1 for span, _ in group])
        hidden = torch.arange(blocks * self._block_size) >= lengths.unsqueeze(1)
        bias = torch.zeros(hidden.shape, dtype=self._cache.dtype).masked_fill_(hidden, float("-inf"))
        rows = torch.tensor([row for _, row in group])
        return _Decodes(rows, table.flatten(), bias[None, :, None, :], (len(group), blocks))

    def _prefill(self, span: Span, row: int) -> _Prefill:
        used = -(-(span.start + span.count) // self._block_size)
        at = torch.arange(span.start, span.start + span.count).unsqueeze(1)
        hidden = torch.arange(used * self._block_size).unsqueeze(0) > at
        bias = torch.zeros(hidden.shape, dtype=self._cache.dtype).masked_fill_(hidden, float("-inf"))
        return _Prefill(slice(row, row + span.count), torch.tensor(span.table[:used]), bias)
