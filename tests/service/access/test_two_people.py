"""What one person may not do alone, over HTTP; a freeze that an approver alone lifts; approvals of people who left."""

import time

import httpx
import pytest

from service.documents.access import Role
from tests.service.asking import end_of, new_plan, problem
from tests.service.scripted import DEPLOYMENT, QUICK, ScriptedService

pytestmark = pytest.mark.slow

TWO = DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 1000000}\napproval: {by: another}")
PROMISE = {"text": "keep P99 TTFT < 900s at peak"}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("two"), TWO) as service:
        yield service


@pytest.fixture(scope="module")
def bob(two):
    with two.person("approver", "bob") as client:
        yield client


@pytest.fixture(scope="module")
def eve(two):
    with two.person("approver", "eve") as client:
        yield client


def retired(client: httpx.Client, intent_id: str) -> None:
    assert client.post(f"/v1/intents/{intent_id}:retire").status_code == 200


def test_who_said_an_intent_for_its_plan_does_not_activate_it(bob, eve):
    made = bob.post("/v1/plans", json=PROMISE).json()["plan"]["intent_id"]
    refused = problem(bob.post(f"/v1/intents/{made}:activate", json={}), 403, "not_approved")
    said = f"{made} was not activated: only bob would have acted (said {made}, activated it); another"
    assert said in refused["detail"]
    assert eve.post(f"/v1/intents/{made}:activate", json={}).status_code == 201
    retired(bob, made)


def test_who_amends_somebodys_intent_does_not_activate_it_and_who_said_it_first_does(bob, eve):
    made = bob.post("/v1/intents", json=PROMISE).json()["id"]
    eve.post(f"/v1/intents/{made}:amend", json={"text": "make that 800 s"})
    assert (
        "only eve would have acted (said"
        in problem(eve.post(f"/v1/intents/{made}:activate", json={}), 403, "not_approved")["detail"]
    )
    assert bob.post(f"/v1/intents/{made}:activate", json={}).status_code == 201
    retired(bob, made)


def test_two_keys_of_a_person_are_one_person(two, bob):
    with two.client(two.admin_key) as admin:
        key = admin.post("/v1/keys", json={"name": "bob-phone", "person": "Bob", "role": "approver"}).json()
        again = problem(admin.post("/v1/keys", json={"name": "BOB-phone", "role": "viewer"}), 409, "conflict")
        assert f"the key {key['prefix']} has the name 'bob-phone'; name this one otherwise" in again["detail"]
        admin.post(f"/v1/keys/{key['prefix']}:revoke")
        key = admin.post("/v1/keys", json={"name": "bob-phone", "person": "bob", "role": "approver"}).json()
        made = new_plan(bob)
        with two.client(key["key"]) as phone:
            assert (key["person"], phone.get("/v1/me").json()["name"]) == ("bob", "bob")
            for act, body in ((":apply", None), (":approve", {"digest": made["digest"]})):
                refused = problem(phone.post(f"/v1/plans/{made['id']}{act}", json=body), 403, "not_approved")
                assert "only bob would have acted (said" in refused["detail"]


