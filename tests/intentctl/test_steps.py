"""Step times from streams: what counts as together, what a request costs beside its steps, what is left out."""

import itertools

import pytest

from intentctl.client import Client
from intentctl.commands import follow
from intentctl.measure import ClientStream
from intentctl.status import CommandError
from intentctl.steps import (
    GAPS,
    Bench,
    Design,
    Point,
    Readings,
    RequestLimits,
    StepRun,
    decode_reading,
    reading_of,
)
from intentctl.streams import Recording
from selector.performance.fit import StepSample
from service import api
from service.documents.plans import PlanRequest
from tests.rows import rows

SMALL = Design(input_tokens=(64, 256), batches=(1,), contexts=(64, 128), rounds=2)
"""One stream at a time: several at once need an engine that is slower than its client, as real ones are."""


@pytest.fixture
async def bench(service, openai_at):
    client = Client(service.url)
    async with openai_at(service.url) as openai:
        yield Bench(client, openai, client(api.state.profiles).model)


def stream(start_s: float, gap_s: float, tokens: int) -> ClientStream:
    arrivals = tuple(start_s + gap_s * number for number in range(tokens))
    return ClientStream(arrivals, ("7",) * tokens, (0.0,) * tokens, ("0-1x1",) * tokens)


def recorded(start_s: float, asked_s: float = 0.0) -> Recording:
    seen = stream(start_s, 0.01, 40)
    return Recording([5], [*seen.arrivals_s], [*seen.tokens], [*seen.logprobs], [*seen.fingerprints], asked_s=asked_s)


def prefill(tokens: int) -> Point:
    return Point(1, tokens, is_decode=False)


def decode(sequences: int, tokens: int) -> Point:
    return Point(sequences, tokens, is_decode=True)


def test_a_decode_counts_only_while_all_streams_run_with_the_prompt_and_what_came_before():
    alone, late = stream(0.0, 0.010, 60), stream(0.3, 0.020, 60)
    slower = ClientStream((*alone.arrivals_s, *late.arrivals_s[16:]), alone.tokens, alone.logprobs, alone.fingerprints)
    reading = decode_reading([slower, late], prompt_tokens=100)
    assert reading.seconds == pytest.approx(0.020)
    assert 100 + 30 < reading.cached_tokens < 100 + 60
    reading = decode_reading([stream(0.0, 0.010, 41)], prompt_tokens=100)
    assert reading.cached_tokens == 100 + 20 - 1
    assert decode_reading([stream(0.0, 0.01, 30), stream(10.0, 0.01, 30)], 10) is None
    assert decode_reading([stream(0.0, 0.01, 3)], 10) is None


@rows(
    ("point", "reason"),
    [
        (prefill(1000), None),
        (prefill(1024), "context is 1024"),
        (decode(4, 1000), "context is 1024"),
        (decode(4, 500), None),
        (decode(8, 500), "4000 tokens of KV"),
    ],
)
def test_a_point_that_cannot_be_run_says_why(point, reason):
    found = RequestLimits(context_tokens=1024, kv_tokens=4000).lacks(point)
    assert (reason in found) if reason else found is None


def test_a_request_costs_one_token_over_a_decode_step_and_rounds_scatter():
    readings = Readings({prefill(1): [StepRun(0.005, 0)], decode(1, 64): [StepRun(0.003, 70)]})
    assert readings.request_s() == pytest.approx(0.002)
    assert Readings({prefill(1): [StepRun(0.005, 0)]}).request_s() == 0
    apart = [StepRun(0.010, 0), StepRun(0.011, 0), StepRun(0.012, 0)]
    assert Readings({prefill(64): apart}).scatter() == pytest.approx(0.002 / 0.011)
    assert Readings().scatter() == 0


def test_samples_are_medians_of_rounds_and_prefills_are_without_the_request():
    readings = Readings(
        {
            prefill(1): [StepRun(0.005, 0)],
            prefill(64): [StepRun(0.0021, 0)],
            prefill(256): [StepRun(0.010, 0), StepRun(0.900, 0), StepRun(0.012, 0)],
            decode(1, 64): [StepRun(0.003, 70)],
            decode(8, 64): [StepRun(0.004, 80), StepRun(0.008, 90.6), StepRun(0.009, 99)],
        }
    )
    assert readings.samples() == [
        StepSample(1, 256, 0, pytest.approx(0.010)),
        StepSample(1, 1, 70, 0.003),
        StepSample(8, 1, 91, 0.008),
    ]
    assert list(readings.left_out) == [prefill(64)]
    assert "lost in the 2 ms of a request" in readings.left_out[prefill(64)]


@pytest.mark.slow
async def test_a_running_engine_is_asked_for_every_point_with_prompts_that_are_not_alike(bench, service, monkeypatch):
    """The warm-up is discarded."""
    prompts, submit = [], service.engine.submit

    async def recording(request):
        prompts.append(request.prompt)
        await submit(request)

    monkeypatch.setattr(service.engine, "submit", recording)
    readings = await bench.run(SMALL, kv_tokens=100_000)
    assert readings.left_out == {}
    assert set(readings.taken) == set(SMALL.points())
    assert {len(taken) for taken in readings.taken.values()} == {SMALL.rounds}
    for point, taken in readings.taken.items():
        assert all(one.seconds > 0 for one in taken)
        assert all((one.cached_tokens >= point.tokens) == point.is_decode for one in taken)
    assert Client(service.url)(api.state.topology).streams == 0
    long = [prompt for prompt in prompts if len(prompt) > 1]
    assert len(long) > 10
    assert not [pair for pair in itertools.combinations(long, 2) if pair[0][:32] == pair[1][:32]]


@rows(
    ("recordings", "reason"),
    [
        ([recorded(0.0), recorded(90.0)], "the engine does not run so many at once"),
        ([recorded(0.0), Recording([5], error="the engine ended")], "the engine ended"),
        ([recorded(0.0), Recording([5], finish="stop")], "no token came"),
    ],
)
def test_a_point_that_gave_nothing_says_why(recordings, reason):
    assert reading_of(decode(2, 64), recordings) == reason


def test_a_prefill_is_the_median_of_all_but_the_first_and_decodes_are_long_enough():
    recordings = [recorded(100.0, asked_s=100.0 - ttft_s) for ttft_s in (0.9, 0.01, 0.03, 0.02)]
    assert reading_of(prefill(64), recordings).seconds == pytest.approx(0.02)
    assert GAPS >= 16
    assert [str(point) for point in Design((8,), (2,), (9,)).points()] == [
        "prefill of 1 tokens",
        "prefill of 8 tokens",
        "decode of 2 at 9 tokens",
    ]


@pytest.mark.slow
async def test_a_request_that_is_refused_is_left_out_with_the_reason(bench):
    readings = await bench.run(Design((64, 16000), (1,), (64,), rounds=1), kv_tokens=100_000)
    assert list(readings.left_out) == [prefill(16000)]
    assert "from 2 to 12100 can be served" in readings.left_out[prefill(16000)]


@pytest.mark.slow
async def test_a_topology_that_changes_meanwhile_ends_the_measurement(bench, service):
    await bench.run(Design((64,), (1,), (64,), rounds=1), kv_tokens=100_000)
    client = Client(service.url)
    operation = client(api.plans.apply, client(api.plans.make_plan, PlanRequest(text="run it with tp=2")).plan.id)
    assert [*follow(client, operation.id, timeout_s=30)][-1].result.phase == "done"
    with pytest.raises(CommandError, match="the topology changed while it was measured"):
        await bench.run(Design((64,), (1,), (64,), rounds=1), kv_tokens=100_000)
