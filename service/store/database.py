"""The database behind the store.

Opened by its URL, brought to the tables of this version, its errors in words.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, PoolProxiedConnection, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, ExceptionContext
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import Session

from service.documents.errors import StoreError
from service.store.tables import JournalRow

if TYPE_CHECKING:
    import sqlite3  # psycopg's are alike

log = logging.getLogger(__name__)

T = TypeVar("T")

SQLITE = "sqlite"
POSTGRESQL = "postgresql"

REMEDY = {
    SQLITE: "see to the disk and its rights",
    POSTGRESQL: "see that the server runs and lets this service in",
}
"""Kind of database to what to do when it fails."""

SQLITE_FILE = "intentctl.sqlite"
"""In the data folder, where no other database is named."""

ELSEWHERE = "name a folder you may write with --data-dir, or a database with INTENTCTL_DATABASE_URL"

STALLED_REMEDY = {
    SQLITE: "see whether another program holds its file, and whether the disk answers",
    POSTGRESQL: "see what its server waits for (pg_stat_activity), and whether its disk and its standby answer",
}
"""Kind of database to what to do when it does not answer."""

LATE_S = 5.0
"""How long anybody waits for one call of the database."""
MOST_TURNS = 8
"""Transactions beside each other: as many threads wait for the database, and it has as many connections."""
LOCK_MS = 86_400_000
"""How long the thread of a late call waits on for a lock of SQLite."""
SERVER_ENDS = "SET statement_timeout = '4s'; SET lock_timeout = '3s'"
"""What a PostgreSQL server ends by itself, before it is late. It has no such limit for a commit."""

BOUNDED = {
    "connect_timeout": "4",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""How long a PostgreSQL server that says nothing is waited for: seconds, the last milliseconds. A URL may say otherwise."""

LOCKED = {
    SQLITE: ("BEGIN IMMEDIATE",),  # its driver begins no transaction before a change of tables
    POSTGRESQL: (
        "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'",
        "SELECT pg_advisory_xact_lock(8642)",
    ),
}
"""Kind of database to what makes a transaction one in which nobody else migrates."""

EARLIER = frozenset(f"000{number}" for number in range(1, 8))
"""Revisions whose migrations are part of the first one now: it is run again, and recognises their tables."""


def open_database(folder: Path, url: str | None = None, password: str | None = None) -> Engine:
    """The database at a URL, or a SQLite file in the folder, with the tables of this version.

    Raises:
        StoreError: it cannot be opened or written, or its tables are those of a newer version.
    """
    engine = connect(folder, url, password)
    with ExitStack() as given_up:
        given_up.callback(engine.dispose)
        prepare(engine)
        given_up.pop_all()
    return engine


def connect(folder: Path, url: str | None = None, password: str | None = None) -> Engine:
    """The same, as it is: nothing was asked of it. A ``password`` goes before one in the URL.

    Raises:
        StoreError: the URL leads nowhere, or the folder cannot be written.
    """
    named = _place(folder, url)
    where = named if password is None else _with_password(named, password)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _engine(where)
    except ModuleNotFoundError as error:
        shown = where.render_as_string(hide_password=True)
        raise StoreError(f"the store {shown} needs {error.name}: pip install 'intentctl[postgres]'") from error
    except (OSError, SQLAlchemyError) as error:
        raise _unwritable(error, where) from error


def prepare(engine: Engine) -> None:
    """Bring a database to the tables of this version, and see that it can be written.

    Raises:
        StoreError: it cannot, or its tables are those of a newer version.
    """
    with in_words(engine):
        migrate(engine)
        _prove_writable(engine)


