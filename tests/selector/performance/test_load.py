"""The closed forms against the simulator, and the laws they must obey."""

import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selector.performance.latency import reading_of

from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, uniform
from selector.models import WorkloadError
from selector.performance.load import (
    SERVING_SHARE,
    closed_loop,
    closed_loop_means,
    open_loop,
    saturation_tok_s,
    static_batch,
)
from selector.performance.perf import stage_costs
from selector.performance.simulator import RequestArrival, ServerModel, simulate
from selector.performance.work import LONGEST, Lengths, slots_for
from tests.rows import rows

EIGHT = ModelSpec("llama-3-8b", "LlamaForCausalLM", 32, 4096, 14_336, 32, 8, 128, 128_256, 8192)


@pytest.fixture(scope="module")
def servers(known):
    """One A100, and pipelines of two and four."""
    cluster = Cluster((Node("n", tuple(Gpu(i, "A100", 80 * 10**9) for i in range(4)), Link("nvlink", 3e11, 5e-6)),))

    def of(stages):
        costs = stage_costs(uniform(cluster, "A100", 1, stages, 32, "bf16"), EIGHT, cluster, known)
        return ServerModel(costs, 512, 400_000 * stages, 2048, SERVING_SHARE)

    return {stages: of(stages) for stages in (1, 2, 4)}


def poisson(pairs, rate, count, seed=1):
    draw, now, load = random.Random(seed), 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate)
        load.append(RequestArrival(now, *draw.choice(pairs)))
    return load


def spread(seed=0):
    """Lengths as of a chat service: many short ones, a few long ones."""
    draw = random.Random(seed)
    return [
        (max(1, int(draw.lognormvariate(6.3, 1.0))), max(1, int(draw.lognormvariate(4.7, 0.9)))) for _ in range(400)
    ]


@pytest.mark.slow
@rows("stages", [1, 2, 4])
@rows(("clients", "inputs", "outputs"), [(1, 1000, 100), (16, 1000, 200), (128, 500, 500), (64, 4000, 100)])
def test_a_closed_loop_is_what_the_simulator_serves(servers, stages, clients, inputs, outputs):
    server = servers[stages]
    predicted = closed_loop(server, clients, Lengths.fixed(inputs, outputs))
    load = [RequestArrival(n * 1e-3, inputs, outputs) for n in range(clients * 12)]
    served = simulate(replace(server, slots=clients), load)
    ends = sorted(arrival.at_s + one.e2e_s for arrival, one in zip(load, served, strict=True))
    first, last = len(ends) * 3 // 10, len(ends) * 9 // 10
    measured = (last - first) * outputs / (ends[last] - ends[first])
    assert predicted.throughput_tok_s == pytest.approx(measured, rel=0.1)


