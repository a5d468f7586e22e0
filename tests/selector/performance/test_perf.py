"""The laws that the step model must obey; tests/benchmarks/test_predict.py holds it against published measurements."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import TopologyError
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Precision, Topology, uniform
from selector.models import ALIKE, Profile, ProfileError, Workload, shape
from selector.performance.judge import LoadFigures, closed
from selector.performance.load import static_batch
from selector.performance.perf import ELEMENTWISE_VALUES, MLP_VALUES, LayerCost, Step
from selector.prediction import server_of
from tests.rows import rows
from tests.selector.performance.steps import stage_times_s

SEVEN = ModelSpec("llama-2-7b", "LlamaForCausalLM", 32, 4096, 11_008, 32, 32, 128, 32_000, 4096)
SEVENTY = ModelSpec("llama-2-70b", "LlamaForCausalLM", 80, 8192, 28_672, 64, 8, 128, 32_000, 4096)


def box(kind: str) -> Cluster:
    """Eight devices in one machine, with memory enough for anything."""
    return Cluster((Node("n", tuple(Gpu(i, kind, 10**12) for i in range(8)), Link("pcie", 25e9, 1e-5)),))


def topology_of(kind: str, model: ModelSpec, tp: int = 1, pp: int = 1, precision: str = "") -> Topology:
    usual = {"A100": "fp16", "L40S": "fp8", "CPU": "fp32"}
    return uniform(box(kind), kind, tp, pp, model.num_layers, precision or usual[kind])


def served(topology: Topology, clients: int, inputs: int, outputs: int, known: dict[str, Profile]) -> LoadFigures:
    """What a closed loop of so many clients gets."""
    server = server_of(topology, SEVENTY, box(topology.stages[0].kind), known)
    return closed(server, Workload(1.0, inputs, outputs, 1, ALIKE, ALIKE), clients, 8192)


def prefill_ms(topology: Topology, known: dict[str, Profile], tokens: int = 2048) -> float:
    kind = topology.stages[0].kind
    return sum(stage_times_s(topology, Step.of(1, tokens, 0), SEVENTY, box(kind), known)) * 1e3


def decode_ms(topology: Topology, known: dict[str, Profile]) -> float:
    kind = topology.stages[0].kind
    return sum(stage_times_s(topology, Step.of(1, 1, 192), SEVENTY, box(kind), known)) * 1e3


OFF = pytest.mark.xfail(
    strict=True, reason="beyond the error band; others measured 377 and 403 ms at TP 4, 274 ms at TP 8"
)


@pytest.mark.parametrize(
    ("kind", "tp", "prefill", "decode"),
    [
        pytest.param("A100", 4, 326, None, marks=OFF),
        pytest.param("A100", 8, 204, None, marks=OFF),
        ("A100", 4, None, 29.0),
        ("A100", 8, None, 20.5),
        ("L40S", 4, 700, None),
        ("L40S", 8, 700, None),
        ("L40S", 4, None, 33.0),
        ("L40S", 8, None, 22.0),
    ],
)
def test_published_shares_of_peak_at_four_and_eight_devices(kind, tp, prefill, decode, known):
    topology, band = topology_of(kind, SEVENTY, tp), known[kind].error_band
    if prefill is not None:
        assert prefill_ms(topology, known) == pytest.approx(prefill, rel=band)
    if decode is not None:
        assert decode_ms(topology, known) == pytest.approx(decode, rel=band)


def test_over_pcie_more_tensor_parallelism_speeds_up_decode_but_not_prefill(known):
    two, four, eight = (topology_of("L40S", SEVENTY, tp) for tp in (2, 4, 8))
    assert prefill_ms(eight, known) == pytest.approx(prefill_ms(two, known), rel=0.1)
    assert decode_ms(eight, known) < decode_ms(four, known) < decode_ms(two, known)


def test_over_nvlink_more_tensor_parallelism_speeds_up_both(known):
    two, eight = topology_of("A100", SEVENTY, 2), topology_of("A100", SEVENTY, 8)
    assert prefill_ms(eight, known) < 0.5 * prefill_ms(two, known)
    assert decode_ms(eight, known) < 0.5 * decode_ms(two, known)


@rows("precision", ["int8", "int4", "fp8"])
def test_weight_only_formats_speed_up_decode_but_not_large_prefills(precision, known):
    full = topology_of("A100", SEVENTY, 4, precision="bf16")
    quantised = topology_of("A100", SEVENTY, 4, precision=precision)
    assert decode_ms(quantised, known) < 0.85 * decode_ms(full, known)
    assert prefill_ms(quantised, known, 8192) == pytest.approx(prefill_ms(full, known, 8192), rel=0.05)


def test_fp8_speeds_up_prefill_where_the_gpu_computes_in_it(known):
    full, eight = (topology_of("L40S", SEVENTY, 1, precision=name) for name in ("bf16", "fp8"))
    assert prefill_ms(eight, known) < 0.7 * prefill_ms(full, known)


def test_pipeline_stages_cost_latency_and_give_throughput(known):
    one, four = (served(topology_of("L40S", SEVENTY, 1, pp), 64, 512, 128, known) for pp in (1, 4))
    assert four.sustained_rps > 1.3 * one.sustained_rps
    one, four = (served(topology_of("L40S", SEVENTY, 1, pp), 1, 512, 128, known) for pp in (1, 4))
    assert four.ttft_s["mean"] > one.ttft_s["mean"]


def test_the_slowest_stage_sets_the_pace_of_an_unbalanced_pipeline(known):
    even = topology_of("A100", SEVENTY, 1, 2)
    first, second = even.stages
    uneven = Topology(
        (
            replace(first, layers=replace(first.layers, end=70)),
            replace(second, layers=replace(second.layers, start=70)),
        )
    )
    balanced, lopsided = (served(one, 32, 128, 128, known) for one in (even, uneven))
    assert lopsided.sustained_rps < 0.7 * balanced.sustained_rps


def test_stages_on_two_nodes_hop_over_the_network(known):
    nodes = tuple(Node(name, (Gpu(i, "A100", 10**12),), Link("nvlink", 300e9, 5e-6)) for i, name in enumerate("ab"))
    topology, step = topology_of("A100", SEVENTY, 1, 2), Step.of(1, 2048, 0)
    here = stage_times_s(topology, step, SEVENTY, box("A100"), known)
    there = stage_times_s(topology, step, SEVENTY, Cluster(nodes, Link("network", 1e9, 25e-6)), known)
    hidden_bytes = 2048 * 8192 * 2
    assert there[0] - here[0] == pytest.approx(
        25e-6 + hidden_bytes / 1e9 - known["A100"].p2p_latency_s - hidden_bytes / known["A100"].p2p_bytes_s
    )
    assert there[1] == here[1]
    with pytest.raises(TopologyError, match="on different nodes"):
        stage_times_s(topology, step, SEVENTY, Cluster(nodes), known)


def test_what_no_profile_speaks_of_is_refused_by_name(known):
    topology, step = topology_of("A100", SEVENTY, 4), Step.of(1, 1, 1)
    with pytest.raises(ProfileError, match="no profile for A100; there are L40S"):
        stage_times_s(topology, step, SEVENTY, box("A100"), {"L40S": known["L40S"]})
    small = replace(known["A100"], allreduce_s={2: {0: 1e-5, 10**6: 1e-3}})
    with pytest.raises(ProfileError, match="groups of 4"):
        stage_times_s(topology, step, SEVENTY, box("A100"), {"A100": small})
    bare = replace(known["A100"], weight_share={"fp16": 0.7})
    with pytest.raises(ProfileError, match="weights in int4; it has fp16"):
        stage_times_s(topology_of("A100", SEVENTY, precision="int4"), step, SEVENTY, box("A100"), {"A100": bare})


@pytest.mark.slow
@given(
    kind=st.sampled_from(["A100", "L40S"]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2]),
    tokens=st.integers(1, 8000),
    batch=st.integers(1, 256),
)
def test_more_work_never_takes_less_time(kind, tp, pp, tokens, batch, known):
    server = server_of(topology_of(kind, SEVENTY, tp, pp), SEVENTY, box(kind), known)
    base = static_batch(server, batch, tokens, 100)
    longer = static_batch(server, batch, tokens + 100, 100)
    fuller = static_batch(server, batch + 8, tokens, 100)
    assert all(more > less > 0 for more, less in zip(longer, base, strict=True))
    assert all(more >= less for more, less in zip(fuller, base, strict=True))


def test_one_token_streams_the_experts_it_needs_and_many_stream_all(known):
    mixtral = shape("mixtral-8x7b")
    topology = uniform(box("A100"), "A100", 2, 1, 32, "bf16")
    one, many = (sum(stage_times_s(topology, Step.of(batch, 1, 1), mixtral, box("A100"), known)) for batch in (1, 64))
    assert one < 0.45 * many
    dense = replace(mixtral, num_experts=1, experts_per_token=1)
    assert one > sum(stage_times_s(topology, Step.of(1, 1, 1), dense, box("A100"), known))


def test_elementwise_work_is_split_only_where_the_mlp_is(known):
    whole, eighth = (
        LayerCost.of(Precision.named("bf16", "A100"), tp, SEVENTY, known["A100"]).elementwise_s for tp in (1, 8)
    )
    assert whole / 8 < eighth < whole
    hidden = ELEMENTWISE_VALUES * SEVENTY.hidden_size
    assert eighth / whole == pytest.approx(
        (hidden + MLP_VALUES * SEVENTY.intermediate_size / 8) / (hidden + MLP_VALUES * SEVENTY.intermediate_size)
    )
