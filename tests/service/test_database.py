import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue

import pytest
from sqlalchemy import Engine, create_engine, event, text

from service.access.audit import Audit
from service.documents.errors import StoreError
from service.store import database as databases
from service.store.database import open_database
from service.store.store import Store
from tests.rows import rows
from tests.service.examples import intent, operation, plan
from tests.service.scripted import open_store


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreError, match="cannot be written"):
        open_database(tmp_path / "file" / "folder")


def test_a_database_without_write_access_is_refused_at_once(tmp_path):
    open_database(tmp_path).dispose()
    url = f"sqlite:///file:{tmp_path / 'intentctl.sqlite'}?mode=ro&uri=true"

    with pytest.raises(StoreError, match="readonly"):
        open_database(tmp_path, url)


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "intentctl.sqlite").write_text("not a database, but long enough to be looked at" * 50)

    with pytest.raises(StoreError, match="not a database"):
        open_database(tmp_path)


@rows("url", ["nonsense", "oracle://x", "mysql://user:secret@x/y", "sqlite+nothing:///x"])
def test_a_database_url_that_leads_nowhere_is_refused(tmp_path, url):
    with pytest.raises(StoreError, match="cannot be written") as refused:
        open_database(tmp_path, url)
    assert "secret" not in str(refused.value)


@rows("url", [None, "sqlite:///{folder}/x.sqlite"])
def test_a_password_for_a_database_that_asks_for_none_is_refused(tmp_path, url):
    with pytest.raises(StoreError, match="PASSWORD_FILE is for PostgreSQL") as refused:
        open_database(tmp_path, url and url.format(folder=tmp_path), "secret")
    assert "secret" not in str(refused.value)


def test_a_driver_that_is_missing_is_named_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(StoreError, match=r"needs psycopg: pip install 'intentctl\[postgres\]'"):
        open_database(tmp_path, "postgresql://nobody@/nowhere")


def test_the_file_is_plain_sqlite(tmp_path):
    store = Store.open(tmp_path)
    store.save_plan(intent(), plan())
    connection = sqlite3.connect(tmp_path / "intentctl.sqlite")

    assert connection.execute("select id from plans").fetchall() == [("plan-1",)]
    connection.close()
    store.close()


def test_tables_of_a_newer_version_are_left_alone(tmp_path, database):
    engine = open_database(tmp_path, database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(StoreError, match=r"newer intentctl \(their version is 9999, .* start the newer intentctl"):
        open_database(tmp_path, database)
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == "9999"
    engine.dispose()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_of_two_services_that_open_one_database_at_once_one_makes_the_tables(tmp_path, postgres):
    url, making = postgres.new_database(), []
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    onlooker = create_engine(url.replace("postgresql", "postgresql+psycopg", 1))

    def linger(connection, cursor, statement: str, *_: object) -> None:
        """The first that makes tables goes on when the other waits for it, or does the same."""
        if "CREATE TABLE alembic_version" in statement:
            making.append(statement)
            with onlooker.connect() as other:
                while len(making) < 2 and not other.scalar(waiting):
                    other.rollback()

    event.listen(Engine, "before_cursor_execute", linger)
    try:
        with ThreadPoolExecutor(2) as services:
            for engine in services.map(lambda _: open_database(tmp_path, url), range(2)):
                engine.dispose()
    finally:
        event.remove(Engine, "before_cursor_execute", linger)
        onlooker.dispose()
    assert len(making) == 1


def test_a_full_disk_is_an_error_and_nothing_is_half_written(tmp_path):
    store = Store.open(tmp_path)
    with store._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 2}")

    with pytest.raises(StoreError, match=r"full; see to the disk"):
        store.save_plan(intent("x" * 100), plan(reasons=("x" * 100_000,)))
    assert store.plan("plan-1") is None
    assert store.intent("intent-1") is None

    with store._engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages + 1000}")
    store.save_plan(intent(), plan(reasons=("x" * 100_000,)))
    assert store.plan("plan-1") is not None
    store.close()


@pytest.mark.slow
def test_a_server_keeps_plans_and_what_claims_them_and_is_an_error_while_it_is_gone(tmp_path, postgres):
    """The one test of ``make test`` with PostgreSQL: whatever is tested with SQLite is tested with it in ``make exhaustive``."""
    url = postgres.new_database()
    store = Store.open(tmp_path, url)
    store.save_plan(intent(), plan())
    assert store.claim_plan("plan-1", operation())
    assert not store.claim_plan("plan-1", operation("op-2"))
    postgres.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"cannot be used: .*; see that the server runs"):
                store.plan("plan-1")
    finally:
        postgres.start()

    assert store.plan("plan-1") == plan(applied_by="op-1")
    assert (store.operation("op-1"), store.operation("op-2")) == (operation(), None)
    store.close()
    again = Store.open(tmp_path, url)
    assert again.plan("plan-1") == plan(applied_by="op-1")
    assert Audit(again).verify() == ()
    again.close()


