"""The audit in the database: entries are added, never changed, which triggers see to."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import JSON, Connection, Table, event, func, select, text, update
from sqlalchemy.orm import Mapped, mapped_column

from service.access.chain import FIELDS, Entry, Flaw, Head, flaws
from service.access.gate import Caller
from service.documents.forms import Json
from service.store import Base, Store

AT_A_TIME = 1000
"""Entries that are read at once to verify the chain."""


class AuditRow(Base):
    """One entry; see ``Entry``."""

    __tablename__ = "audit"
    seq: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at_s: Mapped[float]
    who: Mapped[str] = mapped_column(index=True)
    key: Mapped[str]
    role: Mapped[str]
    act: Mapped[str] = mapped_column(index=True)
    subject: Mapped[str] = mapped_column(index=True)
    before: Mapped[Json] = mapped_column(JSON)
    after: Mapped[Json] = mapped_column(JSON)
    origin: Mapped[str]
    request_id: Mapped[str]
    previous: Mapped[str]
    hash: Mapped[str]


class AuditHeadRow(Base):
    """The end of the chain: one row. Adding an entry changes it first, so that two never follow the same one."""

    __tablename__ = "audit_head"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    seq: Mapped[int]
    hash: Mapped[str]


ONLY = 1
"""The id of the row of the head."""
REFUSED = "the audit is append-only"
GUARDS = {
    "sqlite": [
        f"CREATE TRIGGER audit_no_{act.lower()} BEFORE {act} ON audit BEGIN SELECT RAISE(ABORT, '{REFUSED}'); END"
        for act in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        f"CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '{REFUSED}'; END $$",
        "CREATE TRIGGER audit_no_change BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuse()",
        "CREATE TRIGGER audit_no_truncate BEFORE TRUNCATE ON audit EXECUTE FUNCTION audit_refuse()",
    ],
}
"""What keeps entries as they are, by database."""


@event.listens_for(AuditRow.__table__, "after_create")
def guard(_: Table, connection: Connection, **__: object) -> None:
    """Let the database itself refuse changes of what is in the audit."""
    for statement in GUARDS[connection.dialect.name]:
        connection.execute(text(statement))


class Audit:
    """Adds acts to the chain and reads them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._adding = threading.Lock()
        with store.transaction() as session:
            if session.get(AuditHeadRow, ONLY) is None:
                session.add(AuditHeadRow(id=ONLY, seq=0, hash=""))

    def add(
        self,
        caller: Caller,
        act: str,
        subject: str,
        *,
        before: Json | None = None,
        after: Json | None = None,
    ) -> Entry:
        """Keep an act as the newest entry.

        Raises:
            StoreError: it cannot be kept; whatever was to be audited should not be answered with success.
        """
        with self._adding, self._store.transaction() as session:
            forward = update(AuditHeadRow).where(AuditHeadRow.id == ONLY).values(seq=AuditHeadRow.seq + 1)
            seq, last = session.execute(forward.returning(AuditHeadRow.seq, AuditHeadRow.hash)).one()
            entry = Entry(
                seq=seq,
                at_s=time.time(),
                who=caller.name,
                key=caller.key,
                role=caller.role.value,
                act=act,
                subject=subject,
                before=before or {},
                after=after or {},
                origin=caller.origin,
                request_id=caller.request_id,
                previous=last,
            )
            sealed = entry.sealed()
            session.add(
                AuditRow(**{name: getattr(entry, name) for name in FIELDS if name != "hash"}, hash=sealed)
            )
            session.execute(update(AuditHeadRow).where(AuditHeadRow.id == ONLY).values(hash=sealed))
        return entry

    @contextmanager
    def together(self) -> Iterator[None]:
        """A transaction of the store: what is done inside of it and its entries are kept, or nothing of both."""
        with self._store.transaction():
            yield

    def newest(self, act: str, subject: str) -> Entry | None:
        """The last time that an act was done to something."""
        wanted = select(AuditRow).where(AuditRow.act == act, AuditRow.subject == subject)
        with self._store.transaction() as session:
            row = session.scalars(wanted.order_by(AuditRow.seq.desc()).limit(1)).first()
            return _entry(row) if row else None

    def moments(self, act: str, since_s: float) -> list[float]:
        """When an act was done, since a moment; unix seconds."""
        wanted = select(AuditRow.at_s).where(AuditRow.act == act, AuditRow.at_s >= since_s)
        with self._store.transaction() as session:
            return list(session.scalars(wanted))

    def head(self) -> Head:
        """The end of the chain, to be kept where nobody who may write the database can change it."""
        with self._store.transaction() as session:
            row = session.get(AuditHeadRow, ONLY)
            return Head(row.seq, row.hash) if row else Head()

    def page(self, before: int | None = None, limit: int = 100, act: str | None = None) -> list[Entry]:
        """Entries, newest first, those with a lower number than ``before``; of one kind of act where that is said."""
        wanted = select(AuditRow).order_by(AuditRow.seq.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(AuditRow.seq < before)
        if act is not None:
            wanted = wanted.where(AuditRow.act == act)
        with self._store.transaction() as session:
            return [_entry(row) for row in session.scalars(wanted)]

    def verify(self, known: Head | None = None) -> tuple[Flaw, ...]:
        """Where the chain is not what it was; ``known`` is a head that was taken of it before."""
        head = self.head()
        found = flaws(self._upward(head.seq), head, known)
        with self._adding, self._store.transaction() as session:
            newest = session.scalar(select(func.max(AuditRow.seq))) or 0
            end = session.get_one(AuditHeadRow, ONLY).seq
        behind = (Flaw(end + 1, "and later ones were put in behind the end"),) if newest > end else ()
        return found + behind

    def _upward(self, end: int) -> Iterator[Entry]:
        last = 0
        while True:
            wanted = select(AuditRow).where(AuditRow.seq > last, AuditRow.seq <= end)
            with self._store.transaction() as session:
                rows = session.scalars(wanted.order_by(AuditRow.seq).limit(AT_A_TIME))
                entries = [_entry(row) for row in rows]
            if not entries:
                return
            yield from entries
            last = entries[-1].seq


def _entry(row: AuditRow) -> Entry:
    return Entry(**{name: getattr(row, name) for name in FIELDS})
