"""What a switch has to move, how it goes, and what that takes."""

import math
from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from runtime.capabilities import BUILT_IN_START, Batching, Capabilities
from runtime.errors import SwitchError
from runtime.footprint import kv_bytes_per_token, value_bytes, weight_bytes
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from runtime.vllm_engine import launch
from runtime.vllm_engine.models import VllmSettings
from selector.models import Candidate, SearchInput, SwitchPrediction, Workload
from selector.switching import LOAD_BYTES_S, bytes_to_move, switch, told, way
from tests.rows import rows
from tests.selector.goals import predicted

BUILT_IN = Capabilities((1, 2), 4, ("fp32",), tp_per_stage=True, replicated_kv_heads=False, streams=True)


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


def test_a_switch_reads_what_the_host_lacks_and_takes_it_to_each_device(topology, counting, problem):
    found = switch(candidate(topology["one"], 0.02), candidate(topology["tp2"]), problem)
    link_s = counting.num_layers * counting.layer_parameters * 4 / 2 / LOAD_BYTES_S["shared-memory"]
    least, most = BUILT_IN_START
    assert found.prepare_least_s == pytest.approx(least + link_s), (
        "the host has every layer: one of its devices runs it"
    )
    assert found.prepare_most_s == pytest.approx(most + link_s)
    assert found.prepare_least_s < found.prepare_s < found.prepare_most_s
    assert found.unmeasured == ()
    assert found.stop_s == pytest.approx(0.07)
    assert found.pause_s == pytest.approx(0.02), "the rest is a gap that streams have anyway"
    assert found.payback_s is None, "it occupies more, not less"
    assert found.strategy == "shadow"


def small(problem: SearchInput, engine: Capabilities | None) -> SearchInput:
    """Where no device holds two copies of the weights."""
    (node,) = problem.cluster.nodes
    gpus = tuple(replace(gpu, memory_bytes=8_500_000) for gpu in node.gpus)
    return replace(problem, cluster=Cluster((replace(node, gpus=gpus),)), capabilities=engine)


def test_where_only_one_copy_fits_the_loading_is_in_the_stop(topology, counting, problem):
    found = switch(candidate(topology["one"], 0.02), candidate(topology["tp2"]), small(problem, BUILT_IN))
    half = counting.num_layers * counting.layer_parameters * 4 / 2
    ends = counting.embedding_parameters * 4
    assert found.strategy == "stream"
    assert (found.prepare_least_s, found.prepare_most_s) == BUILT_IN_START
    assert found.stop_s - found.pause_s == pytest.approx(0.05)
    assert found.stop_s == pytest.approx(0.07 + (half + 1.5 * ends) / LOAD_BYTES_S["shared-memory"], rel=1e-6)


def test_an_engine_that_streams_no_layers_has_to_end_first_and_the_stop_says_so(topology, problem):
    here = small(problem, replace(BUILT_IN, streams=False))
    found = switch(candidate(topology["one"], 0.02), candidate(topology["tp2"]), here)
    least, most = BUILT_IN_START
    assert (found.strategy, found.prepare_s, found.payback_s) == ("restart", 0.0, None)
    assert least < found.stop_s < most < found.stop_most_s
    assert f"requests stand still for about {found.stop_s:.2g} s (6.1 s at most)" in " ".join(told(found))
    assert "the running engine has to end first" in " ".join(told(found))
    overloaded = switch(candidate(topology["one"], math.inf), candidate(topology["tp2"], math.inf), here)
    assert least < overloaded.stop_s < most <= overloaded.stop_most_s < math.inf


SWAPS = replace(BUILT_IN, precisions=("fp32", "int8", "int4"), base="fp32")


@rows(
    ("target", "swaps"),
    [("CPU[0]:0-8@fp32,2-6=int8", True), ("CPU[1]:0-8@fp32,2-6=int8", False), ("CPU[0]@int8", False)],
)
def test_a_change_of_weight_formats_alone_starts_no_engine_and_moves_no_kv(
    topology, counting, problem, laptop, target, swaps
):
    """``@int8`` alone has KV in bf16: that is another engine's."""
    new = parse_topology(target, laptop, 8, "fp32")
    found = switch(candidate(topology["one"], 0.02), candidate(new), replace(problem, capabilities=SWAPS))
    assert (found.prepare_most_s < BUILT_IN_START[0]) is swaps
    assert (found.strategy, found.pause_s) == ("shadow", pytest.approx(0.0 if swaps else 0.02))
    assert found.swap == ("weights of layers 2 to 5 become int8" if swaps else "")
    if swaps:
        link_s = 4 * counting.layer_parameters * value_bytes("int8", counting) / LOAD_BYTES_S["shared-memory"]
        assert link_s <= found.prepare_s < 2 * link_s
        assert bytes_to_move(topology["one"], new, counting, SWAPS)["kv_per_token"] == 0
        elsewhere = switch(
            candidate(topology["one"]), candidate(new), replace(problem, capabilities=replace(SWAPS, base=None))
        )
        assert elsewhere.prepare_least_s > BUILT_IN_START[0], "an engine that swaps no layers starts another"
        assert elsewhere.swap == ""


