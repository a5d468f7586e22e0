"""Two models of different architectures in one service: switched at the same time under streams, and one engine killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from intentctl.commands import follow
from intentctl.demo import LOGPROB_TOLERANCE, PROMPTS, started_service
from intentctl.measure import difference
from intentctl.streams import BackgroundLoad, Recording
from service.documents.plans import PlanRequest

EXAMPLE = Path(__file__).parents[2] / "examples" / "local-two-models.yaml"
MODELS = ("counting", "counting-llama")
MAX_TOKENS = 12_000
TOKENS = 30
"""Each stream has so many before and after a switch."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service():
    with started_service(EXAMPLE) as client:
        yield client


@pytest.fixture
async def openai(service, openai_at):
    async with openai_at(service.url, service.key) as client:
        yield client


def equal(one: Recording, other: Recording) -> bool:
    """The tokens and logprobs of a stream are those of a run without a switch, as far as it came."""
    found = difference(one.stream(), other.stream(len(one.tokens)))
    return found.tokens_equal and found.worst_logprob <= LOGPROB_TOLERANCE


def children(pid: int) -> list[int]:
    """The processes that a process started, oldest first."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for one in lists for child in one.read_text().split())


def driver_of(model: str) -> int:
    """The driver of a model's engine in the service that this process started last."""
    served = [pid for pid in children(os.getpid()) if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return children(served[-1])[MODELS.index(model)]


async def test_sixteen_streams_of_two_models_do_not_notice_that_both_switch_at_once(service, openai):
    for text in ("run it with tp=1 pp=1", "run it with tp=2"):
        plans = (await asyncio.to_thread(service.plan, PlanRequest(text=text))).plans  # streams would slow it down
        assert [plan.model for plan in plans] == list(MODELS)
        loads = [BackgroundLoad(openai, model, PROMPTS, MAX_TOKENS) for model in MODELS]
        await asyncio.gather(*(load.grow(TOKENS) for load in loads))
        started = await asyncio.gather(*(asyncio.to_thread(service.apply, plan.id) for plan in plans))
        for operation in started:
            *_, end = await asyncio.to_thread(lambda one=operation: list(follow(service, one.id, 120)))
            assert end.result is not None, end.error
            assert (end.result.moved, end.result.left_to_drain) == (8, 0)
            await asyncio.gather(*(load.grow(TOKENS, end.phases[-1].at) for load in loads))
        switched = [await load.stop() for load in loads]
        states = (await asyncio.to_thread(service.models)).models
        assert all((state.tokens.lost, state.tokens.duplicates) == (0, 0) for state in states)

        most = max(len(recording.tokens) for recordings in switched for recording in recordings)
        same = await asyncio.gather(*(BackgroundLoad(openai, model, PROMPTS, most).finish() for model in MODELS))
        pairs = [pair for two in zip(switched, same, strict=True) for pair in zip(*two, strict=True)]
        assert sum(equal(one, other) for one, other in pairs) == 16


async def test_an_engine_that_is_killed_is_a_pause_to_its_streams_and_nothing_to_those_of_the_other_model(
    service, openai
):
    first, second = (BackgroundLoad(openai, model, PROMPTS, MAX_TOKENS) for model in MODELS)
    await asyncio.gather(first.grow(TOKENS), second.grow(TOKENS))
    os.kill(driver_of(MODELS[0]), signal.SIGKILL)
    await asyncio.gather(first.grow(3 * TOKENS), second.grow(3 * TOKENS))
    for load, model in zip((first, second), MODELS, strict=True):
        streams = await load.stop()
        most = max(len(recording.tokens) for recording in streams)
        again = await BackgroundLoad(openai, model, PROMPTS, most).finish()
        assert [recording.error for recording in streams] == [None] * 8
        assert sum(equal(one, other) for one, other in zip(streams, again, strict=True)) == 8
        assert {len({*recording.fingerprints}) for recording in streams} == {2 if load is first else 1}
