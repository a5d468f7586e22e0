"""Promises of a running service: activated, contradicted, kept, overridden, over a restart."""

import re
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import httpx
import pytest

from runtime.errors import EngineLostError
from service.deployment.policy import Rules
from service.documents.errors import StoreError
from service.documents.promises import OutcomeDocument, OverrideDocument
from service.promises.decide import ControlState, Decision, decide
from service.promises.people import People, Term
from service.serving.serving import Serving
from service.store.book import Book
from tests.rows import rows
from tests.service.asking import apply, end_of, switched
from tests.service.scripted import DEPLOYMENT, QUICK, ScriptedService, elsewhen, served

MAY = "approval: {by: person, within: {per_hour: 20}}\n"
ACTS = DEPLOYMENT + QUICK + MAY + "mode: act\n"
ONE_DEVICE = "use at most 1 GPU"
FREEZE = "no reconfiguration for the next two hours"

pytestmark = pytest.mark.slow


def kept(http: httpx.Client, text: str) -> str:
    answer = http.post("/v1/intents", json={"text": text})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def activate(http: httpx.Client, intent_id: str, **body: object) -> httpx.Response:
    return http.post(f"/v1/intents/{intent_id}:activate", json=body)


def promised(http: httpx.Client, text: str, **body: object) -> str:
    intent_id = kept(http, text)
    answer = activate(http, intent_id, **body)
    assert answer.status_code == 201, answer.text
    return intent_id


def shape(http: httpx.Client) -> str:
    return str(http.get("/v1/topology").json()["topology"]["shape"])


def decision(http: httpx.Client) -> dict:
    return dict(http.get("/v1/controller").json()["decisions"][0])


def outcomes(http: httpx.Client) -> list[dict]:
    return list(http.get("/v1/report").json()["switches"])


