"""The audit in the database: entries are added, never changed, which triggers see to."""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, takewhile
from pathlib import Path

from sqlalchemy import delete, func, select, update

from service.access.chain import FIELDS, Head, flaws
from service.documents.access import SERVICE, AuditEntry, Caller, Flaw
from service.documents.forms import Json
from service.store.clock import wall_s
from service.store.retention import DAY_S
from service.store.store import Store
from service.store.tables import AuditHeadRow, AuditRow

AT_A_TIME = 1000
"""Entries that are read at once to verify the chain."""


EXPORT = "audit.export"
"""The act that says up to where entries are in a file; the database lets those go, and no other."""
MONTH_S = 30 * DAY_S
MOST = 5_000
"""Entries of a file: they go in one transaction, which the database ends after some seconds."""
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
        found = flaws(self._upward(head.seq), head, known, self._exported())
        with self._store.transaction() as session:
            newest = session.scalar(select(func.max(AuditRow.seq))) or 0
            end = session.get_one(AuditHeadRow, ONLY).seq
        behind = (Flaw(end + 1, "and later ones were put in behind the end"),) if newest > end else ()
        return found + behind

    def export(self, kept_days: float, folder: Path) -> int:
        """Move older entries into a file once a month of them is there; how many they were.

        The newest entry names it. More than ``MOST`` take more calls.

        Raises:
            StoreError: the database cannot be used.
            OSError: the file cannot be written; all entries stay.
        """
        old_s = wall_s() - kept_days * DAY_S
        old = [*islice(takewhile(lambda entry: entry.at_s < old_s, self._upward(self.head().seq)), MOST)]
        if not old or old[0].at_s > old_s - MONTH_S:
            return 0
        last = Head(old[-1].seq, old[-1].hash)
        span = f"{old[0].seq}-{last.seq}"
        file = folder / f"audit-{span}.jsonl.gz"
        after: Json = {"head": str(last), "file": file.name, "sha256": _write(file, old)}
        with self._store.transaction() as session:
            self.add(SERVICE, EXPORT, span, after=after)
            session.execute(delete(AuditRow).where(AuditRow.seq <= last.seq))
        return len(old)

    def _exported(self) -> Head:
        """The last entry that is in a file and no longer here."""
        newest = select(AuditRow.after).where(AuditRow.act == EXPORT).order_by(AuditRow.seq.desc()).limit(1)
        with self._store.transaction() as session:
            after = session.scalar(newest)
        return Head.parse(str(after["head"])) if after else Head()

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


def _write(file: Path, entries: list[AuditEntry]) -> str:
    """Write a line of JSON for each entry, so that it outlives a crash; the digest of the file."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    lines = "".join(json.dumps(asdict(entry)) + "\n" for entry in entries)
    packed = gzip.compress(lines.encode(), mtime=0)
    with file.open("wb", buffering=0) as made:
        made.write(packed)
        os.fsync(made.fileno())
    return hashlib.sha256(packed).hexdigest()


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(**{name: getattr(row, name) for name in FIELDS})
