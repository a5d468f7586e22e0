import asyncio

import pytest

from intentctl.client import Client
from intentctl.commands import follow
from intentctl.streams import BackgroundLoad
from service import api
from service.documents.plans import PlanRequest

PROMPTS = ("count by 3 from 5:", "count by 4 from 6:")


pytestmark = pytest.mark.slow


@pytest.fixture
async def openai(shared, openai_at):
    async with openai_at(shared.url) as client:
        yield client


async def test_every_token_is_recorded_with_its_arrival_and_a_stream_that_cannot_be_as_broken(openai):
    recordings = await BackgroundLoad(openai, "counting", PROMPTS, 40).finish()

    for recording, prompt in zip(recordings, PROMPTS, strict=True):
        stream = recording.stream()
        assert "".join(stream.tokens) == (prompt * 3)[:40]
        assert len(stream.arrivals_s) == len(stream.logprobs) == len(stream.fingerprints) == 40
        assert list(stream.arrivals_s) == sorted(stream.arrivals_s)
        assert recording.finish == "length"
    (recording,) = await BackgroundLoad(openai, "counting", [[66, 67]], 4).finish()
    assert "".join(recording.tokens) == "abab"
    assert 0 < recording.asked_s < recording.arrivals_s[0]
    load = BackgroundLoad(openai, "counting", PROMPTS, 5)
    await load.grow(1000)
    assert all(recording.ended for recording in load.recordings)
    (recording,) = await BackgroundLoad(openai, "gpt-9", PROMPTS[:1], 5).finish()
    assert recording.ended
    assert "not served" in recording.error


async def test_a_switch_shows_as_one_change_of_the_fingerprint(openai_at, new_service):
    service = new_service()
    client = Client(service.url)
    plan = client(api.plans.make_plan, PlanRequest(text="run it with tp=2")).plan.id
    service.do(service.engine.hold)
    async with openai_at(client.url) as openai:
        load = BackgroundLoad(openai, "counting", PROMPTS, 100)
        await asyncio.to_thread(service.until, lambda: len(service.engine.requests) == len(PROMPTS))
        for _ in range(50):
            service.do(service.engine.turn)
        operation = client(api.plans.apply, plan)
        *_, end = await asyncio.to_thread(lambda: [*follow(client, operation.id, timeout_s=200)])
        assert not any(recording.ended for recording in load.recordings)
        service.do(service.engine.resume)
        recordings = await load.finish()
    assert end.result.phase == "done"
    assert end.result.moved == len(PROMPTS)
    for recording in recordings:
        assert len(recording.tokens) == 100
        changes = [a for a, b in zip(recording.fingerprints, recording.fingerprints[1:], strict=False) if a != b]
        assert len(changes) == 1
        assert set(recording.fingerprints) == {"0-PP2", "1-TP2"}
