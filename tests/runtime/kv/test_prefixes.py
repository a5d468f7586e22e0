"""Prefix caching: what is found has exactly the tokens that were asked for, whatever happened to its block before."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.kv.blocks import BlockPool
from runtime.kv.prefixes import BlockHash, PrefixCache, hash_block
from tests.tries import tries

SIZE = 2
BLOCKS = 8

Tokens = tuple[int, ...]


def prefixes_of(tokens: Sequence[int]) -> list[Tokens]:
    """What each full block stands for: its tokens and all before them."""
    return [tuple(tokens[:stop]) for stop in range(SIZE, len(tokens) + 1, SIZE)]


def hashes_of(tokens: Sequence[int]) -> list[BlockHash]:
    found = [b""]
    for prefix in prefixes_of(tokens):
        found.append(hash_block(found[-1], prefix[-SIZE:]))
    return found[1:]


def written(pool: BlockPool, tokens: Sequence[int]) -> list[int]:
    """A table whose blocks hold these tokens, all cached."""
    hashes = hashes_of(tokens)
    table = pool.take(len(hashes))
    for block_hash, block in zip(hashes, table, strict=True):
        pool.written(block, 0, SIZE)
        pool.cache(block_hash, block)
    return table


def test_a_hash_tells_the_tokens_of_a_block_and_all_before_it():
    texts = [(1, 2, 3, 4), (2, 1, 3, 4), (1, 2, 4, 3), (1, 2, 3, 4 + (1 << 16)), (1, 2)]
    assert len({hashes_of(text)[-1] for text in texts}) == len(texts)
    assert hashes_of((1, 2, 3, 4))[0] == hashes_of((1, 2, 9, 9))[0]
    assert len(hashes_of((1, 2))[0]) == 16


def test_the_longest_prefix_ends_where_a_block_is_missing():
    cache, hashes = PrefixCache(), hashes_of((1, 2, 3, 4, 5, 6))
    for block, block_hash in enumerate(hashes):
        cache.add(block_hash, block)
    assert cache.longest(hashes) == [0, 1, 2]
    cache.drop(1)
    assert cache.longest(hashes) == [0]
    assert 1 not in cache
    assert cache.longest([]) == []


def test_the_same_prefix_in_a_second_block_is_not_found():
    cache, (block_hash,) = PrefixCache(), hashes_of((1, 2))
    cache.add(block_hash, 0)
    cache.add(block_hash, 1)
    assert 1 not in cache
    assert cache.longest([block_hash]) == [0]


def test_a_cached_block_is_never_written():
    pool = BlockPool(BLOCKS)
    (block,) = written(pool, (1, 2))
    with pytest.raises(AssertionError, match="which is cached"):
        pool.written(block, 1, 2)


def test_retired_and_forgotten_blocks_are_not_found_and_go_before_cached_ones():
    pool = BlockPool(BLOCKS)
    table = written(pool, (1, 2, 3, 4, 5, 6, 7, 8))
    pool.give_back(table)
    pool.forget(table[3:])
    assert pool.find(hashes_of((1, 2, 3, 4, 5, 6, 7, 8))) == table[:3]
    pool.resize(2)
    assert pool.find(hashes_of((1, 2, 3, 4, 5, 6, 7, 8))) == table[:2]
    pool.resize(BLOCKS)
    assert pool.next_free(BLOCKS)[6:] == [table[1], table[0]]
    pool.check_integrity([])


class World:
    """A pool, what its blocks hold, and plain books of what should be cached."""

    def __init__(self) -> None:
        self.pool = BlockPool(BLOCKS)
        self.tables: list[list[int]] = []
        self.holds: dict[tuple[int, int], Tokens] = {}
        """(Block, version) to what was written there."""
        self.known: dict[Tokens, int] = {}
        self.unused: list[int] = []
        """Free blocks that are cached, the least recently used first."""

    def admit(self, tokens: Tokens) -> None:
        hashes, prefixes = hashes_of(tokens), prefixes_of(tokens)
        found = self.pool.find(hashes)
        expected = [self.known[prefix] for prefix in prefixes if prefix in self.known]
        assert found == expected[: len(found)]
        assert len(found) == len(prefixes) or prefixes[len(found)] not in self.known
        lacking = len(prefixes) - len(found)
        if self.pool.num_free - len({*found} & {*self.unused}) < lacking:
            return
        self.pool.share(found)
        self.unused = [block for block in self.unused if block not in found]
        for block, prefix in zip(found, prefixes, strict=False):
            assert self.holds[block, self.pool.versions[block]] == prefix
            assert self.pool.filled[block] == SIZE
        self.tables.append(found + self.take(lacking))
        for block_hash, prefix, block in list(zip(hashes, prefixes, self.tables[-1], strict=True))[len(found) :]:
            self.pool.written(block, 0, SIZE)
            assert self.holds.setdefault((block, self.pool.versions[block]), prefix) == prefix
            self.pool.cache(block_hash, block)
            self.known.setdefault(prefix, block)

    def take(self, count: int) -> list[int]:
        victims = self.unused[: max(count - (self.pool.num_free - len(self.unused)), 0)]
        ahead, taken = self.pool.next_free(count), self.pool.take(count)
        assert taken == ahead
        assert not {*taken} & {block for table in self.tables for block in table}
        assert {*taken} & {*self.unused} == {*victims}
        self.lose(victims)
        return taken

    def finish(self, number: int) -> None:
        table = self.tables.pop(number % len(self.tables))
        self.pool.give_back(table)
        used = {block for other in self.tables for block in other}
        self.unused += [b for b in reversed(table) if b not in used and b in self.known.values()]
        self.lose(self.pool.retired)

    def lose(self, blocks: Sequence[int] | set[int]) -> None:
        self.unused = [block for block in self.unused if block not in blocks]
        self.known = {prefix: block for prefix, block in self.known.items() if block not in blocks}

    def turn(self, what: str, argument: int, tokens: Tokens) -> None:
        match what:
            case "admit":
                self.admit(tokens)
            case "finish" if self.tables:
                self.finish(argument)
            case "resize":
                self.pool.resize(argument)
                self.lose(self.pool.retired)
            case "forget":
                gone = self.unused[:argument]
                self.pool.forget(gone)
                self.lose(gone)
        self.pool.check_integrity(self.tables)
        assert list(self.pool.cached) == self.unused
        assert self.pool.num_blocks == max(self.pool.capacity, len({b for t in self.tables for b in t}))


TURNS = st.tuples(
    st.sampled_from(("admit", "admit", "admit", "finish", "finish", "resize", "forget")),
    st.integers(0, BLOCKS),
    st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple),
)


@pytest.mark.slow
@tries(750)
@given(st.lists(TURNS, max_size=60))
def test_a_hit_has_the_tokens_asked_for_and_no_block_goes_to_two_that_write(turns):
    world = World()
    for turn in turns:
        world.turn(*turn)
    while world.tables:
        world.turn("finish", 0, ())
    assert world.pool.num_free == world.pool.num_blocks == world.pool.capacity
