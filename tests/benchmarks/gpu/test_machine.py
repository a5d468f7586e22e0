"""What devices are called, what keeps one from being used, and what is said of one that others use."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import machine as subject
from benchmarks.gpu.machine import (
    UnusableError,
    find_machine,
    host_free_bytes,
    kind_of,
    why_cuda_cannot_be_used,
)
from selector.profiles import available, load
from tests.rows import rows


@rows(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA GeForce RTX 5090", "RTX5090"),
    ],
)
def test_a_device_is_of_the_kind_that_its_profile_is_for(name, kind):
    assert kind_of(name) == kind
    assert kind in {load(profile).kind for profile in available()}


@rows("name", ["", "NVIDIA", "GeForce", "NVIDIA GB200", "Tesla T4", "AMD Instinct MI300X"])
def test_any_name_makes_a_kind_that_a_topology_can_be_written_with(name):
    assert kind_of(name).isalnum()


def torch_with(version: str | None, failure: Exception | None = None) -> Any:
    def init() -> None:
        if failure:
            raise failure

    return SimpleNamespace(__version__="2.11.0", version=SimpleNamespace(cuda=version), cuda=SimpleNamespace(init=init))


@rows(
    ("torch", "says"),
    [
        (torch_with(None), "built without CUDA; install"),
        (torch_with("13.0", RuntimeError("No CUDA GPUs are available")), "No CUDA GPUs are available"),
        (
            torch_with("13.0", RuntimeError("The NVIDIA driver on your system is too old (11040).\nUpdate it")),
            "driver on your system is too old (11040).",
        ),
        (torch_with("13.0", AssertionError("Torch not compiled with CUDA enabled")), "not compiled"),
    ],
)
def test_what_keeps_cuda_from_being_used_is_one_line(torch, says):
    reason = why_cuda_cannot_be_used(torch)
    assert reason is not None
    assert says in reason
    assert "\n" not in reason


@rows(("missing", "named"), [("triton", "triton"), ("cuda.bindings", "cuda-bindings")])
def test_a_package_without_which_no_kernel_runs_is_named(monkeypatch, missing, named):
    monkeypatch.setattr(subject, "_is_there", lambda package: package != missing)
    assert f"package {named} is missing" in (why_cuda_cannot_be_used(torch_with("13.0")) or "")


def test_with_all_of_that_nothing_keeps_it(monkeypatch):
    monkeypatch.setattr(subject, "_is_there", lambda _: True)
    assert why_cuda_cannot_be_used(torch_with("13.0")) is None


def test_of_a_device_that_others_use_or_that_cannot_do_all_one_is_warned(h100, cpu):
    assert h100.warnings == []
    (warning,) = replace(h100, free_bytes=30_000_000_000).warnings
    assert "another process holds 55.0 GB of the 85.0 GB" in warning
    (warning,) = replace(h100, facts={"compiler": None}).warnings
    assert "no C compiler" in warning
    assert replace(cpu, free_bytes=1).warnings == []
    assert 0 < host_free_bytes() < 1 << 50
    (warning,) = replace(h100, facts={**h100.facts, "compute_mode": ["Exclusive_Process"]}).warnings
    assert "nvidia-smi -c DEFAULT" in warning


def test_a_device_that_does_not_answer_or_ends_without_a_word_is_unusable(monkeypatch):
    run = subprocess.run
    for code, says in (("raise SystemExit(7)", "status 7"), ("import os; os.abort()", "status -6")):
        command = [sys.executable, "-S", "-c", code]
        monkeypatch.setattr(subprocess, "run", lambda _, command=command, **more: run(command, **more))
        with pytest.raises(UnusableError, match=says):
            find_machine("cuda")
    monkeypatch.setattr(subject, "PROBE_TIMEOUT_S", 0.01)
    monkeypatch.setattr(subprocess, "run", lambda _, **more: run(["sleep", "9"], **more))
    with pytest.raises(UnusableError, match="did not answer"):
        find_machine("cuda")
