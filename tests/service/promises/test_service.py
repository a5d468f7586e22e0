"""Promises of a running service: activated, contradicted, kept, overridden, over a restart."""

import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.service.scripted import DEPLOYMENT, ScriptedService, elsewhen

QUICK = "promises: {tick_s: 0.1, probation_s: 0.2, dwell_s: 0.5, calm_s: 0.5}\n"
MAY = "approval: {by: person, within: {per_hour: 20}}\n"
ACTS = DEPLOYMENT + QUICK + MAY + "mode: act\n"
ONE_DEVICE = "use at most 1 GPU"
FREEZE = "no reconfiguration for the next two hours"

pytestmark = pytest.mark.slow


def client_of(service: ScriptedService) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=60, trust_env=False)


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


def until(found: Callable[[], object], what: str) -> object:
    """What is found within a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if value := found():
            return value
    raise AssertionError(f"{what} did not come")


def shape(http: httpx.Client) -> str:
    return str(http.get("/v1/topology").json()["topology"]["shape"])


def decision(http: httpx.Client) -> dict:
    return dict(http.get("/v1/controller").json()["decisions"][0])


def outcomes(http: httpx.Client) -> list[dict]:
    return list(http.get("/v1/report").json()["switches"])


def test_what_is_activated_is_promised_audited_and_planned_for(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        intent_id = promised(http, "keep P99 TTFT < 2s at peak")
        (found,) = http.get("/v1/promises").json()["promises"]
        assert (found["intent_id"], found["state"], found["activated_by"]) == (intent_id, "active", "anybody")
        assert [one["words"] for one in found["goals"]] == ["p99 TTFT <= 2 s"]
        (segment,) = http.get("/v1/agenda", params={"hours": 5}).json()["segments"]
        assert [one["words"] for one in segment["goals"]] == ["p99 TTFT <= 2 s"]
        assert (segment["topology"]["shape"], segment["changes"]) == ("PP2", False)
        entries = http.get("/v1/audit").json()["entries"]
        assert (entries[0]["act"], entries[0]["subject"]) == ("intent.activate", intent_id)


def test_a_preview_keeps_nothing(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
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


@pytest.mark.parametrize(
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
def test_what_cannot_be_promised_says_why(
    tmp_path: Path, text: str, status: int, code: str, words: str
) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        answer = activate(http, kept(http, text))
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert words in answer.json()["detail"]
        assert http.get("/v1/promises").json()["promises"] == []


def test_what_nothing_holds_at_another_time_is_refused_with_that_time_and_what_could_be_held(
    tmp_path: Path,
) -> None:
    text = DEPLOYMENT.replace("{peak: always}", elsewhen())
    with ScriptedService(tmp_path, text) as service, client_of(service) as http:
        answer = activate(http, kept(http, "keep P99 TTFT < 2 ms at peak")).json()
        assert "09:00 (peak) this cannot be held" in answer["detail"]
        assert "Feasible would be" in answer["detail"]


def test_a_contradiction_is_named_and_may_be_replaced(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
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


def test_a_freeze_binds_whoever_applies_until_an_approver_overrides_it(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
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
        assert applied["after"]["acknowledged"] == ["reconfiguration_limited"]


def test_one_switch_an_hour_is_one_switch_an_hour(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        promised(http, "at most 1 reconfiguration per hour")
        first = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        assert http.post(f"/v1/plans/{first['id']}:apply").status_code == 202
        until(lambda: shape(http) == "TP2" and not http.get("/v1/topology").json()["operation"], "the switch")
        second = http.post("/v1/plans", json={"target": "pp2"}).json()["plan"]
        assert http.post(f"/v1/plans/{second['id']}:apply").json()["code"] == "reconfiguration_limited"


def test_a_time_that_is_over_ends_a_promise(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, DEPLOYMENT + QUICK) as service, client_of(service) as http:
        promised(http, "no reconfiguration for the next 2 seconds")
        (found,) = until(
            lambda: [one for one in http.get("/v1/promises").json()["promises"] if one["state"] == "expired"],
            "its end",
        )  # type: ignore[misc]
        assert found["why"] == "its time is over"


def test_the_controller_recommends_and_a_person_applies(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, DEPLOYMENT + QUICK) as service, client_of(service) as http:
        promised(http, ONE_DEVICE)
        plan_id = until(lambda: decision(http)["plan_id"], "a plan")
        found = decision(http)
        assert (found["kind"], found["cause"]) == ("hold", "window")
        assert "a person has to: intentctl apply" in found["reason"]
        assert shape(http) == "PP2"
        assert http.get(f"/v1/plans/{plan_id}").json()["kind"] == "promise"
        assert http.post(f"/v1/plans/{plan_id}:apply").status_code == 202
        (outcome,) = until(lambda: [one for one in outcomes(http) if one["verdict"]], "a verdict")  # type: ignore[misc]
        assert (outcome["cause"], outcome["ended"], outcome["verdict"]) == ("window", "done", "unknown")
        assert http.get("/v1/controller").json()["overrides"] == []


def test_the_controller_acts_within_policy_and_leaves_an_override_alone(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, ACTS) as service, client_of(service) as http:
        promised(http, ONE_DEVICE)
        until(lambda: shape(http) == "1x1", "the switch")
        assert http.get("/v1/operations").json()["operations"][0]["applied_by"] == "the controller"
        until(lambda: not http.get("/v1/topology").json()["operation"], "its end")
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        assert http.post(f"/v1/plans/{plan['id']}:apply").status_code == 202
        (override,) = until(lambda: http.get("/v1/controller").json()["overrides"], "the override")  # type: ignore[misc]
        assert (override["by"], override["until"]) == ("anybody", None)
        assert "left alone" in until(
            lambda: decision(http)["kind"] == "hold" and decision(http)["reason"], "why"
        )  # type: ignore[operator]
        assert shape(http) == "TP2"
    with ScriptedService(tmp_path, ACTS) as service, client_of(service) as http:
        until(lambda: http.get("/v1/controller").json()["overrides"], "the override after a restart")
        assert (shape(http), http.get("/v1/promises").json()["promises"][0]["state"]) == ("TP2", "active")
        http.post("/v1/controller", json={"paused": False})
        until(lambda: shape(http) == "1x1", "the way back")


def test_modes_and_a_pause_survive_a_restart(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, DEPLOYMENT + MAY) as service, client_of(service) as http:
        assert http.get("/v1/controller").json()["mode"] == "recommend"
        http.post("/v1/controller", json={"mode": "act", "paused": True})
    with ScriptedService(tmp_path, DEPLOYMENT + MAY) as service, client_of(service) as http:
        found = http.get("/v1/controller").json()
        assert (found["mode"], found["paused"]) == ("act", True)


def test_a_policy_that_lets_nothing_happen_says_so(tmp_path: Path) -> None:
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        refused = http.post("/v1/controller", json={"mode": "act"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_approved")
        assert "approval" in refused.json()["detail"]
        assert http.get("/v1/controller").json()["mode"] == "recommend"
    with (
        ScriptedService(tmp_path / "nobody", DEPLOYMENT + "approval: {by: nobody}\n") as service,
        client_of(service) as http,
    ):
        refused = activate(http, kept(http, ONE_DEVICE))
        assert (refused.status_code, refused.json()["code"]) == (403, "not_approved")


def test_what_was_asked_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.promises.runner.LOAD_S", 0.5)
    with ScriptedService(tmp_path, DEPLOYMENT + QUICK) as service, client_of(service) as http:
        http.post("/openai/v1/completions", json={"model": "counting", "prompt": "ab", "max_tokens": 3})

        def asked() -> list[dict]:
            loads = http.get("/v1/load/history").json()["loads"]
            return [one for one in loads if one["tenants"][0]["requests"]]

        (kept,) = until(asked, "the load")  # type: ignore[misc]
        assert kept["tenants"][0]["output_tokens"] == 3


def test_the_last_minutes_are_told_step_by_step(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, DEPLOYMENT + QUICK) as service, client_of(service) as http:
        until(lambda: recently(http)[-1]["streams"] is not None, "a look")
        http.post("/openai/v1/completions", json={"model": "counting", "prompt": "ab", "max_tokens": 3})
        until(lambda: any((one["tokens_s"] or 0) > 0 for one in recently(http)), "tokens")
        served = [one for one in recently(http) if one["ttft_s"]["p99"] is not None]
        assert len(served) == 1
        assert served[0]["rate_rps"] > 0
        assert served[0]["e2e_s"]["p50"] >= served[0]["ttft_s"]["p50"]
        for wrong in ({"seconds": 901}, {"step_s": 0.5}, {"seconds": "nan"}, {"hours": 1}):
            assert http.get("/v1/load/recent", params=wrong).status_code == 422


def recently(http: httpx.Client) -> list[dict]:
    (found,) = http.get("/v1/load/recent", params={"seconds": 300, "step_s": 60}).json()["models"]
    assert (found["model"], found["step_s"]) == ("counting", 60)
    return list(found["moments"])


def test_requests_are_counted_for_the_goals_that_hold(tmp_path: Path) -> None:
    with ScriptedService(tmp_path, DEPLOYMENT + QUICK) as service, client_of(service) as http:
        promised(http, "keep P99 TTFT < 60s")
        for _ in range(3):
            http.post("/openai/v1/completions", json={"model": "counting", "prompt": "ab", "max_tokens": 3})
        until(lambda: http.get("/v1/report").json()["attainment"], "a count")
        (counted,) = until(
            lambda: [one for one in http.get("/v1/report").json()["attainment"] if one["total"] == 3],
            "three requests",
        )  # type: ignore[misc]
        assert (counted["met"], counted["share"], counted["needed"]) == (3, 1.0, 0.99)
        (load,) = http.get("/v1/load").json()["models"]
        assert load["tenants"][0]["requests"] == 3
