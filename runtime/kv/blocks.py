"""The block pool: which KV blocks are free, and how often each was written. Pure.

A block id holds for the whole engine; where its bytes live is the topology's business.
"""

from collections.abc import Iterable, Sequence


class BlockPool:
    """Free ids (last freed is taken first, so warm memory is reused) and a version per block.

    A version rises on allocation and on each completed write; the copier compares it with what it copied.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.versions = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Allocate ``count`` blocks; the caller has checked ``num_free``."""
        assert count <= len(self._free), f"{count} blocks asked, {len(self._free)} free"
        taken = [self._free.pop() for _ in range(count)]
        self.written(taken)
        return taken

    def reserve(self) -> int:
        """Take a block out of circulation for good."""
        self.num_blocks -= 1
        return self._free.pop(0)

    def give_back(self, blocks: Sequence[int]) -> None:
        """Free blocks, in table order."""
        self._free.extend(reversed(blocks))

    def written(self, blocks: Iterable[int]) -> None:
        """Record a completed write to each block."""
        for block in blocks:
            self.versions[block] += 1

    def next_free(self, count: int) -> list[int]:
        """The ids that the next ``count`` allocations will get."""
        return self._free[: -count - 1 : -1]

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Every block is either free or in exactly one table; raises AssertionError otherwise."""
        used = [block for table in tables for block in table]
        assert len(used + self._free) == len({*used, *self._free}) == self.num_blocks, (
            "a block is lost or used twice"
        )
