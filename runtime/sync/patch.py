"""Patch: copy what exists while requests run, then again and again what they wrote since. Pure bookkeeping.

To copy = every block in a live block table whose version exceeds the version last copied. The version is read when
the copy is ordered, before the bytes are: a write still under way completes later, raises the version, and puts the
block on the list again. So a torn read is always copied anew.
"""

from collections.abc import Iterable, Sequence


class PatchSync:
    """Which blocks the target lacks. The caller copies; this only keeps the books."""

    def __init__(self, versions: Sequence[int]) -> None:
        self._versions = versions
        self._copied: dict[int, int] = {}

    def behind(self, tables: Iterable[Sequence[int]]) -> list[int]:
        """Blocks to copy, in table order."""
        live = (block for table in tables for block in table)
        return [block for block in live if self._copied.get(block, -1) < self._versions[block]]

    def ordered(self, blocks: Iterable[int]) -> None:
        """A copy of these blocks is about to start."""
        for block in blocks:
            self._copied[block] = self._versions[block]

    def tokens(self, blocks: Iterable[int], block_size: int) -> int:
        """Token slots to copy in these blocks: all of a block never copied, else one for each write since."""
        return sum(
            min(block_size, self._versions[block] - self._copied.get(block, -block_size)) for block in blocks
        )
