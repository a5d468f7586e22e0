"""Keys, the door and the audit of one service, put together."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from intent.models import Intent
from runtime.process.supervised import begin
from selector.models import Plan
from service.access.keys import KeyFault
from service.documents.access import SERVICE, Caller, Role
from service.documents.errors import StoreError
from service.documents.forms import Json
from service.store.clock import wall_s

if TYPE_CHECKING:  # planning from a file alone waits for none of them
    from service.access.approvals import Approvals
    from service.access.audit import Audit
    from service.access.gate import Gate
    from service.access.key_store import KeyStore
    from service.deployment.file import Deployment
    from service.store.store import Store

log = logging.getLogger(__name__)

QUIET_S = 60.0
"""Between two entries of the audit about wrong keys of one kind from one address."""
MOST_ORIGINS = 16
"""Kinds and addresses that are told apart in that time: so many entries a minute stay at most, and one more of each kind."""
DOOR = Caller("the door", Role.VIEWER)
"""Who says in the audit that a key was wrong."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """What decides who may do what, and keeps what was done."""

    store: "Store"
    """Where all of it is kept."""
    keys: "KeyStore"
    audit: "Audit"
    approvals: "Approvals"
    gate: "Gate"
    end: Callable[[], None] = lambda: None
    """Writes what is to be in the audit and is not yet. Blocks."""

    def may_stay(self, caller: Caller) -> bool:
        """Whether somebody who was let in still may hear what happens: their key opens something."""
        return not caller.key or self.keys.ring.opens(caller.key, wall_s())


@dataclass(frozen=True, slots=True)
class Acts:
    """What somebody does, for the audit."""

    access: AccessControl
    caller: Caller

    def note(self, act: str, subject: str, *, before: Json | None = None, after: Json | None = None) -> None:
        """Keep an act of theirs; inside a transaction of the store both are kept, or neither.

        Raises:
            StoreError: it cannot be kept.
        """
        self.access.audit.add(self.caller, act, subject, before=before, after=after)

    def keep_plan(self, intent: Intent, plan: "Plan", *, before: Json | None = None, **more: JsonValue) -> None:
        """Keep a plan that they had made; ``more`` is what the audit has of it beside its target.

        Raises:
            StoreError: it cannot be kept.
        """
        with self.access.store.transaction():
            self.access.store.save_plan(intent, plan, self.caller.name)
            self.note("plan.create", plan.id, before=before, after={"topology": plan.target.text, **more})


def open_access(store: "Store", deployment: "Deployment", folder: Path) -> AccessControl:
    """Open it over a store.

    Where keys are asked for and there is no administrator, the key of one is written to the folder.

    Raises:
        StoreError: the store or the folder cannot be written.
    """
    from service.access.approvals import Approvals
    from service.access.audit import Audit
    from service.access.gate import KeyGate, OpenGate
    from service.access.key_store import KeyStore, make_admin_key

    keys = KeyStore(store)
    audit = Audit(store)
    if not deployment.auth.has_keys:
        return AccessControl(store, keys, audit, Approvals(store, lambda *_: True), OpenGate())
    approvals = Approvals(store, keys.could_approve)
    with keys.change():
        made = make_admin_key(keys, folder)
        if made is not None:
            file, key = made
            fields: Json = {"name": key.name, "role": key.role.value, "file": str(file)}
            audit.add(SERVICE, "key.create", key.prefix, after=fields)
    if made is not None:
        log.info("the key of an administrator is in %s", file)
    doorbell = WrongKeyAudit(store, audit)
    gate = KeyGate(keys.ring, deployment.auth, tuple(deployment.tenants), doorbell.rang, wall_s)
    return AccessControl(store, keys, audit, approvals, gate, doorbell.end)


class WrongKeyAudit:
    """Keeps wrong keys in the audit.

    The first of a kind from an address, and each minute how many there were since.

    Requests without any key are counted in the metrics alone: they cost nothing, and entries stay for good.
    """

    def __init__(self, store: "Store", audit: "Audit", quiet_s: float = QUIET_S) -> None:
        self._store = store
        self._audit = audit
        self._quiet_s = quiet_s
        self._unwritten: dict[tuple[KeyFault, str], int] = {}
        """How many there were since the last entry, of each kind that had one within the minute."""
        self._writing = set[asyncio.Task[None]]()

    def rang(self, wrong: KeyFault, origin: str) -> None:
        """A key was refused; called in the event loop, which waits for nothing."""
        if wrong is KeyFault.MISSING:
            return
        is_known = (wrong, origin) in self._unwritten or len(self._unwritten) < MOST_ORIGINS
        kind = (wrong, origin if is_known else "others")
        is_first = kind not in self._unwritten
        self._unwritten[kind] = self._unwritten.get(kind, 0) + 1
        if is_first:
            self._tell(kind)

    def _tell(self, kind: tuple[KeyFault, str]) -> None:
        """Write what there was, and look again in a minute; a kind that was silent for one is forgotten."""
        count = self._unwritten.pop(kind, 0)
        if not count:
            return
        self._unwritten[kind] = 0
        asyncio.get_running_loop().call_later(self._quiet_s, self._tell, kind)
        begin("wrong keys", self._store.beside(self._write, kind, count), self._writing)

    def end(self) -> None:
        """Write what there was in the last minute. Blocks."""
        for kind, count in self._unwritten.items():
            if count:
                self._write(kind, count)
        self._unwritten.clear()

    def _write(self, kind: tuple[KeyFault, str], count: int) -> None:
        wrong, origin = kind
        try:
            self._audit.add(DOOR, "key.refused", wrong.value, after={"origin": origin, "count": count})
        except StoreError as error:
            log.warning("%d times %s from %s is not in the audit: %s", count, wrong, origin, error)
