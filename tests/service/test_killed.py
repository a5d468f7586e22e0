"""A service that is killed at any moment starts again with all that it answered, in what its last switch committed."""

import random
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Answers:
    """What clients were told."""

    intents: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    operations: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


@contextmanager
def process(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service; it is killed at the end."""
    command = [sys.executable, "-m", "tests.service.scripted_process", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as running:
        try:
            assert running.stdout is not None
            yield running, running.stdout.readline().strip()
        finally:
            running.kill()


def client(url: str, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=url, headers=headers, timeout=120, trust_env=False)


def act(admin: httpx.Client, operator: httpx.Client, told: Answers) -> None:
    """Say, plan, approve, apply, until nobody answers any more."""
    turn = 0
    while True:
        turn += 1
        told.intents.append(operator.post("/v1/intents", json={"text": "as cheap as possible"}).json()["id"])
        told.keys.append(
            admin.post("/v1/keys", json={"name": f"k-{uuid.uuid4().hex[:8]}", "role": "viewer"}).json()["prefix"]
        )
        text = f"run it with tp={1 + turn % 2} and pp=1"
        answer = operator.post("/v1/plans", json={"text": text})
        if answer.status_code != 201:
            continue
        plan = answer.json()["plan"]
        told.plans.append(plan["id"])
        if admin.post(f"/v1/plans/{plan['id']}:approve", json={"digest": plan["digest"]}).status_code == 201:
            told.approved.append(plan["id"])
        applied = operator.post(f"/v1/plans/{plan['id']}:apply")
        if applied.status_code != 202:
            continue
        told.operations.append(applied.json()["id"])
        while not operator.get(f"/v1/operations/{told.operations[-1]}").json()["done"]:
            pass


def entries(http: httpx.Client, act: str) -> list[dict]:
    return http.get("/v1/audit", params={"act": act, "limit": 500}).json()["entries"]


def check(http: httpx.Client, told: Answers) -> None:
    """That nothing that was answered is gone, and what committed last serves."""
    assert http.get("/v1/audit/verdict").json()["flaws"] == []
    for kind in ("intents", "plans"):
        for name in getattr(told, kind):
            assert http.get(f"/v1/{kind}/{name}").status_code == 200, name
    assert {entry["subject"] for entry in entries(http, "plan.approve")} >= set(told.approved)
    assert {key["prefix"] for key in http.get("/v1/keys").json()["keys"]} >= set(told.keys)
    applied = entries(http, "plan.apply")[::-1]
    assert {entry["after"]["operation"] for entry in applied} >= set(told.operations)
    serves = None
    for entry in applied:
        operation = http.get(f"/v1/operations/{entry['after']['operation']}").json()
        assert operation["done"], operation
        if operation["phase"] == "done":
            serves = entry["after"]["topology"]
    state = http.get("/v1/topology").json()
    assert serves in {None, state["topology"]["text"]}, (serves, state)
    assert state["operation"] is None


def one_life(folder: Path, told: Answers, after_s: float) -> Answers:
    """Start the service, look at what it kept, act until it is killed; what it answered this time."""
    with process(folder) as (running, url), client(url, (folder / "admin.key").read_text().strip()) as admin:
        check(admin, told)
        told = Answers()
        made = admin.post("/v1/keys", json={"name": f"ops-{uuid.uuid4().hex[:8]}", "role": "operator"}).json()
        with client(url, made["key"]) as operator:
            killer = threading.Timer(after_s, running.kill)
            killer.start()
            with pytest.raises((httpx.TransportError, httpx.StreamError)):
                act(admin, operator, told)
            killer.join()
    return told


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [1, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_nothing_that_was_answered_is_lost_and_what_committed_serves(tmp_path, kills):
    dice, told = random.Random(kills), Answers()
    for _ in range(kills + 1):
        told = one_life(tmp_path, told, dice.uniform(0.02, 1.0))
