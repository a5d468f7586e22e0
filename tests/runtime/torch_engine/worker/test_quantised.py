"""Weights in fewer bits: codes as torchao makes them, products as of what they stand for, files that are whole or made anew."""

import itertools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows
from safetensors import SafetensorError, safe_open

from runtime.architectures import quantised as quantised_as
from runtime.errors import CheckpointError
from runtime.kv.store import KvShape, KvStore
from runtime.models import LayerRange
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker import quantised, quantised_files
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO
from runtime.torch_engine.worker.quantised import Quantised, QuantisedLinear, quantise
from runtime.torch_engine.worker.quantised_files import FOLDER, QuantisedFiles, kept_checkpoint
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights
from tests.rows import rows

EXAMPLES = Path(__file__).parents[4] / "examples"
CPU = torch.device("cpu")
FORMATS = {"int8": None, "int4": 64}


def weight(rows: int = 96, columns: int = 256) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)) / 16


def distance(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.float() - want).norm() / want.norm())


@pytest.mark.parametrize("name", FORMATS)
def test_codes_are_those_of_torchao(name):
    primitives = pytest.importorskip("torchao.quantization.quant_primitives", reason="torchao is not installed")
    values = weight()
    found = quantise(values, name, FORMATS[name])
    block = (1, FORMATS[name] or values.shape[1])
    lowest, highest = (-127, 127) if name == "int8" else (-8, 7)
    scales = found.scales.float()
    want = primitives.quantize_affine(
        values, block, scales, torch.zeros_like(scales, dtype=torch.int32), torch.int8, lowest, highest
    )
    unit = Quantised(name, found.codes, torch.ones_like(found.scales))
    assert torch.equal(unit.dequantised().to(torch.int8), want)


