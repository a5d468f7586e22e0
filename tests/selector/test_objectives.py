"""What goals ask of a prediction."""

from dataclasses import replace

import pytest

from intent.models import Config, Objective, Placement, PrecisionRule, Priority, TenantException
from runtime.capabilities import Limits
from runtime.models import uniform
from runtime.notation import parse_topology
from selector.explain import goal_words, left_out
from selector.models import Candidate, Prediction, SearchInput, Workload
from selector.objectives import (
    WORKLOAD_RATE,
    margin_of,
    places,
    precisions_for,
    sort_goals,
    thresholds,
    value_of,
)
from selector.pipelines.optimum import Threshold
from tests.rows import rows

WORKLOAD = Workload(rate_rps=2.0, input_tokens=100, output_tokens=100, concurrency=8)
LATENCIES = {"mean": 0.5, "p99": 2.0}, {"mean": 0.02, "p99": 0.03}, {"mean": 2.48, "p99": 4.97}
PREDICTION = Prediction(*LATENCIES, 400.0, 0.5, 3.6, 8, 0.0, 0.1, "calibrated", 4)


@pytest.fixture
def candidate(laptop) -> Candidate:
    return Candidate(uniform(laptop, "CPU", 2, 2, 8, "fp32"), PREDICTION, "")


@rows(
    ("metric", "stat", "unit", "reading"),
    [
        ("ttft", "mean", "s", 0.5),
        ("ttft", None, "s", 0.5),
        ("ttft", "p99", "s", 2.0),
        ("tpot", "mean", "s", 0.02),
        ("tpot", "p99", "s", 0.03),
        ("e2e", "mean", "s", 2.48),
        ("e2e", "p99", "s", 4.97),
        ("throughput_tok", None, "tokens/s", 400.0),
        ("throughput_req", None, "requests/s", 4.0),
        ("gpu_util", None, "ratio", 0.5),
        ("gpu_count", None, "gpus", 4.0),
        ("cost", None, "USD/h", 3.6),
        ("cost", None, "USD/day", 86.4),
        ("cost", None, "USD/month", 2628.0),
        ("cost", None, "USD/Mtok", 3.6 / (200 * 3600 / 1e6)),
    ],
)
def test_each_metric_reads_its_own_figure_in_its_unit(candidate, metric, stat, unit, reading):
    goal = Objective(metric, "<=", "x", stat=stat, value=1, unit=unit)
    assert value_of(goal, candidate, WORKLOAD) == pytest.approx(reading)


@rows(("key", "reading"), [("tp", 2), ("pp", 2), ("replicas", 1)])
def test_config_goals_read_the_topology(candidate, key, reading):
    goal = Config(key, "==", reading, "x")
    assert value_of(goal, candidate, WORKLOAD) == reading


@rows(
    ("goal", "expected"),
    [
        (Objective("ttft", "<=", "x", stat="p99", value=2, unit="s"), [Threshold("ttft", 2, "p99")]),
        (Objective("tpot", "minimize", "x"), [Threshold("tpot", 0.0, "mean")]),
        (Objective("throughput_tok", ">=", "x", value=500, unit="tokens/s"), [Threshold("rate", 5.0)]),
        (Objective("gpu_util", "<=", "x", value=0.5, unit="ratio"), [Threshold("rate", 4.0)]),
        (Objective("gpu_util", "maximize", "x"), [Threshold("devices", 0.0)]),
        (
            Objective("gpu_count", "==", "x", value=4, unit="gpus"),
            [Threshold("devices", 4), Threshold("least_devices", 4)],
        ),
        (Objective("cost", "<=", "x", value=48, unit="USD/day"), [Threshold("usd_per_hour", 2.0)]),
        (Objective("cost", "<=", "x", value=5, unit="USD/Mtok"), [Threshold("usd_per_hour", 3.6)]),
        (Objective("cost", ">=", "x", value=5, unit="USD/h"), []),
        (Config("tp", "==", 2, "x"), []),
    ],
)
def test_the_search_takes_goals_in_its_own_units(goal, expected):
    found = thresholds([goal], WORKLOAD)
    assert [(one.metric, one.stat) for one in found] == [(one.metric, one.stat) for one in expected]
    assert [one.value for one in found] == pytest.approx([one.value for one in expected])


