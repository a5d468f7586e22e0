"""Paged attention of one step on a GPU.

Kernels read and write blocks by their ids, in the chunks where they lie.

Decodes and prefill chunks run the same kernel, the latter in tiles of queries. A long context is read by one program for
each KV head: it is not split over programs (as Flash-Decoding does).
"""

from collections.abc import Sequence

import numpy as np
import torch

from runtime.kv.chunks import ChunkedStore
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import blocks_of_tokens

_LEAST = 16
"""Rows and columns of the smallest product that tensor cores compute."""


class ChunkedAttention:
    """One step over a store, of which this rank has ``heads``; computes what ``Attention`` does."""

    def __init__(self, store: ChunkedStore, heads: slice, spans: Sequence[Span]) -> None:
        self._store = store
        self._heads = heads
        counts = np.array([span.count for span in spans])
        firsts = np.cumsum(counts) - counts
        starts = np.array([span.start for span in spans])
        positions = np.repeat(starts - firsts, counts) + np.arange(counts.sum())
        sizes = np.array([len(span.table) for span in spans])
        offsets = np.cumsum(sizes) - sizes
        self._tables = self._put(np.concatenate([np.array(span.table, np.int64) for span in spans]))
        self.positions = self._put(positions)
        """``[tokens]``"""
        self._blocks = self._put(blocks_of_tokens(spans, counts, positions // store.shape.block_size))
        self._sequences = np.stack((firsts, starts, counts, offsets), axis=1)
        self._tiles: dict[int, list[tuple[int, torch.Tensor]]] = {}

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        from runtime.kv import kernels

        shape = self._store.shape
        tokens, kv_heads, dim = k.shape
        stack, within = divmod(layer, shape.stack)
        chunks = self._store.table[stack, self._heads]
        width = max(_LEAST, _power_of_two(dim))
        layout = {
            "STACK": shape.stack,
            "BLOCK_SIZE": shape.block_size,
            "CHUNK_BLOCKS": self._store.chunk_blocks,
            "DIM": dim,
            "WIDTH": width,
        }
        kernels.write[tokens, kv_heads](
            k, v, self._blocks, self.positions, chunks, k.stride(0), v.stride(0), chunks.stride(0), within, **layout
        )
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        group = q.shape[1] // kv_heads
        for rows, tiles in self._tiled(group):
            kernels.attend[len(tiles), kv_heads](
                out, q, tiles, self._tables, chunks, out.stride(0), q.stride(0), chunks.stride(0), within, dim**-0.5,
                GROUP=group, ROWS=rows, COLUMNS=128 // q.element_size(), **layout, num_stages=2,
            )  # fmt: skip
        return out.flatten(1)

    def _tiled(self, group: int) -> list[tuple[int, torch.Tensor]]:
        """Decodes, and prefill chunks cut into tiles: rows of a tile, and the tiles (see the kernel)."""
        if group not in self._tiles:
            decodes = self._sequences[self._sequences[:, 2] == 1]
            chunks = self._sequences[self._sequences[:, 2] > 1]
            rows = max(_LEAST, _power_of_two(group))
            wide = max(rows, 128 // self._store.shape.dtype.itemsize)
            both = (rows, decodes), (wide, _cut(chunks, wide // group))
            self._tiles[group] = [(rows, self._put(tiles)) for rows, tiles in both if len(tiles)]
        return self._tiles[group]

    def _put(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.int64)).to(self._store.device)


def _cut(sequences: np.ndarray, most: int) -> np.ndarray:
    """The same tokens in tiles of ``most`` at most."""
    counts = -(-sequences[:, 2] // most)
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    tiles = np.repeat(sequences, counts, axis=0)
    done = number * most
    left = np.minimum(tiles[:, 2] - done, most)
    return np.stack((tiles[:, 0] + done, tiles[:, 1] + done, left, tiles[:, 3]), axis=1)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
