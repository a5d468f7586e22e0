"""Switches that somebody gives up: before the cut they end and leave nothing, behind it they are refused by name."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from runtime.models import Phase
from service.access.wiring import Acts
from service.documents.access import Caller, Role
from service.documents.errors import StoreError
from service.documents.operations import CancelRequest
from service.documents.problems import Code
from service.planning.undo import refusal
from tests.runtime.scripted import Script
from tests.service.examples import operation
from tests.service.scripted import ScriptedService, served

pytestmark = pytest.mark.slow

CHAT = {"model": "counting", "messages": [{"role": "user", "content": "count"}], "max_tokens": 40}


@contextmanager
def switching(folder: Path, phase: Phase, call: str) -> Iterator[tuple[ScriptedService, httpx.Client, str]]:
    """A service that is in the middle of a switch, which waits for its engine."""
    with served(folder, script=Script(silent_while=phase)) as (service, http):
        plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]
        switch = http.post(f"/v1/plans/{plan['id']}:apply").json()["id"]
        service.reached(call)
        yield service, http, switch


def ended(service: ScriptedService, http: httpx.Client, switch: str) -> dict:
    async def answered() -> None:
        service.engine.answer()
        await service.serving.settled()

    service.call(answered())
    return http.get(f"/v1/operations/{switch}").json()


@pytest.mark.parametrize(
    ("phase", "call"), [(Phase.PLANNED, "prepare"), (Phase.WARMING, "ready"), (Phase.SYNCING, "lag")]
)
def test_a_switch_is_cancelled_before_its_cut_and_what_ran_goes_on(tmp_path, phase, call):
    with switching(tmp_path, phase, call) as (service, http, switch):
        before = http.get("/v1/topology").json()
        answer = http.post(f"/v1/operations/{switch}:cancel")
        assert (answer.status_code, answer.headers["location"]) == (202, f"/v1/operations/{switch}")
        assert answer.json()["cancelled_by"] == "anybody"

        document = ended(service, http, switch)
        assert (document["phase"], document["cancelled_by"]) == ("aborted", "anybody")
        assert (document["error"]["code"], document["error"]["reason"]) == ("switch_aborted", "cancelled")
        assert "by anybody (cancelled)" in document["error"]["detail"]
        assert service.engine.calls[-1] == "abort cancelled"
        after = http.get("/v1/topology").json()
        assert after == before | {"operation": None}
        acts = http.get("/v1/audit").json()["entries"]
        (noted,) = [one for one in acts if one["act"] == "operation.cancel"]
        assert (noted["who"], noted["subject"]) == ("anybody", switch)
        (end,) = [one for one in acts if one["act"] == "switch.end"]
        assert end["after"]["outcome"] == "cancelled"
        assert 'outcome="cancelled"' in http.get("/metrics").text

        again = http.post(f"/v1/operations/{switch}:cancel")
        assert (again.status_code, again.json()["code"]) == (409, "already_ended")
        assert "has ended as cancelled" in again.json()["detail"]


def test_no_stream_notices_a_switch_that_is_cancelled(tmp_path):
    with switching(tmp_path, Phase.SYNCING, "lag") as (service, http, switch):
        alone = http.post("/openai/v1/chat/completions", json=CHAT).json()
        service.do(service.engine.hold)
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(http.post, "/openai/v1/chat/completions", json=CHAT)
            service.until(lambda: bool(service.engine.requests))
            assert http.post(f"/v1/operations/{switch}:cancel").status_code == 202
            assert ended(service, http, switch)["phase"] == "aborted"
            service.do(service.engine.resume)
        assert answer.result().json()["choices"] == alone["choices"]
        counts = service.serving.router.counts
        assert (counts.accepted, counts.lost, counts.duplicates) == (2 * CHAT["max_tokens"], 0, 0)


@pytest.mark.parametrize(
    ("phase", "call", "said"),
    [(Phase.CUTTING, "cut", "at its cut"), (Phase.CLEANING, "release", "has committed")],
)
def test_a_switch_is_not_cancelled_from_its_cut_on(tmp_path, phase, call, said):
    with switching(tmp_path, phase, call) as (service, http, switch):
        answer = http.post(f"/v1/operations/{switch}:cancel")
        assert (answer.status_code, answer.json()["code"]) == (409, "too_late")
        assert said in answer.json()["detail"]
        assert f"intentctl undo {switch}" in answer.json()["detail"]

        document = ended(service, http, switch)
        assert document["phase"] == "done"
        assert "cancelled_by" not in document
        again = http.post(f"/v1/operations/{switch}:cancel").json()
        assert (again["code"], "is done" in again["detail"]) == ("already_ended", True)
        assert not http.get("/v1/audit", params={"act": "operation.cancel"}).json()["entries"]


def test_of_two_that_cancel_at_once_the_first_stands_in_the_audit(tmp_path):
    with switching(tmp_path, Phase.WARMING, "ready") as (service, http, switch):
        serving = service.serving
        first, second = (Acts(service.parts.access, Caller(name, Role.OPERATOR)) for name in ("ann", "bob"))

        async def both() -> list:
            return await asyncio.gather(*(serving.cancel(switch, CancelRequest(), who) for who in (first, second)))

        assert [one.cancelled_by for one in service.call(both())] == ["ann", "ann"]
        assert ended(service, http, switch)["cancelled_by"] == "ann"
        noted = http.get("/v1/audit", params={"act": "operation.cancel"}).json()["entries"]
        assert [one["who"] for one in noted] == ["ann"]


def test_a_cancellation_that_cannot_be_audited_says_so_and_holds(tmp_path, monkeypatch):
    with switching(tmp_path, Phase.WARMING, "ready") as (service, http, switch):
        with monkeypatch.context() as patch:
            patch.setattr(service.parts.access.audit, "add", full(service.parts.access.audit.add))
            answer = http.post(f"/v1/operations/{switch}:cancel")
        assert (answer.status_code, answer.json()["code"]) == (503, "store")
        assert ended(service, http, switch)["error"]["reason"] == "cancelled"


def full(add: Callable[..., object]) -> Callable[..., object]:
    """An audit with no room for cancellations."""

    def added(caller: Caller, act: str, *rest: object, **facts: object) -> object:
        if act == "operation.cancel":
            raise StoreError("the disk is full")
        return add(caller, act, *rest, **facts)

    return added


def test_an_operation_that_nobody_knows_is_not_found(asked):
    answer = asked.post("/v1/operations/op-nobody:cancel")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_each_state_of_an_operation_is_refused_in_its_own_words():
    assert refusal(operation(end_s=2.0)).code is Code.ALREADY_ENDED
    assert refusal(operation().failed(Code.INTERNAL, "a bug")).code is Code.ALREADY_ENDED
    assert refusal(operation()).code is Code.NOT_FOUND