DATA = Path(__file__).parents[2] / "data" / "lengths"
SEVENTY = ModelSpec("llama-3-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 128_256, 8192)


def traced(name):
    """Lengths of real requests; tests/data/lengths/README.md says whose."""
    rows = (DATA / f"{name}.csv").read_text().splitlines()[1:]
    return [tuple(map(int, row.split(","))) for row in rows]


def evenly(pairs, rate, count, seed):
    """Poisson arrivals in which every pair comes equally often: the rare long ones as often as they should."""
    draw, now, load = random.Random(seed), 0.0, []
    chosen = (pairs * math.ceil(count / len(pairs)))[:count]
    draw.shuffle(chosen)
    for pair in chosen:
        now += draw.expovariate(rate)
        load.append(RequestArrival(now, *pair))
    return load


def measured(server, pairs, rate):
    """What the simulator sees of a load, without its beginning; longer where a step serves more of it."""
    count = len(pairs) * (15 if max(pairs)[0] > 100_000 else 45)
    served = [one for one in simulate(server, evenly(pairs, rate, count, 1))[len(pairs) :] if one]
    ttft, tpot = [one.ttft_s for one in served], [one.tpot_s for one in served if one.tpot_s]
    return reading_of(ttft), reading_of(tpot)


@pytest.fixture(scope="module")
def usual(known):
    """What the traces are served by: kind, model, TP, KV tokens."""

    def of(kind, model, tp, precision, kv_tokens):
        gpus = tuple(Gpu(i, kind, 10**12) for i in range(tp))
        cluster = Cluster((Node("n", gpus, Link("link", 25e9, 1e-5)),))
        topology = uniform(cluster, kind, tp, 1, model.num_layers, precision)
        return ServerModel(stage_costs(topology, model, cluster, known), 2048, kv_tokens, 2048, SERVING_SHARE)

    return {
        "8B on A100": of("A100", EIGHT, 1, "bf16", 500_000),
        "70B on A100x4": of("A100", SEVENTY, 4, "bf16", 546_000),
        "70B on L40Sx4": of("L40S", SEVENTY, 4, "fp8", 638_000),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "trace", "share", "tolerance"),
    [
        ("8B on A100", "azure_code", 0.7, 0.15),
        *(
            pytest.param(topology, trace, *share, marks=pytest.mark.exhaustive)
            for topology in ("8B on A100", "70B on A100x4", "70B on L40Sx4")
            for trace in ("azure_conv", "azure_code", "mooncake")
            for share in ((0.7, 0.15), (0.9, 0.3))
        ),
    ],
)
def test_the_p99_ttft_of_real_lengths_is_what_the_simulator_sees(usual, topology, trace, share, tolerance):
    server, pairs = usual[topology], traced(trace)
    lengths = Lengths.of(pairs)
    rate = share * saturation_tok_s(server, lengths) / lengths.output_tokens
    ttft, tpot = measured(server, pairs, rate)
    found = open_loop(server, rate, lengths)
    assert found.ttft_s["p99"] == pytest.approx(ttft["p99"], rel=tolerance)
    assert found.ttft_s["mean"] == pytest.approx(ttft["mean"], rel=0.3)
    assert found.tpot_s["mean"] == pytest.approx(tpot["mean"], rel=0.3)
    assert found.tpot_s["p99"] == pytest.approx(tpot["p99"], rel=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["8B on A100", "70B on A100x4", "70B on L40Sx4"])
@pytest.mark.parametrize("trace", ["azure_conv", "azure_code", "mooncake"])
def test_the_saturation_of_real_lengths_is_what_the_simulator_reaches(usual, topology, trace):
    server, pairs = usual[topology], traced(trace)
    load = [replace(one, at_s=0.0) for one in evenly(pairs, 1.0, 6 * len(pairs), 4)]
    ends = sorted(one.e2e_s for one in simulate(server, load) if one)
    first, last = len(ends) // 5, len(ends) * 4 // 5
    lengths = Lengths.of(pairs)
    rate = saturation_tok_s(server, lengths) / lengths.output_tokens
    assert rate == pytest.approx((last - first) / (ends[last] - ends[first]), rel=0.04)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "tolerance"), [(0.1, 0.15), (0.5, 0.15), (0.7, 0.15), (0.9, 0.30)])
def test_the_p99_ttft_of_poisson_arrivals_is_what_the_simulator_sees(servers, share, tolerance):
    server, pairs = servers[1], spread()
    lengths = Lengths.of(pairs)
    rate = share * saturation_tok_s(server, lengths) / lengths.output_tokens
    served = simulate(server, poisson(pairs, rate, 12_000))[1000:]
    measured = reading_of([one.ttft_s for one in served if one])
    assert open_loop(server, rate, lengths).ttft_s["p99"] == pytest.approx(measured["p99"], rel=tolerance)
    tpot = reading_of([one.tpot_s for one in served if one and one.tpot_s])
    assert open_loop(server, rate, lengths).tpot_s["mean"] == pytest.approx(tpot["mean"], rel=0.2)


