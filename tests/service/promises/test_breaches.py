"""A plan names what it breaks of what is promised, and is not applied before somebody has seen that."""

from pathlib import Path

import httpx
import pytest

from service.deployment.policy import Rules
from service.promises.decide import ControlState, Decision, decide
from tests.service.promises.test_service import ACTS, MAY, ONE_DEVICE, activate, decision, kept, outcomes, promised
from tests.service.scripted import DEPLOYMENT, QUICK, ScriptedService, served

pytestmark = pytest.mark.slow

TWO_DEVICES = "use at least 2 GPUs"
SEEN = {"acknowledge": ["breaks_promise"]}


def planned(http: httpx.Client, **wish: str) -> dict:
    answer = http.post("/v1/plans", json=wish)
    assert answer.status_code == 201, answer.text
    return dict(answer.json()["plan"])


def applied(http: httpx.Client, plan: dict, **body: object) -> httpx.Response:
    return http.post(f"/v1/plans/{plan['id']}:apply", json=body)


def broken(plan: dict) -> list[str]:
    return [one["message"] for one in plan["to_acknowledge"] if one["code"] == "breaks_promise"]


def test_a_plan_to_a_topology_that_is_named_says_what_it_breaks(http: httpx.Client, service: ScriptedService) -> None:
    intent_id = promised(http, TWO_DEVICES)
    plan = planned(http, target="1x1")
    assert broken(plan) == [f"this breaks what {intent_id} promises: it misses GPUs >= 2: 1 predicted"]
    assert plan["to_acknowledge"][0]["evidence"] == "at least 2 GPUs"
    assert plan["promised"] == [f"{intent_id}: GPUs >= 2"]
    refused = applied(http, plan).json()
    assert (refused["code"], refused["findings"]) == ("finding_not_acknowledged", plan["to_acknowledge"])
    ahead = http.post(f"/v1/plans/{plan['id']}:preflight", json={}).json()
    assert [one["code"] for one in ahead["refusals"]] == ["finding_not_acknowledged"]
    assert ahead["to_acknowledge"] == plan["to_acknowledge"]
    assert http.post(f"/v1/plans/{plan['id']}:preflight", json=SEEN).json()["would_apply"]
    assert applied(http, plan, **SEEN).status_code == 202
    service.settle()
    entry = next(one for one in http.get("/v1/audit").json()["entries"] if one["act"] == "plan.apply")
    assert entry["after"]["acknowledged"] == {"breaks_promise": "anybody"}


def test_what_keeps_the_promise_needs_no_word(http: httpx.Client) -> None:
    promised(http, TWO_DEVICES)
    plan = planned(http, target="tp2")
    assert broken(plan) == []
    assert applied(http, plan).status_code == 202


def test_a_plan_from_words_keeps_what_is_promised_where_it_can(http: httpx.Client) -> None:
    intent_id = promised(http, TWO_DEVICES)
    least = planned(http, text="as few GPUs as possible")
    assert (len(least["target"]["devices"]), broken(least)) == (2, [])
    wish = "use at most 1 GPU"
    assert broken(planned(http, text=wish)) == [
        f"this breaks what {intent_id} promises: it misses GPUs >= 2: 1 predicted"
    ]
    assert applied(http, planned(http, text=wish)).json()["code"] == "finding_not_acknowledged"


def test_what_runs_may_break_it_already(http: httpx.Client) -> None:
    promised(http, ONE_DEVICE)
    (said,) = broken(planned(http, target="tp2"))
    assert said.endswith("it misses GPUs <= 1: 2 predicted; what runs breaks it, too")


def test_the_way_back_says_what_it_breaks(http: httpx.Client, service: ScriptedService) -> None:
    assert applied(http, planned(http, target="1x1")).status_code == 202
    service.settle()
    intent_id = promised(http, ONE_DEVICE)
    (operation,) = http.get("/v1/operations").json()["operations"]
    plan = http.post(f"/v1/operations/{operation['id']}:undo").json()["plan"]
    assert broken(plan) == [f"this breaks what {intent_id} promises: it misses GPUs <= 1: 2 predicted"]
    assert applied(http, plan).json()["code"] == "finding_not_acknowledged"
    assert applied(http, plan, **SEEN).status_code == 202


