"""What outlives the process: intents, plans, operations, the switch journal and the topology generations.

Every method blocks (a commit to disk) and may raise ``StoreError``; async callers go through a thread.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Self

from sqlalchemy import JSON, Engine, ForeignKey, create_engine, event, inspect, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from intent.document import from_document, to_document
from intent.models import Intent
from service.documents.forms import Json
from service.documents.intents import VersionDocument
from service.documents.operations import OperationDocument
from service.documents.plans import PlanDocument
from service.errors import StoreError

_JOINED: ContextVar[Session | None] = ContextVar("transaction", default=None)
"""The transaction that calls in this context are part of."""


class Base(DeclarativeBase):
    """The tables."""

    type_annotation_map = {Json: JSON}  # noqa: RUF012 - SQLAlchemy's declared form


class IntentRow(Base):
    """A checked intent as it was first said: its version 1."""

    __tablename__ = "intents"
    id: Mapped[str] = mapped_column(primary_key=True)
    document: Mapped[Json]
    created_s: Mapped[float] = mapped_column(default=time.time)


class AmendmentRow(Base):
    """A later version of an intent: the words that made it, and what they changed."""

    __tablename__ = "amendments"
    intent_id: Mapped[str] = mapped_column(ForeignKey("intents.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[Json]
    """``mode``, ``text``, ``diff``, ``intent`` and ``created_s``."""


class PlanRow(Base):
    """A plan, immutable, and the operation that applied it."""

    __tablename__ = "plans"
    id: Mapped[str] = mapped_column(primary_key=True)
    intent_id: Mapped[str] = mapped_column(ForeignKey("intents.id"))
    document: Mapped[Json]
    applied_by: Mapped[str | None] = mapped_column(default=None)
    created_s: Mapped[float] = mapped_column(default=time.time)


class OperationRow(Base):
    """A long-running change and how far it came."""

    __tablename__ = "operations"
    id: Mapped[str] = mapped_column(primary_key=True)
    done: Mapped[bool]
    document: Mapped[Json]
    updated_s: Mapped[float] = mapped_column(default=time.time, onupdate=time.time)


class JournalRow(Base):
    """One line of a switch's journal."""

    __tablename__ = "journal"
    id: Mapped[int] = mapped_column(primary_key=True)
    switch_id: Mapped[str] = mapped_column(index=True)
    phase: Mapped[str]
    detail: Mapped[str]
    at_s: Mapped[float] = mapped_column(default=time.time)


class GenerationRow(Base):
    """A topology that ran; its id is the generation plans refer to."""

    __tablename__ = "generations"
    id: Mapped[int] = mapped_column(primary_key=True)
    topology: Mapped[str]
    model: Mapped[str | None]
    """None in rows of versions that served one."""
    at_s: Mapped[float] = mapped_column(default=time.time)


