import asyncio

import pytest

from benchmarks.load import Load, Recording, listen, until
from intentctl.measure import TimeInterval
from runtime.engine import Finish
from runtime.errors import StreamError
from runtime.router import Router
from runtime.stream import Delta
from tests.runtime.scripted import topology


def delta(token_id, fingerprint="0-1x1", finish=None) -> Delta:
    return Delta("", token_id, 0.0, (), 0, finish, fingerprint, 0.0)


def recorded(*arrivals_s, max_tokens=100) -> Recording:
    count = len(arrivals_s)
    return Recording((1,), max_tokens, list(range(count)), list(arrivals_s), ["x"] * count)


class Played:
    """Delivers tokens on demand, in place of an engine."""

    def __init__(self) -> None:
        self.open: list[Recording] = []
        self._changed = asyncio.Condition()

    async def deliver(self, recording: Recording) -> None:
        self.open.append(recording)
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: recording.finish is not None)
        finally:
            self.open.remove(recording)
        if recording.finish is Finish.ERROR:
            raise StreamError("broke")

    async def say(self, recording: Recording, at_s: float, finish: Finish | None = None) -> None:
        recording.token_ids.append(1)
        recording.arrivals_s.append(at_s)
        recording.fingerprints.append("x")
        recording.finish = finish
        async with self._changed:
            self._changed.notify_all()

    async def has(self, count: int) -> None:
        await until(lambda: len(self.open) == count)


@pytest.fixture
def played():
    return Played()


def load_of(played, make, num_slots=2) -> Load:
    return Load(num_slots, 50, make, played.deliver)


def test_every_token_is_stamped_and_counted_since_a_moment():
    recording = Recording((1, 2), 2)
    recording.add(delta(7), "engine 0 ")
    recording.add(delta(8, finish=Finish.LENGTH), "engine 1 ")
    recording.add(delta(None, finish=Finish.CANCELLED), "")
    assert recording.token_ids == [7, 8]
    assert recording.tokens_left == 0
    assert recording.stream().fingerprints == ("engine 0 0-1x1", "engine 1 0-1x1")
    assert list(recording.stream().arrivals_s) == sorted(recording.arrivals_s)
    assert [recorded(1.0, 2.0, 3.0).count_since(at_s) for at_s in (0.0, 2.0, 2.5, 4.0)] == [3, 2, 1, 0]


async def test_a_stream_that_ends_is_followed_by_another_in_its_slot_and_first_and_renewed_ones_are_of_all_ages(
    played, make
):
    async with load_of(played, make) as load:
        await played.has(2)
        first = played.open[0]
        await played.say(first, 1.0, Finish.LENGTH)
        await until(lambda: len(load.recordings) == 3)
        await played.has(2)

        assert first not in played.open
    assert played.open == []
    async with load_of(played, make) as load:
        await played.has(2)
        await played.say(played.open[0], 1.0, Finish.LENGTH)
        await until(lambda: len(load.recordings) == 3)
        assert [recording.max_tokens for recording in load.recordings] == [25, 50, 50]


async def test_streams_that_would_end_too_soon_are_replaced_in_their_slots(played, make):
    async with load_of(played, make) as load:
        await played.has(2)
        short, long = played.open
        for recording in (short, long):
            await played.say(recording, 1.0)
        await load.replace(24)
        assert played.open == [short, long]

        replacing = asyncio.create_task(load.replace(25))
        await until(lambda: len(load.recordings) == 3)
        await played.has(2)
        assert not replacing.done()
        assert played.open == [long, load.recordings[2]]
        await played.say(load.recordings[2], 2.0)
        await replacing
        assert load.recordings[2].max_tokens == 50


async def test_renewed_streams_are_of_all_ages_again(played, make):
    async with load_of(played, make) as load:
        await played.has(2)
        await load.renew()
        await played.has(2)
        assert played.open == load.recordings[2:]
        assert [recording.max_tokens for recording in load.recordings] == [25, 50] * 2


async def test_growth_is_counted_over_all_streams_of_a_slot(played, make):
    async with load_of(played, make, 1) as load:
        await played.has(1)
        await played.say(played.open[0], 1.0)
        await played.say(played.open[0], 2.0, Finish.LENGTH)
        await until(lambda: len(load.recordings) == 2)
        await played.has(1)
        await played.say(played.open[0], 3.0)

        await load.grow(3, 0.5)
        assert load.tokens_within(TimeInterval(2.0, 3.0)) == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await load.grow(3, 1.5)


@pytest.mark.timeout(10)
async def test_whoever_waits_hears_of_a_broken_stream(played, make):
    async with load_of(played, make) as load:
        await played.has(2)
        await played.say(played.open[0], 1.0, Finish.ERROR)
        with pytest.raises(StreamError, match="broke"):
            await load.watch(asyncio.Event().wait())


async def test_listening_goes_on_from_what_a_recording_has_and_one_that_ends_otherwise_is_broken(engines, tokenizer):
    engine = await engines(topology(1))
    recording = Recording((10, 11, 12, 13), 7, [20, 21], [1.0, 2.0], ["x", "x"])
    async with Router(engine, tokenizer) as router:
        await listen(router, recording)
    await engine.close()
    assert recording.token_ids == [20, 21, 10, 11, 12, 13, 20]
    assert recording.finish is Finish.LENGTH
    engine = await engines(topology(1))
    engine.hold()
    async with Router(engine, tokenizer) as router:
        listening = asyncio.create_task(listen(router, Recording((10, 11), 7)))
        await engine.until(lambda: bool(engine.requests))
        await engine.cancel(engine.requests[0].request_id)
        with pytest.raises(StreamError, match="after 0 tokens"):
            await listening
    await engine.close()