@contextmanager
def in_words(engine: Engine) -> Iterator[None]:
    """Put what a database raises at the start in words.

    Raises:
        StoreError: it cannot be used.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise _unwritable(error, engine.url) from error


def _unwritable(error: Exception, where: URL) -> StoreError:
    shown = where.render_as_string(hide_password=True)
    return StoreError(f"the store {shown} cannot be written: {_reason(error)}; {ELSEWHERE}")


def begin_alone(connection: Connection) -> None:
    """Make a transaction one in which nobody else migrates or becomes the owner."""
    for statement in LOCKED[connection.engine.dialect.name]:
        connection.exec_driver_sql(statement)


def migrate(engine: Engine) -> None:
    """Bring the tables to this version: all of it in one transaction, and nobody else at the same time.

    Raises:
        StoreError: they are those of a newer version.
    """
    config = _migrations()
    with engine.begin() as connection:
        begin_alone(connection)
        config.attributes["connection"] = connection
        has = {*_versions(connection)}
        if has & EARLIER:
            command.stamp(config, "base", purge=True)
        else:
            _refuse_newer(connection, has, ScriptDirectory.from_config(config))
        command.upgrade(config, "head")


def _migrations() -> Config:
    config = Config()
    config.set_main_option("script_location", "service:store/migrations")
    return config


def newest_version() -> str:
    """That of the tables that this code makes."""
    return ScriptDirectory.from_config(_migrations()).get_current_head() or ""


def version_of(connection: Connection) -> str:
    """That of its tables; empty where there are none of this project."""
    return ", ".join(_versions(connection))


def _versions(connection: Connection) -> tuple[str, ...]:
    return MigrationContext.configure(connection).get_current_heads()


class DatabaseCalls:
    """Makes each call of an engine in a thread: nobody waits for one longer than ``LATE_S``.

    A late call keeps its thread until it returns; until then the database stalls, and no transaction begins.
    """

    def __init__(self, engine: Engine) -> None:
        """All calls of the engine are made here from now on."""
        self._engine = engine
        self._turns = threading.BoundedSemaphore(MOST_TURNS)
        self._waiting = SimpleQueue[Callable[[], None] | None]()
        self._idle = threading.Semaphore(0)
        self._late = dict[object, object]()
        """Calls that have not returned in time, and their connections."""
        self._late_since_s = 0.0
        self._noting = threading.Lock()
        self._is_closed = False
        self.on_return = list[Callable[[], object]]()
        """Called, in any thread, when the last late call has returned: what it was to write may be written."""
        _wait_for_locks(engine)
        event.listen(engine, "handle_error", _let_go)
        made_here: dict[str, Callable[..., None]] = {
            "do_execute": self._execute,
            "do_executemany": self._execute,
            "do_execute_no_params": self._execute,
            "do_commit": self._end,
            "do_rollback": self._end,
            "do_close": self._close,
            "do_terminate": self._close,
        }
        for name, call in made_here.items():
            setattr(engine.dialect, name, partial(call, getattr(engine.dialect, name)))
        connect = partial(self._do, engine.raw_connection, lambda future: future.result().invalidate())
        engine.raw_connection = connect  # type: ignore[method-assign]

    @property
    def stalled_s(self) -> float | None:
        """For how long the database has not answered; None: it answers."""
        return time.monotonic() - self._late_since_s if self._late else None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The right to one of the transactions beside each other.

        Raises:
            StoreError: the database stalls.
        """
        self._refuse()
        with self._turns:  # given back in time: no call of another takes longer
            self._refuse()
            yield

    def in_words(self, error: SQLAlchemyError | TimeoutError, *, was_whole: bool) -> StoreError:
        """What a failed transaction is to the rest of the service; ``was_whole``: its commit had begun.

        What became of a commit without an answer, nobody knows.
        """
        is_late = isinstance(error, TimeoutError)
        is_unknown = was_whole and (is_late or (isinstance(error, DBAPIError) and error.connection_invalidated))
        if is_late:
            return self._unusable(f"it did not answer within {LATE_S:g} s", STALLED_REMEDY, is_unknown=is_unknown)
        return self._unusable(_reason(error), REMEDY, is_unknown=is_unknown)

    def settle(self) -> None:
        """Let no transaction begin any more, and wait for those under way as long as one call may take."""
        self._is_closed = True
        until_s = time.monotonic() + LATE_S
        ended = [self._turns.acquire(timeout=max(0.0, until_s - time.monotonic())) for _ in range(MOST_TURNS)]
        for _ in filter(None, ended):
            self._turns.release()

    def close(self) -> None:
        """Give back the connections and the threads, but those of late calls."""
        with suppress(TimeoutError):
            self._do(self._engine.dispose, lambda _: None)
        self.on_return.clear()
        self._waiting.put(None)

    def _refuse(self) -> None:
        if self._is_closed:
            raise self._unusable("the service is stopping")
        if (stalled_s := self.stalled_s) is not None:
            raise self._unusable(f"it has not answered for {stalled_s:.0f} s, and nothing is asked of it until it does")

    def _unusable(
        self, reason: str, remedies: Mapping[str, str] = STALLED_REMEDY, *, is_unknown: bool = False
    ) -> StoreError:
        unknown = (
            "; what was to be written may be written all the same: look before you send it again" if is_unknown else ""
        )
        remedy = remedies[self._engine.dialect.name]
        return StoreError(f"the store cannot be used: {reason}{unknown}; {remedy}", is_unknown=is_unknown)

    def _execute(self, execute: Callable[..., None], cursor: "sqlite3.Cursor", *arguments: object) -> None:
        connection = cursor.connection
        self._do(partial(execute, cursor, *arguments), lambda _: _drop(connection), connection)

    def _end(self, end: Callable[[object], None], connection: PoolProxiedConnection) -> None:
        own = connection.dbapi_connection
        assert own is not None, "what is ended was begun"
        self._do(partial(end, own), lambda _: _drop(own), own)

    def _close(self, close: Callable[[object], None], connection: object) -> None:
        if not any(connection is late for late in [*self._late.values()]):  # closing would wait, too
            close(connection)

    def _do(self, call: Callable[[], T], give_back: Callable[[Future[T]], object], connection: object = None) -> T:
        """What a call returns; of one that is late, what it took is given back once it has returned.

        Raises:
            TimeoutError: it is late.
        """
        future = Future[T]()
        if not self._idle.acquire(blocking=False):
            # the end of the process does not wait for a daemon, which may wait for ever
            threading.Thread(target=self._serve, name="database", daemon=True).start()
        self._waiting.put(partial(_answer, future, call))
        try:
            return future.result(LATE_S)
        except TimeoutError:
            self._note(future, connection)
            future.add_done_callback(partial(self._returned, give_back))
            raise

    def _serve(self) -> None:
        while (call := self._waiting.get()) is not None:
            call()
            del call  # or its cursor would live on
            self._idle.release()
        self._waiting.put(None)  # for the next thread

    def _note(self, future: object, connection: object) -> None:
        with self._noting:
            if not self._late:
                self._late_since_s = time.monotonic() - LATE_S
                words = "the store stalls: it did not answer within %g s; what needs it is refused; %s"
                log.warning(words, LATE_S, STALLED_REMEDY[self._engine.dialect.name])
            self._late[future] = connection

    def _returned(self, give_back: Callable[[Future[T]], object], future: Future[T]) -> None:
        with suppress(Exception):
            give_back(future)
        with self._noting:
            stalled_s = self.stalled_s
            del self._late[future]
        if not self._late:
            log.info("the store stalls no more: its calls have returned after %.0f s", stalled_s)
            for call in self.on_return:
                with suppress(StoreError):  # it stalls again, and this is called again
                    call()


