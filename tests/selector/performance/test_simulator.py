"""The compiled server against a plain one and one that counts every token, and the laws of queues."""

import logging
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import stepwise_server
from benchmarks.stepwise_server import SimulatedRequest
from selector.performance.perf import LayerCost, ServerModel, StageCost, Step
from selector.performance.simulator import Arrivals, RequestArrival, Served, kept, simulate, step_s
from tests.rows import rows
from tests.tries import tries

DRAWS = st.integers(0, 2**32).map(Random)


def layer(draw: Random) -> LayerCost:
    """Dense or a mixture of experts."""
    missed = draw.choice([0.0, 0.75, 0.9])
    times = [10 ** draw.uniform(-7, -4), 10 ** draw.uniform(-10, -8), *(10 ** draw.uniform(-5, -2) for _ in range(2))]
    others = [10 ** draw.uniform(-9, -7) for _ in range(2)]
    overhead_s = draw.choice([0.0, 1e-5])
    other = Random(times[0])
    packed = other.choice([(times[0], 1.0), (times[0] * other.uniform(1, 9), other.uniform(1, 9))])
    return LayerCost(*times, missed, *others, overhead_s, *packed)


def stage(draw: Random) -> StageCost:
    """Of layers of one or two costs, alone or in a group, with a hop or a head."""
    points = sorted(draw.uniform(0, 1e5) for _ in range(draw.choice([0, 2, 3, 5])))
    reduce = tuple(zip(points, sorted(10 ** draw.uniform(-6, -4) for _ in points), strict=True))
    layers = tuple((draw.randint(1, 40), layer(draw)) for _ in range(draw.randint(1, 2)))
    return StageCost(layers, reduce, 512.0, 1e-4, (draw.choice([0.0, 2e-5]), 1e-9), draw.choice([0.0, 1e-4]), 1e-6)


def server(draw: Random) -> ServerModel:
    """Of one to four stages."""
    stages = tuple(stage(draw) for _ in range(draw.randint(1, 4)))
    return ServerModel(
        stages, draw.randint(1, 9), draw.randint(150, 2000), draw.choice([16, 50, 512]), draw.choice([1.0, 0.93])
    )


def load(draw: Random) -> list[RequestArrival]:
    """Some at once, some after the others are gone; now and then one that never fits."""
    at_s = 0.0
    found = []
    for _ in range(draw.randint(1, 40)):
        at_s += draw.choice([0.0, draw.uniform(0, 0.1), draw.uniform(0, 5)])
        found.append(RequestArrival(at_s, draw.randint(1, 400), draw.choice([1, 2, draw.randint(1, 90)])))
    return found


def figures(served: Served) -> list[SimulatedRequest | None]:
    """As the plain one says it."""
    every = zip(served.ttft_s.tolist(), served.tpot_s.tolist(), served.e2e_s.tolist(), strict=True)
    return [None if np.isnan(one[2]) else SimulatedRequest(*one) for one in every]


def same(fast: list[SimulatedRequest | None], slow: list[SimulatedRequest | None], rel: float = 1e-9) -> None:
    assert [one is None for one in fast] == [one is None for one in slow]
    for quick, other in zip(fast, slow, strict=True):
        if quick and other:
            expected = pytest.approx((other.ttft_s, other.tpot_s, other.e2e_s), rel=rel, abs=rel)
            assert (quick.ttft_s, quick.tpot_s, quick.e2e_s) == expected


@given(DRAWS)
def test_a_compiled_step_takes_what_its_stage_says(draw):
    one = stage(draw)
    model = ServerModel((stage(draw), one), 1, 1, 1, share=0.5)
    own, layers, reduce = model.figures
    step = Step(draw.randint(1, 3000), draw.uniform(0, 1e6), draw.uniform(0, 1e6), draw.randint(0, 300))
    found = step_s(own[1], layers[1], reduce[1], step.tokens, step.attended_tokens, step.kv_tokens, step.rows)
    assert found == pytest.approx(one.seconds(step) / 0.5, rel=1e-12)


@pytest.mark.slow
@tries(500)
@given(DRAWS)
def test_it_does_what_the_plain_server_does(draw):
    one = server(draw)
    requests = load(draw)
    clients = draw.choice([0, 0, 1, 3, 60])
    cached = [draw.choice([0, draw.randrange(request.input_tokens)]) for request in requests]
    arrivals = Arrivals.of(requests)
    arrivals.cached[:] = cached
    same(
        figures(simulate(one, arrivals, clients=clients)),
        stepwise_server.simulate(one, requests, clients=clients, cached=cached),
    )


