import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, create_engine, event, text

from service.access.audit import Audit
from service.database import open_database
from service.errors import StoreError
from service.store import Store
from tests.rows import rows
from tests.service.examples import intent, operation, plan


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

    assert store.plan("plan-1") == (plan(), "op-1")
    assert (store.operation("op-1"), store.operation("op-2")) == (operation(), None)
    store.close()
    again = Store.open(tmp_path, url)
    assert again.plan("plan-1") == (plan(), "op-1")
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
