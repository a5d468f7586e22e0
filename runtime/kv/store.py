"""The KV memory of one worker.

Every layer and KV head of the model, of which it touches only what it owns.

The whole cache of the engine is reserved once as a sparse memory file and never remapped. A slab is the memory of one
(stack of layers, KV head), indexed by block id; a worker gains a slab by writing to it and drops it, or blocks in it, by punching
holes, so that the pages go back to the system. Peers map the file and copy from it (one-sided reads).

A *slot* is one token's K or V in one layer and head. Where a slab stacks several layers, a block holds the slots of its
first layer, then those of the next.
"""

import ctypes
import hashlib
import itertools
import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.errors import TopologyError
from runtime.footprint import Piece, Transfer, refuse_divided_stacks
from runtime.kv.pages import apart, holes, parts_of_blocks, stacked
from runtime.models import Topology

_STRIDE = 1 << 20
"""Bytes punched before the clock is looked at: about 0.1 ms; to populate them takes a few."""
_MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python has no name for it before 3.14."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class KvShape:
    """Shape of the KV cache: ``[2, stacks, KV heads, blocks, layers of a stack, block size, head dim]``.

    K first, then V.
    """

    num_layers: int
    num_kv_heads: int
    num_blocks: int
    block_size: int
    head_dim: int
    dtype: torch.dtype
    stack: int = 1
    """Layers whose parts of a block lie together in one slab."""

    @property
    def num_stacks(self) -> int:
        """The last may have fewer layers."""
        return -(-self.num_layers // self.stack)

    @property
    def dims(self) -> tuple[int, ...]:
        """Dimensions, outermost first."""
        rows = self.num_kv_heads, self.num_blocks, self.stack, self.block_size, self.head_dim
        return (2, self.num_stacks, *rows)

    @property
    def block_slots(self) -> int:
        """Slots of a slab's block: one for each token and layer."""
        return self.stack * self.block_size

    def check(self, topology: Topology) -> None:
        """Refuse stages that divide a stack.

        Raises:
            TopologyError: naming the stage.
        """
        refuse_divided_stacks(topology, self.stack)

    @property
    def slab_bytes(self) -> int:
        """Bytes of K (or V) of one stack and one head."""
        return self.num_blocks * self.block_slots * self.half_slot_bytes

    @property
    def half_slot_bytes(self) -> int:
        """Bytes of K (or V) of one token in one layer and one head."""
        return self.head_dim * self.dtype.itemsize

    @property
    def piece_slot_bytes(self) -> int:
        """Bytes of K and V of one token in one layer and one head."""
        return 2 * self.half_slot_bytes


@dataclass(frozen=True, slots=True)
class KvHandle:
    """How a peer process finds this memory: a path to an open file descriptor of the owner."""

    path: str

    def mapped(self) -> mmap.mmap:
        """Its file, to read.

        Raises:
            TopologyError: the owner is gone.
        """
        try:
            with Path(self.path).open("rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise TopologyError(f"the KV memory of a peer is gone ({self.path}): {error}") from error


@dataclass(frozen=True, slots=True)
class Slice:
    """What one slice of gaining memory or giving it back did."""

    rest: int | None
    """The byte to go on at; None when all is done."""
    bytes: int
    """By how much the memory file grew or shrank."""
    seconds: float


class KvStore:
    """One worker's view of the cache."""

    def __init__(self, shape: KvShape) -> None:
        self.shape = shape
        self._fd = os.memfd_create("intentctl-kv")
        size = 2 * shape.num_stacks * shape.num_kv_heads * shape.slab_bytes
        os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)
        self.cache = torch.frombuffer(self._map, dtype=shape.dtype).view(shape.dims)
        """``[2, stacks, KV heads, blocks, layers of a stack, block size, head dim]``."""
        self._slots = _slots_view(self._map, shape)
        self._peers: dict[str, NDArray[Any]] = {}
        self.is_hole = np.zeros(shape.num_blocks, np.bool_)
        """Blocks that were given back, until they are written: whoever reads them takes their memory again."""

    @property
    def handle(self) -> KvHandle:
        """What to send to peers; valid while this process lives."""
        return KvHandle(f"/proc/{os.getpid()}/fd/{self._fd}")

    @property
    def held_bytes(self) -> int:
        """Bytes of memory behind it now."""
        return os.fstat(self._fd).st_blocks * 512

    def copy(self, boxes: Sequence[tuple[Transfer, KvHandle]], runs: NDArray[np.int64]) -> int:
        """Copy whole stacks from peers. Returns the bytes copied.

        ``runs`` is ``[runs, 2]``: the first token (block x block size + position in the block) and the one after the last.
        """
        tokens = int((runs[:, 1] - runs[:, 0]).sum())
        long, scattered = apart(stacked(runs, self.shape.block_size, self.shape.stack))
        copied = 0
        for box, handle in boxes:
            source = self._peer(handle)
            stacks = self._stacks(box)
            heads = slice(*box.heads)
            for start, stop in long:
                self._slots[:, stacks, heads, start:stop] = source[:, stacks, heads, start:stop]
            if len(scattered):
                self._copy_scattered(box, source, scattered)
            copied += len(box.pieces) * tokens * self.shape.piece_slot_bytes
        self.is_hole[parts_of_blocks(runs, self.shape.block_size)[:, 0]] = False
        return copied

    def avoid(self, runs: Sequence[tuple[int, int]]) -> None:
        """Note that these runs of blocks are about to be given back; not where all of a piece goes."""
        for first, end in runs:
            self.is_hole[first:end] |= end - first < self.shape.num_blocks

    def _copy_scattered(self, box: Transfer, source: NDArray[Any], slots: NDArray[np.int64]) -> None:
        """One gather and one scatter per stack, head and half: numpy is slower with all of them in one."""
        stacks = range(self.shape.num_stacks)[self._stacks(box)]
        for half, stack, head in itertools.product((0, 1), stacks, range(*box.heads)):
            self._slots[half, stack, head][slots] = source[half, stack, head][slots]

    def _stacks(self, box: Transfer) -> slice:
        first, last = box.layers
        return slice(first // self.shape.stack, -(-last // self.shape.stack))

    def forget_peers(self, seconds: float) -> Slice:  # noqa: ARG002 - on a GPU it takes long
        """Unmap the memory of peers."""
        self._peers.clear()
        return Slice(None, 0, 0.0)

    def gain(self, pieces: Sequence[Piece], runs: Sequence[tuple[int, int]], seconds: float, after: int = 0) -> Slice:
        """Have memory for the whole pages of these runs of blocks, for about ``seconds``.

        What they hold stays.

        What is not gained comes by writing to it, a page fault for every page; so it does where the system is too old for
        this (Linux 5.14). The interpreter is free meanwhile. ``runs`` and ``after`` as in ``give_back``.
        """
        began = time.perf_counter()
        before = self.held_bytes
        rest = self._in_strides(
            lambda start, size: self._advise(start, size, _MADV_POPULATE_WRITE), pieces, runs, after, began + seconds
        )
        return Slice(rest, self.held_bytes - before, time.perf_counter() - began)

    def give_back(
        self, pieces: Sequence[Piece], runs: Sequence[tuple[int, int]], seconds: float, after: int = 0
    ) -> Slice:
        """Give the whole pages of these runs of blocks back to the system, for about ``seconds``.

        ``runs`` are ascending ranges of block ids. Go on with ``after`` = the ``rest`` of the slice before. What was given
        back reads as zeros, and can be written at once. The interpreter is free meanwhile, and the core half of the time.
        """
        began = time.perf_counter()
        before = self.held_bytes
        rest = self._in_strides(self._punch, pieces, runs, after, began + seconds)
        return Slice(rest, before - self.held_bytes, time.perf_counter() - began)

    def digest(self, piece: Piece, block: int, tokens: int) -> str:
        """Digest of K and V of the first ``tokens`` positions of a block, whatever the topology."""
        stack, layer = divmod(piece.layer, self.shape.stack)
        first = block * self.shape.block_slots + layer * self.shape.block_size
        both = self._slots[:, stack, piece.head, first : first + tokens]
        return hashlib.blake2b(np.ascontiguousarray(both).tobytes(), digest_size=8).hexdigest()

    def _punch(self, start: int, size: int) -> None:
        """And rest for as long: without it steps beside are a fifth longer, and nobody waits for the memory."""
        began = time.perf_counter()
        if self._advise(start, size, mmap.MADV_REMOVE):
            number = ctypes.get_errno()
            raise OSError(number, f"the system does not take KV memory back: {os.strerror(number)}")
        time.sleep(time.perf_counter() - began)

    def _advise(self, start: int, size: int, advice: int) -> int:
        """``madvise``; Python's own keeps the interpreter from whatever else runs."""
        address = ctypes.c_void_p(self.cache.data_ptr() + start)
        status: int = _LIBC.madvise(address, ctypes.c_size_t(size), advice)
        return status

    def _in_strides(
        self,
        change: Callable[[int, int], object],
        pieces: Sequence[Piece],
        runs: Sequence[tuple[int, int]],
        after: int,
        until: float,
    ) -> int | None:
        """Change whole pages until the clock says ``until``, one stride at least; the byte to go on at."""
        for start, end in holes(self._slabs(pieces), runs, mmap.PAGESIZE, after):
            for at in range(start, end, _STRIDE):
                upto = min(at + _STRIDE, end)
                change(at, upto - at)
                if time.perf_counter() >= until:
                    return upto
        return None

    def _slabs(self, pieces: Sequence[Piece]) -> list[tuple[int, int]]:
        """First byte and bytes per block of K and of V of the slabs that pieces lie in, ascending."""
        shape = self.shape
        rows = sorted({(piece.layer // shape.stack, piece.head) for piece in pieces})
        numbers = (
            (half * shape.num_stacks + stack) * shape.num_kv_heads + head
            for half, (stack, head) in itertools.product((0, 1), rows)
        )
        return [(number * shape.slab_bytes, shape.block_slots * shape.half_slot_bytes) for number in numbers]

    def _peer(self, handle: KvHandle) -> NDArray[Any]:
        if handle.path not in self._peers:
            self._peers[handle.path] = _slots_view(handle.mapped(), self.shape)
        return self._peers[handle.path]


def _slots_view(memory: mmap.mmap, shape: KvShape) -> NDArray[Any]:
    """``[2, stacks, KV heads, slots]``: each entry is the bytes of one token, whatever their type."""
    flat: NDArray[Any] = np.frombuffer(memory, dtype=np.dtype((np.void, shape.half_slot_bytes)))
    return flat.reshape(2, shape.num_stacks, shape.num_kv_heads, shape.num_blocks * shape.block_slots)
