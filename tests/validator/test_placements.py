from itertools import permutations

from intent.models import Objective, Placement
from tests.rows import rows
from validator.consistency import check_placements, open_to


def rule(words, **said):
    kind, selector = words.split(maxsplit=1)
    return Placement(kind, selector, words, **said)


def codes(big, en, *rules):
    return [finding.code for finding in check_placements(rules, big, en)]


@rows(
    ("selector", "indices"),
    [
        ("gpu_type:A100", {0, 1, 2, 3}),
        ("gpu_type:l40s", {4, 5, 6, 7}),
        ("gpu:gpu-3", {3}),
        ("gpu:3", {3}),
        ("node:b", {4, 5, 6, 7}),
        ("node:c", set()),
        ("gpu:gpu-8", set()),
        ("gpu_type:H100", set()),
    ],
)
def test_a_selector_names_devices_of_the_inventory(selector, indices, big):
    assert big.cluster.named(selector) == indices


@rows(
    ("a", "b", "code"),
    [
        (rule("require gpu_type:A100"), rule("forbid gpu_type:A100"), "no_common_place"),
        (
            rule("require gpu_type:A100", workload="batch"),
            rule("forbid node:a", workload="batch"),
            "no_common_place",
        ),
        (rule("require gpu_type:A100", workload="batch"), rule("forbid node:a"), "no_common_place"),
        (rule("require gpu:gpu-1"), rule("require gpu:gpu-2"), "no_common_place"),
        (rule("require gpu_type:A100", window="peak"), rule("require node:b"), "no_common_place"),
        (rule("require gpu:gpu-1"), rule("freeze gpu:gpu-1"), "frozen_place"),
        (rule("require gpu:gpu-1"), rule("freeze node:a"), "frozen_place"),
    ],
)
def test_two_places_that_exclude_each_other_are_found_either_way_round(a, b, code, big, en):
    assert codes(big, en, a, b) == codes(big, en, b, a) == [code]


@rows(
    ("a", "b"),
    [
        (rule("require gpu_type:A100", workload="batch"), rule("require gpu_type:L40S", workload="rest")),
        (rule("require gpu_type:A100"), rule("forbid gpu:gpu-1")),
        (rule("require gpu_type:A100"), rule("require node:a")),
        (rule("require gpu_type:A100", window="peak"), rule("require node:b", window="overnight")),
        (rule("prefer gpu_type:A100"), rule("forbid gpu_type:A100")),
        (rule("require node:a"), rule("freeze gpu:gpu-1")),
        (rule("forbid gpu:gpu-1"), rule("freeze gpu:gpu-1")),
        (rule("require gpu_type:H100"), rule("require node:a")),
    ],
)
def test_two_places_that_leave_a_device_pass(a, b, big, en):
    assert codes(big, en, a, b) == codes(big, en, b, a) == []


def test_places_that_leave_nothing_together_are_found_in_any_order(big, en):
    rules = [
        rule("forbid gpu_type:A100"),
        rule("forbid gpu:gpu-4"),
        rule("forbid gpu:gpu-5", workload="batch"),
    ]
    rules += [rule("forbid gpu:gpu-6", window="peak"), rule("forbid gpu:gpu-7")]
    for order in permutations(rules):
        assert codes(big, en, *order) == []  # batch may run on gpu-6 off-peak, others at peak on gpu-5
    rules[2] = rule("forbid gpu:gpu-5")
    for order in permutations(rules):
        (finding,) = check_placements(order, big, en)
        assert finding.code == "no_place_left"
        assert all(one.evidence in finding.message for one in rules)


def test_what_is_open_to_a_goal_is_what_places_of_everything_leave(big):
    goal = Objective("ttft", "<=", "x", "p99", 2.0, "s", window="peak")
    rules = [
        rule("forbid gpu:gpu-0"),
        rule("require node:a", window="peak"),
        rule("require node:b", workload="batch"),
    ]
    assert open_to(goal, [*rules, goal], big) == {1, 2, 3}
