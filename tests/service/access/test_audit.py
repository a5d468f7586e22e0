import gzip
import hashlib
import json
import threading
import time

import pytest
from sqlalchemy import Engine, create_engine, event, text

from service.access import audit as audits
from service.access.audit import Audit
from service.access.chain import Head, flaws
from service.documents.access import AuditEntry, Caller, Role
from service.documents.errors import StoreError
from service.store.retention import DAY_S
from service.store.store import Store
from tests.rows import rows

ADA = Caller("ada", Role.ADMIN, "abcd", None, "127.0.0.1", "req-1")
COPY = (
    "INSERT INTO audit (seq, at_s, who, key, role, act, subject, before, after, origin, request_id, previous, hash) "
    "SELECT 7, at_s, who, key, role, act, subject, before, after, origin, request_id, hash, hash FROM audit WHERE seq = 6"
)
UNGUARD = {
    "sqlite": ("DROP TRIGGER audit_no_update", "DROP TRIGGER audit_no_delete"),
    "postgresql": ("DROP TRIGGER audit_no_change ON audit",),
}


def tamper(database: str, *statements: str) -> None:
    """What somebody does who can write the database itself, and take its guards away."""
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        for statement in (*UNGUARD[engine.dialect.name], *statements):
            connection.execute(text(statement))
    engine.dispose()


def test_acts_are_kept_with_who_what_and_from_where(store):
    audit = Audit(store)
    audit.add(ADA, "plan.apply", "plan-1", before={"topology": "1x1"}, after={"topology": "tp2"})
    audit.add(ADA, "key.revoke", "abcd")
    newest, oldest = audit.page()
    assert (newest.seq, newest.act, newest.previous) == (2, "key.revoke", oldest.hash)
    assert (oldest.who, oldest.role, oldest.key) == ("ada", "admin", "abcd")
    assert (oldest.origin, oldest.request_id) == ("127.0.0.1", "req-1")
    assert oldest.after == {"topology": "tp2"}
    assert [one.seq for one in audit.page(before=2)] == [1]
    assert [one.seq for one in audit.page(act="plan.apply")] == [1]
    assert Audit(store).head() == Head(2, newest.hash)


def test_the_database_refuses_changes(store):
    Audit(store).add(ADA, "plan.apply", "plan-1")
    for statement in ("UPDATE audit SET who = 'eve'", "DELETE FROM audit"):
        with pytest.raises(StoreError, match="append-only"), store.transaction() as session:
            session.execute(text(statement))
    assert Audit(store).verify() == ()


def test_old_entries_go_into_a_file_and_the_rest_is_verified_from_there(store, tmp_path, monkeypatch):
    audit = Audit(store)
    heads = list[Head]()
    for number in range(5):
        audit.add(ADA, "plan.apply", f"plan-{number}")
        heads.append(audit.head())
    now_s = time.time()
    monkeypatch.setattr(audits, "wall_s", lambda: now_s + 100 * DAY_S)
    assert [audit.export(days, tmp_path) for days in (101, 71, 69)] == [0, 0, 5]
    audit.add(ADA, "plan.apply", "plan-5")
    packed = (tmp_path / "audit-1-5.jsonl.gz").read_bytes()
    entries = [AuditEntry(**json.loads(line)) for line in gzip.decompress(packed).splitlines()]
    assert flaws(entries, heads[-1]) == ()
    export = audit.page()[-1]
    digest = hashlib.sha256(packed).hexdigest()
    assert (export.seq, export.act, export.after["sha256"]) == (6, "audit.export", digest)
    assert [audit.verify(known) for known in (None, heads[-1], audit.head())] == [(), (), ()]
    assert [flaw.problem for flaw in audit.verify(heads[0])] == [
        "is none that is here: those up to 5 were exported; look for it there"
    ]
    with pytest.raises(StoreError, match="append-only"), store.transaction() as session:
        session.execute(text("DELETE FROM audit WHERE seq <= 6"))
    monkeypatch.setattr(audits, "wall_s", lambda: now_s + 200 * DAY_S)
    monkeypatch.setattr(audits, "MOST", 1)
    assert [(audit.export(69, tmp_path), audit.verify()) for _ in range(3)] == [(1, ()), (1, ()), (0, ())]
    assert [one.act for one in audit.page()] == ["audit.export", "audit.export"]


@rows(
    ("statements", "seq", "problem"),
    [
        (["UPDATE audit SET who = 'eve' WHERE seq = 3"], 3, "was changed"),
        (["DELETE FROM audit WHERE seq = 3"], 3, "is missing"),
        (["DELETE FROM audit WHERE seq > 4"], 5, "missing at the end"),
        (
            [
                "UPDATE audit SET seq = 99 WHERE seq = 3",
                "UPDATE audit SET seq = 3 WHERE seq = 4",
                "UPDATE audit SET seq = 4 WHERE seq = 99",
            ],
            3,
            "does not follow",
        ),
        ([COPY], 7, "behind the end"),
    ],
)
def test_what_was_tampered_with_is_found(tmp_path, new_database, statements, seq, problem):
    audit = Audit(store := Store.open(tmp_path, database := new_database()))
    for number in range(6):
        audit.add(ADA, "plan.apply", f"plan-{number}")
    tamper(database, *statements)
    flaw = audit.verify()[0]
    store.close()
    assert (flaw.seq, problem in flaw.problem) == (seq, True), flaw


@pytest.mark.parametrize("each", [15, pytest.param(625, marks=pytest.mark.exhaustive)])
def test_acts_of_sixteen_at_once_are_one_chain(store, each):
    audits = [Audit(store) for _ in range(2)]  # as two services have

    def act(number: int) -> None:
        for _ in range(each):
            audits[number % 2].add(ADA, "plan.apply", f"plan-{number}")

    threads = [threading.Thread(target=act, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert audits[0].head().seq == 16 * each
    assert audits[0].verify() == ()


def test_an_act_in_a_transaction_and_one_beside_it_do_not_wait_for_each_other(store):
    audit, asks = Audit(store), threading.Event()

    def asked(_connection, _cursor, statement: str, *_: object) -> None:
        if threading.current_thread() is beside and "audit_head" in statement:
            asks.set()

    beside = threading.Thread(target=audit.add, args=(ADA, "plan.apply", "plan-2"))
    event.listen(Engine, "before_cursor_execute", asked)
    try:
        with store.transaction() as session:
            store.append_journal("switch-1", "planned", "")
            session.flush()
            beside.start()
            asks.wait()
            audit.add(ADA, "switch.end", "switch-1")
        beside.join()
    finally:
        event.remove(Engine, "before_cursor_execute", asked)
    assert {one.act for one in audit.page()} == {"plan.apply", "switch.end"}
    assert audit.verify() == ()


def test_what_is_done_and_its_entry_are_kept_together_or_not_at_all(store):
    audit = Audit(store)

    def fails() -> None:
        with store.transaction():
            store.append_journal("switch-1", "planned", "")
            audit.add(ADA, "plan.apply", "plan-1")
            raise KeyError("in the middle")

    with pytest.raises(KeyError):
        fails()
    assert (audit.head(), store.journal("switch-1")) == (Head(), [])
    with store.transaction():
        store.append_journal("switch-1", "planned", "")
        audit.add(ADA, "plan.apply", "plan-1")
    assert (audit.head().seq, len(store.journal("switch-1"))) == (1, 1)
