"""Checkpoint folders that are missing, broken or of a kind the engine does not compute are refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from runtime.errors import CheckpointError, UnsupportedModelError
from runtime.torch_engine.checkpoint import Checkpoint, Rope


@pytest.fixture
def folder(checkpoints: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoints["llama-untied"], tmp_path / "copy"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: no such checkpoint folder"):
        Checkpoint(tmp_path / "nowhere")


def test_a_folder_without_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        Checkpoint(tmp_path)


def test_a_config_that_is_no_json_is_named(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read"):
        Checkpoint(folder)


def test_a_folder_without_weights_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="only safetensors"):
        Checkpoint(folder)


def test_truncated_weights_are_noticed_at_once(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="truncated"):
        Checkpoint(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.3.self_attn.k_proj.weight"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.layers\.3\.self_attn\.k_proj\.weight is missing"):
        Checkpoint(folder)


def test_a_tensor_of_the_wrong_shape_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.mlp.down_proj.weight"] = torch.zeros(3, 5)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"layers\.0\.mlp\.down_proj\.weight has shape \[3, 5\], not \[64, 96\]"
    ):
        Checkpoint(folder)


def test_an_unsupported_architecture_is_named_with_the_supported_ones(folder: Path) -> None:
    edit_config(folder, architectures=["MambaForCausalLM"])
    with pytest.raises(UnsupportedModelError, match="MambaForCausalLM is not supported; supported are Llama"):
        Checkpoint(folder)


def test_a_mixture_of_experts_is_refused_by_name(folder: Path) -> None:
    edit_config(folder, architectures=["MixtralForCausalLM"], num_local_experts=4, num_experts_per_tok=2)
    with pytest.raises(UnsupportedModelError) as refused:
        Checkpoint(folder)
    assert str(refused.value) == (
        "copy is a mixture of experts (MixtralForCausalLM): it can be planned for but not served"
    )


@pytest.mark.parametrize(
    "option",
    [
        {"quantization_config": {"bits": 4}},
        {"mlp_bias": True},
        {"hidden_act": "gelu"},
        {"sliding_window": 512},
    ],
)
def test_an_option_the_engine_does_not_compute_is_refused(folder: Path, option: dict[str, Any]) -> None:
    edit_config(folder, **option)
    with pytest.raises(UnsupportedModelError, match=next(iter(option))):
        Checkpoint(folder)


def test_an_unknown_rope_type_is_refused(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0})
    with pytest.raises(UnsupportedModelError, match="yarn"):
        Checkpoint(folder)


def test_incomplete_rope_parameters_are_named(folder: Path) -> None:
    edit_config(folder, rope_parameters={"rope_type": "linear", "rope_theta": 1e4})
    with pytest.raises(
        UnsupportedModelError, match=r"rope parameters in config\.json lack or misstate 'factor'"
    ):
        Checkpoint(folder)


def test_both_spellings_of_rope_are_read() -> None:
    old = Rope.from_config({"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}}, "x")
    new = Rope.from_config(
        {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}}, "x"
    )
    assert old == new == Rope(5e5, 4.0)


def test_a_sharded_checkpoint_reads_like_a_whole_one(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM.from_pretrained(checkpoints["llama-untied"])
    model.save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    name = "model.layers.4.mlp.up_proj.weight"
    assert torch.equal(
        Checkpoint(tmp_path).tensor(name), Checkpoint(checkpoints["llama-untied"]).tensor(name)
    )
