"""Shapes of models as their ``config.json`` says them, and a folder that an engine of random weights can open."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.provenance import ROOT
from runtime.models import ModelSpec

Config = Mapping[str, Any]

TOKENIZER = ROOT / "examples" / "counting" / "tokenizer.json"
"""A token for each character; its ids are ids in larger vocabularies too."""

LLAMA_3_8B: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "vocab_size": 128_256,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0},
    "tie_word_embeddings": False,
    "attention_bias": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA_2_13B: Config = {
    **LLAMA_3_8B,
    "vocab_size": 32_000,
    "hidden_size": 5120,
    "intermediate_size": 13_824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}
QWEN_3_8B: Config = {
    **LLAMA_3_8B,
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "intermediate_size": 12_288,
    "num_hidden_layers": 36,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
}
_SMALL: Config = {
    "dtype": "float32",
    "vocab_size": 101,  # no TP degree divides it
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 2048,
}
SMALL_LLAMA: Config = {**LLAMA_3_8B, **_SMALL}
SMALL_QWEN: Config = {**QWEN_3_8B, **_SMALL}


def few_layers(config: Config, num_layers: int) -> Config:
    """The same at full width with few layers and a vocabulary of 32,001, whose weights are kept in float32."""
    return {**config, "num_hidden_layers": num_layers, "vocab_size": 32_001, "dtype": "float32"}


def spec_of(config: Config, name: str) -> ModelSpec:
    """As the engine reads it."""
    return ModelSpec.from_config(config, name)


@contextmanager
def folder_of(config: Config, name: str) -> Iterator[Path]:
    """A checkpoint folder without weights, called ``name``, for the time of the context."""
    with TemporaryDirectory(prefix="intentctl-gpu-") as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        shutil.copy(TOKENIZER, folder)
        yield folder
