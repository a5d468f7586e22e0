"""Revoked is revoked: whatever the order of what happens to keys, at once, and in streams that are open."""

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial

import pytest
from sqlalchemy.orm import Session

from service.access.key_store import KeyStore
from service.access.keys import Key, KeyFault
from service.access.wiring import WrongKeyAudit
from service.documents.access import Role
from service.documents.errors import StoreError
from service.documents.operations import ApprovalDocument
from service.serving.events import LOOK_S, EventBus
from service.store.store import Store
from tests.service.examples import operation

pytestmark = pytest.mark.slow


class Seams:
    """Threads that stop before and behind each transaction, and go on in an order of dice."""

    def __init__(self, store: Store, dice: random.Random) -> None:
        self._transaction, self._dice = store.transaction, dice
        self._gates = dict[threading.Thread, threading.Semaphore]()
        self._arrived: queue.SimpleQueue[tuple[threading.Thread, bool]] = queue.SimpleQueue()
        store.transaction = self.transaction

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        self._stop()
        with self._transaction() as session:
            yield session
        self._stop()

    def _stop(self) -> None:
        thread = threading.current_thread()
        if thread in self._gates:
            self._arrived.put((thread, False))
            self._gates[thread].acquire()

    def run(self, works: list[Callable[[], None]]) -> None:
        """Run some at once; one that holds no lock goes on when no other has come to a seam for a moment."""

        def work(one: Callable[[], None]) -> None:
            try:
                one()
            finally:
                self._arrived.put((threading.current_thread(), True))

        threads = [threading.Thread(target=work, args=(one,)) for one in works]
        self._gates = {thread: threading.Semaphore(0) for thread in threads}
        waiting, left = list[threading.Thread](), len(threads)
        for thread in threads:
            thread.start()
        while left:
            try:
                thread, is_over = self._arrived.get(timeout=0.002 if waiting else 10)
            except queue.Empty:
                self._gates[waiting.pop(self._dice.randrange(len(waiting)))].release()
                continue
            left -= is_over
            waiting += [] if is_over else [thread]
        for thread in threads:
            thread.join()
        self._gates = {}


def change(keys: KeyStore, wholes: dict[str, str], what: str, prefix: str) -> None:
    if what in {"create", "expiring"}:
        ends_s = time.time() + 40 if what == "expiring" else None
        whole, key = keys.create("ada", Role.VIEWER, None, "test", ends_s)
        wholes[key.prefix] = whole
    elif what == "revoke":
        keys.revoke(prefix)
        assert keys.ring.find(wholes.get(prefix, ""), time.time()) is not Key
    else:
        with suppress(KeyError), keys.change():
            keys.revoke(prefix)
            raise KeyError("it is the last of an administrator")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", [80, pytest.param(2000, marks=pytest.mark.exhaustive)])
