"""Which blocks hold which prefixes. Pure.

A full block is known by its hash: of its tokens and of the hash of the block before it, so equal hashes mean equal tokens
from the first on. The hash is a cryptographic one: a collision would be another text's KV, and nobody would notice.
"""

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence

BlockHash = bytes


def hash_block(parent: BlockHash, tokens: Sequence[int]) -> BlockHash:
    """The hash of a block that holds ``tokens`` after the block with the hash ``parent``.

    The first has an empty parent.
    """
    return hashlib.blake2b(parent + array("I", tokens).tobytes(), digest_size=16).digest()


class PrefixCache:
    """Hashes and the blocks that have them, one each."""

    def __init__(self) -> None:
        self._blocks: dict[BlockHash, int] = {}
        self._hashes: dict[int, BlockHash] = {}

    def __contains__(self, block: int) -> bool:
        return block in self._hashes

    @property
    def blocks(self) -> Iterable[int]:
        """Every block that can be found."""
        return self._hashes.keys()

    @property
    def hashes(self) -> Mapping[int, BlockHash]:
        """Of each of them."""
        return self._hashes

    def add(self, block_hash: BlockHash, block: int) -> None:
        """Let a block be found, unless another one is found by this hash already."""
        if self._blocks.setdefault(block_hash, block) == block:
            self._hashes[block] = block_hash

    def drop(self, block: int) -> None:
        """The block no longer holds its prefix."""
        del self._blocks[self._hashes.pop(block)]

    def longest(self, hashes: Iterable[BlockHash]) -> list[int]:
        """Blocks with these hashes in order, up to the first that none has."""
        found = []
        for block_hash in hashes:
            if (block := self._blocks.get(block_hash)) is None:
                break
            found.append(block)
        return found
