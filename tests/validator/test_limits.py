import pytest

from intent.models import Config, Objective
from runtime.models import Limits
from validator.limits import check


@pytest.mark.parametrize(
    ("goals", "limits", "words"),
    [
        ([Config("tp", "==", 4, "x")], Limits(allowed_tp=(1, 2)), "allowed are 1, 2"),
        ([Config("pp", ">=", 3, "x")], Limits(allowed_pp=(1, 2)), "allowed are 1, 2"),
        ([Config("tp", "==", 4, "x")], Limits(max_gpus=2), "the limit is 2"),
        ([Config("tp", "==", 2, "x"), Config("pp", "==", 2, "x")], Limits(max_gpus=3), "the limit is 3"),
        ([Objective("gpu_count", "==", "x", value=3.0, unit="gpus")], Limits(max_gpus=2), "the limit is 2"),
    ],
)
def test_a_wish_over_a_limit_is_found(goals, limits, words):
    (finding,) = check(goals, limits)
    assert finding.code == "over_limit"
    assert finding.pointer == f"/goals/{len(goals) - 1}/value"
    assert words in finding.message


@pytest.mark.parametrize(
    ("goal", "limits"),
    [
        (Config("tp", "==", 4, "x"), Limits()),
        (Config("tp", "==", 2, "x"), Limits(allowed_tp=(1, 2), max_gpus=2)),
        (Config("tp", "<=", 8, "x"), Limits(allowed_tp=(1, 2), max_gpus=2)),
        (Config("pp", "==", 4, "x"), Limits(allowed_tp=(1,))),
        (Objective("gpu_count", "<=", "x", value=8.0, unit="gpus"), Limits(max_gpus=2)),
    ],
)
def test_a_wish_within_the_limits_passes(goal, limits):
    assert list(check([goal], limits)) == []