@pytest.mark.slow
def test_a_password_is_never_told(tmp_path):
    with pytest.raises(StoreError) as refused:
        open_database(tmp_path, "postgresql://me:secret@127.0.0.1:1/nowhere")
    assert "secret" not in str(refused.value)
    assert "127.0.0.1" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_a_url_says_of_waiting_holds(tmp_path, postgres):
    url = postgres.new_database()
    engine = open_database(tmp_path, f"{url}&connect_timeout=9")
    assert engine.url.query["connect_timeout"] == "9"
    assert engine.url.query["tcp_user_timeout"] == "10000"
    engine.dispose()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_password_from_elsewhere_needs_no_escapes_and_goes_before_one_in_the_url(tmp_path, postgres):
    url = postgres.new_database().replace("postgres@", "postgres:old@")
    engine = open_database(tmp_path, url, "p@ss/word:?%41")
    with engine.connect() as connection:
        assert connection.connection.driver_connection.info.password == "p@ss/word:?%41"
    engine.dispose()


# --- a database that does not answer ---


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is late is late soon, until it has ``returned``."""
    monkeypatch.setattr(databases, "LATE_S", 0.1)


@pytest.fixture
def file_store(tmp_path) -> Iterator[Store]:
    """One on SQLite, whichever database the others are on."""
    with closing(open_store(tmp_path)) as store:
        yield store


@pytest.fixture
def lock(impatient: None, file_store: Store) -> Iterator[sqlite3.Connection]:
    """Another program that holds the file."""
    with closing(sqlite3.connect(file_store._engine.url.database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield other


class Gate:
    """Commits that return once it is open; the database has made them, or makes them then."""

    def __init__(self, engine: Engine, *, is_before: bool = False) -> None:
        self.opened = threading.Event()
        self.is_shut = False
        self._commit = engine.dialect.do_commit
        self._is_before = is_before
        engine.dialect.do_commit = self._committed

    def _committed(self, connection: object) -> None:
        if self._is_before and self.is_shut:
            self.opened.wait()
        self._commit(connection)
        if self.is_shut:
            self.opened.wait()


def returned(store: Store) -> None:
    """Wait until no call is late; what comes then may take its time."""
    databases.LATE_S = 60.0
    while store.calls.stalled_s is not None:
        threading.Event().wait(0.01)


def test_a_call_that_hangs_is_refused_and_the_others_at_once_until_it_returns(lock, file_store, caplog):
    with pytest.raises(StoreError, match=r"did not answer within .* another program holds its file") as refused:
        file_store.append_journal("op-1", "planned", "")
    assert not refused.value.is_unknown
    for _ in range(2):
        with pytest.raises(StoreError, match=r"has not answered for .* nothing is asked of it"):
            file_store.plan("plan-1")
    assert file_store.calls.stalled_s is not None
    lock.execute("COMMIT")
    returned(file_store)

    assert file_store.journal("op-1") == [], "what was refused is not written later"
    file_store.append_journal("op-1", "planned", "")
    assert len(file_store.journal("op-1")) == 1
    assert caplog.text.count("the store stalls: ") == 1


def test_no_more_calls_hang_than_may_be_beside_each_other(lock, file_store, monkeypatch):
    monkeypatch.setattr(databases, "LATE_S", 2.0)  # all begin before the first is late
    with ThreadPoolExecutor(24) as callers:
        asked = [callers.submit(file_store.append_journal, "op-1", "planned", "") for _ in range(24)]
        assert {type(call.exception()) for call in asked} == {StoreError}
    assert len(file_store.calls._late) <= databases.MOST_TURNS
    lock.execute("COMMIT")
    returned(file_store)
    assert file_store.journal("op-1") == []


@rows("is_before", [False, True])
def test_of_a_commit_that_answers_too_late_nobody_says_that_nothing_was_written(tmp_path, impatient, is_before):
    engine = open_database(tmp_path / str(is_before))
    gate = Gate(engine, is_before=is_before)
    with closing(Store(engine)) as store:
        store.append_journal("op-0", "planned", "")
        gate.is_shut = True
        databases.LATE_S = 0.1
        heard = SimpleQueue[int]()
        store.calls.on_return.append(lambda: heard.put(len(store.journal("op-1"))))
        with pytest.raises(StoreError, match="may be written all the same: look before you send it again") as refused:
            store.append_journal("op-1", "planned", "")
        assert refused.value.is_unknown
        gate.is_shut = False
        databases.LATE_S = 60.0
        gate.opened.set()
        returned(store)
        assert heard.get(timeout=60) == 1, "what mirrors the store looks again"
        store.append_journal("op-1", "warming", "")
        assert [line.phase for line in store.journal("op-1")] == ["planned", "warming"]


def test_a_store_that_hangs_is_closed_all_the_same(lock, file_store):
    with pytest.raises(StoreError):
        file_store.append_journal("op-1", "planned", "")
    file_store.close()
    assert file_store.calls.stalled_s is not None


async def test_who_waits_for_the_store_takes_no_thread_of_others(tmp_path):
    with closing(Store.open(tmp_path)) as store:
        assert (await store.beside(lambda: threading.current_thread().name)).startswith("store")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_server_ends_a_wait_for_a_row_that_others_hold_and_nothing_stalls(tmp_path, postgres):
    store = Store.open(tmp_path, postgres.new_database())
    store.save_plan(intent(), plan())
    with store._engine.connect() as other:
        other.execute(text("SELECT * FROM plans FOR UPDATE"))
        with pytest.raises(StoreError, match="lock timeout"):
            store.claim_plan("plan-1", operation())
        assert store.calls.stalled_s is None
        with pytest.raises(StoreError, match="statement timeout"), store.transaction() as session:
            session.execute(text("SELECT pg_sleep(60)"))
        assert store.calls.stalled_s is None
    assert store.claim_plan("plan-1", operation())
    store.close()