def _answer(future: Future[T], call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - whoever waits gets it
        future.set_exception(error)


def _let_go(context: ExceptionContext) -> None:
    """Have SQLAlchemy drop the connection of a late call, and say nothing more to it."""
    if isinstance(context.original_exception, TimeoutError):
        context.is_disconnect = True
        context.invalidate_pool_on_disconnect = False


def _drop(connection: "sqlite3.Connection | DBAPIConnection") -> None:
    """Close a connection, whose locks SQLite would keep as long as somebody knows a cursor of it."""
    try:
        connection.rollback()
    finally:
        connection.close()


def _place(folder: Path, url: str | None) -> URL:
    """Where the database is; PostgreSQL's driver, and how long it waits, are filled in.

    Raises:
        StoreError: the URL is none, or that of another kind of database.
    """
    if url is None:
        return URL.create(SQLITE, database=str(folder / SQLITE_FILE))
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
    event.listen(engine, "connect", _tune_sqlite if engine.dialect.name == SQLITE else _tune_postgresql)
    return engine


def _tune_sqlite(connection: DBAPIConnection, _: object) -> None:
    """Write-ahead logging: a reader never waits for a writer."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _tune_postgresql(connection: DBAPIConnection, _: object) -> None:
    connection.cursor().execute(SERVER_ENDS)
    connection.commit()


def _wait_for_locks(engine: Engine) -> None:
    """Have SQLite wait for a lock instead of failing: its call is late, and over once the lock is free."""
    if engine.dialect.name != SQLITE:
        return
    patience = f"PRAGMA busy_timeout={LOCK_MS}"
    event.listen(engine, "connect", lambda connection, _: connection.execute(patience))
    with engine.connect() as connection:  # that the pool has already
        connection.exec_driver_sql(patience)


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
