"""A wall clock that is put back, or forward and back, opens nothing that has ended."""

import time
from types import SimpleNamespace

import httpx
import pytest

from service.access import gate
from service.documents.access import Role
from service.store import clock
from tests.service.asking import plan_for, problem
from tests.service.scripted import DEPLOYMENT, ScriptedService


def shifted(monkeypatch: pytest.MonkeyPatch, by_s: float, passed_s: float = 0.0) -> None:
    """Let time pass, and put the wall clock of this machine forward or back."""
    monkeypatch.setattr(gate, "time", SimpleNamespace(time=lambda: time.time() + by_s))
    other = SimpleNamespace(time=lambda: time.time() + passed_s + by_s, monotonic=lambda: time.monotonic() + passed_s)
    monkeypatch.setattr(clock, "time", other)


def test_it_is_never_less_than_what_has_passed(monkeypatch):
    before = clock.wall_s()
    shifted(monkeypatch, -3600)
    assert before <= clock.wall_s() < before + 60
    shifted(monkeypatch, 3600)
    assert clock.wall_s() > before + 3500


def test_keys_and_approvals_that_ended_stay_so_when_the_clock_is_put_back(tmp_path, monkeypatch):
    text = DEPLOYMENT.replace("auth: none", "approval: {by: another}")
    with ScriptedService(tmp_path, text) as service:
        keys = service.parts.access.keys
        whole, key = keys.create("brief", Role.VIEWER, None, "test", expires_s=clock.wall_s() - 1)
        shifted(monkeypatch, -3600)
        assert not keys.opens(key.prefix, clock.wall_s())
        with service.client(whole) as http:
            assert http.get("/v1/topology").status_code == 401
            shifted(monkeypatch, -3600, passed_s=600)
            late, _ = keys.create("late", Role.VIEWER, None, "test", expires_s=clock.wall_s() - 60)
        with service.client(late) as http:  # it ended after 540 s, which the clock that is put back does not say
            assert http.get("/v1/topology").status_code == 401
        with service.person("approver", "ada") as ada, service.person("approver", "bob") as bob:
            plan = plan_for(bob, target="tp2")
            approved(ada, plan, minutes=5)
            shifted(monkeypatch, -3600, passed_s=1200)
            late = problem(bob.post(f"/v1/plans/{plan['id']}:apply"), 403, "not_approved")
            assert "approv" in late["detail"]


def approved(http: httpx.Client, plan: dict, minutes: float) -> None:
    body = {"digest": plan["digest"], "minutes": minutes}
    assert http.post(f"/v1/plans/{plan['id']}:approve", json=body).status_code == 201
