"""What may be built, and why a topology may not run."""

from dataclasses import replace

from intent.models import Config
from runtime.capabilities import Capabilities, Limits
from runtime.footprint import blocks
from runtime.models import uniform
from runtime.notation import parse_topology
from selector.models import Profile, SearchInput
from selector.pipelines.operating import BLOCK_TOKENS, StageKind, pools_of
from selector.space import (
    blocker,
    blocks_needed,
    blocks_to_move,
    groups,
    narrowed,
    no_room,
    no_room_beside,
    stage_counts,
    stage_kinds,
    why_never,
)
from tests.rows import rows


def kinds_of(problem: SearchInput, known: dict[str, Profile], *precisions: str) -> list[StageKind]:
    return stage_kinds(pools_of(problem.cluster, problem.cluster.kinds), precisions, problem, known)


def test_stages_take_every_degree_that_divides_the_heads_up_to_a_node(large, known):
    found = kinds_of(large, known, "bf16")
    assert [(kind.kind, kind.tp) for kind in found] == [(kind, tp) for kind in ("A100", "L40S") for tp in (1, 2, 4)]


def test_only_formats_with_figures_are_built(large, known):
    bare = known | {"A100": replace(known["A100"], weight_share={"bf16": 0.6})}
    assert {kind.kind for kind in kinds_of(large, bare, "int8")} == {"L40S"}
    assert kinds_of(large, known, "fp32") == []


@rows(
    ("limits", "engine", "degrees"),
    [
        (Limits(allowed_tp=(2,)), None, {2}),
        (Limits(), Capabilities((1, 4), 2, ("bf16",), tp_per_stage=True, replicated_kv_heads=False), {1, 4}),
        (Limits(allowed_precisions=("fp8",)), None, set()),
    ],
)
def test_limits_and_engine_narrow_the_stages(large, known, limits, engine, degrees):
    narrow = replace(large, limits=limits, capabilities=engine)
    assert {kind.tp for kind in kinds_of(narrow, known, "bf16")} == degrees


def test_stages_are_as_many_as_layers_devices_engine_and_limits_allow(large):
    engine = Capabilities((1,), 3, ("bf16",), tp_per_stage=True, replicated_kv_heads=False)
    assert stage_counts(large) == list(range(1, 9))
    assert stage_counts(replace(large, capabilities=engine)) == [1, 2, 3]
    assert stage_counts(replace(large, limits=Limits(allowed_pp=(2, 4)))) == [2, 4]
    assert stage_counts(replace(large, model=replace(large.model, num_layers=2))) == [1, 2]


def test_goals_for_the_topology_narrow_it(large, known):
    kinds, counts = kinds_of(large, known, "bf16"), stage_counts(large)
    kept, numbers = narrowed(kinds, counts, [Config("tp", ">=", 2, "x"), Config("pp", "==", 3, "x")])
    assert ({kind.tp for kind in kept}, numbers) == ({2, 4}, [3])
    assert narrowed(kinds, counts, [Config("replicas", ">=", 2, "x")]) == ([], [])
    assert narrowed(kinds, counts, [Config("replicas", "==", 1, "x")]) == (kinds, counts)


def test_an_engine_of_one_degree_and_one_precision_gets_them_apart(large, known):
    kinds = kinds_of(large, known, "bf16", "fp8")
    engine = Capabilities((1, 2), 4, ("bf16", "fp8"), tp_per_stage=False, replicated_kv_heads=False)
    apart = list(groups(kinds, replace(large, capabilities=engine)))
    assert sorted(map(len, apart)) == [2] * 6
    assert all(len({(kind.tp, kind.precision) for kind in group}) == 1 for group in apart)
    assert list(groups(kinds, large)) == [kinds]


@rows(
    ("text", "limits", "reason"),
    [
        ("A100x4@bf16", Limits(max_gpus=3), "needs 4 devices; the limit is 3"),
        ("A100x4@bf16", Limits(allowed_tp=(1, 2)), "the limits allow TP 1, 2"),
        ("A100x2:0-40@bf16 > A100x2:40-80@bf16", Limits(allowed_pp=(1,)), "the limits allow PP 1"),
        ("A100x1:0-16@bf16 > A100x2:16-80@bf16", Limits(allowed_tp=(1,)), "the limits allow TP 1"),
        ("A100x4@int8", Limits(), "it runs in int8; allowed is bf16"),
        ("A100x1@bf16", Limits(), "of weights leave no room for KV in the 80 GB of device 0"),
        ("A100x4@bf16", Limits(), ""),
    ],
)
def test_what_may_not_run_says_why(large, text, limits, reason):
    topology = parse_topology(text, large.cluster, 80, "bf16")
    found = blocker(topology, replace(large, limits=limits), ["bf16"])
    assert found == reason if not reason or "GB" not in reason else found.endswith(reason)


def test_too_many_requests_in_flight_say_how_many_would_fit(large):
    crowd = replace(large, workload=replace(large.workload, concurrency=5000))
    reason = no_room(uniform(large.cluster, "A100", 4, 1, 80, "bf16"), crowd)
    assert reason.startswith("holds the KV of ")
    assert reason.endswith(" of the 5000 requests in flight")


def test_a_target_has_to_fit_beside_what_runs(large):
    running = replace(large, now=uniform(large.cluster, "A100", 4, 1, 80, "bf16"))
    two = uniform(large.cluster, "A100", 2, 2, 80, "bf16")
    assert no_room(two, large) == ""
    assert no_room(two, running).startswith("does not fit beside what runs now: ")
    streams = Capabilities((2, 4), 2, ("bf16",), tp_per_stage=True, replicated_kv_heads=False, streams=True)
    assert no_room(two, replace(running, capabilities=streams)) == ""
    full = replace(running, capabilities=streams, workload=replace(large.workload, concurrency=411))
    assert no_room(two, full).startswith("does not fit beside what runs now, nor if layers move one by one: ")


def test_wishes_that_nothing_meets_have_a_reason(large):
    limited = replace(large, limits=Limits(allowed_pp=(1,), allowed_tp=(1, 2)))
    assert why_never(Config("pp", "==", 2, "x"), limited, ["bf16"]) == "the limits allow PP 1"
    assert why_never(Config("tp", "==", 4, "x"), limited, ["bf16"]) == "the limits allow TP 1, 2"
    assert why_never(Config("tp", "==", 16, "x"), limited, ["bf16"]) == "the largest node has 4 devices of a kind"
    assert why_never(Config("tp", "==", 2, "x"), limited, ["bf16"]) == ""


def test_what_runs_never_holds_more_kv_than_it_has_room_for(large):
    """One pair of devices holds the KV of a part of the load, two pairs all of it: the way from one to two is open."""
    pair, layers = "A100[0,1]", large.model.num_layers
    now, target = (
        parse_topology(text, large.cluster, layers, "bf16")
        for text in (pair, f"{pair}:0-{layers // 2} > A100[2,3]:{layers // 2}-{layers}")
    )
    held = blocks(now, large.model, large.cluster, BLOCK_TOKENS)
    busy = replace(large.workload, concurrency=1)
    while blocks_needed(replace(large, workload=busy)) <= held:
        busy = replace(busy, concurrency=busy.concurrency + 1)
    asked = replace(large, now=now, workload=busy)
    assert blocks_to_move(asked) == held < blocks_needed(asked)
    assert not no_room_beside(target, asked)