def an_hour_later(patch: pytest.MonkeyPatch) -> None:
    """By the clock on the wall, for the controller."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(hours=1)

    for module in ("control_loop", "wiring"):
        patch.setattr(f"service.control.{module}.datetime", Later)


def test_what_is_activated_is_promised_audited_and_planned_for(http: httpx.Client) -> None:
    intent_id = promised(http, "keep P99 TTFT < 2s at peak")
    (found,) = http.get("/v1/promises").json()["promises"]
    assert (found["intent_id"], found["state"], found["activated_by"]) == (intent_id, "active", "anybody")
    assert [one["words"] for one in found["goals"]] == ["p99 TTFT <= 2 s"]
    (goal,) = http.get("/v1/report").json()["attainment"]
    assert (goal["words"], goal["window"], goal["total"], goal["share"]) == ("p99 TTFT <= 2 s", "at peak", 0, None)
    (segment,) = http.get("/v1/agenda", params={"hours": 5}).json()["segments"]
    assert [one["words"] for one in segment["goals"]] == ["p99 TTFT <= 2 s"]
    assert (segment["topology"]["shape"], segment["changes"]) == ("PP2", False)
    entries = http.get("/v1/audit").json()["entries"]
    assert (entries[0]["act"], entries[0]["subject"]) == ("intent.activate", intent_id)


def test_a_preview_keeps_nothing(http: httpx.Client) -> None:
    seen = http.post("/v1/agenda:preview", json={"text": ONE_DEVICE, "hours": 1}).json()
    assert [one["topology"]["shape"] for one in seen["segments"]] == ["1x1"]
    assert seen["segments"][0]["switch"]["prepare_s"] > 0
    assert http.get("/v1/promises").json()["promises"] == []
    assert http.get("/v1/intents").json()["intents"] == []
    one = promised(http, ONE_DEVICE)
    two = {"text": "use at least 2 GPUs", "hours": 1}
    assert http.post("/v1/agenda:preview", json=two).json()["segments"][0]["topology"] is None
    seen = http.post("/v1/agenda:preview", json={**two, "replace": [one]}).json()
    assert len(seen["segments"][0]["topology"]["devices"]) == 2


@rows(
    ("text", "status", "code", "words"),
    [
        ("run it with tp=2", 422, "not_a_promise", "intentctl apply"),
        (
            "keep P99 TTFT < 2s during business hours",
            422,
            "invalid_request",
            "nobody has said when business_hours is",
        ),
        ("keep P99 TTFT < 2 ms at peak", 422, "infeasible", "cannot be held"),
    ],
)
def test_what_cannot_be_promised_says_why(http: httpx.Client, text: str, status: int, code: str, words: str) -> None:
    answer = activate(http, kept(http, text))
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert words in answer.json()["detail"]
    assert http.get("/v1/promises").json()["promises"] == []


def test_what_nothing_holds_at_another_time_is_refused_with_that_time_and_what_could_be_held(
    tmp_path: Path,
) -> None:
    text = DEPLOYMENT.replace("{peak: always}", elsewhen())
    with served(tmp_path, text) as (_, http):
        answer = activate(http, kept(http, "keep P99 TTFT < 2 ms at peak")).json()
        assert "09:00 (peak) this cannot be held" in answer["detail"]
        assert "Feasible would be" in answer["detail"]


def test_a_contradiction_is_named_and_may_be_replaced(http: httpx.Client) -> None:
    first, second = promised(http, "keep P99 TTFT < 2s at peak"), kept(http, "keep P99 TTFT < 1s at peak")
    refused = activate(http, second)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert f"--replace {first}" in refused.json()["detail"]
    assert activate(http, second, replace=["intent-000000000000"]).json()["code"] == "not_found"
    assert activate(http, second, replace=[first]).status_code == 201
    states = {one["intent_id"]: one["state"] for one in http.get("/v1/promises").json()["promises"]}
    assert states == {first: "superseded", second: "active"}
    assert http.post(f"/v1/intents/{first}:retire").json()["code"] == "not_active"
    assert http.post(f"/v1/intents/{second}:retire").json()["state"] == "retired"


def test_a_freeze_binds_whoever_applies_until_an_approver_overrides_it(http: httpx.Client) -> None:
    promised(http, FREEZE)
    plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
    refused = http.post(f"/v1/plans/{plan['id']}:apply").json()
    assert refused["code"] == "reconfiguration_limited"
    assert FREEZE in refused["detail"]
    ahead = http.post(f"/v1/plans/{plan['id']}:preflight", json={}).json()
    assert [one["code"] for one in ahead["refusals"]] == ["reconfiguration_limited"]
    meant = {"acknowledge": ["reconfiguration_limited"]}
    assert http.post(f"/v1/plans/{plan['id']}:apply", json=meant).status_code == 202
    applied = next(one for one in http.get("/v1/audit").json()["entries"] if one["act"] == "plan.apply")
    assert applied["after"]["acknowledged"] == {"reconfiguration_limited": "anybody"}


def test_one_switch_an_hour_is_one_switch_an_hour(http: httpx.Client, service: ScriptedService) -> None:
    promised(http, "at most 1 reconfiguration per hour")
    first = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
    assert http.post(f"/v1/plans/{first['id']}:apply").status_code == 202
    service.settle()
    assert shape(http) == "TP2"
    second = http.post("/v1/plans", json={"target": "pp2"}).json()["plan"]
    assert http.post(f"/v1/plans/{second['id']}:apply").json()["code"] == "reconfiguration_limited"


def test_a_time_that_is_over_ends_a_promise(
    http: httpx.Client, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised(http, "no reconfiguration for the next 2 seconds")
    an_hour_later(monkeypatch)
    service.tick()
    (found,) = http.get("/v1/promises").json()["promises"]
    assert (found["state"], found["why"]) == ("expired", "its time is over")


def test_a_promise_goes_on_while_one_of_its_goals_does(
    http: httpx.Client, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    promised(http, "keep P99 TTFT < 60s; no reconfiguration for the next 2 seconds")
    an_hour_later(monkeypatch)
    service.tick()
    (found,) = http.get("/v1/promises").json()["promises"]
    assert (found["state"], len(found["goals"])) == ("active", 2)


def test_the_controller_recommends_and_a_person_applies(tmp_path: Path) -> None:
    with served(tmp_path, DEPLOYMENT + QUICK) as (service, http):
        promised(http, ONE_DEVICE)
        plan_id = service.ticked(lambda: decision(http)["plan_id"], "a plan")
        found = decision(http)
        assert (found["kind"], found["cause"]) == ("hold", "window")
        assert "a person has to: intentctl apply" in found["reason"]
        assert shape(http) == "PP2"
        assert http.get(f"/v1/plans/{plan_id}").json()["kind"] == "promise"
        assert http.post(f"/v1/plans/{plan_id}:apply").status_code == 202
        (outcome,) = service.ticked(lambda: [one for one in outcomes(http) if one["verdict"]], "a verdict")
        assert (outcome["cause"], outcome["ended"], outcome["verdict"]) == ("window", "done", "unknown")
        assert http.get("/v1/controller").json()["overrides"] == []


def test_a_no_holds_in_mode_act_and_over_a_restart(tmp_path: Path) -> None:
    with served(tmp_path, ACTS.replace("mode: act", "mode: recommend")) as (service, http):
        promised(http, ONE_DEVICE)
        plan_id = service.ticked(lambda: decision(http).get("plan_id"), "the plan")
        said = {"note": "never", "for_s": 36_000}
        assert http.post(f"/v1/plans/{plan_id}:reject", json=said).json()["barred_until_s"] > time.time() + 35_000
        http.post("/v1/controller", json={"mode": "act"})
        service.ticked(lambda: f"rejected {plan_id}" in decision(http)["reason"], "the no")
        assert decision(http)["kind"] == "hold"
    with served(tmp_path, ACTS) as (service, http):
        service.ticked(lambda: f"rejected {plan_id}" in decision(http)["reason"], "the no after a restart")
        (no,) = http.get("/v1/controller").json()["refusals"]
        assert (no["by"], no["act"], no["about"]) == ("anybody", "rejected", plan_id)
        assert datetime.fromisoformat(no["until"]).timestamp() > time.time() + 35_000
        assert shape(http) == "PP2"
        http.post("/v1/controller", json={"paused": False})
        service.ticked(lambda: shape(http) == "1x1", "the switch")


def test_a_switch_on_which_no_verdict_will_come_says_why(tmp_path: Path) -> None:
    with served(tmp_path, DEPLOYMENT) as (service, http):
        switched(http, target="tp2")
        service.ticked(lambda: len(outcomes(http)) == 1, "what nobody promised anything of")
        promised(http, "keep P99 TTFT < 2s at peak")
        service.ticked(lambda: decision(http)["reason"] != "nothing is promised", "a look")
        switched(http, target="pp2")
        service.ticked(lambda: len(outcomes(http)) == 2, "the second")
        last = switched(http, target="tp2")["id"]
        service.ticked(lambda: len(outcomes(http)) == 3, "the third")
        assert [(one["verdict"], one["why"]) for one in outcomes(http)] == [
            ("unknown", "nothing was promised"),
            ("unknown", f"{last} came before there was one"),
            (None, ""),
        ]
    with served(tmp_path, DEPLOYMENT) as (service, http):
        service.ticked(lambda: outcomes(http)[2]["why"], "the words on the third")
        assert outcomes(http)[2]["why"] == "the service started anew before there was one"


def test_a_moment_without_the_database_forgets_no_switch_and_no_verdict(tmp_path: Path, monkeypatch) -> None:
    """The first writing of a switch's end fails, and the first of its verdict."""
    keep, failed = Book.keep_outcome, set[bool]()

    def away(book: Book, outcome: OutcomeDocument) -> None:
        if (judged := outcome.verdict is not None) not in failed:
            failed.add(judged)
            raise StoreError("the database is away")
        keep(book, outcome)

    monkeypatch.setattr(Book, "keep_outcome", away)
    with served(tmp_path, ACTS) as (service, http):
        promised(http, ONE_DEVICE)
        (switch,) = service.ticked(lambda: [one for one in outcomes(http) if one["verdict"]], "the verdict")
        assert (switch["cause"], switch["ended"]) == ("window", "done")
    assert failed == {False, True}


