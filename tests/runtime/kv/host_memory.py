"""Memory in chunks on the host, for tests on machines without a GPU: answers like ``CudaMemory``."""

import ctypes
import mmap
import os
from pathlib import Path

from runtime.kv.memory import MemoryFaultError


class HostMemory:
    """Of the host: parts of one sparse memory file. Triton's interpreter runs kernels on it."""

    _BYTES = 1 << 32
    """Of the file; untouched pages cost nothing."""

    def __init__(self, granularity: int = mmap.PAGESIZE) -> None:
        self.granularity = granularity
        self._file = os.memfd_create("intentctl-chunks")
        os.ftruncate(self._file, self._BYTES)
        self._map = mmap.mmap(self._file, self._BYTES)
        self._base, self._end = _address(self._map), 0
        self._sizes: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        self._opened: dict[int, mmap.mmap] = {}

    def allocate(self, num_bytes: int) -> int:
        size = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        if freed := self._free.get(size):
            at = freed.pop()
        else:
            at, self._end = self._end, self._end + size
        self._sizes[at] = size
        return self._base + at

    def free(self, address: int) -> None:
        at = address - self._base
        size = self._sizes.pop(at)
        self._map.madvise(mmap.MADV_REMOVE, at, size)
        self._free.setdefault(size, []).append(at)

    def export(self, address: int) -> bytes:
        at = address - self._base
        return f"/proc/{os.getpid()}/fd/{self._file} {at} {self._sizes[at]}".encode()

    def open(self, exported: bytes) -> int:
        path, at, size = exported.rstrip(b"\0").decode().split()
        try:
            with Path(path).open("r+b") as file:
                opened = mmap.mmap(file.fileno(), int(size), offset=int(at))
        except OSError as error:
            raise MemoryFaultError(f"the KV memory of a peer is gone ({path}): {error}") from error
        address = _address(opened)
        self._opened[address] = opened
        return address

    def close(self, address: int) -> None:
        self._opened.pop(address).close()

    def read(self, address: int, num_bytes: int) -> bytes:
        return ctypes.string_at(address, num_bytes)

    def wait(self) -> None:
        """Kernels have ended when they return."""


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
