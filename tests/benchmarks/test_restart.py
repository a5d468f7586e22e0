import time

from benchmarks.load import Load
from benchmarks.restart import restart
from tests.runtime.scripted import topology


async def test_streams_wait_for_the_next_engine_and_go_on_there(engines, tokenizer, make):
    async with restart(engines, topology(1), tokenizer) as strategy:
        async with Load(3, 10**6, make, strategy.deliver) as load:
            for degree in (2, 1):
                await load.grow(1, time.time())
                switched = await load.watch(strategy.switch(topology(degree)))
        owners = [list(dict.fromkeys(recording.fingerprints)) for recording in load.recordings]
    assert [engine.topology for engine in engines.started] == [topology(1), topology(2), topology(1)]
    assert owners == [["engine 0 0-1x1", "engine 1 0-TP2", "engine 2 0-1x1"]] * 3
    assert switched.paths == {"restart": 3}
    assert switched.tokens_recomputed > 0
    assert strategy.counts.lost == strategy.counts.duplicates == 0
    assert strategy.counts.accepted >= sum(len(recording.token_ids) for recording in load.recordings)


async def test_the_old_engine_has_ended_before_the_new_one_starts(engines, tokenizer):
    up = []

    async def start(topology):
        up.append([engine._is_closed for engine in engines.started])
        return await engines(topology)

    async with restart(start, topology(1), tokenizer) as strategy:
        await strategy.switch(topology(2))
    assert up == [[], [True]]
