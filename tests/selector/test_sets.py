"""Sets of replicas as answers: which one, for whom, what is left when something is lost, and what a switch takes."""

from dataclasses import replace

import pytest

from intent.models import Objective, Placement, PrecisionRule
from runtime.capabilities import Batching, Limits
from runtime.errors import TopologyError
from runtime.models import Topology, uniform
from runtime.notation import parse_topology
from selector import explain
from selector.models import ALIKE, Plan, SearchInput, Workload, shape
from selector.planning import named
from selector.prediction import candidate
from selector.switching import bytes_to_move, switch, way
from tests.rows import rows
from tests.selector.goals import CHEAPEST, config, cost, infeasible, plan_of, ttft

TPOT = Objective("tpot", "<=", "P99 TPOT", stat="p99", value=0.1, unit="s")
FP8 = PrecisionRule("allow", "fp8", "fp8 is allowed")
MOST = Objective("throughput_tok", "maximize", "as much as can be")
BF16_FOR_ONE = PrecisionRule("min", "bf16", "enterprise stays on bf16", tenant="enterprise")
LIMITS = Limits(max_sequences=256, max_step_tokens=2048, quality_loss={"fp8": 0.005})


@pytest.fixture
def chats(mixed, llama) -> SearchInput:
    """Four requests a second of chats, alike, for Llama-3-70B on both boxes."""
    load = Workload(4.0, 800, 250, 40, ALIKE, ALIKE)
    return SearchInput(mixed, llama, load, None, replace(LIMITS, headroom=0.0))


@pytest.fixture
def small_chats(mixed) -> SearchInput:
    """Twenty requests a second for Llama-3-8B."""
    return SearchInput(mixed, shape("llama-3-8b"), Workload(20.0, 800, 250, 40), None, LIMITS)


@pytest.fixture(scope="session")
def pair(mixed) -> Topology:
    """Llama-3-70B once on each box."""
    return Topology.of_replicas([uniform(mixed, "A100", 4, 1, 80, "bf16"), uniform(mixed, "L40S", 4, 1, 80, "fp8")])


def test_what_no_pipeline_holds_a_set_does(choose, chats):
    goals = (ttft(2.0), TPOT, FP8)
    full = replace(
        chats, workload=replace(chats.workload, rate_rps=4.8), limits=replace(chats.limits, max_utilisation=1.0)
    )
    infeasible(choose(full, *goals, config("replicas", "==", 1)))
    plan = plan_of(choose(full, *goals))
    assert len(plan.target.replicas) > 1
    assert sum(each.share for each in plan.replicas) == pytest.approx(1)
    assert [each.topology for each in plan.replicas] == [*plan.target.replicas]
    assert plan.prediction.devices == len(plan.target.devices)
    assert any("no replicas hold more than" in line for line in plan.certificate)


def test_the_set_is_the_cheapest_that_holds_the_load(choose, small_chats):
    plan = plan_of(choose(small_chats, ttft(2.0), TPOT, FP8, CHEAPEST))
    assert (len(plan.target.replicas), plan.prediction.usd_per_hour) == (2, 2.2)
    assert explain.topology_words(plan.target) == "2 x L40S 1x1@fp8"
    assert plan.reasons[0].startswith("chosen: 2 x L40S 1x1@fp8 (")
    assert plan.batching is not None


@rows(
    ("goals", "count"),
    [
        ((config("replicas", "==", 3),), 3),
        ((config("replicas_per_node", "==", 1),), 2),
        ((config("replicas", "<=", 1),), 1),
        ((config("lost_devices", ">=", 1), CHEAPEST), 3),
        ((config("lost_nodes", ">=", 1), CHEAPEST), 4),
    ],
)
def test_goals_for_replicas_are_held(choose, small_chats, goals, count):
    plan = plan_of(choose(small_chats, ttft(2.0), TPOT, FP8, *goals))
    assert len(plan.target.replicas) == count
    assert {margin.margin for margin in plan.margins if margin.goal.startswith(("replicas", "lost"))} <= {0.0}
    if goals[0].key == "replicas_per_node":
        assert all(
            any(set(each.devices) <= {gpu.index for gpu in node.gpus} for each in plan.target.replicas)
            for node in small_chats.cluster.nodes
        )


@rows(
    ("lost", "words"),
    [("lost_devices", "devices that may be lost >= 1"), ("lost_nodes", "nodes that may be lost >= 1")],
)
def test_what_is_left_of_one_pipeline_holds_nothing(choose, small_chats, lost, words):
    answer = infeasible(choose(small_chats, ttft(2.0), FP8, config("replicas", "==", 1), config(lost, ">=", 1)))
    assert any(words in reason for reason in answer.reasons)


