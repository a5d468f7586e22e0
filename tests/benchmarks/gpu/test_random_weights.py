"""Random weights are a function of their names: the same in every process, however they are cut."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu.random_weights import (
    RandomCheckpoint,
    RandomEngine,
    RandomStopAndCopyEngine,
    random_engine_of,
)
from benchmarks.gpu.shapes import LLAMA_2_13B, LLAMA_3_8B, QWEN_3_8B, SMALL_QWEN, folder_of, spec_of
from runtime.errors import CheckpointError
from runtime.torch_engine.worker.checkpoint import Checkpoint, expected_tensors
from tests.rows import rows

ROOT = Path(__file__).parents[3]
NAME = "model.layers.3.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def checkpoint():
    with folder_of(SMALL_QWEN, "small") as folder:
        yield RandomCheckpoint(folder)


@given(st.slices(96), st.slices(64))
def test_a_slice_is_a_slice_of_the_whole(rows, columns):
    if (rows.step or 1) < 0 or (columns.step or 1) < 0:
        rows, columns = slice(rows.start, rows.stop), slice(None)  # torch has no steps back
    with folder_of(SMALL_QWEN, "small") as folder:
        checkpoint = RandomCheckpoint(folder)
    assert torch.equal(checkpoint.tensor(NAME, rows, columns), checkpoint.tensor(NAME)[rows, columns])


def test_another_process_makes_the_same(checkpoint):
    code = (
        "import sys; from pathlib import Path; from benchmarks.gpu.random_weights import RandomCheckpoint\n"
        f"print(RandomCheckpoint(Path(sys.argv[1])).tensor({NAME!r}).double().sum().item())"
    )
    with folder_of(SMALL_QWEN, "small") as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True, check=True
        )
    assert float(done.stdout) == checkpoint.tensor(NAME).double().sum().item()


def test_every_tensor_is_there_and_no_two_are_alike_and_weights_keep_the_size_of_what_goes_through(
    checkpoint,
):
    firsts = set()
    for name, shape in expected_tensors(checkpoint.spec):
        tensor = checkpoint.tensor(name)
        assert list(tensor.shape) == shape
        assert tensor.isfinite().all()
        firsts.add(tensor.flatten()[0].item())
    assert len(firsts) == len(list(expected_tensors(checkpoint.spec)))
    norm = checkpoint.tensor("model.layers.0.self_attn.q_norm.weight")
    assert 0.5 <= norm.min() < norm.max() <= 1.5
    assert checkpoint.tensor(NAME).std() == pytest.approx(64**-0.5, rel=0.1)


def test_no_file_is_large_and_each_way_to_switch_has_an_engine_of_these_weights():
    with folder_of(SMALL_QWEN, "small") as folder, pytest.raises(CheckpointError, match="safetensors"):
        Checkpoint(folder)
    with folder_of(LLAMA_3_8B, "large") as folder:
        assert sum(path.stat().st_size for path in folder.iterdir()) < 10_000_000
    assert random_engine_of("patch") is RandomEngine
    assert random_engine_of("stop-and-copy") is RandomStopAndCopyEngine
    with pytest.raises(KeyError):
        random_engine_of("follow")


@rows(("config", "billions"), [(LLAMA_3_8B, 8.03), (LLAMA_2_13B, 13.02), (QWEN_3_8B, 8.19)])
def test_shapes_are_those_of_the_models_they_are_called_after(config, billions):
    spec = spec_of(config, "model")
    parameters = spec.num_layers * spec.layer_parameters + 2 * spec.embedding_parameters
    assert parameters / 1e9 == pytest.approx(billions, rel=0.002)
