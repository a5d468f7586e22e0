from dataclasses import replace
from itertools import permutations

from intent.models import Objective, PrecisionRule
from runtime.capabilities import Limits
from runtime.models import BYTES_PER_VALUE
from tests.rows import rows
from validator.consistency import check_precisions, left_for


def rule(words, **said):
    kind, value = words.split()
    return PrecisionRule(kind, value, words, **said)


def codes(site, en, *rules):
    return [finding.code for finding in check_precisions(rules, site, en)]


@rows(
    ("words", "left"),
    [
        ("require bf16", {"bf16"}),
        ("require full", {"fp32", "bf16", "fp16"}),
        ("forbid int4", {"fp32", "bf16", "fp16", "fp8", "int8"}),
        ("forbid full", {"fp8", "int8", "int4"}),
        ("min fp8", {"fp32", "bf16", "fp16", "fp8", "int8"}),
        ("min full", {"fp32", "bf16", "fp16"}),
        ("allow int4", set(BYTES_PER_VALUE)),
    ],
)
def test_a_rule_leaves_the_formats_it_says(words, left):
    assert rule(words).leaves(BYTES_PER_VALUE) == left


@rows(
    ("a", "b"),
    [
        (rule("require int4"), rule("forbid int4")),
        (rule("require int4"), rule("require bf16")),
        (rule("require int4"), rule("min fp8")),
        (rule("require full"), rule("forbid full")),
        (rule("min full"), rule("forbid full")),
        (rule("require int4", window="peak"), rule("forbid int4")),
        (rule("require int4", tenant="acme"), rule("forbid int4")),
        (rule("allow int4"), rule("forbid int4")),
        (rule("allow int4", window="peak"), rule("min fp8", window="peak")),
        (rule("allow int8"), rule("require bf16")),
    ],
)
def test_two_rules_that_exclude_each_other_are_found_either_way_round(a, b, site, en):
    assert codes(site, en, a, b) == codes(site, en, b, a) == ["precisions_exclude"]


@rows(
    ("a", "b"),
    [
        (rule("require bf16"), rule("forbid int4")),
        (rule("require full"), rule("require bf16")),
        (rule("require int4", window="overnight"), rule("forbid int4", window="peak")),
        (rule("require int4", tenant="paid"), rule("forbid int4", tenant="acme")),
        (rule("allow int4"), rule("forbid int4", window="peak")),
        (rule("allow int4"), rule("allow fp8")),
        (rule("min fp8"), rule("forbid bf16")),
    ],
)
def test_two_rules_that_leave_something_pass(a, b, site, en):
    assert codes(site, en, a, b) == codes(site, en, b, a) == []


def test_rules_that_leave_nothing_together_are_found_in_any_order(site, en):
    rules = [rule("forbid full"), rule("forbid fp8"), rule("forbid int8", window="peak"), rule("forbid int4")]
    for order in permutations(rules):
        (finding,) = check_precisions(order, site, en)
        assert finding.code == "no_precision_left"
        assert all(one.evidence in finding.message for one in rules)
    assert codes(site, en, *rules[:3]) == []


def test_what_the_deployment_allows_counts(site, en):
    narrow = replace(site, limits=Limits(allowed_precisions=("bf16", "fp8")))
    assert codes(narrow, en, rule("forbid bf16"), rule("forbid fp8")) == ["no_precision_left"]
    assert codes(site, en, rule("forbid bf16"), rule("forbid fp8")) == []


def test_what_is_left_for_a_goal_is_what_rules_that_cover_it_leave(site):
    goals = [
        rule("min fp8"),
        rule("require bf16", window="peak"),
        Objective("ttft", "<=", "x", "p99", 2.0, "s", window="peak"),
    ]
    assert left_for(goals[2], goals, site) == {"bf16"}
    assert left_for(replace(goals[2], window="overnight"), goals, site) == goals[0].leaves(BYTES_PER_VALUE)


@rows(
    ("a", "b"),
    [
        (rule("require int8", layers="middle"), rule("require int4", layers="middle")),
        (rule("require int8", layers="middle"), rule("require bf16")),
        (rule("require int8", layers="0-4"), rule("require fp8", layers="4-5")),
        (rule("allow int8", layers="middle"), rule("forbid int8", layers="middle")),
        (rule("require int8", layers="first 4"), rule("forbid int8", layers="3-3")),
        (rule("require int8", layers="last 1"), rule("min bf16", layers="7-7")),
    ],
)
def test_rules_for_the_same_layer_exclude_each_other(a, b, site, en):
    assert codes(site, en, a, b) == codes(site, en, b, a) == ["precisions_exclude"]


@rows(
    ("a", "b"),
    [
        (rule("require int8", layers="0-3"), rule("require fp8", layers="4-5")),
        (rule("require int8", layers="first 4"), rule("require int4", layers="last 4")),
        (rule("require int8"), rule("forbid int8", layers="first 4")),
        (rule("allow int8"), rule("forbid int8", layers="first 4")),
        (rule("require int8", layers="middle", window="peak"), rule("require bf16", window="off_peak")),
    ],
)
def test_rules_for_other_layers_and_what_is_taken_out_for_some_pass(a, b, site, en):
    assert codes(site, en, a, b) == codes(site, en, b, a) == []


def test_a_rule_for_some_layers_says_nothing_of_what_is_left_for_a_goal(site):
    goal = Objective("ttft", "<=", "x", "p99", 2.0, "s")
    assert left_for(goal, [rule("require int4", layers="middle"), goal], site) == set(BYTES_PER_VALUE)
