"""A topology as a server, what it is predicted to do, and how sure that is."""

import math
from dataclasses import replace

import pytest

from runtime.capabilities import Batching, Capabilities, Limits
from runtime.footprint import blocks, kv_bytes_per_token
from runtime.models import LayerRange, Precision, Stage, Topology, uniform
from selector.models import ALIKE, Candidate, Profile, SearchInput, Workload
from selector.performance import judge
from selector.pipelines.operating import BLOCK_TOKENS
from selector.prediction import as_it_runs, candidate, confidence, frontier, server_of


@pytest.fixture
def problem(mixed, llama) -> SearchInput:
    return SearchInput(mixed, llama, Workload(0.5, 800, 200, 32), None)


def of_batch(problem: SearchInput, topology: Topology, batch: int, known: dict[str, Profile]) -> Candidate:
    found = candidate(topology, replace(problem, limits=Limits(max_sequences=batch)), known)
    assert found is not None
    return found


def test_a_server_has_the_kv_that_the_footprint_leaves(mixed, llama, known):
    topology = uniform(mixed, "A100", 4, 1, 80, "bf16")
    server = server_of(topology, llama, mixed, known)
    assert server.kv_tokens == blocks(topology, llama, mixed, BLOCK_TOKENS) * BLOCK_TOKENS
    assert len(server.stages) == 1


def test_a_mixed_pipeline_is_as_sure_as_its_least_sure_stage(known):
    a100 = Stage("A100", (0, 1), LayerRange(0, 40), Precision.named("bf16", "A100"))
    l40s = Stage("L40S", (4, 5), LayerRange(40, 80), Precision.named("int8", "L40S"))
    assert confidence(Topology((a100,)), known) == ("calibrated", known["A100"].error_band)
    assert confidence(Topology((a100, l40s)), known) == ("extrapolated", 2 * known["A100"].error_band)


def test_what_never_fits_is_no_candidate(problem, known):
    assert candidate(uniform(problem.cluster, "A100", 1, 1, 80, "bf16"), problem, known) is None


def test_the_batch_ends_where_the_kv_of_so_many_no_longer_fits_and_where_the_steps_are_full(problem, four, known):
    held = blocks(four, problem.model, problem.cluster, BLOCK_TOKENS) * BLOCK_TOKENS // 1000
    assert candidate(four, problem, known).prediction.batch == held
    assert of_batch(problem, four, 32, known).prediction.batch == 32
    found = candidate(four, problem, known, Batching(16, 512))
    assert (found.batching, found.prediction.batch) == (Batching(16, 512), 16)


def test_an_engine_may_keep_less_kv_than_fits_and_a_load_that_it_does_not_hold_has_no_candidate(problem, four, known):
    engine = Capabilities((4,), 1, ("bf16",), tp_per_stage=True, replicated_kv_heads=False, kv_tokens=40_000)
    assert candidate(four, replace(problem, capabilities=engine), known).prediction.batch == 40
    assert candidate(four, replace(problem, capabilities=replace(engine, kv_tokens=31_000)), known) is None
    kept = replace(engine, kv_tokens=None, kv_bytes=5 * 10**9)
    assert server_of(four, problem.model, problem.cluster, known, engine=kept).kv_tokens == pytest.approx(
        5e9 / (kv_bytes_per_token(problem.model, "bf16") / 4), abs=BLOCK_TOKENS
    )


def test_what_runs_is_judged_with_its_own_steps(problem, four, known):
    running = replace(problem, now=four, running=Batching(16, 512))
    assert as_it_runs(running, known) == candidate(four, problem, known, Batching(16, 512))
    assert candidate(four, running, known).batching == Batching(16, 512)
    assert as_it_runs(problem, known) is None
    assert as_it_runs(replace(running, now=four), {}) is None, "nothing is known of it"


def test_a_question_has_one_answer_and_a_spread_that_is_said_changes_it(problem, four, known):
    once = candidate(four, problem, known)
    judge._judged.cache_clear()
    judge._drawn.cache_clear()
    assert candidate(four, problem, known) == once
    alike = replace(problem, workload=replace(problem.workload, inputs=ALIKE, outputs=ALIKE))
    uneven, even = (candidate(four, one, known).prediction.ttft_s for one in (problem, alike))
    assert uneven["p99"] > 1.3 * even["p99"]


def test_the_slis_of_a_prediction_belong_together(problem, four, known):
    alike = replace(problem, workload=replace(problem.workload, inputs=ALIKE, outputs=ALIKE))
    found = of_batch(alike, four, 32, known).prediction
    assert found.gpu_util == pytest.approx(0.5 * 200 / found.throughput_tok_s)
    assert found.usd_per_hour == pytest.approx(4 * 2.2)
    assert found.e2e_s["mean"] == pytest.approx(found.ttft_s["mean"] + 199 * found.tpot_s["mean"])
    assert found.ttft_s["p50"] <= found.ttft_s["p90"] < found.ttft_s["p99"] < found.ttft_s["p99.9"]


def test_latencies_have_no_end_where_the_batch_is_too_small_for_the_rate(problem, four, known):
    assert math.isinf(of_batch(problem, four, 1, known).prediction.ttft_s["mean"])
    enough = of_batch(problem, four, 8, known).prediction
    assert math.isfinite(enough.tpot_s["mean"])
    busier = replace(problem, workload=replace(problem.workload, rate_rps=50.0))
    flooded = candidate(four, busier, known)
    assert math.isinf(flooded.prediction.tpot_s["mean"])


def test_a_layer_in_another_format_counts_as_that(problem, four, known):
    (stage,) = four.stages
    quantised = replace(stage, overrides=((LayerRange(0, 40), Precision.named("int4", "A100")),))
    whole = of_batch(problem, four, 8, known).prediction
    half = of_batch(problem, Topology((quantised,)), 8, known).prediction
    fully = of_batch(problem, uniform(problem.cluster, "A100", 4, 1, 80, "int4"), 8, known).prediction
    assert half.throughput_tok_s == pytest.approx(
        2 / (1 / whole.throughput_tok_s + 1 / fully.throughput_tok_s), rel=0.01
    )


def test_a_frontier_rises_from_next_to_nothing_up_to_what_is_sustained(problem, four, known):
    found = frontier("four", four, problem, known)
    assert list(found.rates_rps) == sorted(found.rates_rps)
    assert 0 < found.rates_rps[0] < 0.1 * found.saturation_rps < 0.95 * found.saturation_rps < found.rates_rps[-1]
    assert found.rates_rps[-1] < found.saturation_rps
    for latencies in (found.ttft_s, found.tpot_s):
        assert latencies[0] < latencies[len(latencies) // 2] < latencies[-1] < math.inf
    small = uniform(problem.cluster, "A100", 1, 1, 80, "bf16")
    assert frontier("small", small, problem, known).rates_rps == ()