def test_an_act_from_before_a_promise_does_not_override_it(tmp_path: Path) -> None:
    with served(tmp_path, ACTS) as (service, http):
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        assert http.post(f"/v1/plans/{plan['id']}:apply").status_code == 202
        service.settle()
        assert shape(http) == "TP2"
        answer = activate(http, kept(http, ONE_DEVICE))
        (why,) = answer.json()["against"]
        assert "anybody applied CPU[0,1]" in why
        assert "that act does not stand against it" in why
        service.ticked(lambda: shape(http) == "1x1", "the switch to one device")
        assert http.get("/v1/controller").json()["overrides"] == []


def test_the_controller_acts_within_policy_and_leaves_an_override_alone(tmp_path: Path) -> None:
    with served(tmp_path, ACTS) as (service, http):
        promised(http, ONE_DEVICE)
        service.ticked(lambda: shape(http) == "1x1", "the switch")
        assert http.get("/v1/operations").json()["operations"][0]["applied_by"] == "the controller"
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        seen = {"acknowledge": ["breaks_promise"]}
        assert http.post(f"/v1/plans/{plan['id']}:apply", json=seen).status_code == 202
        (override,) = service.ticked(lambda: http.get("/v1/controller").json()["overrides"], "the override")
        assert (override["by"], override["until"]) == ("anybody", None)
        words = f'anybody: "run it as {plan["target"]["text"]}"'
        reasons = ["this window asks for it", words]
        service.ticked(lambda: [one["reason"] for one in outcomes(http)] == reasons, "why each switch was made")
        assert "will not change it" in service.ticked(
            lambda: decision(http)["kind"] == "hold" and decision(http)["reason"], "why"
        )
        assert shape(http) == "TP2"
    with served(tmp_path, ACTS) as (service, http):
        service.ticked(lambda: http.get("/v1/controller").json()["overrides"], "the override after a restart")
        assert (shape(http), http.get("/v1/promises").json()["promises"][0]["state"]) == ("TP2", "active")
        http.post("/v1/controller", json={"paused": False})
        service.ticked(lambda: shape(http) == "1x1", "the way back")


