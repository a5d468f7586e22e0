import pytest

from intent.models import METRIC_LABELS, UNITS, Config, Objective
from validator.bounds import FLOORS_S, check


def codes(goal):
    return [finding.code for finding in check([goal])]


@pytest.mark.parametrize(
    ("goal", "code"),
    [
        (Objective("gpu_util", ">=", "x", value=1.05, unit="ratio"), "over_100_percent"),
        (Objective("availability", ">=", "x", value=1.1, unit="ratio"), "over_100_percent"),
        (Objective("ttft", "<=", "x", value=0.0, unit="s"), "not_positive"),
        (Objective("ttft", "<=", "x", value=-2.0, unit="s"), "not_positive"),
        (Objective("cost", "<=", "x", value=0.0, unit="USD/h"), "not_positive"),
        (Objective("gpu_util", "<=", "x", value=0.0, unit="ratio"), "not_positive"),
        (Objective("error_rate", "<=", "x", value=-0.1, unit="ratio"), "not_positive"),
        (Objective("ttft", "<=", "x", value=0.0005, unit="s"), "below_physical_floor"),
        (Objective("tpot", "<=", "x", value=0.00001, unit="s"), "below_physical_floor"),
        (Config("tp", "==", 0, "x"), "not_positive"),
        (Config("pp", ">=", -1, "x"), "not_positive"),
    ],
)
def test_an_impossible_value_is_found_at_its_place(goal, code):
    (finding,) = check([Config("tp", "==", 1, "y"), goal])
    assert (finding.code, finding.pointer, finding.evidence) == (code, "/goals/1/value", "x")


@pytest.mark.parametrize(
    "goal",
    [
        Objective("gpu_util", ">=", "x", value=1.0, unit="ratio"),
        Objective("error_rate", "<=", "x", value=0.0, unit="ratio"),
        Objective("ttft", "<=", "x", value=0.001, unit="s"),
        Objective("ttft", "minimize", "x"),
        Objective("throughput_tok", ">=", "x", value=1e6, unit="tokens/s"),
        Config("tp", "==", 1, "x"),
    ],
)
def test_a_possible_value_passes(goal):
    assert codes(goal) == []


def test_floors_stand_for_times_only():
    assert all(UNITS[metric] == ("s",) for metric in FLOORS_S)
    assert set(UNITS) == set(METRIC_LABELS)
