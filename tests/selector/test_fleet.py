"""Replicas that share the load."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Config, Objective
from runtime.capabilities import Capabilities, Limits
from runtime.models import Cluster, Gpu, Link, Node
from selector.fleet import cheapest, combined, divided
from selector.models import Infeasible, Plan, Prediction, SearchInput, Workload
from selector.pipelines.operating import pools_of
from tests.selector.goals import plan_of


def nodes(**kinds: tuple[int, int]) -> Cluster:
    """Kinds to (nodes, devices of each)."""
    found, number = [], 0
    for kind, (count, size) in kinds.items():
        for place in range(count):
            gpus = tuple(Gpu(number + n, kind, 80 * 10**9 if kind == "A100" else 48 * 10**9, 1.0) for n in range(size))
            found.append(Node(f"{kind}-{place}", gpus, Link("nvlink", 300e9, 5e-6)))
            number += size
    return Cluster(tuple(found), Link("network", 12.5e9, 25e-6))


@pytest.fixture
def busy(llama) -> SearchInput:
    """More than one pipeline of these devices serves in time."""
    return SearchInput(nodes(A100=(4, 4)), llama, Workload(14.0, 800, 250, 64), None)


FAST = Objective("tpot", "<=", "x", stat="mean", value=0.2, unit="s")


def test_a_load_beyond_one_pipeline_is_shared(choose, busy):
    plan = plan_of(choose(busy, FAST))
    everyone = [plan.target, *plan.replicas]
    assert len(everyone) == plan.prediction.replicas > 1
    devices = list(itertools.chain.from_iterable(one.devices for one in everyone))
    assert len(devices) == len(set(devices)) == plan.prediction.devices
    assert plan.prediction.throughput_tok_s >= 14 * 250
    assert plan.prediction.tpot_s["mean"] <= 0.2
    for one in everyone:
        one.check(busy.cluster, busy.model)


def test_an_engine_of_one_replica_gets_one(choose, busy):
    engine = Capabilities((1, 2, 4), 8, ("bf16",), tp_per_stage=True, replicated_kv_heads=False)
    assert isinstance(choose(replace(busy, capabilities=engine), FAST), Infeasible)
    several = replace(engine, max_replicas=8)
    assert isinstance(choose(replace(busy, capabilities=several), FAST), Plan)


def test_a_goal_for_replicas_is_met(choose, busy):
    quiet = replace(busy, workload=Workload(1.0, 800, 250, 8))
    two = plan_of(choose(quiet, Config("replicas", "==", 2, "two of them")))
    assert two.prediction.replicas == 2
    assert isinstance(choose(quiet, Config("replicas", "==", 16, "x")), Infeasible)


def test_the_limits_of_deployment_and_engine_hold_for_all_together(choose, busy):
    plan = plan_of(choose(busy, FAST))
    assert (plan.switch, plan.bytes_to_move) == (None, {})
    fewer = replace(busy, limits=Limits(max_gpus=plan.prediction.devices - 1))
    assert isinstance(choose(fewer, FAST), Infeasible)
    two = Capabilities((1, 2, 4), 8, ("bf16",), tp_per_stage=True, replicated_kv_heads=False, max_replicas=2)
    found = choose(replace(busy, capabilities=two), FAST)
    assert isinstance(found, Infeasible) or found.prediction.replicas <= 2


def test_goals_for_devices_and_cost_hold_for_all_together(choose, busy):
    plan = plan_of(choose(busy, FAST))
    fewer = Objective("gpu_count", "<=", "x", value=plan.prediction.devices - 1, unit="gpus")
    assert isinstance(choose(busy, FAST, fewer), Infeasible)


@pytest.mark.slow
def test_with_replicas_there_is_never_less_than_with_one(choose, llama):
    problem = SearchInput(nodes(A100=(2, 4), L40S=(2, 4)), llama, Workload(1.0, 800, 250, 8), None)
    most = Objective("throughput_tok", "maximize", "x")
    engine = Capabilities((1, 2, 4), 8, ("bf16",), tp_per_stage=True, replicated_kv_heads=False)
    several, one = (plan_of(choose(asked, most)) for asked in (problem, replace(problem, capabilities=engine)))
    assert several.prediction.throughput_tok_s >= one.prediction.throughput_tok_s


@pytest.mark.slow
@given(
    fits=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6),
    count=st.integers(1, 4),
    prices=st.tuples(st.integers(1, 5), st.integers(1, 5)),
)
def test_the_cheapest_parts_are_found(fits, count, prices):
    flags = np.zeros((6, 6), dtype=bool)
    for place in fits:
        flags[place] = True
    costs = prices[0] * np.arange(6.0)[:, None] + prices[1] * np.arange(6.0)
    possible = [
        sum(float(costs[one]) for one in parts)
        for parts in itertools.combinations_with_replacement(sorted(set(fits)), count)
        if all(sum(one[axis] for one in parts) <= 5 for axis in (0, 1))
    ]
    found = cheapest(flags, costs, (count, float("inf")))
    assert bool(found) == bool(possible)
    if found:
        assert sum(float(costs[one]) for one in found) == min(possible)
        assert cheapest(flags, costs, (count, min(possible))) == []


def test_parts_take_whole_nodes_where_they_can():
    cluster = nodes(A100=(2, 4), L40S=(1, 2))
    parts = divided(cluster, pools_of(cluster, cluster.kinds), [(2, 0), (4, 1), (2, 1)])
    assert [[gpu.index for gpu in part.gpus] for part in parts] == [[6, 7], [0, 1, 2, 3, 8], [4, 5, 9]]
    assert divided(cluster, pools_of(cluster, cluster.kinds), [(8, 0), (1, 0)]) == []


def test_together_they_are_as_slow_as_the_slowest_and_serve_what_all_serve():
    def one(ttft_s: float, band: float, devices: int) -> Prediction:
        reading = {"mean": ttft_s}
        figures = 100.0, 0.5, 2.0, 8, 0.0, band, "calibrated", devices
        return Prediction(reading, {"mean": 0.1}, reading, *figures)

    found = combined([one(1.0, 0.1, 2), one(3.0, 0.2, 6)])
    assert (found.ttft_s, found.throughput_tok_s, found.usd_per_hour) == ({"mean": 3.0}, 200.0, 4.0)
    assert (found.devices, found.replicas, found.error_band) == (8, 2, 0.2)