def test_an_act_that_ends_while_the_controller_looks_is_not_undone(tmp_path: Path, monkeypatch) -> None:
    looks = iter([None])  # the first look reads the store just before the act's end is kept

    def late(who: People, term: Term) -> OverrideDocument | None:
        return next(looks, known(who, term))

    with served(tmp_path, ACTS) as (service, http):
        promised(http, ONE_DEVICE)
        service.ticked(lambda: shape(http) == "1x1", "the switch")
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        http.post(f"/v1/plans/{plan['id']}:apply", json={"acknowledge": ["breaks_promise"]})
        service.settle()
        known = People.override
        monkeypatch.setattr(People, "override", late)
        service.tick()
        service.ticked(lambda: http.get("/v1/controller").json()["overrides"], "the override")
        assert shape(http) == "TP2"


def test_modes_and_a_pause_survive_a_restart(tmp_path: Path) -> None:
    with served(tmp_path, DEPLOYMENT + MAY) as (_, http):
        assert http.get("/v1/controller").json()["mode"] == "recommend"
        http.post("/v1/controller", json={"mode": "act", "paused": True})
    with served(tmp_path, DEPLOYMENT + MAY) as (_, http):
        found = http.get("/v1/controller").json()
        assert (found["mode"], found["paused"]) == ("act", True)


