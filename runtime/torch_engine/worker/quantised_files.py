"""Quantised layers of a checkpoint, made once and kept beside it: all workers of a host map the same files.

A folder for each format, recipe and content of the checkpoint, a file for each layer, in the layout of compressed-tensors: vLLM
reads the same tensors (``as_checkpoint``). How a device wants its codes is made from that on loading, so a file suits every
processor.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.quantised import Quantised, quantise
from runtime.weight_formats import groups

log = logging.getLogger(__name__)

FOLDER = ".quantised"
"""Beside the files of a checkpoint; no reader of checkpoints looks into it."""
RECIPE = "round to nearest, symmetric, 1"
"""Raised when other codes are made of the same weights."""
_MATRICES = {
    "self_attn.q_proj": "hidden", "self_attn.k_proj": "hidden", "self_attn.v_proj": "hidden", "self_attn.o_proj": "attention",
    "mlp.gate_proj": "hidden", "mlp.up_proj": "hidden", "mlp.down_proj": "mlp",
}  # fmt: skip
"""Of a layer, and by which width each has its groups."""


class QuantisedFiles:
    """What is quantised of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, digest: str | None) -> None:
        """``digest`` is of the checkpoint's content; None: nothing is kept."""
        self._checkpoint = checkpoint
        self._digest = digest

    def layer(self, layer: int, name: str) -> dict[str, Quantised]:
        """A layer's matrices in a format, by name; from its file, which is made anew where it is missing or not whole."""
        if self._digest is None:
            return self._made(layer, name)
        for folder in self._folders(name):
            path = folder / f"layer-{layer:05}.safetensors"
            if found := self._read(path, name):
                return found
            with suppress(OSError):  # read-only, or full: another folder, or none
                self._write(path, self._made(layer, name), layer)
            if found := self._read(path, name):
                return found
        log.warning("quantised weights of %s cannot be kept; each process makes its own", self._checkpoint.folder)
        return self._made(layer, name)

    def _folders(self, name: str) -> list[Path]:
        places = [self._checkpoint.folder / FOLDER, Path("~/.cache/intentctl/quantised").expanduser()]
        return [place / f"{name}-{self._digest}" for place in places]

    def _made(self, layer: int, name: str) -> dict[str, Quantised]:
        found = {}
        for matrix, width in _MATRICES.items():
            weight = self._checkpoint.tensor(f"model.layers.{layer}.{matrix}.weight")
            found[matrix] = quantise(weight, name, groups(self._checkpoint.spec)[width] if name == "int4" else None)
        return found

    def _read(self, path: Path, name: str) -> dict[str, Quantised] | None:
        """None: there is no such file, or one that is not whole, or of something else."""
        if not path.exists():
            return None
        prefix = f"model.layers.{int(path.stem.rpartition('-')[2])}."
        codes_name = "weight_packed" if name == "int4" else "weight"
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}) != self._mark():
                    log.warning("%s is of another checkpoint or recipe, and is made anew", path)
                    return None
                found = {}
                for matrix in _MATRICES:
                    codes = file.get_tensor(f"{prefix}{matrix}.{codes_name}")
                    scales = file.get_tensor(f"{prefix}{matrix}.weight_scale")
                    found[matrix] = Quantised(name, codes.view(torch.uint8) if name == "int4" else codes, scales)
        except (SafetensorError, OSError, RuntimeError) as error:
            log.warning("%s is made anew: %s", path, error)
            return None
        return found

    def _mark(self) -> dict[str, str]:
        return {"recipe": RECIPE, "checkpoint": self._digest or ""}

    def _write(self, path: Path, matrices: dict[str, Quantised], layer: int) -> None:
        """Under another name first: who reads sees all of it or nothing."""
        tensors = {}
        for matrix, found in matrices.items():
            prefix = f"model.layers.{layer}.{matrix}."
            if found.format == "int4":
                tensors[f"{prefix}weight_packed"] = found.codes.view(torch.int32)
                tensors[f"{prefix}weight_shape"] = torch.tensor([len(found.codes), found.width])
            else:
                tensors[f"{prefix}weight"] = found.codes
            tensors[f"{prefix}weight_scale"] = found.scales
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, self._mark())
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
