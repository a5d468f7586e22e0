"""A topology as a server, and how sure its prediction is."""

import math

import pytest

from runtime.footprint import blocks
from runtime.models import LayerRange, Precision, Stage, Topology, uniform
from selector.models import Workload
from selector.prediction import confidence, predict, server_of
from selector.space import BLOCK_TOKENS


def test_a_server_has_the_kv_that_the_footprint_leaves(mixed, llama, known):
    topology = uniform(mixed, "A100", 4, 1, 80, "bf16")
    server = server_of(topology, llama, mixed, known)
    assert server.kv_tokens == blocks(topology, llama, mixed, BLOCK_TOKENS) * BLOCK_TOKENS
    assert len(server.stages) == 1


def test_a_mixed_pipeline_is_as_sure_as_its_least_sure_stage(mixed, known):
    a100 = Stage("A100", (0, 1), LayerRange(0, 40), Precision.named("bf16", "A100"))
    l40s = Stage("L40S", (4, 5), LayerRange(40, 80), Precision.named("int8", "L40S"))
    assert confidence(Topology((a100,)), known) == ("calibrated", known["A100"].error_band)
    assert confidence(Topology((a100, l40s)), known) == ("extrapolated", 2 * known["A100"].error_band)


def test_what_never_fits_has_no_latency(mixed, llama, known):
    topology = uniform(mixed, "A100", 1, 1, 80, "bf16")
    prediction = predict(topology, Workload(1, 1000, 100, 4), llama, mixed, known)
    assert math.isinf(prediction.ttft_s)
    assert math.isinf(prediction.tpot_s)
    assert prediction.throughput_tok_s == 0


def test_utilisation_is_the_rate_over_what_can_be_served(mixed, llama, known):
    topology = uniform(mixed, "A100", 4, 1, 80, "bf16")
    prediction = predict(topology, Workload(0.5, 800, 200, 32), llama, mixed, known)
    assert prediction.gpu_util == pytest.approx(0.5 * 200 / prediction.throughput_tok_s)
    assert prediction.usd_per_hour == pytest.approx(4 * 2.2)
