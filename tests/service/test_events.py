"""Events: in order, kept, and read again from any number on."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.documents.errors import StoreError
from service.serving import events
from service.serving.events import EventBus
from service.store import store as stores
from tests.service.examples import operation


async def collect(bus: EventBus, last_id: int | None, count: int) -> list[tuple[int | None, str]]:
    """Numbers and operations of the next events."""
    found = []
    async for event in bus.subscribe(last_id):
        found.append((event.id, event.data.id))
        if len(found) == count:
            break
    return found


@pytest.fixture
async def bus(store) -> AsyncIterator[EventBus]:
    async with EventBus(store, ring=3) as opened:
        yield opened


def publish(bus: EventBus, *names: str) -> None:
    for name in names:
        bus.publish("operation", operation(name))


async def tell(bus: EventBus, *names: str) -> None:
    """Publish, and return when it has been told."""
    listener = asyncio.create_task(collect(bus, None, len(names)))
    await asyncio.sleep(0)
    publish(bus, *names)
    await listener


async def test_a_subscriber_gets_what_comes_after_its_last_id(bus):
    await tell(bus, "a", "b", "c")
    assert await collect(bus, 1, 2) == [(2, "b"), (3, "c")]


async def test_every_subscriber_gets_every_new_event_and_no_old_one(bus):
    await tell(bus, "old")
    subscribers = [asyncio.create_task(collect(bus, None, 2)) for _ in range(3)]
    await asyncio.sleep(0)
    publish(bus, "a", "b")
    assert await asyncio.gather(*subscribers) == [[(2, "a"), (3, "b")]] * 3


async def test_numbers_and_events_outlive_the_process(store):
    async with EventBus(store) as first:
        publish(first, "a", "b")
    async with EventBus(store) as second:
        publish(second, "c")
        assert await collect(second, 1, 2) == [(2, "b"), (3, "c")]


async def test_one_who_falls_behind_the_ring_misses_nothing(bus, monkeypatch):
    monkeypatch.setattr(events, "AT_A_TIME", 2)
    await tell(bus, "0")
    slow = bus.subscribe(0)
    seen = [(await anext(slow)).data.id]
    for number in range(1, 10):
        await tell(bus, str(number))
    seen += [(await anext(slow)).data.id for _ in range(9)]
    assert seen == [str(number) for number in range(10)]


async def test_an_error_that_nobody_foresaw_ends_neither_the_telling_nor_a_stop(store, monkeypatch, caplog):
    caplog.set_level("CRITICAL", "runtime.process.supervised")
    failing = asyncio.Event()
    loop = asyncio.get_running_loop()

    def fails(_: object) -> list[int]:
        loop.call_soon_threadsafe(failing.set)
        raise ValueError("a bug")

    async with asyncio.timeout(20), EventBus(store) as bus:
        with monkeypatch.context() as patch:
            patch.setattr(store, "add_events", fails)
            publish(bus, "lost")
            await failing.wait()
        await tell(bus, "a")
        assert await collect(bus, 0, 1) == [(1, "a")]
        monkeypatch.setattr(store, "add_events", fails)
        publish(bus, "lost, too")  # in one batch with the end


async def test_what_is_mentioned_has_no_number_and_is_told_once_in_its_place(store):
    async with EventBus(store) as bus:
        subscriber = asyncio.create_task(collect(bus, None, 4))
        await asyncio.sleep(0)
        publish(bus, "a")
        bus.broadcast("operation", operation("b"))
        bus.broadcast("operation", operation("c"))
        publish(bus, "d")
        assert await subscriber == [(1, "a"), (None, "b"), (None, "c"), (2, "d")]
        assert await collect(bus, 0, 2) == [(1, "a"), (2, "d")]


async def test_an_id_that_was_never_told_replays_what_is_kept(bus):
    await tell(bus, "a")
    assert await collect(bus, 900, 1) == [(1, "a")]


async def test_the_oldest_are_forgotten(store, monkeypatch):
    monkeypatch.setattr(stores, "KEPT_EVENTS", 3)
    async with EventBus(store) as bus:
        for number in range(5):
            await tell(bus, str(number))
        assert await collect(bus, 0, 3) == [(3, "2"), (4, "3"), (5, "4")]


async def test_a_store_that_fails_silences_nobody(bus, store, monkeypatch, caplog):
    subscriber = asyncio.create_task(collect(bus, None, 4))
    await asyncio.sleep(0)
    await tell(bus, "a")

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(store, "add_events", full)
        await tell(bus, "b")
        await tell(bus, "c")
        patch.setattr(store, "events", full)
        assert await collect(bus, 0, 3) == [(1, "a"), (None, "b"), (None, "c")]
    await tell(bus, "d")
    assert await subscriber == [(1, "a"), (None, "b"), (None, "c"), (2, "d")]
    assert [line.levelname for line in caplog.records].count("WARNING") == 2
    assert await collect(bus, 0, 2) == [(1, "a"), (2, "d")]


async def test_closing_ends_every_subscription(bus):
    subscriber = asyncio.create_task(collect(bus, 0, 5))
    await tell(bus, "a")
    bus.close()
    assert await subscriber == [(1, "a")]


async def test_what_was_said_before_the_end_is_kept(store):
    async with EventBus(store) as bus:
        publish(bus, "a", "b")
    assert [one.data.id for one in store.events(0, 10)] == ["a", "b"]
