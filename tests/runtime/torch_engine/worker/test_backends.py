"""Where ranks compute, and in what; the driver finds out without touching a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runtime.errors import EngineStartError, SwitchError, TopologyError
from runtime.kv.store import KvShape
from runtime.models import Cluster, Gpu, Link, Node, Topology
from runtime.notation import parse_topology
from runtime.process.content import PinnedCheckpoint
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.messages import TorchDriverConfig
from runtime.torch_engine.models import EngineSettings, base_of, is_on_gpus
from runtime.torch_engine.worker.backends import (
    Backend,
    open_cpu,
    open_gpu,
    refuse_to_cross,
)
from tests.rows import rows

KINDS = ("CPU", "CPU", "H200", "L40S")
CLUSTER = Cluster((Node("a", tuple(Gpu(n, kind, 1 << 30) for n, kind in enumerate(KINDS)), Link("pcie", 1e9, 1e-5)),))


def topology(text: str, precision: str = "fp32") -> Topology:
    return parse_topology(text, CLUSTER, 5, precision)


@rows(
    ("text", "gpus"),
    [("CPU[0]:0-5", False), ("H200[2]:0-5", True), ("H200[2]:0-2 > L40S[3]:2-5", True)],
)
def test_every_kind_but_the_cpu_is_a_gpu(text, gpus):
    assert is_on_gpus(topology(text)) is gpus


@rows("text", ["CPU[0]:0-2 > H200[2]:2-5", "L40S[3]:0-2 > CPU[1]:2-5"])
def test_cpus_and_gpus_together_are_refused(text):
    with pytest.raises(TopologyError, match="on CPUs or on GPUs, not on both"):
        is_on_gpus(topology(text))


def test_going_from_one_to_the_other_is_refused():
    refuse_to_cross(topology("CPU[0]:0-5"), topology("CPU[1]:0-5"))
    with pytest.raises(TopologyError, match="between CPUs and GPUs"):
        refuse_to_cross(topology("CPU[0]:0-5"), topology("H200[2]:0-5"))


def test_waiting_for_a_core_is_no_time_of_a_cpu(monkeypatch):
    monkeypatch.setattr("time.thread_time", lambda: 7.0)
    assert open_cpu(0, KvShape(1, 1, 2, 4, 8, torch.float32)).clock_s() == 7.0


def test_freed_memory_goes_back_to_a_gpu_only(monkeypatch):
    emptied: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("cuda"))
    on_a_cpu = open_cpu(0, KvShape(1, 1, 2, 4, 8, torch.float32))
    on_a_cpu.return_freed()
    assert emptied == []
    Backend(torch.device("cuda", 0), on_a_cpu.store).return_freed()
    assert emptied == ["cuda"]


@rows(
    ("text", "base"),
    [
        ("H200[2]:0-5@fp32", "fp32"),
        ("H200[2]:0-5@bf16", "bf16"),
        ("H200[2]:0-5@fp16", "fp16"),
        ("H200[2]:0-5@bf16,0-5=fp8", "bf16"),
        ("H200[2]:0-5@fp16,1-2=int4", "fp16"),
        ("CPU[0]:0-5@bf16", "bf16"),
        ("CPU[0]:0-5@int8", "bf16"),
        ("CPU[0]:0-5@fp32,0-5=int8", "fp32"),
    ],
)
def test_activations_and_kv_are_in_what_the_topology_says(text, base):
    assert base_of(topology(text)) == base


@rows(
    ("text", "known"),
    [
        ("CPU[0]:0-5@fp16", "fp32 or bf16 here"),
        ("H200[2]:0-5@fp8", "fp32 or bf16 or fp16 here"),
        ("H200[2]:0-2@bf16 > L40S[3]:2-5@fp16", "fp32 or bf16 or fp16 here"),
        ("H200[2]:0-5@bf16,0-2=fp32", "fp32 or bf16 or fp16 here"),
        ("CPU[0]:0-5@fp32,1-2=fp8", "beside fp32 the torch engine has weights in int8, int4 on CPU, and none in fp8"),
    ],
)
def test_what_is_not_computed_here_is_refused_with_what_is(text, known):
    with pytest.raises(TopologyError, match=known):
        base_of(topology(text))


async def test_a_target_in_another_precision_than_what_runs_is_refused():
    engine = TorchEngine(
        TorchDriverConfig(PinnedCheckpoint(Path(), {}), topology("H200[2]:0-5", "bf16"), CLUSTER, EngineSettings())
    )
    with pytest.raises(SwitchError, match="keeps activations and KV in bf16 until it is started anew"):
        await engine.prepare(topology("H200[2]:0-5", "fp16"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_worker_without_a_gpu_says_what_is_wrong():
    with pytest.raises(EngineStartError, match="torch finds none"):
        open_gpu(2, KvShape(1, 1, 1, 8, 16, torch.bfloat16))


@pytest.mark.slow
def test_the_driver_imports_nothing_that_starts_cuda():
    code = (
        "import sys, torch, runtime.torch_engine.driver.loop\n"
        "assert not {'triton', 'cuda', 'runtime.kv.kernels'} & {*sys.modules}\n"
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
