"""Logits of transformers for random checkpoints: ``python -m benchmarks.gpu.reference DEVICE LENGTH PRECISIONS FOLDER...``.

One file per precision in each folder, ``transformers-PRECISION.pt``. Parameters are those of float32, rounded; what else a model
holds stays as it is. Exits with 1 if one failed.
"""

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.random_weights import RandomCheckpoint
from benchmarks.gpu.ranks import prompt
from runtime.torch_engine.worker.backends import DTYPES


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


def save_logits(folder: Path, device: str, length: int, precisions: Sequence[str]) -> None:
    """Of every position of the prompt."""
    model = model_of(folder, device)
    tokens = prompt(model.config.vocab_size, length).to(device)
    with torch.inference_mode():
        for precision in precisions:
            for parameter in model.parameters():
                parameter.data = parameter.data.to(DTYPES[precision])
            logits = model(tokens[None]).logits[0]
            torch.save(logits.float().cpu(), folder / f"transformers-{precision}.pt")


def main() -> int:
    """Compute and save."""
    device, length, precisions, *folders = sys.argv[1:]
    torch.set_float32_matmul_precision("highest")
    torch.zeros(1, device=device)  # random weights are made on the device in use
    failed = False
    for folder in folders:
        try:
            save_logits(Path(folder), device, int(length), precisions.split(","))
        except Exception:  # noqa: BLE001 - the others may go well
            traceback.print_exc()
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
