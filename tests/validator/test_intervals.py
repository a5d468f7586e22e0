import math

from hypothesis import given
from hypothesis import strategies as st

from intent.models import Config, Objective, RecurringWindow
from validator.intervals import Interval, devices_asked, interval, overlap, satisfies


def bound(value=2.0, **said):
    return Objective("ttft", "<=", "x", "p99", value, "s", **said)


def test_a_bound_allows_one_side_and_a_wish_everything():
    assert interval(bound()) == Interval(-math.inf, 2.0)
    assert interval(Config("tp", "==", 2, "x")) == Interval(2, 2)
    assert interval(Objective("cost", "minimize", "x")) == Interval(-math.inf, math.inf)


def test_costs_compare_by_the_hour():
    assert interval(Objective("cost", "<=", "x", value=48.0, unit="USD/day")).high == 2.0


def test_windows_overlap_if_equal_or_always():
    late = RecurringWindow(("fri",), "22:00", "06:00", "UTC")
    assert overlap(bound(), bound(window="peak"))
    assert overlap(bound(window=late), bound(window=late))
    assert not overlap(bound(window="peak"), bound(window="overnight"))


def test_a_name_overlaps_with_itself_and_with_none():
    assert overlap(bound(tenant="acme"), bound())
    assert not overlap(bound(tenant="acme"), bound(tenant="initech"))
    assert not overlap(Config("tp", "==", 2, "x", model="a"), Config("tp", "==", 4, "x", model="b"))


def test_tp_and_pp_of_the_same_time_multiply():
    goals = [Config("tp", "==", 2, "x"), Config("pp", "==", 4, "x"), Config("pp", "<=", 9, "x")]
    assert list(devices_asked(goals)) == [(0, 2), (1, 8)]
    apart = [Config("tp", "==", 2, "x", window="peak"), Config("pp", "==", 4, "x", window="overnight")]
    assert list(devices_asked(apart)) == [(0, 2), (1, 4)]


def test_a_number_of_gpus_asks_for_itself():
    assert list(devices_asked([Objective("gpu_count", ">=", "x", value=3.0, unit="gpus")])) == [(0, 3)]
    assert list(devices_asked([Objective("gpu_count", "<=", "x", value=3.0, unit="gpus")])) == []


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(["<=", ">=", "=="]))
def test_satisfying_is_what_the_comparison_says(value, degree, op):
    expected = {"<=": degree <= value, ">=": degree >= value, "==": degree == value}[op]
    assert satisfies(degree, Config("tp", op, value, "x")) is expected
