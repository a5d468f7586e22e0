"""The event-driven server against a slow one that counts every token, and the laws of queues."""

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.performance import simulator
from selector.performance.perf import LayerCost, StageCost, Step
from selector.performance.simulator import RequestArrival, ServerModel, SimulatedRequest, simulate
from tests.rows import rows


def stage(step_s: float = 0.01, token_s: float = 1e-4, kv_s: float = 1e-7) -> StageCost:
    """A stage of one layer: so much a step, so much a token, so much a KV token."""
    layer = LayerCost(0.0, 0.0, 0.0, 0.0, 0.0, kv_s, token_s, 0.0)
    return StageCost(((1, layer),), (), 1.0, step_s, (0.0, 0.0), 0.0, 0.0)


def server(stages: int = 1, slots: int = 8, kv_tokens: int = 10_000, chunk: int = 64) -> ServerModel:
    return ServerModel((stage(),) * stages, slots, kv_tokens, chunk)


def slowly(one: ServerModel, arrivals: list[RequestArrival]) -> list[SimulatedRequest | None]:
    """One stage, token by token: the rules of admission and batching written down once more."""
    now, waiting, running = 0.0, list(range(len(arrivals))), []
    left = {n: (arrival.input_tokens, arrival.output_tokens) for n, arrival in enumerate(arrivals)}
    first, found = {}, [None] * len(arrivals)
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
        now += one.stages[0].seconds(step)
        for n in [*decoding, *computed]:
            left[n] = (0, left[n][1] - 1)
            first.setdefault(n, now)
            if not left[n][1]:
                running.remove(n)
                at, outputs = arrivals[n].at_s, arrivals[n].output_tokens
                tpot = (now - first[n]) / (outputs - 1) if outputs > 1 else 0.0
                found[n] = SimulatedRequest(first[n] - at, tpot, now - at)
    return found


LOADS = st.lists(st.tuples(st.floats(0, 0.2), st.integers(1, 150), st.integers(1, 20)), min_size=1, max_size=12).map(
    lambda rows: [RequestArrival(sum(gap for gap, *_ in rows[: n + 1]), *rows[n][1:]) for n in range(len(rows))]
)


@pytest.mark.slow
@given(LOADS, st.integers(1, 4), st.integers(120, 400), st.integers(16, 128))
def test_it_does_what_a_token_by_token_server_does(load, slots, kv_tokens, chunk):
    one = server(slots=slots, kv_tokens=kv_tokens, chunk=chunk)
    for fast, slow in zip(simulate(one, load), slowly(one, load), strict=True):
        assert (fast is None) == (slow is None)
        if fast and slow:
            assert (fast.ttft_s, fast.tpot_s, fast.e2e_s) == pytest.approx((slow.ttft_s, slow.tpot_s, slow.e2e_s))


@pytest.mark.slow
@given(LOADS, st.integers(1, 4))
def test_every_request_that_fits_is_served_once_and_in_order(load, stages):
    served = simulate(server(stages, slots=2), load)
    assert all(one is not None and one.ttft_s > 0 and one.e2e_s >= one.ttft_s for one in served)
    starts = [arrival.at_s + one.ttft_s for arrival, one in zip(load, served, strict=True) if one]
    if stages == 1:
        assert all(earlier <= later + 1e-9 for earlier, later in pairwise(starts)), "but for the last digit"


def test_a_request_longer_than_the_memory_is_never_served_and_blocks_nobody():
    load = [RequestArrival(0.0, 9_000, 2_000), RequestArrival(0.0, 10, 5)]
    served = simulate(server(), load)
    assert served[0] is None
    assert served[1] is not None


def test_a_pipeline_serves_more_at_once_and_one_alone_no_faster():
    many = [RequestArrival(0.0, 20, 50) for _ in range(16)]
    one, two = server(1, slots=16), ServerModel((stage(0.005, 5e-5),) * 2, 16, 10_000, 64)
    assert max(s.e2e_s for s in simulate(two, many) if s) < 0.9 * max(s.e2e_s for s in simulate(one, many) if s)
    alone = [RequestArrival(0.0, 20, 50)]
    assert simulate(two, alone)[0].e2e_s == pytest.approx(simulate(one, alone)[0].e2e_s, rel=0.01)


def test_a_share_of_the_rate_lengthens_everything_alike():
    load = [RequestArrival(0.0, 30, 10)]
    (whole,), (half,) = (
        simulate(server(), load),
        simulate(ServerModel((stage(),), 8, 10_000, 64, share=0.5), load),
    )
    assert half.e2e_s == pytest.approx(2 * whole.e2e_s)


def test_what_is_idle_costs_no_time_and_no_load_is_no_error():
    (early, late) = simulate(server(), [RequestArrival(0.0, 10, 3), RequestArrival(1e6, 10, 3)])
    assert late.e2e_s == pytest.approx(early.e2e_s)
    assert simulate(server(), []) == []


@rows("stages", [1, 2])
def test_steps_taken_together_last_as_long_as_one_by_one(stages, monkeypatch):
    costly = ServerModel((stage(1e-3, 1e-5, 1e-7),) * stages, 8, 10_000, 64)
    arrivals = [RequestArrival(0.9 * number, 100, 200) for number in range(40)]
    together = simulate(costly, arrivals)
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "_LEAP", 10**9)
        one_by_one = simulate(costly, arrivals)
    for quick, slow in zip(together, one_by_one, strict=True):
        assert dataclasses.astuple(quick) == pytest.approx(dataclasses.astuple(slow), rel=1e-6)


def test_after_the_most_steps_what_is_not_served_stays_open():
    arrivals = [RequestArrival(float(number), 10, 100) for number in range(100)]
    found = simulate(ServerModel((stage(0.001, 0.0, 0.0),), 8, 1000, 64), arrivals, most_steps=200)
    assert found[0] is not None
    assert found[-1] is None