def test_a_freeze_is_lifted_by_who_may_approve_alone_and_the_audit_names_them(two, bob, eve):
    frozen = bob.post("/v1/intents", json={"text": "freeze reconfiguration at peak"}).json()["id"]
    assert eve.post(f"/v1/intents/{frozen}:activate", json={}).status_code == 201
    made, lifted = new_plan(bob), {"acknowledge": ["reconfiguration_limited"]}
    path = f"/v1/plans/{made['id']}"
    assert eve.post(f"{path}:approve", json={"digest": made["digest"]}).status_code == 201
    with two.person("operator", "oscar") as oscar:
        problem(oscar.post(f"{path}:apply"), 409, "reconfiguration_limited")
        problem(oscar.post(f"{path}:apply", json=lifted), 409, "reconfiguration_limited")
    applied = bob.post(f"{path}:apply", json=lifted)
    assert applied.status_code == 202, applied.text
    assert end_of(bob, applied.json()["id"])["phase"] == "done"
    entry = bob.get("/v1/audit", params={"act": "plan.apply"}).json()["entries"][0]
    assert (entry["who"], entry["after"]["approved_by"]) == ("bob", "eve")
    assert entry["after"]["acknowledged"] == {"reconfiguration_limited": "bob"}
    retired(eve, frozen)


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_an_approval_ends_with_the_last_key_of_its_person_that_may_approve(two, bob, how):
    keys, who = two.parts.access.keys, f"gone-{how}"
    ends_s = time.time() + 3600
    whole, key = keys.create(who, Role.APPROVER, None, "test", ends_s)
    keys.create(f"{who}-too", Role.OPERATOR, None, "test", person=who)
    made = new_plan(bob)
    path = f"/v1/plans/{made['id']}"
    approvals = two.parts.access.approvals
    with two.client(whole) as gone, two.person("operator", "olga") as olga:
        assert gone.post(f"{path}:approve", json={"digest": made["digest"], "minutes": 600}).status_code == 201
        if how == "expired":
            assert approvals.of(made["id"], ends_s - 1).by == who
            assert approvals.of(made["id"], ends_s) is None
            return
        keys.revoke(key.prefix)
        refused = problem(olga.post(f"{path}:apply"), 403, "not_approved")
        assert (
            f"{who} approved it, and has no key any more that may (revoked or expired); olga may not"
            in refused["detail"]
        )
        keys.create(who, Role.APPROVER, None, "test")
        assert olga.get(f"{path}/standing").json()["approval"] is None, "what has ended stays so"
    with two.person("approver", "eve") as eve:
        assert eve.post(f"{path}:approve", json={"digest": made["digest"]}).json()["by"] == "eve"


def test_a_key_that_takes_another_ones_place_in_time_keeps_its_persons_approval(two, bob):
    keys = two.parts.access.keys
    whole, old = keys.create("rota", Role.APPROVER, None, "test")
    made = new_plan(bob)
    with two.client(whole) as rota:
        rota.post(f"/v1/plans/{made['id']}:approve", json={"digest": made["digest"]})
    keys.create("rota-2", Role.APPROVER, None, "test", person="rota")
    keys.revoke(old.prefix)
    assert bob.get(f"/v1/plans/{made['id']}/standing").json()["approval"]["by"] == "rota"


def test_the_controllers_plan_needs_another_than_who_said_its_intents(tmp_path):
    with (
        ScriptedService(tmp_path, TWO + QUICK) as service,
        service.person("approver", "bob") as bob,
        service.person("approver", "eve") as eve,
    ):
        said = bob.post("/v1/intents", json={"text": "use at most 1 GPU"}).json()["id"]
        assert eve.post(f"/v1/intents/{said}:activate", json={}).status_code == 201
        plan_id = service.ticked(lambda: eve.get("/v1/controller").json()["decisions"][0]["plan_id"], "a plan")
        refused = problem(bob.post(f"/v1/plans/{plan_id}:apply"), 403, "not_approved")
        assert f"only bob would have acted (said {said}, applied the plan); another person has to" in refused["detail"]
        assert eve.post(f"/v1/plans/{plan_id}:apply").status_code == 202


def test_the_controller_acts_within_policy_for_what_another_activated(tmp_path):
    within = TWO.replace("by: another", "by: another, within: {per_hour: 20}") + QUICK + "mode: act\n"
    with (
        ScriptedService(tmp_path, within) as service,
        service.person("approver", "bob") as bob,
        service.person("approver", "eve") as eve,
    ):
        refused = problem(bob.post(f"/v1/plans/{new_plan(bob)['id']}:apply"), 403, "not_approved")
        assert "only bob would have acted (said" in refused["detail"]
        said = bob.post("/v1/intents", json={"text": "use at most 1 GPU"}).json()["id"]
        assert eve.post(f"/v1/intents/{said}:activate", json={}).status_code == 201
        service.ticked(lambda: eve.get("/v1/topology").json()["topology"]["shape"] == "1x1", "the switch")
        entry = eve.get("/v1/audit", params={"act": "plan.apply"}).json()["entries"][0]
        assert (entry["who"], entry["after"]["approved_by"]) == ("the controller", "policy")
