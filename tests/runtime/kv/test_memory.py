"""What is asked of CUDA, of a stand-in for its bindings: nothing here has a GPU."""

import ctypes
import sys
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

from runtime.errors import EngineStartError
from runtime.kv.memory import HANDLE_BYTES, CudaMemory, MemoryFaultError
from tests.runtime.kv.host_memory import HostMemory


class Status(IntEnum):
    cudaSuccess = 0  # noqa: N815 - CUDA's names
    cudaErrorMemoryAllocation = 2  # noqa: N815


class Bindings:
    """``cuda.bindings.runtime``: a status, then what was asked for."""

    cudaIpcMemLazyEnablePeerAccess = 1  # noqa: N815
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDeviceToHost=2)  # noqa: N815
    cudaIpcMemHandle_t = SimpleNamespace  # noqa: N815

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status = Status.cudaSuccess
        self.values = {
            "cudaMalloc": (4096,),
            "cudaIpcGetMemHandle": (SimpleNamespace(reserved=b"h" * HANDLE_BYTES),),
            "cudaIpcOpenMemHandle": (8192,),
        }

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append((name, *arguments))
            return (self.status, *self.values.get(name, ()))

        return call


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> Bindings:
    found = Bindings()
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", found)
    return found


def test_an_allocation_is_exported_opened_and_freed_by_its_address(bindings):
    memory = CudaMemory(3)
    address = memory.allocate(2 << 20)
    opened = memory.open(memory.export(address))
    memory.close(opened)
    memory.free(address)
    named = [(name, *arguments) for name, *arguments in bindings.calls if name != "cudaIpcOpenMemHandle"]
    assert named == [
        ("cudaSetDevice", 3),
        ("cudaMalloc", 2 << 20),
        ("cudaIpcGetMemHandle", 4096),
        ("cudaIpcCloseMemHandle", 8192),
        ("cudaFree", 4096),
    ]
    (_, handle, flags) = next(call for call in bindings.calls if call[0] == "cudaIpcOpenMemHandle")
    assert (handle.reserved, flags) == (b"h" * HANDLE_BYTES, 1)


def test_bytes_are_read_to_the_host(bindings):
    assert CudaMemory(0).read(4096, 5) == bytes(5)
    name, _, *rest = bindings.calls[-1]
    assert (name, *rest) == ("cudaMemcpy", 4096, 5, 2)


def test_what_cuda_refuses_is_told_in_its_words(bindings):
    memory = CudaMemory(0)
    bindings.status = Status.cudaErrorMemoryAllocation
    with pytest.raises(MemoryFaultError, match=r"cudaMalloc.*cudaErrorMemoryAllocation"):
        memory.allocate(1)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(EngineStartError, match=r"intentctl\[gpu\]"):
        CudaMemory(0)


def test_memory_of_the_host_that_was_freed_is_empty_when_it_comes_again():
    memory = HostMemory()
    address = memory.allocate(4096)
    opened = memory.open(memory.export(address).ljust(HANDLE_BYTES, b"\0"))
    ctypes.memset(address, 7, 4096)
    assert memory.read(opened, 4096) == bytes([7]) * 4096
    memory.free(address)
    assert memory.allocate(4096) == address
    assert memory.read(opened, 4096) == bytes(4096)
