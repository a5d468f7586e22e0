import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from intent.models import (
    MAX_CHARACTERS,
    DatedWindow,
    Finding,
    Intent,
    Objective,
    Outcome,
    RecurringWindow,
    TranslatorInfo,
)
from runtime.models import Topology
from runtime.sync.swap import is_swap
from selector.profiles import fit_cpu
from service.access.consent import refuse_unseen
from service.deployment import engines
from service.documents.errors import RefusedError
from service.documents.plans import When
from service.documents.problems import Code
from service.planning import lifecycle
from tests.rows import rows
from tests.runtime.scripted import topology
from tests.service.examples import plan, with_model
from tests.service.scripted import DEPLOYMENT, SAMPLES, elsewhen, read

pytestmark = pytest.mark.slow

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
PROFILES = {"CPU": fit_cpu(SAMPLES)}
START = Topology(tuple(replace(stage, kind="CPU") for stage in topology(1, 1).stages))


@pytest.fixture
def deployment(tmp_path):
    text = DEPLOYMENT.replace("{peak: always}", "{peak: {start: '09:00', end: '18:00'}}")
    return read(tmp_path, text)


def made(deployment, text, *, hour=12, **when):
    now = MONDAY + timedelta(hours=hour)
    intent = lifecycle.translate(text, deployment, None, now)
    situation = lifecycle.Situation(deployment.model().start, generation=4)
    return lifecycle.plan(
        intent, deployment, deployment.model(), situation, PROFILES, When(now=now.isoformat(), **when)
    )


@rows(("hour", "in_force"), [(12, "peak"), (3, "always")])
def test_a_goal_is_planned_for_its_window_or_for_the_one_in_force(deployment, hour, in_force):
    assert made(deployment, "keep P99 TTFT < 2s at peak", hour=hour).window == "peak"
    assert made(deployment, "run it with tp=2", hour=hour).window == in_force


def test_goals_of_another_window_do_not_bind(deployment):
    plan = made(deployment, "run it with tp=2 at peak and run it with tp=4 overnight", hour=12)

    assert plan.workload == deployment.model().workload_in("peak")
    assert (plan.window, plan.generation) == ("peak", 4)
    assert plan.target.shape == "TP2"
    assert [(one.goal, one.reason) for one in plan.left_out] == [("tp == 4", "holds at overnight, not now")]


@rows(
    ("when", "shape", "reason"),
    [
        ({}, "PP2", "holds from 14:00 to 15:00, not now"),
        ({"at": "2026-01-06T11:00"}, "PP2", "holds from 14:00 to 15:00, not at 2026-01-06 11:00"),
        ({"at": "2026-01-06T14:30"}, "TP2", None),
        ({"window": "always"}, "PP2", "holds from 14:00 to 15:00; this plan is for always"),
    ],
)
def test_goals_of_other_hours_are_left_out_with_the_reason_and_planned_for_at_their_time(
    deployment, when, shape, reason
):
    plan = made(deployment, "run it with tp=2 from 2pm to 3pm", hour=11, **when)

    assert plan.target.shape == shape
    assert [one.reason for one in plan.left_out] == ([reason] if reason else [])


def test_two_windows_in_force_at_once_both_bind(deployment):
    both = {"business_hours": RecurringWindow(("mon",), "08:00", "17:00", "UTC"), **deployment.windows}
    plan = made(replace(deployment, windows=both), "run it with tp=2 at peak and with pp=1 in business hours")

    assert plan.left_out == ()
    assert {one.goal for one in plan.margins} >= {"tp == 2", "pp == 1"}


def test_a_time_from_now_is_over_at_a_later_moment(deployment):
    text = "run it with tp=2 for the next 90 minutes"
    assert made(deployment, text, at="2026-01-05T13:00").target.shape == "TP2"
    assert made(deployment, text, at="2026-01-05T14:00").target.shape == "PP2"


def test_each_goal_is_judged_under_the_load_of_its_own_window(deployment):
    usual = deployment.model().workload_in("always")
    loaded = with_model(deployment, workload={"always": usual, "peak": replace(usual, rate_rps=1e6)})
    with pytest.raises(RefusedError) as refused:
        made(loaded, "keep P99 TTFT < 2s at peak")
    assert refused.value.code is Code.INFEASIBLE
    assert made(loaded, "keep P99 TTFT < 2s overnight").target.shape == "PP2"


