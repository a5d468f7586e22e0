"""A backup is the whole of a database at one moment, and restores to a service that goes on."""

import json
import zipfile
from contextlib import closing

import pytest
from sqlalchemy import select, text

from service.access.audit import Audit
from service.documents.errors import StartError
from service.documents.state import Page
from service.store import backup
from service.store.database import connect
from service.store.store import Store
from service.store.tables import Base
from tests.rows import rows
from tests.service.asking import TEXT, plan_for, switched
from tests.service.scripted import ScriptedService, read

ALONE = {"events", "loads", "attainments"}
"""What a service writes by itself while it is looked at."""


def contents(store: Store) -> dict[str, list]:
    with store.transaction() as session:
        return {
            table.name: sorted(map(repr, session.execute(select(table)).all()))
            for table in Base.metadata.sorted_tables
            if table.name not in ALONE
        }


@pytest.fixture
def served(tmp_path, database):
    """A service that switched, whose backup was written while a stream ran, and its file."""
    with ScriptedService(tmp_path / "from", database=database) as service, service.client() as http:
        switched(http, target="tp2")
        http.post("/v1/controller", json={"paused": True})  # it would go on writing
        intent_id = http.post("/v1/intents", json={"text": TEXT}).json()["id"]
        assert http.post(f"/v1/intents/{intent_id}:activate", json={}).status_code == 201
        http.post("/v1/keys", json={"name": "ada", "role": "approver"}, headers={"Idempotency-Key": "once"})
        service.do(service.engine.hold)
        profile = tmp_path / "from" / "profiles" / "cpu-0a.json"
        profile.parent.mkdir()
        profile.write_text("{}")
        engine = connect(tmp_path / "from", database)
        count = backup.write(engine, tmp_path / "from", read(tmp_path / "from"), tmp_path / "b.zip")
        engine.dispose()
        service.do(service.engine.resume)
        before = contents(service.parts.store)
    assert count >= sum(map(len, before.values())) > 10
    return before, tmp_path / "b.zip"


def test_what_is_restored_is_what_was_there_and_a_service_goes_on_with_it(tmp_path, served, new_database):
    before, file = served
    url = new_database()
    store = Store.open(tmp_path / "to", url)
    backup.put_back(store, tmp_path / "to", read(tmp_path / "to"), file)
    assert contents(store) == before
    assert Audit(store).verify() == ()
    store.close()
    assert (tmp_path / "to" / "profiles" / "cpu-0a.json").read_text() == "{}"
    with ScriptedService(tmp_path / "to", database=url) as service, service.client() as http:
        assert http.get("/v1/topology").json()["topology"]["shape"] == "TP2"
        assert len(http.get("/v1/promises").json()["promises"]) == 1
        assert plan_for(http, target="pp2")["id"]
        assert switched(http, target="pp2")["phase"] == "done"
        assert http.get("/v1/audit/verdict").json()["is_whole"]


def test_a_file_that_is_cut_off_anywhere_is_refused_and_nothing_is_written(tmp_path, served, new_database):
    _, file = served
    whole = file.read_bytes()
    deployment = read(tmp_path / "to")
    store = Store.open(tmp_path / "to", new_database())
    empty = contents(store)
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        (tmp_path / "half.zip").write_bytes(whole[:size])
        with pytest.raises(StartError, match=r"half\.zip is no whole backup"):
            backup.put_back(store, tmp_path / "to", deployment, tmp_path / "half.zip")
    with zipfile.ZipFile(file) as kept:
        plans = kept.getinfo("tables/plans.jsonl")
    spoilt = bytearray(whole)
    spoilt[plans.header_offset + 100 + plans.compress_size // 2] ^= 0xFF
    (tmp_path / "spoilt.zip").write_bytes(spoilt)
    with pytest.raises(StartError):
        backup.put_back(store, tmp_path / "to", deployment, tmp_path / "spoilt.zip")
    assert contents(store) == empty
    store.close()


def changed(file, made, **about: object) -> None:
    """The same backup, with something else said about it."""
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == backup.ABOUT:
                data = json.dumps({**json.loads(data), **about}).encode()
            new.writestr(name, data)


@rows(
    ("about", "said"),
    [
        ({"version": "9999"}, "has tables of version 9999, this intentctl those of 0012"),
        ({"devices": ["CPU"]}, "is of another deployment: its devices are"),
        ({"models": ["other"]}, "is of another deployment: its models are"),
        ({"rows": {}}, "the file is not whole"),
    ],
)
def test_a_backup_of_something_else_is_refused(tmp_path, served, new_database, about, said):
    _, file = served
    changed(file, tmp_path / "other.zip", **about)
    store = Store.open(tmp_path / "to", new_database())
    with pytest.raises(StartError, match=said):
        backup.put_back(store, tmp_path / "to", read(tmp_path / "to"), tmp_path / "other.zip")
    assert store.plans(Page(1)).items == ()
    store.close()


def test_a_database_of_something_else_is_named_and_no_file_is_left(tmp_path, database):
    engine = connect(tmp_path, database)
    with pytest.raises(StartError, match="has no records of a service; name another database"):
        backup.write(engine, tmp_path, read(tmp_path), tmp_path / "b.zip")
    engine.dispose()
    assert list(tmp_path.glob("*b.zip*")) == []


def test_a_database_of_another_version_is_refused_by_its_number(tmp_path, database):
    Store.open(tmp_path, database).close()
    engine = connect(tmp_path, database)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0011'"))
    with pytest.raises(StartError, match="has tables of version 0011, this intentctl those of 0012; use the version"):
        backup.write(engine, tmp_path, read(tmp_path), tmp_path / "b.zip")
    engine.dispose()


def test_a_database_with_records_is_left_alone(tmp_path, served, database):
    before, file = served
    store = Store.open(tmp_path / "from", database)
    with pytest.raises(StartError, match=r"the database has .* already"):
        backup.put_back(store, tmp_path / "from", read(tmp_path / "from"), file)
    assert contents(store) == before
    store.close()


def test_a_file_is_restored_into_postgresql(tmp_path, postgres):
    with ScriptedService(tmp_path / "from") as service, service.client() as http:
        switched(http)
    with closing(Store.open(tmp_path / "from")) as old:
        before = contents(old)
        backup.write(old._engine, tmp_path / "from", read(tmp_path / "from"), tmp_path / "b.zip")
    with closing(Store.open(tmp_path / "to", postgres.new_database())) as new:
        backup.put_back(new, tmp_path / "to", read(tmp_path / "to"), tmp_path / "b.zip")
        assert contents(new) == before
        assert new.next_generation("counting", "x") == len(before["generations"]) + 1
