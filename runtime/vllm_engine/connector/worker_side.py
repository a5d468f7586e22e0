"""The connector in a worker process: whole blocks between this rank's KV cache and staging memory.

An order takes one gather and one scatter a layer, however many blocks it has: on a GPU each call costs a launch, and a copy of
each block and layer would make thousands of them inside a cut. Imports no vllm.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runtime.vllm_engine.geometry import KvGeometry, RankShare, paged
from runtime.vllm_engine.staging import OpenStaging, StagingHandle

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
    storing_s: float = 0.0
    """Of the slowest rank: the step took longer by that."""

    def plus(self, other: "Ack") -> "Ack":
        """This one and another's, of another rank or of the other half of the order."""
        return Ack(
            self.number,
            self.stored_bytes + other.stored_bytes,
            self.loaded_bytes + other.loaded_bytes,
            max(self.storing_s, other.storing_s),
        )


class WorkerSide:
    """One rank's KV cache, and the staging memory of the switch under way."""

    def __init__(self, caches: Mapping[int, Any], geometry: KvGeometry, share: RankShare) -> None:
        """``caches``: tensor per layer index, in the geometry's form with this rank's heads only."""
        self.geometry = geometry
        self.share = share
        self._caches = caches
        self._staging: OpenStaging | None = None

    def store(self, order: Order) -> int:
        """Copy blocks to their slots; returns the bytes."""
        if not order.store or not self.share.is_writer:
            return 0
        moving = self._moving(order.staging, order.store)
        for pages, slots in self._layers(moving):
            move(pages, moving.blocks, slots, moving.places)
        return self._done(order.store)

    def load(self, order: Order) -> int:
        """Copy slots to their blocks; returns the bytes."""
        if not order.load:
            return 0
        moving = self._moving(order.staging, order.load)
        for pages, slots in self._layers(moving):
            move(slots, moving.places, pages, moving.blocks)
        return self._done(order.load)

    def wait(self) -> None:
        """Until what was launched on this device has ended."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def close_staging(self) -> None:
        """Let go of the staging memory."""
        if self._staging is not None:
            self._staging.close()
        self._staging = None

    def digests(self, blocks: Sequence[int]) -> dict[tuple[int, int, int], str]:
        """Digest of each page of these blocks by (position in ``blocks``, layer, head of the model)."""
        found = {}
        for position, block in enumerate(blocks):
            for layer, cache in self._caches.items():
                for number, page in enumerate(paged(cache, self.geometry.form)[block]):
                    body = page.contiguous().view(torch.uint8).cpu().numpy().tobytes()
                    head = self.share.heads[0] + number
                    found[position, layer, head] = hashlib.blake2b(body, digest_size=8).hexdigest()
        return found

    def _moving(self, handle: StagingHandle, pairs: Pairs) -> "_Moving":
        if self._staging is None or handle != self._staging.handle:
            self.close_staging()
            self._staging = OpenStaging(handle, self._device)
        slots = self._staging.reaching(max(slot for _, slot in pairs))
        blocks = torch.tensor([block for block, _ in pairs], device=self._device)
        return _Moving(blocks, torch.tensor([slot for _, slot in pairs], device=slots.device), slots)

    def _layers(self, moving: "_Moving") -> Iterator[tuple[Any, Any]]:
        """Of each layer the pages ``[blocks, heads, *page shape]`` and the slots of its heads, as views."""
        for layer, cache in self._caches.items():
            yield paged(cache, self.geometry.form), moving.slots[:, layer, slice(*self.share.heads)]

    def _done(self, pairs: Pairs) -> int:
        """Wait for the copies; the bytes of so many blocks in this rank's layers and heads."""
        self.wait()
        pages = [paged(cache, self.geometry.form) for cache in self._caches.values()]
        block_bytes: int = sum(page[0].numel() * page.element_size() for page in pages)
        return len(pairs) * block_bytes

    @property
    def _device(self) -> torch.device:
        """Of the KV cache."""
        return next((cache.device for cache in self._caches.values()), torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class _Moving:
    """What an order moves: blocks of the engine, and in the same order slots of staging memory."""

    blocks: torch.Tensor
    places: torch.Tensor
    slots: torch.Tensor
    """``[slots, layers, KV heads, *page shape]``."""


def move(source: torch.Tensor, source_rows: torch.Tensor, target: torch.Tensor, target_rows: torch.Tensor) -> None:
    """Copy rows of the one to rows of the other: one gather and one scatter, each on its device.

    Rows are indices on that device. On a CPU numpy copies, which takes half as long as torch's ``index_copy_``.
    """
    if source.device.type == target.device.type == "cpu":
        _array(target)[target_rows.numpy()] = _array(source)[source_rows.numpy()]
    else:
        target[target_rows] = source[source_rows].to(target.device)


def _array(tensor: torch.Tensor) -> Any:
    """The same memory as integers, for numpy has no bfloat16."""
    return tensor.view(_INTEGERS[tensor.element_size()]).numpy()


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
