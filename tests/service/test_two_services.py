"""Several services want one database: they start, hang, wake, stop and act beside each other, and one of them counts."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx
import pytest

from runtime.models import Phase
from service.store import lease as leases
from service.store import store as stores
from service.store.store import Store
from service.store.tables import ApprovalRow, KeyRow
from tests.service import scripted
from tests.service.scripted import DEPLOYMENT, ScriptedService

pytestmark = pytest.mark.slow

TEXT = DEPLOYMENT.replace("auth: none", "auth: {control_per_minute: 1000000}\napproval: {by: another}")
MOST_STANDING_BY = 3
IS_DONE = frozenset({200, 201, 202})


@dataclass
class World:
    """Services on one database, what was asked of them, and what they answered."""

    folder: Path
    url: str
    chance: random.Random
    pool: ThreadPoolExecutor
    numbers: Iterator[int] = field(default_factory=count)
    up: list[ScriptedService] = field(default_factory=list)
    """Those that answer or hang: none of them knows of the others."""
    starting: list[Future[None]] = field(default_factory=list)
    admin: str = ""
    keys: list[tuple[str, str]] = field(default_factory=list)
    """Prefix and whole of keys that may approve and apply."""
    plans: list[tuple[str, str]] = field(default_factory=list)
    """Id and digest."""
    revoked: dict[str, float] = field(default_factory=dict)
    """Prefix to when the answer that it is revoked had come."""
    acts: list[tuple[str, str, str, float]] = field(default_factory=list)
    """Act, plan, the key's prefix and when it was asked for, of what was answered with success."""

    def start(self) -> None:
        """Begin to start another service, which waits until the owner is gone, as few others do."""
        if sum(not each.done() for each in self.starting) >= MOST_STANDING_BY:
            return
        number = next(self.numbers)
        made = ScriptedService(self.folder / str(number), TEXT, database=self.url, owner=f"service {number}")

        def enter() -> None:
            made.__enter__()
            self.up.append(made)

        self.starting.append(self.pool.submit(enter))

    def hang(self) -> None:
        """Have a service beat no more; it goes on to act, as one that wakes."""
        for service in self._some():
            service.parts.store.lease.beat = lambda _: None

    def stop(self) -> None:
        """Have one end as it is told to, where others are there."""
        if len(self.up) > 1:
            for service in self._some():
                self.up.remove(service)
                service.stop()
                service.ended()

    def new_key(self) -> None:
        name = f"key-{next(self.numbers)}"
        made = self._post("/v1/keys", self.admin, {"name": name, "role": "approver"})
        if made is not None:
            self.keys.append((made["prefix"], made["key"]))

    def new_plan(self) -> None:
        for _, key in self._one(self.keys):
            body = {"target": self.chance.choice(["tp2", "pp2", "tp4", "1x1"])}
            if (made := self._post("/v1/plans", key, body)) is not None:
                self.plans.append((made["plan"]["id"], made["plan"]["digest"]))

    def revoke(self) -> None:
        for prefix, _ in self._one(self.keys):
            if self._post(f"/v1/keys/{prefix}:revoke", self.admin) is not None:
                self.revoked.setdefault(prefix, time.monotonic())

    def approve(self) -> None:
        for plan_id, digest in self._one(self.plans[-4:]):
            self._act("approve", plan_id, {"digest": digest})

    def apply(self) -> None:
        for plan_id, _ in self._one(self.plans[-4:]):
            self._act("apply", plan_id, None)

    def _act(self, act: str, plan_id: str, body: dict | None) -> None:
        for prefix, key in self._one(self.keys[-6:]):
            asked_s = time.monotonic()
            if self._post(f"/v1/plans/{plan_id}:{act}", key, body) is not None:
                self.acts.append((act, plan_id, prefix, asked_s))

    def _post(self, path: str, key: str, body: dict | None = None) -> dict | None:
        """What some service answers; None: it refused, or is gone."""
        for service in self._some():
            with service.client(key) as http:
                try:
                    answer = http.post(path, json=body)
                except httpx.TransportError:
                    return None
            assert answer.status_code < 500 or answer.status_code == 503, answer.text
            return answer.json() if answer.status_code in IS_DONE else None
        return None

    def _some(self) -> list[ScriptedService]:
        return self._one(self.up)

    def _one(self, of: list) -> list:
        return [self.chance.choice(of)] if of else []

    def round(self) -> None:
        """Some of all that, beside each other."""
        rare = [self.start, self.hang, self.stop, self.new_key, self.revoke]
        common = [self.new_plan, self.approve, self.apply] * 2
        chosen = self.chance.sample(rare + common, 4)
        for future in [self.pool.submit(each) for each in chosen]:
            future.result()
        self.go_on()

    def go_on(self) -> None:
        """Return when some service owns the database."""
        while not any(service.parts.store.lease.lost_to == "" for service in self.up):
            if not (under_way := [each for each in self.starting if not each.done()]):
                self.start()
                under_way = self.starting[-1:]
            wait(under_way, timeout=0.05, return_when=FIRST_COMPLETED)

    def end(self) -> None:
        """End all of them, each of which may be the owner once the others are gone."""
        while self.up or not all(each.done() for each in self.starting):
            for service in self.up[:]:
                service.stop()
                service.stop()
                service.ended()
                self.up.remove(service)
            wait([each for each in self.starting if not each.done()], timeout=0.05, return_when=FIRST_COMPLETED)
        for each in self.starting:
            each.result()