def slowly(one: ServerModel, arrivals: list[RequestArrival]) -> list[SimulatedRequest | None]:
    """One stage, token by token: the rules of admission and batching written down once more."""
    now, waiting, running = 0.0, list(range(len(arrivals))), list[int]()
    left = {n: (arrival.input_tokens, arrival.output_tokens) for n, arrival in enumerate(arrivals)}
    first, found = dict[int, float](), [None] * len(arrivals)
    while waiting or running:
        if not running and arrivals[waiting[0]].at_s > now:
            now = arrivals[waiting[0]].at_s
        while waiting and arrivals[waiting[0]].at_s <= now:
            total = sum(arrivals[n].input_tokens + arrivals[n].output_tokens for n in running)
            head = arrivals[waiting[0]]
            length = head.input_tokens + head.output_tokens
            if length > one.kv_tokens:
                waiting.pop(0)
            elif len(running) < one.slots and total + length <= one.kv_tokens:
                running.append(waiting.pop(0))
            else:
                break
        if not running:
            continue
        decoding = [n for n in running if not left[n][0]]
        context = sum(arrivals[n].input_tokens + arrivals[n].output_tokens - left[n][1] for n in decoding)
        step, room, computed = (
            Step(len(decoding), context, context, len(decoding)),
            max(1, one.chunk_tokens - len(decoding)),
            [],
        )
        for n in running:
            part = min(room, left[n][0])
            if part:
                done = arrivals[n].input_tokens - left[n][0]
                step += Step(part, part * (done + (part + 1) / 2), done + part, 0)
                room -= part
                left[n] = (left[n][0] - part, left[n][1])
                if not left[n][0]:
                    computed.append(n)
        now += one.stages[0].seconds(step + Step(0, 0, 0, len(computed))) / one.share
        for n in [*decoding, *computed]:
            left[n] = (0, left[n][1] - 1)
            first.setdefault(n, now)
            if not left[n][1]:
                running.remove(n)
                at, outputs = arrivals[n].at_s, arrivals[n].output_tokens
                tpot = (now - first[n]) / (outputs - 1) if outputs > 1 else 0.0
                found[n] = SimulatedRequest(first[n] - at, tpot, now - at)
    return found


@given(DRAWS)
def test_it_does_what_a_token_by_token_server_does(draw):
    model = server(draw)
    one = ServerModel(model.stages[:1], model.slots, model.kv_tokens, model.chunk_tokens, model.share)
    requests = load(draw)
    same(figures(simulate(one, Arrivals.of(requests))), slowly(one, requests), rel=1e-6)


@given(DRAWS)
def test_every_request_that_fits_is_served_once_and_in_order(draw):
    one = server(draw)
    requests = load(draw)
    served = simulate(one, Arrivals.of(requests))
    fits = [request.input_tokens + request.output_tokens <= one.kv_tokens for request in requests]
    assert (~np.isnan(served.last_s)).tolist() == fits == (~served.never).tolist()
    assert served.done == len(requests), "those that can never be are done with"
    there = served.first_s[~served.never].tolist()
    assert (served.last_s >= served.first_s)[~served.never].all()
    assert (served.ttft_s > 0)[~served.never].all()
    if len(one.stages) == 1:
        assert all(earlier <= later + 1e-9 for earlier, later in pairwise(there)), "but for the last digit"


def plain(stages: int = 1, slots: int = 8, share: float = 1.0, step_s: float = 0.01) -> ServerModel:
    """So much a step and a token."""
    one = StageCost(
        ((1, LayerCost(0.0, 0.0, 1e-9, 0.0, 0.0, 1e-7, step_s / 100, 0.0, 0.0, 1.0)),),
        (),
        1.0,
        step_s,
        (0.0, 0.0),
        0.0,
        0.0,
    )
    return ServerModel((one,) * stages, slots, 10_000, 64, share)


def alike(count: int, gap_s: float = 0.0, inputs: int = 20, outputs: int = 50) -> Arrivals:
    return Arrivals.of([RequestArrival(gap_s * number, inputs, outputs) for number in range(count)])


def test_a_pipeline_serves_more_at_once_and_one_alone_no_faster():
    one, two = plain(slots=16), plain(2, slots=16, step_s=0.005)
    assert simulate(two, alike(16)).last_s.max() < 0.9 * simulate(one, alike(16)).last_s.max()
    assert simulate(two, alike(1)).last_s == pytest.approx(simulate(one, alike(1)).last_s, rel=0.01)


def test_a_share_of_the_rate_lengthens_everything_alike():
    assert simulate(plain(share=0.5), alike(9)).e2e_s == pytest.approx(2 * simulate(plain(), alike(9)).e2e_s)


def test_what_is_idle_costs_no_time():
    served = simulate(plain(), alike(2, gap_s=1e6))
    assert served.e2e_s[1] == pytest.approx(served.e2e_s[0])


@rows("stages", [1, 2])
def test_steps_taken_together_last_as_long_as_one_by_one(stages, monkeypatch):
    costly = plain(stages, step_s=1e-3)
    requests = [RequestArrival(0.9 * number, 100, 200) for number in range(40)]
    with monkeypatch.context() as patch:
        patch.setattr(stepwise_server, "_LEAP", 10**9)
        one_by_one = stepwise_server.simulate(costly, requests)
    together = simulate(costly, Arrivals.of(requests))
    same(figures(together), one_by_one, rel=1e-6)
    assert together.computed < 40 * 200 * stages / 2


def test_after_the_most_steps_what_is_not_served_yet_stays_open():
    found = simulate(plain(step_s=0.001), alike(100, gap_s=1.0), most_steps=200)
    assert 0 < found.done < 100
    assert np.isnan(found.last_s[found.done :]).all()


def test_a_client_whose_request_never_fits_sends_the_next_one():
    requests = [RequestArrival(0.0, 20_000 if number % 2 else 20, 50) for number in range(40)]
    served = simulate(plain(), Arrivals.of(requests), clients=2)
    assert (~np.isnan(served.last_s)).sum() == 20


def test_without_a_folder_to_keep_it_in_it_is_compiled_and_that_is_said(caplog):
    nowhere = eval("lambda value: value + 1")
    with caplog.at_level(logging.WARNING):
        assert kept(nowhere)(2) == 3
    assert "set NUMBA_CACHE_DIR" in caplog.text
