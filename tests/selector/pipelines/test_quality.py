"""Layers in several formats under a bound on the loss: equal to trying everything, never beyond the bound, monotone in it."""

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.models import Cluster, Gpu, Link, ModelSpec, Node
from selector import profiles
from selector.pipelines import grid as quality
from selector.pipelines.grid import CapacityLine, Grid, Pipeline, Rations, grants, unmatched
from selector.pipelines.operating import OperatingLoad, Setting, StageKind, pools_of
from selector.pipelines.optimum import Threshold, ladder
from tests.rows import rows
from tests.selector.pipelines.brute_force import BruteForce
from tests.selector.pipelines.lowest import best
from tests.tries import tries

GB = 10**9
PROFILES = {kind: profiles.load(kind) for kind in ("A100", "L40S")}
LOSSES = {"fp8": 0.002, "int8": 0.006, "int4": 0.04}
BATCHES = (1, 12, 96)
"""So few that everything can be tried."""
METRICS = ("devices", "ttft", "tpot", "rate")


def setting_of(draw: random.Random, layers: int, counts: tuple[int, int]) -> Setting:
    """A model of few layers on devices that hold few."""
    model = ModelSpec("small", "LlamaForCausalLM", layers, 8192, 28_672, 64, 8, 128, 128_256, 8192)
    kinds = [kind for kind, count in zip(PROFILES, counts, strict=True) for _ in range(count)]
    memory = {kind: round(draw.uniform(5, 10) * GB) for kind in PROFILES}
    gpus = tuple(Gpu(number, kind, memory[kind], 1.0) for number, kind in enumerate(kinds))
    load = OperatingLoad(draw.choice([0.5, 4.0]), draw.choice([100, 800]), draw.choice([16, 250]), 1, 100)
    return Setting(model, Cluster((Node("n", gpus, Link("pcie", 25e9, 1e-5)),)), PROFILES, load, LOSSES, BATCHES)


def small(seed: int, formats: tuple[str, ...]) -> tuple[Grid, BruteForce, list[Threshold], Threshold]:
    """A random instance, with bounds and an objective; and all there is to try of it."""
    draw = random.Random(seed)
    setting = setting_of(draw, draw.randint(2, 5), draw.choice([(1, 0), (2, 0), (1, 1), (3, 0)]))
    pools = pools_of(setting.cluster, setting.cluster.kinds)
    kinds = [
        StageKind(place, pool.kind, 1, name)
        for place, pool in enumerate(pools)
        for name in formats
        if name in PROFILES[pool.kind].precisions
    ]
    mixes = [
        (one, other)
        for one, other in itertools.permutations(kinds, 2)
        if one.pool == other.pool and LOSSES.get(one.precision, 0.0) < LOSSES.get(other.precision, 0.0)
    ]
    bounds = [Threshold("tpot", draw.uniform(0.002, 0.05)), Threshold("ttft", draw.uniform(0.01, 0.3))]
    brute = BruteForce(setting, pools, kinds, (1, 2), BATCHES, mixes)
    wanted = Threshold(draw.choice(METRICS), 0.0)
    return Grid.of(kinds, (1, 2), pools, setting), brute, draw.sample(bounds, draw.randint(0, 1)), wanted


def lost(pipeline: Pipeline, layers: int) -> float:
    """What it loses of quality, on the mean over its layers."""
    return sum(LOSSES.get(kind.precision, 0.0) * count for parts in pipeline.stages for kind, count in parts) / layers


def found(grid: Grid, bounds: list[Threshold], wanted: Threshold) -> float:
    """What the search reads, smaller is better; the loss is looked at on the way."""
    pipeline, value = best(grid, wanted, bounds)
    if pipeline:
        layers = grid.setting.model.num_layers
        assert sum(count for parts in pipeline.stages for _, count in parts) == layers
        for bound in bounds:
            if bound.metric == "quality_loss":
                assert lost(pipeline, layers) <= bound.value * (1 + 1e-9)
    return value


@pytest.mark.slow
def test_with_units_of_one_layer_nothing_better_is_found_by_trying_everything(monkeypatch):
    answered = 0
    for seed in range(60):
        grid, brute, bounds, wanted = small(seed, ("bf16", "int4"))
        some = seed % grid.setting.model.num_layers + 1
        monkeypatch.setattr(quality, "UNITS", some)
        bounds.append(Threshold("quality_loss", LOSSES["int4"] * some / grid.setting.model.num_layers))
        got = found(grid, bounds, wanted)
        assert got == pytest.approx(brute.lowest(bounds, wanted), rel=1e-6)
        answered += math.isfinite(got)
    assert 20 < answered < 60


@pytest.mark.slow
def test_with_coarse_units_it_is_never_better_than_what_there_is():
    exact = []
    for seed in range(40):
        grid, brute, bounds, wanted = small(seed, ("bf16", "fp8", "int4"))
        bounds.append(Threshold("quality_loss", random.Random(seed).uniform(0, 0.05)))
        expected, got = brute.lowest(bounds, wanted), found(grid, bounds, wanted)
        if math.isfinite(got):
            assert got >= expected - 1e-6 * abs(expected)
            exact.append(got == pytest.approx(expected, rel=1e-6))
    assert len(exact) > 10
    assert np.mean(exact) > 0.8


