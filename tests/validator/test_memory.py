from dataclasses import replace

from intent.models import Config, Objective, Placement, PrecisionRule
from runtime.capabilities import Limits
from tests.rows import rows
from validator.feasibility import check_memory


def gpus(value, op="<=", **said):
    return Objective("gpu_count", op, f"{value} GPUs", value=value, unit="gpus", **said)


BF16 = PrecisionRule("require", "bf16", "use bf16")
ON_L40S = Placement("require", "gpu_type:L40S", "on L40S")


def found(site, en, *goals):
    return [(finding.code, finding.pointer) for finding in check_memory(goals, site, en)]


@rows(
    ("goals", "place"),
    [
        ([gpus(1.0)], "/goals/0/value"),
        ([gpus(1.0, "==")], "/goals/0/value"),
        ([gpus(-1.0)], "/goals/0/value"),
        ([BF16, gpus(1.0)], "/goals/0/value"),
        ([gpus(3.0), BF16, ON_L40S], "/goals/0/value"),
        ([ON_L40S, BF16, Config("tp", "<=", 1, "tp 1"), Config("pp", "==", 2, "pp 2")], "/goals/0/selector"),
        ([Placement("require", "gpu:gpu-0", "on gpu-0")], "/goals/0/selector"),
        ([Placement("forbid", "node:a", "off a"), gpus(1.0, window="peak")], "/goals/1/value"),
    ],
)
def test_too_little_for_the_weights_is_found_in_any_order(goals, place, big, en):
    assert found(big, en, *goals) == [("too_little_memory", place)]
    assert len(found(big, en, *reversed(goals))) == 1


@rows(
    "goals",
    [
        [gpus(2.0)],
        [gpus(1.0, ">=")],
        [gpus(1.0, soft=True)],
        [gpus(1.0, soft=True), BF16, ON_L40S],
        [BF16],
        [BF16, gpus(2.0)],
        [ON_L40S, BF16, gpus(4.0)],
        [gpus(3.0, window="peak"), BF16, replace(ON_L40S, window="overnight")],
        [replace(ON_L40S, workload="batch"), gpus(2.0), BF16],
        [Config("tp", "==", 1, "tp 1")],
        [gpus(1.0, model="nobody")],
    ],
)
def test_enough_for_the_weights_passes(goals, big, en):
    assert found(big, en, *goals) == []


def test_the_finding_says_how_many_devices_would_do(big, en):
    (finding,) = check_memory([gpus(1.0), BF16], big, en)
    assert "141 GB in bf16" in finding.message
    assert "hold 72 GB" in finding.message
    assert finding.suggestion == "at least 2 devices, or a smaller precision"


def test_a_deployment_that_is_too_small_itself_is_not_the_texts_fault(big, en):
    assert found(replace(big, limits=Limits(max_gpus=1)), en, gpus(1.0)) == []
