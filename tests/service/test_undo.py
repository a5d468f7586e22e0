"""The way back from an operation, while what it led to still runs."""

from dataclasses import replace

import httpx
import pytest

from runtime.capabilities import Batching
from service.documents.problems import Code
from service.planning.undo import OperationFacts, undoable
from service.serving.restart import begin
from tests.rows import rows
from tests.service.asking import apply, end_of, problem, switched
from tests.service.examples import operation, plan, with_model
from tests.service.scripted import DEPLOYMENT, served

pytestmark = pytest.mark.slow

DONE = operation(end_s=9.0)
KNOWN = OperationFacts(plan(), instead="", under_way=None)


def refused(http: httpx.Client, operation_id: str) -> str:
    return problem(http.post(f"/v1/operations/{operation_id}:undo"), 409, "cannot_undo")["detail"]


def test_an_operation_is_undone_by_a_plan_that_is_applied_like_any_other(http, service):
    before = http.get("/v1/topology").json()["topology"]["text"]
    first = switched(http, target="tp2")["id"]
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

    limits = service.parts.deployment.limits
    allowed = limits.allowed_pp
    object.__setattr__(limits, "allowed_pp", (1,))
    assert "the limits allow PP 1" in refused(http, first)
    object.__setattr__(limits, "allowed_pp", allowed)

    second = end_of(http, apply(http, back))["id"]
    assert http.get("/v1/topology").json()["topology"]["text"] == before
    assert http.get(f"/v1/operations/{second}/undo").json()["possible"]
    assert f"intentctl plan --target '{before}'" in refused(http, first)
    problem(http.post("/v1/operations/op-nobody:undo"), 404, "not_found")


def test_how_steps_are_filled_is_applied_like_a_topology_and_comes_back_by_undo_and_after_a_restart(tmp_path):
    few = {"max_sequences": 2, "max_step_tokens": 64, "each": []}
    with served(tmp_path) as (service, http):
        before = http.get("/v1/topology").json()
        text = before["topology"]["text"]
        refused = http.post("/v1/plans", json={"target": "pp2", "batching": {**few, "max_sequences": 65}})
        assert "every running sequence has to fit a step" in problem(refused, 422, "infeasible")["detail"]
        plan = http.post("/v1/plans", json={"target": "pp2", "batching": few}).json()["plan"]
        assert (plan["target"]["text"], plan["batching"], plan["changes"]) == (text, few, True)
        assert plan["now_batching"] == before["batching"]
        assert plan["prediction"]["batch"] == 2
        done = end_of(http, apply(http, plan))
        assert (done["result"]["phase"], done["batching"]) == ("done", few)
        after = http.get("/v1/topology").json()
        assert (after["generation"], after["batching"]) == (before["generation"] + 1, few)
        assert after["topology"] == before["topology"]
        assert service.engine.capabilities.running == Batching(2, 64)
        (entry,) = http.get("/v1/audit", params={"act": "plan.apply"}).json()["entries"]
        assert entry["after"]["batching"] == "2 sequences at once, 64 tokens a step"
        assert "2 sequences at once" in service.parts.store.journal(done["id"])[-1].detail
        told = [event.data for event in service.parts.store.events(0, 100) if event.event == "topology"]
        assert told[-1].batching == Batching(2, 64)
        problem(http.post(f"/v1/plans/{plan['id']}:apply"), 409, "already_applied")
        again = http.post("/v1/plans", json={"target": "pp2", "batching": few}).json()["plan"]
        assert not again["changes"]
        problem(http.post(f"/v1/plans/{again['id']}:apply"), 409, "no_change")

        switched(http, target="tp2")  # says nothing of it
        assert http.get("/v1/topology").json()["batching"] == few
        back = end_of(http, apply(http, http.post("/v1/plans", json={"target": "pp2"}).json()["plan"]))
        assert back["batching"] == few
    with served(tmp_path) as (service, http):
        beginning = begin(service.parts.store, service.parts.deployment, service.parts.deployment.model())
        assert beginning.batching == Batching(2, 64)
        lower = replace(
            service.parts.deployment.model().engine.torch, max_running=1, closing_batch_tokens=16, max_batch_tokens=16
        )
        low = with_model(service.parts.deployment, engine=replace(service.parts.deployment.model().engine, torch=lower))
        assert begin(service.parts.store, low, low.model()).batching == Batching(1, 16)


def test_an_operation_on_steps_alone_is_undone(http):
    usual = http.get("/v1/topology").json()["batching"]
    few = {"max_sequences": 2, "max_step_tokens": 64, "each": []}
    plan = http.post("/v1/plans", json={"target": "pp2", "batching": few}).json()["plan"]
    operation = apply(http, plan)
    end_of(http, operation)
    back = http.post(f"/v1/operations/{operation}:undo").json()["plan"]
    assert (back["batching"], back["now_batching"], back["changes"]) == (usual, few, True)
    end_of(http, apply(http, back))
    assert http.get("/v1/topology").json()["batching"] == usual


def test_what_a_restart_restored_is_undone_and_what_it_took_away_is_said_with_the_way_that_is_left(tmp_path):
    with served(tmp_path) as (_, http):
        before = http.get("/v1/topology").json()["topology"]["text"]
        earlier = switched(http, target="CPU[0]")["id"]
        first = switched(http, target="tp2")["id"]
    with served(tmp_path) as (_, http):
        assert f"operation {first}" not in (said := refused(http, earlier))
        assert "the last that a switch committed before the restart" in said
        assert http.get(f"/v1/operations/{first}/undo").json()["target"] == "CPU[0]:0-8@fp32"
        assert http.post(f"/v1/operations/{first}:undo").status_code == 201
    with served(tmp_path, DEPLOYMENT.replace("[1, 2, 4], allowed_pp", "[1], allowed_pp")) as (_, http):
        said = refused(http, first)
        assert f"since then came {before}: the start of the deployment file; CPU[0,1]:0-8@fp32" in said
        target = said.split("--target '")[1].rstrip("'")
        assert http.post("/v1/plans", json={"target": target}).status_code == 201


@rows(
    ("case", "known", "barred", "why"),
    [
        (operation(), KNOWN, "", "has not ended"),
        (operation().failed(Code.INTERNAL, "a bug"), KNOWN, "", "has ended as internal and changed nothing"),
        (DONE, replace(KNOWN, under_way="op-2"), "", "operation op-2 is switching"),
        (DONE, replace(KNOWN, plan=replace(plan(), now=None)), "", "nothing ran before"),
        (DONE, replace(KNOWN, instead="tp2: operation op-2"), "", "and since then came tp2: operation op-2"),
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