def test_what_is_said_to_the_controller_is_answered_with_what_is_true_after_it(tmp_path: Path) -> None:
    with served(tmp_path, DEPLOYMENT + MAY) as (service, http):
        promised(http, "use at most 2 GPUs")
        service.ticked(lambda: decision(http)["reason"] == "what runs is what is planned", "a look")
        operation = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]["id"]
        end_of(http, apply(http, http.get(f"/v1/plans/{operation}").json()))
        service.ticked(lambda: http.get("/v1/controller").json()["overrides"], "the override")
        for said, reason in (
            ({"paused": True}, "the controller is paused"),
            ({"pinned": True}, "the controller is paused"),
            ({"paused": False}, ""),
            ({"pinned_s": 60}, "anybody pinned what runs"),
            ({"pinned": False}, ""),
        ):
            stands = http.post("/v1/controller", json=said).json()
            told = stands["decisions"][0]["reason"]
            if reason:
                assert reason in told, said
            else:  # it looks again, or has already, and a person has to apply what it found
                assert re.search(r"looks again|intentctl apply", told), (said, told)
            assert not stands["overrides"] or stands["paused"], said


def test_a_pin_keeps_what_runs_over_a_restart_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, ACTS) as (service, http):
        assert http.post("/v1/controller", json={"pinned_s": 60}).json()["pin"]["until"]
        assert http.post("/v1/controller", json={"pinned": True}).json()["pin"] == {
            "by": "anybody",
            "until": None,
        }
        (why,) = activate(http, kept(http, ONE_DEVICE)).json()["against"]
        assert why.startswith("anybody pinned what runs; it is kept until `intentctl resume`, and this asks for")
        service.ticked(lambda: "anybody pinned what runs" in decision(http)["reason"], "the pin")
    with served(tmp_path, ACTS) as (service, http):
        service.ticked(lambda: "anybody pinned what runs" in decision(http)["reason"], "the pin after a restart")
        assert shape(http) == "PP2"
        http.post("/v1/controller", json={"pinned": True, "pinned_s": 1})
        an_hour_later(monkeypatch)
        service.ticked(lambda: shape(http) == "1x1", "the switch when the pin has ended")
        assert http.get("/v1/controller").json()["pin"] is None


def test_a_roll_back_is_not_held_up_by_what_was_applied_lately(tmp_path: Path, monkeypatch) -> None:
    def worse(state: ControlState, rules: Rules) -> Decision:
        done = [one for one in state.past if one.is_done]
        if len(done) != 1 or state.is_switching:
            return decide(state, rules) if not done else Decision("wait", "")
        return Decision("switch", "it made it worse", done[0].source, "roll_back")

    monkeypatch.setattr("service.promises.controller.decide", worse)
    with served(tmp_path, ACTS.replace("per_hour: 20", "per_hour: 1")) as (service, http):
        promised(http, "as few GPUs as possible")
        service.ticked(lambda: len(outcomes(http)) == 2, "the way back")
        assert [one["cause"] for one in outcomes(http)] == ["window", "roll_back"]


