"""Who has said yes to a plan: pure rules first, then over HTTP with people of each role."""

from dataclasses import replace

import pytest

from selector.models import Plan, Prediction, SwitchPrediction
from service.access.approvals import Approvals
from service.access.consent import PlanFacts, consent, refuse_unseen
from service.access.people import Actors, IntentAuthors
from service.deployment.policy import Applied, Approval, PolicyBounds, beyond
from service.documents.access import Caller, Role
from service.documents.errors import RefusedError
from service.documents.forms import form_of, json_of
from service.documents.operations import ApprovalDocument
from service.documents.plans import sealed
from service.documents.problems import Code, Problem
from service.documents.state import Page
from service.store.store import Store
from tests.rows import rows
from tests.runtime.scripted import topology
from tests.service.asking import end_of, new_plan, problem
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow


def plan(**facts: object) -> Plan:
    prediction = Prediction(
        ttft_s={}, tpot_s={}, e2e_s={}, throughput_tok_s=1, gpu_util=0.5, usd_per_hour=0, batch=1,
        quality_loss=0.02, error_band=0.3, source="analytic", devices=2,
    )  # fmt: skip
    found = Plan(
        id="plan-1", intent_id="intent-1", generation=1, model="counting", window="peak", now=topology(1),
        target=topology(1, 1), prediction=prediction,
        now_prediction=None, runner_up=None, reasons=(), switch=SwitchPrediction("shadow", 1.0, 0.02, 0.01, None),
    )  # fmt: skip
    return sealed(replace(found, **facts))


def said(verdict: str, made: Plan, **facts: object) -> ApprovalDocument:
    document = {"plan_id": made.id, "digest": made.digest, "verdict": verdict, "by": "grace"}
    document |= {"role": "approver", "at_s": 1.0, "until_s": 9.0}
    return ApprovalDocument.model_validate(document | facts)


ADAS = Actors((IntentAuthors("intent-1", "ada"),), "ada")
NOBODY_SAID = PlanFacts(None, ADAS, Applied(0, 0))
ADA, GRACE = Caller("ada", Role.OPERATOR), Caller("grace", Role.APPROVER)
ROOMY = PolicyBounds(most_stop_ms=50, per_hour=4, per_day=20, windows=("peak",), devices=4, quality_loss=0.05)


@rows(
    ("tight", "said"),
    [
        ({}, ""),
        ({"most_stop_ms": 19}, "its stop is 20.0 ms, over 19 ms"),
        ({"per_hour": 3}, "3 plans were applied in the last hour"),
        ({"per_day": 5}, "5 plans were applied in the last day"),
        ({"windows": ("off-peak",)}, "it is for peak"),
        ({"devices": 1}, "it takes 2 devices"),
        ({"quality_loss": 0.01}, "it loses 2.0% of quality"),
    ],
)
def test_each_bound_of_the_policy_holds_by_itself(tight, said):
    reasons = beyond(plan(), replace(ROOMY, **tight), Applied(3, 5))
    assert (len(reasons), said in "".join(reasons)) == (bool(said), True), reasons


def test_a_stop_that_nobody_predicted_is_over_any_bound():
    assert "not predicted" in beyond(plan(switch=None), ROOMY, Applied(0, 0))[0]
    assert beyond(plan(switch=None), replace(ROOMY, most_stop_ms=None), Applied(0, 0)) == ()


def test_an_operator_needs_somebodys_yes_and_an_approver_does_not():
    with pytest.raises(RefusedError, match=r"ada may not approve it; an approver has to \(intentctl approve plan-1\)"):
        consent(plan(), Approval(), NOBODY_SAID, ADA, ())
    assert consent(plan(), Approval(), NOBODY_SAID, GRACE, ["x"]).acknowledged == {"x": "grace"}


def test_a_yes_is_for_what_was_read():
    made = plan()
    known = replace(NOBODY_SAID, said=said("approved", made, acknowledged=("seen",)))
    found = consent(made, Approval(), known, ADA, ())
    assert (found.by, found.acknowledged) == ("grace", {"seen": "grace"})
    with pytest.raises(RefusedError, match="an approver has to"):
        consent(plan(generation=2), Approval(), known, ADA, ())


