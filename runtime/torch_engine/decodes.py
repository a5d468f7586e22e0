"""Attention of one step's decodes: each KV block is attended to where it lies, and what the blocks say is merged.

The blocks of one sequence are scattered over the pool, but those of all sequences together lie close. So keys and values
are read in stretches of the pool, one small product per block and nothing copied; copies of that size would cost more
than the products. The softmax takes its maximum and its sum over the blocks of a sequence (as Flash-Decoding does).
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from numpy.typing import NDArray

from runtime.torch_engine.models import Span

_GAP = 8  # blocks of others that are computed in vain rather than end a stretch: a new one costs as much
_SHORT = 8  # stretches of fewer blocks are gathered instead
_CHUNK = 64  # blocks gathered at once: they stay in the cache until they are used

Ids = NDArray[np.int64]


_Piece = tuple[slice, slice | torch.Tensor]
"""Blocks that are read at once: their places among the step's, and where they lie: a stretch, or ids to gather."""


class Decodes:
    """Sequences that each add one token, over keys and values ``[KV heads, blocks, block size, dim]``."""

    def __init__(self, spans: Sequence[Span], block_size: int, kv_heads: int) -> None:
        """``spans`` have one token each."""
        self._count = len(spans)
        last = np.array([span.start for span in spans])
        used = last // block_size + 1
        owners = np.repeat(np.arange(len(spans)), used)
        ids = [span.table[:number] for span, number in zip(spans, used.tolist(), strict=True)]
        blocks = np.fromiter(itertools.chain.from_iterable(ids), dtype=np.int64, count=len(owners))
        self._pieces, at = _pieces(blocks)
        self._places = self._pieces[-1][0].stop
        self._owners = torch.zeros(self._places, dtype=torch.int64)  # what nobody owns is never looked at
        self._owners[at] = torch.from_numpy(owners)
        ends = np.cumsum(used)
        self._bias = torch.zeros(self._places, 1, block_size)
        past_end = np.arange(block_size) > (last % block_size)[:, None]
        self._bias[at[ends - 1], 0] = torch.from_numpy(np.where(past_end, -np.inf, 0.0)).float()
        self._set_bags(at, ends, used, kv_heads)

    def _set_bags(self, at: Ids, ends: Ids, used: Ids, kv_heads: int) -> None:
        """Which places belong to each sequence: as rows that are summed, and as a padded table."""
        heads = np.arange(kv_heads)[:, None]
        self._rows = torch.from_numpy((heads * self._places + at).ravel())
        self._offsets = torch.from_numpy((heads * len(at) + ends - used).ravel())
        column = np.arange(used.max())
        self._table = torch.from_numpy(
            at[(ends - used)[:, None] + np.minimum(column, used[:, None] - 1)].ravel()
        )

    def attend(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """``q`` ``[sequences, heads, dim]`` over the blocks of each sequence; returns the same shape."""
        kv_heads, _, size, dim = keys.shape
        grouped = (q * dim**-0.5).view(self._count, kv_heads, -1, dim).transpose(0, 1)
        asked = grouped.index_select(1, self._owners)
        weights = asked.new_empty(*asked.shape[:3], size)
        for head, places, blocks in self._blocks(keys):
            torch.bmm(asked[head, places], blocks.transpose(1, 2), out=weights[head, places])
        top = weights.add_(self._bias).amax(-1).index_select(1, self._table)
        top = top.view(kv_heads, self._count, -1, grouped.shape[2]).amax(2)
        weights.sub_(top.index_select(1, self._owners).unsqueeze(-1)).exp_()
        total = self._summed(weights.sum(-1, keepdim=True))
        for head, places, blocks in self._blocks(values):
            torch.bmm(weights[head, places], blocks, out=asked[head, places])
        return self._summed(asked).div_(total).transpose(0, 1).reshape(q.shape)

    def _blocks(self, pool: torch.Tensor) -> Iterator[tuple[int, slice, torch.Tensor]]:
        """``[blocks, block size, dim]`` of ``pool`` for some places, head by head: the pool lies so."""
        for places, where in self._pieces:
            for head, own in enumerate(pool):
                yield head, places, own[where] if isinstance(where, slice) else own.index_select(0, where)

    def _summed(self, parts: torch.Tensor) -> torch.Tensor:
        """Sums of ``[KV heads, places, rows, columns]`` over the places of each sequence, in their order."""
        kv_heads, _, rows, columns = parts.shape
        total = F.embedding_bag(self._rows, parts.view(-1, rows * columns), self._offsets, mode="sum")
        return total.view(kv_heads, self._count, rows, columns)


def _pieces(blocks: Ids) -> tuple[list[_Piece], Ids]:
    """How to read these blocks, and the place that each of them gets."""
    order = np.argsort(blocks)
    pieces: list[_Piece] = []
    loose = []
    place, places = 0, np.empty_like(blocks)
    for stretch in np.split(order, np.flatnonzero(np.diff(blocks[order]) > _GAP) + 1):
        if len(stretch) < _SHORT:
            loose.append(stretch)
            continue
        first, last = int(blocks[stretch[0]]), int(blocks[stretch[-1]])
        pieces.append((slice(place, place + last - first + 1), slice(first, last + 1)))
        places[stretch] = blocks[stretch] - first + place
        place = pieces[-1][0].stop
    gathered = np.concatenate(loose) if loose else order[:0]
    places[gathered] = np.arange(place, place + len(gathered))
    for at in range(0, len(gathered), _CHUNK):
        chunk = gathered[at : at + _CHUNK]
        pieces.append((slice(place + at, place + at + len(chunk)), torch.from_numpy(blocks[chunk])))
    return pieces, places
