"""Devices that are out: said, kept, audited, and used by no plan and no start."""

import threading

import httpx
import pytest

from service.documents.access import Caller, Role
from service.documents.errors import StoreError
from service.serving.devices import Devices
from tests.rows import rows
from tests.service.scripted import KEYS, ScriptedService, served

pytestmark = pytest.mark.slow


def listed(http: httpx.Client) -> dict[int, tuple[bool, str | None]]:
    """Device to whether it is used, and why it is out."""
    found = http.get("/v1/devices").json()["devices"]
    return {one["device"]: (one["used"], one["out"]) for one in found}


def devices_of(http: httpx.Client, **asked: object) -> list[int]:
    answer = http.post("/v1/plans", json=asked)
    assert answer.status_code == 201, answer.text
    (plan,) = answer.json()["plans"]
    return [device for stage in plan["target"]["stages"] for device in stage["devices"]]


def test_a_device_that_is_out_is_in_no_plan_and_stays_out_over_a_restart(tmp_path):
    with served(tmp_path) as (_, http):
        assert listed(http) == {0: (True, None), 1: (True, None), 2: (False, None), 3: (False, None)}
        said = http.post("/v1/devices/0:out", json={"why": "fans"}).json()
        assert (said["used"], said["out"], said["out_by"]) == (True, "fans", "anybody")
        assert 0 not in devices_of(http, text="run it with tp=2")
        refused = http.post("/v1/plans", json={"target": "CPU[0]:0-8"})
        assert refused.status_code == 422
        assert "it uses the device 0, which is out" in refused.json()["detail"]
        acts = [(one["act"], one["subject"], one["after"]) for one in http.get("/v1/audit").json()["entries"]]
        assert ("device.out", "0", {"why": "fans"}) in acts
        assert http.get("/v1/topology").json()["out"] == {"0": "fans"}
    with served(tmp_path) as (service, http):
        assert listed(http)[0] == (False, "fans")
        assert "the best topology on the devices that are left" in http.get("/v1/topology").json()["origin"]
        assert 0 not in service.engine.topology.devices
        assert http.post("/v1/devices/0:in").json()["out"] is None
        assert devices_of(http, target="CPU[0]:0-8") == [0]
        plan = http.get("/v1/plans").json()["plans"][0]
        http.post("/v1/devices/0:out")
        refused = http.post(f"/v1/plans/{plan['id']}:apply")
        assert (refused.status_code, refused.json()["code"]) == (409, "stale_plan")
        assert "device 0, which is out now" in refused.json()["detail"]


@rows(
    ("role", "status"),
    [("viewer", 403), ("operator", 403), ("approver", 200)],
)
def test_who_may_approve_may_take_devices_out(keyed, role, status):
    with keyed.person(role, role) as http:
        assert http.post("/v1/devices/3:out").status_code == status
        assert http.get("/v1/devices").status_code == 200
        for way in ("out", "in"):
            answer = http.post(f"/v1/devices/9:{way}")
            assert answer.status_code == (404 if status == 200 else 403)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    with ScriptedService(tmp_path_factory.mktemp("keyed"), KEYS) as service:
        yield service


def test_what_recovery_takes_out_is_so_at_once_and_written_when_the_store_can_be(store, monkeypatch):
    devices, written = Devices(store), threading.Event()
    heard: list[int] = []
    devices.on_change = heard.append
    add, fails = devices._audit.add, [StoreError("the store is away")]

    def added(*said, **more):
        if fails:
            raise fails.pop()
        add(*said, **more)
        written.set()

    monkeypatch.setattr(devices._audit, "add", added)
    monkeypatch.setattr("service.serving.devices.AGAIN_S", 0.0)
    devices.out(2, "it died twice")
    assert (devices.why(2), heard) == ("it died twice", [2])
    assert written.wait(10)
    with devices._writing:
        assert Devices(store).all == devices.all
    devices.close()


def test_what_a_person_changes_is_so_where_nobody_knows_whether_it_was_written_and_is_written_again(store, monkeypatch):
    devices, written = Devices(store), threading.Event()
    write, late = devices._write, [StoreError("it may be written all the same", is_unknown=True)]

    def wrote(*said):
        if late:
            raise late.pop()
        write(*said)
        written.set()

    monkeypatch.setattr(devices, "_write", wrote)
    with pytest.raises(StoreError, match="may be written"):
        devices.change(1, "maintenance", Caller("ada", Role.APPROVER))
    assert devices.why(1) == "maintenance"
    assert written.wait(10)
    with devices._writing:
        assert Devices(store).all == devices.all
    assert [entry.who for entry in devices._audit.page()] == ["ada"]
    devices.close()


def test_what_a_person_took_out_stays_out_whatever_comes_back(store):
    devices = Devices(store)
    devices.change(1, "maintenance", Caller("ada", Role.APPROVER))
    devices.out(1, "its host is lost")
    devices.back(1)
    assert devices.why(1) == "maintenance"
    devices.change(1, None, Caller("ada", Role.APPROVER))
    assert devices.why(1) == ""
