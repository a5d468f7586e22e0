"""Keys, the door and the audit of one service, put together."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.access.caller import Caller
from service.access.keys import Wrong
from service.access.rights import Role
from service.documents.forms import Json
from service.errors import StoreError

if TYPE_CHECKING:  # planning from a file alone waits for none of them
    from service.access.approvals import Approvals
    from service.access.audit import Audit
    from service.access.gate import Gate
    from service.access.key_store import KeyStore
    from service.deployment import Deployment
    from service.store import Store

log = logging.getLogger(__name__)

QUIET_S = 60.0
"""Between two entries of the audit about wrong keys of one kind from one address."""
MOST_ORIGINS = 1000
"""Addresses that are told apart in that time."""
DOOR = Caller("the door", Role.VIEWER)
"""Who says in the audit that a key was wrong."""


@dataclass(frozen=True, slots=True)
class Access:
    """What decides who may do what, and keeps what was done."""

    store: "Store"
    """Where all of it is kept."""
    keys: "KeyStore"
    audit: "Audit"
    approvals: "Approvals"
    gate: "Gate"


@dataclass(frozen=True, slots=True)
class Acts:
    """What somebody does, for the audit."""

    access: Access
    caller: Caller

    def note(self, act: str, subject: str, *, before: Json | None = None, after: Json | None = None) -> None:
        """Keep an act of theirs; inside a transaction of the store both are kept, or neither.

        Raises:
            StoreError: it cannot be kept.
        """
        self.access.audit.add(self.caller, act, subject, before=before, after=after)


def open_access(store: "Store", deployment: "Deployment", folder: Path) -> Access:
    """Open it over a store. Where keys are asked for and there is no administrator, the key of one is written to the folder.

    Raises:
        StoreError: the store or the folder cannot be written.
    """
    from service.access.approvals import Approvals
    from service.access.audit import Audit
    from service.access.gate import KeyGate, OpenGate
    from service.access.key_store import KeyStore, make_admin_key

    keys, audit, approvals = KeyStore(store), Audit(store), Approvals(store)
    if not deployment.auth.has_keys:
        return Access(store, keys, audit, approvals, OpenGate())
    with keys.change():
        made = make_admin_key(keys, folder)
        if made is not None:
            file, key = made
            said: Json = {"name": key.name, "role": key.role.value, "file": str(file)}
            audit.add(Caller("the service", Role.ADMIN), "key.create", key.prefix, after=said)
    if made is not None:
        log.info("the key of an administrator is in %s", file)
    watch = Doorbell(audit)
    gate = KeyGate(keys.ring, deployment.auth, tuple(deployment.tenants), watch.rang)
    return Access(store, keys, audit, approvals, gate)


class Doorbell:
    """Keeps wrong keys in the audit: the first of a kind from an address, and how many there were a minute later."""

    def __init__(self, audit: "Audit", clock: Callable[[], float] = time.monotonic) -> None:
        self._audit, self._clock = audit, clock
        self._said_s: dict[tuple[Wrong, str], float] = {}
        self._since: Counter[tuple[Wrong, str]] = Counter()
        self._writing = set[asyncio.Future[None]]()

    def rang(self, wrong: Wrong, origin: str) -> None:
        """A key was refused; called in the event loop, which waits for nothing."""
        now_s = self._clock()
        kind = (
            wrong,
            origin if len(self._said_s) < MOST_ORIGINS or (wrong, origin) in self._said_s else "others",
        )
        self._since[kind] += 1
        if now_s - self._said_s.get(kind, -QUIET_S) < QUIET_S:
            return
        for old in [one for one, said_s in self._said_s.items() if now_s - said_s >= 2 * QUIET_S]:
            del self._said_s[old]
        self._said_s[kind] = now_s
        count = self._since.pop(kind)
        future = asyncio.get_running_loop().run_in_executor(None, self._write, kind, count)
        self._writing.add(future)
        future.add_done_callback(self._writing.discard)

    def _write(self, kind: tuple[Wrong, str], count: int) -> None:
        wrong, origin = kind
        try:
            self._audit.add(DOOR, "key.refused", wrong.value, after={"origin": origin, "count": count})
        except StoreError as error:
            log.warning("%d times %s from %s is not in the audit: %s", count, wrong, origin, error)