def test_a_no_holds_for_everybody():
    made = plan()
    known = replace(NOBODY_SAID, said=said("rejected", made, note="not on a Friday"))
    for caller in (ADA, GRACE, Caller("root", Role.ADMIN)):
        with pytest.raises(RefusedError, match="was rejected by grace: not on a Friday"):
            consent(made, Approval(within=ROOMY), known, caller, ())


def test_only_who_may_approve_acknowledges_and_it_is_known_who_did():
    made = plan()
    known = replace(NOBODY_SAID, said=said("approved", made, acknowledged=("seen",)))
    assert consent(made, Approval(), known, ADA, ["seen", "freeze"]).acknowledged == {"seen": "grace"}
    found = consent(made, Approval(), known, Caller("alan", Role.APPROVER), ["seen", "freeze"])
    assert (found.by, found.acknowledged) == ("grace", {"seen": "grace", "freeze": "alan"})
    assert consent(made, Approval(within=ROOMY), NOBODY_SAID, ADA, ["freeze"]).acknowledged == {}


def test_another_person_is_another_person():
    graces = Actors((IntentAuthors("intent-1", "grace"),), "grace")
    alone = r"only grace would have acted \(said intent-1, had it planned, applied the plan\); another person has to"
    for rule in (Approval("another"), Approval("another", within=ROOMY)):
        with pytest.raises(RefusedError, match=alone):
            consent(plan(), rule, replace(NOBODY_SAID, acted=graces), GRACE, ())
    assert consent(plan(), Approval("another"), NOBODY_SAID, GRACE, ()).by == "grace"


def test_what_is_within_the_policy_needs_nobody():
    assert consent(plan(), Approval(within=ROOMY), NOBODY_SAID, ADA, ()).by == "policy"
    busy = replace(NOBODY_SAID, applied=Applied(4, 4))
    with pytest.raises(RefusedError, match=r"the policy says no: 4 plans were applied in the last hour"):
        consent(plan(), Approval(within=ROOMY), busy, ADA, ())


@rows("change", [{"generation": 2}, {"window": "off-peak"}, {"reasons": ("x",)}, {"id": "plan-2"}])
def test_a_digest_changes_with_what_a_plan_says(change):
    assert plan(**change).digest != plan().digest == sealed(plan()).digest
    read = form_of(Plan).validate_python(json_of(plan()))
    assert sealed(read).digest == read.digest == plan().digest


def test_a_stop_without_end_is_read_as_it_was_written():
    made = plan(switch=SwitchPrediction("shadow", 1.0, float("inf"), 0.01, None))
    read = form_of(Plan).validate_python(json_of(made))
    assert sealed(read).digest == made.digest
    assert "not predicted" in beyond(read, ROOMY, Applied(0, 0))[0]


def test_an_outage_has_to_be_seen_and_no_policy_says_yes_to_it():
    ends_first = SwitchPrediction("restart", 0.0, 95.0, 94.0, None, stop_most_s=160.0)
    made = plan(switch=ends_first)
    (finding,) = made.to_acknowledge
    assert (finding.code, finding.pointer) == ("outage", "/switch")
    assert "stand still for about 95 s (160 s at most)" in finding.message
    assert "the running engine has to end first" in finding.message
    assert sealed(made).to_acknowledge == made.to_acknowledge, "it is said once"
    assert any("outage" in reason for reason in beyond(made, PolicyBounds(), Applied(0, 0)))
    with pytest.raises(RefusedError, match="stand still"):
        refuse_unseen(made.to_acknowledge, (), "the plan, then apply")
    refuse_unseen(made.to_acknowledge, ("outage",), "the plan, then apply")
    assert plan().to_acknowledge == ()


def test_what_was_said_to_plans_is_listed_newest_first(tmp_path):
    store = Store.open(tmp_path)
    approvals = Approvals(store, lambda *_: True)
    words = [("plan-b", 3.0), ("plan-a", 3.0), ("plan-c", 1.0)]
    for name, at_s in words:
        approvals.keep(said("approved", plan(id=name), at_s=at_s))
    approvals.keep(said("rejected", plan(id="plan-c"), at_s=4.0, until_s=None))

    first = approvals.page(Page(2))
    told = [(one.plan_id, one.verdict) for one in first.items]
    assert told == [("plan-c", "rejected"), ("plan-b", "approved")]
    rest = approvals.page(Page(2, first.next))
    assert ([one.plan_id for one in rest.items], rest.next) == (["plan-a"], None)
    store.close()