def test_what_was_said_for_one_tenant_holds_for_its_replicas(choose, small_chats):
    plan = plan_of(
        choose(
            replace(small_chats, workload=replace(small_chats.workload, rate_rps=40.0)),
            ttft(2.0),
            TPOT,
            BF16_FOR_ONE,
            FP8,
            CHEAPEST,
        )
    )
    formats = {each.topology.stages[0].precision.weights: each for each in plan.replicas}
    assert formats.keys() == {"bf16", "fp8"}
    assert (formats["fp8"].not_for, formats["bf16"].not_for) == (("enterprise",), ())
    assert all(not part for words, part in formats["fp8"].shares.items() if words.startswith("enterprise"))


def test_leave_for_one_tenant_is_used_for_that_tenant_alone(choose, small_chats):
    leave = PrecisionRule("allow", "fp8", "free may use fp8", tenant="free")
    plan = plan_of(
        choose(
            replace(small_chats, workload=replace(small_chats.workload, rate_rps=40.0)),
            ttft(2.0),
            TPOT,
            leave,
            CHEAPEST,
        )
    )
    for each in plan.replicas:
        is_quantised = each.topology.stages[0].precision.weights == "fp8"
        assert each.not_for == (("everyone else",) if is_quantised else ())


def test_a_place_for_one_tenant_binds_its_replicas_alone(choose, chats):
    stays = Placement("require", "gpu_type:A100", "enterprise stays on the A100s", workload="tenant:enterprise")
    plan = plan_of(choose(chats, ttft(2.0), TPOT, FP8, stays))
    assert {each.topology.stages[0].kind: each.not_for for each in plan.replicas} == {
        "A100": (),
        "L40S": ("enterprise",),
    }


def test_a_set_that_runs_stays_where_nothing_is_asked_of_it(choose, chats, pair):
    steps = Batching.of_replicas([Batching(256, 2048), Batching(256, 1024)])
    running = replace(chats, now=pair, running=steps)
    plan = plan_of(choose(running, ttft(2.0), TPOT, FP8))
    assert (plan.target, plan.batching) == (pair, steps)
    assert plan.switch is not None
    assert plan.switch.prepare_s == 0


def test_one_replica_more_takes_no_stop(chats, pair, known):
    first = pair.replicas[0]
    today, target = (
        candidate(each, replace(chats, workload=replace(chats.workload, rate_rps=1.0)), known) for each in (first, pair)
    )
    found = switch(today, target, replace(chats, now=first))
    assert (found.strategy, found.stop_s) == ("shadow", 0.0)
    assert found.prepare_s > 0
    assert (
        bytes_to_move(first, pair, chats.model)["weights"]
        == bytes_to_move(None, pair.replicas[1], chats.model)["weights"]
    )
    back = switch(target, today, replace(chats, now=pair))
    assert (back.prepare_s, back.stop_s) == (0.0, 0.0)


def test_replicas_change_one_after_the_other(chats, mixed, pair, known):
    calm = replace(chats, workload=replace(chats.workload, rate_rps=0.5, concurrency=4))
    other = parse_topology(
        "A100x2:0-40@int8 > A100x2:40-80@int8 | L40Sx2:0-40@int8 > L40Sx2:40-80@int8", mixed, 80, "int8"
    )
    today, target = (candidate(each, calm, known) for each in (pair, other))
    alone = [
        switch(*(candidate(side, calm, known) for side in sides), replace(calm, now=sides[0]))
        for sides in zip(pair.replicas, other.replicas, strict=True)
    ]
    found = switch(today, target, replace(calm, now=pair))
    assert found.prepare_s == pytest.approx(sum(each.prepare_s for each in alone), rel=0.3)
    assert found.stop_s <= sum(each.stop_s for each in alone)


def test_what_cannot_be_reached_within_memory_is_named(chats, mixed, known, ticket):
    small = Topology.of_replicas([uniform(mixed, "A100", 4, 1, 80, "bf16"), uniform(mixed, "L40S", 1, 1, 80, "fp8")])
    assert way(small, replace(chats, now=small.replicas[0])) is None
    with pytest.raises(TopologyError, match="does not hold the workload"):
        named(small, chats, known, ticket)


def test_a_named_set_is_told_with_its_parts(chats, pair, known, ticket):
    plan = named(pair, chats, known, ticket)
    assert isinstance(plan, Plan)
    assert len(plan.replicas) == 2
    assert "A100 TP4@bf16" in plan.reasons[0]
    assert "% of the requests" in plan.reasons[0]


def test_the_others_that_miss_a_goal_meanwhile_are_named(choose, chats, pair):
    busy = replace(chats, now=pair, workload=replace(chats.workload, rate_rps=3.5, concurrency=8))
    plan = plan_of(choose(busy, ttft(2.0), TPOT, PrecisionRule("require", "fp8", "fp8 it is")))
    assert plan.target != pair
    assert any(reason.startswith("while ") and "what is left misses p99" in reason for reason in plan.reasons)


def test_what_a_set_may_cost_is_kept(choose, small_chats):
    assert plan_of(choose(small_chats, ttft(2.0), TPOT, FP8, cost(3.0))).prediction.usd_per_hour <= 3.0
    plan = plan_of(choose(small_chats, ttft(2.0), TPOT, MOST, cost(3.0), FP8))
    assert plan.prediction.usd_per_hour <= 3.0
