import time

import pytest

from benchmarks.load import Load
from benchmarks.own_switch import own_switch
from runtime.errors import SwitchError
from runtime.models import Phase
from tests.runtime.scripted import Script, topology


async def test_the_engine_switches_by_itself_while_streams_run(engines, tokenizer, make):
    async with own_switch(engines, topology(1), tokenizer) as strategy:
        async with Load(2, 10**6, make, strategy.deliver) as load:
            await load.grow(1, time.time())
            switched = await load.watch(strategy.switch(topology(2)))
            await load.grow(1, switched.interval.end_s)
        fingerprints = [set(recording.fingerprints) for recording in load.recordings]
    assert engines.started[0].topology == topology(2)
    assert fingerprints == [{"0-1x1", "1-TP2"}] * 2
    assert switched.paths == {"patch": 2}
    assert switched.interval.start_s <= switched.interval.end_s
    assert switched.waits_s is None
    assert (strategy.counts.lost, strategy.counts.duplicates) == (0, 0)


async def test_a_switch_that_is_given_up_is_an_error(engines, tokenizer):
    async with own_switch(engines, topology(1), tokenizer) as strategy:
        engines.started[0].script = Script(lost_while=Phase.WARMING)
        with pytest.raises(SwitchError, match=r"rank_lost: to TP2: a rank of the target was lost"):
            await strategy.switch(topology(2))
