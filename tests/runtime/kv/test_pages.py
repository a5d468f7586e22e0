"""Runs of blocks, the whole pages in them, and how well blocks fill what a device allocates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.resize import utilisation
from runtime.kv.pages import chunk_blocks, holes, runs
from tests.rows import rows


def test_runs_are_as_long_as_they_go_and_have_something_new():
    assert runs([7, 1, 2, 3, 5, 8], {2, 8}) == [(1, 4), (7, 9)]
    assert runs([], {1}) == []


def test_only_whole_pages_inside_a_run_are_holes():
    assert list(holes([(0, 1024)], [(1, 9), (12, 15)], page=4096)) == [(4096, 8192)]
    assert list(holes([(1000, 10_000)], [(0, 1)], page=4096)) == [(4096, 8192)]
    assert list(holes([(0, 4096), (65_536, 4096)], [(3, 5)], page=4096)) == [
        (12_288, 20_480),
        (77_824, 86_016),
    ]


@pytest.mark.slow
@given(
    st.integers(1, 700),
    st.sets(st.integers(0, 60), min_size=1),
    st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True),
    st.integers(0, 400),
)
def test_holes_are_the_pages_all_of_whose_bytes_are_in_the_runs(size, blocks, slabs, after):
    page, bases = 256, [number * 61 * size for number in sorted(slabs)]
    inside = {base + block * size + at for base in bases for block in blocks for at in range(size)}
    last = max(inside) // page
    # a page across two slabs is left: a slab's holes lie within the slab
    whole = {
        number
        for number in range(after, last + 1)
        for base in bases
        if inside.issuperset(range(number * page, (number + 1) * page))
        and base <= number * page
        and (number + 1) * page <= base + 61 * size
    }
    found = holes([(base, size) for base in bases], runs(blocks, blocks), page, after * page)
    pages = [number for start, end in found for number in range(start // page, end // page)]
    assert pages == sorted(whole)


@rows(
    ("num_layers", "stack", "share"),
    [
        (80, 1, 0.25),  # 64 KiB in 256 KiB
        (80, 2, 0.5),
        (80, 4, 1.0),
        (80, 5, 0.625),  # 320 KiB in 512 KiB
        (80, 32, 80 / 96),  # the last stack has 16 layers and takes as much as 32
        (3, 4, 0.75),
    ],
)
def test_utilisation_by_layers_to_a_stack(num_layers, stack, share):
    assert utilisation(num_layers, stack, 64 << 10, 256 << 10) == share


def test_as_many_blocks_lie_together_as_fill_what_is_allocated_at_once():
    assert [chunk_blocks(size, 2 << 20) for size in (8192, 24_576, 2 << 20, 3 << 20)] == [256, 85, 1, 1]
