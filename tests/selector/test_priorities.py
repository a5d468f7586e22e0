"""Orders of priority."""

from intent.models import Objective, Priority
from selector.objectives import balance, objective, sides, weighed
from tests.rows import rows


@rows(
    ("pairs", "order"),
    [
        ([], ()),
        ([("latency", None)], ("latency",)),
        ([("cost", "latency"), ("latency", "throughput")], ("cost", "latency", "throughput")),
        ([("latency", "throughput"), ("cost", "latency")], ("cost", "latency", "throughput")),
        ([("latency", "cost"), ("throughput", None)], ("throughput", "latency", "cost")),
        ([("latency", "quality"), ("cost", "latency")], ("cost", "latency")),
    ],
)
def test_sides_stand_in_the_order_that_was_said(pairs, order):
    assert sides([Priority(higher, "x", lower) for higher, lower in pairs]) == order


def test_tenants_and_quality_are_not_weighed():
    assert weighed(Priority("latency", "x", "cost"))
    assert weighed(Priority("latency", "x"))
    assert not weighed(Priority("tenant:acme", "x"))
    assert not weighed(Priority("latency", "x", "quality"))


@rows(
    ("pairs", "metric", "exponents"),
    [
        ([("latency", "cost")], "ttft", (2.0, 1.0)),
        ([("latency", None)], "ttft", (2.0, 1.0)),
        ([("throughput", None)], "throughput_tok", (2.0, 1.0)),
        ([("throughput", "cost")], "throughput_tok", (2.0, 1.0)),
        ([("latency", "throughput"), ("throughput", "cost")], "ttft", (2.0, 1.0)),
        ([("cost", "throughput")], "throughput_tok", (1.0, 2.0)),
    ],
)
def test_every_form_of_a_priority_weighs_against_cost_alike(pairs, metric, exponents):
    found = balance([Priority(higher, "x", lower) for higher, lower in pairs], [])
    assert (found.better.metric, found.exponents) == (metric, exponents)


def test_cost_first_and_latency_over_throughput_weigh_nothing_against_cost():
    assert balance([Priority("cost", "x")], []) is None
    assert balance([Priority("latency", "x", "throughput")], []) is None


def test_latency_is_the_one_that_a_goal_bounds():
    bound = Objective("tpot", "<=", "x", stat="p95", value=0.05, unit="s")
    assert objective("latency", []) == Objective("ttft", "minimize", "priority", stat="mean", unit="s")
    assert objective("latency", [bound]) == Objective("tpot", "minimize", "priority", stat="p95", unit="s")
    assert (objective("cost", []).metric, objective("throughput", []).op) == ("cost", "maximize")
