"""Which blocks hold which prefixes. Pure.

A full block is named by a digest of its tokens and of the name of the block before it, so equal names mean equal tokens
from the first on. The digest is a cryptographic one: a collision would be another text's KV, and nobody would notice.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence

Digest = bytes


def chained(parent: Digest, tokens: Sequence[int]) -> Digest:
    """The name of a block that holds ``tokens`` after the prefix ``parent``; that of no prefix is empty."""
    return hashlib.blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


class PrefixCache:
    """Names and the blocks that have them, one each."""

    def __init__(self) -> None:
        self._blocks: dict[Digest, int] = {}
        self._names: dict[int, Digest] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._names

    @property
    def blocks(self) -> Iterable[int]:
        """Every block with a name."""
        return self._names.keys()

    def add(self, name: Digest, block: int) -> None:
        """Name a block; where another one has the name already, this one goes without."""
        if self._blocks.setdefault(name, block) == block:
            self._names[block] = name

    def drop(self, block: int) -> None:
        """The block no longer holds its prefix."""
        del self._blocks[self._names.pop(block)]

    def longest(self, names: Iterable[Digest]) -> list[int]:
        """Blocks of these names in order, up to the first that nobody has."""
        found = []
        for name in names:
            if (block := self._blocks.get(name)) is None:
                break
            found.append(block)
        return found
