"""The database behind the store.

Opened by its URL, brought to the tables of this version, its errors in words.
"""

from contextlib import ExitStack
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from service.errors import StoreError
from service.tables import JournalRow

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

REMEDY = {
    SQLITE: "see to the disk and its rights",
    POSTGRESQL: "see that the server runs and lets this service in",
}
"""Kind of database to what to do when it fails."""

ELSEWHERE = "name a folder you may write with --data-dir, or a database with INTENTCTL_DATABASE_URL"

BOUNDED = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""How long a PostgreSQL server that says nothing is waited for: seconds, the last milliseconds. A URL may say otherwise."""

LOCKED = {
    SQLITE: ("BEGIN IMMEDIATE",),  # its driver begins no transaction before a change of tables
    POSTGRESQL: ("SET LOCAL lock_timeout = '60s'", "SELECT pg_advisory_xact_lock(8642)"),
}
"""Kind of database to what makes a transaction one in which nobody else migrates."""

EARLIER = frozenset(f"000{number}" for number in range(1, 8))
"""Revisions whose migrations are part of the first one now: it is run again, and recognises their tables."""


def open_database(folder: Path, url: str | None = None, password: str | None = None) -> Engine:
    """The database at a URL, or a SQLite file in the folder, with the tables of this version.

    A ``password`` goes before one in the URL.

    Raises:
        StoreError: it cannot be opened or written, or its tables are those of a newer version.
    """
    where = _place(folder, url)
    if password is not None:
        where = _with_password(where, password)
    shown = where.render_as_string(hide_password=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as given_up:
            engine = _engine(where)
            given_up.callback(engine.dispose)
            migrate(engine)
            _prove_writable(engine)
            given_up.pop_all()
        return engine
    except ModuleNotFoundError as error:
        raise StoreError(f"the store {shown} needs {error.name}: pip install 'intentctl[postgres]'") from error
    except (OSError, SQLAlchemyError) as error:
        raise StoreError(f"the store {shown} cannot be written: {_reason(error)}; {ELSEWHERE}") from error


def migrate(engine: Engine) -> None:
    """Bring the tables to this version: all of it in one transaction, and nobody else at the same time.

    Raises:
        StoreError: they are those of a newer version.
    """
    config = Config()
    config.set_main_option("script_location", "service:migrations")
    with engine.begin() as connection:
        for statement in LOCKED[engine.dialect.name]:
            connection.exec_driver_sql(statement)
        config.attributes["connection"] = connection
        has = set(MigrationContext.configure(connection).get_current_heads())
        if has & EARLIER:
            command.stamp(config, "base", purge=True)
        else:
            _refuse_newer(connection, has, ScriptDirectory.from_config(config))
        command.upgrade(config, "head")


def in_words(engine: Engine, error: SQLAlchemyError) -> StoreError:
    """What a failed transaction is to the rest of the service."""
    return StoreError(f"the store cannot be used: {_reason(error)}; {REMEDY[engine.dialect.name]}")


def _place(folder: Path, url: str | None) -> URL:
    """Where the database is; PostgreSQL's driver, and how long it waits, are filled in.

    Raises:
        StoreError: the URL is none, or that of another kind of database.
    """
    if url is None:
        return URL.create(SQLITE, database=str(folder / "intentctl.sqlite"))
    try:
        where = make_url(url)
    except (SQLAlchemyError, ValueError):  # not repeated: it may hold a password
        where = URL.create("nothing")
    kind = where.get_backend_name()
    if kind == SQLITE:
        return where
    if kind == POSTGRESQL:
        named = where.set(drivername="postgresql+psycopg") if where.drivername == POSTGRESQL else where
        return named.update_query_dict({**BOUNDED, **named.query})
    raise StoreError(
        f"the store cannot be written: INTENTCTL_DATABASE_URL is a URL of {kind}; "
        "write sqlite:////FOLDER/FILE or postgresql://USER:PASSWORD@HOST/DATABASE"
    )


def _with_password(where: URL, password: str) -> URL:
    """A URL that lets in with a password.

    Raises:
        StoreError: no database that asks for one.
    """
    if where.get_backend_name() != POSTGRESQL:
        raise StoreError(
            "the store cannot be written: INTENTCTL_DATABASE_PASSWORD_FILE is for PostgreSQL; "
            "write INTENTCTL_DATABASE_URL=postgresql://USER@HOST/DATABASE beside it, or leave it out"
        )
    return where.set(password=password)


def _engine(where: URL) -> Engine:
    engine = create_engine(where, pool_pre_ping=True)
    if engine.dialect.name == SQLITE:
        event.listen(engine, "connect", _tune_sqlite)
    return engine


def _tune_sqlite(connection: DBAPIConnection, _: object) -> None:
    """Write-ahead logging: a reader never waits for a writer."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _refuse_newer(connection: Connection, has: set[str], known: ScriptDirectory) -> None:
    if unknown := has - {script.revision for script in known.walk_revisions()}:
        where = connection.engine.url.render_as_string(hide_password=True)
        raise StoreError(
            f"the store {where} has tables of a newer intentctl (their version is {', '.join(sorted(unknown))}, this one "
            f"knows {known.get_current_head()}); start the newer intentctl again, or {ELSEWHERE}"
        )


def _prove_writable(engine: Engine) -> None:
    """Opening a database without rights may succeed; writing a row does not."""
    with Session(engine) as session:
        session.add(JournalRow(switch_id="probe", phase="probe", detail=""))
        session.flush()
        session.rollback()


def _reason(error: Exception) -> str:
    """What the driver said, on one line."""
    return " ".join(str(getattr(error, "orig", None) or error).split())
