"""What a service does with what an earlier one left; a kill is a copy of its data folder at that moment."""

import asyncio
import shutil
import sys
import threading
from collections.abc import Collection
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path

import httpx
import pytest

from runtime.capabilities import Batching
from runtime.errors import EngineLostError, Reason, SwitchError
from runtime.models import Phase, Topology
from runtime.notation import parse_topology
from service.control import composition
from service.deployment.settings import Settings
from service.documents.operations import OperationDocument
from service.serving.devices import Devices
from service.serving.events import EventBus
from service.serving.restart import Beginning, begin, close_unfinished, start_without_the_broken
from service.store.store import Store
from tests.rows import rows
from tests.runtime.scripted import Script
from tests.service.asking import apply, end_of, plan_for, switched
from tests.service.examples import intent, operation, plan
from tests.service.real import real_service
from tests.service.scripted import DEPLOYMENT, ScriptedService, read, served

pytestmark = pytest.mark.slow

TP2, PP2 = "CPU[0,1]:0-8@fp32", "CPU[0]:0-4@fp32 > CPU[1]:4-8@fp32"


@pytest.fixture
def deployment(tmp_path):
    return read(tmp_path)


def committed(store: Store, topology: str, model: str = "counting") -> int:
    return store.commit("op-1", ("committed", ""), model, topology)


# --- which topology serves ---


def test_without_a_commit_the_start_of_the_file_serves_whatever_started_before(store, deployment):
    store.next_generation("counting", TP2)
    beginning = begin(store, deployment, deployment.model())

    assert str(beginning.topology) == PP2
    assert "no switch has committed" in beginning.origin


def test_how_the_target_of_several_changes_fills_its_steps_says_nothing_of_the_set_before(new_store, deployment):
    store = new_store()
    batching = Batching.of_replicas([Batching(2, 64), Batching(4, 64)])
    store.save_plan(intent(), plan())
    store.claim_plan("plan-1", operation().model_copy(update={"batching": batching}))
    committed(store, "CPU[0]:0-8@fp32 | CPU[1]:0-8@fp32 | CPU[2]:0-8@fp32")
    assert begin(store, deployment, deployment.model()).batching is None


def test_what_the_last_switch_committed_serves_again(store, deployment):
    committed(store, "CPU[3]:0-8@fp32")
    generation = committed(store, TP2)
    committed(store, "CPU[2]:0-8@fp32", model="other")
    store.next_generation("counting", PP2)
    beginning = begin(store, deployment, deployment.model())

    assert str(beginning.topology) == TP2
    assert f"generation {generation}" in beginning.origin


@rows(
    ("topology", "old", "new", "why"),
    [
        ("CPU[2,3]:0-8@fp32", "count: 4", "count: 2", "device 2 is not in the inventory"),
        (TP2, "allowed_tp: [1, 2, 4]", "allowed_tp: [1]", "the limits allow TP 1"),
        ("CPU[0]:0-8@fp32", "allowed_pp: [1, 2, 4]", "allowed_pp: [2]", "the limits allow PP 2"),
        ("CPU[0]:0-8@bf16", "", "", "the limits allow precision fp32"),
        ("CPU[0,1,2,3]:0-8@fp32", "limits: {", "limits: {max_gpus: 2, ", "the limit is 2"),
        ("CPU[0]:0-6@fp32", "", "", "holds 6 layers"),
        ("CPU[0]:0-8@fp32", "memory_gb: 1", "memory_gb: 0.006", "leave no room for KV"),
        (
            "CPU[0]:0-3@fp32 > CPU[1]:3-8@fp32",
            "windows:",
            "engine: torch\ntorch: {layers_per_slab: 2}\nwindows:",
            "slab",
        ),
        ("nonsense", "", "", "cannot read stage"),
    ],
)
def test_what_the_file_no_longer_allows_gives_way_to_its_start(store, tmp_path, caplog, topology, old, new, why):
    caplog.clear()
    changed = read(tmp_path, DEPLOYMENT.replace(old, new))
    committed(store, topology)
    beginning = begin(store, changed, changed.model())

    assert str(beginning.topology) == PP2
    assert why in beginning.origin
    assert beginning.origin.startswith("the start of the deployment file; ")
    assert why in caplog.text


# --- what becomes of operations ---


