"""Where a lost engine starts again: asks nobody, keeps to what is promised, and is reported."""

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from runtime.engine import EngineState, SamplingParams
from runtime.errors import EngineLostError
from runtime.models import Topology
from runtime.notation import parse_topology
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.engine import TorchEngine
from selector.profiles import fit_cpu
from service.control.composition import Composition, compose
from service.deployment.file import load
from service.deployment.settings import Settings
from service.documents.errors import StoreError
from tests.service.asking import until
from tests.service.promises.test_service import FREEZE, ONE_DEVICE, outcomes, promised
from tests.service.real import EXAMPLE, WITHOUT_SPARE
from tests.service.scripted import SAMPLES, ScriptedService, served
from tests.service.test_drains import SET, SPARE

pytestmark = pytest.mark.slow


def lost_on(service: ScriptedService, *devices: int) -> Topology:
    """The engine is lost, and starts without these devices if it may; what it starts as."""

    async def again() -> Topology:
        engine, lost = service.engine, service.engine.topology
        for device in devices:
            await engine.comeback.take_out(device, f"the worker on device {device} died")
        runs = await engine.comeback.place(lost)
        engine.topology = runs
        if runs != lost:
            engine.comeback.came_back(lost, runs, "its worker died")
        return runs

    return service.call(again())


def alone(service: ScriptedService) -> Topology:
    return parse_topology("CPU[0]:0-8", service.serving.model.cluster, 8, "fp32")


def operations(http: httpx.Client) -> list[dict]:
    return [one for one in http.get("/v1/operations").json()["operations"] if one["done"]]


def out(http: httpx.Client) -> list[int]:
    return [one["device"] for one in http.get("/v1/devices").json()["devices"] if one["out"]]


def test_a_lost_engine_starts_on_what_is_left_and_that_is_reported_like_a_switch(tmp_path):
    with served(tmp_path) as (service, http):
        promised(http, "keep P99 TTFT < 2s at peak")
        generation = http.get("/v1/topology").json()["generation"]
        runs = lost_on(service, 1)
        assert 1 not in runs.devices
        assert out(http) == [1]
        (outcome,) = service.ticked(lambda: outcomes(http), "an outcome")
        assert (outcome["cause"], outcome["target"], outcome["ended"]) == ("recovery", str(runs), "done")
        assert outcome["reason"] == "its worker died"
        now = http.get("/v1/topology").json()
        assert now["generation"] > generation
        assert "its worker died" in now["origin"]
        (operation,) = http.get("/v1/operations").json()["operations"]
        assert (operation["applied_by"], operation["result"]["reason"]) == ("recovery", "engine_lost")
        assert http.get(f"/v1/plans/{operation['plan_id']}").json()["target"]["text"] == str(runs)
        assert http.get("/v1/audit").json()["entries"][0]["who"] == "recovery"
    with served(tmp_path) as (service, _):
        assert service.engine.topology == runs


def test_it_keeps_to_what_is_promised(tmp_path):
    with served(tmp_path) as (service, http):
        promised(http, ONE_DEVICE)
        assert len(lost_on(service, 0).devices) == 1
        promised(http, FREEZE)
        stays = service.engine.topology
        assert lost_on(service, *stays.devices) == stays
        assert out(http) == [0]
        http.post(f"/v1/devices/{stays.devices[0]}:out")
        with pytest.raises(EngineLostError, match=r"no other topology is started, for .*no reconfiguration"):
            lost_on(service)


def test_where_nothing_could_serve_without_the_devices_to_blame_none_is_out_and_all_is_tried_again(tmp_path):
    with served(tmp_path) as (service, http):
        stays = service.engine.topology
        assert lost_on(service, 0, 1, 2, 3) == stays
        assert out(http) == []
        for device in range(4):
            http.post(f"/v1/devices/{device}:out", json={"why": f"host {device} is away"})
        with pytest.raises(EngineLostError, match=r"device 3 \(host 3 is away\), and nothing else can serve"):
            lost_on(service)
        http.post("/v1/devices/1:in")
        assert lost_on(service).devices == (1,)
    with served(tmp_path) as (service, _):
        assert service.engine.topology.devices == (1,)


def test_what_cannot_be_written_is_written_when_the_store_is_back(tmp_path, monkeypatch):
    monkeypatch.setattr("service.control.relocation.AGAIN_S", 0.0)
    with served(tmp_path) as (service, http):
        store, fails = service.parts.store, [StoreError("away"), StoreError("away")]
        save = store.save_plan

        def saved(*said: object) -> None:
            if fails:
                raise fails.pop()
            save(*said)

        monkeypatch.setattr(store, "save_plan", saved)
        runs = lost_on(service, 1)
        found = until(lambda: http.get("/v1/operations").json()["operations"], "an operation")
        assert [one["target"] for one in found] == [str(runs)]


async def heard(parts: Composition, number: int, deltas: list[Delta]) -> list[int | None]:
    whole = GenerationParams(SamplingParams(100), ignore_eos=True)
    async for delta in parts.servings["counting"].router.generate(f"count by {number} from 11: ", whole):
        if not delta.is_pause:
            deltas.append(delta)  # noqa: PERF401 - others look at it while it grows
    return [delta.token_id for delta in deltas]


