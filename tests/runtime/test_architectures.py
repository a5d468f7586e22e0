"""Shapes of dense models and of mixtures of experts, as ``config.json`` has them."""

import pytest

from runtime.errors import UnsupportedModelError
from runtime.footprint import weight_bytes, weight_slices
from runtime.models import ModelSpec, uniform
from tests.rows import rows
from tests.runtime.scripted import cluster_of

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip
MIXTRAL = {**LLAMA, "architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN = {
    **LLAMA,
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


@rows(
    ("config", "width"),
    [(MIXTRAL, 128), ({**QWEN, "num_experts": 8}, 32), ({**QWEN, "num_local_experts": 8}, 32)],
)
def test_a_mixture_of_experts_says_how_many_and_how_wide(config, width):
    model = ModelSpec.from_config(config, "moe")

    assert (model.num_experts, model.experts_per_token, model.intermediate_size) == (8, 2, width)
    assert model.layer_parameters == model.attention_parameters + 8 * 3 * 64 * width
    assert model.active_layer_parameters == model.attention_parameters + 2 * 3 * 64 * width


def test_a_dense_model_meets_all_its_parameters_and_is_served():
    model = ModelSpec.from_config(LLAMA, "tiny")

    assert model.active_layer_parameters == model.layer_parameters
    assert model.unserved is None


@rows(
    ("changes", "reason"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            "MambaForCausalLM is not supported; .* for planning Mixtral",
        ),
        ({"architectures": []}, "architecture none"),
        ({"hidden_size": 0}, "hidden_size, head_dim must be 1 or more"),
        ({"num_attention_heads": 0}, "num_attention_heads, num_key_value_heads must be"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads"),
        ({"vocab_size": "many"}, "misstates a number"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "none of awq, gptq, .*: bitsandbytes"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "with 4 or 8 bits, or fp8: awq, 3 bits$"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": 64}}, "gptq, 3 bits, groups of 64$"),
        ({"quantization_config": "awq"}, "misstates"),
        ({"architectures": ["MixtralForCausalLM"]}, "config.json has no 'num_local_experts'"),
        ({**MIXTRAL, "num_experts_per_tok": 9}, "cannot use 9 of 8"),
        ({**MIXTRAL, "num_local_experts": 0}, "the number of experts must be 1 or more"),
        ({**QWEN, "num_experts": None}, "misstates a number"),
        ({**QWEN, "num_experts": 8, "mlp_only_layers": [0]}, "leaves some layers without experts"),
        ({**QWEN, "num_experts": 8, "decoder_sparse_step": 2}, "leaves some layers without experts"),
    ],
)
def test_an_impossible_config_is_refused_by_name(changes, reason):
    with pytest.raises(UnsupportedModelError, match=f"^m: .*{reason}"):
        ModelSpec.from_config({**LLAMA, "num_key_value_heads": None, **changes}, "m")


@rows(("tp", "pp"), [(1, 1), (2, 1), (1, 2)])
def test_all_experts_take_memory(tp, pp):
    model = ModelSpec.from_config(MIXTRAL, "moe")
    topology = uniform(cluster_of("A100", count=2), "A100", tp, pp, model.num_layers, "bf16")
    copies = (tp - 1) * model.embedding_parameters  # each rank holds the input embedding

    assert sum(weight_bytes(topology, model).values()) == 2 * (model.parameters + copies)
    held = weight_slices(topology, model).values()
    assert sum(sum(one.values()) for one in held) == 2 * (model.parameters + copies)


@rows(
    ("said", "name"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
            },
            "int4",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
            },
            "fp8",
        ),
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, "fp8"),
    ],
)
def test_a_quantised_checkpoint_says_its_weight_format(said, name):
    assert ModelSpec.from_config({**LLAMA, "quantization_config": said}, "tiny").quantised == name
    assert ModelSpec.from_config(LLAMA, "tiny").quantised is None
