"""Checkpoint folders that are missing, broken or of a kind the engine does not compute are refused by name."""

import json
import shutil

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
