"""The block pool: which KV blocks are free, and what is written in the others. Pure.

A block id holds for the whole engine; where its bytes live is the topology's business.
"""

from array import array
from collections.abc import Iterable, Sequence


class BlockPool:
    """Free ids (last freed is taken first, so warm memory is reused), and per block a version and how far it is filled.

    A block is filled slot by slot. While its version stays, slots that are filled keep their bytes: who copied them
    has them. The version rises when that ends: on allocation, and on a write to a slot that was filled.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
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
        return self._free.pop(0)

    def give_back(self, blocks: Sequence[int]) -> None:
        """Free blocks, in table order."""
        for block in blocks:
            self.filled[block] = 0
        self._free.extend(reversed(blocks))

    def written(self, block: int, start: int, stop: int) -> None:
        """Record a completed write to the slots from ``start`` to before ``stop`` of a block."""
        if start < self.filled[block]:
            self.versions[block] += 1
        self.filled[block] = stop

    def next_free(self, count: int) -> list[int]:
        """The ids that the next ``count`` allocations will get."""
        return self._free[: -count - 1 : -1]

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Every block is either free or in exactly one table; raises AssertionError otherwise."""
        used = [block for table in tables for block in table]
        assert len(used + self._free) == len({*used, *self._free}) == self.num_blocks, (
            "a block is lost or used twice"
        )
