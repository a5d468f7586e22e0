"""Who said an intent, who made a plan, and what was said to it, over HTTP with people of each role."""

import time
from collections.abc import Iterator
from importlib.metadata import version

import httpx
import pytest

from service.access.rights import Right
from tests.service.access.test_consent import TEXT, made_plan, person, settled
from tests.service.scripted import ScriptedService

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[ScriptedService]:
    with ScriptedService(tmp_path_factory.mktemp("service"), TEXT) as running:
        yield running


@pytest.fixture(scope="module")
def ada(service) -> Iterator[httpx.Client]:
    with person(service, "ada", "operator") as client:
        yield client


@pytest.fixture(scope="module")
def grace(service) -> Iterator[httpx.Client]:
    with person(service, "grace", "approver") as client:
        yield client


def test_an_intent_says_in_each_version_whose_key_said_it(ada, grace):
    made = ada.post("/v1/intents", json={"text": "keep P99 TTFT < 2s at peak"}).json()
    path = f"/v1/intents/{made['id']}"
    later = grace.post(f"{path}:amend", json={"text": "make that 1 s"}).json()
    assert (made["said_by"], later["said_by"]) == ("ada", "grace")
    assert ada.get(path, params={"version": 1}).json()["said_by"] == "ada"
    assert {one["id"]: one["said_by"] for one in ada.get("/v1/intents").json()["intents"]}[
        made["id"]
    ] == "grace"


def test_an_intent_that_is_said_for_its_plan_has_who_said_it(ada):
    plan = made_plan(ada)
    said = ada.get(f"/v1/intents/{plan['intent_id']}").json()
    assert said["said_by"] == "ada"
    listed = ada.get("/v1/plans", params={"intent": plan["intent_id"]}).json()["plans"]
    assert [one["id"] for one in listed] == [plan["id"]]
    assert ada.get("/v1/plans", params={"intent": "intent-0"}).json()["plans"] == []


def test_everybody_who_may_look_learns_who_they_are(service, ada):
    me = ada.get("/v1/me").json()
    assert (me["name"], me["role"], me["timezone"]) == ("ada", "operator", service.parts.deployment.timezone)
    assert ada.headers["Authorization"].split("_")[1] == me["key"]
    assert me["rights"] == ["look", "say", "apply", "infer"]
    assert (abs(me["now_s"] - time.time()) < 60, me["version"]) == (True, version("intentctl"))


def test_where_no_keys_are_asked_for_everybody_is_an_administrator(tmp_path):
    with (
        ScriptedService(tmp_path) as service,
        httpx.Client(base_url=service.url, timeout=60, trust_env=False) as http,
    ):
        me = http.get("/v1/me").json()
    assert (me["name"], me["role"], me["key"]) == ("anybody", "admin", "")
    assert me["rights"] == [right.value for right in Right]


def test_a_plan_stands_as_what_was_said_and_done_to_it_leaves_it(ada, grace):
    made = made_plan(ada)
    path = f"/v1/plans/{made['id']}"
    new = ada.get(f"{path}/standing").json()
    assert (new["plan_id"], new["made_by"], new["approval"], new["applied_by"]) == (
        made["id"],
        "ada",
        None,
        None,
    )
    assert (abs(new["made_s"] - time.time()) < 60, new["generation"]) == (True, made["generation"])
    approved = grace.post(f"{path}:approve", json={"digest": made["digest"]}).json()
    assert ada.get(f"{path}/standing").json()["approval"] == approved
    operation = ada.post(f"{path}:apply").json()["id"]
    assert settled(ada, operation)["phase"] == "done"
    after = ada.get(f"{path}/standing").json()
    assert (after["applied_by"], after["approval"]) == (operation, approved)
    assert after["generation"] > made["generation"]


def test_a_yes_that_is_over_does_not_hold_and_is_listed(ada, grace):
    made = made_plan(ada)
    path = f"/v1/plans/{made['id']}"
    grace.post(f"{path}:approve", json={"digest": made["digest"], "minutes": 0.0001})
    time.sleep(0.01)
    assert ada.get(f"{path}/standing").json()["approval"] is None
    assert ada.get("/v1/approvals").json()["approvals"][0]["plan_id"] == made["id"]


def test_a_plan_that_is_not_there_does_not_stand(ada):
    answer = ada.get("/v1/plans/plan-0/standing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_approvals_are_listed_in_pages_newest_first(ada, grace):
    said = []
    for verdict in ("reject", "approve", "reject"):
        made = made_plan(ada)
        body = {"digest": made["digest"]} if verdict == "approve" else {}
        said.append(grace.post(f"/v1/plans/{made['id']}:{verdict}", json=body).json())
    first = ada.get("/v1/approvals", params={"limit": 2}).json()
    assert first["approvals"] == [said[2], said[1]]
    second = ada.get("/v1/approvals", params={"limit": 2, "after": first["next"]}).json()
    assert second["approvals"][0] == said[0]
    assert ada.get("/v1/approvals", params={"limit": 0}).status_code == 422
