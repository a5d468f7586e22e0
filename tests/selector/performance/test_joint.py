"""Replicas behind a router: judged as what they are, and shares of classes by a linear program."""

import itertools
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from runtime.capabilities import Batching
from runtime.models import Topology, uniform
from selector.performance.joint import Classes, judged_set, routing_of
from selector.performance.judge import arrivals, sustained_rps
from selector.performance.routing import Routing, simulate_set
from selector.performance.shares import dealt_evenly, edges_of, words_of
from selector.performance.simulator import Arrivals, simulate
from selector.prediction import candidate, frontier, outcome, server_of
from tests.rows import rows
from tests.selector.performance.test_simulator import load, server
from tests.tries import tries

DRAWS = st.integers(0, 2**32).map(Random)
NOBODY_BARRED = frozenset[str]()


def alone(paces: int = 1) -> Routing:
    """Of replicas of which nothing is known but that they are alike."""
    return Routing(np.ones((4, paces)), np.full((1, paces), 1 / paces), 100.0)


@example(Random(97))  # one waits while nothing runs, and the next one comes before it may begin
@given(DRAWS)
@tries(30)
def test_one_replica_serves_as_its_pipeline_does(draw):
    one = server(draw)
    every = load(draw)  # without those that never fit: a pipeline wakes up for them, a router sends them nowhere
    fits = [each for each in every if each.input_tokens + each.output_tokens <= one.kv_tokens]
    assume(fits)
    requests = Arrivals.of(fits)
    served, _ = simulate_set([one], requests, np.zeros(len(requests), np.int64), alone())
    expected = simulate(one, requests)
    assert np.allclose(served.first_s, expected.first_s, equal_nan=True)
    assert np.allclose(served.last_s, expected.last_s, equal_nan=True)


@given(DRAWS)
@tries(30)
def test_each_request_is_served_once_by_a_replica_that_holds_it(draw):
    servers = [server(draw) for _ in range(draw.randint(2, 4))]
    requests = Arrivals.of(load(draw))
    served, places = simulate_set(servers, requests, np.zeros(len(requests), np.int64), alone(len(servers)))
    lengths = requests.inputs + requests.outputs
    most = np.array([each.kv_tokens for each in servers])
    assert np.array_equal(places < 0, lengths > most.max())
    assert (lengths[places >= 0] <= most[places[places >= 0]]).all()
    assert np.array_equal(np.isnan(served.last_s), places < 0)


@pytest.fixture(scope="module")
def pair(mixed, llama, known):
    """Llama-3-70B on each of the two boxes."""
    fast, slow = uniform(mixed, "A100", 4, 1, 80, "bf16"), uniform(mixed, "L40S", 4, 1, 80, "fp8")
    return tuple(server_of(each, llama, mixed, known, Batching(256, 512)) for each in (fast, slow))


def test_two_alike_at_twice_the_rate_are_near_one_at_the_rate(pair, peak):
    one = judged_set(pair[:1], peak, 8192, (NOBODY_BARRED,)).together
    two = judged_set(pair[:1] * 2, replace(peak, rate_rps=2 * peak.rate_rps), 8192, (NOBODY_BARRED,) * 2)
    assert two.together.sustained_rps == pytest.approx(2 * one.sustained_rps)
    assert two.together.tpot_s["mean"] == pytest.approx(one.tpot_s["mean"], rel=0.1)
    assert two.together.ttft_s["p99"] <= one.ttft_s["p99"]  # the router evens out what comes by chance
    assert two.given == pytest.approx((0.5, 0.5), abs=0.02)


def test_what_a_set_sustains_is_what_a_backlog_gets(pair, peak):
    sustained = [sustained_rps(each, peak, 8192) for each in pair]
    drawn = replace(arrivals(peak, 6000, 8192), at_s=np.zeros(6000))
    classes = Classes.of(drawn, [""])
    routing = routing_of(pair, peak, sustained, classes, np.ones((1, 2), dtype=bool))
    served, _ = simulate_set(pair, drawn, classes.numbers, routing)
    begins_s = np.sort(served.first_s)
    assert 2400 / (begins_s[4800] - begins_s[2400]) == pytest.approx(sum(sustained), rel=0.1)


@rows(("tpot_s", "part"), [(np.inf, 0.5), (0.1, 0.0), (0.01, 0.5)])
def test_a_replica_that_misses_a_bound_is_taken_only_where_none_holds_it(pair, peak, tpot_s, part):
    paces = np.array([[0.05, 0.2], [1e-9, 1e-9], [1e-9, 1e-9], [256.0, 256.0]])
    routing = replace(alone(2), paces=paces, band=np.inf, tpot_s=tpot_s)
    _, places = simulate_set(pair, arrivals(peak, 500, 8192), np.zeros(500, np.int64), routing)
    assert (places == 1).mean() == pytest.approx(part, abs=0.01)


