"""Two models of different architectures in one service: switched at the same time under streams, and one engine killed."""

import asyncio
import os
import signal

import pytest

from intentctl.client import Client
from intentctl.commands import follow
from intentctl.demo import COUNTING, LOGPROB_TOLERANCE
from intentctl.measure import difference
from intentctl.streams import BackgroundLoad, Recording
from service import api
from service.documents.plans import PlanRequest
from tests.intentctl.real import TorchService, real_text

MODELS = ("counting", "counting-llama")
MAX_TOKENS = 15_000
"""More than any switch lets pass: streams are left when they are long enough."""
TOKENS = 20
"""Each stream has so many before and after a switch."""
SWITCH_TIMEOUT_S = 200

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with TorchService(tmp_path_factory.mktemp("service"), real_text("local-two-models.yaml")) as running:
        yield running


@pytest.fixture(scope="module")
def client(service):
    return Client(service.url, service.admin_key)


@pytest.fixture
async def openai(service, openai_at):
    async with openai_at(service.url, service.admin_key) as client:
        yield client


def equal(one: Recording, other: Recording) -> bool:
    """The tokens and logprobs of a stream are those of a run without a switch, as far as it came."""
    found = difference(one.stream(), other.stream(len(one.tokens)))
    return found.tokens_equal and found.worst_logprob <= LOGPROB_TOLERANCE


async def undisturbed(openai, streams: list[list[Recording]]) -> int:
    """How many of the models' streams are those of a run without a switch."""
    most = [max(len(recording.tokens) for recording in recordings) for recordings in streams]
    prompts = [[recording.prompt for recording in recordings] for recordings in streams]
    loads = [BackgroundLoad(openai, *facts) for facts in zip(MODELS, prompts, most, strict=True)]
    again = await asyncio.gather(*(load.finish() for load in loads))
    pairs = [pair for two in zip(streams, again, strict=True) for pair in zip(*two, strict=True)]
    return sum(equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(
    ("num_streams", "wishes"),
    [
        (3, ("run it with tp=1 pp=1",)),
        pytest.param(8, ("run it with tp=2", "run it with tp=1 pp=1"), marks=pytest.mark.exhaustive),
    ],
    ids=["once", "twice"],
)
async def test_streams_of_two_models_do_not_notice_that_both_switch_at_once(client, openai, num_streams, wishes):
    for text in wishes:
        plans = (
            await asyncio.to_thread(client, api.plans.make_plan, PlanRequest(text=text))
        ).plans  # streams would slow it down
        assert [plan.model for plan in plans] == list(MODELS)
        loads = [BackgroundLoad(openai, model, COUNTING.prompts[:num_streams], MAX_TOKENS) for model in MODELS]
        await asyncio.gather(*(load.grow(TOKENS) for load in loads))
        started = await asyncio.gather(*(asyncio.to_thread(client, api.plans.apply, plan.id) for plan in plans))
        for operation in started:
            *_, end = await asyncio.to_thread(lambda one=operation: list(follow(client, one.id, SWITCH_TIMEOUT_S)))
            assert end.result is not None, end.error
            assert (end.result.moved, end.result.left_to_drain) == (num_streams, 0)
            await asyncio.gather(*(load.grow(TOKENS, end.phases[-1].at) for load in loads))
        switched = [await load.stop() for load in loads]
        assert not [recording for recordings in switched for recording in recordings if recording.ended]
        states = (await asyncio.to_thread(client, api.state.models)).models
        assert all((state.tokens.lost, state.tokens.duplicates) == (0, 0) for state in states)
        assert await undisturbed(openai, switched) == 2 * num_streams


async def test_an_engine_that_is_killed_is_a_pause_to_its_streams_and_nothing_to_those_of_the_other_model(
    service, openai
):
    loads = [BackgroundLoad(openai, model, COUNTING.prompts[:3], MAX_TOKENS) for model in MODELS]
    await asyncio.gather(*(load.grow(TOKENS) for load in loads))
    os.kill(service.serving.engine.replicas[0].engine._driver.pid, signal.SIGKILL)
    killed, spared = loads
    while not all(len({*recording.fingerprints}) == 2 or recording.ended for recording in killed.recordings):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    streams = [await load.stop() for load in loads]
    assert [recording.error for recordings in streams for recording in recordings] == [None] * 6
    assert await undisturbed(openai, streams) == 6
    assert {len({*recording.fingerprints}) for recording in killed.recordings} == {2}
    assert {len({*recording.fingerprints}) for recording in spared.recordings} == {1}