@rows(
    ("when", "words"),
    [({"window": "lunch"}, "'lunch' is not known"), ({"at": "soon"}, "at: 'soon' is no moment")],
)
def test_a_time_that_is_none_is_refused(deployment, when, words):
    with pytest.raises(RefusedError, match=words) as refused:
        made(deployment, "run it with tp=2", **when)
    assert refused.value.code is Code.INVALID_REQUEST


def document(**changes):
    return plan(**{"now": START, **changes})


@rows(
    ("plan", "applied_by", "code"),
    [
        (document(), "op-1", Code.ALREADY_APPLIED),
        (document(generation=3), None, Code.STALE_PLAN),
        (document(now=topology(2)), None, Code.STALE_PLAN),
        (document(target=START), None, Code.NO_CHANGE),
    ],
)
def test_a_plan_is_refused_before_anything_is_touched(deployment, plan, applied_by, code):
    situation = lifecycle.Situation(deployment.model().start, generation=4)

    with pytest.raises(RefusedError) as refused:
        lifecycle.refuse_stale(plan, applied_by, situation)
    assert refused.value.code is code


def test_a_fresh_plan_may_be_applied(deployment):
    lifecycle.refuse_stale(document(), None, lifecycle.Situation(deployment.model().start, generation=4))


def finding(code, evidence):
    return Finding(code, "/text", f"{code}.", evidence)


@rows(
    ("acknowledged", "missing"),
    [((), ["a", "b"]), (["c"], ["a", "b"]), (["b"], ["a"]), (["a", "c"], ["b"])],
)
def test_each_finding_that_nobody_has_seen_is_named(acknowledged, missing):
    plan = document(to_acknowledge=(finding("b", "do it"), finding("a", "now")))

    with pytest.raises(RefusedError, match="apply it with acknowledge") as refused:
        refuse_unseen(plan.to_acknowledge, acknowledged, "the plan, then apply")
    assert refused.value.code is Code.FINDING_NOT_ACKNOWLEDGED
    assert json.dumps(missing) in str(refused.value)
    assert sorted(detail.code for detail in refused.value.errors) == missing
    assert sorted(one.code for one in refused.value.problem.findings) == missing


def test_a_plan_whose_findings_were_all_seen_is_not_refused():
    refuse_unseen((finding("a", "now"),), ["a", "b"], "")
    refuse_unseen((), [], "")


def test_only_orders_have_to_be_acknowledged(deployment):
    plain = lifecycle.translate("keep P99 TTFT < 2s for gold customers", deployment, None, MONDAY)
    orders = lifecycle.translate("run it with tp=2 and skip all checks", deployment, None, MONDAY)

    assert plain.findings
    assert lifecycle.to_acknowledge(plain) == ()
    assert [one.evidence for one in lifecycle.to_acknowledge(orders)] == ["skip all checks"]


def checked(deployment, *goals, now=MONDAY):
    return lifecycle.check(Intent("x", "en", goals, TranslatorInfo("rules")), deployment, now)


def test_an_intent_is_checked_against_what_the_deployment_says(deployment):
    high = Objective("gpu_util", ">=", "high", value=0.8, unit="ratio", window="peak")
    low = Objective("gpu_util", "<=", "low", value=0.7, unit="ratio", window=evening("17:00"))
    assert checked(deployment, high, low).outcome is Outcome.CONFLICT
    assert checked(deployment, high, replace(low, window=evening("18:00"))).outcome is Outcome.OK
    assert checked(deployment, replace(high, tenant="nobody")).findings[0].code == "unknown_tenant"


def test_an_intent_is_checked_at_its_moment(deployment):
    sunday = Objective("ttft", "<=", "x", "p99", 2.0, "s", DatedWindow("2026-01-04", "09:00", "17:00", "UTC"))
    assert checked(deployment, sunday).findings[0].code == "window_over"
    assert checked(deployment, sunday, now=MONDAY - timedelta(days=2)).outcome is Outcome.OK


def evening(start):
    return RecurringWindow(("mon",), start, "20:00", "UTC")


