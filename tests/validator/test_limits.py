from dataclasses import replace

from intent.models import Config, Objective, PrecisionRule
from runtime.capabilities import Limits
from tests.rows import rows
from validator.feasibility import check_limits


def rule(words):
    kind, value = words.split()
    return PrecisionRule(kind, value, words)


FEW = Limits(allowed_precisions=("bf16", "fp8"))


def found(goals, limits, site, en):
    return list(check_limits(goals, replace(site, limits=limits), en))


@rows(
    ("goals", "limits", "words", "suggestion"),
    [
        ([Config("tp", "==", 4, "x")], Limits(allowed_tp=(1, 2)), "allowed are 1, 2", "TP can be 1, 2"),
        ([Config("pp", ">=", 3, "x")], Limits(allowed_pp=(1, 2)), "allowed are 1, 2", "PP can be 1, 2"),
        ([rule("require int4")], FEW, "allowed are bf16, fp8", "bf16, fp8 can be used"),
        ([rule("allow int4")], FEW, "allowed are bf16, fp8", "bf16, fp8 can be used"),
        ([rule("require full")], Limits(allowed_precisions=("fp8",)), "allowed are fp8", "fp8 can be used"),
        (
            [rule("forbid full")],
            Limits(allowed_precisions=("bf16", "fp16")),
            "allowed are bf16",
            "bf16, fp16 can be used",
        ),
        ([rule("min full")], Limits(allowed_precisions=("int8",)), "allowed are int8", "int8 can be used"),
    ],
)
def test_a_wish_over_a_limit_is_found(goals, limits, words, suggestion, site, en):
    (finding,) = found(goals, limits, site, en)
    assert finding.pointer == f"/goals/{len(goals) - 1}/value"
    assert words in finding.message
    assert finding.suggestion == suggestion


@rows(
    ("goal", "limits"),
    [
        (Config("tp", "==", 4, "x"), Limits()),
        (Config("tp", "==", 2, "x"), Limits(allowed_tp=(1, 2), max_gpus=2)),
        (Config("tp", "<=", 8, "x"), Limits(allowed_tp=(1, 2), max_gpus=2)),
        (Config("tp", ">=", 2, "x"), Limits(allowed_tp=(1, 4))),
        (Config("replicas", "==", 1, "x"), Limits(allowed_tp=(1,), allowed_pp=(1,), max_gpus=1)),
        (Objective("gpu_count", "<=", "x", value=9.0, unit="gpus"), Limits(max_gpus=2)),
        (rule("require full"), FEW),
        (rule("forbid int4"), FEW),
        (rule("min fp8"), FEW),
        (rule("allow fp8"), FEW),
        (rule("require int4"), Limits()),
    ],
)
def test_a_wish_within_the_limits_passes(goal, limits, site, en):
    assert found([goal], limits, site, en) == []


@rows("layers", ["8-8", "6-9", "first 9", "last 90", "5-2"])
def test_layers_that_the_model_does_not_have_are_found(layers, site, en):
    goal = PrecisionRule("require", "bf16", "some layers", model="counting", layers=layers)
    (finding,) = found([goal], Limits(), site, en)
    assert (finding.code, finding.pointer) == ("no_such_layers", "/goals/0/layers")
    assert finding.message.endswith("it has 8, numbered from 0 to 7")


@rows("layers", ["7-7", "0-0", "first 8", "last 8", "middle"])
def test_layers_that_it_has_pass(layers, site, en):
    assert found([PrecisionRule("require", "bf16", "x", layers=layers)], Limits(), site, en) == []
