import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Config, Objective
from validator.conflicts import check


def bound(metric, op, value, unit="s", stat=None, **said):
    return Objective(metric, op, f"{metric} {op} {value}", stat, value, unit, **said)


def codes(*goals):
    return [finding.code for finding in check(goals)]


UTIL_HIGH = bound("gpu_util", ">=", 0.8, "ratio")
UTIL_LOW = bound("gpu_util", "<=", 0.7, "ratio")


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        (UTIL_HIGH, UTIL_LOW, "disjoint_bounds"),
        (bound("gpu_util", ">=", 0.8, "ratio", window="peak"), UTIL_LOW, "disjoint_bounds"),
        (bound("gpu_util", ">=", 0.8, "ratio", tenant="acme"), UTIL_LOW, "disjoint_bounds"),
        (bound("cost", "<=", 48.0, "USD/day"), bound("cost", ">=", 3.0, "USD/h"), "disjoint_bounds"),
        (bound("ttft", "<=", 3.0, stat="p50"), bound("ttft", "<=", 2.0, stat="p99"), "percentiles_crossed"),
        (bound("ttft", ">=", 3.0, stat="p50"), bound("ttft", "<=", 2.0, stat="p99"), "percentiles_crossed"),
        (bound("ttft", "<=", 3.0, stat="p99"), bound("ttft", "<=", 2.0, stat="p99"), "bounded_twice"),
        (Objective("cost", "minimize", "a"), Objective("cost", "maximize", "b"), "opposite_wishes"),
        (Config("tp", "==", 2, "a"), Config("tp", "==", 4, "b"), "different_settings"),
        (Config("tp", "<=", 2, "a"), Config("tp", ">=", 4, "b"), "different_settings"),
        (Config("tp", "==", 2, "a", window="peak"), Config("tp", "==", 4, "b"), "different_settings"),
    ],
)
def test_two_goals_that_cannot_both_hold_are_found_either_way_round(a, b, code):
    assert codes(a, b) == [code]
    assert codes(b, a) == [code]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (UTIL_LOW, bound("gpu_util", ">=", 0.6, "ratio")),
        (
            bound("gpu_util", ">=", 0.8, "ratio", window="peak"),
            bound("gpu_util", "<=", 0.7, "ratio", window="overnight"),
        ),
        (
            bound("gpu_util", ">=", 0.8, "ratio", tenant="a"),
            bound("gpu_util", "<=", 0.7, "ratio", tenant="b"),
        ),
        (bound("ttft", "<=", 1.0, stat="p50"), bound("ttft", "<=", 2.0, stat="p99")),
        (bound("ttft", "<=", 3.0, stat="mean"), bound("ttft", "<=", 2.0, stat="p99")),
        (bound("ttft", "<=", 2.0, stat="p99"), bound("tpot", "<=", 1.0, stat="p50")),
        (bound("ttft", "<=", 5.0, stat="p99"), bound("ttft", "<=", 2.0, stat="p99", window="peak")),
        (
            bound("throughput_tok", ">=", 500.0, "tokens/s", "p50"),
            bound("throughput_tok", ">=", 400.0, "tokens/s", "p99"),
        ),
        (bound("cost", "<=", 1.0, "USD/Mtok"), bound("cost", ">=", 3.0, "USD/h")),
        (Config("tp", "==", 2, "a", window="peak"), Config("tp", "==", 1, "b", window="overnight")),
        (Config("tp", "==", 2, "a"), Config("pp", "==", 4, "b")),
        (Config("tp", "<=", 4, "a"), Config("tp", "==", 2, "b")),
        (Objective("cost", "minimize", "a"), bound("cost", "<=", 5.0, "USD/h")),
    ],
)
def test_two_goals_that_can_both_hold_pass(a, b):
    assert codes(a, b) == codes(b, a) == []


def test_a_topology_larger_than_the_gpus_allowed_in_the_same_text_is_found():
    goals = [Config("tp", "==", 2, "a"), Config("pp", "==", 2, "b"), bound("gpu_count", "<=", 2.0, "gpus")]
    assert codes(*goals) == ["disjoint_bounds"]
    assert codes(*goals[:1], goals[2]) == []


def test_the_finding_names_both_and_points_at_the_later():
    (finding,) = check([UTIL_HIGH, Config("tp", "==", 2, "a"), UTIL_LOW])
    assert finding.pointer == "/goals/2"
    assert UTIL_HIGH.evidence in finding.message
    assert UTIL_LOW.evidence in finding.message


@given(st.floats(0.001, 100), st.floats(0.001, 100))
def test_a_lower_and_an_upper_bound_clash_exactly_when_nothing_lies_between(low, high):
    clash = codes(bound("e2e", ">=", low, stat="p99"), bound("e2e", "<=", high, stat="p99"))
    assert bool(clash) is (low > high)
