"""The service as one key sees it: asked once for all who wait, and anew once something happened."""

import asyncio
import threading

import pytest

from intentctl.console.upstream import AGAIN_S, Upstream, UpstreamEvent
from service.documents.errors import ServiceError
from service.documents.problems import Code
from service.documents.promises import ControlDocument
from service.documents.state import Event

pytestmark = pytest.mark.slow

PAUSED = Event(event="control", id=7, data=ControlDocument(mode="act", paused=True))


class Service:
    """What an upstream asks: counts, and tells what it is given to tell."""

    def __init__(self) -> None:
        self.asked = 0
        self.lines = list[list[Event] | ServiceError]()
        self.go = threading.Event()

    def control(self) -> int:
        self.asked += 1
        return self.asked

    def watch(self):
        said = self.lines.pop(0) if self.lines else []
        if isinstance(said, ServiceError):
            raise said
        return self._told(said)

    def _told(self, events):
        yield from events
        self.go.wait(10)


@pytest.fixture
def service():
    return Service()


def control(one: Service) -> int:
    return one.control()


def join_events() -> None:
    """Wait for the threads that listen."""
    for thread in threading.enumerate():
        if thread.name == "events":
            thread.join(10)


async def test_those_who_wait_for_the_same_share_one_answer_and_an_error_is_not_remembered(service):
    upstream = Upstream(service)
    answers = await asyncio.gather(*(upstream.recent(("control",), 2, control) for _ in range(20)))
    assert answers == [1] * 20
    assert await upstream.recent(("other",), 2, control) == 2
    upstream = Upstream(Service())

    def failing(_: Service) -> int:
        raise ServiceError(Code.TIMED_OUT, "too slow")

    with pytest.raises(ServiceError):
        await upstream.recent(("control",), 60, failing)
    assert await upstream.recent(("control",), 60, control) == 1


async def test_what_nothing_would_tell_of_is_soon_old(service, monkeypatch):
    upstream = Upstream(service)
    monkeypatch.setattr("intentctl.console.upstream.UNHEARD_S", -1.0)
    assert [await upstream.recent(("control",), 60, control) for _ in range(2)] == [1, 2]
    assert [await upstream.recent(("plan", "plan-1"), 60, control) for _ in range(2)] == [3, 3]


async def test_an_event_has_what_it_changed_asked_anew_and_nothing_else(service):
    service.lines = [[PAUSED]]
    upstream = Upstream(service)
    events = upstream.events()
    back = asyncio.ensure_future(anext(events))
    assert (await back).event is None
    heard = await anext(events)
    assert heard.event == PAUSED
    for name in ("control", "promises"):
        await upstream.recent((name,), 60, control)
    upstream._learn(heard.event)
    assert await upstream.recent(("promises",), 60, control) == 2
    assert await upstream.recent(("control",), 60, control) == 3
    upstream.end()
    service.go.set()
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_a_service_that_went_away_is_heard_again(service, monkeypatch):
    monkeypatch.setattr("intentctl.console.upstream.AGAIN_S", (0.0,) * len(AGAIN_S))
    service.lines = [ServiceError(Code.UNREACHABLE, "gone"), [PAUSED]]
    upstream = Upstream(service)
    events = upstream.events()
    heard = [await anext(events) for _ in range(3)]
    assert [(one.is_away, one.event) for one in heard] == [(True, None), (False, None), (False, PAUSED)]
    assert not upstream.is_away
    service.go.set()
    await events.aclose()


async def test_somebody_who_comes_while_the_last_one_leaves_is_told(service):
    service.lines = [[PAUSED]]
    upstream = Upstream(service)
    first = upstream.events()
    await anext(first)
    await first.aclose()
    second = upstream.events()
    waiting = asyncio.ensure_future(anext(second))
    service.go.set()
    assert await asyncio.wait_for(waiting, 10)
    upstream.end()
    await second.aclose()


async def test_a_key_that_opens_nothing_is_not_tried_again_and_again(service):
    service.lines = [ServiceError(Code.UNAUTHENTICATED, "revoked")]
    upstream = Upstream(service)
    events = upstream.events()
    waiting = asyncio.ensure_future(anext(events))
    while service.lines or upstream._is_listening:
        await asyncio.to_thread(join_events)
    upstream.end()
    with pytest.raises(StopAsyncIteration):
        await waiting


async def test_whoever_is_slow_is_not_waited_for(service):
    upstream = Upstream(service)
    queue = asyncio.Queue(maxsize=2)
    upstream._listeners.add(queue)
    for _ in range(3):
        upstream._told(UpstreamEvent(PAUSED))
    assert queue.qsize() == 2
    assert queue.get_nowait() == UpstreamEvent(None)