class Store:
    """The database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, folder: Path, url: str | None = None) -> Self:
        """Open the database, making folder and tables where missing, and prove that it can be written.

        Raises:
            StoreError: it cannot be opened or written.
        """
        where = url or f"sqlite:///{folder / 'intentctl.sqlite'}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            engine = create_engine(where)
            if make_url(where).get_backend_name() == "sqlite":
                event.listen(engine, "connect", _tune_sqlite)
            Base.metadata.create_all(engine)
            _add_model(engine)
            _prove_writable(engine)
        except (OSError, SQLAlchemyError, ArgumentError, ModuleNotFoundError) as error:
            reason = getattr(error, "orig", None) or error
            hint = "name a folder you may write with --data-dir, or a database with INTENTCTL_DATABASE_URL"
            raise StoreError(f"the store {where} cannot be written: {reason}; {hint}") from error
        return cls(engine)

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """One transaction; what is called inside of it joins it: all of it is written, or nothing.

        Raises:
            StoreError: whatever the database raised; nothing was written.
        """
        outer = _JOINED.get()
        try:
            if outer is not None:
                yield outer
                outer.flush()
                return
            with Session(self._engine) as session, session.begin():
                token = _JOINED.set(session)
                try:
                    yield session
                finally:
                    _JOINED.reset(token)
        except SQLAlchemyError as error:
            reason = getattr(error, "orig", None) or error
            raise StoreError(f"the store cannot be used: {reason}; see to the disk and its rights") from error

    transaction = _session
    """The same, for what other modules keep in the database."""

    def next_generation(self, model: str, topology: str) -> int:
        """Record that a topology of a model runs; later ones have higher numbers, across models and restarts."""
        with self._session() as session:
            row = GenerationRow(model=model, topology=topology)
            session.add(row)
            session.flush()
            return row.id

    def save_intent(self, intent_id: str, intent: Intent) -> None:
        """Keep an intent as version 1."""
        with self._session() as session:
            session.add(IntentRow(id=intent_id, document=to_document(intent)))

    def save_amendment(self, version: VersionDocument) -> bool:
        """Keep the next version of an intent; False if somebody else has made it."""
        body = version.model_dump(mode="json", exclude={"id", "version", "supersedes"})
        row = AmendmentRow(intent_id=version.id, version=version.version, body=body)
        try:
            with self._session() as session:
                session.add(row)
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError):
                return False
            raise
        return True

    def intent(self, intent_id: str, version: int | None = None) -> VersionDocument | None:
        """A version of an intent, the latest without a number, or None."""
        later = select(AmendmentRow).where(AmendmentRow.intent_id == intent_id)
        if version is not None:
            later = later.where(AmendmentRow.version == version)
        with self._session() as session:
            amendment = session.scalars(later.order_by(AmendmentRow.version.desc()).limit(1)).first()
            if amendment is not None:
                place = {
                    "id": intent_id,
                    "version": amendment.version,
                    "supersedes": amendment.version - 1,
                }
                return VersionDocument.model_validate({**amendment.body, **place})
            first = session.get(IntentRow, intent_id) if version in {None, 1} else None
            return _first_version(first) if first else None

    def save_plan(self, intent: Intent, plan: PlanDocument) -> None:
        """Keep a plan with the intent it serves, if that is not kept yet."""
        with self._session() as session:
            if session.get(IntentRow, plan.intent_id) is None:
                session.add(IntentRow(id=plan.intent_id, document=to_document(intent)))
                session.flush()
            document = plan.model_dump(mode="json")
            session.add(PlanRow(id=plan.id, intent_id=plan.intent_id, document=document))

    def plan(self, plan_id: str) -> tuple[PlanDocument, str | None] | None:
        """A plan and the operation that applied it, or None."""
        with self._session() as session:
            row = session.get(PlanRow, plan_id)
            return (PlanDocument.model_validate(row.document), row.applied_by) if row else None

    def claim_plan(self, plan_id: str, operation: OperationDocument) -> bool:
        """Mark a plan as applied and keep the operation, both or neither; False if it already was."""
        claim = update(PlanRow).where(PlanRow.id == plan_id, PlanRow.applied_by.is_(None))
        with self._session() as session:
            result = session.execute(claim.values(applied_by=operation.id).returning(PlanRow.id))
            if result.first() is None:
                return False
            session.add(_row(operation))
            return True

    def save_operation(self, operation: OperationDocument) -> None:
        """Write an operation's present state over the last one."""
        with self._session() as session:
            session.merge(_row(operation))

    def operation(self, operation_id: str) -> OperationDocument | None:
        """An operation, or None."""
        with self._session() as session:
            row = session.get(OperationRow, operation_id)
            return OperationDocument.model_validate(row.document) if row else None

    def unfinished_operations(self) -> list[OperationDocument]:
        """Operations that an earlier process did not bring to an end."""
        with self._session() as session:
            found = session.scalars(select(OperationRow.document).where(~OperationRow.done))
            return [OperationDocument.model_validate(document) for document in found]

    def append_journal(self, switch_id: str, phase: str, detail: str) -> None:
        """Add one line to a switch's journal."""
        with self._session() as session:
            session.add(JournalRow(switch_id=switch_id, phase=phase, detail=detail))

    def journal(self, switch_id: str) -> list[tuple[str, str]]:
        """(phase, detail) of a switch, oldest first."""
        lines = select(JournalRow.phase, JournalRow.detail).where(JournalRow.switch_id == switch_id)
        with self._session() as session:
            return [(row.phase, row.detail) for row in session.execute(lines.order_by(JournalRow.id))]


def _first_version(row: IntentRow) -> VersionDocument:
    intent = from_document(row.document)
    return VersionDocument(
        id=row.id,
        version=1,
        supersedes=None,
        mode="new",
        text=intent.text,
        diff=(),
        intent=intent,
        created_s=row.created_s,
    )


def _row(operation: OperationDocument) -> OperationRow:
    return OperationRow(id=operation.id, done=operation.done, document=operation.model_dump(mode="json"))


def _tune_sqlite(connection: DBAPIConnection, _: object) -> None:
    """Write-ahead logging: a reader never waits for a writer."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _add_model(engine: Engine) -> None:
    """Bring the table of a version that served one model up to date."""
    if "model" not in {column["name"] for column in inspect(engine).get_columns("generations")}:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE generations ADD COLUMN model VARCHAR"))


def _prove_writable(engine: Engine) -> None:
    """Opening a read-only SQLite file succeeds; writing a row does not."""
    with Session(engine) as session:
        session.add(JournalRow(switch_id="probe", phase="probe", detail=""))
        session.flush()
        session.rollback()
