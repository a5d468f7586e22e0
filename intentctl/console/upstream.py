"""The service as one key sees it: answers, asked once for all who wait, and its events."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from intentctl.client import Client
from service.documents.errors import ServiceError
from service.documents.operations import OperationDocument
from service.documents.problems import Code
from service.documents.state import Event, Kind

T = TypeVar("T")
Name = tuple[str | float | int, ...]
"""Of an answer: what it is of, then of which."""

ADDRESS: ContextVar[str] = ContextVar("address", default="")
"""Of the browser whose request is answered: the service hears it, and believes it of proxies that its deployment names."""
AGAIN_S = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Between two tries to hear the service again; the last one from then on."""
KEPT = 200
"""Answers that are remembered at most."""
UNHEARD_S = 1.0
"""For which an answer is good while nothing would tell that it changed."""
LASTING = frozenset({"plan", "version"})
"""What never changes."""
STALE: Mapping[Kind, frozenset[str]] = {
    "operation": frozenset({"operations", "undoable", "standing", "models", "plans", "report"}),
    "topology": frozenset({"models", "control", "agenda", "preview", "undoable", "standing", "report"}),
    "promise": frozenset({"promises", "agenda", "preview", "control", "report", "standing"}),
    "control": frozenset({"control", "agenda", "preview"}),
    "decision": frozenset({"control", "plans", "agenda", "preview"}),
    "verdict": frozenset({"report"}),
    "approval": frozenset({"standing"}),
}
"""What is to be asked anew after an event, by the first part of its name."""
CLOSED = frozenset({Code.UNAUTHENTICATED, Code.FORBIDDEN})


@dataclass(frozen=True, slots=True)
class UpstreamEvent:
    """Something that happened; without an event: the service is back, or away."""

    event: Event | None
    is_away: bool = False


@dataclass(slots=True)
class _Answer(Generic[T]):
    """An answer that is on its way, or was given; ``asked_s`` is of the monotonic clock."""

    task: "asyncio.Future[T]"
    asked_s: float


class Upstream:
    """One key at one service. Everything here is called in the event loop."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.address = ADDRESS.get
        self.is_away = False
        self._answers: dict[Name, _Answer[object]] = {}
        self._listeners: set[asyncio.Queue[UpstreamEvent | None]] = set()
        self._is_listening = False

    async def ask(self, call: Callable[[Client], T]) -> T:
        """The answer of one call, made now.

        Raises:
            ServiceError: the service refused, or does not answer.
        """
        return await asyncio.to_thread(call, self.client)

    async def recent(self, name: Name, fresh_s: float, call: Callable[[Client], T]) -> T:
        """The same, but of those who ask for ``name`` within ``fresh_s`` only the first has the service asked.

        Raises:
            ServiceError: as ``ask``.
        """
        answer = cast("_Answer[T] | None", self._answers.get(name))
        if answer is None or self._is_old(answer, name, fresh_s):
            while len(self._answers) >= KEPT:
                self._answers.pop(next(iter(self._answers)))
            answer = _Answer(asyncio.ensure_future(self.ask(call)), time.monotonic())
            self._answers[name] = cast("_Answer[object]", answer)
        try:
            return await asyncio.shield(answer.task)
        except ServiceError:
            if self._answers.get(name) is cast("_Answer[object]", answer):
                del self._answers[name]
            raise

    def _is_old(self, answer: _Answer[T], name: Name, fresh_s: float) -> bool:
        is_heard = name[0] in LASTING or (self._is_listening and not self.is_away)
        good_s = fresh_s if is_heard else min(fresh_s, UNHEARD_S)
        return answer.task.done() and time.monotonic() > answer.asked_s + good_s

    def forget(self, kinds: Collection[str] | None = None) -> None:
        """Ask anew from now on: all that changes, or what has one of these first names."""
        self._answers = {
            name: answer
            for name, answer in self._answers.items()
            if name[0] in LASTING or (kinds is not None and name[0] not in kinds)
        }

    def _learn(self, event: Event) -> None:
        """What an event says need not be asked; what it changes is."""
        if event.id is not None:
            self.forget(STALE[event.event])
        if isinstance(event.data, OperationDocument):
            future = asyncio.get_running_loop().create_future()
            future.set_result(event.data)
            self._answers["operation", event.data.id] = _Answer(future, time.monotonic())

    async def events(self) -> AsyncGenerator[UpstreamEvent]:
        """What happens from now on; to one who is too slow the service is back: all is to be asked anew."""
        queue = asyncio.Queue[UpstreamEvent | None](maxsize=1000)
        self._listeners.add(queue)
        self._listen_on(asyncio.get_running_loop())
        try:
            while (heard := await queue.get()) is not None:
                yield heard
        finally:
            self._listeners.discard(queue)

    def _listen_on(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._listeners and not self._is_listening:
            self._is_listening = True
            threading.Thread(target=self._listen, args=[loop], name="events", daemon=True).start()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass on what the service tells, and try again when it is gone. In a thread, until nobody listens."""
        tries = 0
        is_open = True
        while self._listeners and is_open:
            try:
                events = self.client.watch()
                tries = 0
                self._tell(loop, self._told, UpstreamEvent(None))
                for event in events:
                    self._tell(loop, self._told, UpstreamEvent(event))
                    if not self._listeners:
                        break
            except ServiceError as error:
                is_open = error.code not in CLOSED
            if self._listeners and is_open:
                self._tell(loop, self._told, UpstreamEvent(None, is_away=True))
                time.sleep(AGAIN_S[min(tries, len(AGAIN_S) - 1)])
                tries += 1
        self._tell(loop, self._ended, loop if is_open else None)

    def _ended(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Nobody listened any more, and somebody may have come since.

        Or the key opens nothing any more (None).
        """
        self._is_listening = False
        if loop is not None:
            self._listen_on(loop)
        else:
            self._answers.clear()
            self.end()

    @staticmethod
    def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[T], None], about: T) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(what, about)

    def end(self) -> None:
        """End what is told to everybody who listens."""
        for queue in self._listeners:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

    def _told(self, heard: UpstreamEvent) -> None:
        self.is_away = heard.is_away
        if heard.event is None:
            self.forget()
        else:
            self._learn(heard.event)
        for queue in self._listeners:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(UpstreamEvent(None))
            queue.put_nowait(heard)
