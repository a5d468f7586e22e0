"""Logits equal transformers' within 1e-4 on every topology, however the prompt is cut into chunks."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

LENGTH = 40
CHUNKS = "13,8,1,1,16,1"
EXAMPLES = Path(__file__).parents[3] / "examples"


def ours(folder: Path, shape: str, out: Path, kind: str = "CPU") -> torch.Tensor:
    command = [sys.executable, "-m", "benchmarks.gpu.ranks", folder, out, kind, CHUNKS, "fp32", shape]
    subprocess.run(command, check=True, timeout=120)
    logits: torch.Tensor = torch.load(out / f"{shape}-fp32.pt")
    return logits


def theirs(folder: Path, vocab_size: int) -> torch.Tensor:
    tokens = torch.randint(0, vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(5))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(tokens[None]).logits[0]
    return logits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tp", "pp"),
    [
        (1, 1),
        (2, 2),
        (4, 1),
        pytest.param(2, 1, marks=pytest.mark.exhaustive),
        pytest.param(1, 2, marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("kind", ["llama-untied", "llama3-rope", "qwen2-tied", "qwen3-tied"])
def test_logits_equal_transformers(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str, tp: int, pp: int
) -> None:
    folder = checkpoints[kind]
    got = ours(folder, f"{tp}x{pp}", tmp_path)
    want = theirs(folder, 101)
    assert got.shape == want.shape
    assert (got - want).abs().max() < 1e-4
    assert want.std() > 1, "the checkpoint is too flat to show a difference"


@pytest.mark.slow
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 2)])
def test_the_small_counting_checkpoint_is_computed_as_transformers_does(
    tmp_path: Path, tp: int, pp: int
) -> None:
    folder = EXAMPLES / "counting-llama"
    got, want = ours(folder, f"{tp}x{pp}", tmp_path), theirs(folder, 98)
    assert got.shape == want.shape
    assert (got - want).abs().max() < 1e-4 * want.std()


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("kind", ["llama-untied", "qwen3-tied"])
def test_logits_on_a_gpu_equal_those_of_a_cpu(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str, tp: int, pp: int
) -> None:
    """Within 1e-3 in float32: a GPU sums in another order."""
    folder = checkpoints[kind]
    want = ours(folder, "1x1", tmp_path)
    got = ours(folder, f"{tp}x{pp}", tmp_path, "GPU")
    assert (got - want).abs().max() < 1e-3
