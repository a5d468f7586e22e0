"""From samples of this machine to the profile of its CPU."""

import json
from dataclasses import asdict, replace

import pytest

from runtime.footprint import kv_bytes_per_token
from runtime.models import uniform
from selector.models import CpuSamples, Profile
from selector.performance.perf import Step
from selector.profiles import fit_cpu
from tests.selector.performance.steps import stage_times_s


def test_the_profile_gives_back_what_was_measured(samples, laptop, counting):
    profile = fit_cpu(replace(samples, layer_overhead_s=1e-3, step_overhead_s=2e-3, memory_bytes_s=1e15))
    one = uniform(laptop, "CPU", 1, 1, 8, "fp32")
    (step_s,) = stage_times_s(one, Step.of(1, 1, 1), counting, laptop, {"CPU": profile})
    assert step_s == pytest.approx(8 * 1e-3 + 2e-3, rel=0.05)


def test_reading_the_cache_costs_what_was_measured(samples, laptop, counting):
    profile = {"CPU": fit_cpu(replace(samples, gemm_flops_s=1e15))}
    one = uniform(laptop, "CPU", 1, 1, 8, "fp32")
    (short,) = stage_times_s(one, Step.of(8, 1, 0), counting, laptop, profile)
    (long,) = stage_times_s(one, Step.of(8, 1, 500), counting, laptop, profile)
    read = 8 * 500 * kv_bytes_per_token(counting, "fp32")
    assert long - short == pytest.approx(read / samples.kv_bytes_s, rel=0.01)


def test_a_cache_read_faster_than_memory_makes_no_share_above_one(samples):
    profile = fit_cpu(replace(samples, kv_bytes_s=2 * samples.memory_bytes_s))
    assert profile.kv_share == 1.0


def test_a_slow_exchange_makes_tensor_parallelism_lose(samples, laptop, counting):
    slow = {"CPU": fit_cpu(replace(samples, allreduce_latency_s=10e-3))}
    one, two = (
        sum(stage_times_s(uniform(laptop, "CPU", tp, 1, 8, "fp32"), Step.of(8, 1, 500), counting, laptop, slow))
        for tp in (1, 2)
    )
    assert two > one + 2 * 8 * 10e-3 * 0.9


def test_larger_groups_exchange_more_slowly(samples):
    profile = fit_cpu(samples)
    one = profile.allreduce_s[2]
    assert one[0] == samples.allreduce_latency_s
    assert one[1_000_000] == pytest.approx(samples.allreduce_latency_s + 1e6 / samples.allreduce_bytes_s)
    assert profile.allreduce_s[4][0] > one[0]
    assert profile.allreduce_s[4][1_000_000] > one[1_000_000]


def test_samples_come_as_plain_numbers_and_the_profile_survives_json(samples):
    profile = fit_cpu(CpuSamples(**asdict(samples)))
    assert Profile.from_mapping(json.loads(json.dumps(profile.to_mapping()))) == profile
    assert (profile.kind, profile.source, profile.precisions) == ("CPU", "measured", ("fp32",))
