"""Where a lost engine starts again: asks nobody, keeps to what is promised, and is reported."""

import asyncio
import os
import signal

import httpx
import pytest

from runtime.engine import SamplingParams
from runtime.errors import EngineLostError
from runtime.models import Topology
from runtime.stream import Delta, GenerationParams
from runtime.torch_engine.engine import TorchEngine
from selector.profiles import fit_cpu
from service.composition import Composition, compose
from service.deployment import load
from service.errors import StoreError
from service.settings import Settings
from tests.service.asking import until
from tests.service.promises.test_service import FREEZE, ONE_DEVICE, outcomes, promised
from tests.service.real import EXAMPLE
from tests.service.scripted import SAMPLES, ScriptedService, served

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


def out(http: httpx.Client) -> list[int]:
    return [one["device"] for one in http.get("/v1/devices").json()["devices"] if one["out"]]


def test_a_lost_engine_starts_on_what_is_left_and_that_is_reported_like_a_switch(tmp_path):
    with served(tmp_path) as (service, http):
        promised(http, "keep P99 TTFT < 2s at peak")
        generation = http.get("/v1/topology").json()["generation"]
        runs = lost_on(service, 1)
        assert 1 not in runs.devices
        assert out(http) == [1]
        (outcome,) = until(lambda: outcomes(http), "an outcome")
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
    monkeypatch.setattr("service.promises.relocation.AGAIN_S", 0.0)
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
    whole = GenerationParams(SamplingParams(300), ignore_eos=True)
    async for delta in parts.servings["counting"].router.generate(f"count by {number} from 11: ", whole):
        if not delta.is_pause:
            deltas.append(delta)  # noqa: PERF401 - others look at it while it grows
    return [delta.token_id for delta in deltas]


async def test_a_service_goes_on_without_a_device_whose_worker_dies_at_each_start(tmp_path, monkeypatch):
    sick = tmp_path / "sick"
    sick.write_text("")
    monkeypatch.setenv("SICK", str(sick))
    monkeypatch.setattr(TorchEngine, "driver_module", "tests.runtime.torch_engine.driver.sick_driver")
    monkeypatch.setattr("service.composition.load_profiles", lambda *_: {"CPU": fit_cpu(SAMPLES)})
    text = EXAMPLE.read_text().replace("path: counting", f"path: {EXAMPLE.parent / 'counting'}")
    (tmp_path / "deployment.yaml").write_text(text)
    deployment = load(tmp_path / "deployment.yaml")
    settings = Settings(data_dir=tmp_path / "data")
    async with compose(deployment, settings) as parts:
        serving = parts.servings["counting"]
        unbroken = [await heard(parts, number, []) for number in (1, 2)]
        spoken: list[list[Delta]] = [[], []]
        tasks = [asyncio.create_task(heard(parts, number, spoken[number - 1])) for number in (1, 2)]
        while min(map(len, spoken)) < 20:  # noqa: ASYNC110 - processes bring it about
            await asyncio.sleep(0.005)
        sick.write_text("1")
        os.kill((await serving.engine.stats()).worker_pids[1], signal.SIGKILL)
        assert await asyncio.gather(*tasks) == unbroken
        assert "the worker on device 1 died" in parts.devices.why(1)
        runs = serving.engine.topology
        assert 1 not in runs.devices
    # what the service starts as when it is started again, though another device dies at each start now
    sick.write_text(f"1 {runs.devices[0]}")
    async with compose(deployment, settings) as parts:
        assert not {1, runs.devices[0]} & {*parts.servings["counting"].engine.topology.devices}
        assert {*parts.devices.all} == {1, runs.devices[0]}