@pytest.fixture
def sick(tmp_path, monkeypatch):
    """Devices that this file names are sick, in a service on the example of a laptop."""
    monkeypatch.setenv("SICK", str(tmp_path / "sick"))
    monkeypatch.setattr(TorchEngine, "driver_module", "benchmarks.sick_driver")
    monkeypatch.setattr("service.control.composition.load_profiles", lambda *_: {"CPU": fit_cpu(SAMPLES)})
    text = EXAMPLE.read_text().replace("path: counting", f"path: {EXAMPLE.parent / 'counting'}")
    (tmp_path / "deployment.yaml").write_text(text + WITHOUT_SPARE)
    (tmp_path / "sick").write_text("")
    return tmp_path / "sick"


def sick_service(sick: Path) -> AbstractAsyncContextManager[Composition]:
    return compose(load(sick.parent / "deployment.yaml"), Settings(data_dir=sick.parent / "data"))


async def test_a_service_goes_on_without_a_device_whose_worker_dies_at_each_start(sick):
    async with sick_service(sick) as parts:
        serving = parts.servings["counting"]
        unbroken = await asyncio.gather(*(heard(parts, number, []) for number in (1, 2)))
        spoken: list[list[Delta]] = [[], []]
        tasks = [asyncio.create_task(heard(parts, number, spoken[number - 1])) for number in (1, 2)]
        while min(map(len, spoken)) < 10:  # noqa: ASYNC110 - processes bring it about
            await asyncio.sleep(0.005)
        sick.write_text("1")
        os.kill((await serving.engine.stats()).worker_pids[1], signal.SIGKILL)
        assert await asyncio.gather(*tasks) == unbroken
        assert "the worker on device 1 died" in parts.devices.why(1)
        assert 1 not in serving.engine.topology.devices


@pytest.mark.exhaustive
async def test_a_service_starts_without_a_device_whose_worker_dies_at_each_start(sick):
    sick.write_text("1")
    async with sick_service(sick) as parts:
        assert 1 not in parts.servings["counting"].engine.topology.devices
        assert {*parts.devices.all} == {1}


def test_what_stands_by_serves_until_what_was_lost_does_again(tmp_path):
    with served(tmp_path) as (service, http):
        lost = service.engine.topology
        stood_by = alone(service)

        async def stands_in() -> None:
            service.engine.topology = stood_by
            service.engine.comeback.came_back(lost, stood_by, "its worker died")

        service.call(stands_in())
        until(lambda: service.engine.topology == lost, "the way back")
        found = until(lambda: len(ended := operations(http)) == 2 and ended, "two operations that have ended")
        ways = [(one["source"], one["target"], one["applied_by"], one["done"]) for one in found]
        assert ways == [
            (str(stood_by), str(lost), "recovery", True),
            (str(lost), str(stood_by), "recovery", True),
        ]


def test_a_promise_that_forbids_switches_keeps_what_stands_by(tmp_path, caplog):
    with served(tmp_path) as (service, http):
        promised(http, FREEZE)
        lost, stood_by = service.engine.topology, alone(service)

        async def stands_in() -> None:
            service.engine.topology = stood_by
            service.engine.comeback.came_back(lost, stood_by, "its worker died")

        service.call(stands_in())
        until(lambda: f"counting stays {stood_by}" in caplog.text, "the reason in the log")
        assert "no reconfiguration" in caplog.text
        assert service.engine.topology == stood_by


def test_what_stands_by_for_one_replica_leaves_the_others_alone(tmp_path):
    with served(tmp_path, SET) as (service, http):
        whole = service.serving.engine.topology
        lost, other = whole.replicas
        stood_by = alone(service)

        async def stands_in() -> None:
            service.engine.topology = stood_by
            service.engine.comeback.came_back(lost, stood_by, "its worker died")

        service.call(stands_in())
        found = until(lambda: len(ended := operations(http)) == 2 and ended, "two operations that have ended")
        between = f"{stood_by} | {other}"
        assert [(one["source"], one["target"]) for one in found] == [(between, str(whole)), (str(whole), between)]
        assert service.serving.engine.topology == whole
        assert [row["state"] for row in http.get("/v1/topology").json()["replicas"]] == ["serving"] * 2


def test_two_replicas_that_are_lost_at_once_do_not_start_on_the_same_devices(tmp_path):
    with served(tmp_path, SPARE) as (service, http):
        replicas = service.serving.engine.replicas
        for replica in replicas:
            replica.engine.state = EngineState.RESTARTING
        for device in range(4):
            http.post(f"/v1/devices/{device}:out")

        async def places() -> list[object]:
            tries = [each.engine.comeback.place(each.engine.topology) for each in replicas]
            return await asyncio.gather(*tries, return_exceptions=True)

        first, second = service.call(places())
        assert {4, 5}.issuperset(first.devices)
        assert isinstance(second, EngineLostError)


def test_a_lost_replica_does_not_start_where_another_starts_again(tmp_path):
    with served(tmp_path, SET) as (service, http):
        replicas = service.serving.engine.replicas
        for replica in replicas:
            replica.engine.state = EngineState.RESTARTING
        http.post("/v1/devices/0:out")

        async def place() -> Topology:
            return await replicas[0].engine.comeback.place(replicas[0].engine.topology)

        with pytest.raises(EngineLostError, match="the other replicas"):
            service.call(place())
