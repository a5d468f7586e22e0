import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, event, inspect, make_url, text

from service.documents.state import Page
from service.store.database import EARLIER, open_database
from service.store.store import Store
from service.store.tables import Base
from tests.service.examples import intent, operation, plan

pytestmark = pytest.mark.slow

TARGET = operation(end_s=9.0).result.target

STORES = Path(__file__).parents[1] / "data" / "stores"
"""Databases of every version that was on main, with rows in each table, as SQLite and PostgreSQL dumped them: ``first`` and
``last`` from before there were migrations, the others by their revision."""

OLD = sorted(file.stem for file in (STORES / "sqlite").glob("*.sql"))
AGES = ("new", *OLD)


@contextmanager
def raw(url: str) -> Iterator[Engine]:
    """The database as somebody else sees it."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    yield engine
    engine.dispose()


def make_old(url: str, age: str) -> dict[str, list[dict[str, object]]]:
    """The database of an earlier version, with rows in each table, which are the answer."""
    if age == "new":
        return {}
    kind = "sqlite" if url.startswith("sqlite") else "postgresql"
    statements = (STORES / kind / f"{age}.sql").read_text(encoding="utf-8")
    if kind == "sqlite":
        with closing(sqlite3.connect(make_url(url).database or "")) as file:
            file.executescript(statements)
    else:
        with psycopg.connect(url) as connection:
            connection.execute(statements.encode())
    return rows(url)


def rows(url: str) -> dict[str, list[dict[str, object]]]:
    """What is in each table, but for the version."""
    with raw(url) as engine, engine.connect() as connection:
        names = set(inspect(connection).get_table_names()) - {"alembic_version"}
        return {
            name: [dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()] for name in names
        }


def schema(url: str) -> dict[str, list[str]]:
    """Tables, each with its columns and indexes."""
    with raw(url) as engine:
        seen = inspect(engine)
        return {
            table: sorted(
                [column["name"] for column in seen.get_columns(table)]
                + [str(index["name"]) for index in seen.get_indexes(table)]
            )
            for table in seen.get_table_names()
        }


WHOLE = {
    table.name: sorted([*table.columns.keys(), *(str(index.name) for index in table.indexes)])
    for table in Base.metadata.sorted_tables
} | {"alembic_version": ["version_num"]}


def all_is_there(store: Store) -> None:
    assert store.plan("plan-1") == plan()
    assert store.operation("op-1") == operation(end_s=9.0)
    assert store.journal("op-1") == [("warming", "epoch 1", 3.0)]
    assert store.operations(Page(), model="counting").items == (operation(end_s=9.0),)
    assert store.plans(Page(), model="counting").items == (plan(),)
    assert store.intent("intent-1").intent == intent()
    assert store.intent("intent-1").said_by is None


@pytest.mark.parametrize("age", AGES)
def test_the_tables_are_those_that_the_store_knows(tmp_path, database, age):
    make_old(database, age)
    engine = open_database(tmp_path, database)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


@pytest.mark.parametrize("age", OLD)
def test_what_an_earlier_version_kept_is_there(tmp_path, database, age):
    before = make_old(database, age)
    store = Store.open(tmp_path, database)

    after = rows(database)
    for name, old in before.items():
        for was, row in zip(old, after[name], strict=True):
            known = {key: one for key, one in was.items() if one is not None}
            assert {key: row[key] for key in known} == known, name
    all_is_there(store)
    assert store.next_generation("counting", "1x1") == 2
    store.close()


def test_the_dumps_of_both_databases_are_of_the_same_versions():
    assert sorted(file.stem for file in (STORES / "postgresql").glob("*.sql")) == OLD
    assert {*EARLIER, "first", "last"} <= set(OLD)


@pytest.mark.parametrize(
    ("topology", "at_s", "made"),
    [
        (TARGET, 0.5, False),  # the switch began at 1
        (TARGET, 5.0, True),
        ("CPU[3]:0-8@fp32", 5.0, False),
        (TARGET, 9.5, False),  # and ended at 9
    ],
)
def test_the_generation_that_a_switch_made_is_known_by_its_topology_and_time(tmp_path, database, topology, at_s, made):
    make_old(database, "last")
    with raw(database) as engine, engine.begin() as connection:
        connection.execute(
            text("UPDATE generations SET topology = :topology, at_s = :at_s"),
            {"topology": topology, "at_s": at_s},
        )
    store = Store.open(tmp_path, database)

    found = store.committed("counting")
    assert (found and found[:3]) == ((1, TARGET, None) if made else None)
    store.close()


class InterruptedHereError(Exception):
    """The process ends here."""


@contextmanager
def interrupted_at(number: int) -> Iterator[Callable[[], bool]]:
    """The statement of that number is not executed; asked whether there was one."""
    left = number

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise InterruptedHereError

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield lambda: left <= 0
    finally:
        event.remove(Engine, "before_cursor_execute", count)


@pytest.mark.parametrize(
    ("age", "every"),
    [
        ("last", 3),
        *(pytest.param(age, 1, marks=pytest.mark.exhaustive) for age in ("new", "last", "first", "0003")),
    ],
)
def test_interrupted_at_any_statement_it_leaves_what_was_and_works_the_next_time(tmp_path, database, age, every):
    make_old(database, age)
    before, number, met = schema(database), 0, True
    step = 4 if database.startswith("postgresql") else every
    while met:
        number += step
        with interrupted_at(number) as was_met:
            try:
                open_database(tmp_path, database).dispose()
            except InterruptedHereError:
                assert schema(database) in (before, WHOLE)
            met = was_met()
    assert number > 5
    store = Store.open(tmp_path, database)
    if age != "new":
        all_is_there(store)
    store.close()
