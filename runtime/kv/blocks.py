"""The block pool: which KV blocks are free, and what is written in the others. Pure.

A block id holds for the whole engine; where its bytes live is the topology's business. The pool shrinks by retiring
free ids, whichever they are, and grows by taking them back, so no live block ever moves.
"""

import heapq
from array import array
from collections.abc import Iterable, Sequence


class BlockPool:
    """Free ids (last freed is taken first, so warm memory is reused), and per block a version and how far it is filled.

    A block is filled slot by slot. While its version stays, slots that are filled keep their bytes: who copied them
    has them. The version rises when that ends: on allocation, and on a write to a slot that was filled.
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
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Allocate ``count`` blocks; the caller has checked ``num_free``."""
        assert count <= len(self._free), f"{count} blocks asked, {len(self._free)} free"
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self.versions[block] += 1
        return taken

    def reserve(self) -> int:
        """Take a block out of circulation for good."""
        self.num_blocks -= 1
        self.capacity -= 1
        return self._free.pop(0)

    def give_back(self, blocks: Sequence[int]) -> None:
        """Free blocks, in table order; as many as are too many retire at once."""
        for block in blocks:
            self.filled[block] = 0
        self._free.extend(reversed(blocks))
        self._retire()

    def resize(self, capacity: int) -> None:
        """Have ``capacity`` blocks, at most as many as at first.

        Retired blocks come back at once. Free blocks retire at once, and blocks in tables as they come free.
        """
        self.capacity = capacity
        self._retire()
        back = heapq.nsmallest(capacity - self.num_blocks, self.retired)
        self.retired.difference_update(back)
        self.num_blocks += len(back)
        self._free[:0] = reversed(back)  # cold: taken last

    def written(self, block: int, start: int, stop: int) -> None:
        """Record a completed write to the slots from ``start`` to before ``stop`` of a block."""
        if start < self.filled[block]:
            self.versions[block] += 1
        self.filled[block] = stop

    def next_free(self, count: int) -> list[int]:
        """The ids that the next ``count`` allocations will get."""
        return self._free[: -count - 1 : -1]

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Every block is either free, retired or in exactly one table; raises AssertionError otherwise."""
        used = [block for table in tables for block in table]
        assert len(used + self._free) == len({*used, *self._free} - self.retired) == self.num_blocks, (
            "a block is lost or used twice"
        )

    def _retire(self) -> None:
        """The highest free ids go: they lie together, and whole pages with them."""
        count = min(self.num_blocks - self.capacity, len(self._free))
        if count > 0:
            gone = set(heapq.nlargest(count, self._free))
            self._free = [block for block in self._free if block not in gone]
            self.retired |= gone
            self.num_blocks -= count
