"""The KV memory of one worker in chunks.

What a GPU needs, where no sparse file of the whole cache can be made.

A *chunk* is a run of neighbouring block ids of one slab that is allocated together, because a device gives memory only in
pieces larger than a block. A slab is a row of a table of addresses, ``[stacks, KV heads, chunks]``; 0 where nothing is
held. Kernels find blocks through it, so chunks come and go without a live block moving.

Pieces have to be gained before they are written to. Peers find chunks through a directory in shared host memory, open
those that they copy from, and close them (``forget_peers``) before their owner gives them back.
"""

import hashlib
import mmap
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runtime.errors import TopologyError
from runtime.footprint import Piece, Transfer
from runtime.kv.memory import HANDLE_BYTES, Memory
from runtime.kv.pages import chunk_blocks, parts_of_blocks
from runtime.kv.store import KvHandle, KvShape, Slice

_ENTRY = np.dtype([("serial", np.int64), ("exported", np.void, HANDLE_BYTES)])
"""Of the directory, for each chunk; serial 0 where nothing is held."""

_TILE_WORDS = 1024
"""int32 values that a program copies at once."""

Addresses = NDArray[np.int64]


class ChunkedStore:
    """One worker's view of the cache; answers like ``KvStore``."""

    def __init__(self, shape: KvShape, memory: Memory, device: torch.device) -> None:
        self.shape = shape
        self.device = device
        self._memory = memory
        block_bytes = shape.block_slots * shape.piece_slot_bytes
        self.chunk_blocks = chunk_blocks(block_bytes, memory.granularity)
        """Blocks that are allocated together."""
        chunk_bytes = self.chunk_blocks * block_bytes
        self._chunk_bytes = -(-chunk_bytes // memory.granularity) * memory.granularity
        self._dims = shape.num_stacks, shape.num_kv_heads, -(-shape.num_blocks // self.chunk_blocks)
        self._addresses: Addresses = np.zeros(self._dims, np.int64)
        self.table = torch.zeros(self._dims, dtype=torch.int64, device=device)
        """``[stacks, KV heads, chunks]``: the address of each chunk."""
        self._fd = os.memfd_create("intentctl-kv-chunks")
        os.ftruncate(self._fd, self._addresses.size * _ENTRY.itemsize)
        self._directory = _directory(mmap.mmap(self._fd, 0), self._dims)
        self._serial = 0
        self._peers: dict[str, _Peer] = {}

    @property
    def handle(self) -> KvHandle:
        """What to send to peers; valid while this process lives."""
        return KvHandle(f"/proc/{os.getpid()}/fd/{self._fd}")

    @property
    def held_bytes(self) -> int:
        """Bytes of memory behind it now."""
        return int(np.count_nonzero(self._addresses)) * self._chunk_bytes

    def gain(self, pieces: Sequence[Piece], runs: Sequence[tuple[int, int]], seconds: float, after: int = 0) -> Slice:
        """Have memory for these runs of blocks, for about ``seconds``; what it holds is anything.

        Go on with ``after`` = the ``rest`` of the slice before.

        Raises:
            MemoryFaultError: the device has no more; what was gained so far stays.
        """
        wanted = {chunk for first, end in runs for chunk in self._touched(first, end)}
        return self._change(self._take, pieces, wanted, seconds, after)

    def give_back(
        self, pieces: Sequence[Piece], runs: Sequence[tuple[int, int]], seconds: float, after: int = 0
    ) -> Slice:
        """Give the chunks wholly inside these runs of blocks back to the device, for about ``seconds``.

        No peer has them open.

        Go on with ``after`` = the ``rest`` of the slice before.
        """
        size = self.chunk_blocks
        last = self.shape.num_blocks
        wanted = {
            chunk
            for first, end in runs
            for chunk in self._touched(first, end)
            if first <= chunk * size and min((chunk + 1) * size, last) <= end
        }
        return self._change(self._drop, pieces, wanted, seconds, after)

    def copy(self, boxes: Sequence[tuple[Transfer, KvHandle]], runs: NDArray[np.int64]) -> int:
        """Copy whole stacks from peers, one kernel for each box. Returns the bytes copied once they are here.

        ``runs`` is ``[runs, 2]``: the first token (block x block size + position in the block) and the one after the last.
        """
        shape = self.shape
        copied = 0
        parts = parts_of_blocks(runs, shape.block_size)
        chunks = np.flatnonzero(np.bincount(parts[:, 0] // self.chunk_blocks))
        on_device = torch.from_numpy(parts).to(self.device)
        for box, handle in boxes:
            stacks = slice(box.layers[0] // shape.stack, -(-box.layers[1] // shape.stack))
            heads = slice(*box.heads)
            self._check_held(stacks, heads, chunks)
            source = self._peer(handle).opened(stacks, heads, chunks)
            self._launch_copy(source, on_device, stacks, heads)
            copied += len(box.pieces) * int((runs[:, 1] - runs[:, 0]).sum()) * shape.piece_slot_bytes
        self._memory.wait()
        return copied

    def reach(
        self,
        boxes: Sequence[tuple[Transfer, KvHandle]],
        runs: Sequence[tuple[int, int]],
        seconds: float,
        after: int = 0,
    ) -> Slice:
        """Open what copies of these runs of blocks will read, for about ``seconds``.

        A chunk takes 0.06 ms, and a copy that opened all of its own would hold up a step for ten. Go on with ``after`` = the
        ``rest`` of the slice before.
        """
        began = time.perf_counter()
        stack = self.shape.stack
        chunks = sorted({chunk for first, end in runs for chunk in self._touched(first, end)})
        places = [
            (handle, slice(number, number + 1), slice(*box.heads), chunk)
            for box, handle in boxes
            for chunk in chunks
            for number in range(box.layers[0] // stack, -(-box.layers[1] // stack))
        ]
        rest = after
        while rest < len(places) and (rest == after or time.perf_counter() < began + seconds):
            handle, stacks, heads, chunk = places[rest]
            self._peer(handle).opened(stacks, heads, np.array([chunk]))
            rest += 1
        return Slice(rest if rest < len(places) else None, 0, time.perf_counter() - began)

    def warm_up_copy(self) -> None:
        """Copy nothing, so that the kernel is compiled and loaded before a copy holds up steps."""
        nothing = torch.zeros((1, 3), dtype=torch.int64, device=self.device)
        self._launch_copy(self.table, nothing, slice(0, 1), slice(0, 1))

    def _launch_copy(self, source: torch.Tensor, parts: torch.Tensor, stacks: slice, heads: slice) -> None:
        from runtime.kv import kernels

        num_heads = heads.stop - heads.start
        _, all_heads, num_chunks = self._dims
        kernels.copy[len(parts), (stacks.stop - stacks.start) * num_heads](
            self.table, source, parts, stacks.start, heads.start, num_heads, all_heads, num_chunks,
            STACK=self.shape.stack, BLOCK_SIZE=self.shape.block_size, CHUNK_BLOCKS=self.chunk_blocks,
            WORDS=self.shape.half_slot_bytes // 4, TILE=_TILE_WORDS,
        )  # fmt: skip

    def forget_peers(self, seconds: float) -> Slice:
        """Close the memory of peers, for about ``seconds``; go on until there is no ``rest``."""
        began = time.perf_counter()
        self._peers = {path: peer for path, peer in self._peers.items() if not peer.close_some(began + seconds)}
        return Slice(0 if self._peers else None, 0, time.perf_counter() - began)

    def wait(self) -> None:
        """Return when the device has done all it was asked."""
        self._memory.wait()

    def digest(self, piece: Piece, block: int, tokens: int) -> str:
        """Digest of K and V of the first ``tokens`` positions of a block, whatever the topology."""
        shape = self.shape
        stack, layer = divmod(piece.layer, shape.stack)
        chunk, within = divmod(block, self.chunk_blocks)
        found = hashlib.blake2b(digest_size=8)
        for half in (0, 1):
            slot = ((2 * within + half) * shape.stack + layer) * shape.block_size
            address = int(self._addresses[stack, piece.head, chunk]) + slot * shape.half_slot_bytes
            found.update(self._memory.read(address, tokens * shape.half_slot_bytes))
        return found.hexdigest()

    def _touched(self, first: int, end: int) -> range:
        return range(first // self.chunk_blocks, -(-end // self.chunk_blocks))

    def _change(
        self,
        change: Callable[[tuple[int, int, int]], None],
        pieces: Sequence[Piece],
        chunks: set[int],
        seconds: float,
        after: int,
    ) -> Slice:
        """Take or drop these chunks of the slabs that pieces lie in, one at least, and tell kernels and peers."""
        began = time.perf_counter()
        before = self.held_bytes
        rest = None
        try:
            for number, place in self._places(pieces, chunks, after):
                change(place)
                if time.perf_counter() >= began + seconds:
                    rest = number + 1
                    break
        finally:
            self.table.copy_(torch.from_numpy(self._addresses))
        return Slice(rest, abs(before - self.held_bytes), time.perf_counter() - began)

    def _places(
        self, pieces: Sequence[Piece], chunks: set[int], after: int
    ) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Places with their numbers, ascending from ``after`` on.

        To look at those before it would take longer than a slice.
        """
        _, num_heads, num_chunks = self._dims
        ordered = sorted(chunks)
        for stack, head in sorted({(piece.layer // self.shape.stack, piece.head) for piece in pieces}):
            base = (stack * num_heads + head) * num_chunks
            for chunk in ordered[bisect_left(ordered, after - base) :]:
                yield base + chunk, (stack, head, chunk)

    def _take(self, place: tuple[int, int, int]) -> None:
        if self._addresses[place]:
            return
        address = self._addresses[place] = self._memory.allocate(self._chunk_bytes)
        self._serial += 1
        exported = self._memory.export(int(address)).ljust(HANDLE_BYTES, b"\0")
        self._directory["exported"][place] = np.void(exported)
        self._directory["serial"][place] = self._serial

    def _drop(self, place: tuple[int, int, int]) -> None:
        if not self._addresses[place]:
            return
        self._directory["serial"][place] = 0
        address = int(self._addresses[place])
        self._addresses[place] = 0
        self._memory.free(address)

    def _check_held(self, stacks: slice, heads: slice, chunks: Addresses) -> None:
        if not self._addresses[stacks, heads][:, :, chunks].all():
            raise TopologyError("a copy of KV to where no memory was gained: that is a mistake of the engine")

    def _peer(self, handle: KvHandle) -> "_Peer":
        if handle.path not in self._peers:
            self._peers[handle.path] = _Peer(handle, self._dims, self._memory, self.device)
        return self._peers[handle.path]


class _Peer:
    """The chunks of a peer, as far as they were opened."""

    def __init__(self, handle: KvHandle, dims: tuple[int, int, int], memory: Memory, device: torch.device) -> None:
        self._path = handle.path
        self._memory = memory
        self._directory = _directory(handle.mapped(), dims)
        self._serials: Addresses = np.zeros(dims, np.int64)
        self._addresses: Addresses = np.zeros(dims, np.int64)
        self._table = torch.zeros(dims, dtype=torch.int64, device=device)

    def opened(self, stacks: slice, heads: slice, chunks: Addresses) -> torch.Tensor:
        """The peer's table, right for these chunks."""
        box = np.ix_(np.arange(stacks.start, stacks.stop), np.arange(heads.start, heads.stop), chunks)
        serials = self._directory["serial"][box]
        if not serials.all():
            raise TopologyError(f"a peer ({self._path}) has given back KV that is to be copied from it")
        stale = np.argwhere(serials != self._serials[box])
        for index in stale:
            place = tuple(int(axis.ravel()[at]) for axis, at in zip(box, index, strict=True))
            if self._addresses[place]:
                self._memory.close(int(self._addresses[place]))
            self._addresses[place] = self._memory.open(self._directory["exported"][place].tobytes())
            self._serials[place] = self._directory["serial"][place]
        if len(stale):
            self._table.copy_(torch.from_numpy(self._addresses))
        return self._table

    def close_some(self, until_s: float) -> bool:
        """Close what was opened, one chunk at least, until then; whether all is closed."""
        for place in map(tuple, np.argwhere(self._addresses)):
            address, self._addresses[place], self._serials[place] = int(self._addresses[place]), 0, 0
            self._memory.close(address)
            if time.perf_counter() >= until_s:
                break
        return not self._addresses.any()


def _directory(memory: mmap.mmap, dims: tuple[int, int, int]) -> NDArray[Any]:
    """``[stacks, KV heads, chunks]``: where each chunk is, for peers."""
    entries: NDArray[Any] = np.frombuffer(memory, dtype=_ENTRY).reshape(dims)
    return entries
