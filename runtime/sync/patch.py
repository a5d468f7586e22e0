"""Patch: copy what exists while requests run, then again and again what they wrote since.

Pure bookkeeping.

To copy = of every block the slots that are filled and were not copied under its present version. Only completed writes
count as filled, and what is filled is not written again under the same version, so no copy is torn: a block that is
freed and taken anew while it is copied has a higher version, and is copied from its first slot again. A cached block
that comes back into a table is filled at once and has its old version: it is copied unless it was copied before.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.kv.blocks import BlockPool

Integers = NDArray[np.int64]


class _Parts(NamedTuple):
    """Slots from ``starts`` to before ``stops`` of each block."""

    blocks: Integers
    starts: Integers
    stops: Integers


class PatchSync:
    """Which slots the target lacks. The caller copies; this only keeps the books.

    The first copy of a block whose memory was cold is of all its slots, filled or not, so that it is warm when the next
    steps write there. ``upcoming`` are free blocks that will be taken soon, or read over: they too are
    copied once, for the same reason.
    """

    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self._pool = pool
        self._block_size = block_size
        self._versions = np.full(len(pool.versions), -1)
        self._copied = np.zeros(len(pool.filled), np.int64)
        self._is_warm = np.zeros(len(pool.filled), np.bool_)

    def warmed(self, blocks: Collection[int]) -> None:
        """The target has memory for these blocks."""
        self._is_warm[[*blocks]] = True

    def lag(self, upcoming: Sequence[int] = ()) -> int:
        """Slots to copy."""
        parts = self._behind(upcoming)
        return int((parts.stops - parts.starts).sum())

    def order(self, most: int | None = None, upcoming: Sequence[int] = ()) -> Integers:
        """Slots whose copy starts now: ``[runs, 2]``, the first slot of each run and the one after its last.

        A slot is numbered ``block * block size + slot in the block``. ``most`` bounds their number, but a block is not divided.
        Those that lack most come first: one that is being filled will lack as little at the next slice.
        """
        blocks, starts, stops = self._behind(upcoming)
        if most is not None:
            by_lack = np.argsort(starts - stops, kind="stable")
            count = int(np.searchsorted(np.cumsum((stops - starts)[by_lack]), most)) + 1
            chosen = np.sort(by_lack[:count])
            blocks = blocks[chosen]
            starts = starts[chosen]
            stops = stops[chosen]
        versions, filled = self._contents()
        self._versions[blocks] = versions[blocks]
        self._copied[blocks] = filled[blocks]
        self._is_warm[blocks] = True
        return _joined(blocks * self._block_size + starts, blocks * self._block_size + stops)

    def lacking(self, blocks: Collection[int]) -> list[int]:
        """Those of these full blocks that the target has not, though nobody may be using them."""
        wanted = np.fromiter(blocks, np.int64, len(blocks))
        versions, _ = self._contents()
        is_held = (self._versions[wanted] == versions[wanted]) & (self._copied[wanted] == self._block_size)
        lacking: list[int] = wanted[~is_held].tolist()
        return lacking

    def copied(self) -> tuple[list[int], Integers]:
        """Blocks in use whose copied slots are as they were, and these slots as runs."""
        versions, filled = self._contents()
        blocks = np.flatnonzero((self._versions == versions) & (self._copied > 0) & (filled > 0))
        starts = blocks * self._block_size
        return blocks.tolist(), _joined(starts, starts + self._copied[blocks])

    def holds(self, blocks: Iterable[int]) -> bool:
        """Whether these are still among them: what was read of them meanwhile counts."""
        return {*blocks} <= {*self.copied()[0]}

    def _behind(self, upcoming: Sequence[int]) -> _Parts:
        versions, filled = self._contents()
        done = np.where(self._versions == versions, self._copied, 0)
        blocks = np.flatnonzero(filled > done)
        ahead = np.array(sorted(set(upcoming)), np.int64)  # numpy.unique takes 50 ms the first time
        blocks = np.concatenate((blocks, ahead[~self._is_warm[ahead]]))
        is_warm = self._is_warm[blocks]
        return _Parts(blocks, done[blocks], np.where(is_warm, filled[blocks], self._block_size))

    def _contents(self) -> tuple[Integers, Integers]:
        """The pool's versions, and how far its blocks are filled, as they are now."""
        return np.frombuffer(self._pool.versions, np.int64), np.frombuffer(self._pool.filled, np.int64)


def _joined(starts: Integers, stops: Integers) -> Integers:
    """Runs in order, those that touch made one."""
    is_apart = starts[1:] != stops[:-1]
    firsts = np.concatenate(([True], is_apart)) if len(starts) else np.zeros(0, np.bool_)
    lasts = np.concatenate((is_apart, [True])) if len(starts) else firsts
    return np.stack((starts[firsts], stops[lasts]), axis=1)