def test_a_goal_for_tp_reads_the_stage_that_is_farthest_from_it(mixed):
    topology = parse_topology("A100x4:0-40@bf16 > L40Sx2:40-80@bf16", mixed, 80, "bf16")
    readings = [
        value_of(Config("tp", op, 4, "x"), Candidate(topology, PREDICTION, ""), WORKLOAD) for op in ("<=", ">=", "==")
    ]
    assert readings == [4, 2, 2]


@rows(
    ("op", "value", "held", "margin"),
    [
        ("<=", 1.0, True, 0.5),
        ("<=", 0.5, True, 0.0),
        ("<=", 0.25, False, -1.0),
        (">=", 0.25, True, 1.0),
        (">=", 1.0, False, -0.5),
        ("==", 0.5, True, 0.0),
        ("==", 0.4, False, -0.25),
        ("<=", 0.0, False, -0.5),
    ],
)
def test_the_margin_is_relative_to_the_bound_and_its_sign_says_whether_it_holds(candidate, op, value, held, margin):
    goal = Objective("ttft", op, "x", stat="mean", value=value, unit="s")
    found = margin_of(goal, candidate, WORKLOAD, "words")
    assert found.margin == pytest.approx(margin)
    assert (found.margin >= 0) is held
    assert not found.is_knife_edge


@rows(
    ("op", "value", "headroom", "worst", "held", "knife_edge"),
    [
        ("<=", 0.56, 1.0, 0.55, True, False),
        ("<=", 0.52, 1.0, 0.55, False, True),
        ("<=", 0.52, 0.25, 0.5125, True, False),
        ("<=", 0.52, 0.0, 0.5, True, False),
        ("<=", 0.45, 1.0, 0.55, False, False),
        (">=", 0.44, 1.0, 0.45, True, False),
        (">=", 0.48, 1.0, 0.45, False, True),
    ],
)
def test_a_bound_holds_where_the_upper_end_of_the_band_is_within_it(
    candidate, op, value, headroom, worst, held, knife_edge
):
    goal = Objective("ttft", op, "x", stat="mean", value=value, unit="s")
    found = margin_of(goal, candidate, WORKLOAD, headroom=headroom)
    assert (found.predicted, found.worst) == (0.5, pytest.approx(worst))
    assert (found.margin >= 0, found.is_knife_edge) == (held, knife_edge)


@rows("goal", [Objective("gpu_count", "<=", "x", value=4), Objective("cost", "<=", "x", value=3.6, unit="USD/h")])
def test_what_is_counted_or_set_has_no_band(candidate, goal):
    assert margin_of(goal, candidate, WORKLOAD, headroom=1.0).margin == 0


def test_a_bound_that_is_used_up_is_held_to_the_last_digit(candidate):
    goal = Objective("quality_loss", "<=", "x", value=0.3, unit="ratio")
    used_up = replace(candidate, prediction=replace(PREDICTION, quality_loss=0.1 + 0.2))
    assert used_up.prediction.quality_loss > 0.3
    assert margin_of(goal, used_up, WORKLOAD).margin == 0
    more = replace(used_up, prediction=replace(PREDICTION, quality_loss=0.3001))
    assert margin_of(goal, more, WORKLOAD).margin < 0


@pytest.fixture
def problem(laptop, counting) -> SearchInput:
    return SearchInput(laptop, counting, WORKLOAD, None)


def test_goals_are_sorted_by_what_the_search_does_with_them(problem):
    hard = Objective("ttft", "<=", "a", value=1, unit="s")
    soft = Objective("tpot", "<=", "b", value=1, unit="s", soft=True)
    wish = Objective("cost", "minimize", "c")
    shape = Config("tp", "==", 2, "d")
    rule = PrecisionRule("require", "bf16", "e")
    priority, tenant = Priority("latency", "f"), Priority("tenant:acme", "f")
    unknown = Objective("availability", ">=", "g", value=0.99, unit="ratio")
    other = Objective("ttft", "<=", "h", value=1, unit="s", model="another")
    demands = sort_goals([hard, soft, wish, shape, rule, priority, tenant, unknown, other], problem)
    assert demands.bounds[:2] == (hard, shape)
    assert demands.bounds[2].evidence == WORKLOAD_RATE
    assert demands.wishes[0] == soft
    assert demands.wishes[1:] == (), "a TPOT is said"
    assert demands.said == (*demands.bounds, soft)
    assert demands.optimised[0] == replace(wish, metric="gpu_count", unit="gpus"), "nothing has a price"
    assert demands.rules == (rule,)
    assert [goal.metric for goal in demands.optimised][-1:] == ["ttft"]
    assert demands.not_evaluated == (tenant, unknown, other)


