"""Which devices are out, and why: no plan and no restart uses them until they are taken in again."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from service.access.audit import Audit
from service.documents.access import RECOVERY, Caller
from service.documents.errors import StoreError
from service.documents.forms import Json
from service.store.store import Store
from service.store.tables import OutRow

log = logging.getLogger(__name__)

AGAIN_S = 5.0
"""Between two tries to write what the store did not take."""


@dataclass(frozen=True, slots=True)
class OutDevice:
    """Why a device is out."""

    why: str
    by: str
    """Who took it out."""
    since_s: float
    """Unix time."""


class Devices:
    """The devices of a deployment that are out, by inventory index. Any thread may ask and change it.

    It outlives the service: a device that is broken, or in somebody's hands, is so after a restart, too.
    """

    def __init__(self, store: Store) -> None:
        """Read what is out.

        Raises:
            StoreError: the store cannot be read.
        """
        self._store = store
        self._audit = Audit(store)
        self.on_change: Callable[[int], object] = lambda _: None
        """Called with each device that went out or came back, in whatever thread it did."""
        self._changing = threading.Lock()
        self._writing = threading.Lock()
        self._closed = threading.Event()
        with store.transaction() as session:
            rows = session.query(OutRow)
            self.all: Mapping[int, OutDevice] = {row.device: OutDevice(row.why, row.by, row.since_s) for row in rows}
            """Those that are out."""

    def why(self, device: int) -> str:
        """Why a device is out; empty: it is not."""
        return self.all[device].why if device in self.all else ""

    def out(self, device: int, why: str) -> None:
        """Let nothing new use a device. Returns at once; it is written as soon as the store can be."""
        if self.why(device):
            return
        self._note(device, OutDevice(why, RECOVERY.name, time.time()))
        log.warning("device %d is out: %s; take it in again with `intentctl devices in %d`", device, why, device)
        self._write_beside(device, RECOVERY)

    def back(self, device: int) -> None:
        """Let a device be used again, unless a person took it out. Returns at once, as above."""
        if device not in self.all or self.all[device].by != RECOVERY.name:
            return
        self._note(device, None)
        self._write_beside(device, RECOVERY)

    def change(self, device: int, why: str | None, who: Caller) -> None:
        """Take a device out, or in again (``why`` is None), for a person: it is so once it is written. Blocks.

        Raises:
            StoreError: it cannot be written; nothing was changed, or nobody knows: then it is, and it is written again.
        """
        out = None if why is None else OutDevice(why, who.name, time.time())
        with self._writing:
            try:
                self._write(device, out, who)
            except StoreError as error:
                if error.is_unknown:
                    self._note(device, out)
                    self._write_beside(device, who)
                raise
            self._note(device, out)

    def close(self) -> None:
        """Write nothing more."""
        self._closed.set()

    def _note(self, device: int, out: OutDevice | None) -> None:
        with self._changing:
            others = {other: known for other, known in self.all.items() if other != device}
            self.all = others if out is None else others | {device: out}
        self.on_change(device)

    def _write_beside(self, device: int, who: Caller) -> None:
        threading.Thread(target=self._keep, args=(device, who), name=f"device {device}", daemon=True).start()

    def _keep(self, device: int, who: Caller) -> None:
        """Write what is so of a device by then, until the store takes it."""
        while not self._closed.is_set():
            try:
                with self._writing:
                    self._write(device, self.all.get(device), who)
            except StoreError as error:
                log.warning("a restart will not know of device %d; it is tried again: %s", device, error)
                self._closed.wait(AGAIN_S)
            else:
                return

    def _write(self, device: int, out: OutDevice | None, who: Caller) -> None:
        with self._store.transaction() as session:
            session.query(OutRow).filter_by(device=device).delete()
            if out is not None:
                session.add(OutRow(device=device, **asdict(out)))
            after: Json = {"why": out.why} if out else {}
            self._audit.add(who, "device.out" if out else "device.in", str(device), after=after)
