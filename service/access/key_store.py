"""Keys as the store keeps them, and the one that a service makes for itself on its first start."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.access.keys import Key, Keyring, digest_of, new_secret
from service.documents.access import Role
from service.documents.errors import StoreError
from service.store.clock import wall_s
from service.store.store import Store
from service.store.tables import KeyRow

ADMIN_KEY_FILE = "admin.key"
MACHINE = "this machine"
"""The name of the key that a service makes for those who may read its data folder."""


class KeyStore:
    """The keys in the database, and the ring that requests are looked up in.

    The ring never opens more than the database says.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.ring = Keyring()
        self._changing = threading.RLock()
        self._changed: list[Key] | None = None
        """Keys as the change under way leaves them; None: there is none."""
        self.ring.put(self.kept())

    def create(
        self,
        name: str,
        role: Role,
        tenant: str | None,
        created_by: str,
        expires_s: float | None = None,
        person: str | None = None,
    ) -> tuple[str, Key]:
        """Make a key, of somebody of its name unless said; the whole of it is never to be had again."""
        whole, prefix = new_secret()
        key = Key(prefix, digest_of(whole), name, person or name, role, tenant, wall_s(), created_by, expires_s)
        with self.change() as (session, changed):
            session.add(KeyRow(**asdict(key)))
            changed.append(key)
        return whole, key

    def revoke(self, prefix: str) -> Key | None:
        """Let a key open nothing any more; None where there is none. One that was revoked stays as it is."""
        once = update(KeyRow).where(KeyRow.prefix == prefix, KeyRow.revoked_s.is_(None))
        with self.change() as (session, changed):
            session.execute(once.values(revoked_s=wall_s()))
            row = session.get(KeyRow, prefix)
            if row is None:
                return None
            changed.append(key := _key(row))
            return key

    def has_admin(self) -> bool:
        """Whether some key of an administrator opens something now."""
        now_s = wall_s()
        with self._store.transaction() as session:
            admins = session.scalars(select(KeyRow).where(KeyRow.role == Role.ADMIN.value))
            return any(not _key(row).wrong(now_s) for row in admins)

    def opens(self, prefix: str, now_s: float) -> bool:
        """Whether a key opens something now, by the ring and by the database. Blocks."""
        return all(ring.opens(prefix, now_s) for ring in (self.ring, Keyring(self.kept())))

    def could_approve(self, person: str, since_s: float, now_s: float) -> bool:
        """As ``Keyring`` says it, by the ring and by the database. Blocks."""
        return all(ring.could_approve(person, since_s, now_s) for ring in (self.ring, Keyring(self.kept())))

    @contextmanager
    def change(self) -> Iterator[tuple[Session, list[Key]]]:
        """A transaction, and the keys that it changes: when the outermost is committed the ring has them, too.

        One at a time, so that the ring is changed in the order of commits. Of a commit that fails nobody knows whether it
        was one: what it was to revoke opens nothing until the next start.
        """
        with self._changing:
            if self._changed is not None:
                with self._store.transaction() as session:
                    yield session, self._changed
                return
            self._changed = []
            decided = list[Key]()
            is_committed = False
            try:
                with self._store.transaction() as session:
                    yield session, self._changed
                    decided = self._changed
                is_committed = True
            finally:
                self.ring.put(key for key in decided if is_committed or key.revoked_s is not None)
                self._changed = None

    def lend(self, name: str) -> str:
        """A key for a part of the service itself, to generate with; it ends with the process."""
        whole, prefix = new_secret()
        self.ring.put([Key(prefix, digest_of(whole), name, name, Role.TENANT, None, wall_s(), MACHINE)])
        return whole

    def kept(self) -> list[Key]:
        """All keys in the database, oldest first."""
        with self._store.transaction() as session:
            return [_key(row) for row in session.scalars(select(KeyRow).order_by(KeyRow.created_s, KeyRow.prefix))]


def make_admin_key(keys: KeyStore, folder: Path) -> tuple[Path, Key] | None:
    """Write a key of an administrator to a file of this user alone, unless there is an administrator.

    Raises:
        StoreError: the file cannot be written; no key was made then.
    """
    if keys.has_admin():
        return None
    file = folder / ADMIN_KEY_FILE
    draft = folder / f".{ADMIN_KEY_FILE}.{os.getpid()}"
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as text:
            whole, key = keys.create(MACHINE, Role.ADMIN, None, "first start")
            text.write(whole + "\n")
        draft.replace(file)
    except OSError as error:
        raise StoreError(f"the administrator's key cannot be written to {file}: {error.strerror}") from error
    return file, key


def _key(row: KeyRow) -> Key:
    values = {field.name: getattr(row, field.name) for field in fields(Key)}
    return Key(**{**values, "role": Role(row.role)})