def test_a_swap_needs_no_room_for_all_layers_twice(topology, problem, laptop):
    new = parse_topology("CPU[0]:0-8@fp32,0-8=int8", laptop, 8, "fp32")
    assert way(new, small(problem, SWAPS)) == "shadow"
    assert way(new, small(problem, replace(SWAPS, base=None))) != "shadow"


@rows(
    ("target", "engine", "expected"),
    [
        ("one", None, "shadow"),
        ("elsewhere", None, None),
        ("tp2", None, "restart"),
        ("tp2", Capabilities((1, 2), 4, ("fp32",), tp_per_stage=True, replicated_kv_heads=False), "restart"),
        ("tp2", "streams", "stream"),
        ("elsewhere", "streams", None),
    ],
)
def test_the_way_is_beside_then_in_place_then_anew_then_none(topology, problem, target, engine, expected):
    here = small(problem, BUILT_IN if engine == "streams" else engine)
    assert way(topology[target], here) == expected


def test_where_an_engine_stands_by_there_is_nothing_to_start_or_load(topology, problem):
    here = small(problem, replace(BUILT_IN, standby=frozenset({topology["tp2"]})))
    assert way(topology["tp2"], here) == "shadow"
    assert switch(candidate(topology["one"]), candidate(topology["tp2"]), here).prepare_most_s < BUILT_IN_START[1]


BF16 = "A100[0,1,2,3]:0-80@bf16"
MIXED = "L40S[4,5,6,7]:0-24@bf16 > A100[0,1,2,3]:24-80@bf16"
FP8 = "L40S[4,5]:0-40@fp8 > L40S[6,7]:40-80@fp8"


def seventy(mixed, llama, target: str, *, precision: str = "bf16", storage: float | None = None) -> SwitchPrediction:
    """From four A100 by vLLM, as the reviewed deployment has it."""
    nodes = tuple(replace(node, storage_bytes_s=storage) for node in mixed.nodes)
    cluster = replace(mixed, nodes=nodes)
    engine = launch.capabilities(cluster, llama, VllmSettings())
    now = parse_topology(BF16, cluster, 80, "bf16")
    there = parse_topology(target, cluster, 80, "bf16")
    problem = SearchInput(cluster, llama, Workload(4.0, 800, 250, 40), now, capabilities=engine, precision=precision)
    return switch(predicted(now, 0.5, 0.13), predicted(there, 0.5, 0.2), problem)


def test_a_70b_by_vllm_takes_a_minute_or_two_and_the_storage_that_nobody_measured_is_named(mixed, llama):
    found = seventy(mixed, llama, FP8)
    assert 45 < found.prepare_least_s < 75, "3 to 6 GB/s of storage, and the start of vLLM"
    assert 70 < found.prepare_s < 150
    assert 150 < found.prepare_most_s < 220
    assert found.unmeasured == ("b",)
    assert "nobody measured the storage of b: 3 to 6 GB/s are assumed" in " ".join(told(found))


def test_a_format_made_from_a_wider_checkpoint_reads_the_wider_file(mixed, llama):
    wide, either = (seventy(mixed, llama, FP8, storage=1e9, precision=name) for name in ("bf16", "fp8"))
    layers = 80 * llama.layer_parameters
    assert wide.unmeasured == either.unmeasured == ()
    assert wide.prepare_most_s == pytest.approx(either.prepare_most_s), "an fp8 model may be made from a bf16 file"
    assert wide.prepare_least_s - either.prepare_least_s == pytest.approx(layers / 1e9), "or be one"


def test_engines_of_vllm_share_neither_weights_nor_memory(mixed, llama):
    found = seventy(mixed, llama, MIXED)
    assert found.strategy == "restart", "60 GB of weights and twice 22 GB beside them are not on an 80 GB device"
    assert 50 < found.stop_s < 180
    assert found.stop_most_s > found.stop_s


def test_an_engine_that_shares_nothing_moves_all_of_it(mixed, llama):
    now, there = (parse_topology(text, mixed, 80, "bf16") for text in (BF16, MIXED))
    engine = launch.capabilities(mixed, llama, VllmSettings())
    alone, shared = (bytes_to_move(now, there, llama, known)["weights"] for known in (engine, None))
    assert alone == 80 * llama.layer_parameters * 2
    assert shared < alone / 3


