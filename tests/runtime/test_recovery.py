"""Streams of an engine that is lost and comes back, on a scripted engine: none is lost, doubled or starved."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.engine import SamplingParams
from runtime.errors import StreamError
from runtime.recovery import NEAR, RESUMED_AT_ONCE, STRIKES
from runtime.router import Router
from runtime.stream import Delta, GenerationParams, Usage
from tests.rows import rows
from tests.runtime.scripted import ScriptedEngine, topology
from tests.runtime.test_router import collect, letters_alone, settled, text_of
from tests.tries import tries

LETTERS = letters_alone()


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    scripted = ScriptedEngine(topology(1, 1), max_running=64)
    yield scripted
    await scripted.close()


@pytest.fixture
async def router(engine: ScriptedEngine) -> AsyncIterator[Router]:
    async with Router(engine, LETTERS) as made:
        yield made


async def begun(router: Router, engine: ScriptedEngine, prompts: list[str]) -> list[asyncio.Task[list[Delta]]]:
    """Streams of ten tokens, each with two of them there."""
    engine.hold()
    tasks = [asyncio.create_task(collect(router, prompt, 10)) for prompt in prompts]
    await engine.until(lambda: len(engine.heard) == len(prompts))
    for _ in range(3):
        engine.turn()
    await settled(engine)
    return tasks


async def test_a_stream_goes_on_with_its_output_when_its_engine_is_back(router, engine):
    (task,) = await begun(router, engine, ["abc"])
    engine.is_away = True
    engine.fail("the driver was killed", is_lost=True)
    await settled(engine)
    engine.is_away = False
    engine.resume()
    deltas = await task
    assert text_of(deltas) == "abcabcabca"
    assert [delta.index for delta in deltas] == list(range(10))
    assert deltas[-1].usage == Usage(3, 10)
    assert [request.past for request in engine.heard] == [(), (1, 2)]
    assert [delta.fingerprint for delta in deltas] == ["0-PP2"] * 2 + ["1-PP2"] * 8
    assert router.counts.lost == router.counts.duplicates == router.counts.wrong_epoch == 0


async def test_lost_streams_are_submitted_again_the_oldest_first_and_some_at_once(router, engine):
    tasks = await begun(router, engine, ["abc"] * 20)
    first = [request.request_id for request in engine.heard]
    engine.fail("the driver was killed", is_lost=True)
    await engine.until(lambda: len(engine.heard) == 20 + RESUMED_AT_ONCE)
    await settled(engine)
    assert [request.request_id for request in engine.heard[20:]] == first[:RESUMED_AT_ONCE]
    tasks.append(asyncio.create_task(collect(router, "abd", 10)))
    await engine.until(lambda: engine.heard[-1].prompt == (1, 2, 4))
    engine.resume()
    assert {text_of(deltas) for deltas in await asyncio.gather(*tasks)} == {"abcabcabca", "abdabdabda"}
    assert [request.request_id for request in engine.heard if request.past] == first


async def test_who_left_is_not_submitted_again_and_who_comes_meanwhile_waits(router, engine):
    (task,) = await begun(router, engine, ["abc"])
    engine.is_away = True
    engine.fail("the driver was killed", is_lost=True)
    newcomer = asyncio.create_task(collect(router, "xyz", 3))
    await settled(engine)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    engine.is_away = False
    engine.resume()
    assert text_of(await newcomer) == "xyz"
    assert [request.past for request in engine.heard] == [(), ()]


@rows("timeout_s, match", [(0.02, r"did not go on with it in 0.02 s .*recovery_timeout_s"), (0.0, "was killed")])
async def test_a_stream_waits_for_no_engine_longer_than_was_said(engine, timeout_s, match):
    async with Router(engine, LETTERS, recovery_timeout_s=timeout_s) as router:
        (task,) = await begun(router, engine, ["abc"])
        engine.is_away = True
        engine.fail("the driver was killed", is_lost=True)
        with pytest.raises(StreamError, match=match):
            await task
        assert router.num_streams == 0
    engine.is_away = False


async def test_a_request_that_loses_every_engine_is_found_and_the_others_finish(router, engine):
    losses = 0
    tasks = await begun(router, engine, ["abc"] * 11)
    poisoned = asyncio.create_task(collect(router, "xyz", 10))
    while not poisoned.done():
        await settled(engine)
        if any(request.prompt == (24, 25, 26) for request in engine.requests):
            losses += 1
            engine.fail("the driver died", is_lost=True)
        engine.turn()
    engine.resume()
    with pytest.raises(StreamError, match="poison_request"):
        await poisoned
    assert losses == 4, "the third with those that it is tried with"
    assert {text_of(deltas) for deltas in await asyncio.gather(*tasks)} == {"abcabcabca"}


async def turned(engine: ScriptedEngine, count: int) -> None:
    for _ in range(count):
        engine.turn()
        await settled(engine)


async def test_a_suspect_is_alone_until_it_is_some_tokens_beyond_where_it_was_lost(router, engine):
    """What it had said before, however much, says nothing of what comes now."""
    engine.hold()
    tasks = [asyncio.create_task(collect(router, prompt, 80)) for prompt in ("abc", "xyz")]
    await engine.until(lambda: len(engine.heard) == 2)
    await turned(engine, NEAR + 10)
    for _ in range(1 + STRIKES):
        engine.fail("the driver died", is_lost=True)
        await engine.until(lambda: engine.requests != ())
        await turned(engine, 3)
    assert len(engine.requests) == 1
    (suspect,) = engine.requests
    await turned(engine, NEAR - 6)
    assert engine.requests == (suspect,)
    await turned(engine, 12)
    assert len(engine.requests) == 2
    engine.resume()
    assert [len(deltas) for deltas in await asyncio.gather(*tasks)] == [80, 80]


async def test_who_waits_behind_a_suspect_does_not_wait_for_its_client(router, engine):
    """The client of the suspect takes nothing of its answer."""
    engine.hold()
    unread = router.generate("xyz", GenerationParams(SamplingParams(10)))
    first = asyncio.create_task(anext(unread))
    for losses in range(3):
        await engine.until(lambda seen=losses: len(engine.heard) > seen)
        engine.turn()
        engine.turn()
        await settled(engine)
        engine.fail("the driver died", is_lost=True)
    await first
    engine.resume()
    assert text_of(await collect(router, "abc", 3)) == "abc"
    with pytest.raises(StreamError, match="poison_request"):
        _ = [delta async for delta in unread]


async def test_who_waits_behind_a_suspect_goes_on_when_that_has_said_all_though_nobody_read_it(router, engine):
    engine.hold()
    unread = router.generate("xyz", GenerationParams(SamplingParams(10)))
    first = asyncio.create_task(anext(unread))
    for losses in range(2):
        await engine.until(lambda seen=losses: len(engine.heard) > seen)
        engine.turn()
        engine.turn()
        await settled(engine)
        engine.fail("the driver died", is_lost=True)
    await first
    await engine.until(lambda: len(engine.heard) == 3)  # alone now
    engine.resume()
    assert text_of(await collect(router, "abc", 3)) == "abc"
    assert text_of([delta async for delta in unread]) == "yzxyzxyzx"


async def test_a_stream_tells_which_topology_its_engine_came_back_as(router, engine):
    (task,) = await begun(router, engine, ["abc"])
    engine.is_away = True
    engine.fail("the driver was killed", is_lost=True)
    await settled(engine)
    engine.is_away, engine.topology = False, topology(2)
    engine.resume()
    assert [delta.fingerprint for delta in await task] == ["0-PP2"] * 2 + ["1-TP2"] * 8


async def test_a_stream_whose_engine_is_lost_while_the_service_stops_ends_with_what_the_service_says(router, engine):
    (task,) = await begun(router, engine, ["abc"])
    engine.is_away = True
    engine.fail("the driver was killed", is_lost=True)
    await settled(engine)
    router.end_streams("the service stops; send the request again")
    with pytest.raises(StreamError, match="the service stops"):
        await task
    assert router.num_streams == 0
    engine.is_away = False


async def test_who_waits_to_be_submitted_again_goes_on_when_all_before_it_are_lost_silent(router, engine):
    engine.hold()
    tasks = [asyncio.create_task(collect(router, "abc", 80)) for _ in range(20)]
    await engine.until(lambda: len(engine.heard) == 20)
    await turned(engine, NEAR + 10)
    for losses in (1, 2):
        engine.fail("the driver was killed", is_lost=True)
        await engine.until(lambda seen=losses: len(engine.heard) == 20 + seen * RESUMED_AT_ONCE)
        await settled(engine)
        assert len(engine.requests) == RESUMED_AT_ONCE
    engine.resume()
    assert {len(deltas) for deltas in await asyncio.gather(*tasks)} == {80}


async def test_suspects_are_tried_one_first_then_two_however_long_the_engine_is_away(router, engine, monkeypatch):
    monkeypatch.setattr("runtime.recovery.AGAIN_S", 0.0)
    tasks = await begun(router, engine, ["abc"] * 7)
    for is_last in (False, True):
        engine.is_away = is_last
        engine.fail("the driver was killed", is_lost=True)
        await settled(engine)
    engine.is_away = False
    await engine.until(lambda: engine.requests != ())
    tried = list[int]()
    while engine.requests:
        tried.append(len(engine.requests))
        await turned(engine, 1)
    assert [count for count, _ in itertools.groupby(tried)] == [1, 2, 4]
    await asyncio.gather(*tasks)


async def steps(losses_at: set[int], num_streams: int, num_tokens: int) -> int:
    """Steps that the engine makes until all streams have ended, where it is lost behind some of them."""
    engine = ScriptedEngine(topology(1, 1), max_running=num_streams, max_tokens=num_tokens + 3)
    engine.hold()
    async with Router(engine, LETTERS) as router:
        tasks = [asyncio.create_task(collect(router, "abc", num_tokens)) for _ in range(num_streams)]
        await engine.until(lambda: len(engine.heard) == num_streams)
        count = 0
        while not all(task.done() for task in tasks):
            engine.turn()
            count += 1
            await settled(engine)
            if count in losses_at:
                engine.fail("the driver died", is_lost=True)
                await settled(engine)
        assert {len(task.result()) for task in tasks} == {num_tokens}
    await engine.close()
    return count


async def test_a_hundred_streams_of_three_quick_losses_take_at_most_twice_as_long_as_of_one():
    apart = NEAR - 2
    first = NEAR + 10
    after_one = await steps({first}, 100, 400)
    after_three = await steps({first, first + apart, first + 2 * apart}, 100, 400)
    assert after_three <= 2 * after_one, (after_three, after_one)


@tries(25)
@given(st.integers(2, 40), st.data())
def test_wherever_a_poison_request_stands_it_is_found_alone_and_the_others_finish(num_streams, data):
    place = data.draw(st.integers(0, num_streams - 1))
    kills_after = data.draw(st.integers(1, NEAR - 3))
    first, losses = asyncio.run(poisoned(num_streams, place, kills_after))
    assert first <= 4, "two that make it suspected, one with its group, one alone"
    assert losses == first


async def poisoned(num_streams: int, place: int, kills_after: int) -> tuple[int, int]:
    """Losses until the poison request has ended, and in all; the engine is lost so many steps after it comes."""
    engine = ScriptedEngine(topology(1, 1), max_running=num_streams)
    engine.hold()
    asked = [("abc", 60)] * num_streams
    asked[place] = "xyz", 100
    async with Router(engine, LETTERS) as router:
        tasks = [asyncio.create_task(collect(router, prompt, num_tokens)) for prompt, num_tokens in asked]
        await engine.until(lambda: len(engine.heard) == num_streams)
        losses = age = until_found = 0
        while not all(task.done() for task in tasks):
            engine.turn()
            await settled(engine)
            is_there = any(request.prompt == (24, 25, 26) for request in engine.requests)
            age = age + 1 if is_there else 0
            if age >= kills_after:
                losses += 1
                age = 0
                engine.fail("the driver died", is_lost=True)
                await settled(engine)
            until_found = until_found or (losses if tasks[place].done() else 0)
        with pytest.raises(StreamError, match="poison_request"):
            tasks.pop(place).result()
        assert {text_of(task.result()) for task in tasks} == {"abc" * 20}
    await engine.close()
    return until_found, losses
