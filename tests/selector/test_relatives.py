"""Goals relative to today."""

import pytest

from intent.models import Goal, Objective, Relative
from runtime.models import uniform
from selector.models import Candidate, Prediction, Workload
from selector.objectives import absolute
from tests.rows import rows

WORKLOAD = Workload(2.0, 100, 100, 8)


@pytest.fixture
def today(laptop) -> Candidate:
    latency = {"mean": 1.0, "p99": 3.0}
    prediction = Prediction(latency, latency, latency, 400.0, 0.5, 4.0, 8, 0.0, 0.1, "measured", 1)
    return Candidate(uniform(laptop, "CPU", 1, 1, 8, "fp32"), prediction, "")


@rows(
    ("goal", "value", "unit"),
    [
        (Relative("cost", "<=", "a fifth cheaper", factor=0.8), 3.2, "USD/h"),
        (Relative("cost", "<=", "24 a day less", delta=-24, unit="USD/day"), 72.0, "USD/day"),
        (Relative("ttft", "<=", "half", stat="p99", factor=0.5), 1.5, "s"),
        (Relative("throughput_tok", ">=", "double", factor=2.0), 800.0, "tokens/s"),
    ],
)
def test_a_relative_goal_is_a_bound_on_todays_prediction(today, goal, value, unit):
    (found,) = absolute([goal], today, WORKLOAD)
    assert isinstance(found, Objective)
    assert (found.metric, found.op, found.stat, found.unit) == (goal.metric, goal.op, goal.stat, unit)
    assert found.value == pytest.approx(value)


def test_without_today_or_without_a_prediction_it_stays_as_it_is(today):
    goals: list[Goal] = [
        Relative("cost", "<=", "cheaper", factor=0.8),
        Relative("availability", ">=", "more", factor=1.1),
    ]
    assert absolute(goals, None, WORKLOAD) == goals
    assert absolute(goals[1:], today, WORKLOAD) == goals[1:]
