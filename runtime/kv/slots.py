"""Where tokens lie in a slab that stacks several layers. Pure."""

import numpy as np
from numpy.typing import NDArray

Runs = NDArray[np.int64]
"""``[runs, 2]``: the first number of each run and the one after its last."""


def stacked(runs: Runs, block_size: int, stack: int) -> Runs:
    """Runs of tokens (block x block size + position) as runs of slots in a slab of ``stack`` layers.

    Whole blocks lie together with all their layers, and a part of a block once for each layer.
    """
    if stack == 1:
        return runs
    starts, stops = runs.T
    inner, outer = -(-starts // block_size) * block_size, stops // block_size * block_size
    whole = np.stack((inner, outer), axis=1)[inner < outer] * stack
    heads = np.stack((starts, np.minimum(inner, stops)), axis=1)
    tails = np.stack((np.maximum(outer, inner), stops), axis=1)  # a run within one block is all head
    parts = np.concatenate((heads, tails))
    parts = parts[parts[:, 0] < parts[:, 1]]
    blocks = parts[:, :1] // block_size
    first = parts + blocks * (stack - 1) * block_size  # in the block's first layer
    layers = np.arange(stack)[:, None, None] * block_size
    return np.concatenate((whole, (first + layers).reshape(-1, 2)))


def parts_of_blocks(runs: Runs, block_size: int) -> Runs:
    """Runs of tokens as ``[parts, 3]``: a block, the first position in it and the one after the last."""
    first, last = runs[:, 0] // block_size, -(-runs[:, 1] // block_size)
    counts = last - first
    number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    blocks = np.repeat(first, counts) + number
    starts = np.maximum(np.repeat(runs[:, 0], counts) - blocks * block_size, 0)
    stops = np.minimum(np.repeat(runs[:, 1], counts) - blocks * block_size, block_size)
    return np.stack((blocks, starts, stops), axis=1)
