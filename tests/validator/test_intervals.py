import math

from hypothesis import given
from hypothesis import strategies as st

from intent.models import Config, Objective, Placement, RecurringWindow
from validator.intervals import ValueInterval, covers, hard, interval, satisfies, together


def bound(value=2.0, **said):
    return Objective("ttft", "<=", "x", "p99", value, "s", **said)


def test_a_bound_allows_one_side_and_a_wish_everything():
    assert interval(bound()) == ValueInterval(-math.inf, 2.0)
    assert interval(Config("tp", "==", 2, "x")) == ValueInterval(2, 2)
    assert interval(Objective("cost", "minimize", "x")) == ValueInterval(-math.inf, math.inf)


def test_costs_compare_by_the_hour():
    assert interval(Objective("cost", "<=", "x", value=48.0, unit="USD/day")).high == 2.0


def test_goals_hold_together_in_windows_that_overlap(site):
    late = RecurringWindow(("fri",), "20:00", "06:00", "UTC")
    assert together(bound(), bound(window="peak"), site)
    assert together(bound(window="peak"), bound(window=late), site)
    assert not together(bound(window="peak"), bound(window="overnight"), site)


def test_a_name_holds_together_with_itself_and_with_none(site):
    assert together(bound(tenant="acme"), bound(), site)
    assert not together(bound(tenant="acme"), bound(tenant="initech"), site)
    assert not together(Config("tp", "==", 2, "x", model="a"), Config("tp", "==", 4, "x", model="b"), site)


def test_a_general_goal_covers_a_special_one_and_not_the_other_way_round(site):
    special = bound(window="peak", tenant="acme")
    assert covers(bound(), special, site)
    assert covers(special, special, site)
    assert not covers(special, bound(), site)
    assert not covers(bound(window="overnight"), special, site)
    assert covers(bound(window="month_end"), bound(window="peak"), site)


def test_what_is_preferred_is_not_hard():
    assert hard(bound())
    assert not hard(bound(soft=True))
    assert hard(Placement("require", "node:a", "x"))
    assert not hard(Placement("prefer", "node:a", "x"))


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(["<=", ">=", "=="]))
def test_satisfying_is_what_the_comparison_says(value, degree, op):
    expected = {"<=": degree <= value, ">=": degree >= value, "==": degree == value}[op]
    assert satisfies(degree, Config("tp", op, value, "x")) is expected


OPS = st.sampled_from(["<=", ">=", "=="])


@given(st.integers(0, 8), OPS, st.integers(0, 8), OPS)
def test_bounds_are_disjoint_exactly_when_no_value_satisfies_both(one, op, other, other_op):
    a, b = Config("tp", op, one, "x"), Config("tp", other_op, other, "x")
    shared = any(satisfies(value, a) and satisfies(value, b) for value in range(-1, 10))
    assert interval(a).disjoint(interval(b)) is not shared
