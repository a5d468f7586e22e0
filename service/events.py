"""What happened, for whoever listens: an in-process bus whose past can be replayed by id."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Literal

from service.documents.operations import OperationDocument
from service.documents.state import Event, StateDocument


class EventBus:
    """Keeps the last events in one ring that every subscriber reads at its own pace."""

    def __init__(self, keep: int = 1000) -> None:
        self._ring: deque[Event] = deque(maxlen=keep)
        self._last_id = 0
        self._news = asyncio.Event()
        self._closed = False

    @property
    def last_id(self) -> int:
        """The newest event's id, 0 before the first."""
        return self._last_id

    def publish(
        self, event: Literal["operation", "topology"], data: OperationDocument | StateDocument
    ) -> None:
        """Tell every subscriber. Never waits."""
        self._last_id += 1
        self._ring.append(Event(event=event, id=self._last_id, data=data))
        self._wake()

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        self._wake()

    async def subscribe(self, last_id: int) -> AsyncIterator[Event]:
        """Events after ``last_id``, then new ones as they come.

        A subscriber that fell behind the ring, or asks for an id of an earlier process, goes on with the
        oldest event kept; the jump in the ids tells it.
        """
        if last_id > self._last_id:
            last_id = 0
        while True:
            news = self._news
            for event in [event for event in self._ring if event.id > last_id]:
                last_id = event.id
                yield event
            if self._closed:
                return
            if last_id == self._last_id:
                await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