def test_a_bound_on_quality_counts_only_where_the_deployment_says_what_precisions_cost(problem):
    goal = Objective("quality_loss", "<=", "x", value=0.01, unit="ratio")
    assert sort_goals([goal], problem).not_evaluated == (goal,)
    stated = replace(problem, limits=Limits(quality_loss={"int8": 0.005}))
    assert sort_goals([goal], stated).most_quality_loss == 0.01
    assert sort_goals([], stated).most_quality_loss is None


def test_an_exception_asks_for_nothing_where_its_bound_is_held_for_everyone(problem):
    bound = Objective("ttft", "<=", "x", stat="p99", value=1, unit="s")
    exception = TenantException("free", "ttft", "but not for free")
    assert sort_goals([bound, exception], problem).not_evaluated == ()
    assert sort_goals([exception], problem).not_evaluated == (exception,)


def test_keeping_up_is_only_wished_when_no_latency_is_bound(problem):
    demands = sort_goals([Config("tp", "==", 2, "x")], problem)
    assert [goal.evidence for goal in demands.wishes] == [WORKLOAD_RATE]
    assert len(demands.bounds) == 1


@rows(
    ("goals", "limits", "bounds", "wishes"),
    [
        ([("ttft", "<=", 1.0)], Limits(), [("tpot", 0.2), ("gpu_util", 0.85)], []),
        ([("ttft", "<=", 1.0)], Limits(usual_tpot_s=None, max_utilisation=0.7), [("gpu_util", 0.7)], []),
        ([("ttft", "<=", 1.0), ("tpot", "<=", 0.1)], Limits(), [("gpu_util", 0.85)], []),
        ([("tpot", "<=", 0.1)], Limits(usual_tpot_s=0.05), [("gpu_util", 0.85)], []),
        ([("ttft", "<=", 1.0), ("gpu_util", "<=", 0.95)], Limits(), [("tpot", 0.2)], []),
        ([("gpu_util", ">=", 0.7)], Limits(), [("gpu_util", 0.85)], []),
        ([("gpu_util", ">=", 0.9)], Limits(), [], []),
        ([("cost", "minimize", None)], Limits(), [("gpu_util", 0.85)], []),
        ([("gpu_count", "<=", 4)], Limits(), [("gpu_util", 0.85)], []),
    ],
)
def test_what_nobody_said_is_headroom_and_that_answers_are_read_as_they_come(problem, goals, limits, bounds, wishes):
    said = [Objective(metric, op, "x", value=value) for metric, op, value in goals]
    demands = sort_goals(said, replace(problem, limits=limits))
    unsaid = [goal for goal in demands.bounds if goal not in said]
    assert [(goal.metric, goal.value) for goal in unsaid] == bounds
    assert [(goal.metric, goal.value) for goal in demands.wishes] == wishes


def test_a_bound_that_nobody_said_is_as_hard_as_the_one_beside_it(problem):
    demands = sort_goals([Objective("ttft", "<=", "x", value=1.0, soft=True)], problem)
    assert demands.bounds == ()
    assert [goal.metric for goal in demands.wishes] == ["ttft", "tpot", "gpu_util"]


AVAILABLE = ("bf16", "fp16", "fp8", "int8", "int4")


