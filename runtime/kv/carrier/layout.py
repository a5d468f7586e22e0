"""Which bytes of KV files cross between hosts, and in which order. Pure.

Both sides derive it from boxes and runs.

Bytes are staged box by box; within one by half (K, V), stack of layers, KV head and slot, where the slots of long runs come
before those of short ones. Runs are of tokens (block x block size + position), as ``pages.Runs``.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from runtime.footprint import Piece, Transfer
from runtime.kv.pages import Runs, apart, parts_of_blocks, stacked

SAMPLES = 700
"""Pieces of one block that a sampled digest covers: a fault in 1 % of them is seen with 99.9 %."""

Memory = NDArray[np.uint8]
Rows = NDArray[Any]
"""``[2, stacks, KV heads, slots]``: each entry is the bytes of one token's K or V in one layer and KV head."""


class KvLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How KV lies in a worker's memory file: as ``kv.store.KvShape`` says, which needs torch."""

    num_layers: int
    num_kv_heads: int
    num_blocks: int
    block_size: int
    head_dim: int
    dtype: str
    value_bytes: int
    stack: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of K (or V) of one token in one layer and one head."""
        return self.head_dim * self.value_bytes

    @property
    def dims(self) -> tuple[int, int, int, int]:
        """Dimensions of ``Rows``."""
        stacks = -(-self.num_layers // self.stack)
        slots = self.num_blocks * self.stack * self.block_size
        return 2, stacks, self.num_kv_heads, slots

    @property
    def num_bytes(self) -> int:
        """Bytes of a memory file."""
        return int(np.prod(self.dims)) * self.slot_bytes

    def differences(self, other: "KvLayout") -> list[str]:
        """What another one has otherwise, in words."""
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in self.__struct_fields__)
        return [f"{name} {there} there, {here} here" for name, here, there in pairs if here != there]

    def token_bytes(self, boxes: Iterable[Transfer]) -> int:
        """Bytes of one token's K and V in these boxes."""
        counts = (len(range(*_stacks(box, self))) * (box.heads[1] - box.heads[0]) for box in boxes)
        return 2 * sum(counts) * self.stack * self.slot_bytes


def rows_of(memory: Any, layout: KvLayout) -> Rows:
    """A memory file as rows; what is written there is written to it."""
    return np.frombuffer(memory, dtype=np.dtype((np.void, layout.slot_bytes))).reshape(layout.dims)


def num_tokens(runs: Runs) -> int:
    """Tokens in these runs."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def gather(boxes: Iterable[tuple[Transfer, Rows]], runs: Runs, layout: KvLayout, staged: Memory) -> None:
    """Copy what boxes hold of these tokens to ``staged``, which has just the bytes for it."""
    for part, rows, slots in _parts(boxes, runs, layout, staged):
        part[...] = rows[..., slots]


def scatter(boxes: Iterable[tuple[Transfer, Rows]], runs: Runs, layout: KvLayout, staged: Memory) -> None:
    """Copy what ``gather`` staged to where it belongs."""
    for part, rows, slots in _parts(boxes, runs, layout, staged):
        rows[..., slots] = part


def digest(boxes: Iterable[tuple[Transfer, Rows]], runs: Runs, layout: KvLayout) -> bytes:
    """Digest of what boxes hold of these tokens, in the order in which it is staged."""
    found = hashlib.blake2b(digest_size=16)
    for box, rows in boxes:
        staged = np.empty(num_tokens(runs) * layout.token_bytes([box]), np.uint8)
        gather([(box, rows)], runs, layout, staged)
        found.update(staged.data)
    return found.digest()


def digest_sample(boxes: Sequence[tuple[Transfer, Rows]], runs: Runs, layout: KvLayout, seed: int) -> bytes:
    """Digest of ``SAMPLES`` pieces of single blocks among them, the same ones wherever the seed is."""
    found = hashlib.blake2b(digest_size=16)
    for number, piece, slots in sample([box for box, _ in boxes], runs, layout, seed):
        for half in boxes[number][1][:, piece.layer // layout.stack, piece.head, slots]:
            found.update(half.data)
    return found.digest()


def sample(boxes: Sequence[Transfer], runs: Runs, layout: KvLayout, seed: int) -> list[tuple[int, Piece, slice]]:
    """What ``digest_sample`` takes: number of the box, piece and slots of each; some perhaps twice."""
    pieces = [(number, piece) for number, box in enumerate(boxes) for piece in box.pieces]
    parts = parts_of_blocks(runs, layout.block_size)
    total = len(pieces) * len(parts)
    # the raw stream of a bit generator stays as it is over versions of numpy, what is drawn by it does not
    numbers = np.random.PCG64(seed).random_raw(SAMPLES if total else 0)
    found = []
    for number in numbers:
        which, place = divmod(int(number) % total, len(parts))
        box, piece = pieces[which]
        block, start, stop = parts[place].tolist()
        first = (block * layout.stack + piece.layer % layout.stack) * layout.block_size
        found.append((box, piece, slice(first + start, first + stop)))
    return found


def _stacks(box: Transfer, layout: KvLayout) -> tuple[int, int]:
    return box.layers[0] // layout.stack, -(-box.layers[1] // layout.stack)


def _parts(
    boxes: Iterable[tuple[Transfer, Rows]], runs: Runs, layout: KvLayout, staged: Memory
) -> Iterator[tuple[Rows, Rows, Any]]:
    """Parts of what is staged, each with the rows that it belongs to and its slots in those."""
    long, scattered = apart(stacked(runs, layout.block_size, layout.stack))
    num_slots = num_tokens(runs) * layout.stack
    at = 0
    entries = staged.view(np.dtype((np.void, layout.slot_bytes)))
    for box, whole in boxes:
        rows = whole[:, slice(*_stacks(box, layout)), slice(*box.heads)]
        part = entries[at : at + np.prod(rows.shape[:3]) * num_slots].reshape(*rows.shape[:3], num_slots)
        at += part.size
        first = 0
        for start, stop in long:
            yield part[..., first : first + stop - start], rows, slice(start, stop)
            first += stop - start
        if len(scattered):
            yield part[..., first:], rows, scattered
