from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Objective, Placement, PrecisionRule
from runtime.models import Gpu
from tests.rows import rows
from validator.feasibility import cheapest_usd_h, check_capacity


def bound(metric, op, value, unit, **said):
    return Objective(metric, op, f"{metric} {op} {value}", value=value, unit=unit, **said)


def tpot(value, **said):
    return bound("tpot", "<=", value, "s", **said)


def cost(value, unit="USD/h", **said):
    return bound("cost", "<=", value, unit, **said)


BF16 = PrecisionRule("require", "bf16", "use bf16")


@rows(
    ("goals", "code", "suggestion"),
    [
        ([tpot(0.008)], "faster_than_memory", "at least 8.7 ms"),  # 70.5 GB of weights at 4 x 2.04 TB/s
        ([tpot(0.008, tenant="acme", window="peak")], "faster_than_memory", "at least 8.7 ms"),
        ([bound("ttft", "<=", 0.008, "s")], "faster_than_memory", "at least 8.7 ms"),
        ([tpot(0.015), BF16], "faster_than_memory", "at least 18 ms"),
        ([tpot(0.01), Placement("require", "node:b", "on b")], "faster_than_memory", "at least 21 ms"),
        ([bound("throughput_tok", ">=", 1e6, "tokens/s")], "more_than_compute", "at most 30000 tokens/s"),
        ([bound("throughput_req", ">=", 1e5, "requests/s")], "more_than_compute", "at most 30000 requests/s"),
        ([cost(2.1)], "below_cheapest", "at least 2.2 USD/h"),
        ([cost(50.0, "USD/day")], "below_cheapest", "at least 53 USD/day"),
        ([cost(2.3), BF16], "below_cheapest", "at least 4.4 USD/h"),
        ([cost(0.01, "USD/Mtok")], "below_cheapest", "at least 0.058 USD/Mtok"),
    ],
)
def test_what_no_topology_could_do_is_found(goals, code, suggestion, big, en):
    (finding,) = check_capacity(goals, big, en)
    assert (finding.code, finding.pointer, finding.suggestion) == (code, "/goals/0/value", suggestion)


@rows(
    "goals",
    [
        [tpot(0.009)],
        [tpot(0.001, soft=True)],
        [bound("tpot", ">=", 0.001, "s")],
        [tpot(0.015), replace(BF16, window="peak")],
        [bound("throughput_tok", ">=", 29_000.0, "tokens/s")],
        [cost(2.2)],
        [cost(1606.0, "USD/month")],
        [cost(0.1, "USD/Mtok")],
        [Objective("cost", "minimize", "x")],
        [tpot(0.001, model="nobody")],
        [tpot(-1.0)],
        [tpot(float("nan"))],
    ],
)
def test_what_some_topology_might_do_passes(goals, big, en):
    assert list(check_capacity(goals, big, en)) == []


def test_only_the_experts_that_a_token_uses_bound_what_is_possible(big, en):
    dense = big.models["llama-3-70b"]
    eight = replace(dense, intermediate_size=dense.intermediate_size // 2, num_experts=8, experts_per_token=2)
    sparse = replace(big, models={dense.name: eight})
    asked = [tpot(0.008)], [bound("throughput_tok", ">=", 1e6, "tokens/s")]
    assert [list(check_capacity(goals, sparse, en)) for goals in asked] == [
        list(check_capacity(goals, big, en)) for goals in asked
    ]


def test_devices_without_a_known_speed_may_do_anything(big, en):
    unknown = replace(big, speeds={"A100": big.speeds["A100"]})
    assert list(check_capacity([tpot(0.0002), bound("throughput_tok", ">=", 1e9, "tokens/s")], unknown, en)) == []


GPUS = st.builds(
    Gpu,
    st.just(0),
    st.just("x"),
    st.sampled_from([10, 24, 48, 80]).map(lambda gb: gb * 10**9),
    st.integers(1, 9).map(float),
)


@pytest.mark.slow
@given(st.lists(GPUS, min_size=1, max_size=7), st.integers(1, 200))
def test_the_cheapest_devices_are_those_of_trying_every_set(gpus, need_gb):
    gains = [round(-(-gpu.memory_bytes * 0.9 // 1e9)) for gpu in gpus]
    sets = (some for size in range(len(gpus) + 1) for some in combinations(range(len(gpus)), size))
    prices = [sum(gpus[n].usd_per_hour for n in some) for some in sets if sum(gains[n] for n in some) >= need_gb]
    assert cheapest_usd_h(tuple(gpus), need_gb * 10**9) == min(prices, default=0.0)