def seventy(formats: tuple[str, ...], memory: float = 1.0) -> Grid:
    model = ModelSpec("llama-3-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 128_256, 8192)
    gpus = tuple(Gpu(n, "A100" if n < 2 else "L40S", round((80, 48)[n >= 2] * memory * GB), 1.0) for n in range(4))
    cluster = Cluster((Node("n", gpus, Link("pcie", 25e9, 1e-5)),))
    pools = pools_of(cluster, cluster.kinds)
    kinds = [
        StageKind(place, pool.kind, tp, name) for place, pool in enumerate(pools) for tp in (1, 2) for name in formats
    ]
    return Grid.of(
        kinds, range(1, 4), pools, Setting(model, cluster, PROFILES, OperatingLoad(1.0, 800, 250, 8, 800), LOSSES)
    )


ALL = ("bf16", "fp16", "fp8", "int8", "int4")


def lowest(grid: Grid, metric: str, *bounds: Threshold) -> float:
    return found(grid, list(bounds), Threshold(metric, 0.0))


@pytest.mark.slow
@tries(20)
@given(
    bound=st.one_of(st.floats(0, 0.05), st.sampled_from(sorted(LOSSES.values()))),
    more=st.floats(1.0, 3.0),
    metric=st.sampled_from(["tpot", "devices", "ttft"]),
    memory=st.sampled_from([0.5, 0.8, 1.0]),
)
def test_a_looser_bound_never_makes_it_worse(bound, more, metric, memory):
    grid = seventy(ALL, memory)
    tight = lowest(grid, metric, Threshold("quality_loss", bound))
    assert lowest(grid, metric, Threshold("quality_loss", bound * more)) <= tight * (1 + 1e-9)
    kept = tuple(name for name in ALL if LOSSES.get(name, 0.0) <= bound)
    assert tight <= lowest(seventy(kept, memory), metric) * (1 + 1e-9), "pipelines of these formats hold the bound"


@pytest.mark.slow
@rows("metric", ["tpot", "devices", "ttft"])
def test_no_loss_leaves_the_full_formats_and_the_largest_leaves_all(metric):
    grid = seventy(ALL, 0.8)
    assert lowest(grid, metric, Threshold("quality_loss", 0.0)) == lowest(seventy(("bf16", "fp16"), 0.8), metric)
    for bound in (0.04, 0.5):
        assert lowest(grid, metric, Threshold("quality_loss", bound)) <= lowest(grid, metric) * (1 + 1e-9)


numbers = st.floats(0.5, 40.0)


@pytest.mark.slow
@given(lines=st.lists(st.tuples(numbers, st.floats(0.2, 3.0)), min_size=3, max_size=3), bought=st.integers(0, 30))
def test_two_formats_hold_what_trying_every_number_says(lines, bought):
    layers = 30
    start, slope = (np.array(side)[:, None, None] for side in zip(*lines, strict=True))
    allowed = np.array([[0, bought // 2, bought], [layers] * 3], dtype=np.int16).T[:, ::-1, None]
    room, rations = CapacityLine(start, slope), Rations(allowed, ((0, 1),))
    for number, most in enumerate((0, bought // 2, bought)):
        left = [min(a - b * others for a, b in lines) for others in range(most + 1)]
        expected = max(others + math.floor(rest + 1e-9) for others, rest in enumerate(left) if rest > -1e-9)
        assert int(room.within(rations, layers)[number, 0, 0]) == min(layers, expected)
    assert int(room.bound(rations, layers)[0, 0]) >= int(room.within(rations, layers)[-1, 0, 0])


def test_what_may_be_granted_is_what_formats_lose():
    losses = np.array([0.0, 0.002, 0.006, 0.04])
    assert grants(losses, 0.01).tolist() == [0.0, 0.002, 0.006]
    assert grants(losses, 0.04).tolist() == [0.04], "one grant covers every format"
    assert grants(losses[1:], 0.001).tolist() == [0.0]


def test_of_kinds_alike_in_everything_one_is_left_and_none_that_is_better_in_something():
    kinds = [StageKind(0, "A100", 1, name) for name in ("bf16", "fp16", "int8", "int4")]
    figures = np.array([[2.0, 2.0, 1.0, 0.5], [0.0, 0.0, 0.1, 0.1]])[:, :, None]
    assert unmatched(kinds, figures) == [0, 3]
    elsewhere = [replace(kind, pool=number) for number, kind in enumerate(kinds)]
    assert unmatched(elsewhere, figures) == [0, 1, 2, 3]


@rows("memory", [0.03, 0.1, 0.25])
def test_where_a_format_has_no_room_at_all_the_others_are_still_searched(memory):
    goals = [Threshold("quality_loss", 0.04), Threshold("e2e", 60.0)]
    value = found(seventy(("fp16", "int4"), memory), goals, Threshold("tpot", 0.0))
    assert math.isfinite(value) == (memory > 0.2)


def test_a_bound_on_e2e_that_no_operating_point_can_reach_has_no_answer():
    goals = [Threshold("quality_loss", 0.01), Threshold("e2e", 1e-6)]
    assert ladder(seventy(ALL, 1.0), goals, Threshold("tpot", 0.0), "devices") == []
