"""The audit in the database: entries are added, never changed, which triggers see to."""

from collections.abc import Iterator

from sqlalchemy import func, select, update

from service.access.chain import FIELDS, Head, flaws
from service.documents.access import AuditEntry, Caller, Flaw
from service.documents.forms import Json
from service.store.clock import wall_s
from service.store.store import Store
from service.store.tables import AuditHeadRow, AuditRow

AT_A_TIME = 1000
"""Entries that are read at once to verify the chain."""


ONLY = 1
"""The id of the row of the head."""


class Audit:
    """Adds acts to the chain and reads them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self,
        caller: Caller,
        act: str,
        subject: str,
        *,
        before: Json | None = None,
        after: Json | None = None,
    ) -> AuditEntry:
        """Keep an act as the newest entry.

        Raises:
            StoreError: it cannot be kept; whatever was to be audited should not be answered with success.
        """
        with self._store.transaction() as session:
            forward = update(AuditHeadRow).where(AuditHeadRow.id == ONLY).values(seq=AuditHeadRow.seq + 1)
            seq, last = session.execute(forward.returning(AuditHeadRow.seq, AuditHeadRow.hash)).one()
            entry = AuditEntry(
                seq=seq,
                at_s=wall_s(),
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
            session.add(AuditRow(**{name: getattr(entry, name) for name in FIELDS if name != "hash"}, hash=sealed))
            session.execute(update(AuditHeadRow).where(AuditHeadRow.id == ONLY).values(hash=sealed))
        return entry

    def hold(self) -> None:
        """Let nobody else keep an act until the transaction around this has ended.

        What it reads from here on is so when it commits: acts that were answered are in it, others wait.
        """
        with self._store.transaction() as session:
            session.execute(update(AuditHeadRow).where(AuditHeadRow.id == ONLY).values(seq=AuditHeadRow.seq))

    def newest(self, act: str, subject: str) -> AuditEntry | None:
        """The last time that an act was done to something."""
        wanted = select(AuditRow).where(AuditRow.act == act, AuditRow.subject == subject)
        with self._store.transaction() as session:
            row = session.scalars(wanted.order_by(AuditRow.seq.desc()).limit(1)).first()
            return _entry(row) if row else None

    def head(self) -> Head:
        """The end of the chain, to be kept where nobody who may write the database can change it."""
        with self._store.transaction() as session:
            row = session.get(AuditHeadRow, ONLY)
            return Head(row.seq, row.hash) if row else Head()

    def page(self, before: int | None = None, limit: int = 100, act: str | None = None) -> list[AuditEntry]:
        """Entries, newest first, those with a lower number than ``before``.

        Of one kind of act where that is said.
        """
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
        with self._store.transaction() as session:
            newest = session.scalar(select(func.max(AuditRow.seq))) or 0
            end = session.get_one(AuditHeadRow, ONLY).seq
        behind = (Flaw(end + 1, "and later ones were put in behind the end"),) if newest > end else ()
        return found + behind

    def _upward(self, end: int) -> Iterator[AuditEntry]:
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


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(**{name: getattr(row, name) for name in FIELDS})
