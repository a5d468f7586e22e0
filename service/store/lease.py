"""One service owns a database: its writes name its number, so that an earlier owner writes nothing.

The owner raises the row's beat. Whoever wants it looks again and again, and takes it where the beat stood still for some looks.
So no clock is asked: one that is put back moves no ownership, nor does a database that hangs for all of them.
"""

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable
from typing import Self

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, Table, Text, insert, select, update
from sqlalchemy.orm import Session

from service.documents.errors import StartError, StoreError
from service.store.database import begin_alone, in_words

log = logging.getLogger(__name__)

BEAT_S = 2.0
"""Between two beats of an owner."""
LOOK_S = 0.5
"""Between two looks of whoever wants to be the owner."""
LAPSED = 12
"""Looks without a beat between them, after which an owner is none."""

# made before migrations, which the owner alone may run. The fence is unique, so that PostgreSQL has a write of its owner
# (FOR KEY SHARE) keep out who takes it, and not the owner's own beat
_LEASE = Table(
    "lease",
    MetaData(),
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", BigInteger, unique=True, nullable=False),
    Column("holder", Text, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("database", Text, nullable=False),
)


class LeaseLostError(StoreError):
    """Another service owns the database: nothing was written."""

    def __init__(self, owner: str) -> None:
        super().__init__(f"{owner} owns the database now, and this service writes nothing more; send it there")


class Lease:
    """A service's ownership of a database, once it has it. Methods block."""

    def __init__(self, holder: str, *, has_lock: bool = False) -> None:
        """``holder``: where it is found, for whoever else wants the database.

        ``has_lock``: it has the lock on the database's file, which the kernel takes from the dead.
        """
        self.holder = holder
        self._has_lock = has_lock
        self.fence = 0
        """Higher with each owner; 0: it never was one."""
        self.database = ""
        """The database's own name, for who hears of several; a restored one has another."""
        self.lost_to = ""
        """Who owns the database since this one lost it."""
        self.on_loss = list[Callable[[], object]]()
        """Called once, in any thread."""
        self._losing = threading.Lock()
        self._seen = (0, 0)
        """Fence and beat at the last look."""
        self._num_still = 0
        """Looks since they changed."""

    @classmethod
    async def taken(cls, engine: Engine, holder: str, *, wait: bool, has_lock: bool = False) -> Self:
        """That of a database, once its owner has ended or lapsed; ``wait``: also if that takes for ever.

        Raises:
            StartError: another service owns it, and is not waited for.
            StoreError: the database cannot be used.
        """
        lease = cls(holder, has_lock=has_lock)
        owner = lease.take(engine)
        if owner and wait:
            log.warning("standing by: %s owns the database; this service starts when that one is gone", owner)
        num_looks = 1
        while owner:
            if not wait and num_looks > 2 * LAPSED:
                raise StartError(f"{owner} owns this database; stop it, or stand by for it with `serve --wait`")
            await asyncio.sleep(LOOK_S)
            num_looks += 1
            try:
                owner = lease.take(engine)
            except StoreError as error:  # it is away for its owner, too, who shall beat first
                lease._num_still = 0
                log.warning("standing by: %s", error)
        return lease

    def take(self, engine: Engine) -> str:
        """Become the owner if nobody is, after which this is empty; otherwise who is.

        Raises:
            StoreError: the database cannot be used.
        """
        with in_words(engine), engine.begin() as connection:
            begin_alone(connection)
            _LEASE.create(connection, checkfirst=True)
            row = connection.execute(select(_LEASE)).first()
            if row is None:
                values = {"fence": 0, "holder": "", "beat": 0, "database": uuid.uuid4().hex}
                row = connection.execute(insert(_LEASE).values(id=1, **values).returning(_LEASE)).one()
            elif row.holder and not self._has_lock and not self._has_lapsed(row.fence, row.beat):
                return str(row.holder)
            connection.execute(update(_LEASE).values(fence=row.fence + 1, holder=self.holder, beat=0))
        self.fence = row.fence + 1
        self.database = row.database
        return ""

    def _has_lapsed(self, fence: int, beat: int) -> bool:
        self._num_still = self._num_still + 1 if (fence, beat) == self._seen else 0
        self._seen = (fence, beat)
        return self._num_still >= LAPSED

    def beat(self, session: Session) -> None:
        """Say that the owner lives; one that had lapsed is the owner on, where nobody came."""
        session.execute(update(_LEASE).where(_LEASE.c.fence == self.fence).values(beat=_LEASE.c.beat + 1))

    def give_back(self, connection: Connection) -> None:
        """Let another service have it at once."""
        connection.execute(update(_LEASE).where(_LEASE.c.fence == self.fence).values(holder=""))

    def check(self, session: Session) -> None:
        """Let a transaction that wrote be committed by the owner alone: nobody becomes one until it has ended.

        Raises:
            LeaseLostError: this is not the owner; nothing may be written.
        """
        mine = select(_LEASE.c.fence).where(_LEASE.c.fence == self.fence)
        if session.scalar(mine.with_for_update(read=True, key_share=True)) is None:
            self._lose(session.scalar(select(_LEASE.c.holder)) or "another service")
            raise LeaseLostError(self.lost_to)

    def _lose(self, owner: str) -> None:
        with self._losing:
            is_new = not self.lost_to
            self.lost_to = owner
        if is_new:
            log.error("%s owns the database now: this service writes and switches no more", owner)
            for tell in self.on_loss:
                tell()
