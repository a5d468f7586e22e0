"""What the command line refuses, in one line, before anything runs."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.campaign import SHARES_S

ROOT = Path(__file__).parents[3]


def ask(bare: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, check=False)


def test_a_part_that_is_none_is_refused_with_those_there_are(bare, tmp_path):
    done = ask(bare, "--json", str(tmp_path / "gpu.json"), "--only", "walks")
    assert done.returncode == 2
    assert done.stderr == f"error: --only walks: there are {', '.join(SHARES_S)}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused(bare, tmp_path):
    file = tmp_path / "none" / "gpu.json"
    done = ask(bare, "--json", str(file), "--device", "cpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {file} cannot be written: No such file or directory\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_so_and_no_file_is_left(bare, tmp_path):
    done = ask(bare, "--json", str(tmp_path / "gpu.json"))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: torch")
    assert list(tmp_path.iterdir()) == []
