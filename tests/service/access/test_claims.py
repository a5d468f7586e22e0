"""What speaks against a plan counts up to the moment at which it is claimed: an apply that waits overlooks nothing."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from sqlalchemy import event, update

from service.documents.access import Role
from service.store.tables import ApprovalRow, KeyRow
from tests.rows import rows
from tests.service.asking import end_of, new_plan, problem
from tests.service.examples import operation
from tests.service.scripted import DEPLOYMENT, QUICK, ScriptedService

pytestmark = pytest.mark.slow

WITHIN_S = 60
KEYED = DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 1000000}")


@pytest.fixture
def claims(tmp_path, database) -> Iterator[ScriptedService]:
    with ScriptedService(tmp_path, KEYED, database=database) as service:
        yield service


@contextmanager
def held(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Claims stop right before they begin, until this ends; the event says that one has."""
    arrived, go, claim = threading.Event(), threading.Event(), service.serving._claim

    def wait(*arguments: object) -> object:
        arrived.set()
        assert go.wait(WITHIN_S)
        return claim(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(service.serving, "_claim", wait)
        try:
            yield arrived
        finally:
            go.set()


def overtaken(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch, apply: Callable[[], httpx.Response], meanwhile: Callable
) -> httpx.Response:
    """The answer to an apply that waits while something else is done and answered."""
    with ThreadPoolExecutor() as pool:
        with held(service, monkeypatch) as arrived:
            answer: Future[httpx.Response] = pool.submit(apply)
            assert arrived.wait(WITHIN_S)
            meanwhile()
        return answer.result(WITHIN_S)


def rejected(service: ScriptedService, grace: httpx.Client, plan: dict) -> None:
    assert grace.post(f"/v1/plans/{plan['id']}:reject").status_code == 201


def expired(service: ScriptedService, grace: httpx.Client, plan: dict) -> None:
    with service.parts.store.transaction() as session:
        session.execute(update(ApprovalRow).where(ApprovalRow.plan_id == plan["id"]).values(until_s=time.time()))


def approver_left(service: ScriptedService, grace: httpx.Client, plan: dict) -> None:
    revoked(service, "grace")


def applier_left(service: ScriptedService, grace: httpx.Client, plan: dict) -> None:
    revoked(service, "ada")


def revoked(service: ScriptedService, name: str) -> None:
    with service.client(service.admin_key) as admin:
        for key in service.parts.access.keys.kept():
            if key.name == name:
                assert admin.post(f"/v1/keys/{key.prefix}:revoke").status_code == 200


def frozen(service: ScriptedService, grace: httpx.Client, plan: dict) -> None:
    said = grace.post("/v1/intents", json={"text": "freeze reconfiguration at peak"}).json()["id"]
    assert grace.post(f"/v1/intents/{said}:activate", json={}).status_code == 201


@rows(
    ("meanwhile", "status", "code", "said"),
    [
        (rejected, 403, "not_approved", "was rejected by grace"),
        (expired, 403, "not_approved", "grace approved it for"),
        (approver_left, 403, "not_approved", "grace approved it, and has no key any more"),
        (applier_left, 403, "not_approved", "the key of ada was revoked or expired meanwhile"),
        (frozen, 409, "reconfiguration_limited", "a promise forbids switches"),
    ],
)
def test_what_was_answered_before_a_plan_is_claimed_counts(claims, monkeypatch, meanwhile, status, code, said):
    with claims.person("operator", "ada") as ada, claims.person("approver", "grace") as grace:
        plan = new_plan(ada)
        approved = grace.post(f"/v1/plans/{plan['id']}:approve", json={"digest": plan["digest"]})
        assert approved.status_code == 201, approved.text
        answer = overtaken(
            claims,
            monkeypatch,
            lambda: ada.post(f"/v1/plans/{plan['id']}:apply"),
            lambda: meanwhile(claims, grace, plan),
        )
        assert said in problem(answer, status, code)["detail"]
    assert claims.parts.store.saved_plan(plan["id"]).applied_by is None
    assert (claims.serving.operation, claims.engine.calls) == (None, [])


def test_a_limit_per_hour_that_is_reached_meanwhile_counts(tmp_path, database, monkeypatch):
    text = KEYED + "approval: {by: person, within: {per_hour: 1}}\n"
    with ScriptedService(tmp_path, text, database=database) as service, service.person("operator", "ada") as ada:
        plan = new_plan(ada)
        other = operation("op-elsewhere")
        now = tuple(phase.model_copy(update={"at": time.time()}) for phase in other.phases)
        other = other.model_copy(update={"model": plan["model"], "phases": now})
        answer = overtaken(
            service,
            monkeypatch,
            lambda: ada.post(f"/v1/plans/{plan['id']}:apply"),
            lambda: service.parts.store.save_operation(other),
        )
        assert "1 plans were applied in the last hour" in problem(answer, 403, "not_approved")["detail"]


def test_a_word_on_a_plan_that_is_claimed_is_refused_and_says_so(claims):
    with claims.person("operator", "ada") as ada, claims.person("approver", "grace") as grace:
        plan = new_plan(ada)
        path = f"/v1/plans/{plan['id']}"
        applied = grace.post(f"{path}:apply").json()["id"]
        for word, body in (("reject", {}), ("approve", {"digest": plan["digest"]})):
            refused = problem(grace.post(f"{path}:{word}", json=body), 409, "already_applied")
            assert f"was applied before, by operation {applied}" in refused["detail"]
        assert end_of(ada, applied)["phase"] == "done"
        assert grace.get(f"{path}/standing").json()["approval"] is None


def test_a_controller_that_is_paused_before_it_claims_switches_nothing(tmp_path, monkeypatch):
    text = KEYED + "approval: {by: person, within: {per_hour: 20}}\nmode: act\n" + QUICK
    with ScriptedService(tmp_path, text) as service, service.person("approver", "grace") as grace:
        said = grace.post("/v1/intents", json={"text": "use at most 1 GPU"}).json()["id"]
        with held(service, monkeypatch) as arrived:  # the activation has it look
            assert grace.post(f"/v1/intents/{said}:activate", json={}).status_code == 201
            assert arrived.wait(WITHIN_S)
            assert grace.post("/v1/controller", json={"paused": True}).status_code == 200
        service.tick()
        assert grace.get("/v1/controller").json()["decisions"][0]["kind"] == "hold"
        assert (service.serving.operation, service.engine.calls) == (None, [])


@pytest.mark.exhaustive
def test_who_waits_for_a_row_of_postgresql_overlooks_nothing(tmp_path, postgres):
    """The claim waits for somebody's lock on the plan; a no is answered behind it then, or before it, and never beside it."""
    url = postgres.new_database()
    with (
        ScriptedService(tmp_path, KEYED, database=url) as service,
        service.person("approver", "grace") as grace,
        service.person("approver", "hedy") as hedy,
        ThreadPoolExecutor() as pool,
        psycopg.connect(url) as lock,
    ):
        plan = new_plan(grace)
        path = f"/v1/plans/{plan['id']}"
        lock.execute("SELECT 1 FROM plans WHERE id = %s FOR UPDATE", (plan["id"],))
        waits = threading.Event()

        def sent(_connection, _cursor, statement: str, *_: object) -> None:
            if statement.startswith("UPDATE plans"):
                waits.set()

        event.listen(service.parts.store._engine, "before_cursor_execute", sent)
        applied = pool.submit(grace.post, f"{path}:apply")
        assert waits.wait(WITHIN_S)
        no = pool.submit(hedy.post, f"{path}:reject")
        lock.rollback()
        assert (applied.result(WITHIN_S).status_code, no.result(WITHIN_S).status_code) == (202, 409)
        assert no.result().json()["code"] == "already_applied"


def test_a_key_opens_an_act_where_both_the_ring_and_the_database_say_so(claims):
    keys = claims.parts.access.keys
    _, key = keys.create("ring", Role.APPROVER, None, "test")
    now_s = time.time()
    assert keys.opens(key.prefix, now_s)
    assert keys.could_approve("ring", now_s, now_s)
    with claims.parts.store.transaction() as session:  # as another service would
        session.execute(update(KeyRow).where(KeyRow.prefix == key.prefix).values(revoked_s=now_s))
    assert keys.ring.opens(key.prefix, now_s)
    assert not keys.opens(key.prefix, now_s)
    assert not keys.could_approve("ring", now_s, now_s)
