"""Stores in chunks on host memory, filled from the cache of a ``KvStore`` and read as one."""

import ctypes

import numpy as np
import torch

from runtime.footprint import Piece
from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvShape
from tests.runtime.kv.host_memory import HostMemory


def pieces_of(shape: KvShape) -> list[Piece]:
    return [Piece(layer, head) for layer in range(shape.num_layers) for head in range(shape.num_kv_heads)]


def store_of(shape: KvShape, chunk_blocks: int = 4) -> ChunkedStore:
    memory = HostMemory(chunk_blocks * shape.block_slots * shape.piece_slot_bytes)
    return ChunkedStore(shape, memory, torch.device("cpu"))


def gained(shape: KvShape, chunk_blocks: int = 4) -> ChunkedStore:
    """With memory for all."""
    store = store_of(shape, chunk_blocks)
    store.gain(pieces_of(shape), [(0, shape.num_blocks)], seconds=60)
    return store


def view(store: ChunkedStore, place: tuple[int, ...]) -> torch.Tensor:
    """One chunk's ``[blocks, 2, stack, block size, dim]``."""
    address, shape = int(store.table[place]), store.shape
    dims = (store.chunk_blocks, 2, shape.stack, shape.block_size, shape.head_dim)
    size = int(np.prod(dims)) * shape.dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(buffer, dtype=shape.dtype).view(dims)


def fill(store: ChunkedStore, cache: torch.Tensor) -> None:
    """Write the cache of a ``KvStore`` to what is held."""
    for place in np.argwhere(store.table.numpy()):
        stack, head, chunk = map(int, place)
        blocks = cache[:, stack, head, chunk * store.chunk_blocks : (chunk + 1) * store.chunk_blocks]
        view(store, (stack, head, chunk))[: blocks.shape[1]] = blocks.movedim(0, 1)


def read(store: ChunkedStore) -> torch.Tensor:
    """As the cache of a ``KvStore``; zeros where nothing is held."""
    cache = torch.zeros(store.shape.dims, dtype=store.shape.dtype)
    for place in np.argwhere(store.table.numpy()):
        stack, head, chunk = map(int, place)
        blocks = cache[:, stack, head, chunk * store.chunk_blocks : (chunk + 1) * store.chunk_blocks]
        blocks.copy_(view(store, (stack, head, chunk))[: blocks.shape[1]].movedim(1, 0))
    return cache
