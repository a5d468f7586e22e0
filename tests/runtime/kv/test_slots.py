"""Tokens of a stacked slab, against a slab that is laid out as it is described."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.pages import parts_of_blocks, stacked

BLOCKS = 6


@st.composite
def tokens(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Runs that neither touch nor overlap, and the block size."""
    size = draw(st.integers(1, 5))
    cuts = sorted(draw(st.sets(st.integers(0, BLOCKS * size), max_size=10)))
    pairs = [cuts[at : at + 2] for at in range(0, len(cuts) - 1, 2)]
    return np.array(pairs, np.int64).reshape(-1, 2), size


@given(tokens(), st.integers(1, 4))
def test_every_token_is_found_once_in_every_layer(drawn, stack):
    runs, size = drawn
    slab = np.arange(BLOCKS * stack * size).reshape(BLOCKS, stack, size)
    by_token = slab.transpose(0, 2, 1).reshape(-1, stack)
    want = sorted(slot for start, stop in runs for slot in by_token[start:stop].ravel())
    assert sorted(slot for run in stacked(runs, size, stack) for slot in np.arange(*run)) == want


def test_whole_blocks_stay_one_run():
    assert stacked(np.array([[8, 32]]), 8, 3).tolist() == [[24, 96]]


@given(tokens())
def test_parts_of_blocks_are_the_tokens_of_the_runs(drawn):
    runs, size = drawn
    parts = parts_of_blocks(runs, size).tolist()
    assert [block * size + at for block, start, stop in parts for at in range(start, stop)] == [
        token for run in runs for token in range(*run)
    ]
    assert all(0 <= start < stop <= size for _, start, stop in parts)