def test_nobody_is_served_where_he_may_not_be(pair, peak):
    barred = (NOBODY_BARRED, frozenset({"enterprise"}))
    found = judged_set(pair, peak, 8192, barred, tenants=("enterprise", ""))
    assert all(part == 0 for words, part in found.planned[1].items() if words.startswith("enterprise"))
    assert any(part > 0 for words, part in found.planned[1].items() if not words.startswith("enterprise"))
    assert found.given[0] >= 0.5
    assert judged_set(pair, peak, 8192, (frozenset({"free"}),) * 2, tenants=("free", "")) is None


@rows("rule", ["finish", "round robin"])
def test_an_endless_band_deals_by_shares_alone(pair, peak, rule):
    drawn = arrivals(peak, 1000, 8192)
    classes = Classes.of(drawn, [""])
    routing = routing_of(pair, peak, [3.9, 2.2], classes, np.ones((1, 2), dtype=bool))
    if rule == "round robin":
        routing = replace(routing, shares=np.full_like(routing.shares, 0.5), band=np.inf)
    _, places = simulate_set(pair, drawn, classes.numbers, routing)
    assert ((places == 0).mean() == pytest.approx(0.5, abs=0.01)) == (rule == "round robin")


# --- the linear program ---


def busiest(shares, costs, weights) -> float:
    """Seconds of the busiest replica."""
    seconds = np.where(np.isfinite(costs), costs, 0.0) * np.nan_to_num(shares) * weights[:, None]
    return float(seconds.sum(axis=0).max())


@given(DRAWS)
@tries(60)
def test_shares_are_the_best_of_all_on_a_grid(draw):
    """Two classes and two replicas: nothing on a grid of shares is better, and sums are 1."""
    costs = np.array([[draw.uniform(0.1, 2) for _ in range(2)] for _ in range(2)])
    if draw.random() < 0.4:
        costs[draw.randint(0, 1), draw.randint(0, 1)] = np.inf
    weights = np.array([draw.uniform(0.1, 1) for _ in range(2)])
    shares = dealt_evenly(costs, weights, (0, 1))
    assert np.allclose(np.nansum(shares, axis=1), 1)
    assert np.array_equal(np.isnan(shares), ~np.isfinite(costs))
    grid = np.linspace(0, 1, 41)
    for first, second in itertools.product(grid, grid):
        other = np.array([[first, 1 - first], [second, 1 - second]])
        if not (other[~np.isfinite(costs)] > 0).any():
            assert busiest(shares, costs, weights) <= busiest(other, costs, weights) + 1e-7


@given(DRAWS)
@tries(30)
def test_alike_replicas_get_alike_and_all_are_busy(draw):
    kinds = draw.randint(1, 3)
    alike = sorted(draw.randrange(kinds) for _ in range(draw.randint(1, 6)))
    by_kind = np.array([[draw.uniform(0.1, 2) for _ in range(kinds)] for _ in range(8)])
    shares = dealt_evenly(by_kind[:, alike], np.ones(8), alike)
    busy = (shares * by_kind[:, alike]).sum(axis=0)
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.allclose(busy, busy[0])  # where everything may be served everywhere nobody rests while others are busier


def test_classes_of_prompts_have_words(peak):
    edges = edges_of(arrivals(peak, 1000, 8192).inputs)
    assert len(edges) == 8
    assert words_of(edges)[:2] == (f"up to {edges[0]} tokens", f"{edges[0] + 1} to {edges[1]} tokens")


# --- predictions of sets ---


def test_a_set_adds_up(large, known, mixed):
    parts = uniform(mixed, "A100", 4, 1, 80, "bf16"), uniform(mixed, "L40S", 4, 1, 80, "fp8")
    limits = replace(large.limits, quality_loss={"fp8": 0.01})
    problem = replace(large, limits=limits)
    found = candidate(Topology.of_replicas(parts), problem, known)
    each = [
        candidate(part, replace(problem, workload=replace(problem.workload, concurrency=1)), known) for part in parts
    ]
    assert found.prediction.usd_per_hour == pytest.approx(13.2)
    assert found.prediction.devices == 8
    assert found.prediction.throughput_tok_s == pytest.approx(sum(one.prediction.throughput_tok_s for one in each))
    assert sum(one.share for one in found.replicas) == pytest.approx(1)
    assert found.prediction.quality_loss == pytest.approx(0.01 * found.replicas[1].share)
    assert outcome(found.topology, problem, known).ttft_s == found.prediction.ttft_s
    assert frontier("a", found.topology, problem, known).saturation_rps == pytest.approx(
        found.prediction.throughput_tok_s / problem.workload.output_tokens
    )
    assert each[0].replicas == ()
