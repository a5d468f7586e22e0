import asyncio
import time

import pytest

from benchmarks.load import Load, Recording, until
from benchmarks.two_engines import Drain, Replay, computed_tokens, two_engines
from runtime.engine import Finish
from tests.rows import rows
from tests.runtime.scripted import topology

PROMPT = (10, 11, 12, 13)


def owners(recording: Recording) -> list[str]:
    """Who spoke, in order, each once."""
    return list(dict.fromkeys(recording.fingerprints))


async def test_a_replayed_stream_goes_on_with_its_prompt_and_what_it_has(engines, tokenizer):
    async with two_engines(Replay, engines, topology(1), tokenizer) as strategy:
        source = engines.started[0]
        source.hold()
        recording = Recording(PROMPT, 9)
        delivery = asyncio.create_task(strategy.deliver(recording))
        await source.until(lambda: bool(source.requests))
        await until(lambda: source.turn() or len(recording.token_ids) == 3)
        switched = await strategy.switch(topology(2))
        await delivery
        assert source.requests == ()
    assert owners(recording) == ["engine 0 0-1x1", "engine 1 0-TP2"]
    assert recording.token_ids == [10, 11, 12, *PROMPT, 10, 11]
    assert recording.finish is Finish.LENGTH
    assert switched.paths == {"replay": 1}
    assert switched.tokens_recomputed == len(PROMPT) + 3 - 1


async def test_replaying_back_uses_the_first_engine_again(engines, tokenizer, make):
    async with two_engines(Replay, engines, topology(1), tokenizer) as strategy:
        async with Load(3, 10**6, make, strategy.deliver) as load:
            for degree in (2, 1, 2):
                await load.grow(1, time.time())
                await load.watch(strategy.switch(topology(degree)))
        assert [engine.topology for engine in engines.started] == [topology(1), topology(2)]
        assert all(len(owners(recording)) == 2 for recording in load.recordings)
    assert strategy.counts.lost == strategy.counts.duplicates == 0


@pytest.mark.timeout(10)
async def test_a_stream_given_up_by_its_client_is_given_up_in_the_engine(engines, tokenizer, make):
    async with two_engines(Replay, engines, topology(1), tokenizer) as strategy:
        async with Load(1, 10**6, make, strategy.deliver) as load:
            await load.grow(1, time.time())
        await until(lambda: engines.started[0].requests == ())
        assert len(load.recordings) == 1


@rows(("outputs", "computed"), [(0, 0), (1, 4), (5, 8)])
def test_all_but_the_newest_token_have_kv(outputs, computed):
    assert computed_tokens(Recording(PROMPT, 9, list(range(outputs)))) == computed


async def test_a_drain_lets_running_streams_end_while_others_wait(engines, tokenizer):
    async with two_engines(Drain, engines, topology(1), tokenizer) as strategy:
        source = engines.started[0]
        source.hold()
        short, long, waiting = (Recording(PROMPT, length) for length in (5, 9, 5))
        deliveries = [asyncio.create_task(strategy.deliver(recording)) for recording in (short, long)]
        await source.until(lambda: len(source.requests) == 2)
        switching = asyncio.create_task(strategy.switch(topology(2)))
        await until(lambda: len(engines.started) == 2)
        deliveries.append(asyncio.create_task(strategy.deliver(waiting)))
        await until(lambda: source.turn() or long.finish is not None)
        switched = await switching
        await asyncio.gather(*deliveries)
        again = await strategy.switch(topology(1))
    assert owners(short) == owners(long) == ["engine 0 0-1x1"]
    assert owners(waiting) == ["engine 1 0-TP2"]
    assert waiting.arrivals_s[0] >= switched.interval.end_s >= long.arrivals_s[-1]
    assert switched.left_to_drain == 2
    assert switched.waits_s is not None
    assert len(switched.waits_s) == 1
    assert switched.drain_s is not None
    assert 0 <= switched.waits_s[0] <= switched.drain_s
    assert again.waits_s == ()


async def test_an_idle_engine_is_drained_at_once_and_serves_no_more(engines, tokenizer):
    async with two_engines(Drain, engines, topology(1), tokenizer) as strategy:
        assert (await strategy.switch(topology(2))).waits_s == ()
        recording = Recording(PROMPT, 3)
        await strategy.deliver(recording)
    assert owners(recording) == ["engine 1 0-TP2"]
