"""What outlives the process.

Intents, plans, operations, the switch journal and the topology generations.

Every method blocks, for some seconds at most, and may raise ``StoreError``; async callers use ``Store.beside``.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, ParamSpec, Self, TypeVar

from sqlalchemy import Engine, Executable, Select, delete, event, false, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import InstrumentedAttribute, ORMExecuteState, Session

from intent.document import from_document, to_document
from intent.models import Intent
from runtime.capabilities import Batching
from runtime.process.supervised import contained
from selector.models import Plan
from service.documents.errors import RefusedError, StoreError
from service.documents.forms import Document, form_of, json_of
from service.documents.operations import OperationDocument
from service.documents.plans import VersionDocument
from service.documents.problems import Code
from service.documents.state import Cursor, Event, Kind, Listed, Page
from service.store.database import LATE_S, MOST_TURNS, SQLITE, DatabaseCalls, open_database
from service.store.lease import BEAT_S, Lease
from service.store.tables import (
    AmendmentRow,
    ApprovalRow,
    Base,
    EventRow,
    GenerationRow,
    IntentRow,
    JournalRow,
    OperationRow,
    PlanRow,
)

Row = TypeVar("Row", IntentRow, PlanRow, OperationRow)
AnyRow = TypeVar("AnyRow", IntentRow, PlanRow, OperationRow, ApprovalRow)

P = ParamSpec("P")
T = TypeVar("T")

KEPT_EVENTS = 10_000
"""The newest events, for those who ask what they missed."""

_JOINED: ContextVar[Session | None] = ContextVar("transaction", default=None)
"""The transaction that calls in this context are part of."""


WROTE = "wrote"
"""Under this name a session has that it is not only to read."""


class _WritingSession(Session):
    """Knows whether it wrote."""


def _note_write(session: Session, *_: object) -> None:
    session.info[WROTE] = True


def _note_statement(state: ORMExecuteState) -> None:
    if not state.is_select:
        _note_write(state.session)


event.listen(_WritingSession, "after_flush", _note_write)
event.listen(_WritingSession, "do_orm_execute", _note_statement)


class JournalLine(NamedTuple):
    """A line of a switch's journal."""

    phase: str
    detail: str
    at_s: float
    """Unix time."""


class Committed(NamedTuple):
    """What a switch led to: a generation, and its topology as text."""

    generation: int
    topology: str
    batching: Batching | None = None
    """How far it fills its steps; None: as far as the engine is set to, or not known."""
    plan: Plan | None = None
    """That it was made by; None: it is not known any more."""


