"""Calibration measures this machine and hands over plain numbers."""

import dataclasses
import math
import subprocess
import sys

import pytest
import torch

from runtime.errors import CheckpointError
from runtime.torch_engine import calibrate
from runtime.torch_engine.calibrate import measure
from selector.models import CpuSamples


@pytest.mark.slow
def test_the_figures_are_what_the_selector_fits(checkpoints):
    figures = measure(checkpoints["qwen3-tied"])
    assert set(figures) == {field.name for field in dataclasses.fields(CpuSamples)}
    assert all(math.isfinite(value) and value >= 0 for value in figures.values())
    assert figures["gemm_flops_s"] > 1e8
    assert figures["memory_bytes_s"] > 1e8


def test_a_folder_that_cannot_be_served_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["calibrate", str(tmp_path)])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        calibrate.main()
    said = subprocess.CompletedProcess([], 1, "", f"a warning\n{ended.value}\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: said)
    with pytest.raises(CheckpointError, match=r"^calibration failed: /.* has no config\.json"):
        measure(tmp_path)
