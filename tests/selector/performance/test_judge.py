"""What the one estimator draws, and the laws that its readings obey."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.models import Cluster, Gpu, Link, Node, uniform
from selector.models import ALIKE, Spread, Workload, shape
from selector.performance import judge as judge_module
from selector.performance.judge import arrivals, batch_of, closed, judged, reading_of, sustained_rps
from selector.performance.load import SERVING_SHARE, static_batch
from selector.performance.perf import ServerModel, stage_costs
from selector.performance.simulator import Arrivals, Served, simulate
from selector.performance.traces import read_trace, workload_of
from tests.rows import rows
from tests.tries import tries

LONG = 2**20
CHAT = Workload(1.0, 800, 250, 1)
EVEN = Workload(1.0, 1000, 200, 1, ALIKE, ALIKE)
DATA = Path(__file__).parents[2] / "data" / "lengths"


@pytest.fixture(scope="module")
def servers(known) -> dict[str, ServerModel]:
    """What is served by what."""

    def of(kind: str, model: str, tp: int, pp: int, precision: str, kv_tokens: int) -> ServerModel:
        gpus = tuple(Gpu(i, kind, 10**12) for i in range(tp * pp))
        cluster = Cluster((Node("n", gpus, Link("link", 25e9, 1e-5)),))
        topology = uniform(cluster, kind, tp, pp, shape(model).num_layers, precision)
        costs = stage_costs(topology, shape(model), cluster, known)
        return ServerModel(costs, 512, kv_tokens, 2048, SERVING_SHARE)

    return {
        "8B": of("A100", "llama-3-8b", 1, 1, "bf16", 500_000),
        "8B in four": of("A100", "llama-3-8b", 1, 4, "bf16", 2_000_000),
        "70B": of("A100", "llama-3-70b", 4, 1, "bf16", 546_000),
        "70B in two": of("L40S", "llama-3-70b", 2, 2, "fp8", 400_000),
        "mixtral": of("A100", "mixtral-8x7b", 2, 1, "bf16", 300_000),
    }


SERVERS = ("8B", "8B in four", "70B", "70B in two", "mixtral")


@rows("p95", [1.3, 2.0, 2.73, 3.6])
@rows("mean", [40, 800])
def test_lengths_have_the_mean_and_the_p95_that_were_said(p95, mean):
    drawn = arrivals(Workload(1.0, mean, mean // 2, 1, Spread(p95), Spread(p95)), 3000, LONG)
    for tokens, said in ((drawn.inputs, mean), (drawn.outputs, mean // 2)):
        assert tokens.mean() == pytest.approx(said, rel=0.02)
        assert np.quantile(tokens, 0.95) == pytest.approx(p95 * said, rel=0.03)


def test_where_all_are_alike_they_are():
    drawn = arrivals(EVEN, 500, LONG)
    assert (set(drawn.inputs.tolist()), set(drawn.outputs.tolist())) == ({1000}, {200})


def test_a_histogram_keeps_its_shares_and_its_mean():
    said = Spread(4.0, ((4.0, 0.1), (0.5, 0.7), (1.25, 0.2)))
    drawn = arrivals(Workload(1.0, 800, 10, 1, said, ALIKE), 2000, LONG)
    lengths, counts = np.unique(drawn.inputs, return_counts=True)
    assert dict(zip(lengths.tolist(), (counts / 2000).tolist(), strict=True)) == pytest.approx(
        {400: 0.7, 1000: 0.2, 3200: 0.1}
    )


@rows("most", [4096, 900, 300])
def test_none_is_longer_than_the_context_and_none_is_empty(most):
    drawn = arrivals(replace(CHAT, prefix_hit=1.0), 3000, most)
    assert (drawn.inputs + drawn.outputs).max() <= most
    assert min(drawn.inputs.min(), drawn.outputs.min()) >= 1
    assert (drawn.cached < drawn.inputs).all(), "the last token of a prompt is computed"
    if most == 4096:
        assert drawn.inputs.mean() == pytest.approx(800, rel=0.02), "what is cut off others have"


def test_arrivals_are_the_same_each_time_and_at_each_rate_and_as_bursty_as_said():
    once, faster = (arrivals(replace(CHAT, rate_rps=rate), 3000, LONG) for rate in (1.0, 4.0))
    judge_module._drawn.cache_clear()
    again = arrivals(replace(CHAT, rate_rps=1.0), 3000, LONG)
    assert (once.at_s == again.at_s).all()
    assert (once.inputs == again.inputs).all()
    assert (once.outputs == faster.outputs).all()
    assert once.at_s == pytest.approx(4 * faster.at_s)
    assert once.at_s[-1] == pytest.approx(3000)
    for burstiness in (0.3, 1.0, 3.0):
        gaps = np.diff(arrivals(replace(CHAT, burstiness=burstiness), 3000, LONG).at_s)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.15)


LOADS = {
    "chat": CHAT,
    "alike": EVEN,
    "code": Workload(1.0, 2500, 80, 1),
    "long answers": Workload(1.0, 200, 1000, 1),
    "uneven": Workload(1.0, 800, 250, 1, Spread(3.2), Spread(3.2)),
}


@pytest.mark.slow
@rows("name", SERVERS)
@rows("load", LOADS)
def test_what_is_sustained_is_what_a_run_ten_times_as_long_gets(servers, name, load):
    server, workload = servers[name], LOADS[load]
    number = 10 * int(min(6000, max(500, 24 * batch_of(server, workload))))
    drawn = replace(arrivals(workload, number, 8192), at_s=np.zeros(number))
    ends_s = np.sort(simulate(server, drawn).last_s)
    first, last = len(ends_s) // 10, len(ends_s) * 9 // 10
    assert sustained_rps(server, workload, 8192) == pytest.approx(
        (last - first) / (ends_s[last] - ends_s[first]), rel=0.04
    )


@pytest.mark.slow
@tries(20)
@given(
    st.sampled_from(SERVERS),
    st.sampled_from(sorted(LOADS)),
    st.floats(0.2, 0.95),
    st.floats(1.5, 3.0),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_a_higher_rate_is_never_faster_and_none_beyond_what_is_sustained_has_an_end(
    servers, name, load, share, more, burstiness
):
    server, workload = servers[name], replace(LOADS[load], burstiness=burstiness)
    most = sustained_rps(server, workload, 8192)
    calm, busy, beyond = (
        judged(server, replace(workload, rate_rps=most * part), 8192) for part in (share / more, share, 1.0)
    )
    for reading in ("ttft_s", "tpot_s", "e2e_s"):
        slow, quick = getattr(busy, reading), getattr(calm, reading)
        assert slow["mean"] >= 0.85 * quick["mean"], "of a few hundred to a few thousand requests, not the same"
        assert slow["p99"] >= 0.5 * quick["p99"], "two or three of 256: of 4,500 draws one had 0.6"
        assert quick["p50"] <= quick["p90"] <= quick["p95"] <= quick["p99"] <= quick["p99.9"]
        assert set(getattr(beyond, reading).values()) == {math.inf}
    assert beyond.waits_grow
    assert not busy.waits_grow
    assert calm.sustained_rps == busy.sustained_rps == beyond.sustained_rps == most


@pytest.mark.slow
@rows("name", SERVERS)
def test_bursts_make_first_tokens_late_and_prefix_hits_make_them_early(servers, name):
    server = servers[name]
    workload = replace(CHAT, rate_rps=0.6 * sustained_rps(server, CHAT, 8192))
    even, usual, bursty = (
        judged(server, replace(workload, burstiness=one), 8192).ttft_s["p99"] for one in (0.3, 1.0, 3.0)
    )
    assert max(even, usual) < bursty
    hit = judged(server, replace(workload, prefix_hit=0.5), 8192)
    assert hit.ttft_s["mean"] < 0.8 * judged(server, workload, 8192).ttft_s["mean"]
    assert hit.sustained_rps > sustained_rps(server, CHAT, 8192)


def test_uneven_lengths_make_the_slowest_slower(servers):
    rate = 0.8 * sustained_rps(servers["70B"], CHAT, 8192)
    uneven = judged(servers["70B"], replace(CHAT, rate_rps=rate), 8192)
    alike = judged(servers["70B"], replace(CHAT, rate_rps=rate, inputs=ALIKE, outputs=ALIKE), 8192)
    assert uneven.ttft_s["p99"] > 1.5 * alike.ttft_s["p99"]
    assert uneven.tpot_s["p99"] > 1.2 * alike.tpot_s["p99"]


def test_what_never_fits_is_left_out_of_the_readings_and_where_nothing_fits_nothing_is_sustained(servers):
    small = replace(servers["8B"], kv_tokens=2000)
    found = judged(small, replace(CHAT, rate_rps=0.1), 8192)
    drawn = arrivals(CHAT, 3000, 8192)
    never = (drawn.inputs + drawn.outputs > 2000).mean()
    assert 0.05 < never < 0.3
    assert found.requests < 0.9 * 3000 * (1 - 0.5 * never)
    assert all(map(math.isfinite, found.ttft_s.values()))
    nothing = judged(replace(small, kv_tokens=500), CHAT, 8192)
    assert (nothing.sustained_rps, nothing.waits_grow, nothing.batch) == (0.0, True, 0)


@rows("name", SERVERS)
def test_a_light_load_and_one_client_meet_nobody(servers, name):
    ttft_s, tpot_s, _ = static_batch(servers[name], 1, 1000, 200)
    for found in (judged(servers[name], replace(EVEN, rate_rps=1e-4), 8192), closed(servers[name], EVEN, 1, 8192)):
        assert found.ttft_s["p99"] == pytest.approx(ttft_s, rel=0.02)
        assert found.tpot_s["mean"] == pytest.approx(tpot_s, rel=0.02)


@rows("clients", [1, 40, 400])
def test_littles_law_holds_in_a_closed_loop(servers, clients):
    found = closed(servers["8B"], EVEN, clients, 8192)
    assert found.e2e_s["mean"] * found.sustained_rps == pytest.approx(clients, rel=0.05)
    assert found.e2e_s["mean"] == pytest.approx(found.ttft_s["mean"] + 199 * found.tpot_s["mean"])


def test_more_clients_than_places_wait_their_turn_and_get_what_is_sustained(servers):
    few = replace(servers["8B"], slots=8)
    at, beyond = closed(few, EVEN, 8, 8192), closed(few, EVEN, 80, 8192)
    assert beyond.sustained_rps == pytest.approx(at.sustained_rps, rel=0.05)
    assert beyond.sustained_rps == pytest.approx(sustained_rps(few, EVEN, 8192), rel=0.05)
    assert beyond.ttft_s["mean"] > 8 * at.e2e_s["mean"]


@rows("workload", [replace(EVEN, output_tokens=1), replace(EVEN, output_tokens=0)])
def test_an_answer_of_one_token_is_a_prefill_and_no_more(servers, workload):
    found = judged(servers["8B"], workload, 8192)
    assert found.e2e_s == found.ttft_s
    assert found.tpot_s["mean"] == 0


def replayed(server: ServerModel, pairs: list[tuple[int, int]], rate_rps: float) -> Served:
    """Every pair of lengths often, in random order."""
    draw = np.random.default_rng(7)
    lengths = np.concatenate([draw.permutation(np.array(pairs)) for _ in range(max(2, 6000 // len(pairs)))])
    at_s = np.cumsum(draw.exponential(1 / rate_rps, len(lengths)))
    requests = Arrivals(
        at_s, lengths[:, 0].astype(np.int64), lengths[:, 1].astype(np.int64), np.zeros(len(lengths), np.int64)
    )
    return simulate(server, requests)


@pytest.mark.slow
@rows("name", ["8B", "70B in two"])
@rows("trace", ["azure_conv", "azure_code"])
def test_the_load_of_a_trace_is_judged_as_the_trace_is_served(servers, name, trace):
    lines = (DATA / f"{trace}.csv").read_text().splitlines()[1:]
    pairs = [tuple(map(int, line.split(","))) for line in lines]
    text = "\n".join(f"{number},{inputs},{outputs}" for number, (inputs, outputs) in enumerate(pairs))
    workload = workload_of(read_trace(f"arrival_s,input_tokens,output_tokens\n{text}\n", "t"), "t")
    rate = 0.6 * sustained_rps(servers[name], replace(workload, burstiness=1.0), LONG)
    found = judged(servers[name], replace(workload, rate_rps=rate, burstiness=1.0), LONG)
    served = replayed(servers[name], pairs, rate)
    ttft_s, tpot_s = reading_of(served.ttft_s), reading_of(served.tpot_s[served.outputs > 1])
    assert found.ttft_s["mean"] == pytest.approx(ttft_s["mean"], rel=0.15)
    assert found.ttft_s["p99"] == pytest.approx(ttft_s["p99"], rel=0.25)
    assert found.tpot_s["mean"] == pytest.approx(tpot_s["mean"], rel=0.15)


def test_nothing_jumps_where_a_prompt_needs_a_second_chunk(servers):
    found = [
        closed(servers["8B"], replace(EVEN, input_tokens=inputs, output_tokens=40), 120, 8192)
        for inputs in range(1700, 2400, 100)
    ]
    for shorter, longer in pairwise(found):
        assert longer.tpot_s["mean"] == pytest.approx(shorter.tpot_s["mean"], rel=0.1)
        assert longer.sustained_rps == pytest.approx(shorter.sustained_rps, rel=0.1)


def test_a_reading_of_nothing_is_zero():
    assert set(reading_of([]).values()) == {0.0}


@rows(
    ("answer_tokens", "most_rps"),
    [(2000, 40.0), (8000, 6.0)],
)  # fmt: skip
def test_long_answers_of_a_pipeline_are_judged_from_hundreds_of_requests(servers, answer_tokens, most_rps):
    server = servers["8B in four"]
    found = judged(server, Workload(0.02, 1000, answer_tokens, 1), 131_072)
    assert found.requests > 200
    assert 0.05 < found.ttft_s["mean"] < 0.2
    assert found.sustained_rps < most_rps


def test_what_is_cut_short_promises_nothing(servers, monkeypatch):
    server = servers["8B in four"]
    whole = sustained_rps(server, replace(CHAT, output_tokens=1500), LONG)
    monkeypatch.setattr("selector.performance.judge.MOST_STEPS", 5000)
    judge_module._judged.cache_clear()
    judge_module._sustained_rps.cache_clear()
    found = judged(server, replace(CHAT, rate_rps=0.01, output_tokens=1500), LONG)
    assert 0 < found.sustained_rps < whole
    assert 0 < found.ttft_s["mean"] < math.inf
    judge_module._judged.cache_clear()
    judge_module._sustained_rps.cache_clear()
