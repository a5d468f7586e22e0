"""Logits of transformers for a random checkpoint: ``python -m benchmarks.gpu.reference FOLDER OUT DEVICE LENGTH PRECISIONS``.

One file per precision, ``OUT/transformers-PRECISION.pt``; the weights are those of float32, rounded.
"""

import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.random_weights import RandomCheckpoint
from benchmarks.gpu.ranks import prompt
from runtime.torch_engine.places import DTYPES


def model_of(folder: Path, device: str) -> Any:
    """The model with the checkpoint's tensors, in float32."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    classes: Any = transformers.AutoModelForCausalLM
    with torch.device(device):
        model = classes.from_config(config, dtype=torch.float32).eval()
    checkpoint = RandomCheckpoint(folder)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(checkpoint.tensor(name))
    return model


def main() -> None:
    """Compute and save."""
    folder, out, device, length, precisions = sys.argv[1:]
    torch.zeros(1, device=device)  # random weights are made on the device in use
    model = model_of(Path(folder), device)
    tokens = prompt(model.config.vocab_size, int(length)).to(device)
    with torch.inference_mode():
        for precision in precisions.split(","):
            logits = model.to(DTYPES[precision])(tokens[None]).logits[0]
            torch.save(logits.float().cpu(), Path(out) / f"transformers-{precision}.pt")


if __name__ == "__main__":
    main()
