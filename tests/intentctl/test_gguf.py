"""A GGUF file becomes the checkpoint folder that it was made from."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from intentctl.real.gguf import GgufFile, convert
from runtime.errors import CheckpointError
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.worker.checkpoint import Checkpoint
from tests.rows import rows

HIDDEN, WIDTH, HEADS, KV_HEADS, DIM = 64, 96, 4, 2, 16
TOKENS = ["<|end|>", "Ġ", "1", "2", "a", "b", "ab", "Ġab", "<tool>", *(chr(0x100 + place) for place in range(33, 40))]
KINDS = [3, *([1] * 7), 4, *([1] * 7)]
METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.embedding_length": HIDDEN,
    "llama.feed_forward_length": WIDTH,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KV_HEADS,
    "llama.context_length": 128,
    "llama.rope.freq_base": 5000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.merges": ["a b", "Ġ ab"],
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ messages[0]['content'] }}",
}
SHAPES = {
    "token_embd.weight": (len(TOKENS), HIDDEN),
    "output_norm.weight": (HIDDEN,),
    "blk.0.attn_norm.weight": (HIDDEN,),
    "blk.0.ffn_norm.weight": (HIDDEN,),
    "blk.0.attn_q.weight": (HEADS * DIM, HIDDEN),
    "blk.0.attn_k.weight": (KV_HEADS * DIM, HIDDEN),
    "blk.0.attn_v.weight": (KV_HEADS * DIM, HIDDEN),
    "blk.0.attn_output.weight": (HIDDEN, HEADS * DIM),
    "blk.0.ffn_gate.weight": (WIDTH, HIDDEN),
    "blk.0.ffn_up.weight": (WIDTH, HIDDEN),
    "blk.0.ffn_down.weight": (HIDDEN, WIDTH),
}
FORMATS = {"token_embd.weight": 8, "blk.0.attn_v.weight": 3, "blk.0.ffn_gate.weight": 1}


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def told(value: object) -> bytes:
    """A value of the metadata, with its type."""
    match value:
        case bool() | int() | float():
            kind, form = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}[type(value)]
            return struct.pack(f"<I{form}", kind, value)
        case str():
            return struct.pack("<I", 8) + text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        case [[*_], *_]:
            return struct.pack("<IIQ", 9, 9, len(value)) + b"".join(told(each)[4:] for each in value)
        case list():
            return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    raise TypeError(value)


def packed(values: np.ndarray, kind: int) -> tuple[bytes, np.ndarray]:
    """Values in a format, and what they are when they are read again."""
    if kind in {0, 1}:
        stored = values.astype("<f4" if kind == 0 else "<f2")
        return stored.tobytes(), stored.astype(np.float32)
    data = b""
    again = []
    for block in values.reshape(-1, 32):
        if kind == 8:
            scale = np.float16(abs(block).max() / 127)
            whole = np.round(block / np.float32(scale)).astype(np.int8)
            data += scale.tobytes() + whole.tobytes()
            again += [np.float32(scale) * number for number in whole]
        else:
            scale, least = np.float16(np.ptp(block) / 15), np.float16(block.min())
            halves = np.clip(np.round((block - np.float32(least)) / np.float32(scale)), 0, 15).astype(np.uint8)
            data += (
                scale.tobytes()
                + least.tobytes()
                + bytes(low | high << 4 for low, high in zip(*np.split(halves, 2), strict=True))
            )
            again += [np.float32(scale) * number + np.float32(least) for number in halves]
    return data, np.array(again, dtype=np.float32).reshape(values.shape)


def written(path: Path, metadata: dict[str, object], kinds: dict[str, int]) -> dict[str, np.ndarray]:
    """A file of random weights; what each tensor is."""
    chance = np.random.default_rng(7)
    tensors = {name: packed(chance.normal(size=shape), kinds.get(name, 0)) for name, shape in SHAPES.items()}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + told(value) for key, value in metadata.items())
    data = b""
    for name, (stored, values) in tensors.items():
        head += text(name) + struct.pack("<I", values.ndim) + struct.pack(f"<{values.ndim}Q", *reversed(values.shape))
        head += struct.pack("<IQ", kinds.get(name, 0), len(data))
        data += stored.ljust(-(-len(stored) // 32) * 32, b"\0")
    path.write_bytes(head.ljust(-(-len(head) // 32) * 32, b"\0") + data)
    return {name: values for name, (_, values) in tensors.items()}


def test_weights_and_shape_are_those_of_the_file(tmp_path):
    values = written(tmp_path / "m.gguf", METADATA, FORMATS)
    (tmp_path / "m").mkdir()
    convert(GgufFile(tmp_path / "m.gguf"), tmp_path / "m")
    found = Checkpoint(tmp_path / "m")
    assert (found.spec.num_heads, found.spec.num_kv_heads, found.spec.tie_word_embeddings) == (HEADS, KV_HEADS, True)
    assert found.rope.theta == 5000.0
    for ours, theirs in (
        ("model.embed_tokens", "token_embd"),
        ("model.layers.0.self_attn.v_proj", "blk.0.attn_v"),
        ("model.layers.0.mlp.gate_proj", "blk.0.ffn_gate"),
        ("model.layers.0.mlp.down_proj", "blk.0.ffn_down"),
    ):
        assert np.array_equal(found.tensor(f"{ours}.weight").numpy(), values[f"{theirs}.weight"])
    rows_of_a_head = found.tensor("model.layers.0.self_attn.k_proj.weight").numpy()[:DIM]
    pairs = values["blk.0.attn_k.weight"][:DIM]
    assert np.array_equal(rows_of_a_head, np.concatenate([pairs[::2], pairs[1::2]]))


def test_the_tokenizer_splits_digits_and_knows_added_tokens(tmp_path):
    written(tmp_path / "m.gguf", METADATA, {})
    (tmp_path / "m").mkdir()
    convert(GgufFile(tmp_path / "m.gguf"), tmp_path / "m")
    tokenizer = Tokenizer.load(tmp_path / "m")
    assert tokenizer.encode("ab ab12<tool><|end|>") == (6, 7, 2, 3, 8, 0)
    assert (tokenizer.special_ids, tokenizer.eos_ids) == ([0], (0,))
    assert json.loads((tmp_path / "m" / "tokenizer_config.json").read_text())["chat_template"]


@rows(
    ("change", "said"),
    [
        ({"general.architecture": "gpt2"}, "general.architecture is gpt2; llama, qwen2, qwen3 are converted"),
        ({"tokenizer.ggml.pre": "qwen2"}, "gpt2 with pre qwen2; gpt2 with smollm is converted"),
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is set"),
        ({"llama.rope.scaling.factor": 8.0}, "llama.rope.scaling.factor is not converted"),
        ({"general.alignment": 0}, "general.alignment is 0"),
        ({"nested": [[1]]}, "a list of lists"),
        ({"llama.block_count": None}, "has no whole number llama.block_count"),
    ],
)
def test_what_is_not_converted_is_named_with_its_key(tmp_path, change, said):
    metadata = {key: value for key, value in (METADATA | change).items() if value is not None}
    written(tmp_path / "m.gguf", metadata, {})
    (tmp_path / "m").mkdir(exist_ok=True)
    with pytest.raises(CheckpointError, match=said):
        convert(GgufFile(tmp_path / "m.gguf"), tmp_path / "m")


@rows(
    ("size", "said"),
    [(3, "is no GGUF file"), (100, "ends within its head"), (-1, r"ends within blk\.0\.ffn_down\.weight")],
)
def test_a_file_that_was_cut_says_where_it_ends(tmp_path, size, said):
    file = tmp_path / "m.gguf"
    written(file, METADATA, {})
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    (tmp_path / "m").mkdir(exist_ok=True)
    with pytest.raises(CheckpointError, match=said):
        convert(GgufFile(file), tmp_path / "m")


def test_a_format_that_is_not_read_is_named(tmp_path):
    written(tmp_path / "m.gguf", METADATA, {})
    data = (tmp_path / "m.gguf").read_bytes()
    place = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 16
    (tmp_path / "m.gguf").write_bytes(data[:place] + struct.pack("<I", 14) + data[place + 4 :])
    with pytest.raises(CheckpointError, match=r"token_embd\.weight has GGUF's type 14; F32, F16, Q4_1, Q8_0 are read"):
        GgufFile(tmp_path / "m.gguf")
