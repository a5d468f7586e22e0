"""Quantised layers of a checkpoint, made once and kept beside it, for all workers to map.

A folder for each format, recipe and content of the checkpoint, a file for each layer, in the layout of compressed-tensors: vLLM
reads the same tensors (``as_checkpoint``). How a device wants its codes is made from that on loading, so a file suits every
processor.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from runtime.footprint import RECIPE, groups
from runtime.models import ModelSpec
from runtime.torch_engine.worker.checkpoint import Checkpoint, expected_tensors
from runtime.torch_engine.worker.quantised import Quantised, quantise

log = logging.getLogger(__name__)

FOLDER = ".quantised"
"""Beside the files of a checkpoint; no reader of checkpoints looks into it."""
_MATRICES = {
    "self_attn.q_proj": "hidden", "self_attn.k_proj": "hidden", "self_attn.v_proj": "hidden", "self_attn.o_proj": "attention",
    "mlp.gate_proj": "hidden", "mlp.up_proj": "hidden", "mlp.down_proj": "mlp",
}  # fmt: skip
"""Of a layer, and by which width each has its groups."""
_UNREADABLE = (SafetensorError, OSError, RuntimeError)


class QuantisedFiles:
    """What is quantised of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, digest: str | None, beat: Callable[[], None] = lambda: None) -> None:
        """``digest`` is of the checkpoint's content; None: nothing is kept. ``beat`` is called while it is worked at."""
        self.checkpoint = checkpoint
        self._digest = digest
        self._beat = beat
        self._shapes = dict(expected_tensors(checkpoint.spec))

    def layer(self, layer: int, name: str) -> dict[str, Quantised]:
        """A layer's matrices in a format, by name; a file that is missing or not whole is made anew."""
        if self._digest is None:
            return self._made(layer, name)
        paths = self.paths(layer, name)
        for path in paths:
            if found := self._read(path, name):
                return found
        made = self._made(layer, name)
        for path in paths:
            with suppress(*_UNREADABLE):  # read-only, another user's, or full: another folder, or none
                self._write(path, made, layer)
            if found := self._read(path, name):
                return found
        log.warning("quantised weights of %s cannot be kept; each process makes its own", self.checkpoint.folder)
        return made

    def paths(self, layer: int, name: str) -> list[Path]:
        """Where a layer's file may be."""
        places = [self.checkpoint.folder / FOLDER, Path(os.path.expanduser("~/.cache/intentctl/quantised"))]  # noqa: PTH111 - which does without a home
        return [place / f"{name}-{self._digest}" / f"layer-{layer:05}.safetensors" for place in places]

    def _made(self, layer: int, name: str) -> dict[str, Quantised]:
        found = {}
        for matrix, width in _MATRICES.items():
            self._beat()
            weight = self.checkpoint.tensor(f"model.layers.{layer}.{matrix}.weight")
            found[matrix] = quantise(weight, name, groups(self.checkpoint.spec)[width] if name == "int4" else None)
        return found

    def _read(self, path: Path, name: str) -> dict[str, Quantised] | None:
        """None: there is no such file, or one that is not whole, or of something else."""
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
                    made = Quantised(name, codes.view(torch.uint8) if name == "int4" else codes, scales)
                    if [len(made.codes), made.width] != self._shapes[f"{prefix}{matrix}.weight"]:
                        log.warning("%s has other shapes, and is made anew", path)
                        return None
                    found[matrix] = made
        except FileNotFoundError:
            return None
        except _UNREADABLE as error:
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


def as_checkpoint(files: QuantisedFiles, formats: Mapping[int, str], folder: Path) -> None:
    """Write a checkpoint with these layers quantised, which vLLM reads.

    Its files of layers are links to those that are kept; int8 and fp8 multiply activations that are rounded in the same way.
    """
    source = files.checkpoint
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for layer, name in formats.items():
        files.layer(layer, name)
        path = next(path for path in files.paths(layer, name) if path.exists())
        (folder / f"{name}-{path.name}").symlink_to(path.resolve())
        with safe_open(path, framework="pt") as file:
            weight_map |= dict.fromkeys(file.keys(), f"{name}-{path.name}")
    left_out = {f"model.layers.{layer}.{matrix}.weight" for layer in formats for matrix in _MATRICES}
    rest = {name: source.tensor(name) for name in source.names if name not in left_out}
    save_file({name: tensor.contiguous() for name, tensor in rest.items()}, folder / "rest.safetensors")
    weight_map |= dict.fromkeys(rest, "rest.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = json.loads((source.folder / "config.json").read_text())
    config["quantization_config"] = _described(formats, source.spec)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    for path in source.folder.iterdir():
        if path.is_file() and path.suffix in {".json", ".jinja"} and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path.resolve())


def _described(formats: Mapping[int, str], model: ModelSpec) -> dict[str, object]:
    """As compressed-tensors says it: a group of layers and matrices for each format and size of groups."""
    found: dict[str, dict[str, object]] = {}
    for name in sorted({*formats.values()}):
        layers = "|".join(str(layer) for layer, each in formats.items() if each == name)
        for width in ("hidden", "attention", "mlp"):
            matrices = "|".join(matrix.replace(".", r"\.") for matrix, each in _MATRICES.items() if each == width)
            weights: dict[str, object] = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
            rounded: dict[str, object] | None = weights | {"strategy": "token", "dynamic": True}
            if name == "int4":
                weights |= {"num_bits": 4, "strategy": "group", "group_size": groups(model)[width]}
                rounded = None
            found[f"{name}_{width}"] = {
                "targets": [rf"re:.*layers\.({layers})\.({matrices})$"],
                "weights": weights,
                "input_activations": rounded,
                "format": "pack-quantized" if name == "int4" else "int-quantized",
            }
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": "mixed-precision" if len({*formats.values()}) > 1 else found[next(iter(found))]["format"],
        "ignore": ["lm_head"],
        "config_groups": found,
    }
