from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from intent.models import (
    Config,
    FromNowWindow,
    Objective,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
)
from tests.rows import rows
from validator.consistency import check_conflicts
from validator.models import MessageWords


def bound(metric, op, value, unit="s", stat=None, **said):
    return Objective(metric, op, f"{metric} {op} {value}", stat, value, unit, **said)


def ttft(value, stat="p99", **said):
    return bound("ttft", "<=", value, stat=stat, **said)


def changed(op, factor=None, **said):
    return Relative("ttft", op, f"{op} {factor} {said}", "p99", factor, **said)


def excepted(**said):
    return TenantException("paid", "ttft", f"paid {said}", **said)


def limited(value, unit="1/h", window="peak"):
    return ReconfigRule("limit", f"{value} {unit}", value, unit, window)


UTIL_HIGH = bound("gpu_util", ">=", 0.8, "ratio")
UTIL_LOW = bound("gpu_util", "<=", 0.7, "ratio")
EVENING = RecurringWindow(("mon",), "20:00", "22:00", "UTC")  # peak ends at 21:00
FORBIDDEN = ReconfigRule("forbid", "none at peak", window="peak")

CLASHES = [
    (UTIL_HIGH, UTIL_LOW, "disjoint_bounds"),
    (replace(UTIL_HIGH, window="peak"), UTIL_LOW, "disjoint_bounds"),
    (replace(UTIL_HIGH, window="peak"), replace(UTIL_LOW, window=EVENING), "disjoint_bounds"),
    (replace(UTIL_HIGH, tenant="acme"), UTIL_LOW, "disjoint_bounds"),
    (bound("cost", "<=", 48.0, "USD/day"), bound("cost", ">=", 3.0, "USD/h"), "disjoint_bounds"),
    (ttft(3.0, "p50"), ttft(2.0), "percentiles_crossed"),
    (bound("ttft", ">=", 3.0, stat="p50"), ttft(2.0), "percentiles_crossed"),
    (ttft(3.0), ttft(2.0), "bounded_twice"),
    (ttft(3.0, tenant="acme", window="peak"), ttft(2.0, tenant="acme", window="peak"), "bounded_twice"),
    (Objective("cost", "minimize", "a"), Objective("cost", "maximize", "b"), "opposite_wishes"),
    (Config("tp", "==", 2, "a"), Config("tp", "==", 4, "b"), "different_settings"),
    (Config("tp", "<=", 2, "a"), Config("tp", ">=", 4, "b"), "different_settings"),
    (Config("tp", "==", 2, "a", window="peak"), Config("tp", "==", 4, "b"), "different_settings"),
    (changed("<=", 0.8), changed(">=", 1.2), "disjoint_bounds"),
    (changed("<=", 0.8), changed("<=", 0.5), "bounded_twice"),
    (changed("<=", 0.8), changed(">=", delta=0.1, unit="s"), "disjoint_bounds"),
    (changed("<=", delta=-0.2, unit="s"), changed(">=", delta=0.1, unit="s"), "disjoint_bounds"),
    (excepted(factor=1.2), excepted(limit=5.0, unit="s"), "excepted_twice"),
    (excepted(factor=1.2), excepted(), "excepted_twice"),
    (excepted(limit=5.0, unit="s"), ttft(4.0, tenant="paid"), "bound_and_exception"),
    (excepted(), ttft(4.0, tenant="paid", window="peak"), "bound_and_exception"),
    (excepted(limit=1.0, unit="s"), ttft(2.0), "exception_tighter"),
    (
        TenantException("paid", "throughput_tok", "x", limit=900.0, unit="tokens/s"),
        bound("throughput_tok", ">=", 500.0, "tokens/s"),
        "exception_tighter",
    ),
    (FORBIDDEN, limited(2.0), "reconfigured_twice"),
    (limited(3.0), limited(2.0), "reconfigured_twice"),
    (replace(FORBIDDEN, window="always"), Config("tp", "==", 4, "a"), "banned_act"),
    (replace(FORBIDDEN, window=FromNowWindow(3600.0)), Config("tp", "==", 4, "a"), "banned_act"),
]

COMPATIBLE = [
    (FORBIDDEN, Config("tp", "==", 4, "a")),
    (replace(FORBIDDEN, window="always"), Config("tp", "<=", 4, "a")),
    (replace(FORBIDDEN, window="always"), Config("tp", "==", 4, "a", window="peak")),
    (UTIL_LOW, bound("gpu_util", ">=", 0.6, "ratio")),
    (UTIL_HIGH, replace(UTIL_LOW, soft=True)),
    (replace(UTIL_HIGH, window="peak"), replace(UTIL_LOW, window="overnight")),
    (replace(UTIL_HIGH, tenant="a"), replace(UTIL_LOW, tenant="b")),
    (ttft(1.0, "p50"), ttft(2.0)),
    (ttft(3.0, "mean"), ttft(2.0)),
    (ttft(2.0), bound("tpot", "<=", 1.0, stat="p50")),
    (ttft(5.0), ttft(2.0, window="peak")),
    (ttft(5.0), ttft(2.0, tenant="acme")),
    (ttft(3.0, "p50", soft=True), ttft(2.0)),
    (
        bound("throughput_tok", ">=", 500.0, "tokens/s", "p50"),
        bound("throughput_tok", ">=", 400.0, "tokens/s", "p99"),
    ),
    (bound("cost", "<=", 1.0, "USD/Mtok"), bound("cost", ">=", 3.0, "USD/h")),
    (bound("cost", "<=", 24.0, "USD/day"), bound("cost", "<=", 1.0, "USD/h")),
    (Config("tp", "==", 2, "a", window="peak"), Config("tp", "==", 1, "b", window="overnight")),
    (Config("tp", "==", 2, "a"), Config("pp", "==", 4, "b")),
    (Config("tp", "<=", 4, "a"), Config("tp", "==", 2, "b")),
    (Objective("cost", "minimize", "a"), bound("cost", "<=", 5.0, "USD/h")),
    (Objective("cost", "minimize", "a", soft=True), Objective("cost", "maximize", "b")),
    (changed("<=", 0.8), replace(changed(">=", 1.2), stat="p50")),
    (changed("<=", 0.8), changed("<=", delta=-0.1, unit="s")),
    (changed("<=", 0.8), ttft(2.0)),
    (excepted(factor=1.2), ttft(2.0)),
    (excepted(limit=5.0, unit="s"), ttft(2.0)),
    (excepted(limit=5.0, unit="s"), ttft(5.0, tenant="paid")),
    (excepted(factor=1.2), ttft(4.0, tenant="acme")),
    (excepted(factor=1.2), excepted(factor=1.2)),
    (excepted(), Objective("ttft", "minimize", "x", "p99", tenant="paid")),
    (FORBIDDEN, limited(2.0, window="always")),
    (limited(2.0), limited(10.0, "1/day")),
]


