"""What one KV page is in a vLLM engine, and which pages a rank holds. Imports no vllm.

vLLM keeps one tensor per layer, whatever the physical order (its ``KVCacheLayout`` is a permutation of strides, so
indexing is logical): ``[blocks, KV heads, block size, 2 x head dim]`` packed, or ``[blocks, 2, block size, KV heads, head
dim]`` split into K and V. A page is what one block holds of one head. Its inside belongs to the attention kernel, so pages
travel whole, and only between engines that declare the same.
"""

from dataclasses import dataclass, fields
from typing import Any

from runtime.errors import UnsupportedModelError

PACKED = "packed"
SPLIT = "split"


@dataclass(frozen=True, slots=True)
class KvGeometry:
    """The KV cache of a whole model; equal for two engines exactly when pages may travel between them."""

    num_layers: int
    num_kv_heads: int
    """Of the model, before TP."""
    block_size: int
    head_dim: int
    dtype: str
    form: str
    """``packed`` or ``split``."""
    backend: str
    """The device and the attention kernel, which packs inside a page: ``cuda-FLASH_ATTN``."""

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.backend.partition("-")[0]

    @property
    def page_shape(self) -> tuple[int, ...]:
        """Shape of one page."""
        if self.form == PACKED:
            return (self.block_size, 2 * self.head_dim)
        return (2, self.block_size, self.head_dim)

    @property
    def block_values(self) -> int:
        """Values in one block over all layers and heads."""
        return 2 * self.block_size * self.head_dim * self.num_kv_heads * self.num_layers

    def difference(self, other: "KvGeometry") -> str:
        """In which way another engine's pages are not ours, by name; empty when they are."""
        names = [field.name for field in fields(self)]
        return ", ".join(
            f"{name} {getattr(self, name)} and {getattr(other, name)}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        )


@dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank holds: half-open ranges of layers and heads."""

    layers: tuple[int, int]
    heads: tuple[int, int]
    is_writer: bool
    """False for ranks that hold a copy of heads another rank brings to staging memory."""


def heads_of(rank: int, tp_size: int, num_kv_heads: int) -> tuple[tuple[int, int], bool]:
    """KV heads of a TP rank, half-open, and whether it is the one that brings them to staging memory.

    With more ranks than heads vLLM gives each head to ``tp_size / num_kv_heads`` neighbouring ranks.

    Raises:
        UnsupportedModelError: the degree neither divides the heads nor is a multiple of them.
    """
    if num_kv_heads % tp_size == 0:
        share = num_kv_heads // tp_size
        return (rank * share, (rank + 1) * share), True
    if tp_size % num_kv_heads == 0:
        copies = tp_size // num_kv_heads
        return (rank // copies, rank // copies + 1), rank % copies == 0
    raise UnsupportedModelError(f"TP {tp_size} and {num_kv_heads} KV heads: one must divide the other")


def form_of(shape: tuple[int, ...], num_heads: int, block_size: int, head_dim: int) -> str:
    """The form of a layer's tensor, by its logical shape.

    Raises:
        UnsupportedModelError: a layout that is not known here, named.
    """
    if shape[1:] == (num_heads, block_size, 2 * head_dim):
        return PACKED
    if shape[1:] == (2, block_size, num_heads, head_dim):
        return SPLIT
    raise UnsupportedModelError(
        f"a KV cache of shape {shape} for {num_heads} heads of {head_dim} in blocks of {block_size} is not known; "
        "switch such a model with path: follow"
    )


def paged(cache: Any, form: str) -> Any:
    """A layer's tensor as pages, ``[blocks, heads, *page shape]``: a view."""
    return cache if form == PACKED else cache.permute(0, 3, 1, 2, 4)
