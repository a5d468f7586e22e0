"""Who said an intent, who made a plan, and what was said to it, over HTTP with people of each role."""

import time
from importlib.metadata import version

import pytest

from service.documents.access import Right
from tests.service.asking import end_of, new_plan

pytestmark = pytest.mark.slow


def test_an_intent_says_in_each_version_whose_key_said_it(ada, grace):
    made = ada.post("/v1/intents", json={"text": "keep P99 TTFT < 2s at peak"}).json()
    path = f"/v1/intents/{made['id']}"
    later = grace.post(f"{path}:amend", json={"text": "make that 1 s"}).json()
    assert (made["said_by"], later["said_by"]) == ("ada", "grace")
    assert ada.get(path, params={"version": 1}).json()["said_by"] == "ada"
    assert {one["id"]: one["said_by"] for one in ada.get("/v1/intents").json()["intents"]}[made["id"]] == "grace"


def test_an_intent_that_is_said_for_its_plan_has_who_said_it(ada):
    plan = new_plan(ada)
    said = ada.get(f"/v1/intents/{plan['intent_id']}").json()
    assert said["said_by"] == "ada"
    listed = ada.get("/v1/plans", params={"intent": plan["intent_id"]}).json()["plans"]
    assert [one["id"] for one in listed] == [plan["id"]]
    assert ada.get("/v1/plans", params={"intent": "intent-0"}).json()["plans"] == []


def test_everybody_who_may_look_learns_who_they_are(keyed, ada):
    me = ada.get("/v1/me").json()
    assert (me["name"], me["role"], me["timezone"]) == ("ada", "operator", keyed.parts.deployment.timezone)
    assert ada.headers["Authorization"].split("_")[1] == me["key"]
    assert me["rights"] == ["look", "metrics", "say", "apply", "infer"]
    assert (abs(me["now_s"] - time.time()) < 60, me["version"]) == (True, version("intentctl"))


def test_where_no_keys_are_asked_for_everybody_is_an_administrator(asked):
    me = asked.get("/v1/me").json()
    assert (me["name"], me["role"], me["key"]) == ("anybody", "admin", "")
    assert me["rights"] == [right.value for right in Right]


def test_a_plan_stands_as_what_was_said_and_done_to_it_leaves_it(ada, grace):
    made = new_plan(ada)
    path = f"/v1/plans/{made['id']}"
    new = ada.get(f"{path}/standing").json()
    assert new == new | {"plan_id": made["id"], "made_by": "ada", "approval": None, "applied_by": None}
    assert (abs(new["made_s"] - time.time()) < 60, new["generation"]) == (True, made["generation"])
    approved = grace.post(f"{path}:approve", json={"digest": made["digest"]}).json()
    assert ada.get(f"{path}/standing").json()["approval"] == approved
    operation = ada.post(f"{path}:apply").json()["id"]
    assert end_of(ada, operation)["phase"] == "done"
    after = ada.get(f"{path}/standing").json()
    assert (after["applied_by"], after["approval"]) == (operation, approved)
    assert after["generation"] > made["generation"]


def test_a_yes_that_is_over_does_not_hold_and_is_listed(ada, grace):
    grace.post(f"/v1/plans/{new_plan(ada)['id']}:reject", json={})
    made = new_plan(ada)
    path = f"/v1/plans/{made['id']}"
    grace.post(f"{path}:approve", json={"digest": made["digest"], "minutes": 0.0001})
    time.sleep(0.01)
    assert ada.get(f"{path}/standing").json()["approval"] is None
    first = ada.get("/v1/approvals", params={"limit": 1}).json()
    assert [one["plan_id"] for one in first["approvals"]] == [made["id"]]
    rest = ada.get("/v1/approvals", params={"after": first["next"]}).json()["approvals"]
    assert rest
    assert made["id"] not in {one["plan_id"] for one in rest}
    assert ada.get("/v1/approvals", params={"limit": 0}).status_code == 422


def test_a_plan_that_is_not_there_does_not_stand(ada):
    answer = ada.get("/v1/plans/plan-0/standing")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