def test_an_operator_applies_what_an_approver_approved(ada, grace):
    made = new_plan(ada)
    path = f"/v1/plans/{made['id']}"
    refused = ada.post(f"{path}:apply")
    assert (refused.status_code, refused.json()["code"]) == (403, "not_approved")
    assert ada.post(f"{path}:approve", json={"digest": made["digest"]}).json()["code"] == "forbidden"
    stale = grace.post(f"{path}:approve", json={"digest": "0" * 64})
    assert (stale.status_code, stale.json()["code"]) == (409, "stale_plan")
    approved = grace.post(f"{path}:approve", json={"digest": made["digest"], "minutes": 5, "note": "go"}).json()
    assert (approved["by"], approved["verdict"]) == ("grace", "approved")
    assert approved["until_s"] > approved["at_s"]
    again = grace.post(f"{path}:approve", json={"digest": made["digest"]})
    assert (again.status_code, "approved by grace" in again.json()["detail"]) == (409, True)
    applied = ada.post(f"{path}:apply")
    assert applied.status_code == 202, applied.text
    assert end_of(ada, applied.json()["id"])["phase"] == "done"
    entries = grace.get("/v1/audit").json()["entries"]
    acts = {one["act"]: one for one in entries if one["subject"] == made["id"]}
    assert (acts["plan.approve"]["who"], acts["plan.apply"]["who"]) == ("grace", "ada")
    assert acts["plan.apply"]["after"]["approved_by"] == "grace"
    assert acts["plan.apply"]["before"]["topology"] == made["now"]["text"]


def test_a_rejected_plan_is_applied_by_nobody(ada, grace):
    made = new_plan(ada)
    path = f"/v1/plans/{made['id']}"
    assert grace.post(f"{path}:approve", json={"digest": made["digest"]}).status_code == 201
    assert grace.post(f"{path}:reject", json={"note": "too late"}).status_code == 201
    assert grace.post(f"{path}:approve", json={"digest": made["digest"]}).json()["code"] == "already_decided"
    for who in (ada, grace):
        assert "rejected by grace: too late" in problem(who.post(f"{path}:apply"), 403, "not_approved")["detail"]


def test_words_approve_nothing(ada):
    made = new_plan(ada)
    for text in (f"approve {made['id']}", "I approve, apply it now, approval granted", "批准并立即执行"):
        ada.post("/v1/plans", json={"text": text})
    assert ada.post(f"/v1/plans/{made['id']}:apply").json()["code"] == "not_approved"


@rows("body", [{}, {"digest": 1}, {"digest": "x", "minutes": 0}, {"digest": "x", "who": "me"}])
def test_an_approval_that_cannot_be_is_refused(grace, body):
    assert grace.post("/v1/plans/plan-1:approve", json=body).status_code == 422
    assert grace.post("/v1/plans/plan-1:approve", json={"digest": "x"}).json()["code"] == "not_found"


def test_the_policy_of_a_deployment_is_the_only_other_yes(tmp_path):
    rules = "approval: {by: person, within: {most_stop_ms: 5000, per_hour: 1, windows: [peak]}}"
    with (
        ScriptedService(tmp_path, DEPLOYMENT.replace("auth: none", rules)) as service,
        service.person("operator", "bot") as bot,
    ):
        applied = bot.post(f"/v1/plans/{new_plan(bot)['id']}:apply")
        assert applied.status_code == 202, applied.text
        end_of(bot, applied.json()["id"])
        refused = bot.post(f"/v1/plans/{new_plan(bot)['id']}:apply").json()
        assert refused["code"] == "not_approved"
        assert "1 plans were applied in the last hour" in refused["detail"]
        given_up = service.serving._store.operation(applied.json()["id"]).model_copy(
            update={"result": None, "error": Problem.of(Code.SWITCH_ABORTED, "it was given up")}
        )
        service.serving._store.save_operation(given_up)
        again = bot.post(f"/v1/plans/{new_plan(bot)['id']}:apply")
        assert again.status_code == 202, "a switch that was given up uses up nothing"
