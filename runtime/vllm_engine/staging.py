"""The shared memory that KV passes through during a switch.

Slots of whole blocks, by logical (layer, KV head).

One memory file per switch, made on the host of both engines and opened by the workers through it, so that nothing has a name and
nothing is left when processes die. It is bounded; memory is taken as slots are first written.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.errors import EngineLostError
from runtime.process.launcher import MemoryHere, SharedFile
from runtime.vllm_engine.geometry import KvGeometry


@dataclass(frozen=True, slots=True)
class StagingHandle:
    """How other processes find the memory: a path to the maker's open file, and its shape."""

    path: str
    inode: int
    """Of the file: the path is that of a descriptor, whose number the next switch may get again."""
    num_slots: int
    geometry: KvGeometry


class Staging:
    """The maker's side: holds the memory until it is closed."""

    def __init__(
        self, geometry: KvGeometry, block_bytes: int, bound_bytes: int, memory: SharedFile | None = None
    ) -> None:
        """``memory`` has the size that ``size_of`` says; without it, this process makes some."""
        self._memory = memory or MemoryHere(size_of(block_bytes, bound_bytes))
        num_slots = bound_bytes // block_bytes
        self.handle = StagingHandle(self._memory.path, self._memory.inode, num_slots, geometry)

    def close(self) -> None:
        """Give the memory back as soon as no worker has it open. Idempotent."""
        self._memory.close()


def size_of(block_bytes: int, bound_bytes: int) -> int:
    """Bytes of the staging memory with as many whole blocks as the bound allows."""
    return max(1, bound_bytes // block_bytes * block_bytes)


class OpenStaging:
    """A worker's side: the memory as its device reaches it."""

    def __init__(self, handle: StagingHandle, device: Any) -> None:
        """Map it; ``device`` is the one of the KV cache.

        Raises:
            EngineLostError: its maker is gone.
        """
        from runtime.vllm_engine.mapped import CudaHostMemory, MappedSlots

        self.handle = handle
        self._slots = open_slots(handle)
        self._mapped = MappedSlots(self._slots, CudaHostMemory(device)) if device.type == "cuda" else None

    def reaching(self, slot: int) -> Any:
        """``[slots, layers, KV heads, *page shape]``, to be used up to this slot."""
        return self._mapped.reaching(slot) if self._mapped else self._slots

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._mapped:
            self._mapped.close()


def open_slots(handle: StagingHandle) -> Any:
    """The memory as a tensor ``[slots, layers, KV heads, *page shape]``; it lives as long as the tensor.

    Raises:
        EngineLostError: its maker is gone.
    """
    import torch

    geometry = handle.geometry
    dtype: torch.dtype = getattr(torch, geometry.dtype)
    try:
        with Path(handle.path).open("r+b") as file:
            if os.fstat(file.fileno()).st_ino != handle.inode:
                raise EngineLostError(f"the staging memory of the switch is gone: {handle.path} is another file")
            memory = mmap.mmap(file.fileno(), handle.num_slots * geometry.block_values * dtype.itemsize)
    except OSError as error:
        raise EngineLostError(f"the staging memory of the switch is gone ({handle.path}): {error}") from error
    shape = (handle.num_slots, geometry.num_layers, geometry.num_kv_heads, *geometry.page_shape)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
