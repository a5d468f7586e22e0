"""A simulated server that becomes another one while requests run."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.changing_server import Change, simulate
from selector.performance.perf import LayerCost, ServerModel, StageCost, Step
from selector.performance.simulator import RequestArrival


def stage(step_s: float = 0.01, token_s: float = 1e-4, kv_s: float = 1e-7) -> StageCost:
    """A stage of one layer: so much a step, so much a token, so much a KV token."""
    layer = LayerCost(0.0, 0.0, 0.0, 0.0, 0.0, kv_s, token_s, 0.0)
    return StageCost(((1, layer),), (), 1.0, step_s, (0.0, 0.0), 0.0, 0.0)


def even(step_s: float, kv_tokens: int = 1000, stages: int = 1) -> ServerModel:
    """Every step takes as long on each stage, whatever is in it."""
    return ServerModel((stage(step_s, 0.0, 0.0),) * stages, 8, kv_tokens, 64)


def test_a_change_waits_for_the_step_in_flight_and_stops_what_runs():
    (found,) = simulate(even(0.01), [RequestArrival(0.0, 10, 11)], [Change(0.055, even(0.02), 0.1)])
    assert found.ttft_s == pytest.approx(0.01)
    assert found.e2e_s == pytest.approx(0.06 + 0.1 + 5 * 0.02)


def test_a_change_of_memory_alone_stops_nothing():
    arrivals = [RequestArrival(0.0, 10, 11)]
    (changed,) = simulate(even(0.01), arrivals, [Change(0.055, even(0.01, 50), 9.9)])
    (plain,) = simulate(even(0.01), arrivals, [])
    assert dataclasses.astuple(changed) == pytest.approx(dataclasses.astuple(plain))


def test_a_change_waits_until_what_runs_has_room_on_both_sides():
    arrivals = [RequestArrival(0.0, 10, 11), RequestArrival(0.0, 10, 3), RequestArrival(0.006, 10, 2)]
    changes = [Change(0.005, even(0.01, 30)), Change(0.02, even(0.05, 100))]
    first, second, third = simulate(even(0.01), arrivals, changes)
    assert second.e2e_s == pytest.approx(0.03)  # then 21 of 30 tokens are reserved, and the change is made
    assert first.e2e_s == pytest.approx(0.03 + 8 * 0.05)
    assert third.ttft_s == pytest.approx(0.03 + 0.05 - 0.006)


def test_a_request_has_the_context_that_it_had_before_the_change():
    before, after = stage(), stage(kv_s=1e-3)
    (found,) = simulate(
        ServerModel((before,), 8, 1000, 64),
        [RequestArrival(0.0, 10, 3)],
        [Change(0.012, ServerModel((after,), 8, 1000, 64))],
    )
    first, second = before.seconds(Step(10, 55, 10, 1)), before.seconds(Step(1, 11, 11, 1))
    assert found.e2e_s == pytest.approx(first + second + after.seconds(Step(1, 12, 12, 1)))


def test_a_change_while_nothing_runs_holds_for_what_comes_later():
    (found,) = simulate(even(0.01), [RequestArrival(5.0, 10, 2)], [Change(1.0, even(0.02))])
    assert found.e2e_s == pytest.approx(0.04)


def test_a_change_to_come_does_not_hold_back_what_waits():
    arrivals = [RequestArrival(0.0, 10, 2), RequestArrival(0.0, 10, 2), RequestArrival(9.0, 10, 2)]
    one_at_a_time = even(0.01, 12)
    assert (
        simulate(one_at_a_time, arrivals, [Change(5.0, even(0.02, 24))])[:2]
        == simulate(one_at_a_time, arrivals, [])[:2]
    )


@pytest.mark.slow
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.floats(0.0, 1.0),
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
)
def test_every_request_is_served_whatever_the_stages_become(before, after, at_s, outputs):
    arrivals = [RequestArrival(0.02 * number, 30, output) for number, output in enumerate(outputs)]
    found = simulate(even(0.01, stages=before), arrivals, [Change(at_s, even(0.02, stages=after), 0.5)])
    for arrival, each in zip(arrivals, found, strict=True):
        assert each.e2e_s >= arrival.output_tokens * 0.01 * min(before, after) - 1e-9
