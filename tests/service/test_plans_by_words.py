"""What people say, and what a plan for the reference cluster does with it."""

from dataclasses import replace
from pathlib import Path

import pytest

from intent.models import Outcome
from selector import profiles
from selector.models import Plan
from service.deployment import engines
from service.deployment.file import Deployment, load
from service.documents.plans import When
from service.planning import lifecycle
from tests.rows import rows
from tests.service.examples import with_model

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "a100-l40s.yaml"
MONDAY = "2026-01-05T11:00"
PROFILES = {kind: profiles.load(kind) for kind in ("A100", "L40S")}


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return load(EXAMPLE)


PLANS = dict[tuple[int, str], Plan]()
"""What was planned already: many compare with the same plans."""


def planned(deployment: Deployment, text: str) -> Plan:
    if (asked := (id(deployment), text)) not in PLANS:
        PLANS[asked] = plan_for(deployment, text)
    return PLANS[asked]


def plan_for(deployment: Deployment, text: str) -> Plan:
    now = lifecycle.clock(MONDAY, deployment)
    intent = lifecycle.translate(text, deployment, None, now)
    assert intent.outcome is Outcome.OK, intent.readback
    model = deployment.model()
    situation = lifecycle.Situation(model.start, 0, engines.capabilities(model))
    return lifecycle.plan(intent, deployment, model, situation, PROFILES, When(now=MONDAY))


@rows(
    "text",
    [
        "don't use int4", "not more than $9 an hour overnight", "at most 1 reconfiguration per day", "P99 TTFT < 5s off-peak",
        "99.9% availability", "error rate below 1%",
    ],
)  # fmt: skip
def test_what_holds_already_changes_nothing(deployment: Deployment, text: str) -> None:
    plan = planned(deployment, text)
    assert plan.target == plan.now


@rows(
    ("text", "reasons"),
    [
        ("no A100 between 2pm and 3pm", ["holds from 14:00 to 15:00, not now"]),
        ("GPU count at most 2 from 2pm to 3pm", ["holds from 14:00 to 15:00, not now"]),
        ("at peak P99 TTFT under 2s; off-peak cost below $5/h", ["holds at off_peak, not now"]),
        ("p95 TTFT under 3 s on weekends", ["holds from 00:00 to 24:00 on sat, sun, not now"]),
        ("P99 TTFT < 2s on 2026-01-10", ["holds on 2026-01-10 from 00:00 to 24:00, not now"]),
        ("p95 TTFT < 5s; 99.9% availability", ["does not follow from a topology"]),
    ],
)
def test_what_a_plan_leaves_out_is_named(deployment: Deployment, text: str, reasons: list[str]) -> None:
    assert [one.reason for one in planned(deployment, text).left_out] == reasons


@rows("text", ["throughput first", "throughput > cost", "吞吐优先"])
def test_every_form_of_a_priority_weighs_alike(deployment: Deployment, text: str) -> None:
    plan = planned(deployment, text)
    assert plan.target == planned(deployment, "throughput over cost").target
    assert plan.now_prediction is not None
    assert plan.prediction.throughput_tok_s > 1.5 * plan.now_prediction.throughput_tok_s


def test_chains_put_the_first_before_cost(deployment: Deployment) -> None:
    chain = planned(deployment, "latency > throughput > cost")
    assert chain.target == planned(deployment, "latency first").target
    assert chain.target == planned(deployment, "latency over cost").target
    most = planned(deployment, "maximise throughput").prediction.throughput_tok_s
    assert most >= planned(deployment, "throughput first").prediction.throughput_tok_s


@rows("text", ["maximise throughput", "P99 TTFT < 2s at peak", "as cheap as possible"])
def test_with_vllm_every_stage_has_one_tp_and_one_format(deployment: Deployment, text: str) -> None:
    on_vllm = with_model(deployment, engine=replace(deployment.model().engine, named="vllm"))
    plan = planned(on_vllm, text)
    assert len({stage.tp_size for stage in plan.target.stages}) == 1
    assert len({stage.precision.weights for stage in plan.target.stages}) == 1


def test_relative_wishes_compare_with_what_runs(deployment: Deployment) -> None:
    plan = planned(deployment, "double the throughput")
    assert plan.now_prediction is not None
    (bound,) = [margin.bound for margin in plan.margins if margin.unit == "tokens/s"]
    assert bound == pytest.approx(2 * plan.now_prediction.throughput_tok_s)


def test_no_latency_is_without_end_where_the_goal_holds(deployment: Deployment) -> None:
    plan = planned(deployment, "P99 TTFT < 4s off-peak")
    assert plan.prediction.ttft_s["p99.9"] < 60
    assert plan.prediction.e2e_s["p99"] < 600


@rows(
    ("text", "left_out"),
    [
        ("keep p99 ttft under 2s at peak; never let enterprise drop below bf16, free can go int8", 1),
        ("enterprise must stay on bf16, free may use int8, p99 ttft < 2s", 1),
        ("free can go int8; p99 ttft < 2s", 1),
        ("p99 ttft < 2s; never below bf16 for enterprise", 0),
    ],
)
def test_what_is_forbidden_for_one_tenant_is_served_to_nobody(deployment: Deployment, text: str, left_out: int) -> None:
    plan = planned(deployment, text)
    formats = {stage.precision_of(layer).weights for stage in plan.target.stages for layer in stage.layers}
    assert formats == {"bf16"}
    alone = [one.reason for one in plan.left_out if "for whom no replica of its own is worth it" in one.reason]
    assert len(alone) == left_out
    assert any("said for enterprise" in rule for rule in plan.rules) is ("enterprise" in text)


def test_a_format_that_the_engine_of_the_file_does_not_serve_is_named_first(deployment: Deployment) -> None:
    torch = replace(deployment.model().engine, named="torch")
    asked = with_model(deployment, precision="fp8", start=None, engine=torch)
    reason, *_ = plan_for(asked, "P99 TTFT < 20s").reasons
    assert reason.startswith("the engine torch serves no fp8 here, but bf16, int8, int4: ")
    assert "serves no" not in plan_for(with_model(asked, precision="bf16"), "P99 TTFT < 20s").reasons[0]
