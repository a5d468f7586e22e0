"""The way back from an operation, while what it led to still runs."""

import httpx
import pytest

from service.documents.problems import Code
from service.undo import OperationFacts, undoable
from tests.rows import rows
from tests.service.asking import apply, end_of, problem, switched
from tests.service.examples import operation, plan
from tests.service.scripted import served

pytestmark = pytest.mark.slow

DONE = operation(end_s=9.0)
KNOWN = OperationFacts(plan(), led_to=5, runs=5, under_way=None)


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


def test_what_a_restart_took_away_is_said_with_the_way_that_is_left(tmp_path):
    with served(tmp_path) as (_, http):
        first = switched(http, target="tp2")["id"]
    with served(tmp_path) as (_, http):
        said = refused(http, first)
        assert "or a restart" in said
        target = said.split("--target '")[1].rstrip("'")
        assert http.post("/v1/plans", json={"target": target}).status_code == 201


@rows(
    ("case", "known", "barred", "why"),
    [
        (operation(), KNOWN, "", "has not ended"),
        (operation().failed(Code.INTERNAL, "a bug"), KNOWN, "", "has ended as internal and changed nothing"),
        (DONE, OperationFacts(plan(), 5, 5, "op-2"), "", "operation op-2 is switching"),
        (DONE, OperationFacts(plan().model_copy(update={"now": None}), 5, 5, None), "", "nothing ran before"),
        (DONE, OperationFacts(plan(), 5, 6, None), "", "led to generation 5, but 6 runs now"),
        (DONE, OperationFacts(plan(), None, 6, None), "", "a generation that was not kept"),
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