def test_a_policy_that_lets_nothing_happen_says_so(tmp_path: Path) -> None:
    with served(tmp_path) as (_, http):
        refused = http.post("/v1/controller", json={"mode": "act"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_approved")
        assert "approval" in refused.json()["detail"]
        assert http.get("/v1/controller").json()["mode"] == "recommend"
    with served(tmp_path / "nobody", DEPLOYMENT + "approval: {by: nobody}\n") as (_, http):
        refused = activate(http, kept(http, ONE_DEVICE))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_approved")


def recently(http: httpx.Client) -> list[dict]:
    (found,) = http.get("/v1/load/recent", params={"seconds": 300, "step_s": 60}).json()["models"]
    assert (found["model"], found["step_s"]) == ("counting", 60)
    return list(found["moments"])


def test_what_was_asked_is_told_step_by_step_kept_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.control.control_loop.LOAD_S", 0.0)
    with served(tmp_path, DEPLOYMENT + QUICK) as (service, http):
        intent_id = promised(http, "keep P99 TTFT < 60s")
        service.ticked(lambda: recently(http)[-1]["streams"] is not None, "a look")
        for _ in range(3):
            http.post("/openai/v1/completions", json={"model": "counting", "prompt": "ab", "max_tokens": 3})
        service.ticked(lambda: any((one["tokens_s"] or 0) > 0 for one in recently(http)), "tokens")
        ended = [one for one in recently(http) if one["ttft_s"]["p99"] is not None]
        assert 1 <= len(ended) <= 2  # a minute may begin meanwhile
        assert all(one["rate_rps"] > 0 and one["e2e_s"]["p50"] >= one["ttft_s"]["p50"] for one in ended)
        for wrong in ({"seconds": 901}, {"step_s": 0.5}, {"seconds": "nan"}, {"hours": 1}):
            assert http.get("/v1/load/recent", params=wrong).status_code == 422

        def kept() -> list[dict]:
            loads = [one["tenants"][0] for one in http.get("/v1/load/history").json()["loads"]]
            return loads if sum(one["requests"] for one in loads) == 3 else []

        loads = service.ticked(kept, "the loads")
        assert {one["output_tokens"] for one in loads if one["requests"]} == {3}

        def counted() -> list[dict]:
            return [one for one in http.get("/v1/report").json()["attainment"] if one["total"] == 3]

        (found,) = service.ticked(counted, "three requests")
        assert (found["met"], found["share"], found["needed"]) == (3, 1.0, 0.99)
        goal = f'goal="{found["words"]}",intent_id="{intent_id}",model_name="counting",window="always"'
        assert f"intentctl_goal_budget_left{{{goal}}} 1.0" in http.get("/metrics").text
        http.post(f"/v1/intents/{intent_id}:retire")
        http.get("/v1/report")
        assert goal not in http.get("/metrics").text
        (load,) = http.get("/v1/load").json()["models"]
        assert load["tenants"][0]["requests"] == 3


def test_an_intent_is_kept_and_its_plans_are_applied_in_one_go(http: httpx.Client) -> None:
    first, other = kept(http, ONE_DEVICE), kept(http, "keep P99 TTFT < 2s at peak")
    plan = http.post("/v1/plans", json={"intent_id": first}).json()["plan"]
    answer = http.post(f"/v1/intents/{other}:keep", json={"plans": [plan["id"]]})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        f"{plan['id']} is no plan of {other}; nothing was done",
    )
    assert http.get("/v1/promises").json()["promises"] == []
    answer = http.post(f"/v1/intents/{first}:keep", json={"plans": [plan["id"]]}).json()
    assert (answer["promise"]["intent_id"], answer["promise"]["state"]) == (first, "active")
    assert ([one["plan_id"] for one in answer["operations"]], answer["not_switched"]) == ([plan["id"]], {})
    again = http.post(f"/v1/intents/{first}:keep", json={"plans": [plan["id"]]}).json()
    assert again["operations"] == []
    assert again["not_switched"][plan["id"]]["code"] in {"already_applied", "switch_in_progress"}


@pytest.mark.parametrize(
    ("fault", "code"),
    [(EngineLostError("a rank ended"), "engine_lost"), (StoreError("the store did not answer"), "store")],
)
def test_what_keeps_a_plan_from_being_applied_is_told_beside_the_promise_that_stands(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, fault: Exception, code: str
) -> None:
    intent_id = kept(http, ONE_DEVICE)
    plan = http.post("/v1/plans", json={"intent_id": intent_id}).json()["plan"]

    async def broken(*_: object) -> None:
        raise fault

    monkeypatch.setattr(Serving, "apply", broken)
    answer = http.post(f"/v1/intents/{intent_id}:keep", json={"plans": [plan["id"]]})
    assert answer.status_code == 201, answer.text
    assert (answer.json()["promise"]["state"], answer.json()["not_switched"][plan["id"]]["code"]) == ("active", code)


def test_a_promise_of_replicas_is_kept_and_comes_back_after_a_drain(tmp_path):
    with served(tmp_path, ACTS) as (service, http):
        promised(http, "survive the loss of one GPU")
        service.ticked(lambda: " | " in shape(http), "two replicas")
        service.ticked(lambda: outcomes(http)[0]["verdict"], "a verdict")
        devices = http.get("/v1/topology").json()["topology"]["devices"]
        assert http.post("/v1/drains", json={"what": f"gpu-{devices[0]}"}).status_code == 202
        service.settle()
        service.ticked(lambda: " | " in shape(http), "two replicas on the other devices")
        assert devices[0] not in http.get("/v1/topology").json()["topology"]["devices"]
