"""Who said an intent, who made a plan, and what was said to it, over HTTP with people of each role."""

from collections.abc import Iterator

import httpx
import pytest

from tests.service.access.test_consent import TEXT, made_plan, person
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