@rows(
    ("journaled", "said"),
    [
        ([], "before this switch began"),
        (["warming"], "while this switch loaded its target or copied KV"),
        (["warming", "cutting"], "its commit was not written"),
    ],
)
def test_a_switch_that_had_not_committed_is_closed_as_given_up(new_store, caplog, journaled, said):
    store = new_store()
    caplog.clear()
    store.save_plan(intent(), plan())
    store.claim_plan("plan-1", operation())
    for phase in journaled:
        store.append_journal("op-1", phase, "")
    close_unfinished(store, EventBus(store))

    closed = store.operation("op-1")
    assert closed.done
    assert said in closed.error.detail
    assert [entered.phase for entered in closed.phases] == ["planned", *journaled, "aborted"]
    assert "op-1" in caplog.text


def test_a_switch_that_had_committed_is_closed_as_done(store):
    store.save_plan(intent(), plan())
    store.claim_plan("plan-1", operation())
    for phase in ("warming", "cutting", "committed"):
        store.append_journal("op-1", phase, "")
    close_unfinished(store, EventBus(store))

    closed = store.operation("op-1")
    assert (closed.error, closed.phase) == (None, Phase.DONE)
    assert (closed.result.source, closed.result.target) == (plan().now.text, plan().target.text)
    assert "after the commit" in closed.result.detail
    assert store.unfinished_operations() == []


@rows("then", [[], ["warming"]])
def test_of_several_changes_those_that_were_made_are_told(new_store, then):
    store = new_store()
    store.save_plan(intent(), plan())
    store.claim_plan("plan-1", operation())
    store.append_journal("op-1", "warming", "")
    store.commit("op-1", ("committed", ""), plan().model, "CPU[0]:0-8@fp32 | CPU[1]:0-8@fp32")
    for phase in then:
        store.append_journal("op-1", phase, "")
    close_unfinished(store, EventBus(store))
    closed = store.operation("op-1")
    assert closed.phase is Phase.ABORTED
    assert "of its changes 1 were made, and CPU[0]:0-8@fp32 | CPU[1]:0-8@fp32 runs" in closed.error.detail


# --- the whole service ---


@contextmanager
def killed_while(folder: Path, phase: Phase, call: str):
    """The data of a service that was killed in a phase of a switch, and the switch's id."""
    with served(folder / "first", script=Script(silent_while=phase)) as (service, http):
        switch = apply(http, plan_for(http, target="tp2"))
        service.reached(call)
        shutil.copytree(folder / "first", folder / "second")
        service.do(service.engine.answer)
    yield folder / "second", switch


@pytest.mark.parametrize(
    ("phase", "call", "end", "shape"),
    [
        pytest.param(Phase.PLANNED, "prepare", Phase.ABORTED, "PP2", marks=pytest.mark.exhaustive),
        (Phase.WARMING, "ready", Phase.ABORTED, "PP2"),
        pytest.param(Phase.SYNCING, "lag", Phase.ABORTED, "PP2", marks=pytest.mark.exhaustive),
        (Phase.CUTTING, "cut", Phase.ABORTED, "PP2"),
        (Phase.CLEANING, "release", Phase.DONE, "TP2"),
    ],
)
def test_a_service_that_was_killed_serves_what_had_committed(tmp_path, phase, call, end, shape):
    with (
        killed_while(tmp_path, phase, call) as (folder, switch),
        ScriptedService(folder) as service,
        service.client() as http,
    ):
        assert service.engine.topology.shape == shape
        ended = OperationDocument.model_validate(http.get(f"/v1/operations/{switch}").json())
        assert ended.done
        assert ended.phase is end
        assert end_of(http, switch)["phase"] == end.value  # told to those who ask what they missed
        state = http.get("/v1/topology").json()
        assert state["topology"]["shape"] == shape
        assert ("the last that a switch committed" in state["origin"]) == (shape == "TP2")
        assert apply(http, plan_for(http, target="pp4"))


@contextmanager
def process(folder: Path):
    """A client of a service with the built-in engine in a process of its own, which is killed at the end."""
    with real_service(folder) as (_, url):
        key = (folder / "admin.key").read_text().strip()
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=120) as http:
            yield http


def test_a_process_that_is_killed_after_a_switch_starts_again_where_it_was(tmp_path):
    with process(tmp_path) as http:
        assert switched(http, target="tp2")["phase"] == "done"
        generation = http.get("/v1/topology").json()["generation"]
    with process(tmp_path) as http:
        state = http.get("/v1/topology").json()
        assert state["topology"]["shape"] == "TP2"
        assert f"generation {generation}," in state["origin"]
        body = {"model": "counting", "prompt": "count by 7 from 23:", "max_tokens": 3}
        assert http.post("/openai/v1/completions", json=body).json()["usage"]["completion_tokens"] == 3


# --- devices that are to blame ---


