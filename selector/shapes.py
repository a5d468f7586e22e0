"""Shapes of models by name or from a ``config.json``: enough to predict, without weights."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from runtime.errors import UnsupportedModelError
from runtime.models import ARCHITECTURES, ModelSpec

_EXPERTS: Mapping[str, tuple[str, str, str]] = {
    "MixtralForCausalLM": ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
    "Qwen3MoeForCausalLM": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
}
"""Architecture to the keys of its experts: how many, how many a token uses, the width of one."""


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


def shape_of(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The shape in a Hugging Face ``config.json``, of a dense model or a mixture of experts.

    Raises:
        UnsupportedModelError: an architecture that is not known, a missing or impossible number.
    """
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture not in _EXPERTS:
        if architecture not in ARCHITECTURES:
            known = ", ".join((*ARCHITECTURES, *_EXPERTS))
            raise UnsupportedModelError(
                f"{name}: architecture {architecture} is not known; known are {known}"
            )
        return _checked(ModelSpec.from_config(config, name))
    count, used, width = _EXPERTS[architecture]
    if missing := [key for key in (count, used, width) if not isinstance(config.get(key), int)]:
        raise UnsupportedModelError(f"{name}: config.json has no number for {', '.join(missing)}")
    dense = {**config, "architectures": ["LlamaForCausalLM"], "intermediate_size": config[width]}
    found = ModelSpec.from_config(dense, name)
    return _checked(
        replace(found, architecture=architecture, num_experts=config[count], experts_per_token=config[used])
    )


def _checked(model: ModelSpec) -> ModelSpec:
    """The model, if every size is positive and its heads can be dealt."""
    sizes = {
        "num_hidden_layers": model.num_layers, "hidden_size": model.hidden_size, "intermediate_size": model.intermediate_size,
        "num_attention_heads": model.num_heads, "num_key_value_heads": model.num_kv_heads, "head_dim": model.head_dim,
        "vocab_size": model.vocab_size, "the number of experts": model.num_experts,
    }  # fmt: skip
    if wrong := [key for key, value in sizes.items() if value < 1]:
        raise UnsupportedModelError(f"{model.name}: {', '.join(wrong)} must be 1 or more")
    if model.num_heads % model.num_kv_heads:
        raise UnsupportedModelError(
            f"{model.name}: {model.num_heads} heads cannot share {model.num_kv_heads} KV heads evenly"
        )
    if not 1 <= model.experts_per_token <= model.num_experts:
        raise UnsupportedModelError(
            f"{model.name}: a token cannot use {model.experts_per_token} of {model.num_experts} experts"
        )
    return model


@cache
def _shapes() -> Mapping[str, ModelSpec]:
    text = resources.files(__package__).joinpath("shapes.yaml").read_text(encoding="utf-8")
    return {name: _spec(name, sizes) for name, sizes in yaml.safe_load(text).items()}


def _spec(name: str, sizes: list[int]) -> ModelSpec:
    layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions = sizes[:8]
    dense = ModelSpec(
        name, "shape only", layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions
    )
    experts, used = sizes[8:] or (1, 1)
    return _checked(replace(dense, num_experts=experts, experts_per_token=used))
