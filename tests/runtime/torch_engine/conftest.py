"""Small random checkpoints in the formats the engine reads, a cluster of four CPU slots, and an engine on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from runtime.models import Cluster
from runtime.torch_engine.engine import TorchEngine
from tests.runtime.scripted import cluster_of
from tests.runtime.torch_engine.ears import SETTINGS, Ears, hearing, started

SHAPE = {
    "vocab_size": 101,  # no TP degree divides it
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 5,  # no PP degree divides it
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KINDS = {
    "llama-untied": ("LlamaForCausalLM", "LlamaConfig", {"tie_word_embeddings": False}),
    "llama3-rope": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {"tie_word_embeddings": False, "rope_parameters": LLAMA3_ROPE},
    ),
    "qwen2-tied": ("Qwen2ForCausalLM", "Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3-tied": ("Qwen3ForCausalLM", "Qwen3Config", {"tie_word_embeddings": True}),
}


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kind to folder, random float32 weights."""
    folders = {}
    import transformers  # most runs of most workers do without

    transformers.utils.logging.disable_progress_bar()
    for kind, (model_name, config_name, extra) in KINDS.items():
        torch.manual_seed(len(folders))
        config = getattr(transformers, config_name)(**{**SHAPE, **extra})
        model = getattr(transformers, model_name)(config)
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:  # the usual ones and zeros would hide a mistake
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        folders[kind] = tmp_path_factory.mktemp(kind)
        model.save_pretrained(folders[kind])
    return folders


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """Four CPU slots on one node."""
    return cluster_of()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine(checkpoints: dict[str, Path], cluster: Cluster) -> AsyncIterator[TorchEngine]:
    """One for all tests that say first which topology they want of it."""
    async with started(checkpoints["qwen3-tied"], "1x1", cluster, SETTINGS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def ears(engine: TorchEngine) -> AsyncIterator[Ears]:
    """What it says in one test; nothing runs before and after."""
    async with hearing(engine) as made:
        yield made
