"""The block pool."""

import pytest

from runtime.kv.blocks import BlockPool


def test_taken_blocks_are_distinct_and_come_back() -> None:
    pool = BlockPool(4)
    first, second = pool.take(2), pool.take(2)
    assert len({*first, *second}) == 4
    pool.give_back(first)
    pool.check_integrity([second])
    assert pool.num_free == 2


def test_the_last_freed_blocks_are_taken_first_in_table_order() -> None:
    pool = BlockPool(8)
    table = pool.take(3)
    pool.give_back(table)
    assert pool.next_free(3) == table
    assert pool.take(3) == table


def test_a_version_stays_while_a_block_is_filled_and_rises_when_it_changes_hands() -> None:
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


def test_a_version_rises_when_a_filled_slot_is_written_again() -> None:
    pool = BlockPool(1)
    (block,) = pool.take(1)
    pool.written(block, 0, 3)
    before = pool.versions[block]
    pool.written(block, 1, 2)
    assert (pool.versions[block], pool.filled[block]) == (before + 1, 2)


def test_a_reserved_block_is_never_given_out() -> None:
    pool = BlockPool(3)
    scratch = pool.reserve()
    assert scratch not in pool.take(2)
    assert pool.num_free == 0


def test_integrity_notices_a_block_in_two_tables() -> None:
    pool = BlockPool(2)
    table = pool.take(1)
    with pytest.raises(AssertionError, match="lost or used twice"):
        pool.check_integrity([table, table])
