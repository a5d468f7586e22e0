import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, create_engine, event, inspect, text

from intent.document import to_document
from service.database import open_database
from service.pages import Page
from service.store import Store
from service.tables import Base
from tests.rows import rows
from tests.service.examples import intent, operation, plan

OLD_TABLES = """\
CREATE TABLE intents (id VARCHAR NOT NULL, document JSON NOT NULL, created_s {double} NOT NULL, PRIMARY KEY (id));
CREATE TABLE plans (id VARCHAR NOT NULL, intent_id VARCHAR NOT NULL, document JSON NOT NULL, applied_by VARCHAR,
    created_s {double} NOT NULL, PRIMARY KEY (id), FOREIGN KEY(intent_id) REFERENCES intents (id));
CREATE TABLE operations (id VARCHAR NOT NULL, done BOOLEAN NOT NULL, document JSON NOT NULL, updated_s {double} NOT NULL,
    PRIMARY KEY (id));
CREATE TABLE journal (id {serial} NOT NULL, switch_id VARCHAR NOT NULL, phase VARCHAR NOT NULL, detail VARCHAR NOT NULL,
    at_s {double} NOT NULL, PRIMARY KEY (id));
CREATE INDEX ix_journal_switch_id ON journal (switch_id);
CREATE TABLE generations (id {serial} NOT NULL, topology VARCHAR NOT NULL, at_s {double} NOT NULL, PRIMARY KEY (id));
"""
"""What the first version made; later ones added amendments, then generations.model."""

LATER_TABLES = """\
CREATE TABLE amendments (intent_id VARCHAR NOT NULL, version INTEGER NOT NULL, body JSON NOT NULL,
    PRIMARY KEY (intent_id, version), FOREIGN KEY(intent_id) REFERENCES intents (id));
ALTER TABLE generations ADD COLUMN model VARCHAR;
"""

TARGET = operation(end_s=9.0).result.target

AGES = {"new": "", "first": OLD_TABLES, "last": OLD_TABLES + LATER_TABLES}
"""What a database may have before migrations."""


@contextmanager
def raw(url: str) -> Iterator[Engine]:
    """The database as somebody else sees it."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:", 1))
    yield engine
    engine.dispose()


def make_old(url: str, age: str) -> str:
    """The tables of an earlier version with a row in each; the URL again."""
    with raw(url) as engine, engine.begin() as connection:
        types = {"serial": "INTEGER", "double": "DOUBLE"}
        if engine.dialect.name == "postgresql":
            types = {"serial": "SERIAL", "double": "DOUBLE PRECISION"}
        for statement in filter(str.strip, AGES[age].format(**types).split(";")):
            connection.exec_driver_sql(statement)
        if AGES[age]:
            fill(connection)
    return url


def fill(connection: Connection) -> None:
    made, done = plan().model_dump_json(), operation(end_s=9.0).model_dump_json()
    said = json.dumps(to_document(intent()))
    rows: dict[str, dict[str, object]] = {
        "intents": {"id": "intent-1", "document": said, "created_s": 1.0},
        "plans": {"id": "plan-1", "intent_id": "intent-1", "document": made, "created_s": 2.0},
        "operations": {"id": "op-1", "done": True, "document": done, "updated_s": 9.0},
        "journal": {"switch_id": "op-1", "phase": "warming", "detail": "epoch 1", "at_s": 3.0},
        "generations": {"topology": TARGET, "at_s": 4.0},
    }
    for name, row in rows.items():
        values = ", ".join(f":{column}" for column in row)
        connection.execute(text(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({values})"), row)


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
    assert store.plan("plan-1") == (plan(), None)
    assert store.operation("op-1") == operation(end_s=9.0)
    assert store.journal("op-1") == [("warming", "epoch 1", 3.0)]
    assert store.operations(Page(), model="counting").items == (operation(end_s=9.0),)
    assert store.plans(Page(), model="counting").items == ((plan(), None),)
    assert store.intent("intent-1").intent == intent()
    assert store.intent("intent-1").said_by is None


@rows("age", AGES)
def test_the_tables_are_those_that_the_store_knows(tmp_path, new_database, age):
    database = make_old(new_database(), age)
    engine = open_database(tmp_path, database)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


@rows("age", ["first", "last"])
def test_what_an_earlier_version_kept_is_there(tmp_path, new_database, age):
    database = make_old(new_database(), age)
    store = Store.open(tmp_path, database)

    all_is_there(store)
    assert store.next_generation("counting", "1x1") == 2
    store.close()


@rows(
    ("topology", "at_s", "made"),
    [
        (TARGET, 0.5, False),  # the switch began at 1
        (TARGET, 5.0, True),
        ("CPU[3]:0-8@fp32", 5.0, False),
        (TARGET, 9.5, False),  # and ended at 9
    ],
)
def test_the_generation_that_a_switch_made_is_known_by_its_topology_and_time(
    tmp_path, new_database, topology, at_s, made
):
    database = make_old(new_database(), "last")
    with raw(database) as engine, engine.begin() as connection:
        connection.execute(
            text("UPDATE generations SET topology = :topology, at_s = :at_s"),
            {"topology": topology, "at_s": at_s},
        )
    store = Store.open(tmp_path, database)

    assert store.committed("counting") == ((1, TARGET) if made else None)
    store.close()


class InterruptedHereError(Exception):
    """The process ends here."""


@contextmanager
def interrupted_at(number: int) -> Iterator[Callable[[], bool]]:
    """The statement of that number is not executed; asked whether there was one."""
    left, thread = number, threading.get_ident()

    def count(*_: object) -> None:
        nonlocal left
        left -= threading.get_ident() == thread  # services of other tests may run beside it
        if left == 0 and threading.get_ident() == thread:
            raise InterruptedHereError

    event.listen(Engine, "before_cursor_execute", count)
    try:
        yield lambda: left <= 0
    finally:
        event.remove(Engine, "before_cursor_execute", count)


@pytest.mark.slow
@pytest.mark.parametrize("age", AGES)
def test_interrupted_at_any_statement_it_leaves_what_was_and_works_the_next_time(tmp_path, new_database, age):
    database = make_old(new_database(), age)
    before, number, met = schema(database), 0, True
    while met:
        number += 1
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
