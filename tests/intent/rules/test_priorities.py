import pytest

from intent.rules import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency first", "latency > all"),
        ("prioritise latency", "latency > all"),
        ("TTFT matters most", "latency > all"),
        ("acme first", "tenant:acme > all"),
        ("latency over cost", "latency > cost"),
        ("latency before cost", "latency > cost"),
        ("latency rather than cost", "latency > cost"),
        ("latency instead of cost", "latency > cost"),
        ("latency > cost", "latency > cost"),
        ("cost < latency", "latency > cost"),
        ("cost is less important than latency", "latency > cost"),
        ("sacrifice throughput for latency", "latency > throughput"),
        ("trade cost for latency", "latency > cost"),
        ("quality over speed", "quality > latency"),
        ("speed over cost", "latency > cost"),
        ("quality over cheap", "quality > cost"),
        ("quality loss over cost", "quality > cost"),
        ("for paid: precedence over free", "tenant:paid > tenant:free"),
        ("paid over free", "tenant:paid > tenant:free"),
        ("paid users before free users", "tenant:paid > tenant:free"),
        ("prioritise latency over cost at peak", "latency > cost peak"),
        ("at peak, latency first", "latency > all peak"),
        ("latency first, then throughput", "latency > throughput"),
        ("成本优先", "cost > all"),
        ("质量第一", "quality > all"),
        ("高峰期延迟优先", "latency > all peak"),
        ("延迟优先于成本", "latency > cost"),
        ("成本不如延迟重要", "latency > cost"),
        ("宁可牺牲吞吐也要保证延迟", "latency > throughput"),
        ("付费用户优先于免费用户", "tenant:paid > tenant:free"),
    ],
)
def test_one_side_goes_before_the_other(text, expected, goals):
    assert goals(text) == [expected]


@pytest.mark.parametrize(
    "text",
    [
        "latency > throughput > cost",
        "latency, then throughput, then cost",
        "latency first, then throughput, then cost",
        "延迟 > 吞吐 > 成本",
        "延迟优先，其次吞吐，最后成本",
    ],
)
def test_an_order_of_three_is_two_goals_neighbour_by_neighbour(text, goals):
    assert goals(text) == ["latency > throughput", "throughput > cost"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latency over cost, TTFT < 2s", ["latency > cost", "ttft p95 <= 2 s"]),
        ("TTFT < 2s, cost first", ["ttft p95 <= 2 s", "cost > all"]),
        ("latency first; cost < $4/h", ["latency > all", "cost <= 4 USD/h"]),
    ],
)
def test_a_priority_stands_beside_bounds(text, expected, goals):
    assert goals(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "don't prioritise latency",
        "latency and cost first",
        "sacrifice latency, throughput and cost",
        "延迟和成本优先",
    ],
)
def test_an_order_that_could_be_two_is_asked_about(text, asked):
    assert asked(text)[0] == "priority_unclear"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("gold customers first", "unknown_tenant"),
        ("cheap over fast", "wish_without_metric"),
        ("latency first unless cost explodes", "words_not_understood"),
        ("latency over cost and quality", "words_not_understood"),
    ],
)
def test_a_side_or_word_that_is_not_known_is_asked_about(text, code, asked):
    assert asked(text)[0] == code


@pytest.mark.parametrize("text", ["TTFT over 2s", "throughput > 500 tok/s", "prioritise", "first"])
def test_a_number_or_no_side_makes_no_priority(text, goals):
    assert not [goal for goal in goals(text) if " > " in goal]


def test_the_evidence_is_the_order_alone(catalogue):
    (goal,) = read("please put latency over cost at peak, thanks", catalogue).goals
    assert goal.evidence == "latency over cost at peak"


def test_a_longer_order_replaces_the_shorter_one_with_its_assumptions(catalogue):
    draft = read("latency first, then cost, then quality", catalogue)
    assert [(goal.higher, goal.lower) for goal in draft.goals] == [("latency", "cost"), ("cost", "quality")]
    assert [one.pointer for one in draft.assumptions] == ["/goals/0/window", "/goals/1/window"]
