"""From measurements of this machine to the profile of the kind ``CPU``. Pure: measuring is the runtime's."""

from selector.models import CpuSamples, Profile

KIND = "CPU"
GROUPS = (2, 4, 8)
ERROR_BAND = 0.5
"""One rank alone was measured; slots share cores, caches and memory bandwidth with each other."""


def fit_cpu(samples: CpuSamples) -> Profile:
    """The profile of one CPU slot.

    The samples are rates that were reached, so every share but the KV cache's is 1. Only fp32 was measured, so only fp32 is
    offered. Groups of more than two are extrapolated: a reduction through shared memory passes every rank
    once.
    """
    return Profile(
        kind=KIND,
        memory_bytes=0.0,  # a slot's memory is the deployment's to say
        memory_bytes_s=samples.memory_bytes_s,
        flops_s={"fp32": samples.gemm_flops_s},
        compute_share={"fp32": 1.0},
        weight_share={"fp32": 1.0},
        kv_share=min(1.0, samples.kv_bytes_s / samples.memory_bytes_s),  # a cache may be quicker than memory
        elementwise_share=1.0,
        expert_share=1.0,
        layer_overhead_s=samples.layer_overhead_s,
        step_overhead_s=samples.step_overhead_s,
        allreduce_s={size: _line(samples, size - 1) for size in GROUPS},
        # a hop copies once where an all-reduce of two copies both ways
        p2p_bytes_s=samples.allreduce_bytes_s,
        p2p_latency_s=samples.p2p_latency_s,
        error_band=ERROR_BAND,
        source="measured",
    )


def _line(samples: CpuSamples, passes: int) -> dict[int, float]:
    """Time of an all-reduce by message size: latency and bandwidth of two ranks, as often as the data passes."""
    return {
        size: passes * (samples.allreduce_latency_s + size / samples.allreduce_bytes_s)
        for size in (0, 1_000_000)
    }
