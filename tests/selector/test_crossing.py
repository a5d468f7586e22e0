"""What another host takes: from the network that the deployment names, the load, and what the target computes."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.capabilities import Capabilities
from runtime.footprint import kv_bytes_per_token
from runtime.machine import SwitchSettings
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node
from runtime.notation import parse_topology
from runtime.torch_engine.driver import departure as engine
from selector import switching as selected
from selector.models import Candidate, CpuSamples, CrossingPrediction, Profile, SearchInput, Workload
from selector.profiles import fit_cpu
from selector.switching import LAST_TOKENS, LINK_SHARE, ROUND_TRIPS, crossing, switch
from tests.selector.goals import predicted

ENGINE = Capabilities((1, 2), 4, ("fp32",), tp_per_stage=True, replicated_kv_heads=False, carries=True)
NETWORK = Link("network", 1e9, 1e-4)
LOCAL = Link("shared-memory", 5e9, 3e-5)
CLUSTER = Cluster(
    tuple(
        Node(name, (Gpu(at, "CPU", 1 << 30), Gpu(at + 1, "CPU", 1 << 30)), LOCAL) for name, at in (("a", 0), ("b", 2))
    ),
    between=NETWORK,
)
SAMPLES = CpuSamples(2e10, 1e10, 5e9, 1e-4, 2e-5, 1e9, 1e-5, 1e-4)


MODEL = ModelSpec("counting", "Qwen3ForCausalLM", 8, 128, 320, 8, 4, 32, 98, 16_384, tie_word_embeddings=True)
PROFILES: Mapping[str, Profile] = {"CPU": fit_cpu(SAMPLES)}
PROBLEM = SearchInput(CLUSTER, MODEL, Workload(0.2, 20, 900, 8), None, capabilities=ENGINE)


def on(devices: str) -> Candidate:
    topology = parse_topology(f"CPU[{devices}]", CLUSTER, 8, "fp32")
    return predicted(topology, 0.02, 0.02, throughput_tok_s=1000.0, gpu_util=0.2)


def test_it_copies_what_is_in_flight_with_half_of_the_network_less_what_is_written():
    here, there = on("2"), on("0,1")
    found = crossing(here, there, PROBLEM, PROFILES)
    token_bytes = kv_bytes_per_token(PROBLEM.model, "fp32")
    assert found.path == "copied"
    assert found.kv_bytes == 8 * 470 * token_bytes
    tokens_s = here.prediction.throughput_tok_s * here.prediction.gpu_util * 920 / 900
    assert found.sync_s == pytest.approx(found.kv_bytes / (5e8 - tokens_s * token_bytes))
    assert found.cut_s == pytest.approx(ROUND_TRIPS * 2e-4 + 8 * LAST_TOKENS * token_bytes / 1e9)
    within, over = switch(here, there, PROBLEM), switch(here, there, PROBLEM, found)
    assert over.prepare_least_s - within.prepare_least_s == pytest.approx(found.sync_s)
    assert over.prepare_most_s - within.prepare_most_s == pytest.approx(found.sync_s)
    assert over.stop_s - within.stop_s == pytest.approx(found.cut_s) == pytest.approx(over.pause_s - within.pause_s)
    assert over.between_hosts == found


def test_within_a_host_or_without_a_network_or_figures_there_is_nothing_to_say():
    assert crossing(on("0"), on("0,1"), PROBLEM, PROFILES) is None
    unknown = replace(PROBLEM, cluster=replace(CLUSTER, between=None))
    assert crossing(on("0"), on("2"), unknown, PROFILES) is None
    assert crossing(on("0"), on("2"), PROBLEM, {}) is None


def test_nodes_of_one_network_count_as_hosts_do_and_by_what_goes_over():
    nodes = replace(PROBLEM, cluster=replace(CLUSTER, network=NETWORK, between=None))
    here, there = on("2"), on("0,1")
    assert crossing(here, there, nodes, PROFILES) == crossing(here, there, PROBLEM, PROFILES)
    half = parse_topology("CPU[2]:0-4 > CPU[0]:4-8", CLUSTER, 8, "fp32")
    over = predicted(half, 0.02, 0.02)
    assert crossing(here, over, nodes, PROFILES).kv_bytes == crossing(here, there, nodes, PROFILES).kv_bytes / 2
    assert crossing(here, on("3"), nodes, PROFILES) is None, "it stays on its node"


def test_what_has_to_end_first_computes_all_of_it_anew_in_the_stop():
    gpus = (tuple(replace(gpu, memory_bytes=10_500_000) for gpu in node.gpus) for node in CLUSTER.nodes)
    nodes = (replace(node, gpus=mine) for node, mine in zip(CLUSTER.nodes, gpus, strict=True))
    light = replace(PROBLEM.workload, output_tokens=20, concurrency=1)
    small = replace(PROBLEM, cluster=replace(CLUSTER, nodes=tuple(nodes), between=None), workload=light)
    here, there = on("0"), on("0,1")
    found = crossing(here, there, small, PROFILES)
    assert (found.path, found.sync_s, found.cut_s) == ("anew", found.anew_s, 0.0)
    told, alone = (switch(here, there, small, over) for over in (found, None))
    assert told.strategy == "restart"
    assert told.stop_s - alone.stop_s == pytest.approx(found.anew_s)
    assert told.between_hosts is None, "it stays on its node"


def test_an_engine_that_carries_nothing_computes_anew():
    vllm = replace(PROBLEM, capabilities=replace(ENGINE, carries=False))
    found = crossing(on("0"), on("2"), vllm, PROFILES)
    assert (found.path, found.cut_s) == ("anew", 0.0)
    assert found.sync_s == found.anew_s == crossing(on("0"), on("2"), PROBLEM, PROFILES).anew_s > 0


@given(st.floats(1e3, 1e12), st.floats(1e3, 1e12))
def test_a_faster_network_never_takes_longer_and_one_that_is_too_slow_never_gets_there(ones, others):

    def over(bytes_s: float) -> CrossingPrediction:
        cluster = replace(CLUSTER, between=replace(NETWORK, bandwidth_bytes_s=bytes_s))
        found = crossing(on("2"), on("0,1"), replace(PROBLEM, cluster=cluster), PROFILES)
        assert found is not None
        return found

    slow, fast = (over(bytes_s) for bytes_s in sorted((ones, others)))
    assert 0 < fast.sync_s <= slow.sync_s
    assert 0 < fast.cut_s <= slow.cut_s
    assert math.isinf(over(1e3).sync_s)
    endless = switch(on("2"), on("0,1"), PROBLEM, over(1e3))
    assert endless.prepare_s == switch(on("2"), on("0,1"), PROBLEM).prepare_s, "what never ends is said, not added"


def test_it_reckons_with_what_the_engine_does():
    assert selected.LINK_SHARE == engine.LINK_SHARE
    assert SwitchSettings().lag_tokens_per_request == LAST_TOKENS
    assert LINK_SHARE <= 1
