"""Shapes by name and by ``config.json``."""

import pytest

from runtime.errors import UnsupportedModelError
from runtime.models import ModelSpec
from selector.shapes import available, shape, shape_of

BILLIONS = {
    "llama-2-7b": 6.74, "llama-2-13b": 13.0, "llama-2-70b": 69.0, "llama-3-8b": 8.03, "llama-3-70b": 70.6, "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6, "qwen2.5-7b": 7.62, "qwen2.5-32b": 32.8, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5,
    "mixtral-8x7b": 46.7,
}  # fmt: skip
"""Parameters as their model cards give them."""

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(("name", "billions"), BILLIONS.items())
def test_a_known_shape_has_the_parameters_of_its_model(name, billions):
    assert shape(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)


def test_every_known_shape_is_checked_here():
    assert set(available()) == BILLIONS.keys()


def test_case_and_organisation_do_not_matter():
    assert shape("Qwen/Qwen3-8B") == shape("qwen3-8b")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(
        UnsupportedModelError, match=r"'gpt-5'; known are llama-2-13b, .* or give the path of a config\.json"
    ):
        shape("gpt-5")


def test_a_dense_config_is_read_as_the_runtime_reads_it():
    assert shape_of(LLAMA, "tiny") == ModelSpec.from_config(LLAMA, "tiny")


@pytest.mark.parametrize(
    ("architecture", "keys"),
    [
        ("MixtralForCausalLM", {"num_local_experts": 8, "num_experts_per_tok": 2}),
        ("Qwen3MoeForCausalLM", {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}),
    ],
)
def test_a_mixture_of_experts_says_how_many_and_how_wide(architecture, keys):
    model = shape_of({**LLAMA, "architectures": [architecture], **keys}, "moe")
    assert (model.num_experts, model.experts_per_token) == (8, 2)
    assert model.intermediate_size == keys.get("moe_intermediate_size", 128)
    assert model.layer_parameters == model.attention_parameters + 8 * 3 * 64 * model.intermediate_size


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "architecture MambaForCausalLM is not known"),
        ({"architectures": []}, "architecture none"),
        ({"hidden_size": 0}, "hidden_size, head_dim must be 1 or more"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 KV heads"),
        ({"vocab_size": "many"}, "misstates a number"),
        ({"architectures": ["MixtralForCausalLM"]}, "no number for num_local_experts, num_experts_per_tok"),
        (
            {"architectures": ["MixtralForCausalLM"], "num_local_experts": 2, "num_experts_per_tok": 3},
            "cannot use 3 of 2",
        ),
    ],
)
def test_an_impossible_config_is_refused_by_name(changes, reason):
    with pytest.raises(UnsupportedModelError, match=reason):
        shape_of({**LLAMA, **changes}, "m")


def test_the_runtime_still_refuses_what_its_engines_cannot_run():
    with pytest.raises(UnsupportedModelError, match="MixtralForCausalLM is not supported"):
        ModelSpec.from_config({**LLAMA, "architectures": ["MixtralForCausalLM"]}, "moe")