@rows(
    ("rules", "running", "searched"),
    [
        ([], {"fp8"}, ("fp8",)),
        ([], set(), ("bf16",)),
        ([], {"fp32"}, ("bf16",)),
        ([("allow", "int8")], {"bf16"}, ("bf16", "int8")),
        ([("require", "fp8")], {"bf16"}, ("fp8",)),
        ([("require", "full")], {"int4"}, ("bf16", "fp16")),
        ([("min", "int8")], {"int4"}, ("bf16", "fp16", "fp8", "int8")),
        ([("min", "full")], {"int4"}, ("bf16", "fp16")),
        ([("forbid", "int4")], {"bf16"}, ("bf16",)),
        ([("forbid", "int4")], {"int4"}, ("bf16", "fp16", "fp8", "int8")),
        ([("allow", "int8"), ("forbid", "int8")], {"bf16"}, ("bf16",)),
        ([("forbid", "full")], {"bf16"}, ("fp8", "int8", "int4")),
        ([("require", "int8"), ("forbid", "int8")], {"bf16"}, ()),
        ([("require", "fp32")], {"bf16"}, ()),
    ],
)
def test_the_running_precision_is_kept_unless_a_rule_says_otherwise(rules, running, searched):
    said = [PrecisionRule(rule, value, "x") for rule, value in rules]
    assert precisions_for(said, running, AVAILABLE) == searched


@rows(
    ("rules", "running", "searched"),
    [
        ([("min", "bf16", "gold"), ("allow", "int8", "free")], {"bf16"}, ("bf16",)),
        ([("allow", "int8", "free"), ("min", "bf16", "gold")], {"bf16"}, ("bf16",)),
        ([("allow", "int8", "free")], {"bf16"}, ("bf16",)),
        ([("min", "int8", "gold")], {"bf16"}, ("bf16",)),
        ([("min", "int8", "gold"), ("allow", "fp8", None)], {"bf16"}, ("bf16", "fp8")),
        ([("min", "bf16", "gold"), ("allow", "fp8", None)], {"bf16"}, ("bf16",)),
        ([("allow", "fp8", None), ("forbid", "fp8", "gold")], {"bf16"}, ("bf16",)),
        ([("forbid", "int4", "gold")], {"int4"}, ("bf16", "fp16", "fp8", "int8")),
        ([("require", "bf16", "gold")], {"int8"}, ("bf16",)),
        ([("require", "bf16", "gold"), ("require", "int8", "free")], {"bf16"}, ()),
        ([("require", "fp8", None), ("min", "int8", "gold")], {"bf16"}, ("fp8",)),
    ],
)
def test_what_is_said_for_one_tenant_narrows_the_formats_of_all_and_opens_none(rules, running, searched):
    said = [PrecisionRule(rule, value, "x", tenant=tenant) for rule, value, tenant in rules]
    assert precisions_for(said, running, AVAILABLE) == searched


def test_a_cap_on_what_a_tenant_sends_is_no_bound_of_a_topology(problem):
    cap = Objective("throughput_req", "<=", "limit acme to 2 rps", value=2.0, unit="requests/s", tenant="acme")
    assert sort_goals([cap], problem).not_evaluated == (cap,)
    assert "caps what is sent" in left_out(cap, problem).reason


def test_leave_given_to_one_tenant_is_left_out_with_the_reason(problem):
    leave = PrecisionRule("allow", "int8", "free may use int8", tenant="free")
    rule = PrecisionRule("min", "bf16", "gold at least bf16", tenant="gold")
    demands = sort_goals([leave, rule], problem)
    assert (demands.rules, demands.not_evaluated) == ((rule,), (leave,))
    assert "for whom no replica of its own is worth it" in left_out(leave, problem).reason
    assert goal_words(rule) == "'gold at least bf16' (said for gold: whatever serves gold keeps it)"


@rows(
    ("rule", "workload", "left"),
    [
        ("forbid", "tenant:gold", (0, 2, 3)),
        ("require", "tenant:gold", (1,)),
        ("forbid", "embeddings", (0, 1, 2, 3)),
        ("prefer", "tenant:gold", (0, 1, 2, 3)),
    ],
)
def test_a_place_that_is_kept_from_one_tenant_is_kept_from_the_one_pipeline(problem, rule, workload, left):
    goal = Placement(rule, "gpu:gpu-1", "x", workload=workload)
    found = places([goal], problem)
    assert tuple(gpu.index for gpu in found.allowed.gpus) == left
    assert found.preferred is None
