"""A checkpoint folder in Hugging Face format: ``config.json`` and safetensors, read in slices.

safetensors maps the file, so its pages are the one host copy that all workers share.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from runtime.architectures import how_quantised
from runtime.errors import CheckpointError, UnsupportedModelError
from runtime.models import ModelSpec

_DERIVED = (".rotary_emb.inv_freq", "lm_head.weight")
"""Ends of tensors that may be left unread: frequencies follow from config.json, a tied head is the embedding."""


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary position embedding (Su et al., arXiv 2104.09864).

    With Llama-3's frequency scaling where asked.
    """

    theta: float
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_positions: int = 0
    """0 means no Llama-3 scaling; ``factor`` then divides all frequencies (linear scaling)."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], where: str) -> "Rope":
        """Read either spelling: ``rope_parameters`` or ``rope_theta`` with ``rope_scaling``."""
        scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
        try:
            theta = float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0)
            kind = scaling.get("rope_type") or scaling.get("type") or "default"
            if kind == "default":
                return cls(theta)
            if kind == "linear":
                return cls(theta, factor=float(scaling["factor"]))
            if kind == "llama3":
                return cls(
                    theta,
                    float(scaling["factor"]),
                    float(scaling["low_freq_factor"]),
                    float(scaling["high_freq_factor"]),
                    int(scaling["original_max_position_embeddings"]),
                )
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedModelError(
                f"{where}: the rope parameters in config.json lack or misstate {error}"
            ) from error
        raise UnsupportedModelError(
            f"{where}: rope type {kind!r} is not supported; supported are default, linear, llama3"
        )

    def inverse_frequencies(self, head_dim: int) -> torch.Tensor:
        """``[head_dim / 2]`` float32."""
        inverse = 1.0 / self.theta ** (torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim)
        if not self.original_positions:
            return inverse / self.factor
        wavelength = 2 * torch.pi / inverse
        turns = self.original_positions / wavelength
        smooth = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return torch.lerp(inverse / self.factor, inverse, smooth.clamp(0, 1))


class Checkpoint:
    """An opened folder: its shape, and slices of its tensors on demand."""

    def __init__(self, folder: Path) -> None:
        """Open and check the folder.

        Raises:
            CheckpointError: missing, not readable, truncated, or a tensor is absent or there twice.
            UnsupportedModelError: an architecture, an option or a tensor that the engine does not compute with.
        """
        self.folder = folder
        config = _read_json(folder / "config.json")
        self.spec = ModelSpec.from_config(config, folder.name)
        if self.spec.unserved:
            raise UnsupportedModelError(self.spec.unserved)
        _refuse_options(config, str(folder))
        self.norm_eps = float(config.get("rms_norm_eps", 1e-6))
        self.rope = Rope.from_config(config, str(folder))
        self.open_tensors()

    def open_tensors(self) -> None:
        """Find what the model is made of; called once, when the shape is known.

        Raises:
            CheckpointError: a tensor is absent, or not readable.
        """
        self._files = _open_files(self.folder)
        self._check_tensors()

    def tensor(self, name: str, rows: slice = slice(None), columns: slice = slice(None)) -> torch.Tensor:
        """A slice of a tensor, on the CPU, in the checkpoint's own dtype."""
        view = self._files[name].get_slice(name)
        part: torch.Tensor = view[rows, columns] if len(view.get_shape()) == 2 else view[rows]
        return part

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its tensors."""
        return tuple(self._files)

    def _check_tensors(self) -> None:
        """Every tensor the model needs is there and has its shape, and none is left unread."""
        expected = dict(expected_tensors(self.spec))
        for name, shape in expected.items():
            if name not in self._files:
                raise CheckpointError(f"{self.folder}: tensor {name} is missing; is the download complete?")
            found = self._files[name].get_slice(name).get_shape()
            if found != shape:
                raise CheckpointError(
                    f"{self.folder}: tensor {name} has shape {found}, not {shape} as config.json says"
                )
        if unread := sorted(name for name in self._files.keys() - expected if not name.endswith(_DERIVED)):
            more = f" and {len(unread) - 3} more" if len(unread) > 3 else ""
            raise UnsupportedModelError(
                f"{self.folder}: this engine does not compute with {', '.join(unread[:3])}{more}; use `engine: vllm`"
            )


def expected_tensors(spec: ModelSpec) -> Iterator[tuple[str, list[int]]]:
    """Names and shapes of the tensors a model is made of."""
    hidden = spec.hidden_size
    mlp = spec.intermediate_size
    dim = spec.head_dim
    yield "model.embed_tokens.weight", [spec.vocab_size, hidden]
    yield "model.norm.weight", [hidden]
    if not spec.tie_word_embeddings:
        yield "lm_head.weight", [spec.vocab_size, hidden]
    rows = {"q": spec.num_heads * dim, "k": spec.num_kv_heads * dim, "v": spec.num_kv_heads * dim}
    for layer in range(spec.num_layers):
        prefix = f"model.layers.{layer}."
        for name, size in rows.items():
            yield f"{prefix}self_attn.{name}_proj.weight", [size, hidden]
            if spec.attention_bias:
                yield f"{prefix}self_attn.{name}_proj.bias", [size]
        if spec.qk_norm:
            yield f"{prefix}self_attn.q_norm.weight", [dim]
            yield f"{prefix}self_attn.k_norm.weight", [dim]
        yield f"{prefix}self_attn.o_proj.weight", [hidden, rows["q"]]
        yield f"{prefix}input_layernorm.weight", [hidden]
        yield f"{prefix}post_attention_layernorm.weight", [hidden]
        yield f"{prefix}mlp.gate_proj.weight", [mlp, hidden]
        yield f"{prefix}mlp.up_proj.weight", [mlp, hidden]
        yield f"{prefix}mlp.down_proj.weight", [hidden, mlp]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.parent.is_dir():
        raise CheckpointError(f"{path.parent}: no such checkpoint folder")
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent}: has no {path.name}; a checkpoint folder needs one") from error
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: should hold a JSON object")
    return content


def _refuse_options(config: Mapping[str, Any], where: str) -> None:
    is_quantised = config.get("quantization_config") is not None
    wrong = {
        f"quantization_config ({how_quantised(config)})" if is_quantised else "": is_quantised,
        "mlp_bias": bool(config.get("mlp_bias")),
        "hidden_act": config.get("hidden_act", "silu") != "silu",
        "sliding_window": bool(config.get("use_sliding_window", config.get("sliding_window") is not None)),
    }
    if refused := [key for key, present in wrong.items() if present]:
        raise UnsupportedModelError(
            f"{where}: config.json sets {', '.join(refused)}, which this engine does not compute"
        )


def _open_files(folder: Path) -> dict[str, Any]:
    """Tensor name to the open file that holds it."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(_read_json(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    files: dict[str, Any] = {}
    for name in names:
        path = folder / name
        if not path.exists():
            raise CheckpointError(f"{folder}: has no {name}; only safetensors checkpoints are read")
        try:
            opened: Any = safe_open(path, framework="pt")
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error}); is it truncated?") from error
        if twice := sorted(files.keys() & {*opened.keys()}):
            raise CheckpointError(f"{path}: tensor {twice[0]} is in another file, too; copy the checkpoint anew")
        files.update(dict.fromkeys(opened.keys(), opened))
    return files


READERS: dict[str, type[Checkpoint]] = {"safetensors": Checkpoint}
"""By the names that travel to workers."""
