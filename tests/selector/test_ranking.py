"""How candidates compare: the first difference decides, and is what is said."""

import math
from collections.abc import Sequence

import pytest

from intent.models import Goal, Objective, Priority
from runtime.models import Topology
from runtime.notation import parse_topology
from selector.models import Candidate, SearchInput, Workload
from selector.objectives import sort_goals
from selector.ranking import Ranking
from tests.rows import rows
from tests.selector.goals import predicted

CAP = Objective("ttft", "<=", "x", stat="mean", value=1.0, unit="s")
WISH = Objective("tpot", "<=", "x", stat="mean", value=0.012, unit="s", soft=True)
CHEAP = Objective("cost", "minimize", "x")


@pytest.fixture
def one(laptop) -> Topology:
    return parse_topology("CPU[0]", laptop, 8, "fp32")


@pytest.fixture
def two(laptop) -> Topology:
    return parse_topology("CPU[0,1]", laptop, 8, "fp32")


@pytest.fixture
def other(laptop) -> Topology:
    return parse_topology("CPU[2]", laptop, 8, "fp32")


def ranking(laptop, counting, goals: Sequence[Goal], now: Topology | None = None) -> Ranking:
    problem = SearchInput(laptop, counting, Workload(1, 10, 10, 1), now)
    return Ranking(sort_goals(goals, problem), problem)


def settle(laptop, counting, goals: Sequence[Goal], best: Candidate, worse: Candidate) -> str:
    """Check the order, whichever way round the candidates come, and give the reason."""
    order = ranking(laptop, counting, goals)
    for candidates in ([best, worse], [worse, best]):
        assert order.best(candidates) is best
    return order.why_loses(worse, best)


def test_a_missed_goal_comes_before_everything(laptop, counting, one, two):
    why = settle(laptop, counting, [CAP, WISH, CHEAP], predicted(two, 0.9, 9.0, 9.0), predicted(one, 1.1))
    assert why == "misses mean TTFT <= 1 s: 1.1 s (up to 1.21 s) predicted"


def test_a_missed_soft_goal_comes_before_objectives(laptop, counting, one, two):
    why = settle(laptop, counting, [CAP, WISH, CHEAP], predicted(two, usd=9.0), predicted(one, tpot_s=0.02))
    assert why == "misses mean TPOT <= 12 ms: 20 ms (up to 22 ms) predicted"


def test_objectives_come_before_devices(priced, counting, one, two):
    why = settle(priced, counting, [CAP, CHEAP], predicted(two, usd=1.5), predicted(one, usd=2.0))
    assert why == "is worse for minimize cost: 2 USD/h against 1.5 USD/h"


def test_devices_come_before_ttft(laptop, counting, one, two):
    why = settle(laptop, counting, [CAP], predicted(one, 0.9), predicted(two, 0.1))
    assert why == "needs 2 devices where 1 are enough for every goal"


def test_the_lowest_cost_comes_before_fewer_devices(priced, counting, one, two):
    why = settle(priced, counting, [CAP], predicted(two, usd=1.5), predicted(one, usd=2.0))
    assert why == "costs 2 USD/h where 1.5 USD/h are enough for every goal"


def test_devices_stand_for_cost_where_some_have_no_price(laptop, counting, one, two):
    why = settle(laptop, counting, [CAP, CHEAP], predicted(one, usd=2.0), predicted(two, usd=1.5))
    assert why == "is worse for minimize GPUs: 2 against 1"


def test_what_a_priority_puts_first_counts_double_against_cost(priced, counting, one, two):
    first, last = Priority("latency", "x"), Priority("cost", "x", "latency")
    fast, cheap = predicted(two, 0.4, usd=4.0), predicted(one, 0.9, usd=2.0)
    why = settle(priced, counting, [CAP, first], fast, cheap)
    assert why == "weighs less, mean TTFT against cost: 900 ms at 2 against 400 ms at 4"
    settle(priced, counting, [CAP, last], cheap, fast)


def test_the_fewest_bytes_to_move_decide_between_equals(laptop, counting, one, other):
    two_stages = parse_topology("CPU[2]:0-4 > CPU[3]:4-8", laptop, 8, "fp32")
    order = ranking(laptop, counting, [CAP], two_stages)
    assert order.best([predicted(one), predicted(other)]) == predicted(other)


def test_ttft_decides_between_equals(laptop, counting, one, other):
    why = settle(laptop, counting, [CAP], predicted(other, 0.2), predicted(one, 0.3))
    assert why == "has a P95 TTFT of 300 ms where the same cost gives 200 ms"


@rows("gain", [0.95, 0.5])
def test_today_stays_among_those_that_cost_the_same_whatever_is_quicker(laptop, counting, one, other, gain):
    today, faster = predicted(one, 0.5), predicted(other, 0.5 * gain)
    assert ranking(laptop, counting, [CAP], one).best([faster, today]) is today
    assert ranking(laptop, counting, [CAP]).best([faster, today]) is faster


@rows(("gain", "chosen"), [(0.95, "one"), (0.89, "two")])
def test_a_gain_within_the_error_band_pays_for_no_devices(priced, counting, one, two, gain, chosen):
    cheap, faster = predicted(one, 0.5, usd=2.0), predicted(two, 0.5 * gain, usd=4.0)
    order = ranking(priced, counting, [Objective("ttft", "minimize", "x", stat="mean", unit="s")])
    assert order.best([faster, cheap]) is {"one": cheap, "two": faster}[chosen]
    if chosen == "one":
        assert "costs 4 USD/h where 2 USD/h" in order.why_loses(faster, cheap)


@rows(
    ("ttft_s", "short"),
    [(0.9, 0.0), (0.95, math.log(1.045)), (2.0, math.log(2.2)), (math.inf, 7.0)],
)
def test_a_shortfall_is_relative_and_finite_and_counts_the_headroom(laptop, counting, one, ttft_s, short):
    assert ranking(laptop, counting, [CAP]).shortfall(predicted(one, ttft_s)) == pytest.approx(short)
