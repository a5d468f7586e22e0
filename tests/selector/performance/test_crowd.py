"""Servers with a fixed number of requests, against what is known of them and against the simulator."""

import random
from dataclasses import replace

import pytest

from selector.performance.perf import LayerCost, StageCost
from selector.performance.simulator import RequestArrival, ServerModel, simulate
from selector.performance.work import Lengths, _all_away, saturation
from tests.rows import rows


def server(slots=64, kv_tokens=100_000):
    """10 ms a step and 0.1 ms a token."""
    layer = LayerCost(0.0, 0.0, 0.0, 0.0, 0.0, 1e-8, 1e-4, 0.0)
    stage = StageCost(((1, layer),), (), 1.0, 0.01, (0.0, 0.0), 0.0, 0.0)
    return ServerModel((stage,), slots, kv_tokens, 512)


def measured_rps(one, pairs, count=3000):
    load = [RequestArrival(0.0, *pair) for pair in random.Random(3).choices(pairs, k=count)]
    ends = sorted(found.e2e_s for found in simulate(one, load) if found)
    first, last = count // 5, count * 4 // 5
    return (last - first) / (ends[last] - ends[first])


def test_all_are_away_as_erlang_says():
    assert _all_away(3.0, 2.0, 1.0, 1.0)[0] == pytest.approx((8 / 6) / (1 + 2 + 2 + 8 / 6))
    assert _all_away(1.0, 4.0, 0.5, 1.0)[0] == pytest.approx(2 / 3)
    assert _all_away(500.0, 20.0, 1.0, 2.0) == (0.0, 40.0)


@pytest.mark.slow
@rows("clients", [1, 4, 16, 64])
def test_a_crowd_gets_what_the_simulator_gives_it(clients):
    one, lengths = server(slots=clients), Lengths.fixed(300, 60)
    found = saturation(one, lengths, clients)
    assert found.rate_rps == pytest.approx(measured_rps(one, [(300, 60)], 40 * max(clients, 8)), rel=0.1)


def test_kv_in_unequal_lumps_holds_less_than_its_mean_says():
    pairs = [(200, 100)] * 19 + [(20_000, 100)]
    one, lengths = server(slots=500, kv_tokens=100_000), Lengths.of(pairs)
    found = saturation(one, lengths, one.slots).rate_rps
    assert found == pytest.approx(measured_rps(one, pairs), rel=0.1)
    assert found < saturation(replace(one, kv_tokens=1_000_000), lengths, one.slots).rate_rps


def test_short_prompts_share_their_steps_when_they_queue():
    """Alone each would pay for a step of its own."""
    one = server(slots=500)
    assert saturation(one, Lengths.fixed(20, 20), 500).rate_rps == pytest.approx(measured_rps(one, [(20, 20)]), rel=0.1)