def test_a_promise_for_a_window_that_does_not_hold_is_refused_unless_it_is_meant(tmp_path):
    windows = elsewhen().removesuffix("}") + ", beside: always}"
    shut = read(tmp_path, DEPLOYMENT.replace("{peak: always}", windows))
    with pytest.raises(RefusedError, match=r"is for peak, and at .* does not hold.*--now") as refused:
        lifecycle.refuse_untimely(document(window="peak"), shut, ())
    assert refused.value.code is Code.OUTSIDE_WINDOW
    lifecycle.refuse_untimely(document(window="peak"), shut, ("outside_window",))
    lifecycle.refuse_untimely(document(window="peak", kind="act"), shut, ())
    lifecycle.refuse_untimely(document(window="beside"), shut, ())
    lifecycle.refuse_untimely(document(window="always"), shut, ())


@rows(
    ("text", "kind"),
    [
        ("run it with tp=2", "act"),
        ("keep P99 TTFT < 2s at peak", "promise"),
        ("run it with tp=2 and keep P99 TTFT < 2s", "promise"),
        ("as cheap as possible", "promise"),
    ],
)
def test_what_names_a_configuration_alone_is_an_act(deployment, text, kind):
    assert lifecycle.kind_of(lifecycle.translate(text, deployment, None, MONDAY)) == kind


def test_of_two_windows_in_force_the_one_that_is_spoken_of_is_planned_for(deployment):
    both = {"business_hours": RecurringWindow(("mon",), "08:00", "17:00", "UTC"), **deployment.windows}
    plan = made(replace(deployment, windows=both), "run it with tp=2 at peak, and pp=1 from 11am to 1pm")

    assert plan.window == "peak"
    assert plan.left_out == (), "those hours hold now, too"


def test_orders_are_not_looked_for_in_a_text_that_no_intent_may_have(tmp_path, monkeypatch):
    """It takes a third of a second for one that a request has room for."""
    looked = []
    monkeypatch.setattr(lifecycle, "flagged", lambda intent: looked.append(intent) or intent)
    deployment = read(tmp_path, DEPLOYMENT)
    long = Intent("x" * (MAX_CHARACTERS + 1), "en", (), TranslatorInfo("rules"))
    checked = lifecycle.check(long, deployment, MONDAY)
    assert looked == []
    with pytest.raises(RefusedError, match="/text"):
        lifecycle.refuse_outside_schema(checked)


PRODUCTS_S = {"bf16": [(1, 2.4e-10), (4, 2.6e-10), (64, 7.9e-10)], "int8": [(1, 1.4e-10), (4, 2.1e-10), (64, 1.4e-9)]}


def test_a_format_that_is_allowed_at_peak_is_taken_there_and_left_at_night_by_swaps(tmp_path):
    """At peak there is KV of more streams than the engine keeps in full formats."""
    text = DEPLOYMENT.replace("start: pp2}", "start: tp1, engine: torch}").replace("fp32", "bf16")
    text = text.replace("[bf16]", "[bf16, int8]").replace("{peak: always}", "{peak: {start: '09:00', end: '18:00'}}")
    found = read(tmp_path, text)
    usual = found.model().workload_in("always")
    deployment = with_model(found, workload={"always": replace(usual, concurrency=4), "peak": usual})
    model = deployment.model()
    profile = fit_cpu(replace(SAMPLES, base="bf16", gemm_flops_s=2e11, memory_bytes_s=2.5e10, products_s=PRODUCTS_S))
    engine = replace(engines.capabilities(model), kv_tokens=7200)

    def planned(now_runs, hour, text="bf16 at night, int8 allowed at peak"):
        now = MONDAY + timedelta(hours=hour)
        situation = lifecycle.Situation(now_runs, generation=4, capabilities=engine)
        intent = lifecycle.translate(text, deployment, None, now)
        return lifecycle.plan(intent, deployment, model, situation, {"CPU": profile}, When(now=now.isoformat()))

    peak = planned(model.start, hour=12)
    assert str(peak.target) == "CPU[0]:0-8@int8"
    night = planned(peak.target, hour=23)
    assert night.target == model.start
    for made_then in (peak, night):
        assert is_swap(made_then.now, made_then.target)
        assert (made_then.switch.strategy, made_then.switch.prepare_most_s < 0.5) == ("shadow", True)
        assert made_then.bytes_to_move["kv_per_token"] == 0
    with pytest.raises(RefusedError):
        planned(model.start, hour=12, text="bf16 at night, bf16 at peak, run it with one device")
