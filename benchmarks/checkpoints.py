"""Checkpoints that benchmarks run: the example's, and random weights made for the time of a run."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.engines import Subject
from intentctl.arguments import EngineName

LLAMA_150M = {
    "vocab_size": 32_000,
    "hidden_size": 768,
    "intermediate_size": 2560,
    "num_hidden_layers": 14,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 16_384,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
"""Shape of a Llama of 154M parameters."""
LLAMA_TINY = LLAMA_150M | {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "head_dim": 32,
    "tie_word_embeddings": True,
}
"""The same with a body so small that rehearsals spend their time elsewhere."""
VOCABULARY = LLAMA_TINY | {"vocab_size": 128_256, "head_dim": 16}
"""As many ids as Llama 3 has: what a step costs is the choice of its tokens."""
MADE = {"llama-150m": LLAMA_150M, "llama-tiny": LLAMA_TINY, "vocabulary": VOCABULARY}
CHECKPOINTS = ("counting", *MADE)


@contextmanager
def checkpoint(name: str) -> Iterator[Path]:
    """The folder of one of ``CHECKPOINTS``; what is not in the repository is made for the time of the context."""
    counting = Subject.example(EngineName.TORCH).checkpoint
    if name == "counting":
        yield counting
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_llama(folder, MADE[name])
        for file in ("tokenizer.json", "tokenizer_config.json"):  # its ids are ids here too
            shutil.copy(counting / file, folder)
        yield folder


def make_llama(folder: Path, shape: dict[str, Any]) -> None:
    """A Llama with random float32 weights in Hugging Face's layout."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(**shape)
    model: Any = transformers.LlamaForCausalLM
    model(config).save_pretrained(folder)
