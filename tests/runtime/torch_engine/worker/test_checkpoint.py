"""Checkpoint folders that are missing, broken or of a kind the engine does not compute are refused by name."""

import json
import shutil
from contextlib import nullcontext

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.errors import CheckpointError, UnsupportedModelError
from runtime.torch_engine.worker.checkpoint import Checkpoint, Rope
from tests.rows import rows


def without_config(folder):
    (folder / "config.json").unlink()


def no_json(folder):
    (folder / "config.json").write_text("{")


def without_weights(folder):
    (folder / "model.safetensors").unlink()


def truncated(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def without_a_tensor(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.3.self_attn.k_proj.weight"]
    save_file(tensors, folder / "model.safetensors")


def with_a_tensor_in_two_files(folder):
    (folder / "one.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    names = ["model.safetensors", "one.safetensors"]
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict(zip("ab", names, strict=True))})
    )


def a_tensor_of_another_shape(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"] = torch.zeros(3, 5)
    save_file(tensors, folder / "model.safetensors")


@rows(
    ("harm", "said"),
    [
        (shutil.rmtree, "copy: no such checkpoint folder"),
        (without_config, r"has no config\.json"),
        (no_json, r"config\.json: cannot be read"),
        (without_weights, "only safetensors"),
        (truncated, "truncated"),
        (without_a_tensor, r"model\.layers\.3\.self_attn\.k_proj\.weight is missing"),
        (with_a_tensor_in_two_files, r"one\.safetensors: tensor lm_head\.weight is in another file, too"),
        (
            a_tensor_of_another_shape,
            r"layers\.0\.mlp\.down_proj\.weight has shape \[3, 5\], not \[64, 96\]",
        ),
    ],
    ids=lambda harm: harm.__name__,
)
def test_what_is_missing_or_broken_is_named(checkpoints, tmp_path, harm, said):
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    folder = shutil.copytree(checkpoints["llama-untied"], tmp_path / "copy")
    harm(folder)
    with pytest.raises(CheckpointError, match=said):
        Checkpoint(folder)


LINEAR = {"rope_type": "linear", "rope_theta": 1e4}
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2}


@rows(
    ("changes", "said"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            "MambaForCausalLM is not supported; supported are Llama",
        ),
        (
            MIXTRAL,
            r"^copy is a mixture of experts \(MixtralForCausalLM\): it can be planned for but not served$",
        ),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        (
            {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}},
            r"sets quantization_config \(awq, 4 bits, groups of 128\), which",
        ),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"sliding_window": 512}, "sliding_window"),
        ({"rope_parameters": {**LINEAR, "rope_type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_parameters": LINEAR}, r"rope parameters in config\.json lack or misstate 'factor'"),
    ],
)
def test_what_the_engine_does_not_compute_is_refused_by_name(checkpoints, tmp_path, changes, said):
    folder = shutil.copytree(checkpoints["llama-untied"], tmp_path / "copy", dirs_exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(UnsupportedModelError, match=said):
        Checkpoint(folder)


EXTRA = {
    "a bias of the output": (["model.layers.0.self_attn.o_proj.bias"], r"o_proj\.bias; use `engine: vllm`$"),
    "a layer": ([f"model.layers.5.mlp.{name}_proj.weight" for name in ("down", "up", "gate")], r"\.down_.*\.up_"),
    "many": ([f"model.layers.{n}.self_attn.o_proj.bias" for n in range(5)], r"\.2\.self_attn\.o_proj\.bias and 2 more"),
    "an adapter": (["base_model.model.lora_A.weight"], r"lora_A\.weight"),
    "frequencies": (["model.layers.0.self_attn.rotary_emb.inv_freq"], ""),
}


@rows(("names", "said"), EXTRA.values(), ids=list(EXTRA))
def test_a_tensor_that_would_not_be_read_is_refused_by_name(checkpoints, tmp_path, names, said):
    folder = shutil.copytree(checkpoints["llama-untied"], tmp_path / "copy", dirs_exist_ok=True)
    tensors = load_file(checkpoints["llama-untied"] / "model.safetensors")
    save_file({**tensors, **{name: torch.zeros(3) for name in names}}, folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=said) if said else nullcontext():
        Checkpoint(folder)


def test_a_llama_with_a_bias_of_its_output_is_refused_and_one_with_a_tied_head_twice_is_read(checkpoints, tmp_path):
    import transformers

    config = transformers.AutoConfig.from_pretrained(checkpoints["llama-untied"])
    config.attention_bias = True
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "biased")
    with pytest.raises(UnsupportedModelError, match=r"o_proj\.bias, .* and 2 more; use `engine: vllm`"):
        Checkpoint(tmp_path / "biased")
    folder = shutil.copytree(checkpoints["qwen3-tied"], tmp_path / "tied")
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"].clone()}, folder / "model.safetensors")
    assert Checkpoint(folder).spec.tie_word_embeddings


def test_both_spellings_of_rope_are_read():
    old = Rope.from_config({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}, "x")
    new = Rope.from_config({"rope_parameters": {**LINEAR, "rope_theta": 5e5, "factor": 4.0}}, "x")
    assert old == new == Rope(5e5, 4.0)


def test_a_sharded_checkpoint_reads_like_a_whole_one(checkpoints, tmp_path):
    import transformers

    model = transformers.LlamaForCausalLM.from_pretrained(checkpoints["llama-untied"])
    model.save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    name = "model.layers.4.mlp.up_proj.weight"
    whole = Checkpoint(checkpoints["llama-untied"])
    assert torch.equal(Checkpoint(tmp_path).tensor(name), whole.tensor(name))