def test_in_no_order_the_ring_opens_a_key_that_the_database_says_is_revoked(tmp_path, count):
    """Changes stop at the edges of their transactions, some are undone, keys expire and the service starts anew."""
    dice = random.Random(count)
    for number in range(count // 40):
        with closing(Store.open(tmp_path / str(number))) as store:
            walk(store, dice, 40)


def walk(store: Store, dice: random.Random, count: int) -> None:
    keys, wholes, now_s, seams = KeyStore(store), dict[str, str](), time.time(), Seams(store, dice)
    for _ in range(count):
        live = [key.prefix for key in keys.kept() if key.wrong(now_s) is None] or [""]
        whats = dice.choices(("create", "revoke", "expiring", "undone"), k=dice.choice((2, 3, 4)))
        seams.run([partial(change, keys, wholes, what, dice.choice(live)) for what in whats])
        now_s += dice.choice((0, 0, 50))
        if dice.random() < 0.1:
            keys = KeyStore(store)
        opens = {one for one, whole in wholes.items() if isinstance(keys.ring.find(whole, now_s), Key)}
        assert opens == {key.prefix for key in keys.kept() if key.wrong(now_s) is None}


def test_a_commit_of_which_nobody_knows_revokes_all_the_same(tmp_path, monkeypatch):
    with closing(Store.open(tmp_path)) as store:
        keys = KeyStore(store)
        (whole, key), (kept, _) = (
            keys.create("ada", Role.ADMIN, None, "test"),
            keys.create("b", Role.ADMIN, None, "t"),
        )
        transaction = store.transaction

        @contextmanager
        def cut() -> Iterator[Session]:
            with transaction() as session:
                yield session
            raise StoreError("the connection was lost in the commit")

        monkeypatch.setattr(store, "transaction", cut)
        with pytest.raises(StoreError):
            keys.revoke(key.prefix)
        with pytest.raises(StoreError):
            keys.create("carl", Role.ADMIN, None, "test")
        assert keys.ring.find(whole, time.time()) is KeyFault.REVOKED
        assert isinstance(keys.ring.find(kept, time.time()), Key)


async def test_a_subscriber_who_may_not_hear_any_more_is_told_nothing_more(store):
    may = [True]
    async with EventBus(store) as bus:
        events = bus.subscribe(None, lambda: may[0])
        first = asyncio.ensure_future(anext(events, None))
        await asyncio.sleep(0)
        bus.publish("operation", operation("a"))
        assert (await first).data.id == "a"
        may[0] = False
        bus.publish("operation", operation("b"))
        assert await anext(events, None) is None
        async for _ in bus.subscribe(0, lambda: may[0]):
            raise AssertionError("past events are for nobody else either")


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_the_event_stream_of_a_key_ends_with_it(keyed, how):
    keys = keyed.parts.access.keys
    ends_s = time.time() + 0.5 if how == "expired" else None
    whole, key = keys.create(f"hearing-{how}", Role.VIEWER, None, "test", ends_s)
    with keyed.client(whole) as theirs, theirs.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        if how == "revoked":
            keyed.do(keyed.parts.events.publish, "approval", approval("before"))
            assert any("before" in line for line in lines)
            keys.revoke(key.prefix)
            keyed.do(keyed.parts.events.publish, "approval", approval("behind"))
            assert not any("behind" in line for line in lines)
        assert list(lines) == []
    assert LOOK_S < 2, "it ends within two seconds"


def approval(plan_id: str) -> ApprovalDocument:
    facts = {"plan_id": plan_id, "digest": "", "verdict": "rejected", "by": "ada", "role": "admin"}
    return ApprovalDocument.model_validate({**facts, "at_s": 1.0, "until_s": None})


class Noted:
    """An audit that writes nothing down but what it was told."""

    def __init__(self) -> None:
        self.counts = list[tuple[str, str, int]]()

    def add(self, _caller: object, _act: str, subject: str, *, after: dict[str, object]) -> None:
        self.counts.append((subject, str(after["origin"]), int(str(after["count"]))))

    async def beside(self, work: Callable[..., None], *arguments: object) -> None:
        await asyncio.to_thread(work, *arguments)


async def test_wrong_keys_are_counted_to_the_end_and_those_without_a_key_leave_nothing():
    noted = Noted()
    bell = WrongKeyAudit(noted, noted, quiet_s=0.0)
    for _ in range(5):
        bell.rang(KeyFault.UNKNOWN, "10.0.0.1")
        bell.rang(KeyFault.MISSING, "10.0.0.1")
    while sum(count for *_, count in noted.counts) < 5:  # noqa: ASYNC110 - written in a thread
        await asyncio.sleep(0)
    assert {one[:2] for one in noted.counts} == {("unknown key", "10.0.0.1")}
    assert noted.counts[0][2] == 1


async def test_what_there_was_in_the_last_minute_is_written_when_the_service_ends():
    noted = Noted()
    bell = WrongKeyAudit(noted, noted)
    for number in range(100):
        bell.rang(KeyFault.REVOKED, f"10.0.0.{number}")
        bell.rang(KeyFault.UNKNOWN, "10.0.0.1")
    await asyncio.to_thread(bell.end)
    while sum(count for *_, count in noted.counts) < 200:  # noqa: ASYNC110 - as above
        await asyncio.sleep(0)
    assert len(noted.counts) <= 40, "addresses are told apart as far as they are few"
    assert ("revoked key", "others") in {one[:2] for one in noted.counts}


def test_a_request_without_a_key_is_no_entry(keyed, admin):
    before = admin.get("/v1/audit/head").json()["seq"]
    with keyed.client() as nobody:
        assert {nobody.get("/v1/models").status_code for _ in range(3)} == {401}
    assert admin.get("/v1/audit/head").json()["seq"] == before
