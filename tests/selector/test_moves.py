"""What a switch has to move."""

from dataclasses import replace

import pytest

from runtime.footprint import kv_bytes_per_token
from runtime.models import Cluster, Topology
from runtime.notation import parse_topology
from selector.models import Candidate, SearchInput, SwitchPrediction, Workload
from selector.switching import BUILD_S, LOAD_BYTES_S, bytes_to_move, switch
from tests.rows import rows
from tests.selector.goals import predicted


@pytest.fixture
def topology(laptop) -> dict[str, Topology]:
    texts = {
        "one": "CPU[0]",
        "elsewhere": "CPU[3]",
        "tp2": "CPU[0,1]",
        "pp2": "CPU[0]:0-4 > CPU[1]:4-8",
        "bf16": "CPU[0]@bf16",
    }
    return {name: parse_topology(text, laptop, 8, "fp32") for name, text in texts.items()}


@pytest.fixture
def problem(topology, counting, laptop) -> SearchInput:
    return SearchInput(laptop, counting, Workload(1.0, 100, 20, 2), topology["one"])


@rows(
    ("now", "target", "weights", "kv"),
    [
        ("one", "one", 0.0, 0.0),
        ("one", "tp2", 0.5, 0.5),
        ("one", "pp2", 0.5, 0.5),
        ("tp2", "one", 0.5, 0.5),
        ("tp2", "pp2", 0.5, 0.5),
        ("one", "elsewhere", 1.0, 1.0),
        ("one", "bf16", 0.5, 0.0),
    ],
)
def test_only_what_a_device_lacks_is_moved(topology, counting, now, target, weights, kv):
    moved = bytes_to_move(topology[now], topology[target], counting)
    assert moved["weights"] == weights * 4 * 8 * counting.layer_parameters
    assert moved["kv_per_token"] == kv * kv_bytes_per_token(counting, "fp32")


def test_a_first_start_loads_everything_and_has_no_cache(topology, counting):
    moved = bytes_to_move(None, topology["tp2"], counting)
    assert moved == {"weights": 4 * 8 * counting.layer_parameters, "kv_per_token": 0}


def candidate(topology: Topology, tpot_s: float = 0.05) -> Candidate:
    return predicted(topology, tpot_s, tpot_s)


def test_a_switch_takes_what_the_slowest_device_has_to_load(topology, counting, problem):
    found = switch(candidate(topology["one"], 0.02), candidate(topology["tp2"]), problem)
    half = counting.num_layers * counting.layer_parameters * 4 / 2
    assert found.prepare_s == pytest.approx(BUILD_S + half / LOAD_BYTES_S["shared-memory"])
    assert found.stop_s == pytest.approx(0.07)
    assert found.pause_s == pytest.approx(0.02), "the rest is a gap that streams have anyway"
    assert found.payback_s is None, "it occupies more, not less"
    assert found.strategy == "shadow"


def test_where_only_one_copy_fits_the_loading_is_in_the_stop(topology, counting, problem):
    (node,) = problem.cluster.nodes
    gpus = tuple(replace(gpu, memory_bytes=8_500_000) for gpu in node.gpus)
    small = replace(problem, cluster=Cluster((replace(node, gpus=gpus),)))
    found = switch(candidate(topology["one"], 0.02), candidate(topology["tp2"]), small)
    half = counting.num_layers * counting.layer_parameters * 4 / 2
    ends = counting.embedding_parameters * 4
    assert found.strategy == "stream"
    assert found.prepare_s == BUILD_S
    assert found.stop_s - found.pause_s == pytest.approx(0.05)
    assert found.stop_s == pytest.approx(0.07 + (half + 1.5 * ends) / LOAD_BYTES_S["shared-memory"], rel=1e-6)


def test_a_switch_has_paid_when_what_it_saves_is_what_it_occupied_twice(topology, problem):
    elsewhere = switch(candidate(topology["tp2"]), candidate(topology["elsewhere"]), problem)
    assert elsewhere.payback_s == pytest.approx(elsewhere.prepare_s), "one device more meanwhile, one less after"
    in_place = switch(candidate(topology["tp2"]), candidate(topology["one"]), problem)
    assert in_place.payback_s == 0.0


def test_staying_takes_nothing(topology, problem):
    same = candidate(topology["one"])
    assert switch(same, same, problem) == SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)
