"""The search: equal to trying everything, with certificates that count right, and never worse with more."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.capabilities import Batching
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node
from selector import profiles
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import OperatingLoad, Setting, StageKind, pools_of
from selector.pipelines.optimum import Threshold, most_held, reading, solve
from selector.pipelines.stages import running
from tests.selector.pipelines.brute_force import BruteForce
from tests.tries import tries

GB = 10**9
PROFILES = {kind: profiles.load(kind) for kind in ("A100", "L40S")}
FORMATS = {"A100": ("bf16", "int8", "int4"), "L40S": ("bf16", "fp8")}


@dataclass(frozen=True)
class Instance:
    """A small cluster, what may be built on it, and what is asked."""

    setting: Setting
    kinds: tuple[StageKind, ...]
    counts: tuple[int, ...]
    bounds: tuple[Threshold, ...]
    objectives: tuple[Threshold, ...]

    @property
    def grid(self) -> Grid:
        pools = pools_of(self.setting.cluster, self.setting.cluster.kinds)
        return Grid.of(self.kinds, self.counts, pools, self.setting)

    @property
    def brute_force(self) -> BruteForce:
        pools = pools_of(self.setting.cluster, self.setting.cluster.kinds)
        return BruteForce(self.setting, pools, self.kinds, self.counts, self.setting.batches)


def instance(seed: int) -> Instance:
    """A random one: memory, rate and bounds so that about half of them have an answer."""
    draw = random.Random(seed)
    layers = draw.randint(2, 5)
    model = ModelSpec("small", "LlamaForCausalLM", layers, 8192, 28_672, 64, 8, 128, 128_256, 8192)
    counts = {kind: draw.randint(0, 3) for kind in FORMATS}
    counts["A100"] += not any(counts.values())
    gpus, number = [], 0
    for kind, count in counts.items():
        memory = round(draw.uniform(5, 14) * GB)
        for _ in range(count):
            gpus.append(Gpu(number, kind, memory, {"A100": 2.2, "L40S": 1.1}[kind]))
            number += 1
    cluster = Cluster((Node("n", tuple(gpus), Link("pcie", 25e9, 1e-5)),))
    load = OperatingLoad(
        draw.choice([0.5, 4.0, 20.0]),
        draw.choice([100, 800, 3000]),
        draw.choice([1, 16, 250]),
        draw.choice([1, 20]),
    )
    setting = Setting(
        model,
        cluster,
        PROFILES,
        load,
        batches=(1, 12, 96),  # so that everything can be tried
        batching=Batching(max_step_tokens=draw.choice([2048, 640])),
    )
    pools = pools_of(cluster, cluster.kinds)
    every = [
        StageKind(place, pool.kind, tp, name)
        for place, pool in enumerate(pools)
        for tp in (1, 2)
        if tp <= pool.size
        for name in FORMATS[pool.kind]
    ]
    kinds = tuple(draw.sample(every, min(len(every), draw.randint(1, 4))))
    bounds = [
        Threshold("ttft", draw.uniform(0.01, 0.5), draw.choice(["mean", "p95", "p99"])),
        Threshold("tpot", draw.uniform(0.002, 0.05), draw.choice(["mean", "p99"])),
        Threshold("rate", load.rate_rps),
        Threshold("devices", draw.randint(1, 4)),
        Threshold("usd_per_hour", draw.uniform(1, 8)),
    ]
    objectives = [Threshold(metric, 0.0) for metric in ("devices", "usd_per_hour", "ttft", "tpot", "rate")]
    return Instance(
        setting,
        kinds,
        tuple(sorted(draw.sample([1, 2, 3], draw.randint(1, 3)))),
        tuple(draw.sample(bounds, draw.randint(0, 3))),
        tuple(draw.sample(objectives, draw.randint(1, 3))),
    )


def readings(one: Instance, pipeline: Pipeline, objectives: Sequence[Threshold]) -> list[float]:
    values = [reading(pipeline, objective, one.grid) for objective in objectives]
    return [
        -value if objective.metric == "rate" else value for objective, value in zip(objectives, values, strict=True)
    ]


def check(one: Instance) -> bool:
    """The search against trying everything, and each certificate counted anew; whether there was an answer."""
    brute = one.brute_force
    found, prove = solve(one.grid, one.bounds, one.objectives)
    expected = brute.best(one.bounds, one.objectives)
    assert (found is None) == (expected is None)
    if found is None or expected is None:
        return False
    assert readings(one, found, one.objectives) == pytest.approx(expected, rel=1e-6)
    assert sum(layers for parts in found.stages for _, layers in parts) == one.setting.model.num_layers
    held = list(one.bounds)
    for proof, value in zip(prove([one.grid]), expected, strict=True):
        if math.isfinite(value):
            assert proof.layers == brute.most_layers(held, proof.bound) < one.setting.model.num_layers
            held.append(replace(proof.bound, value=proof.bound.value * (1 + 1e-9 * (1 if value > 0 else -1))))
    return True


@pytest.mark.slow
def test_nothing_better_is_found_by_trying_everything():
    answered = [check(instance(seed)) for seed in range(40)]
    assert 13 < sum(answered) < 38


@pytest.mark.slow
@pytest.mark.exhaustive
def test_nothing_better_is_found_in_two_thousand_instances():
    for seed in range(40, 2040):
        check(instance(seed))


@pytest.mark.slow
def test_an_e2e_bound_is_dealt_almost_as_well_as_can_be():
    gaps = []
    for seed in range(60):
        one = replace(instance(seed), bounds=(), objectives=(Threshold("e2e", 0.0, "p95"),))
        found, _ = solve(one.grid, (), one.objectives)
        expected = one.brute_force.best((), one.objectives)
        if found and expected and math.isfinite(expected[0]):
            gaps.append(readings(one, found, one.objectives)[0] / expected[0] - 1)
    assert len(gaps) > 20
    assert min(gaps) > -1e-6
    assert max(gaps) < 0.1


def cluster_of(a100: int, l40s: int, memory: float = 1.0) -> Cluster:
    kinds = [("A100", 80)] * a100 + [("L40S", 48)] * l40s
    gpus = tuple(Gpu(n, kind, round(size * memory * GB), 1.0) for n, (kind, size) in enumerate(kinds))
    return Cluster((Node("n", gpus, Link("pcie", 25e9, 1e-5)),))


def seventy(cluster: Cluster, rate_rps: float = 1.0) -> Grid:
    model = ModelSpec("llama-3-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 128_256, 8192)
    pools = pools_of(cluster, cluster.kinds)
    kinds = [
        StageKind(place, pool.kind, tp, name)
        for place, pool in enumerate(pools)
        for tp in (1, 2, 4)
        if tp <= pool.size
        for name in FORMATS[pool.kind]
    ]
    return Grid.of(kinds, range(1, 5), pools, Setting(model, cluster, PROFILES, OperatingLoad(rate_rps, 800, 250, 8)))


def lowest(grid: Grid, wanted: Threshold, *bounds: Threshold) -> float:
    found, _ = solve(grid, bounds, [wanted])
    return reading(found, wanted, grid) if found else math.inf


@pytest.mark.slow
@tries(25)
@given(
    counts=st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(any),
    more=st.sampled_from([(1, 0), (0, 1), (2, 2)]),
    metric=st.sampled_from(["ttft", "tpot"]),
)
def test_more_devices_never_make_it_worse(counts, more, metric):
    wanted = Threshold(metric, 0.0, "p95")
    fewer = lowest(seventy(cluster_of(*counts)), wanted)
    assert lowest(seventy(cluster_of(counts[0] + more[0], counts[1] + more[1])), wanted) <= fewer * (1 + 1e-9)


@pytest.mark.slow
@tries(25)
@given(
    memory=st.floats(0.3, 2.0),
    more=st.floats(1.0, 2.0),
    metric=st.sampled_from(["ttft", "devices", "usd_per_hour"]),
)
def test_more_memory_never_makes_it_worse(memory, more, metric):
    wanted = Threshold(metric, 0.0)
    less = lowest(seventy(cluster_of(2, 2, memory)), wanted)
    assert lowest(seventy(cluster_of(2, 2, memory * more)), wanted) <= less * (1 + 1e-9)


@pytest.mark.slow
@tries(25)
@given(bound=st.floats(0.05, 5.0), tighter=st.floats(0.1, 1.0), metric=st.sampled_from(["tpot", "devices"]))
def test_a_tighter_goal_never_makes_it_better(bound, tighter, metric):
    grid, wanted = seventy(cluster_of(4, 2)), Threshold(metric, 0.0)
    loose = lowest(grid, wanted, Threshold("ttft", bound, "p99"))
    assert lowest(grid, wanted, Threshold("ttft", bound * tighter, "p99")) >= loose * (1 - 1e-9)


def test_what_is_found_reads_as_the_search_said():
    grid, goal = seventy(cluster_of(4, 4)), Threshold("ttft", 0.8, "p99")
    found, _ = solve(grid, [goal], [Threshold("usd_per_hour", 0.0)])
    again = next(one for one in running(grid, found.stages) if one.batch == found.batch)
    assert again.busy_s == pytest.approx(found.busy_s)
    assert np.array(again.firsts) == pytest.approx(np.array(found.firsts))
    assert reading(again, goal, grid) <= 0.8


def test_a_barred_shape_is_left_out_for_the_next_best():
    grid, wanted = seventy(cluster_of(4, 4)), Threshold("devices", 0.0)
    best, _ = solve(grid, (), [wanted])
    used = [sum(parts[0][0].tp for parts in best.stages if parts[0][0].pool == pool) for pool in (0, 1)]
    second, _ = solve(replace(grid, barred=(len(best.stages), tuple(used))), (), [wanted])
    assert reading(second, wanted, grid) >= reading(best, wanted, grid)
    assert [
        sum(parts[0][0].tp for parts in second.stages if parts[0][0].pool == pool) for pool in (0, 1)
    ] != used or len(second.stages) != len(best.stages)


def test_without_an_answer_it_says_how_much_would_fit():
    grid = seventy(cluster_of(1, 0, memory=0.3))
    nothing, prove = solve(grid, (), [Threshold("devices", 0.0)])
    assert (nothing, prove([grid])) == (None, ())
    assert 0 < most_held(grid, ()) < 80
    tight = Threshold("ttft", 1e-6)
    pipeline, prove = solve(seventy(cluster_of(4, 0)), [tight], [])
    (proof,) = prove([])
    assert (pipeline, proof.bound, proof.layers) == (None, tight, 0)
