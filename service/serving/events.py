"""What happened, for whoever listens: kept and numbered by the store, then told.

Read again from any number on.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Self

from runtime.process.supervised import supervised
from service.documents.errors import StoreError
from service.documents.state import Event, Happened, Kind
from service.store.store import Store

log = logging.getLogger(__name__)

AT_A_TIME = 100
"""Events that are read from the store at once."""
LOOK_S = 1.0
"""Between two looks at whether a subscriber may still hear."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What waits to be told."""

    event: Kind
    data: Happened
    is_kept: bool


class _Delivered(NamedTuple):
    """An event in the ring."""

    event: Event
    newest: int
    """The highest number that was told up to here, its own included."""


class EventBus:
    """Tells every subscriber what happens, in order, each at its own pace.

    Use as an async context manager.
    """

    def __init__(self, store: Store, ring: int = 1000) -> None:
        """``ring`` is how many events are at hand; a subscriber further behind reads them from the store."""
        self._store = store
        self._untold: asyncio.Queue[_Said | None] = asyncio.Queue()
        self._ring: deque[_Delivered] = deque(maxlen=ring)
        self._num_told = 0
        self._newest = 0
        self._news = asyncio.Event()
        self._is_closed = False
        self._is_kept = self._is_keeping = True

    async def __aenter__(self) -> Self:
        """Go on with the numbers of the store.

        Raises:
            StoreError: it cannot be read.
        """
        self._newest = await self._store.beside(self._store.newest_event)
        self._keeper = asyncio.create_task(supervised("events", self._keep))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Keep what was still said, and end every subscription."""
        self._untold.put_nowait(None)
        await self._keeper
        self.close()

    def publish(self, event: Kind, data: Happened) -> None:
        """Keep something, then tell every subscriber. Never waits."""
        self._untold.put_nowait(_Said(event, data, is_kept=True))

    def broadcast(self, event: Kind, data: Happened) -> None:
        """Tell something to those who listen now; it has no number and is not kept. Never waits."""
        self._untold.put_nowait(_Said(event, data, is_kept=False))

    def close(self) -> None:
        """End every subscription."""
        self._is_closed = True
        self._wake()

    async def subscribe(
        self, last_id: int | None = None, may: Callable[[], bool] = lambda: True
    ) -> AsyncIterator[Event]:
        """Events after number ``last_id``, then new ones as they come, while it ``may``; None: new ones alone.

        Whoever asks for more than is kept gets what is kept; so does one with a number that was never told.
        """
        reached = self._newest if last_id is None else last_id if last_id <= self._newest else 0
        place = self._num_told if last_id is None else -1
        while True:
            if place < self._num_told - len(self._ring):
                place = self._num_told
                try:
                    async for event in self._kept_after(reached):
                        if not may():
                            return
                        reached = event.id or reached
                        yield event
                except StoreError as error:
                    log.warning("past events come from memory alone: %s", error)
                    place = self._num_told - len(self._ring)
            news = self._news
            for event, newest in list(islice(self._ring, place - (self._num_told - len(self._ring)), None)):
                place += 1
                if may() and (newest > reached or (event.id is None and newest == reached)):
                    reached = newest
                    yield event
            if self._is_closed or not may():
                return
            if place == self._num_told:
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOK_S)

    async def _kept_after(self, number: int) -> AsyncIterator[Event]:
        while events := await self._store.beside(self._store.events, number, AT_A_TIME):
            for event in events:
                yield event
            number = events[-1].id or number

    async def _keep(self) -> None:
        """Number and tell what is said until nothing more is."""
        while self._is_keeping:
            batch = [await self._untold.get()]
            with suppress(asyncio.QueueEmpty):
                while True:
                    batch.append(self._untold.get_nowait())
            self._is_keeping = None not in batch
            for event in await self._store.beside(self._numbered, [item for item in batch if item is not None]):
                self._newest = event.id or self._newest
                self._ring.append(_Delivered(event, self._newest))
                self._num_told += 1
            self._wake()

    def _numbered(self, batch: Sequence[_Said]) -> list[Event]:
        """As events; where the store cannot keep them they have no number. Blocks."""
        kept = [(item.event, item.data) for item in batch if item.is_kept]
        try:
            numbers = iter(self._store.add_events(kept) if kept else [])
            self._is_kept = self._is_kept or bool(kept)
        except StoreError as error:
            numbers = iter([])
            if self._is_kept:
                log.warning("events are told, and not kept for those who ask later: %s", error)
            self._is_kept = False
        return [
            Event(event=item.event, id=next(numbers, None) if item.is_kept else None, data=item.data) for item in batch
        ]

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