@rows(
    ("sick", "goes_round", "out"),
    [
        ({0, 1}, True, {0, 1}),
        ({0, 1, 2, 3}, True, None),
        ({0}, False, None),
    ],
)
async def test_a_device_to_blame_for_two_failed_starts_is_out_if_the_model_starts_without(
    tmp_path, monkeypatch, sick, goes_round, out
):
    folder = tmp_path / str(len(sick))
    model, tried = read(folder).model(), list[int]()

    async def start(_: object, topology: Topology, launchers: object = None, batching: object = None) -> Topology:
        (device,) = topology.devices
        tried.append(device)
        if device in sick:
            error = SwitchError(Reason.LOAD_FAILED, f"device {device} cannot be used")
            error.device = device
            raise error
        return topology

    def beginning(without: Collection[int]) -> Beginning:
        left = [device for device in range(4) if device not in without or not goes_round]
        return Beginning(parse_topology(f"CPU[{left[0]}]:0-8", model.cluster, 8, "fp32"), "")

    monkeypatch.setattr("service.deployment.engines.start", start)
    with closing(Store.open(folder)) as store:
        devices = Devices(store)
        if out is None:
            with pytest.raises(SwitchError, match="cannot be used"):
                await start_without_the_broken(model, devices, beginning)
        else:
            engine, _ = await start_without_the_broken(model, devices, beginning)
            assert engine.devices == (2,)
            assert tried == [0, 0, 1, 1, 2]
        assert {*devices.all} == (out or set())
        devices.close()


# --- hosts, while the service starts ---


@rows("topology", [TP2, PP2])
async def test_a_host_that_is_lost_during_the_start_is_like_one_lost_before(tmp_path, monkeypatch, topology):
    """The last committed topology, or that of the file, runs on devices that go out while it starts."""
    folder = tmp_path / topology[:8]
    model = read(folder).model()
    tried = list[str]()

    async def start(_: object, target: Topology, launchers: object = None, batching: object = None) -> Topology:
        tried.append(str(target))
        if len(tried) == 1:
            for device in target.devices:
                devices.out(device, "host b is lost: Broken pipe")
            raise EngineLostError("its driver process ended: host b is lost: Broken pipe")
        return target

    def beginning(without: Collection[int]) -> Beginning:
        elsewhere = "CPU[2]:0-8@fp32"
        text = elsewhere if {0, 1} & {*without} else topology
        return Beginning(parse_topology(text, model.cluster, 8, "fp32"), text)

    monkeypatch.setattr("service.deployment.engines.start", start)
    with closing(Store.open(folder)) as store:
        devices = Devices(store)
        engine, began = await start_without_the_broken(model, devices, beginning)
        assert (str(engine), began.origin) == ("CPU[2]:0-8@fp32", "CPU[2]:0-8@fp32")
        assert tried == [topology, "CPU[2]:0-8@fp32"]
        devices.close()


async def test_the_loop_turns_while_a_model_looks_for_where_to_begin(tmp_path, monkeypatch):
    model = read(tmp_path).model()
    turned = threading.Event()

    async def start(_: object, target: Topology, launchers: object = None, batching: object = None) -> Topology:
        return target

    def beginning(_: Collection[int]) -> Beginning:
        assert turned.wait(20), "no heartbeat went out meanwhile"
        return Beginning(parse_topology(TP2, model.cluster, 8, "fp32"), "")

    monkeypatch.setattr("service.deployment.engines.start", start)
    asyncio.get_running_loop().call_soon(turned.set)
    with closing(Store.open(tmp_path)) as store:
        devices = Devices(store)
        await start_without_the_broken(model, devices, beginning)
        devices.close()


@rows("engine", ["torch", "vllm"])
async def test_engines_are_imported_before_any_host_expects_heartbeats(tmp_path, monkeypatch, engine):
    class ReachedError(Exception):
        """Of the moment at which hosts are reached."""

    module = f"runtime.{engine}_engine.engine"

    def reach(*_: object) -> None:
        raise ReachedError(module in sys.modules)

    deployment = read(tmp_path / engine, f"{DEPLOYMENT}engine: {engine}\n")
    monkeypatch.setattr(composition, "open_hosts", reach)
    monkeypatch.setattr(composition.Tokenizer, "load", lambda _: None)
    monkeypatch.setattr(composition, "load_profiles", lambda *_: {})
    with monkeypatch.context() as patch:
        known = import_module(module)
        patch.setattr(sys.modules[known.__package__ or ""], "engine", known)  # the copy is of this test alone
        patch.delitem(sys.modules, module)
        with pytest.raises(ReachedError, match="True"):
            async with composition.compose(deployment, Settings(port=1, data_dir=tmp_path / engine)):
                pass
