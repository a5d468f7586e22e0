"""What weight formats cost a real model, on two texts, and what the order of layers is worth.

``python -m benchmarks.quality FOLDER --json results/quality-smollm2.json`` measures as ``intentctl profile --quality`` does, or
takes the file that it wrote (``--measured``). Then it takes the same sets of layers on another text, and halves of the layers.
"""

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.provenance import provenance
from intent.tables import mapping
from runtime.torch_engine.quality import HeldText, chunks_of, measured, single_layers
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.weights import Weights

OTHER = Path(__file__).parent / "origin.yaml"


def again(folder: Path, formats: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Losses on another text: of the sets that were measured, and of halves of the layers."""
    weights = Weights(Checkpoint(folder), torch.float32)
    layers = single_layers(weights)
    chunks = chunks_of(folder, text, 128)
    held = HeldText(weights, layers, chunks)
    found = {}
    for name, curve in formats.items():
        theirs = single_layers(weights, name)
        order = curve["order"]
        half = len(order) // 2
        sets = {
            **{f"first {size} of the order": order[: int(size)] for size in curve["prefixes"]},
            "last half of the order": order[half:],
            "upper half of the layers": range(half, len(order)),
            "lower half of the layers": range(half),
        }
        found[name] = {
            what: held.lost(held.changed(some, theirs, held.states, min(some))) for what, some in sets.items()
        }
    return {"tokens": chunks.numel(), "as_it_is": held.lost(held.states), "formats": found}


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--measured", type=Path, help="what intentctl profile --quality wrote, for it takes long")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = [mapping("intentctl", "held"), yaml.safe_load(OTHER.read_text(encoding="utf-8"))]
    torch.set_num_threads(1)
    with torch.inference_mode():
        if options.measured:
            first = yaml.safe_load(options.measured.read_text(encoding="utf-8"))
        else:
            first = measured(options.folder, texts[0]["text"])
        others = {text["source"]: again(options.folder, first["formats"], text["text"]) for text in texts}
    document = {**provenance(), "load_average": os.getloadavg(), "measured": first, "again": others}
    written = json.dumps(document, indent=1)
    print(written)
    if options.json:
        options.json.write_text(written + "\n")


if __name__ == "__main__":
    main()
