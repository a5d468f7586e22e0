import pytest

from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize


def joints(text, catalogue):
    wanted = {Kind.LIST, Kind.JOIN}
    return [token.kind is Kind.LIST for token in tokenize(text, catalogue) if token.kind in wanted]


@pytest.mark.parametrize(
    "text",
    [
        "TTFT and TPOT under 2s",
        "TTFT, TPOT under 2s",
        "首字延迟和 TPOT 不超过 2 秒",
        "TTFT/TPOT under 2s",
        "p50 and p99 TTFT under 2s",
        "TTFT under 2s at peak and overnight",
        "TTFT under 2s for acme and free",
        "acme and free get TTFT under 2s",
        "no int4 or int8",
        "no int4, int8",
        "int4 and int8 are fine",
        "never int4 nor int8",
        "batch on A100 and L40S",
        "chat and batch on A100",
        "tp and pp 2",
        "禁用 int4 和 int8",
        "gold customers and acme users get TTFT under 2s",
    ],
)
def test_a_joint_between_two_of_a_kind_makes_a_list(text, catalogue):
    assert joints(text, catalogue) == [True]


@pytest.mark.parametrize(
    "text",
    [
        "TTFT under 2s and TPOT under 50 ms",
        "minimise cost and TTFT under 2s",
        "TTFT and minimise cost",
        "TTFT under 2s at peak, overnight TPOT under 50 ms",
        "chat on A100, batch on L40S",
        "TTFT and TTFT under 2s",
        "TTFT under 2s, TPOT",
    ],
)
def test_any_other_joint_parts_them(text, catalogue):
    assert not any(joints(text, catalogue))


def test_either_of_two_wishes_is_no_list(catalogue):
    kinds = [token.kind for token in tokenize("tp=2 or tp=4", catalogue)]
    assert Kind.LIST not in kinds
    assert Kind.LIMITING in kinds


def test_either_of_two_metrics_is_no_list(catalogue):
    assert joints("TTFT or TPOT under 2s", catalogue) == []


def test_three_of_a_kind_are_one_list(catalogue):
    assert joints("TTFT, TPOT and E2E under 2s", catalogue) == [True, True]


def test_a_comma_before_another_window_ends_the_goal_before_it(catalogue):
    assert joints("TTFT under 2s at peak, overnight", catalogue) == [False]
