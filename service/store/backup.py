"""A backup: every row of a database, and profiles, in one file for an empty database of either kind."""

import base64
import json
import os
import time
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy import Connection, Engine, LargeBinary, Table, delete, func, insert, select, text

from service.deployment.file import Deployment
from service.documents.errors import StartError
from service.documents.forms import Json
from service.store.database import POSTGRESQL, SQLITE, in_words, newest_version, version_of
from service.store.store import Store
from service.store.tables import AuditHeadRow, Base

ABOUT = "backup.json"
"""Written last: a file without it is not whole."""
PROFILES = "profiles"
OWN = "use the version that wrote them, or serve with this one first, which brings them up to date"
AT_A_TIME = 500
"""Rows that are read or written together."""


@dataclass(frozen=True, slots=True)
class _About:
    """What a backup is of."""

    version: str
    """Of the tables."""
    at_s: float
    rows: dict[str, int]
    """How many each table has."""
    devices: list[str]
    models: list[str]


def write(engine: Engine, folder: Path, deployment: Deployment, file: Path) -> int:
    """Write all rows as they are at one moment, whoever writes meanwhile; how many that was.

    Raises:
        StartError: it is no service's database.
        StoreError: the database cannot be read.
        OSError: the file cannot be written.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as raw, zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as made:
            draft.chmod(0o600)  # it has the digests of keys, and what everybody said
            with in_words(engine), _moment(engine) as connection:
                if not (version := version_of(connection)):
                    raise StartError(
                        f"{engine.url.render_as_string()} has no records of a service; name another database"
                    )
                if version != (ours := newest_version()):
                    raise StartError(
                        f"the database has tables of version {version}, this intentctl those of {ours}; {OWN}"
                    )
                rows = {table.name: _keep(connection, table, made) for table in Base.metadata.sorted_tables}
                about = _About(version, time.time(), rows, _devices(deployment), _models(deployment))
            for profile in sorted((folder / PROFILES).glob("*.json")):
                made.write(profile, f"{PROFILES}/{profile.name}")
            made.writestr(ABOUT, json.dumps(asdict(about), indent=1))
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return sum(rows.values())


def put_back(store: Store, folder: Path, deployment: Deployment, file: Path) -> int:
    """Put a backup into an empty database; how many rows that was.

    Raises:
        StartError: the file is no whole backup of this version and deployment, or the database is not empty; nothing was written.
        StoreError: the database cannot be written.
    """
    with _opened(file) as kept, store.transaction() as session:
        connection = session.connection()
        about = TypeAdapter(_About).validate_json(kept.read(ABOUT))
        _refuse_others(about, deployment, version_of(connection), file)
        for table in Base.metadata.sorted_tables:
            # the head of the audit has a row from the start
            if table.name != AuditHeadRow.__tablename__ and _count(connection, table):
                raise StartError(
                    f"the database has {table.name} already; restore into an empty one, and keep this one elsewhere"
                )
        session.execute(delete(AuditHeadRow))
        for table in Base.metadata.sorted_tables:
            _fill(connection, table, kept)
            if (count := _count(connection, table)) != (wanted := about.rows.get(table.name)):
                raise StartError(f"{file}: {table.name} has {count} rows where it had {wanted}; the file is not whole")
    _put_profiles(file, folder)
    return sum(about.rows.values())


def _put_profiles(file: Path, folder: Path) -> None:
    (folder / PROFILES).mkdir(parents=True, exist_ok=True)
    with _opened(file) as kept:
        for name in kept.namelist():
            if name.startswith(f"{PROFILES}/") and name.endswith(".json"):
                (folder / PROFILES / Path(name).name).write_bytes(kept.read(name))


def _refuse_others(about: _About, deployment: Deployment, version: str, file: Path) -> None:
    if about.version != version:
        raise StartError(
            f"{file} has tables of version {about.version}, this intentctl those of {version}; take its own one"
        )
    whose = {"devices": (about.devices, _devices(deployment)), "models": (about.models, _models(deployment))}
    for what, (there, here) in whose.items():
        if there != here:
            raise StartError(
                f"{file} is of another deployment: its {what} are {there}, those of {deployment.file} {here}"
            )


def _devices(deployment: Deployment) -> list[str]:
    """Their kinds, by the numbers that records know them by."""
    return [gpu.kind for gpu in deployment.cluster.gpus]


def _models(deployment: Deployment) -> list[str]:
    return [model.name for model in deployment.models]


@contextmanager
def _moment(engine: Engine) -> Iterator[Connection]:
    """A connection that sees the database as it is now."""
    with engine.connect() as connection:
        if engine.dialect.name == POSTGRESQL:
            connection.execution_options(isolation_level="REPEATABLE READ")
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        else:
            connection.exec_driver_sql("BEGIN")
        yield connection


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as kept:
            kept.getinfo(ABOUT)
            yield kept
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise StartError(f"{file} is no whole backup: {error}") from error


def _keep(connection: Connection, table: Table, made: zipfile.ZipFile) -> int:
    """Write the rows of a table, a line each; how many."""
    count = 0
    with made.open(f"tables/{table.name}.jsonl", "w", force_zip64=True) as lines:
        for row in connection.execution_options(yield_per=AT_A_TIME).execute(select(table)):
            lines.write(json.dumps(row._asdict(), default=_encoded).encode() + b"\n")
            count += 1
    return count


def _encoded(value: object) -> str:
    assert isinstance(value, bytes), f"{type(value)} is in no table"
    return base64.b64encode(value).decode()


def _fill(connection: Connection, table: Table, kept: zipfile.ZipFile) -> None:
    """Write the rows of a table as they were, and number new ones behind them."""
    raw = [column.name for column in table.columns if isinstance(column.type, LargeBinary)]
    batch = list[Json]()
    with kept.open(f"tables/{table.name}.jsonl") as lines:
        for line in lines:
            row = json.loads(line)
            row |= {name: base64.b64decode(row[name]) for name in raw if row[name] is not None}
            batch.append(row)
            if len(batch) == AT_A_TIME:
                connection.execute(insert(table), batch)
                batch.clear()
    if batch:
        connection.execute(insert(table), batch)
    numbered = table.autoincrement_column
    if numbered is not None and connection.engine.dialect.name != SQLITE:
        highest = select(func.coalesce(func.max(numbered), 0) + 1).scalar_subquery()
        connection.execute(select(func.setval(func.pg_get_serial_sequence(table.name, numbered.name), highest, False)))


def _count(connection: Connection, table: Table) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0
