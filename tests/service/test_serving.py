"""A switch whose end the store does not take down is one all the same."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from runtime.engine import SamplingParams
from runtime.models import Phase
from runtime.notation import parse_topology
from runtime.stream import Delta, GenerationParams
from service.documents.errors import StoreError
from service.serving.restart import begin
from tests.runtime.scripted import Script
from tests.service.scripted import DEPLOYMENT, ScriptedService, served
from tests.service.test_outage import all_written

pytestmark = pytest.mark.slow


def failing(method, times: int):
    """A method of the store that fails so many times."""
    left = times

    def call(*arguments):
        nonlocal left
        left -= 1
        if left >= 0:
            raise StoreError("the disk is full")
        return method(*arguments)

    return call


def switched(service: ScriptedService, http: httpx.Client) -> str:
    plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]
    operation = http.post(f"/v1/plans/{plan['id']}:apply").json()["id"]
    service.settle()
    return operation


def test_a_commit_that_could_not_be_written_is_written_after_the_switch(http, service, monkeypatch):
    store = service.parts.store
    monkeypatch.setattr(store, "commit", failing(store.commit, times=1))
    operation = switched(service, http)

    assert http.get(f"/v1/operations/{operation}").json()["phase"] == "done"
    assert store.journal(operation)[-1][:2] == ("committed", "written after the switch")
    state = http.get("/v1/topology").json()
    assert (state["generation"], state["origin"]) == (2, f"operation {operation}")
    assert begin(store, service.parts.deployment, service.parts.deployment.model()).topology.shape == "TP2"


def test_a_store_that_takes_nothing_down_ends_no_service(http, service, monkeypatch, caplog):
    store = service.parts.store
    monkeypatch.setattr(store, "commit", failing(store.commit, times=2))
    monkeypatch.setattr(store, "save_operation", failing(store.save_operation, times=1))
    operation = switched(service, http)

    assert "what counting runs is not kept" in caplog.text
    assert f"the end of operation {operation} is not kept" in caplog.text
    state = http.get("/v1/topology").json()
    assert (state["topology"]["shape"], state["operation"]) == ("TP2", None)
    assert http.post("/v1/plans", json={"text": "run it with pp=2"}).status_code in {200, 201}


def test_what_the_store_did_not_take_down_is_written_once_it_does(http, service, monkeypatch):
    monkeypatch.setattr("service.serving.serving.AGAIN_S", 0.0)
    store = service.parts.store
    monkeypatch.setattr(store, "commit", failing(store.commit, times=3))
    monkeypatch.setattr(store, "save_operation", failing(store.save_operation, times=2))
    operation = switched(service, http)
    service.call(all_written(service))

    assert http.get(f"/v1/operations/{operation}").json()["phase"] == "done"
    assert begin(store, service.parts.deployment, service.parts.deployment.model()).topology.shape == "TP2"
    ends = http.get("/v1/audit", params={"act": "switch.end"}).json()["entries"]
    assert [end["subject"] for end in ends] == [operation]


NARROW = (
    DEPLOYMENT.replace("memory_gb: 1}", "memory_gb: 0.0105}")
    .replace("{mean: 900, p95: 900}, concurrency: 8", "{mean: 100, p95: 100}, concurrency: 1")
    .replace("start: pp2", "start: 1x1")
)
"""Two copies of the weights do not fit on a device, and the scripted engine moves no layer alone."""


def test_what_has_to_end_first_is_told_and_acknowledged_and_done(tmp_path):
    with served(tmp_path, NARROW) as (service, http):
        plan = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]
        assert plan["switch"]["strategy"] == "restart"
        assert [one["code"] for one in plan["to_acknowledge"]] == ["outage"]
        assert "the running engine has to end first" in " ".join(plan["reasons"])

        refused = http.post(f"/v1/plans/{plan['id']}:apply")
        assert (refused.status_code, refused.json()["code"]) == (409, "finding_not_acknowledged")
        assert "stand still for about" in refused.text

        http.post(f"/v1/plans/{plan['id']}:apply", json={"acknowledge": ["outage"]}).raise_for_status()
        service.settle()
        assert service.engine.calls[0] == "succeed_by"
        assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"
        (entry,) = http.get("/v1/audit", params={"act": "plan.apply"}).json()["entries"]
        assert list(entry["after"]["acknowledged"]) == ["outage"]


def test_how_long_targets_took_to_start_here_replaces_public_figures(http, service):
    before = http.post("/v1/plans", json={"target": "tp2"}).json()["plan"]["switch"]
    switched(service, http)
    after = http.post("/v1/plans", json={"target": "pp2"}).json()["plan"]["switch"]
    assert "succeed_by" not in service.engine.calls
    assert after["prepare_most_s"] < 1 < before["prepare_most_s"], "the scripted engine is ready at once"


async def stopped(service: ScriptedService) -> None:
    """Stop serving while a switch waits for the engine, which answers then."""
    closing = asyncio.create_task(service.serving.close())
    await asyncio.sleep(0)
    service.engine.answer()
    await closing


@pytest.mark.parametrize(
    ("phase", "call", "outcome"),
    [(Phase.CLEANING, "release", "result"), (Phase.SYNCING, "lag", "error")],
)
def test_a_switch_that_had_committed_when_the_service_was_stopped_is_done(tmp_path, phase, call, outcome):
    with served(tmp_path, script=Script(silent_while=phase)) as (service, http):
        plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]
        switch = http.post(f"/v1/plans/{plan['id']}:apply").json()["id"]
        service.reached(call)
        service.call(stopped(service))

        operation = http.get(f"/v1/operations/{switch}").json()
        assert outcome in operation
        assert "the service was stopped" in operation[outcome]["detail"]
        if outcome == "result":
            assert operation["result"]["source"] == plan["now"]["text"]
            assert operation["result"]["target"] == plan["target"]["text"]


async def streams_of(service: ScriptedService, num: int) -> list[AsyncGenerator[Delta, None]]:
    """Streams that have three tokens each, from an engine that is held then."""
    router = service.serving.router
    streams = [router.generate("ab", GenerationParams(SamplingParams(12_000))) for _ in range(num)]
    for stream in streams:
        for _ in range(3):
            await anext(stream)
    service.engine.hold()
    return streams


async def ended(streams: list[AsyncGenerator[Delta, None]]) -> None:
    for stream in streams:
        await stream.aclose()


def test_what_streams_waited_through_a_cut_stands_in_its_operation(tmp_path):
    script = Script(silent_while=Phase.CLEANING)
    with served(tmp_path, script=script) as (service, http):
        streams = service.call(streams_of(service, 2))
        plan = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]
        operation = http.post(f"/v1/plans/{plan['id']}:apply").json()["id"]
        service.reached("release")

        async def go_on() -> None:
            service.engine.turn()
            for stream in streams:
                while (await anext(stream)).fingerprint != "1-TP2":
                    pass
            service.engine.answer()
            await service.serving.settled()

        service.call(go_on())
        gaps = http.get(f"/v1/operations/{operation}").json()["gaps"]
        assert gaps["streams"] == 2
        assert 0 < gaps["p50_ms"] <= gaps["p99_ms"] == gaps["max_ms"] < 60_000
        assert gaps["usual_ms"] > 0
        (listed,) = http.get("/v1/operations").json()["operations"]
        assert listed["gaps"] == gaps
        told: dict[str, Any] = {}
        while "gaps" not in told:  # events are kept a moment after they happened
            told = [one.data.model_dump() for one in service.parts.store.events(0, 100) if one.event == "operation"][-1]
        assert told["gaps"] == gaps
        service.call(ended(streams))


def test_how_long_a_start_takes_is_learned_from_starts_alone(http, service):
    """Steps filled otherwise start no engine, nor does what stands by."""
    serving = service.serving
    usual = serving.situation().capabilities.start_s
    few = {"max_sequences": 2, "max_step_tokens": 512}
    plan = http.post("/v1/plans", json={"target": "pp2", "batching": few}).json()["plan"]
    http.post(f"/v1/plans/{plan['id']}:apply").raise_for_status()
    service.settle()
    assert serving.situation().capabilities.start_s == usual

    engine = service.engine
    target = http.post("/v1/plans", json={"text": "run it with tp=2"}).json()["plan"]["target"]["text"]
    stands_by = parse_topology(target, service.parts.deployment.model().cluster, 8, "fp32")
    engine.capabilities = replace(engine.capabilities, standby=frozenset([stands_by]))
    switched(service, http)
    assert serving.situation().capabilities.start_s == usual

    engine.capabilities = replace(engine.capabilities, standby=frozenset())
    plan = http.post("/v1/plans", json={"target": "pp2"}).json()["plan"]
    http.post(f"/v1/plans/{plan['id']}:apply").raise_for_status()
    service.settle()
    assert serving.situation().capabilities.start_s != usual
