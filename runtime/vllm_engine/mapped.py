"""Staging memory as a GPU reaches it: registered with CUDA, in steps, as its slots are first used.

Registering pins pages, which takes time (estimated: 20 ms for 64 MiB) and memory that nobody may
need: not all of it at once beside running streams. What CUDA does not register or show is reached through copies of the host.
"""

import logging
from typing import Any, Protocol

import torch

STEP_BYTES = 32 << 20
"""Registered together."""


class HostMemory(Protocol):
    """What CUDA does with memory of the host."""

    def register(self, address: int, num_bytes: int) -> str:
        """Pin pages and let kernels reach them; why not, or an empty text."""

    def unregister(self, address: int) -> None:
        """Undo it, once no kernel uses them."""

    def view(self, slots: torch.Tensor) -> torch.Tensor:
        """The same memory as a tensor of the device; its begin is registered."""


class CudaHostMemory:
    """Of one CUDA device; needs addresses that are the same for host and device, as on Linux with 64 bits."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def register(self, address: int, num_bytes: int) -> str:
        status = self._cuda.cudaHostRegister(address, num_bytes, 0)
        return "" if int(status) == 0 else f"cudaHostRegister: error {int(status)}"

    def unregister(self, address: int) -> None:
        torch.cuda.current_stream(self._device).synchronize()
        self._cuda.cudaHostUnregister(address)

    def view(self, slots: torch.Tensor) -> torch.Tensor:
        memory = torch.as_tensor(_Bytes(slots), device=self._device)
        return memory.view(slots.dtype).view(slots.shape)


class _Bytes:
    """A tensor's memory in the form in which arrays of CUDA are handed around."""

    def __init__(self, slots: torch.Tensor) -> None:
        num_bytes = slots.numel() * slots.element_size()
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,), "typestr": "|u1", "data": (slots.data_ptr(), False), "version": 2,
        }  # fmt: skip


class MappedSlots:
    """Slots that a device reads and writes in place."""

    def __init__(self, slots: torch.Tensor, memory: HostMemory) -> None:
        """``slots``: ``[slots, ...]``, contiguous, at the begin of a page of the host's memory."""
        self._slots = slots
        self._memory = memory
        self._ends: list[int] = [0]
        """Bytes up to which it is registered, after each step."""
        self._view: torch.Tensor | None = None
        self._refused = ""

    def reaching(self, slot: int) -> torch.Tensor:
        """All slots, to be used up to this one: on the device if they are registered, else on the host."""
        slot_bytes = self._slots[0].numel() * self._slots.element_size()
        needed = (slot + 1) * slot_bytes
        if needed > self._ends[-1] and not self._refused:
            self._register(min(len(self._slots) * slot_bytes, -(-needed // STEP_BYTES) * STEP_BYTES))
        return self._slots if self._view is None or needed > self._ends[-1] else self._view

    def _register(self, end: int) -> None:
        address = self._slots.data_ptr() + self._ends[-1]
        self._refused = self._memory.register(address, end - self._ends[-1])
        if not self._refused:
            self._ends.append(end)
            try:
                self._view = self._memory.view(self._slots)
            except (RuntimeError, TypeError, ValueError) as error:  # whatever torch says, streams are running
                self._refused = str(error)
        if self._refused:
            logging.getLogger(__name__).warning("staging memory is copied through the host: %s", self._refused)

    def close(self) -> None:
        """Unregister everything, before the memory is unmapped. Idempotent."""
        for begin in self._ends[:-1]:
            self._memory.unregister(self._slots.data_ptr() + begin)
        self._ends, self._view = [0], None
