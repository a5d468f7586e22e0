"""The way back from an operation, while what it led to still runs."""

import httpx
import pytest

from service.documents.problems import Code
from service.undo import Known, undoable
from tests.runtime.scripted import Script
from tests.service.examples import operation, plan
from tests.service.scripted import DEPLOYMENT, ScriptedService

DONE = operation(end_s=9.0)
KNOWN = Known(plan(), led_to=5, runs=5, under_way=None)


def switched(service: ScriptedService, http: httpx.Client, target: str) -> str:
    plan = http.post("/v1/plans", json={"target": target}).json()["plan"]
    return applied(service, http, plan["id"])


def applied(service: ScriptedService, http: httpx.Client, plan_id: str) -> str:
    started = http.post(f"/v1/plans/{plan_id}:apply")
    assert started.status_code == 202, started.text
    service.call(service.parts.servings["counting"].settled())
    return started.json()["id"]


def client_of(service: ScriptedService) -> httpx.Client:
    return httpx.Client(base_url=service.url, timeout=30, trust_env=False)


@pytest.mark.slow
def test_an_operation_is_undone_by_a_plan_that_is_applied_like_any_other(tmp_path):
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        before = http.get("/v1/topology").json()["topology"]["text"]
        first = switched(service, http, "tp2")
        assert http.get(f"/v1/operations/{first}/undo").json() == {
            "operation_id": first, "possible": True, "target": before, "why": None, "instead": None,
        }  # fmt: skip
        answer = http.post(f"/v1/operations/{first}:undo")
        back = answer.json()["plan"]
        assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/plans/{back['id']}")
        assert back["target"]["text"] == before
        assert back["generation"] == http.get("/v1/topology").json()["generation"]
        assert answer.json()["intent"]["text"] == f"undo {first}: run it as {before}"
        assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"

        second = applied(service, http, back["id"])
        assert http.get("/v1/topology").json()["topology"]["text"] == before
        assert http.get(f"/v1/operations/{second}/undo").json()["possible"]
        late = http.post(f"/v1/operations/{first}:undo").json()
        assert late["code"] == "cannot_undo"
        assert f"intentctl plan --target '{before}'" in late["detail"]


@pytest.mark.slow
def test_a_plan_to_undo_is_stale_once_something_else_runs(tmp_path):
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        first = switched(service, http, "tp2")
        back = http.post(f"/v1/operations/{first}:undo").json()["plan"]
        switched(service, http, "1x1")
        assert http.post(f"/v1/plans/{back['id']}:apply").json()["code"] == "stale_plan"


@pytest.mark.slow
def test_what_a_restart_took_away_is_said_with_the_way_that_is_left(tmp_path):
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        first = switched(service, http, "tp2")
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        problem = http.post(f"/v1/operations/{first}:undo").json()
        assert (problem["code"], "or a restart" in problem["detail"]) == ("cannot_undo", True)
        target = problem["detail"].split("--target '")[1].rstrip("'")
        assert http.post("/v1/plans", json={"target": target}).status_code == 201


@pytest.mark.slow
def test_a_switch_that_was_given_up_has_nothing_to_undo(tmp_path):
    from runtime.models import Phase

    script = Script(lost_while=Phase.WARMING)
    with ScriptedService(tmp_path, script=script) as service, client_of(service) as http:
        failed = switched(service, http, "tp2")
        problem = http.post(f"/v1/operations/{failed}:undo").json()
        assert (problem["code"], problem["status"]) == (Code.CANNOT_UNDO, 409)
        assert "changed nothing" in problem["detail"]
        assert http.post("/v1/operations/op-nobody:undo").json()["code"] == "not_found"


@pytest.mark.slow
def test_a_source_that_the_deployment_no_longer_allows_is_no_way_back(tmp_path):
    with ScriptedService(tmp_path) as service, client_of(service) as http:
        first = switched(service, http, "tp2")
        place = service.parts.deployment.limits
        object.__setattr__(place, "allowed_pp", (1,))
        problem = http.post(f"/v1/operations/{first}:undo").json()
        assert (problem["code"], "the limits allow PP 1" in problem["detail"]) == ("cannot_undo", True)
    assert "allowed_pp" in DEPLOYMENT


@pytest.mark.parametrize(
    ("case", "known", "barred", "why"),
    [
        (operation(), KNOWN, "", "has not ended"),
        (operation().failed(Code.INTERNAL, "a bug"), KNOWN, "", "has ended as internal and changed nothing"),
        (DONE, Known(plan(), 5, 5, "op-2"), "", "operation op-2 is switching"),
        (DONE, Known(plan().model_copy(update={"now": None}), 5, 5, None), "", "nothing ran before"),
        (DONE, Known(plan(), 5, 6, None), "", "led to generation 5, but 6 runs now"),
        (DONE, Known(plan(), None, 6, None), "", "a generation that was not kept"),
        (DONE, KNOWN, "device 1 is gone", "may not run: device 1 is gone"),
    ],
)
def test_why_an_operation_cannot_be_undone(case, known, barred, why):
    found = undoable(case, known, barred)
    assert not found.possible
    assert why in found.why
    assert found.instead


def test_what_can_be_undone_says_where_that_leads():
    found = undoable(DONE, KNOWN, "")
    assert (found.possible, found.target, found.why) == (True, plan().now.text, None)