def test_saturation_is_what_a_full_queue_gets(servers):
    pairs = spread()
    load = [RequestArrival(0.0, *pair) for pair in random.Random(3).choices(pairs, k=3000)]
    served = simulate(servers[1], load)
    ends = sorted((one.e2e_s, arrival.output_tokens) for arrival, one in zip(load, served, strict=True) if one)
    window = ends[600:2500]
    measured = sum(tokens for _, tokens in window) / (window[-1][0] - window[0][0])
    assert saturation_tok_s(servers[1], Lengths.of(pairs)) == pytest.approx(measured, rel=0.1)


def test_beyond_saturation_there_is_a_throughput_and_no_latency(servers):
    lengths = Lengths.fixed(1000, 200)
    most = saturation_tok_s(servers[1], lengths)
    slis = open_loop(servers[1], 2 * most / 200, lengths)
    assert (slis.saturated, slis.ttft_s, slis.e2e_s) == (True, None, None)
    assert slis.throughput_tok_s == pytest.approx(most)
    assert not open_loop(servers[1], 0.5 * most / 200, lengths).saturated


def test_what_fits_not_once_is_saturated_at_nothing(servers):
    small, lengths = replace(servers[1], kv_tokens=100), Lengths.fixed(1000, 200)
    assert slots_for(small, lengths) < 1
    for slis in (open_loop(small, 1.0, lengths), closed_loop(small, 4, lengths)):
        assert (slis.saturated, slis.tpot_s, slis.throughput_tok_s) == (True, None, 0.0)


def test_more_clients_than_slots_wait_their_turn(servers):
    few, lengths = replace(servers[1], slots=8), Lengths.fixed(500, 100)
    at, beyond = closed_loop(few, 8, lengths), closed_loop(few, 80, lengths)
    assert beyond.saturated
    assert beyond.throughput_tok_s == pytest.approx(at.throughput_tok_s)
    assert beyond.ttft_s["mean"] > 9 * at.e2e_s["mean"] * 0.9


def test_percentiles_of_a_closed_loop_lie_around_its_means(servers):
    slis = closed_loop(servers[1], 40, Lengths.of(spread()))
    for reading in (slis.ttft_s, slis.tpot_s, slis.e2e_s):
        assert reading["p50"] <= reading["p90"] <= reading["p95"] <= reading["p99"]
        assert reading["p50"] < reading["mean"] * 1.2 < reading["p99"] * 1.2
    means = closed_loop_means(servers[1], 40, Lengths.of(spread()))
    assert slis.ttft_s["mean"] == pytest.approx(means.ttft_s["mean"])
    assert slis.throughput_tok_s == means.throughput_tok_s


@pytest.mark.slow
@given(st.integers(1, 200), st.integers(50, 6000), st.integers(2, 400), st.sampled_from([1, 2, 4]))
def test_no_percentile_of_a_closed_loop_lies_before_its_beginning(servers, clients, inputs, outputs, stages):
    slis = closed_loop(servers[stages], clients, Lengths.fixed(inputs, outputs))
    for reading in (slis.ttft_s, slis.tpot_s, slis.e2e_s):
        assert 0 < reading["p50"] <= reading["p90"] <= reading["p95"] <= reading["p99"]


def test_one_client_meets_nobody(servers):
    slis = closed_loop(servers[1], 1, Lengths.fixed(700, 150))
    assert slis.ttft_s["p99"] == pytest.approx(slis.ttft_s["mean"])
    alone = static_batch(servers[1], 1, Lengths.fixed(700, 150))
    assert slis.ttft_s["mean"] == pytest.approx(alone.ttft_s["mean"], rel=0.03)


def test_nothing_jumps_where_a_prompt_needs_a_second_chunk(servers):
    found = [closed_loop_means(servers[1], 120, Lengths.fixed(inputs, 40)) for inputs in range(1700, 2400, 50)]
    for shorter, longer in pairwise(found):
        assert longer.tpot_s["mean"] == pytest.approx(shorter.tpot_s["mean"], rel=0.05)
        assert longer.throughput_tok_s == pytest.approx(shorter.throughput_tok_s, rel=0.05)