@contextmanager
def world(folder: Path, url: str, seed: int) -> Iterator[World]:
    with ThreadPoolExecutor(12) as pool:
        made = World(folder, url, random.Random(seed), pool)
        made.go_on()
        made.admin = made.up[0].admin_key
        for _ in range(3):
            made.new_key()
            made.new_plan()
        try:
            yield made
        finally:
            made.end()


def walk(folder: Path, url: str, seed: int, num_rounds: int) -> World:
    with world(folder, url, seed) as found:
        for _ in range(num_rounds):
            found.round()
    return found


def check(found: World, store: Store) -> None:
    late = [
        (act, plan, prefix)
        for act, plan, prefix, asked_s in found.acts
        if prefix in found.revoked and asked_s > found.revoked[prefix]
    ]
    assert late == [], "acts by keys that had been revoked"
    applied = [plan for act, plan, *_ in found.acts if act == "apply"]
    assert len(applied) == len(set(applied)), "a plan was applied twice"
    with store.transaction() as session:
        approved = [plan for act, plan, *_ in found.acts if act == "approve"]
        assert [plan for plan in approved if session.get(ApprovalRow, plan) is None] == []
        assert [prefix for prefix in found.revoked if session.get(KeyRow, prefix).revoked_s is None] == []
    kept = {plan: store.plan(plan).applied_by for plan in applied}
    assert all(kept.values()), "an answer was lost"
    operations = {operation: store.operation(operation) for operation in kept.values()}
    assert None not in operations.values()
    for operation in operations:
        phases = [line.phase for line in store.journal(operation)]
        assert phases.count(Phase.COMMITTED.value) <= 1


@pytest.fixture
def quick(monkeypatch) -> None:
    monkeypatch.setattr(scripted, "WITHIN_S", 3600)  # whoever stands by starts late
    monkeypatch.setattr(leases, "LOOK_S", 0.01)
    monkeypatch.setattr(stores, "BEAT_S", 0.03)


def test_one_of_several_services_counts(tmp_path, quick, database):
    found = walk(tmp_path, database, seed=1, num_rounds=12)
    store = Store.open(tmp_path, database)
    check(found, store)
    store.close()
    assert {act for act, *_ in found.acts} == {"approve", "apply"}


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(5))
def test_one_of_several_services_counts_in_a_hundred_rounds(tmp_path, quick, database, seed):
    found = walk(tmp_path, database, seed, num_rounds=100)
    store = Store.open(tmp_path, database)
    check(found, store)
    store.close()
