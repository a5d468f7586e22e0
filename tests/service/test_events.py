import asyncio

from service.events import EventBus
from tests.service.examples import operation


async def collect(bus: EventBus, last_id: int, count: int) -> list[int]:
    ids = []
    async for event in bus.subscribe(last_id):
        ids.append(event.id)
        if len(ids) == count:
            break
    return ids


async def test_a_subscriber_gets_what_comes_after_its_last_id():
    bus = EventBus()
    for number in range(3):
        bus.publish("operation", operation(f"op-{number}"))

    assert await collect(bus, last_id=1, count=2) == [2, 3]


async def test_every_subscriber_gets_every_new_event():
    bus = EventBus()
    subscribers = [asyncio.create_task(collect(bus, 0, 2)) for _ in range(3)]
    await asyncio.sleep(0)
    bus.publish("operation", operation())
    bus.publish("operation", operation())

    assert await asyncio.gather(*subscribers) == [[1, 2]] * 3


async def test_one_who_fell_behind_goes_on_with_the_oldest_kept():
    bus = EventBus(keep=2)
    for _ in range(5):
        bus.publish("operation", operation())

    assert await collect(bus, last_id=1, count=2) == [4, 5]


async def test_an_id_of_an_earlier_process_replays_what_is_kept():
    bus = EventBus()
    bus.publish("operation", operation())

    assert await collect(bus, last_id=900, count=1) == [1]


async def test_closing_ends_every_subscription():
    bus = EventBus()
    bus.publish("operation", operation())
    subscriber = asyncio.create_task(collect(bus, 0, 5))
    await asyncio.sleep(0)
    bus.close()

    assert await subscriber == [1]
