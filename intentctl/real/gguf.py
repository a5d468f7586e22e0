"""A GGUF file as a checkpoint folder in Hugging Face format.

For the dense architectures that are served, in formats that numpy can read at once. Of the format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from runtime.errors import CheckpointError

Floats = NDArray[np.float32]
Value = bool | int | float | str | list["Value"]
"""In a file's metadata."""

T = TypeVar("T")

_MAGIC = b"GGUF"
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Type of a value to how it is packed."""
_TEXT = 8
_LIST = 9
_MOST_BYTES = 1 << 31
"""Of one value."""
_ALIGNMENT = 32
_BLOCK = 32
"""Weights that share a scale."""
_CONTROL = 3
_USERS = 4
"""Types of tokens: special ones, and others that are never split."""


@dataclass(frozen=True, slots=True)
class _TensorInfo:
    shape: tuple[int, ...]
    """Rows before columns."""
    kind: int
    offset: int
    """Within the data, bytes."""


def _plain(dtype: str) -> Callable[[bytes], Floats]:
    return lambda data: np.frombuffer(data, dtype).astype(np.float32)


def _q4_1(data: bytes) -> Floats:
    """Blocks of a scale, a minimum, and 32 halves of bytes: the low ones first."""
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("least", "<f2"), ("packed", "u1", _BLOCK // 2)]))
    values = np.concatenate([blocks["packed"] & 15, blocks["packed"] >> 4], axis=1).astype(np.float32)
    found: Floats = values * blocks["scale"].astype(np.float32)[:, None] + blocks["least"].astype(np.float32)[:, None]
    return found


def _q8_0(data: bytes) -> Floats:
    """Blocks of a scale and 32 signed bytes."""
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("values", "i1", _BLOCK)]))
    found: Floats = blocks["values"].astype(np.float32) * blocks["scale"].astype(np.float32)[:, None]
    return found


@dataclass(frozen=True, slots=True)
class _Format:
    name: str
    block: int
    """Values that are packed together."""
    size: int
    """Bytes of that."""
    read: Callable[[bytes], Floats]


_FORMATS = {
    0: _Format("F32", 1, 4, _plain("<f4")),
    1: _Format("F16", 1, 2, _plain("<f2")),
    3: _Format("Q4_1", _BLOCK, 20, _q4_1),
    8: _Format("Q8_0", _BLOCK, 34, _q8_0),
}

_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_SPLITS = {"smollm": "digits"}
"""What a tokenizer's ``pre`` splits apart before bytes are paired; others are regular expressions that are not known here."""

_ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class GgufFile:
    """An opened file: its metadata, and its tensors in float32."""

    def __init__(self, path: Path) -> None:
        """Read the head.

        Raises:
            CheckpointError: it is no GGUF file, it ends early, or a tensor has a format that is not read.
        """
        self.path = path
        with path.open("rb") as file:
            if file.read(4) != _MAGIC:
                raise CheckpointError(f"{path}: is no GGUF file; its first bytes are not GGUF")
            version, num_tensors, num_keys = self._unpack(file, "<IQQ")
            if version not in {2, 3}:
                raise CheckpointError(f"{path}: is GGUF version {version}; 2 and 3 are read")
            self.metadata: dict[str, Value] = {}
            for _ in range(num_keys):
                key = self._text(file)
                self.metadata[key] = self._value(file, *self._unpack(file, "<I"))
            self._tensors = dict(self._tensor_info(file) for _ in range(num_tensors))
            alignment = self.whole("general.alignment", _ALIGNMENT)
            if alignment < 1:
                raise CheckpointError(f"{path}: general.alignment is {alignment}")
            self._data_at = -(-file.tell() // alignment) * alignment

    def whole(self, key: str, usual: int | None = None) -> int:
        """A whole number of the metadata.

        Raises:
            CheckpointError: it is none, or not there and nothing is usual.
        """
        found = self.metadata.get(key, usual)
        if not isinstance(found, int):
            raise CheckpointError(f"{self.path}: has no whole number {key}")
        return found

    def entries(self, key: str, kind: type[T]) -> list[T]:
        """A list of the metadata, of texts or of whole numbers.

        Raises:
            CheckpointError: it is none, or not there.
        """
        found = self.metadata.get(key)
        if not isinstance(found, list) or not all(isinstance(entry, kind) for entry in found):
            raise CheckpointError(f"{self.path}: has no list {key} of {kind.__name__}")
        return cast("list[T]", found)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> Floats:
        """A tensor, dequantised.

        Raises:
            CheckpointError: the file ends before its last byte.
        """
        info = self._tensors[name]
        form = _FORMATS[info.kind]
        count = int(np.prod(info.shape))
        size = count // form.block * form.size
        with self.path.open("rb") as file:
            file.seek(self._data_at + info.offset)
            data = file.read(size)
        if len(data) < size:
            raise CheckpointError(f"{self.path}: ends within {name}; is the download complete?")
        return form.read(data).reshape(info.shape)

    def _tensor_info(self, file: BinaryIO) -> tuple[str, _TensorInfo]:
        name = self._text(file)
        (dimensions,) = self._unpack(file, "<I")
        shape = self._unpack(file, f"<{dimensions}Q")
        kind, offset = self._unpack(file, "<IQ")
        if kind not in _FORMATS:
            known = ", ".join(form.name for form in _FORMATS.values())
            raise CheckpointError(f"{self.path}: {name} has GGUF's type {kind}; {known} are read")
        return name, _TensorInfo(tuple(reversed(shape)), kind, offset)

    def _value(self, file: BinaryIO, kind: int) -> Value:
        if kind == _TEXT:
            return self._text(file)
        if kind == _LIST:
            of, count = self._unpack(file, "<IQ")
            if of == _LIST or count >= _MOST_BYTES:
                raise CheckpointError(f"{self.path}: its metadata has a list of lists, or one of {count} values")
            if of in _NUMBERS:
                return list(self._unpack(file, f"<{count}{_NUMBERS[of][1]}"))
            return [self._value(file, of) for _ in range(count)]
        if kind not in _NUMBERS:
            raise CheckpointError(f"{self.path}: its metadata has a value of type {kind}, which GGUF does not know")
        return self._unpack(file, _NUMBERS[kind])[0]

    def _text(self, file: BinaryIO) -> str:
        (size,) = self._unpack(file, "<Q")
        return self._read(file, size).decode("utf-8", "replace")

    def _unpack(self, file: BinaryIO, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._read(file, struct.calcsize(form)))

    def _read(self, file: BinaryIO, size: int) -> bytes:
        data = file.read(size) if size < _MOST_BYTES else b""
        if len(data) < size:
            raise CheckpointError(f"{self.path}: ends within its head; is the download complete?")
        return data


def convert(file: GgufFile, folder: Path) -> None:
    """Write a checkpoint folder with weights in float32, which has to be there.

    Raises:
        CheckpointError: an architecture, a tokenizer or a tensor that is not known here.
        OSError: the folder cannot be written.
    """
    from safetensors.numpy import save_file

    (folder / "config.json").write_text(json.dumps(_config(file), indent=2), encoding="utf-8")
    _write_tokenizer(file, folder)
    tensors = dict(_tensors(file))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _config(file: GgufFile) -> dict[str, object]:
    name = file.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in _ARCHITECTURES:
        raise CheckpointError(f"{file.path}: general.architecture is {name}; {', '.join(_ARCHITECTURES)} are converted")
    if scaled := [key for key in file.metadata if key.startswith(f"{name}.rope.scaling.")]:
        raise CheckpointError(f"{file.path}: {scaled[0]} is not converted")
    heads = file.whole(f"{name}.attention.head_count")
    hidden = file.whole(f"{name}.embedding_length")
    return {
        "architectures": [_ARCHITECTURES[name]],
        "model_type": name,
        "hidden_size": hidden,
        "intermediate_size": file.whole(f"{name}.feed_forward_length"),
        "num_hidden_layers": file.whole(f"{name}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.whole(f"{name}.attention.head_count_kv", heads),
        "head_dim": file.whole(f"{name}.attention.key_length", hidden // heads),
        "vocab_size": len(file.entries("tokenizer.ggml.tokens", str)),
        "max_position_embeddings": file.whole(f"{name}.context_length"),
        "rope_theta": file.metadata.get(f"{name}.rope.freq_base", 10_000.0),
        "rms_norm_eps": file.metadata.get(f"{name}.attention.layer_norm_rms_epsilon", 1e-6),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in file.names,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.whole("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _tensors(file: GgufFile) -> Iterator[tuple[str, Floats]]:
    """Tensors by Hugging Face's names."""
    interleaved = dict[str, int]()
    if file.metadata.get("general.architecture") == "llama":  # of the others rows are where they were
        heads = file.whole("llama.attention.head_count")
        interleaved = {"attn_q": heads, "attn_k": file.whole("llama.attention.head_count_kv", heads)}
    for name in file.names:
        values = file.tensor(name)
        if name in _ENDS:
            yield _ENDS[name], values
            continue
        place = name.split(".")
        if len(place) != len(("blk", "number", "part", "weight")) or place[0] != "blk" or place[2] not in _PARTS:
            raise CheckpointError(f"{file.path}: {name} is none of the tensors that are converted")
        _, number, part, end = place
        if part in interleaved:
            values = _in_halves(values, interleaved[part])
        yield f"model.layers.{number}.{_PARTS[part]}.{end}", values


def _in_halves(rows: Floats, heads: int) -> Floats:
    """Rows of each head with the two of a rotated pair half a head apart, which GGUF has side by side."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _write_tokenizer(file: GgufFile, folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = file.metadata.get("tokenizer.ggml.model")
    split = file.metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or split not in _SPLITS:
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.model is {kind} with pre {split}; gpt2 with {', '.join(_SPLITS)} is converted"
        )
    tokens = file.entries("tokenizer.ggml.tokens", str)
    merges = [
        (left, right) for left, _, right in (pair.partition(" ") for pair in file.entries("tokenizer.ggml.merges", str))
    ]
    tokenizer = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = file.entries("tokenizer.ggml.token_type", int)
    if len(kinds) != len(tokens):
        raise CheckpointError(
            f"{file.path}: tokenizer.ggml.token_type has {len(kinds)} entries for {len(tokens)} tokens"
        )
    for token, what in zip(tokens, kinds, strict=True):
        if what in {_CONTROL, _USERS}:
            tokenizer.add_tokens([AddedToken(token, special=what == _CONTROL, normalized=False)])
    tokenizer.save(str(folder / "tokenizer.json"))
    if file.metadata.get("tokenizer.ggml.add_bos_token", False):
        raise CheckpointError(f"{file.path}: tokenizer.ggml.add_bos_token is set, which is not converted")
    settings: dict[str, object] = {"eos_token": tokens[file.whole("tokenizer.ggml.eos_token_id")]}
    if "tokenizer.ggml.bos_token_id" in file.metadata:
        settings["bos_token"] = tokens[file.whole("tokenizer.ggml.bos_token_id")]
    if template := file.metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
