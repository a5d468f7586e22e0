"""The two clusters of the examples, the models they serve, and a calibrated CPU."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from intent.models import Goal
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Topology, uniform
from selector import profiles
from selector.models import CpuSamples, Infeasible, Plan, PlanRef, Profile, SearchInput, Workload
from selector.profiles import fit_cpu
from selector.search import select

Choose = Callable[..., Plan | Infeasible]

GB = 10**9


@pytest.fixture(scope="session")
def laptop() -> Cluster:
    slots = tuple(Gpu(index, "CPU", 2 * GB) for index in range(4))
    return Cluster((Node("local", slots, Link("shared-memory", 5e9, 30e-6)),))


@pytest.fixture(scope="session")
def priced(laptop) -> Cluster:
    """The laptop at 2 USD/h a slot."""
    nodes = (replace(node, gpus=tuple(replace(gpu, usd_per_hour=2.0) for gpu in node.gpus)) for node in laptop.nodes)
    return replace(laptop, nodes=tuple(nodes))


@pytest.fixture(scope="session")
def mixed() -> Cluster:
    a100s = tuple(Gpu(index, "A100", 80 * GB, 2.2) for index in range(4))
    l40s = tuple(Gpu(index, "L40S", 48 * GB, 1.1) for index in range(4, 8))
    nodes = (Node("a", a100s, Link("nvlink", 300e9, 5e-6)), Node("b", l40s, Link("pcie", 25e9, 10e-6)))
    return Cluster(nodes, Link("network", 12.5e9, 25e-6))


@pytest.fixture(scope="session")
def counting() -> ModelSpec:
    return ModelSpec("counting", "Qwen3ForCausalLM", 8, 128, 320, 8, 4, 32, 98, 16_384, tie_word_embeddings=True)


@pytest.fixture(scope="session")
def llama() -> ModelSpec:
    return ModelSpec("llama-3-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 128_256, 8192)


@pytest.fixture(scope="session")
def samples() -> CpuSamples:
    return CpuSamples(
        gemm_flops_s=40e9,
        memory_bytes_s=10e9,
        kv_bytes_s=5e9,
        layer_overhead_s=300e-6,
        allreduce_latency_s=40e-6,
        allreduce_bytes_s=2e9,
        p2p_latency_s=60e-6,
        step_overhead_s=400e-6,
    )


@pytest.fixture(scope="session")
def known(samples) -> dict[str, Profile]:
    return {"A100": profiles.load("A100"), "L40S": profiles.load("L40S"), "CPU": fit_cpu(samples)}


@pytest.fixture(scope="session")
def streams() -> Workload:
    """Eight long streams."""
    return Workload(rate_rps=0.2, input_tokens=20, output_tokens=900, concurrency=8)


@pytest.fixture(scope="session")
def peak() -> Workload:
    """Peak hours of a chat service."""
    return Workload(rate_rps=2.0, input_tokens=800, output_tokens=250, concurrency=32)


@pytest.fixture(scope="session")
def ticket() -> PlanRef:
    return PlanRef("plan-1", "intent-1", 3, "peak")


@pytest.fixture
def choose(known, ticket) -> Choose:
    def call(problem: SearchInput, *goals: Goal) -> Plan | Infeasible:
        return select(goals, problem, known, ticket)

    return call


@pytest.fixture(scope="session")
def small(laptop, counting, streams) -> SearchInput:
    """The counting model on the laptop, as PP2."""
    return SearchInput(laptop, counting, streams, uniform(laptop, "CPU", 1, 2, counting.num_layers, "fp32"))


@pytest.fixture
def large(mixed, llama, peak) -> SearchInput:
    """Llama-3-70B on the mixed cluster, nothing running."""
    return SearchInput(mixed, llama, peak, None)


@pytest.fixture(scope="session")
def four(mixed) -> Topology:
    """Llama-3-70B on the four A100."""
    return uniform(mixed, "A100", 4, 1, 80, "bf16")
