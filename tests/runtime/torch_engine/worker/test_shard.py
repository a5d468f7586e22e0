"""Logits equal transformers' within 1e-4 on every topology, however the prompt is cut into chunks."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.forked import FORK_SERVER

pytestmark = pytest.mark.slow

LENGTH = 40
CHUNKS = "13,8,1,1,16,1"
EXAMPLES = Path(__file__).parents[4] / "examples"


def ours(folder: Path, out: Path, *shapes: str, kind: str = "CPU") -> list[torch.Tensor]:
    command = ["benchmarks.gpu.ranks", str(folder), str(out), kind, CHUNKS, "fp32", *shapes]
    if kind == "CPU":
        code = f"import runpy, sys; sys.argv = {command}; runpy.run_module(sys.argv[0], run_name='__main__')"
        child = FORK_SERVER.Process(target=exec, args=(code,))  # torch is imported there
        child.start()
        child.join(200)
        assert child.exitcode == 0
    else:
        subprocess.run([sys.executable, "-m", *command], check=True, timeout=120)
    return [torch.load(out / f"{shape}-fp32.pt") for shape in shapes]


def theirs(folder: Path, vocab_size: int) -> torch.Tensor:
    tokens = torch.randint(0, vocab_size, (LENGTH,), generator=torch.Generator().manual_seed(5))
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits: torch.Tensor = model(tokens[None]).logits[0]
    return logits


@pytest.mark.parametrize("kind", ["llama-untied", "llama3-rope", "qwen2-tied", "qwen3-tied"])
def test_logits_equal_transformers(checkpoints, tmp_path, kind):
    want = theirs(checkpoints[kind], 101)
    for got in ours(checkpoints[kind], tmp_path, "1x1", "2x2", "4x1", "3x1", "2x1", "1x2"):
        assert got.shape == want.shape
        assert (got - want).abs().max() < 1e-4
    assert want.std() > 1, "the checkpoint is too flat to show a difference"


def test_the_small_counting_checkpoint_is_computed_as_transformers_does(tmp_path):
    folder = EXAMPLES / "counting-llama"
    want = theirs(folder, 98)
    for got in ours(folder, tmp_path, "1x1", "2x2"):
        assert got.shape == want.shape
        assert (got - want).abs().max() < 1e-4 * want.std()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["llama-untied", "qwen3-tied"])
def test_logits_on_a_gpu_equal_those_of_a_cpu(checkpoints, tmp_path, kind):
    """Within 1e-3 in float32: a GPU sums in another order."""
    (want,) = ours(checkpoints[kind], tmp_path, "1x1")
    for got in ours(checkpoints[kind], tmp_path, "1x1", "2x1", "1x2", "2x2", kind="GPU"):
        assert (got - want).abs().max() < 1e-3
