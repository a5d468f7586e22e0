"""Logits equal transformers' within 1e-4 on every topology, however the prompt is cut into chunks."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

LENGTH = 40
CHUNKS = "13,8,1,1,16,1"


def ours(folder: Path, shape: str, out: Path, kind: str = "CPU") -> torch.Tensor:
    command = [sys.executable, "-m", "benchmarks.gpu.ranks", folder, out, kind, CHUNKS, "fp32", shape]
    subprocess.run(command, check=True, timeout=120)
    logits: torch.Tensor = torch.load(out / f"{shape}-fp32.pt")
    return logits


def theirs(folder: Path, tokens: torch.Tensor) -> torch.Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(tokens[None]).logits[0]
    return logits


@pytest.mark.slow
@pytest.mark.parametrize(("tp", "pp"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)])
@pytest.mark.parametrize("kind", ["llama-untied", "llama3-rope", "qwen2-tied", "qwen3-tied"])
def test_logits_equal_transformers(
    checkpoints: dict[str, Path], tmp_path: Path, kind: str, tp: int, pp: int
) -> None:
    folder = checkpoints[kind]
    tokens = torch.randint(0, 101, (LENGTH,), generator=torch.Generator().manual_seed(5))
    got = ours(folder, f"{tp}x{pp}", tmp_path)
    want = theirs(folder, tokens)
    assert got.shape == want.shape
    assert (got - want).abs().max() < 1e-4
    assert want.std() > 1, "the checkpoint is too flat to show a difference"


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