def test_what_was_promised_since_makes_a_plan_stale(http: httpx.Client) -> None:
    plan = planned(http, target="1x1")
    intent_id = promised(http, TWO_DEVICES)
    refused = applied(http, plan, **SEEN).json()
    assert refused["code"] == "stale_plan"
    assert f"not held against what is promised now ({intent_id}: GPUs >= 2)" in refused["detail"]
    ahead = http.post(f"/v1/plans/{plan['id']}:preflight", json=SEEN).json()
    assert [one["code"] for one in ahead["refusals"]] == ["stale_plan"]
    again = planned(http, target="1x1")
    http.post(f"/v1/intents/{intent_id}:retire")
    assert applied(http, again).status_code == 202, "what is promised no more is not broken"


def test_a_promise_is_no_reason_against_its_own_plan(http: httpx.Client) -> None:
    intent_id = kept(http, ONE_DEVICE)
    plan = planned(http, intent_id=intent_id)
    assert activate(http, intent_id).status_code == 201
    assert applied(http, plan).status_code == 202


def test_only_who_may_approve_can_say_that_it_was_seen(keyed: ScriptedService, admin: httpx.Client) -> None:
    intent_id = promised(admin, TWO_DEVICES)
    plan = planned(admin, target="1x1")
    key = admin.post("/v1/keys", json={"name": "operator-52", "role": "operator"}).json()["key"]
    with keyed.client(key) as operator:
        assert applied(operator, plan, **SEEN).json()["code"] == "not_approved"
        read = {"digest": plan["digest"], **SEEN}
        assert admin.post(f"/v1/plans/{plan['id']}:approve", json={"digest": plan["digest"]}).status_code == 409
        assert admin.post(f"/v1/plans/{plan['id']}:approve", json=read).status_code == 201
        assert applied(operator, plan).status_code == 202
    keyed.settle()
    admin.post(f"/v1/intents/{intent_id}:retire")


def test_the_controller_does_not_break_a_promise_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def worse(state: ControlState, rules: Rules) -> Decision:
        done = [one for one in state.past if one.is_done]
        return Decision("switch", "it made it worse", done[0].source, "roll_back") if done else decide(state, rules)

    monkeypatch.setattr("service.promises.controller.decide", worse)
    with served(tmp_path, ACTS) as (service, http):
        promised(http, ONE_DEVICE)
        reason = service.ticked(lambda: decision(http)["cause"] == "roll_back" and decision(http)["reason"], "a look")
        assert "a person has to see its findings (breaks_promise)" in reason
        plan = http.get(f"/v1/plans/{decision(http)['plan_id']}").json()
        assert len(broken(plan)) == 1
        assert [one["cause"] for one in outcomes(http)] == ["window"]
        assert applied(http, plan, **SEEN).status_code == 202


def test_an_act_for_another_load_is_not_held_against_that_of_now(tmp_path: Path) -> None:
    text = DEPLOYMENT.replace(
        "workload:\n", "workload:\n  night: {rate_rps: 0.1, input_tokens: 20, output_tokens: 90, concurrency: 2}\n"
    )
    night = "{night: {days: [mon], start: '00:00', end: '00:01', tz: UTC}}"
    with served(tmp_path, text.replace("{peak: always}", night) + QUICK + MAY) as (_, http):
        plan = planned(http, target="tp2", window="night")
        assert applied(http, plan).status_code == 202, "nothing is promised"
    with served(tmp_path / "promised", text.replace("{peak: always}", night) + QUICK + MAY) as (_, http):
        promised(http, TWO_DEVICES)
        refused = applied(http, planned(http, target="tp2", window="night")).json()
        assert (refused["code"], "was made for night" in refused["detail"]) == ("stale_plan", True)
