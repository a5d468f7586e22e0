"""A driver whose workers keep KV in chunks of the host's memory, as on GPUs in chunks of theirs; run by test_chunked_engine.

Triton's interpreter runs the kernels.
"""

import fcntl
import os
import struct
import threading
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it when it is imported

import msgspec
import torch
from triton.runtime.interpreter import GridExecutor

from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvShape
from runtime.torch_engine.driver.loop import TorchDriver, main
from runtime.torch_engine.messages import TorchDriverConfig, WorkerConfig
from runtime.torch_engine.worker.backends import PLACES, Backend
from tests.runtime.kv.host_memory import HostMemory

CHUNK_BLOCKS = 4  # a page


_launch, _turn = GridExecutor.__call__, threading.Lock()


def launch(self: GridExecutor, *arguments: Any, **constants: Any) -> Any:
    """One after the other: the interpreter has one grid in the process, and a role warms up beside steps."""
    with _turn:
        return _launch(self, *arguments, **constants)


class Watched(HostMemory):
    """Says how much it holds, as the size of a file; and dies of freeing what a peer has open, which CUDA leaves undefined."""

    def __init__(self, granularity: int) -> None:
        super().__init__(granularity)
        self._said = os.memfd_create("intentctl-held")
        self._peers: dict[str, int] = {}
        self._locks: dict[int, tuple[int, int, int]] = {}

    def open(self, exported: bytes) -> int:
        address = super().open(exported)
        path, at, size = exported.rstrip(b"\0").decode().split()
        file = self._peers[path] = self._peers.get(path) or os.open(path, os.O_RDWR)
        self._locks[address] = file, int(at), int(size)
        lock(fcntl.F_RDLCK, *self._locks[address])
        return address

    def close(self, address: int) -> None:
        super().close(address)
        lock(fcntl.F_UNLCK, *self._locks.pop(address))

    def allocate(self, num_bytes: int) -> int:
        address = super().allocate(num_bytes)
        self._say()
        return address

    def free(self, address: int) -> None:
        part = self._file, address - self._base, self._sizes[address - self._base]
        lock(fcntl.F_WRLCK, *part)  # raises where a peer has one
        lock(fcntl.F_UNLCK, *part)
        super().free(address)
        self._say()

    def _say(self) -> None:
        os.ftruncate(self._said, sum(self._sizes.values()))


def lock(kind: int, file: int, at: int, size: int) -> None:
    """On a part of a memory file, as this process opened it."""
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, at, size, 0))


def open_chunks(_: int, shape: KvShape) -> Backend:
    """On the host."""
    memory = Watched(CHUNK_BLOCKS * shape.block_slots * shape.piece_slot_bytes)
    device = torch.device("cpu")
    return Backend(device, ChunkedStore(shape, memory, device))


class ChunkedDriver(TorchDriver):
    """With such workers."""

    def worker_config(self, config: TorchDriverConfig, shape: KvShape) -> WorkerConfig:
        return msgspec.structs.replace(super().worker_config(config, shape), place="chunks", gains=True)


if __name__ == "__main__":
    GridExecutor.__call__ = launch
    PLACES["chunks"] = open_chunks
    main(ChunkedDriver)