@pytest.mark.parametrize("name", [*FORMATS, "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_that_of_what_the_codes_stand_for(name, dtype):
    """By the operator and by parts made whole; with few rows and many; sliced as TP slices; with a bias."""
    whole = quantise(weight(), name, FORMATS.get(name))
    bias = torch.randn(96).to(dtype)
    for part in (whole, whole.part(slice(16, 64), slice(None)), whole.part(slice(None), slice(64, 192))):
        made = QuantisedLinear([part], bias[: len(part.codes)], dtype, CPU)
        stacked = QuantisedLinear([part, part], None, dtype, CPU)
        for count in (1, 3, 40, 300):
            x = torch.randn(count, part.width).to(dtype)
            want = F.linear(x.float(), part.dequantised())
            both = torch.cat([want, want], dim=-1)
            with_bias = want + bias[: len(part.codes)].float()
            near = 1e-6 if dtype == torch.float32 else 5e-3
            assert distance(made._whole(x), want) < near
            if name != "fp8":  # its operator rounds x, too
                assert distance(made(x), with_bias) < near
                assert distance(stacked(x), both) < near
                assert made._few is None or distance(made._few(x), want) < near


@rows(
    ("name", "group", "most"),
    [("int8", None, 0.012), ("int4", 32, 0.11), ("int4", 64, 0.12), ("int4", 128, 0.13), ("fp8", None, 0.04)],
)
def test_what_codes_stand_for_is_near_the_weight(name, group, most):
    values = weight(64, 1024)
    found = quantise(values, name, group)
    assert 0.0 < distance(found.dequantised(), values) < most
    zeros = quantise(torch.zeros(4, 128), name, group)
    assert not zeros.dequantised().any()


def test_parts_are_slices_of_what_was_quantised_whole():
    whole = quantise(weight(), "int4", 32)
    part = whole.part(slice(8, 40), slice(96, 224))
    assert torch.equal(part.dequantised(), whole.dequantised()[8:40, 96:224])


@pytest.fixture
def copied(tmp_path: Path) -> Checkpoint:
    for name in ("config.json", "model.safetensors"):
        os.link(EXAMPLES / "counting" / name, tmp_path / name)
    return Checkpoint(tmp_path)


def tiles_of(halves: torch.Tensor) -> torch.Tensor:
    """As ``int4mm.cu`` lays bytes out, whose first value is high, with two inner tiles: index by index."""
    form = torch.zeros(len(halves) // 8, halves.shape[1] // 16, 32, 1, dtype=torch.int64)
    for row_tile, tile, lane in itertools.product(*map(range, form.shape[:3])):
        v = [int(halves[8 * row_tile + lane // 4, 16 * tile + lane % 4 + 4 * n]) for n in range(4)]
        low, high = (sum((byte & 15) << 4 * n for n, byte in enumerate(each)) for each in (v, [b >> 4 for b in v]))
        form[row_tile, tile, lane, 0] = low << 16 | high
    return form.to(torch.int32)


@pytest.fixture
def cuda_int4(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """CUDA's operators of int4, computed on the CPU; with how many rows each was asked for."""
    asked = list[int]()
    made = list[torch.Tensor]()

    def convert(halves: torch.Tensor, inner: int) -> torch.Tensor:
        assert inner == 2
        made.append(halves)
        return tiles_of(halves)

    def multiply(x: torch.Tensor, form: torch.Tensor, group: int, scales: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        codes = made[-1] << 4 | made[-1] >> 4
        return F.linear(x, Quantised("int4", codes, scales[..., 0].t()).dequantised(x.dtype))

    aten = torch.ops.aten
    monkeypatch.setattr(aten, "_convert_weight_to_int4pack", convert)
    monkeypatch.setattr(aten, "_weight_int4pack_mm", multiply)
    monkeypatch.setattr(quantised, "_operator", lambda weight, _: quantised._int4_cuda(weight))
    return asked


@pytest.mark.parametrize("is_known", [True, False])
def test_tiles_of_cuda_are_taken_apart_for_many_rows(cuda_int4, monkeypatch, is_known):
    """Where torch has another layout the file's form is kept beside them."""
    monkeypatch.setattr(QuantisedLinear, "_measured", lambda *_: 8)
    monkeypatch.setattr(quantised, "_TILED_VALUES", 8 * 192 * 5)  # 12 tiles of rows, in three parts
    if not is_known:
        right = quantised.untiled
        monkeypatch.setattr(quantised, "untiled", lambda form: right(form).flip(0))
    whole = quantise(weight(96, 192), "int4", 64)
    made = QuantisedLinear([whole], None, torch.bfloat16, CPU)
    assert [*made._parts] == [] if is_known else len(made._parts) == 1
    for count in (4, 40):
        x = torch.randn(count, 192).bfloat16()
        assert distance(made(x), F.linear(x.float(), whole.dequantised())) < 5e-3
    assert cuda_int4 == [4]


def test_shapes_that_the_operator_of_fp8_refuses_are_made_whole():
    for rows_out, width in ((40, 64), (48, 72)):
        whole = quantise(weight(rows_out, width), "fp8", None)
        x = torch.randn(3, width).bfloat16()
        made = QuantisedLinear([whole], None, torch.bfloat16, CPU)
        assert distance(made(x), F.linear(x.float(), whole.dequantised())) < 5e-3


@pytest.mark.parametrize("name", FORMATS)
def test_a_layer_is_made_once_and_read_by_all(copied, name):
    files = QuantisedFiles(copied, "digest")
    made = files.layer(3, name)
    path = copied.folder / FOLDER / f"{name}-digest" / "layer-00003.safetensors"
    first = path.stat()
    assert [*path.parent.iterdir()] == [path], "nothing half-written stays"
    again = files.layer(3, name)
    assert path.stat().st_mtime_ns == first.st_mtime_ns
    unkept = QuantisedFiles(copied, None).layer(3, name)
    for matrix, found in made.items():
        for other in (again[matrix], unkept[matrix]):
            assert torch.equal(found.codes, other.codes)
            assert torch.equal(found.scales, other.scales)
    weight_of_it = copied.tensor("model.layers.3.mlp.down_proj.weight")
    assert distance(made["mlp.down_proj"].dequantised(), weight_of_it) < 0.15


def test_what_is_not_whole_or_of_something_else_is_made_anew(copied, caplog):
    want = QuantisedFiles(copied, "a").layer(0, "int4")["mlp.up_proj"].codes
    path = copied.folder / FOLDER / "int4-a" / "layer-00000.safetensors"
    content = path.read_bytes()
    other = QuantisedFiles(copied, "b")
    other.layer(0, "int4")
    of_another = (copied.folder / FOLDER / "int4-b" / "layer-00000.safetensors").read_bytes()
    narrow = content.replace(b"[320,16]", b"[640, 8]")
    assert narrow != content
    for broken in (
        content[:-100],
        content[:7],
        b"",
        of_another,
        content.replace(b"weight_scale", b"weight_scala"),
        narrow,
    ):
        path.write_bytes(broken)
        caplog.clear()
        assert torch.equal(QuantisedFiles(copied, "a").layer(0, "int4")["mlp.up_proj"].codes, want)
        assert "made anew" in caplog.text
        caplog.clear()
        QuantisedFiles(copied, "a").layer(0, "int4")
        assert not caplog.text


def full(*_: object, **__: object) -> None:
    raise SafetensorError("No space left on device")


@pytest.mark.parametrize("why", ["no folder", "full disk", "another's"])
def test_where_nothing_can_be_kept_each_process_makes_its_own(copied, monkeypatch, caplog, why):
    place = copied.folder / FOLDER
    monkeypatch.setenv("HOME", str(place))
    if why == "no folder":
        place.write_text("in the way")
    elif why == "full disk":
        monkeypatch.setattr(quantised_files, "save_file", full)
    else:
        monkeypatch.setattr(quantised_files, "safe_open", full)
    beats = []
    found = QuantisedFiles(copied, "a", lambda: beats.append(1)).layer(0, "int8")
    assert len(found) == len(beats) == 7, "made once, and each matrix is heard of"
    assert "cannot be kept" in caplog.text
    left = [path.name for path in place.rglob("*")] if place.is_dir() else []
    assert not [name for name in left if name.startswith(".layer")]


def test_files_are_in_the_layout_of_compressed_tensors(copied):
    compressors = pytest.importorskip("compressed_tensors.compressors", reason="compressed-tensors is not installed")
    QuantisedFiles(copied, "a").layer(1, "int4")
    name = "model.layers.1.mlp.down_proj"
    with safe_open(copied.folder / FOLDER / "int4-a" / "layer-00001.safetensors", framework="pt") as file:
        packed, shape = (file.get_tensor(f"{name}.{what}") for what in ("weight_packed", "weight_shape"))
    codes = compressors.unpack_from_int32(packed, 4, torch.Size(shape.tolist()))
    found = QuantisedFiles(copied, "a").layer(1, "int4")["mlp.down_proj"]
    ours = Quantised("int4", found.codes, torch.ones_like(found.scales)).dequantised()
    assert torch.equal(ours.to(torch.int8), codes)


def test_int4_codes_are_held_once():
    """By the operator; those for many rows stay in the file."""
    weight_of = quantise(weight(), "int4", 64)
    made = QuantisedLinear([weight_of], None, torch.bfloat16, CPU)
    if made._few is None:
        pytest.skip("torch has no such operator here")
    kept = [cell.cell_contents for cell in made._few.__closure__]
    assert not any(isinstance(each, Quantised) for each in kept)
    assert (
        sum(each.numel() for each in kept if isinstance(each, torch.Tensor) and each.dtype == torch.uint8) == 96 * 128
    )


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_for_vllm_is_made_once_by_however_many_ask(copied, name):
    """What two make at once is one folder, with nothing left over; who comes later takes it."""
    with ThreadPoolExecutor(2) as both:
        found = {*both.map(lambda digest: kept_checkpoint(copied.folder, digest, name), ("a", "a"))}
    (folder,) = found
    assert {path.name for path in (copied.folder / FOLDER).iterdir()} == {f"{name}-a", f"vllm-{name}-a"}
    written = {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()}
    assert kept_checkpoint(copied.folder, "a", name) == folder
    assert {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()} == written
    described = json.loads((folder / "config.json").read_text())
    assert quantised_as(described, "counting") == name


def test_a_folder_for_vllm_whose_files_are_gone_or_of_another_recipe_is_made_anew(copied, monkeypatch):
    files = QuantisedFiles(copied, "a")
    folder = kept_checkpoint(copied.folder, "a", "int4")
    (copied.folder / FOLDER / "int4-a" / "layer-00002.safetensors").unlink()
    assert not files.is_whole(folder)
    assert kept_checkpoint(copied.folder, "a", "int4") == folder
    assert files.is_whole(folder)
    monkeypatch.setattr("runtime.torch_engine.worker.quantised_files.RECIPE", "another")
    assert not files.is_whole(folder)
    assert files.is_whole(kept_checkpoint(copied.folder, "a", "int4"))


def test_a_folder_for_vllm_that_cannot_be_kept_is_refused_with_the_places(copied, monkeypatch):
    (copied.folder / FOLDER).write_text("in the way")
    monkeypatch.setenv("HOME", str(copied.folder / FOLDER))
    with pytest.raises(
        CheckpointError, match=r"its int8 weights cannot be kept .* let the service write to \.quantised"
    ):
        kept_checkpoint(copied.folder, "a", "int8")


def test_on_a_full_disk_each_process_makes_its_own(copied, monkeypatch, caplog):
    """safetensors has an error of its own for it."""

    def full(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("runtime.torch_engine.worker.quantised_files.save_file", full)
    monkeypatch.setenv("HOME", str(copied.folder))
    assert len(QuantisedFiles(copied, "a").layer(0, "int8")) == 7
    assert "cannot be kept" in caplog.text
    with pytest.raises(CheckpointError, match="cannot be kept"):
        kept_checkpoint(copied.folder, "a", "int8")


def test_layers_that_come_back_are_the_same_to_the_bit():
    """From the checkpoint anew, for nobody kept them; and with the codes of before where they go again."""
    weights = Weights(Checkpoint(EXAMPLES / "counting"), torch.float32)
    spec = ShardSpec(LayerRange(0, 8), 0, 1, True, True)
    shard = Shard(weights, spec, spec.layers)
    tokens = torch.arange(20)

    def logits() -> torch.Tensor:
        store = KvStore(KvShape(8, 4, 1, 32, 32, torch.float32))
        hidden = shard.forward(tokens, Attention(store.cache, slice(None), [Span(0, 20, (0,))]), SOLO)
        return shard.logits(hidden, range(20), SOLO)

    found = [logits()]
    for name in ("int4", None, "int4"):
        shard.exchange({layer: shard.fetched(layer, name) for layer in range(8)})
        found.append(logits())
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], found[3])
    assert not torch.allclose(found[0], found[1], atol=1e-3)
