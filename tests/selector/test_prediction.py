"""A topology as a server, what it is predicted to do, and how sure that is."""

import math
from dataclasses import replace

import pytest

from runtime.capabilities import Limits
from runtime.footprint import blocks
from runtime.models import LayerRange, Precision, Stage, Topology, uniform
from selector.models import Candidate, Profile, SearchInput, Workload
from selector.pipelines.operating import BLOCK_TOKENS
from selector.prediction import candidate, confidence, server_of


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


def test_the_batch_ends_where_the_kv_of_so_many_no_longer_fits(problem, four, known):
    found = candidate(four, problem, known)
    largest = found.prediction.batch
    held = blocks(four, problem.model, problem.cluster, BLOCK_TOKENS) // math.ceil(1000 / BLOCK_TOKENS)
    assert largest <= held < 2 * largest


def test_the_slis_of_a_prediction_belong_together(problem, four, known):
    found = of_batch(problem, four, 32, known).prediction
    assert found.gpu_util == pytest.approx(0.5 * 200 / found.throughput_tok_s)
    assert found.usd_per_hour == pytest.approx(4 * 2.2)
    for stat in ("mean", "p99"):
        assert found.e2e_s[stat] == pytest.approx(found.ttft_s[stat] + 199 * found.tpot_s[stat])
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
