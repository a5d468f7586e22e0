from dataclasses import replace

from intent.followups.fragments import filled, is_called, same_subject, same_wish
from intent.models import Config, Placement, PrecisionRule, Priority, ReconfigRule, TenantException
from tests.intent.followups.shared import TTFT
from tests.rows import rows


@rows(
    ("one", "other", "same"),
    [
        (TTFT, replace(TTFT, value=1.0, evidence="x", soft=True), True),
        (TTFT, replace(TTFT, stat="p95"), False),
        (TTFT, replace(TTFT, window="always"), False),
        (TTFT, replace(TTFT, tenant="free"), False),
        (TTFT, replace(TTFT, model="m"), False),
        (TTFT, replace(TTFT, op=">="), False),
        (TTFT, replace(TTFT, op="=="), True),
        (replace(TTFT, op="minimize", value=None), replace(TTFT, op="maximize", value=None), True),
        (replace(TTFT, op="minimize", value=None), TTFT, False),
        (PrecisionRule("forbid", "int4", ""), PrecisionRule("allow", "int4", ""), True),
        (PrecisionRule("forbid", "int4", ""), PrecisionRule("forbid", "int8", ""), False),
        (PrecisionRule("require", "bf16", ""), PrecisionRule("min", "fp8", ""), True),
        (PrecisionRule("require", "bf16", ""), PrecisionRule("require", "int8", "", layers="middle"), False),
        (
            Placement("require", "gpu_type:A100", "", "batch"),
            Placement("prefer", "node:a", "", "batch"),
            True,
        ),
        (Placement("forbid", "gpu_type:A100", ""), Placement("forbid", "node:a", ""), False),
        (Priority("latency", "", "cost"), Priority("cost", "", "latency"), True),
        (Priority("latency", "", "cost"), Priority("latency", "", "quality"), False),
        (Priority("latency", ""), Priority("cost", ""), True),
        (Config("tp", "==", 2, ""), Config("tp", "<=", 4, ""), True),
        (Config("tp", "==", 2, ""), Config("pp", "==", 2, ""), False),
        (ReconfigRule("forbid", ""), ReconfigRule("limit", "", 2, "1/h"), True),
        (TenantException("free", "ttft", ""), TenantException("free", "ttft", "", limit=5), True),
        (TenantException("free", "ttft", ""), TenantException("free", "e2e", ""), False),
        (TTFT, Config("tp", "==", 2, ""), False),
    ],
)
def test_goals_about_the_same_take_each_others_place(one, other, same):
    assert same_subject(one, other) is same
    assert same_subject(other, one) is same


def test_slots_are_filled_where_both_goals_have_them():
    assert filled(TTFT, {"stat", "window", "key"}, replace(TTFT, stat="p50", window="always")).stat == "p50"
    assert filled(Config("tp", "==", 2, ""), {"stat", "window"}, TTFT) == Config("tp", "==", 2, "", window="peak")


def test_the_words_of_a_wish_do_not_matter():
    assert same_wish(TTFT, replace(TTFT, evidence="others"))
    assert not same_wish(TTFT, replace(TTFT, value=1.0))


@rows(
    ("metric", "name", "called"),
    [("ttft", "ttft", True), ("ttft", "latency", True), ("cost", "latency", False), ("throughput_req", "throughput", True)],
)  # fmt: skip
def test_a_goal_goes_by_its_metric_and_the_common_name(metric, name, called):
    assert is_called(replace(TTFT, metric=metric), name) is called