class Store:
    """The database."""

    def __init__(self, engine: Engine, lease: Lease | None = None) -> None:
        """``lease``: that of whoever may write; None: nobody else does, as while it is made or looked at."""
        self._engine = engine
        self.lease = lease
        self.calls = DatabaseCalls(engine)
        self._threads = ThreadPoolExecutor(MOST_TURNS, thread_name_prefix="store")
        self._is_closing = threading.Event()
        self._open = set[Session]()
        """Transactions under way."""
        # in a thread: a loop that is busy for some seconds, as with an import, loses nothing
        self._beating = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._beating.start()

    @classmethod
    def open(cls, folder: Path, url: str | None = None, password: str | None = None) -> Self:
        """Open the database at a URL, with a password that may be given beside it, or the one in the folder.

        Raises:
            StoreError: it cannot be opened or written, or its tables are those of a newer version.
        """
        return cls(open_database(folder, url, password))

    def close(self) -> None:
        """Give back the lease and the connections; once is enough."""
        if self._is_closing.is_set():
            return
        self._is_closing.set()
        self._beating.join(LATE_S)
        self.calls.settle()
        if self.lease is not None and not self.lease.lost_to and self.calls.stalled_s is None:
            with suppress(SQLAlchemyError, TimeoutError), self._engine.begin() as connection:
                self.lease.give_back(connection)
        self._threads.shutdown(wait=False)
        self.calls.close()

    def _keep(self) -> None:
        """Beat until this is closed, or lost. A database that is away is asked again."""
        lease = self.lease
        while lease is not None and not self._is_closing.wait(BEAT_S) and not lease.lost_to:
            if self._open and self._engine.dialect.name == SQLITE:
                continue  # nobody writes beside that, and a beat that waited for it would count as late
            # past the turns of others: one late call of theirs is no reason to lose the database
            with (
                contained("lease"),
                suppress(StoreError, SQLAlchemyError, TimeoutError),
                Session(self._engine) as session,
                session.begin(),
            ):
                lease.beat(session)
                lease.check(session)

    async def beside(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """What some work with the store returns, done in a thread: few do, and nothing else uses them."""
        done = partial(copy_context().run, partial(work, *arguments, **named))
        return await asyncio.get_running_loop().run_in_executor(self._threads, done)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """One transaction; what is called inside of it joins it: all of it is written, or nothing.

        Raises:
            StoreError: whatever the database raised, or it is another service's; nothing was written.
        """
        outer = _JOINED.get()
        is_whole = False
        try:
            if outer is not None:
                yield outer
                outer.flush()
                return
            with self.calls.turn(), _WritingSession(self._engine) as session, session.begin():
                token = _JOINED.set(session)
                self._open.add(session)
                try:
                    yield session
                    session.flush()
                    if self.lease is not None and session.info.get(WROTE):
                        self.lease.check(session)
                    is_whole = True
                finally:
                    self._open.discard(session)
                    _JOINED.reset(token)
        except (SQLAlchemyError, TimeoutError) as error:
            raise self.calls.in_words(error, was_whole=is_whole) from error

    def add_new(self, row: Base, first: Sequence[Executable] = ()) -> bool:
        """Write a row after some statements, all or nothing; False where there is one in its place."""
        try:
            with self.transaction() as session:
                for statement in first:
                    session.execute(statement)
                session.add(row)
        except StoreError as error:
            if isinstance(error.__cause__, IntegrityError):
                return False
            raise
        return True

    def next_generation(self, model: str, topology: str) -> int:
        """Record that an engine started in a topology.

        Later ones have higher numbers, across models and restarts.
        """
        with self.transaction() as session:
            return _added(session, GenerationRow(model=model, topology=topology, operation_id=None))

    def commit(self, operation_id: str, line: tuple[str, str], model: str, topology: str) -> int:
        """Write a switch's (phase, detail) of its commit, and the generation that it made: both or neither."""
        with self.transaction() as session:
            session.add(JournalRow(switch_id=operation_id, phase=line[0], detail=line[1]))
            return _added(session, GenerationRow(model=model, topology=topology, operation_id=operation_id))

    def committed(self, model: str) -> Committed | None:
        """What the last switch of a model that committed led to, or None."""
        made = select(GenerationRow).where(GenerationRow.model == model)
        made = made.where(GenerationRow.operation_id.is_not(None)).order_by(GenerationRow.id.desc())
        with self.transaction() as session:
            row = session.scalars(made.limit(1)).first()
            if row is None:
                return None
            made_by = session.get(OperationRow, row.operation_id)
            operation = made_by and OperationDocument.model_validate(made_by.document)
            # else it follows the file, or is of a target that was not reached, or was left again
            is_known = operation and not operation.is_filled and operation.target == row.topology
            batching = operation.batching if operation and is_known else None
            plan = self.plan(operation.plan_id) if operation else None
            return Committed(row.id, row.topology, batching, plan)

    def generation_of(self, operation_id: str) -> int | None:
        """The generation that a switch committed, or None."""
        made = select(GenerationRow.id).where(GenerationRow.operation_id == operation_id)
        with self.transaction() as session:
            return session.scalars(made.order_by(GenerationRow.id.desc()).limit(1)).first()

    def generations_of(self, operation_id: str) -> list[str]:
        """The topology that each change of an operation committed, in their order."""
        made = select(GenerationRow.topology).where(GenerationRow.operation_id == operation_id)
        with self.transaction() as session:
            return [*session.scalars(made.order_by(GenerationRow.id))]

    def generations(self, model: str) -> list[tuple[float, str]]:
        """When each topology of a model began to run (unix seconds) and its text, oldest first."""
        made = select(GenerationRow).where(GenerationRow.model == model).order_by(GenerationRow.id)
        with self.transaction() as session:
            return [(row.at_s, row.topology) for row in session.scalars(made)]

    def save_intent(self, intent_id: str, intent: Intent, said_by: str | None = None) -> None:
        """Keep an intent as version 1, and whose key said it."""
        with self.transaction() as session:
            session.add(IntentRow(id=intent_id, document=to_document(intent), said_by=said_by))

    def save_amendment(self, version: VersionDocument) -> bool:
        """Keep the next version of an intent; False if somebody else has made it."""
        body = version.model_dump(mode="json", exclude={"id", "version", "supersedes"})
        return self.add_new(AmendmentRow(intent_id=version.id, version=version.version, body=body))

    def intent(self, intent_id: str, version: int | None = None) -> VersionDocument | None:
        """A version of an intent, the latest without a number, or None."""
        later = select(AmendmentRow).where(AmendmentRow.intent_id == intent_id)
        if version is not None:
            later = later.where(AmendmentRow.version == version)
        with self.transaction() as session:
            if (first := _found(session, IntentRow, intent_id)) is None:
                return None
            amendment = session.scalars(later.order_by(AmendmentRow.version.desc()).limit(1)).first()
            if amendment is not None:
                return _later_version(amendment)
            return _first_version(first) if version in {None, 1} else None

    def intents(self, page: Page) -> Listed[VersionDocument]:
        """Intents, each in its latest version, by when they were first said."""
        with self.transaction() as session:
            rows, after = paged(session, select(IntentRow), page, (IntentRow.created_s, IntentRow.id))
            later = select(AmendmentRow).where(AmendmentRow.intent_id.in_([row.id for row in rows]))
            ordered = session.scalars(later.order_by(AmendmentRow.version))
            latest = {row.intent_id: _later_version(row) for row in ordered}
            return Listed(tuple(latest.get(row.id) or _first_version(row) for row in rows), after)

    def save_plan(self, intent: Intent, plan: Plan, said_by: str | None = None) -> None:
        """Keep a plan with the intent it serves, if that is not kept yet; then with whose key said it."""
        with self.transaction() as session:
            if session.get(IntentRow, plan.intent_id) is None:
                self.save_intent(plan.intent_id, intent, said_by)
            session.add(PlanRow(id=plan.id, intent_id=plan.intent_id, document=json_of(plan), model=plan.model))

    def plan(self, plan_id: str) -> Plan | None:
        """A plan, or None."""
        with self.transaction() as session:
            row = _found(session, PlanRow, plan_id)
            return _plan(row) if row else None

    def saved_plan(self, plan_id: str) -> Plan:
        """A plan that has to be there.

        Raises:
            RefusedError: there is none.
        """
        if (saved := self.plan(plan_id)) is None:
            raise RefusedError(Code.NOT_FOUND, f"no plan {plan_id}; plans made without a service are not kept")
        return saved

    def plans(self, page: Page, model: str | None = None, intent_id: str | None = None) -> Listed[Plan]:
        """Plans by when they were made: all of them, a model's, an intent's."""
        wanted = select(PlanRow)
        if model is not None:
            wanted = wanted.where(PlanRow.model == model)
        if intent_id is not None:
            wanted = wanted.where(PlanRow.intent_id == intent_id if intent_id.isprintable() else false())
        with self.transaction() as session:
            rows, after = paged(session, wanted, page, (PlanRow.created_s, PlanRow.id))
            return Listed(tuple(map(_plan, rows)), after)

    def claim_plan(self, plan_id: str, operation: OperationDocument) -> bool:
        """Mark a plan as applied and keep the operation, both or neither; False if it already was."""
        claim = update(PlanRow).where(PlanRow.id == plan_id, PlanRow.applied_by.is_(None))
        with self.transaction() as session:
            result = session.execute(claim.values(applied_by=operation.id).returning(PlanRow.id))
            if result.first() is None:
                return False
            session.add(_row(operation))
            return True

    def save_operation(self, operation: OperationDocument) -> None:
        """Write an operation's present state over the last one."""
        with self.transaction() as session:
            session.merge(_row(operation))

    def operation(self, operation_id: str) -> OperationDocument | None:
        """An operation, or None."""
        with self.transaction() as session:
            row = _found(session, OperationRow, operation_id)
            return OperationDocument.model_validate(row.document) if row else None

    def operations(self, page: Page, model: str | None = None, done: bool | None = None) -> Listed[OperationDocument]:
        """Operations by when they began: all of them, a model's, those that have ended or have not."""
        wanted = select(OperationRow)
        if model is not None:
            wanted = wanted.where(OperationRow.model == model)
        if done is not None:
            wanted = wanted.where(OperationRow.done == done)
        with self.transaction() as session:
            rows, after = paged(session, wanted, page, (OperationRow.created_s, OperationRow.id))
            return Listed(tuple(OperationDocument.model_validate(row.document) for row in rows), after)

    def unfinished_operations(self) -> list[OperationDocument]:
        """Operations that an earlier process did not bring to an end."""
        with self.transaction() as session:
            found = session.scalars(select(OperationRow.document).where(~OperationRow.done))
            return [OperationDocument.model_validate(document) for document in found]

    def add_events(self, happened: Sequence[tuple[Kind, Document]]) -> list[int]:
        """Keep what happened, and forget what is too old; each gets the next number."""
        rows = [EventRow(event=kind, data=data.model_dump(mode="json")) for kind, data in happened]
        with self.transaction() as session:
            session.add_all(rows)
            session.flush()
            numbers = [row.id for row in rows]
            session.execute(delete(EventRow).where(EventRow.id <= max(numbers) - KEPT_EVENTS))
            return numbers

    def newest_event(self) -> int:
        """The highest number of an event, 0 where there is none."""
        with self.transaction() as session:
            return session.scalar(select(func.max(EventRow.id))) or 0

    def events(self, after: int, limit: int) -> list[Event]:
        """Events behind a number, oldest first."""
        wanted = select(EventRow).where(EventRow.id > after).order_by(EventRow.id).limit(limit)
        with self.transaction() as session:
            return [Event.model_validate(row) for row in session.scalars(wanted)]

    def append_journal(self, switch_id: str, phase: str, detail: str) -> None:
        """Add one line to a switch's journal."""
        with self.transaction() as session:
            session.add(JournalRow(switch_id=switch_id, phase=phase, detail=detail))

    def journal(self, switch_id: str) -> list[JournalLine]:
        """What was written of a switch, oldest first."""
        lines = select(JournalRow).where(JournalRow.switch_id == switch_id).order_by(JournalRow.id)
        with self.transaction() as session:
            return [JournalLine(row.phase, row.detail, row.at_s) for row in session.scalars(lines)]


def _found(session: Session, row: type[Row], name: str) -> Row | None:
    """The row of that id; no id has characters that a database refuses."""
    return session.get(row, name) if name.isprintable() else None


def _added(session: Session, made: GenerationRow) -> int:
    session.add(made)
    session.flush()
    return made.id


def paged(
    session: Session,
    wanted: Select[AnyRow],
    page: Page,
    place: tuple[InstrumentedAttribute[float], InstrumentedAttribute[str]],
) -> tuple[Sequence[AnyRow], Cursor | None]:
    """Rows of a page by a moment and a name, the latest first, and where the next one begins."""
    at_s, name = place
    if page.after is not None:
        wanted = wanted.where(tuple_(at_s, name) < (page.after.created_s, page.after.id))
    found = session.scalars(wanted.order_by(at_s.desc(), name.desc()).limit(page.limit + 1)).all()
    rows = found[: page.limit]
    if len(found) == len(rows):
        return rows, None
    return rows, Cursor(getattr(rows[-1], at_s.key), getattr(rows[-1], name.key))


def _plan(row: PlanRow) -> Plan:
    plan: Plan = form_of(Plan).validate_python(row.document)
    return replace(plan, applied_by=row.applied_by)


def _later_version(row: AmendmentRow) -> VersionDocument:
    place = {"id": row.intent_id, "version": row.version, "supersedes": row.version - 1}
    return VersionDocument.model_validate({**row.body, **place})


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
        said_by=row.said_by,
    )


def _row(operation: OperationDocument) -> OperationRow:
    return OperationRow(
        id=operation.id,
        done=operation.done,
        document=operation.model_dump(mode="json"),
        model=operation.model,
        created_s=operation.phases[0].at,
    )