def test_devices_of_a_node_share_its_storage(mixed, llama):
    times = [seventy(mixed, llama, FP8, storage=bytes_s).prepare_least_s for bytes_s in (1e9, 2e9)]
    assert times[0] - times[1] == pytest.approx(80 * llama.layer_parameters * 2 / 2e9)


VLLM_PAIRS = (
    BF16,
    MIXED,
    FP8,
    "A100[0,1]:0-80@bf16",
    "A100[0,1]:0-80@fp8",
    "A100[2,3]:0-80@fp8",
    "L40S[4,5,6,7]:0-80@bf16",
)


def is_refused(topologies: list[Topology], cluster: Cluster, model: ModelSpec, settings: VllmSettings) -> bool:
    """Whether the engine itself says that these do not stand side by side."""
    weights = Counter[int]()
    for topology in topologies:
        weights.update(weight_bytes(topology, model))
    try:
        launch.refuse_without_memory(topologies, cluster, weights, settings)
    except SwitchError:
        return True
    return False


@rows("kv_gb", [2, 12, 20])
def test_no_plan_by_vllm_ends_with_no_memory_when_it_is_applied(mixed, llama, kv_gb):
    settings = VllmSettings(kv_cache_bytes=kv_gb * 10**9)
    engine = launch.capabilities(mixed, llama, settings)
    found = set[str | None]()
    for now, there in product((parse_topology(text, mixed, 80, "bf16") for text in VLLM_PAIRS), repeat=2):
        problem = SearchInput(mixed, llama, Workload(0.1, 200, 50, 1), now, capabilities=engine)
        if now == there or is_refused([now], mixed, llama, settings):
            continue
        how = way(there, problem)
        found.add(how)
        if is_refused([there], mixed, llama, settings):
            assert how is None
        elif how is not None:  # else the load does not fit
            assert how == ("restart" if is_refused([now, there], mixed, llama, settings) else "shadow")
    assert {"shadow", "restart"} <= found


def test_a_switch_has_paid_when_what_it_saves_is_what_it_occupied_twice(topology, problem):
    elsewhere = switch(candidate(topology["tp2"]), candidate(topology["elsewhere"]), problem)
    assert elsewhere.payback_s == pytest.approx(elsewhere.prepare_s), "one device more meanwhile, one less after"
    in_place = switch(candidate(topology["tp2"]), candidate(topology["one"]), problem)
    assert in_place.payback_s == 0.0


@rows("price", [0.1, 1.1, 2.2, 0.7])
def test_nothing_pays_for_itself_before_it_begins(laptop, counting, price):
    (node,) = laptop.nodes
    gpus = tuple(replace(gpu, usd_per_hour=price * (1 + gpu.index)) for gpu in node.gpus)
    problem = SearchInput(Cluster((replace(node, gpus=gpus),)), counting, Workload(1.0, 100, 20, 2), None)
    texts = ("CPU[0]", "CPU[3]", "CPU[0,1]", "CPU[1,2]", "CPU[2,1,0,3]", "CPU[3,0,1,2]", "CPU[0,3]")
    sides = [candidate(parse_topology(text, laptop, 8, "fp32")) for text in texts]
    for today, target in product(sides, repeat=2):
        found = switch(today, target, replace(problem, now=today.topology)).payback_s
        assert found is None or found == 0 or found > 0.01
        if {*today.topology.devices} == {*target.topology.devices} and today != target:
            assert found is None


def test_staying_takes_nothing(topology, problem):
    same = candidate(topology["one"])
    assert switch(same, same, problem) == SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)


def test_other_knobs_on_what_runs_take_an_order_or_another_engine_beside_it(topology, problem):
    """Where two do not fit side by side the running one has to end first."""
    today = replace(candidate(topology["one"]), batching=Batching(64, 256))
    other = replace(today, batching=Batching(64, 128))
    alone = replace(BUILT_IN, shares_weights=False, streams=False, kv_bytes=1)
    for engine, target, strategy, takes in (
        (BUILT_IN, other, "shadow", False),
        (alone, today, "shadow", False),
        (alone, other, "shadow", True),
    ):
        found = switch(today, target, replace(problem, capabilities=engine))
        assert (found.strategy, found.prepare_s > 0, found.stop_s > 0) == (strategy, takes, takes)
    found = switch(today, other, small(problem, alone))
    assert (found.strategy, found.stop_s > 0.1) == ("restart", True)


@rows(
    ("strategy", "why"),
    [("restart", "the running engine has to end first"), ("stream", "only one copy of the weights fits")],
)
def test_of_what_is_overloaded_nobody_predicts_how_long_it_stands_still(strategy, why):
    (told_of_it,) = told(SwitchPrediction(strategy, 1.0, math.inf, math.inf, None, stop_most_s=math.inf))
    assert f"for a time that nobody can predict: {why}" in told_of_it
