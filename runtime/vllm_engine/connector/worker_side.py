"""The connector in a worker process: whole blocks between this rank's KV cache and staging memory.

Imports no vllm.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from runtime.vllm_engine.geometry import KvGeometry, RankShare, pages
from runtime.vllm_engine.staging import StagingHandle, open_slots

Pairs = tuple[tuple[int, int], ...]
"""(engine block, staging slot)."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the workers do with their KV around one step."""

    number: int
    staging: StagingHandle
    store: Pairs = ()
    """To staging memory, after the step."""
    load: Pairs = ()
    """From staging memory."""
    arrived: tuple[str, ...] = ()
    """Requests whose KV is complete once this order is done, by vLLM's ids."""


@dataclass(frozen=True, slots=True)
class Ack:
    """An order was carried out; the acknowledgements of all ranks are added up."""

    number: int
    stored_bytes: int = 0
    loaded_bytes: int = 0

    def plus(self, other: "Ack") -> "Ack":
        """This one and another rank's."""
        stored = self.stored_bytes + other.stored_bytes
        loaded = self.loaded_bytes + other.loaded_bytes
        return replace(self, stored_bytes=stored, loaded_bytes=loaded)


class WorkerSide:
    """One rank's KV cache, and the staging memory of the switch under way."""

    def __init__(self, caches: Mapping[int, Any], geometry: KvGeometry, share: RankShare) -> None:
        """``caches``: tensor per layer index, in the geometry's form with this rank's heads only."""
        self.geometry = geometry
        self.share = share
        self._caches = caches
        self._handle: StagingHandle | None = None
        self._slots: Any = None

    def store(self, order: Order) -> int:
        """Copy blocks to their slots; returns the bytes."""
        if not self.share.is_writer:
            return 0
        slots = self._open(order.staging)
        return sum(
            _copy(slots[slot, layer, slice(*self.share.heads)], pages(cache, block, self.geometry.form))
            for block, slot in order.store
            for layer, cache in self._caches.items()
        )

    def load(self, order: Order) -> int:
        """Copy slots to their blocks; returns the bytes."""
        slots = self._open(order.staging)
        return sum(
            _copy(pages(cache, block, self.geometry.form), slots[slot, layer, slice(*self.share.heads)])
            for block, slot in order.load
            for layer, cache in self._caches.items()
        )

    def close_staging(self) -> None:
        """Let go of the staging memory."""
        self._handle = self._slots = None

    def digests(self, blocks: Sequence[int]) -> dict[tuple[int, int, int], str]:
        """Digest of each page of these blocks by (position in ``blocks``, layer, head of the model)."""
        found = {}
        for position, block in enumerate(blocks):
            for layer, cache in self._caches.items():
                for number, page in enumerate(pages(cache, block, self.geometry.form)):
                    body = page.contiguous().view(torch.uint8).cpu().numpy().tobytes()
                    head = self.share.heads[0] + number
                    found[position, layer, head] = hashlib.blake2b(body, digest_size=8).hexdigest()
        return found

    def _open(self, handle: StagingHandle) -> Any:
        if handle != self._handle:
            self._handle, self._slots = handle, open_slots(handle)
        return self._slots


def _copy(target: Any, source: Any) -> int:
    target.copy_(source)
    return int(source.numel() * source.element_size())
