"""What outlives the process: intents, plans, operations, the switch journal and the topology generations.

Every method blocks (a commit to disk) and may raise ``StoreError``; async callers go through a thread.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from sqlalchemy import Engine, select, update
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.orm import Session

from intent.document import from_document, to_document
from intent.models import Intent
from service.database import in_words, open_database
from service.documents.intents import VersionDocument
from service.documents.operations import OperationDocument
from service.documents.plans import PlanDocument
from service.errors import StoreError
from service.tables import AmendmentRow, GenerationRow, IntentRow, JournalRow, OperationRow, PlanRow


class Store:
    """The database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, folder: Path, url: str | None = None) -> Self:
        """Open the database at a URL, or the one in the folder.

        Raises:
            StoreError: it cannot be opened or written, or its tables are those of a newer version.
        """
        return cls(open_database(folder, url))

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """One transaction.

        Raises:
            StoreError: whatever the database raised; nothing was written.
        """
        try:
            with Session(self._engine) as session, session.begin():
                yield session
        except SQLAlchemyError as error:
            raise in_words(self._engine, error) from error

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
