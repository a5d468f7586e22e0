"""Quantised layers of a checkpoint, made once and kept beside it, for all workers to map.

A folder for each format, recipe and content of the checkpoint, a file for each layer, in the layout of compressed-tensors: vLLM
reads the same tensors (``as_checkpoint``). How a device wants its codes is made from that on loading, so a file suits every
processor.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from runtime.errors import CheckpointError
from runtime.footprint import RECIPE, groups
from runtime.models import ModelSpec
from runtime.torch_engine.worker.checkpoint import Checkpoint, expected_tensors
from runtime.torch_engine.worker.quantised import Quantised, quantise

log = logging.getLogger(__name__)

FOLDER = ".quantised"
"""Beside the files of a checkpoint; no reader of checkpoints looks into it."""
INDEX = "model.safetensors.index.json"
_MATRICES = {
    "self_attn.q_proj": "hidden", "self_attn.k_proj": "hidden", "self_attn.v_proj": "hidden", "self_attn.o_proj": "attention",
    "mlp.gate_proj": "hidden", "mlp.up_proj": "hidden", "mlp.down_proj": "mlp",
}  # fmt: skip
"""Of a layer, and by which width each has its groups."""
_UNREADABLE = (SafetensorError, OSError, RuntimeError)


class QuantisedFiles:
    """What is quantised of one checkpoint."""

    def __init__(self, checkpoint: Checkpoint, digest: str | None, beat: Callable[[], None] = lambda: None) -> None:
        """``digest`` is of the checkpoint's content; None: nothing is kept. ``beat`` is called at each matrix."""
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
        return [folder / f"layer-{layer:05}.safetensors" for folder in self.folders(name)]

    def folders(self, name: str) -> list[Path]:
        """Where a folder of this content may be."""
        places = [self.checkpoint.folder / FOLDER, Path(os.path.expanduser("~/.cache/intentctl/quantised"))]  # noqa: PTH111 - which does without a home
        return [place / f"{name}-{self._digest}" for place in places]

    def is_whole(self, folder: Path) -> bool:
        """Whether all files of a checkpoint that ``as_checkpoint`` wrote are there, and by the recipe of now."""
        try:
            names = {*json.loads((folder / INDEX).read_text())["weight_map"].values()}
            opened: list[Any] = [safe_open(folder / name, framework="pt") for name in names]
        except (OSError, ValueError, SafetensorError):
            return False
        return all(file.metadata() == self.mark for file in opened)

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
                if (file.metadata() or {}) != self.mark:
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

    @property
    def mark(self) -> dict[str, str]:
        """In each file: of what it is made, and how."""
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
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, self.mark)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def kept_checkpoint(checkpoint: Path, digest: str, name: str) -> Path:
    """The folder of ``as_checkpoint`` with all layers in a format, made where none is whole.

    That may take minutes. Several processes may ask at once: each makes its own under another name, and the first one's stays.

    Raises:
        CheckpointError: it cannot be read, or kept anywhere.
        UnsupportedModelError: it is none that is quantised here.
    """
    files = QuantisedFiles(Checkpoint(checkpoint), digest)
    why: Exception | None = None
    for folder in files.folders(f"vllm-{name}"):
        try:
            if not files.is_whole(folder):
                _make(files, name, folder)
        except (OSError, SafetensorError) as error:  # read-only, or full; or another was quicker
            why = error
        if files.is_whole(folder):
            return folder
    raise CheckpointError(
        f"{checkpoint}: its {name} weights cannot be kept ({why}); "
        f"let the service write to {FOLDER} there, or to ~/.cache/intentctl"
    )


def _make(files: QuantisedFiles, name: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".vllm-", dir=folder.parent) as temporary:
        made = Path(temporary) / folder.name
        as_checkpoint(files, dict.fromkeys(range(files.checkpoint.spec.num_layers), name), made)
        if folder.exists() and not files.is_whole(folder):
            shutil.rmtree(folder)  # of files that are gone, or of another recipe
        made.rename(folder)


def as_checkpoint(files: QuantisedFiles, formats: Mapping[int, str], folder: Path) -> None:
    """Write a checkpoint with these layers quantised, which vLLM reads.

    Its files of layers are links to those that are kept; int8 and fp8 multiply activations that are rounded in the same way.
    """
    source = files.checkpoint
    folder.mkdir(parents=True)
    weight_map: dict[str, str] = {}
    for layer, name in formats.items():
        files.layer(layer, name)
        path = next((path for path in files.paths(layer, name) if path.exists()), None)
        if path is None:
            raise OSError(f"no folder takes layer {layer}")
        (folder / f"{name}-{path.name}").symlink_to(path.resolve())
        with safe_open(path, framework="pt") as file:
            weight_map |= dict.fromkeys(file.keys(), f"{name}-{path.name}")
    left_out = {f"model.layers.{layer}.{matrix}.weight" for layer in formats for matrix in _MATRICES}
    rest = {name: source.tensor(name) for name in source.names if name not in left_out}
    save_file({name: tensor.contiguous() for name, tensor in rest.items()}, folder / "rest.safetensors", files.mark)
    weight_map |= dict.fromkeys(rest, "rest.safetensors")
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
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
