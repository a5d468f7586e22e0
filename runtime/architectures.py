"""The architectures that are known, and by which keys the ``config.json`` of each says what it has.

Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class Architecture:
    """What sets one architecture apart from Llama."""

    attention_bias: bool = False
    """On q, k and v."""
    qk_norm: bool = False
    """On q and k."""
    width: str = "intermediate_size"
    """Key of the width of one MLP."""
    counts: tuple[str, ...] = ()
    """Spellings of the key of how many experts a layer has; empty for a dense model."""

    def experts(self, config: Mapping[str, Any]) -> tuple[int, int]:
        """How many experts a layer has, and how many of them a token uses; one and one for a dense model.

        Raises:
            KeyError, TypeError, ValueError: a key is missing, or no number.
        """
        if not self.counts:
            return 1, 1
        count = next((key for key in self.counts if key in config), self.counts[0])
        return int(config[count]), int(config["num_experts_per_tok"])


DENSE: Mapping[str, Architecture] = {
    "LlamaForCausalLM": Architecture(),
    "MistralForCausalLM": Architecture(),
    "Qwen2ForCausalLM": Architecture(attention_bias=True),
    "Qwen3ForCausalLM": Architecture(qk_norm=True),
}
"""Those that the engines serve."""

MIXTURES: Mapping[str, Architecture] = {
    "MixtralForCausalLM": Architecture(counts=("num_local_experts",)),
    "Qwen3MoeForCausalLM": Architecture(
        qk_norm=True, width="moe_intermediate_size", counts=("num_experts", "num_local_experts")
    ),
}
"""Mixtures of experts: they can be planned for."""

QUANTISED: Mapping[tuple[str, str, int | None], str] = {
    ("awq", "int", 4): "int4",
    ("gptq", "int", 4): "int4",
    ("gptq", "int", 8): "int8",
    ("compressed-tensors", "int", 4): "int4",
    ("compressed-tensors", "int", 8): "int8",
    ("compressed-tensors", "float", 8): "fp8",
    ("fp8", "int", None): "fp8",
}
"""How a checkpoint is quantised (method, type and bits of its weights) to the weight format that this is."""


def architecture_of(config: Mapping[str, Any], name: str) -> tuple[str, Architecture]:
    """The architecture that a ``config.json`` names.

    Raises:
        UnsupportedModelError: it is not known, or some layers of a mixture of experts have none.
    """
    first_name = (config.get("architectures") or ["none"])[0]
    if first_name in MIXTURES and (config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1):
        raise UnsupportedModelError(
            f"{name}: mlp_only_layers or decoder_sparse_step in config.json leaves some layers without experts; "
            "a mixture of experts can be planned for where all its layers are alike"
        )
    found = DENSE.get(first_name) or MIXTURES.get(first_name)
    if found is None:
        raise UnsupportedModelError(
            f"{name}: architecture {first_name} is not supported; supported are {', '.join(DENSE)}, "
            f"and for planning {', '.join(MIXTURES)}"
        )
    return first_name, found


def quantised(config: Mapping[str, Any], name: str) -> str | None:
    """The weight format that a checkpoint is quantised to (``quantization_config``); None: it is not.

    Raises:
        UnsupportedModelError: it is quantised in a way that is not known.
    """
    if config.get("quantization_config") is None:
        return None
    method, weights = _weights_of(config)
    precision = QUANTISED.get((method, weights.get("type", "int"), weights.get("num_bits")))
    if precision is None:
        raise UnsupportedModelError(
            f"{name}: quantization_config in config.json is none of awq, gptq, compressed-tensors with 4 or 8 bits, or fp8: "
            f"{how_quantised(config)}"
        )
    return precision


def how_quantised(config: Mapping[str, Any]) -> str:
    """Method, bits and groups of a checkpoint that is quantised, in words: ``awq, 4 bits, groups of 128``."""
    method, weights = _weights_of(config)
    bits = f"{weights['num_bits']} bits" if weights.get("num_bits") else ""
    group = weights.get("group_size") or 0
    return ", ".join(filter(None, (method, bits, f"groups of {group}" if group > 0 else "")))


def _weights_of(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The method, and what it says of weights; ``config_groups`` of several kinds are told by the first."""
    found = config["quantization_config"]
    kinds = found.get("config_groups") or {"": {}}
    usual = {"num_bits": found.get("bits"), "group_size": found.get("group_size")}
    return str(found.get("quant_method")), next(iter(kinds.values())).get("weights") or usual
