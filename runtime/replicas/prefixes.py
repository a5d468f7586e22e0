"""Which replica computed which beginnings of prompts lately, as far as the router saw. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Generic, TypeVar

R = TypeVar("R")

BLOCK = 64
"""Tokens of a block: beginnings are known in whole ones."""
MOST = 65_536
"""Blocks that are remembered, the last used ones."""
NOBODY = frozenset[Any]()


class Prefixes(Generic[R]):
    """Blocks by what they and all before them hold, and the replicas that computed them."""

    def __init__(self) -> None:
        self._blocks = OrderedDict[int, set[R]]()
        self._known = set[R]()

    def cached(self, keys: Sequence[int], replicas: Sequence[R]) -> dict[R, int]:
        """In how many blocks from the first on each replica has these; those with none are left out."""
        found = dict[R, int]()
        left = set(replicas)
        for number, key in enumerate(keys, start=1):
            left &= self._blocks.get(key, NOBODY)
            if not left:
                break
            found |= dict.fromkeys(left, number)
        return found

    def note(self, keys: Sequence[int], replica: R) -> None:
        """A replica computes these."""
        self._known.add(replica)
        for key in keys:
            self._blocks.setdefault(key, set()).add(replica)
            self._blocks.move_to_end(key)
        while len(self._blocks) > MOST:
            self._blocks.popitem(last=False)

    def forget(self, replica: R) -> None:
        """It has none of them any more. Told of each request that is lost with it, and done once."""
        if replica in self._known:
            self._known.remove(replica)
            for owners in self._blocks.values():
                owners.discard(replica)


def keys_of(tokens: tuple[int, ...]) -> list[int]:
    """One for each whole block, of all up to its end."""
    keys = list[int]()
    key = 0
    for start, end in pairwise(range(0, len(tokens) + 1, BLOCK)):
        key = hash((key, tokens[start:end]))
        keys.append(key)
    return keys
