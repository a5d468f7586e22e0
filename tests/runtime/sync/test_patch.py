"""Patch bookkeeping: whatever the order of writes and copies, nothing that was written stays uncopied."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.blocks import BlockPool
from runtime.sync.patch import PatchSync

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5)),
        st.tuples(st.just("copy"), st.integers(1, 3)),
        st.tuples(st.just("torn"), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_after_the_last_patch_the_target_has_every_byte(events: list[tuple[str, int]]) -> None:
    pool = BlockPool(6)
    table = pool.take(6)
    sync = PatchSync(pool.versions)
    source, target = dict.fromkeys(table, 0), dict.fromkeys(table, -1)

    def copy(blocks: list[int]) -> None:
        sync.ordered(blocks)
        target.update({block: source[block] for block in blocks})

    for clock, (kind, argument) in enumerate(events, start=1):
        match kind:
            case "write":
                source[argument] = clock
                pool.written([argument])
            case "copy":
                copy(sync.behind([table])[:argument])
            case "torn":  # the copy is ordered while a write is under way, and reads half of it
                sync.ordered([argument])
                target[argument] = -clock
                source[argument] = clock
                pool.written([argument])
    copy(sync.behind([table]))
    assert target == source
    assert sync.behind([table]) == []


def test_a_block_that_changed_hands_is_copied_again() -> None:
    pool = BlockPool(2)
    table = pool.take(1)
    sync = PatchSync(pool.versions)
    sync.ordered(table)
    pool.give_back(table)
    assert pool.take(1) == table
    assert sync.behind([table]) == table


def test_lag_counts_whole_blocks_never_copied_and_single_writes_after() -> None:
    pool = BlockPool(4)
    table = pool.take(2)
    sync = PatchSync(pool.versions)
    assert sync.tokens(sync.behind([table]), 32) == 64
    sync.ordered(table)
    pool.written(table[:1])
    pool.written(table[:1])
    assert sync.tokens(sync.behind([table]), 32) == 2