def codes(site, en, *goals):
    return [finding.code for finding in check_conflicts(goals, site, en)]


@rows(("a", "b", "code"), CLASHES)
def test_two_goals_that_cannot_both_hold_are_found_either_way_round(a, b, code, site, en):
    assert codes(site, en, a, b) == [code]
    assert codes(site, en, b, a) == [code]


@rows(("a", "b"), COMPATIBLE)
def test_two_goals_that_can_both_hold_pass(a, b, site, en):
    assert codes(site, en, a, b) == codes(site, en, b, a) == []


def test_a_topology_larger_than_the_gpus_allowed_in_the_same_text_is_found_wherever_it_stands(site, en):
    tp, pp, count = (
        Config("tp", "==", 2, "a"),
        Config("pp", "==", 2, "b"),
        bound("gpu_count", "<=", 2.0, "gpus"),
    )
    assert codes(site, en, tp, pp, count) == codes(site, en, count, tp, pp) == ["too_many_for_both"]
    assert codes(site, en, tp, count) == []
    assert codes(site, en, tp, pp, replace(count, soft=True)) == []


def test_the_finding_names_both_and_points_at_the_later(site, en):
    (finding,) = check_conflicts([UTIL_HIGH, Config("tp", "==", 2, "a"), UTIL_LOW], site, en)
    assert finding.pointer == "/goals/2"
    for named in (finding.message, finding.suggestion):
        assert UTIL_HIGH.evidence in named
        assert UTIL_LOW.evidence in named


@given(st.floats(0.001, 100), st.floats(0.001, 100))
def test_a_lower_and_an_upper_bound_clash_exactly_when_nothing_lies_between(site, en, low, high):
    clash = codes(site, en, bound("e2e", ">=", low, stat="p99"), bound("e2e", "<=", high, stat="p99"))
    assert bool(clash) is (low > high)


REPLICAS_BESIDE = [
    (1, Config("replicas_per_node", "==", 1, "a"), Config("replicas", "==", 1, "b"), False),
    (2, Config("replicas_per_node", "==", 1, "a"), Config("replicas", "==", 2, "b"), False),
    (2, Config("replicas_per_node", "==", 1, "a"), Config("replicas", "==", 3, "b"), True),
    (2, Config("replicas_per_node", "==", 1, "a"), Config("replicas", "<=", 1, "b"), True),
    (2, Config("replicas_per_node", "<=", 1, "a"), Config("replicas", "==", 3, "b"), True),
    (2, Config("replicas_per_node", "<=", 1, "a"), Config("replicas", "==", 1, "b"), False),
    (2, Config("replicas_per_node", ">=", 2, "a", window="peak"), Config("replicas", "==", 3, "b"), True),
    (2, Config("lost_devices", ">=", 1, "a"), Config("replicas", "==", 1, "b"), True),
    (2, Config("lost_devices", ">=", 1, "a"), Config("replicas", "==", 2, "b"), False),
    (3, Config("lost_nodes", ">=", 2, "a"), Config("replicas", "<=", 2, "b"), True),
    (1, Config("lost_devices", ">=", 1, "a"), Config("replicas_per_node", "==", 1, "b"), True),
    (2, Config("lost_devices", ">=", 1, "a"), Config("replicas_per_node", "==", 1, "b"), False),
    (2, Config("lost_devices", ">=", 1, "a"), Config("tp", "==", 1, "b"), False),
]
"""Nodes, two wishes, and whether they ask for different numbers of replicas."""


@rows(("nodes", "first", "second", "clash"), REPLICAS_BESIDE)
@rows("language", ["en", "zh"])
def test_replicas_on_each_node_and_those_that_may_be_lost_are_replicas(nodes, first, second, clash, language, site):
    (node,) = site.cluster.nodes
    many = tuple(replace(node, name=f"n{number}") for number in range(nodes))
    here = replace(site, cluster=replace(site.cluster, nodes=many))
    for goals in ([first, second], [second, first]):
        found = [(one.code, one.pointer) for one in check_conflicts(goals, here, MessageWords(language))]
        assert found == ([("replicas_contradict", "/goals/1")] if clash else [])
