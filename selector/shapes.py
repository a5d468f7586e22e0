"""Shapes of common models by name: enough to predict, without weights."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from intent.tables import mapping
from runtime.errors import UnsupportedModelError
from runtime.models import ModelSpec


def available() -> tuple[str, ...]:
    """The names that are known."""
    return tuple(sorted(_shapes()))


def shape(name: str) -> ModelSpec:
    """The model of that name, case and organisation left out: ``Qwen/Qwen3-8B`` is ``qwen3-8b``.

    Raises:
        UnsupportedModelError: it is not known; the message lists those that are.
    """
    known = _shapes()
    short = name.rsplit("/", 1)[-1].casefold()
    if short not in known:
        raise UnsupportedModelError(
            f"no shape for {name!r}; known are {', '.join(available())}, or give the path of a config.json"
        )
    return known[short]


@cache
def _shapes() -> Mapping[str, ModelSpec]:
    found: Mapping[str, Any] = mapping("selector", "shapes")
    return {name: _spec(name, sizes) for name, sizes in found.items()}


def _spec(name: str, sizes: list[int]) -> ModelSpec:
    layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions = sizes[:8]
    dense = ModelSpec(
        name, "shape only", layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions
    )
    experts, used = sizes[8:] or (1, 1)
    return replace(dense, num_experts=experts, experts_per_token=used)