@pytest.mark.slow
def test_prompts_alone_can_saturate_a_server(servers):
    """As in code completion: long prompts, a few tokens out."""
    server, draw = servers[1], random.Random(2)
    pairs = [(draw.randint(500, 4000), draw.randint(5, 40)) for _ in range(300)]
    lengths = Lengths.of(pairs)
    rate = 0.8 * saturation_tok_s(server, lengths) / lengths.output_tokens
    served = simulate(server, poisson(pairs, rate, 8000))[1000:]
    measured, slis = reading_of([one.ttft_s for one in served if one]), open_loop(server, rate, lengths)
    assert slis.ttft_s["mean"] == pytest.approx(measured["mean"], rel=0.25)
    tpot = reading_of([one.tpot_s for one in served if one and one.tpot_s])
    assert slis.tpot_s["mean"] == pytest.approx(tpot["mean"], rel=0.25)
    beyond = simulate(server, poisson(pairs, 1.4 * rate, 4000))
    assert open_loop(server, 1.4 * rate, lengths).saturated
    assert reading_of([one.ttft_s for one in beyond[-500:] if one])["p50"] > 10 * measured["p50"]


def test_littles_law_holds_in_a_closed_loop(servers):
    slis = closed_loop(servers[1], 40, Lengths.fixed(700, 150))
    assert slis.e2e_s["mean"] * slis.throughput_tok_s / 150 == pytest.approx(40, rel=1e-3)
    assert slis.e2e_s["mean"] == pytest.approx(slis.ttft_s["mean"] + 149 * slis.tpot_s["mean"])


def test_a_light_load_waits_for_its_own_prompt_alone(servers):
    slis = open_loop(servers[1], 1e-3, Lengths.fixed(1000, 100))
    alone = static_batch(servers[1], 1, Lengths.fixed(1000, 100))
    assert slis.ttft_s["p50"] == pytest.approx(alone.ttft_s["mean"], rel=0.1)
    assert slis.tpot_s["mean"] == pytest.approx(alone.tpot_s["mean"], rel=0.05)


def test_an_answer_of_one_token_is_a_prefill_and_no_more(servers):
    lengths = Lengths.fixed(900, 1)
    slis = open_loop(servers[1], 1.0, lengths)
    assert not slis.saturated
    assert slis.e2e_s["mean"] == pytest.approx(slis.ttft_s["mean"], rel=1e-3)


@pytest.mark.slow
@given(st.floats(0.05, 0.9), st.floats(1.02, 1.5))
def test_a_higher_rate_is_never_faster(servers, share, more):
    lengths = Lengths.fixed(800, 200)
    rate = share * saturation_tok_s(servers[1], lengths) / 200 / more
    calm, busy = (open_loop(servers[1], one, lengths) for one in (rate, rate * more))
    for name in ("mean", "p50", "p99"):
        assert busy.ttft_s[name] >= calm.ttft_s[name] * 0.999
    assert busy.tpot_s["mean"] > calm.tpot_s["mean"]


@rows("pairs", [[], [(0, 5)], [(5, 0)], [(-1, 5)], [(LONGEST + 1, 5)]])
def test_lengths_that_are_none_are_refused(pairs):
    with pytest.raises(WorkloadError, match="requests of 1 to"):
        Lengths.of(pairs)


@rows("rate", [0, -1, float("nan")])
def test_a_rate_that_is_none_is_refused(servers, rate):
    with pytest.raises(WorkloadError, match="is no load"):
        open_loop(servers[1], rate, Lengths.fixed(10, 10))


def test_a_reading_of_nothing_is_zero():
    assert reading_of([]) == {"mean": 0.0, "p50": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0}
