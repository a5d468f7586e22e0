"""Memory in chunks that peer processes can open: of a CUDA device."""

import ctypes
import importlib
from typing import Any, Protocol

from runtime.errors import EngineStartError, RuntimeFault

HANDLE_BYTES = 64
"""What says where an allocation is, to other processes: as much as a CUDA IPC handle takes."""


class MemoryFaultError(RuntimeFault):
    """Memory that cannot be had, opened or read; says what the system said."""


class Memory(Protocol):
    """Where chunks come from. Addresses are those of the device that kernels run on."""

    granularity: int
    """Allocations are multiples of it, whatever is asked for."""

    def allocate(self, num_bytes: int) -> int:
        """The address of so many bytes, whose content is anything.

        Raises:
            MemoryFaultError: there are not so many.
        """

    def free(self, address: int) -> None:
        """Give an allocation back; no peer has it open."""

    def export(self, address: int) -> bytes:
        """What a peer opens an allocation with: at most ``HANDLE_BYTES``."""

    def open(self, exported: bytes) -> int:
        """The address here of a peer's allocation.

        Raises:
            MemoryFaultError: the peer is gone.
        """

    def close(self, address: int) -> None:
        """Have a peer's allocation no longer."""

    def read(self, address: int, num_bytes: int) -> bytes:
        """What lies there."""

    def wait(self) -> None:
        """Return when all kernels that were launched have ended."""


class CudaMemory:
    """Of one CUDA device, through CUDA IPC.

    CUDA takes 2 MiB at a time from the device, and an IPC handle opens all of what it took: an allocation of 2 MiB
    shares with nobody. Freeing what a peer has open is undefined, so peers close first (``workers.Workers.give_back``).
    """

    granularity = 2 << 20

    def __init__(self, device: int) -> None:
        """Begin to use a device.

        Raises:
            EngineStartError: the package is missing.
        """
        try:
            self._cuda: Any = importlib.import_module("cuda.bindings.runtime")
        except ImportError as error:
            raise EngineStartError(
                "KV memory on a GPU needs the package cuda-bindings; install intentctl[gpu]"
            ) from error
        self._call("cudaSetDevice", device)

    def allocate(self, num_bytes: int) -> int:
        return int(self._call("cudaMalloc", num_bytes))

    def free(self, address: int) -> None:
        self._call("cudaFree", address)

    def export(self, address: int) -> bytes:
        return bytes(self._call("cudaIpcGetMemHandle", address).reserved)

    def open(self, exported: bytes) -> int:
        handle = self._cuda.cudaIpcMemHandle_t()
        handle.reserved = exported
        return int(self._call("cudaIpcOpenMemHandle", handle, self._cuda.cudaIpcMemLazyEnablePeerAccess))

    def close(self, address: int) -> None:
        self._call("cudaIpcCloseMemHandle", address)

    def read(self, address: int, num_bytes: int) -> bytes:
        found = bytearray(num_bytes)
        here = ctypes.addressof(ctypes.c_char.from_buffer(found))
        self._call("cudaMemcpy", here, address, num_bytes, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost)
        return bytes(found)

    def wait(self) -> None:
        self._call("cudaDeviceSynchronize")

    def _call(self, name: str, *arguments: Any) -> Any:
        """The value of a call, whose first result says how it went."""
        status, *values = getattr(self._cuda, name)(*arguments)
        if int(status):
            raise MemoryFaultError(f"{name}{arguments}: {status.name}")
        return values[0] if values else None
