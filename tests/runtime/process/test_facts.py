"""What a host has, held against the deployment and against the service's own host: what differs is named."""

import os
import stat
from dataclasses import replace
from pathlib import Path

from runtime.models import Gpu
from runtime.process.facts import GpuFacts, HostFacts, differences, gather, is_kind, wrong_devices
from tests.rows import rows

A100 = GpuFacts("GPU-1", "NVIDIA A100-SXM4-80GB", 81920 << 20)
L40S = GpuFacts("GPU-2", "NVIDIA L40S", 46068 << 20)
HAS = HostFacts((A100, L40S), 4, 64 << 30, 1 << 30, {"intentctl": "1.0", "torch": "2.11"}, {"/m": {"a": "1", "b": "2"}})
BOTH = (Gpu(4, "A100", 80_000_000_000), Gpu(5, "L40S", 48_000_000_000))

DEVICES = {
    "as the file says": (BOTH, ""),
    "fewer than there are": (BOTH[:1], ""),
    "a name of the file's own": ([Gpu(0, "big", 80_000_000_000)], ""),
    "other order": (BOTH[::-1], "device 5 is L40S with 48 GB in the deployment; its GPU 0 is NVIDIA A100"),
    "more": ([*BOTH, Gpu(6, "L40S", 1)], "gives it 3 GPUs, and it has NVIDIA A100-SXM4-80GB, NVIDIA L40S"),
    "less memory": ([Gpu(0, "A100", 100_000_000_000)], "with 86 GB (GPU-1)"),
    "slots": ([Gpu(0, "CPU", 1 << 30)] * 4, ""),
    "slots beyond its memory": ([Gpu(0, "CPU", 40 << 30)] * 2, "CPU slots take 85.9 GB, and it has 68.7 GB"),
}


@rows("inventory, wrong", DEVICES.values(), ids=list(DEVICES))
def test_devices_that_differ_are_named(inventory, wrong):
    told = wrong_devices(inventory, HAS)
    assert wrong in told
    assert bool(told) == bool(wrong)


def test_a_host_without_gpus_says_so():
    assert "it has none that nvidia-smi lists" in wrong_devices(BOTH, replace(HAS, gpus=()))


KINDS = [
    ("A100", "NVIDIA A100-SXM4-80GB", True),
    ("A100-40GB", "NVIDIA A100-SXM4-40GB", True),
    ("L4", "NVIDIA L40S", False),
    ("RTX5090", "NVIDIA GeForce RTX 5090", True),
    ("H100", "NVIDIA H200", False),
    ("fast one", "NVIDIA H200", True),
]


@rows("kind, name, fits", KINDS)
def test_kinds_are_found_in_the_names_of_gpus(kind, name, fits):
    assert is_kind(kind, name) is fits


OTHERS = {
    "nothing": (HAS, False, ""),
    "another version": (replace(HAS, versions={"intentctl": "1.0", "torch": "2.12"}), False, "torch 2.12"),
    "no such checkpoint": (replace(HAS, checkpoints={}), False, "no checkpoint /m; put a copy"),
    "another file": (replace(HAS, checkpoints={"/m": {"a": "1", "b": "3"}}), False, "/m differs in b; copy"),
    "a missing file": (replace(HAS, checkpoints={"/m": {"a": "1"}}), False, "/m differs in b; copy"),
    "vllm on one": (replace(HAS, versions={**HAS.versions, "vllm": "0.32"}), False, ""),
    "little shared memory": (replace(HAS, free_shared_bytes=1 << 20), True, "/dev/shm has 1 MiB free"),
    "the same, unused": (replace(HAS, free_shared_bytes=1 << 20), False, ""),
}


@rows("theirs, needs_vllm, wrong", OTHERS.values(), ids=list(OTHERS))
def test_what_differs_from_the_services_own_host_is_named(theirs, needs_vllm, wrong):
    told = differences(theirs, HAS, needs_vllm=needs_vllm)
    assert wrong in told
    assert bool(told) == bool(wrong)


def test_another_vllm_than_the_services_is_named_where_the_service_has_one():
    ours, theirs = (replace(HAS, versions={**HAS.versions, "vllm": number}) for number in ("0.32", "0.33"))
    assert "vllm 0.33" in differences(theirs, ours, needs_vllm=True)
    assert differences(theirs, HAS, needs_vllm=True) == ""


def test_gpus_are_those_that_nvidia_smi_lists_and_processes_may_use(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA A100-SXM4-80GB, 81920, 580.1\nGPU-2, NVIDIA L40S, 46068, 580.1'\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "config.json").write_text("{}")
    facts = gather([str(tmp_path)])
    assert (facts.gpus, facts.versions["driver"]) == ((A100, L40S), "580.1")
    assert [*facts.checkpoints[str(tmp_path)]] == ["config.json"]
    assert gather((), "1,GPU-1").gpus == (L40S, A100)
    part = gather((), "MIG-7, 0")
    assert part.gpus == (GpuFacts("MIG-7", "", 0), A100)
    assert wrong_devices([Gpu(0, "A100", 10 << 30), Gpu(1, "A100", 10 << 30)], part) == ""
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert gather(()).gpus == ()
    assert Path("/dev/shm").is_dir() == (facts.free_shared_bytes > 0)
