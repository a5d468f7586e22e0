"""The block pool: which KV blocks are free, and what is written in the others. Pure.

A block id holds for the whole engine; where its bytes live is the topology's business. The pool shrinks by retiring
free ids, whichever they are, and grows by taking them back, so no live block ever moves.
"""

import heapq
from array import array
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, takewhile

import numpy as np

from runtime.kv.prefixes import BlockHash, PrefixCache


@dataclass(frozen=True, slots=True)
class PoolContents:
    """What a pool holds, for another one of as many block ids to go on with; tables tell what is in use."""

    free: list[int]
    """The next to be taken last; those that are cached aside."""
    cached: list[tuple[int, int]]
    """Free blocks that are cached and how far each is filled, the least recently used first."""
    filled: dict[int, int]
    """Blocks in tables: how far each is filled."""
    hashes: dict[int, BlockHash]
    """Of the blocks that can be found."""


class BlockPool:
    """Free block ids, and per block a version and how far it is filled.

    The last freed is taken first, so that warm memory is reused.

    A block is filled slot by slot. While its version stays, slots that are filled keep their bytes: who copied them
    has them. The version rises when that ends: on allocation, and on a write to a slot that was filled.

    A full block may be cached: others find it by its prefix and have it in their tables too. It stays cached when the
    last of them gives it back, until free blocks run out; the least recently used goes first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        """Blocks in circulation: free, or in a table."""
        self.capacity = num_blocks
        """Blocks that shall be in circulation. Fewer than there are while blocks to retire are still in tables."""
        self.retired: set[int] = set()
        """Blocks out of circulation until the pool grows."""
        self.versions = array("q", [0]) * num_blocks
        """Per block. Arrays: a step writes them one by one, a copier reads them whole."""
        self.filled = array("q", [0]) * num_blocks
        """Per block: slots, from its first on, that hold a completed write; 0 for free blocks."""
        self._references = [0] * num_blocks
        """Per block: tables that have it."""
        self._free = list(range(num_blocks - 1, -1, -1))
        self._prefixes = PrefixCache()
        self._cached: OrderedDict[int, int] = OrderedDict()
        """Free blocks that are cached, the least recently used first, and how far each is filled."""

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now, cached ones among them."""
        return len(self._free) + len(self._cached)

    @property
    def cached(self) -> Collection[int]:
        """Free blocks that are cached."""
        return self._cached.keys()

    def take(self, count: int) -> list[int]:
        """Allocate ``count`` blocks; the caller has checked ``num_free``."""
        assert count <= self.num_free, f"{count} blocks asked, {self.num_free} free"
        taken = [self._free.pop() if self._free else self._evict() for _ in range(count)]
        for block in taken:
            self.versions[block] += 1
            self._references[block] = 1
        return taken

    def cache(self, block_hash: BlockHash, block: int) -> None:
        """Let others find a full block of a table; from now on nobody writes to it."""
        self._prefixes.add(block_hash, block)

    def find(self, hashes: Iterable[BlockHash]) -> list[int]:
        """Cached blocks with these hashes in order, up to the first that is not there."""
        return self._prefixes.longest(hashes)

    def share(self, blocks: Sequence[int]) -> None:
        """Take cached blocks, free or in tables, into one more table.

        A version stays: whoever has copied it has it.
        """
        for block in blocks:
            if block in self._cached:
                self.filled[block] = self._cached.pop(block)
            self._references[block] += 1

    def forget(self, blocks: Iterable[int]) -> None:
        """Free blocks are cached no longer: their bytes are lost."""
        gone = list(blocks)
        for block in gone:
            del self._cached[block]
            self._prefixes.drop(block)
        self._free[:0] = gone  # cold: taken last

    def forget_prefixes(self) -> None:
        """No prefix is found any more, those of tables neither: other weights would compute other bytes."""
        self.forget([*self._cached])
        for block in [*self._prefixes.blocks]:
            self._prefixes.drop(block)

    def contents(self, lost: Collection[int]) -> PoolContents:
        """What another pool shall hold.

        Of the free blocks that are cached not those whose bytes are ``lost`` there.
        """
        free = [*lost, *self._free]
        cached = [item for item in self._cached.items() if item[0] not in lost]
        hashes = {block: found for block, found in self._prefixes.hashes.items() if block not in lost}
        return PoolContents(free, cached, {block: self.filled[block] for block in self.holding}, hashes)

    def adopt(self, contents: PoolContents, tables: Iterable[Sequence[int]]) -> None:
        """Hold what another pool held, and these tables have; this one holds nothing.

        Blocks beyond its own capacity retire, those in tables as they come free.
        """
        assert not any(self._references), "a pool that holds something takes over nothing"
        self.forget([*self._cached])
        ours = {*self._free} | self.retired
        used = Counter(chain.from_iterable(tables))
        for block, count in used.items():
            self._references[block] = count
        for block, filled in contents.filled.items():
            self.filled[block] = filled
        for block, found in contents.hashes.items():
            self._prefixes.add(found, block)
        self._free = [*contents.free]
        self._cached = OrderedDict(contents.cached)
        circulating = {*self._free, *self._cached, *used}
        self.retired = ours - circulating
        self.num_blocks = len(circulating)
        self.resize(self.capacity)

    def hashes_of(self, table: Sequence[int]) -> list[BlockHash]:
        """Of a table's first blocks, as far as each can be found."""
        known = self._prefixes.hashes
        return [known[block] for block in takewhile(known.__contains__, table)]

    def reserve(self) -> int:
        """Take a block out of circulation for good."""
        self.num_blocks -= 1
        self.capacity -= 1
        return self._free.pop(0)

    def give_back(self, blocks: Sequence[int]) -> None:
        """Take a table's blocks out of it.

        Those that no other has come free, and as many as are too many retire at once.

        The last one goes first: without the blocks before it a block cannot be found.
        """
        for block in reversed(blocks):
            self._references[block] -= 1
            if self._references[block]:
                continue
            if block in self._prefixes:
                self._cached[block] = self.filled[block]
            else:
                self._free.append(block)
            self.filled[block] = 0
        self._retire()

    def resize(self, capacity: int) -> None:
        """Have ``capacity`` blocks, at most as many as at first.

        Retired blocks come back at once. Free blocks retire at once, and blocks in tables as they come free.
        """
        self.capacity = capacity
        self._retire()
        back = self.returning(capacity)
        self.retired.difference_update(back)
        self.num_blocks += len(back)
        self._free[:0] = reversed(back)  # cold: taken last

    def returning(self, capacity: int) -> list[int]:
        """Retired blocks that ``resize`` to this capacity would bring back."""
        return heapq.nsmallest(capacity - self.num_blocks, self.retired)

    def written(self, block: int, start: int, stop: int) -> None:
        """Record a completed write to the slots from ``start`` to before ``stop`` of a block."""
        assert block not in self._prefixes, f"a write to block {block}, which is cached"
        if start < self.filled[block]:
            self.versions[block] += 1
        self.filled[block] = stop

    @property
    def holding(self) -> list[int]:
        """Ids of blocks that hold something, ascending."""
        found: list[int] = np.flatnonzero(np.frombuffer(self.filled, np.int64)).tolist()
        return found

    def between(self, gap: int) -> list[int]:
        """Ids in circulation between two blocks that hold something and are at most ``gap`` apart."""
        held = self.holding
        widths = np.diff(held)
        return [
            block
            for at in np.flatnonzero((widths > 1) & (widths <= gap)).tolist()
            for block in range(held[at] + 1, held[at + 1])
            if block not in self.retired
        ]

    def next_free(self, count: int) -> list[int]:
        """The ids that the next ``count`` allocations will get."""
        return list(islice(chain(reversed(self._free), self._cached), count))

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Every block is either free, retired or in as many tables as it knows of.

        Raises AssertionError otherwise.
        """
        used = Counter(chain.from_iterable(tables))
        free = [*self._free, *self._cached]
        assert len([*used, *free]) == len({*used, *free} - self.retired) == self.num_blocks, (
            "a block is lost or used twice"
        )
        assert all(count == used[block] for block, count in enumerate(self._references)), (
            "a block is lost or used twice"
        )
        assert {*self._prefixes.blocks} & {*free} == {*self._cached}, "a free block is cached and not among the cached"
        assert not {*self._prefixes.blocks} & self.retired, "a retired block is cached"

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        self._prefixes.drop(block)
        return block

    def _retire(self) -> None:
        """The highest free ids go: they lie together, and whole pages with them."""
        count = min(self.num_blocks - self.capacity, self.num_free)
        if count > 0:
            gone = set(heapq.nlargest(count, chain(self._free, self._cached)))
            self.forget([block for block in self._cached if block in gone])
            self._free = [block for block in self._free if block not in gone]
            self.retired |= gone
            self.num_blocks -= count
