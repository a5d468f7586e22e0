"""The block pool."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.blocks import BlockPool


def test_the_last_freed_blocks_are_taken_first_in_table_order():
    pool = BlockPool(8)
    table = pool.take(3)
    pool.give_back(table)
    assert pool.next_free(3) == table
    assert pool.take(3) == table


def test_a_version_stays_while_a_block_is_filled_and_rises_when_it_changes_hands():
    pool = BlockPool(2)
    (block,) = pool.take(1)
    taken = pool.versions[block]
    pool.written(block, 0, 3)
    pool.written(block, 3, 4)
    assert (pool.versions[block], pool.filled[block]) == (taken, 4)
    pool.give_back([block])
    assert pool.filled[block] == 0
    assert pool.take(1) == [block]
    assert (pool.versions[block], pool.filled[block]) == (taken + 1, 0)


def test_a_version_rises_when_a_filled_slot_is_written_again():
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.written(block, 0, 3)
    before = pool.versions[block]
    pool.written(block, 1, 2)
    assert (pool.versions[block], pool.filled[block]) == (before + 1, 2)


def test_between_are_the_ids_that_attention_reads_over():
    pool = BlockPool(30)
    for block in pool.take(30):
        pool.written(block, 0, 1)
    pool.give_back([1, 4, 5, *range(10, 20), 29])
    assert pool.between(3) == [1, 4, 5]
    assert pool.between(11) == [1, 4, 5, *range(10, 20)]
    pool.resize(27)
    assert pool.retired == {29, 19, 18}
    assert pool.between(11) == [1, 4, 5, *range(10, 18)]


def test_integrity_notices_a_block_in_two_tables():
    pool = BlockPool(2)
    table = pool.take(1)
    with pytest.raises(AssertionError, match="lost or used twice"):
        pool.check_integrity([table, table])


def test_integrity_notices_a_retired_block_in_a_table():
    pool = BlockPool(4)
    pool.resize(3)
    table = pool.take(3)
    pool.check_integrity([table])
    with pytest.raises(AssertionError, match="lost or used twice"):
        pool.check_integrity([[*table[:2], *pool.retired]])


def test_blocks_that_lie_together_retire_and_warm_ones_are_taken_first():
    pool = BlockPool(8)
    table = pool.take(3)
    pool.give_back(table)
    pool.resize(4)
    assert pool.retired == {4, 5, 6, 7}
    pool.resize(6)
    assert pool.take(6) == [0, 1, 2, 3, 4, 5]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.just("give back"), st.integers(0, 20)),
        st.tuples(st.just("resize"), st.integers(0, 15)),
    ),
    max_size=40,
)


@pytest.mark.slow
@given(OPERATIONS)
def test_no_block_is_lost_or_used_twice_and_the_capacity_converges(steps):
    pool = BlockPool(16)
    scratch = pool.reserve()
    tables: deque[list[int]] = deque()
    for what, amount in steps:
        live = [list(table) for table in tables]
        if what == "take" and amount <= pool.num_free:
            taken = pool.take(amount)
            assert not {*taken} & (pool.retired | {scratch})
            tables.append(taken)
        elif what == "give back" and tables:
            tables.rotate(amount)
            pool.give_back(tables.popleft())
        elif what == "resize":
            pool.resize(amount)
            assert [list(table) for table in tables] == live
        used = sum(map(len, tables))
        assert not pool.retired & {block for table in tables for block in table}
        assert pool.num_blocks == max(pool.capacity, used)
        assert pool.num_free == pool.num_blocks - used
        assert pool.num_blocks + len(pool.retired) == 15
        pool.check_integrity(tables)
    while tables:
        pool.give_back(tables.pop())
    assert pool.num_blocks == pool.num_free == pool.capacity
    pool.resize(15)
    assert {*pool.take(15), scratch} == set(range(16))
