"""Which whole pages a set of blocks fills, and how well blocks fill what a device allocates. Pure.

Memory goes back by the page. A block of one slab may be smaller than a page or lie across two, so only the pages
wholly inside a run of neighbouring block ids can be returned. Byte ranges are half-open.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_GATHERED_SLOTS = 16
"""Runs shorter than this are gathered and scattered together, longer ones are copied one by one."""


def runs(blocks: Iterable[int], touching: Collection[int]) -> list[tuple[int, int]]:
    """The longest runs ``[start, end)`` of neighbouring ids in ``blocks``.

    Those that have an id of ``touching`` in them.
    """
    found: list[tuple[int, int]] = []
    wanted: list[bool] = []
    for block in sorted(blocks):
        if found and found[-1][1] == block:
            found[-1] = found[-1][0], block + 1
            wanted[-1] |= block in touching
        else:
            found.append((block, block + 1))
            wanted.append(block in touching)
    return [run for run, is_wanted in zip(found, wanted, strict=True) if is_wanted]


def holes(
    slabs: Sequence[tuple[int, int]], runs: Sequence[tuple[int, int]], page: int, after: int = 0
) -> Iterator[tuple[int, int]]:
    """The whole pages of runs of blocks in each slab, ascending, as byte ranges from ``after`` on.

    ``slabs`` are (first byte, bytes of one block), ascending; ``runs`` ascending block ranges; ``after`` a multiple of ``page``.
    """
    for base, size in slabs:
        if base + runs[-1][1] * size <= after:
            continue
        for first, last in runs:
            start = max(after, -(-(base + first * size) // page) * page)
            end = (base + last * size) // page * page
            if start < end:
                yield start, end


def chunk_blocks(block_bytes: int, granularity: int) -> int:
    """Neighbouring blocks that are allocated together.

    As many as fill what a device allocates at once, or one that is larger.
    """
    return max(1, granularity // block_bytes)


Runs = NDArray[np.int64]
"""``[runs, 2]``: the first number of each run and the one after its last."""


def stacked(runs: Runs, block_size: int, stack: int) -> Runs:
    """Runs of tokens (block x block size + position) as runs of slots in a slab of ``stack`` layers.

    Whole blocks lie together with all their layers, and a part of a block once for each layer.
    """
    if stack == 1:
        return runs
    starts, stops = runs.T
    inner = -(-starts // block_size) * block_size
    outer = stops // block_size * block_size
    whole = np.stack((inner, outer), axis=1)[inner < outer] * stack
    heads = np.stack((starts, np.minimum(inner, stops)), axis=1)
    tails = np.stack((np.maximum(outer, inner), stops), axis=1)  # a run within one block is all head
    parts = np.concatenate((heads, tails))
    parts = parts[parts[:, 0] < parts[:, 1]]
    blocks = parts[:, :1] // block_size
    first = parts + blocks * (stack - 1) * block_size  # in the block's first layer
    layers = np.arange(stack)[:, None, None] * block_size
    return np.concatenate((whole, (first + layers).reshape(-1, 2)))


def apart(slots: Runs) -> tuple[Runs, NDArray[np.int64]]:
    """The runs that are best copied one by one, and the slots of the shorter ones, all together."""
    lengths = slots[:, 1] - slots[:, 0]
    short = slots[lengths < _GATHERED_SLOTS]
    return slots[lengths >= _GATHERED_SLOTS], np.concatenate([np.arange(0), *(np.arange(*run) for run in short)])


def parts_of_blocks(runs: Runs, block_size: int) -> Runs:
    """Runs of tokens as ``[parts, 3]``: a block, the first position in it and the one after the last."""
    first = runs[:, 0] // block_size
    last = -(-runs[:, 1] // block_size)
    counts = last - first
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = np.repeat(first, counts) + number
    starts = np.maximum(np.repeat(runs[:, 0], counts) - blocks * block_size, 0)
    stops = np.minimum(np.repeat(runs[:, 1], counts) - blocks * block_size, block_size)
    return np.stack((blocks, starts, stops), axis=1)
