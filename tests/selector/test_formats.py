"""Plans that know weight formats by layer: speed, room for KV and quality decide, and nothing unasked is taken."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import Goal, Objective, PrecisionRule
from runtime.capabilities import Capabilities, Limits
from runtime.models import Cluster, Precision, Topology, uniform
from runtime.notation import parse_topology
from selector.finder import Finder
from selector.models import Profile, SearchInput, Workload
from selector.performance.perf import LayerCost, Step
from selector.profiles import fit_cpu
from selector.quality import FormatCurve, QualityCurve
from selector.search import select
from tests.rows import rows
from tests.selector.goals import CHEAPEST, config, infeasible, plan_of, ttft

ENGINE = Capabilities(
    (1, 2, 4), 4, ("fp32", "int8", "int4"), tp_per_stage=True, replicated_kv_heads=False, base="fp32", streams=True
)
PRODUCTS_S = {  # measured with SmolLM2 on one thread: at few rows int8 is slower than fp32
    "fp32": [(1, 3.0e-10), (16, 4.7e-10), (64, 1.3e-9)],
    "int8": [(1, 4.0e-10), (16, 6.9e-10), (64, 1.8e-9)],
    "int4": [(1, 5.4e-10), (16, 9.5e-10), (64, 2.0e-9)],
}
ALLOWED = PrecisionRule("allow", "int8", "int8 is allowed")


@pytest.fixture
def profiles(samples) -> Mapping[str, Profile]:
    return {"CPU": fit_cpu(replace(samples, gemm_flops_s=1e11, memory_bytes_s=2.5e10, products_s=PRODUCTS_S))}


@pytest.fixture
def problem(laptop, counting) -> SearchInput:
    now = uniform(laptop, "CPU", 1, 1, counting.num_layers, "fp32")
    return SearchInput(laptop, counting, Workload(2.0, 200, 50, 4), now, capabilities=ENGINE)


def planned(problem: SearchInput, profiles: Mapping[str, Profile], ticket, *goals: Goal):
    return select(goals, problem, profiles, ticket)


def formats_of(topology: Topology) -> list[str]:
    return [stage.precision_of(layer).weights for stage in topology.stages for layer in stage.layers]


@rows("name", ["fp32", "int8", "int4"])
@rows("rows_of_step", [1, 16, 64])
def test_a_step_takes_what_was_measured_of_its_format(profiles, counting, name, rows_of_step):
    precision = Precision.named("fp32", "CPU").beside(name, "CPU")
    cost = LayerCost.of(precision, 1, counting, profiles["CPU"])
    step_s = cost.seconds(Step(rows_of_step, 0, 0, 0)) - cost.overhead_s - cost.elementwise_s * rows_of_step
    measured_s = dict(PRODUCTS_S[name])[rows_of_step] * counting.layer_parameters
    assert step_s == pytest.approx(measured_s, rel=0.3)


@rows(
    "goals", [(ALLOWED,), (ALLOWED, CHEAPEST), (ALLOWED, ttft(1.0)), (ALLOWED, Objective("tpot", "minimize", "fast"))]
)
@rows("runs", [True, False])
def test_what_is_slower_and_frees_nothing_that_is_wanted_is_not_taken(problem, profiles, ticket, goals, runs):
    here = problem if runs else replace(problem, now=None, precision="fp32")
    plan = plan_of(planned(here, profiles, ticket, *goals))
    assert set(formats_of(plan.target)) == {"fp32"}
    assert (plan.prediction.quality_loss, plan.prediction.quality_source) == (0.0, "measured")


def smaller(problem: SearchInput, memory_bytes: int) -> SearchInput:
    """With so much memory in each device, and nothing running."""
    (node,) = problem.cluster.nodes
    gpus = tuple(replace(gpu, memory_bytes=memory_bytes) for gpu in node.gpus)
    return replace(problem, cluster=Cluster((replace(node, gpus=gpus),)), now=None, precision="fp32")


ALONE = (config("tp", "==", 1), config("pp", "==", 1), config("replicas", "==", 1))


def test_where_room_for_kv_binds_layers_in_fewer_bits_make_it(problem, profiles, ticket):
    tight = smaller(problem, 14_000_000)
    refused = infeasible(planned(tight, profiles, ticket, *ALONE))
    assert "int8" in " ".join(refused.feasible_targets), (
        "it says what would do, and takes it only where that is allowed"
    )
    plan = plan_of(planned(tight, profiles, ticket, ALLOWED, *ALONE))
    assert set(formats_of(plan.target)) == {"int8"}
    (stage,) = plan.target.stages
    assert stage.precision_of(0) == Precision("int8", "fp32", "fp32"), "KV and activations stay as the engine has them"
    assert parse_topology(str(plan.target), tight.cluster, 8, "fp32") == plan.target


def test_blocks_that_an_engine_gains_count(problem, profiles, ticket):
    """It keeps KV of fewer tokens than the load has in flight, in full formats."""
    capped = replace(problem, now=None, precision="fp32", capabilities=replace(ENGINE, kv_tokens=800))
    infeasible(planned(capped, profiles, ticket, *ALONE))
    assert set(formats_of(plan_of(planned(capped, profiles, ticket, ALLOWED, *ALONE)).target)) == {"int8"}
    running = plan_of(planned(replace(capped, now=problem.now), profiles, ticket, ALLOWED, *ALONE))
    assert (set(formats_of(running.target)), running.switch.strategy) == ({"int8"}, "shadow")
    assert "today's CPU 1x1@fp32 is out: the engine keeps KV of fewer requests than are in flight" in running.reasons


def test_groups_of_int4_that_tp_would_cut_are_refused_by_name(problem, profiles, ticket):
    required = PrecisionRule("require", "int4", "int4")
    plan = plan_of(planned(problem, profiles, ticket, required, config("tp", "==", 2)))
    assert set(formats_of(plan.target)) == {"int4"}
    assert plan.prediction.quality_source == "assumed"
    assert "quality loss unknown" in plan.reasons[0]
    refused = infeasible(planned(problem, profiles, ticket, required, config("tp", "==", 4)))
    assert "TP 4 cuts groups of 32 of int4 in the mlp width 320 of counting" in " ".join(refused.reasons)


def curve_of(order: list[int], each: float = 0.001) -> QualityCurve:
    """Of eight layers, of which each later one in the order loses twice as much."""
    singles = {layer: each * 2**place for place, layer in enumerate(order)}
    prefixes = {count: sum(singles[layer] for layer in order[:count]) for count in range(2, len(order) + 1, 2)}
    return QualityCurve({}, {}, len(order), {"int8": FormatCurve(tuple(order), prefixes, singles)})


ORDER = [5, 2, 7, 0, 3, 6, 1, 4]


def bounded(value: float) -> Objective:
    return Objective("quality_loss", "<=", "little loss", value=value, unit="ratio")


def test_a_bound_on_quality_takes_the_layers_that_lose_least_in_a_set_that_was_measured(problem, profiles, ticket):
    tight = replace(smaller(problem, 16_000_000), quality=curve_of(ORDER))
    plan = plan_of(planned(tight, profiles, ticket, bounded(0.02), *ALONE))
    quantised = {layer for layer, name in enumerate(formats_of(plan.target)) if name == "int8"}
    assert quantised == {*ORDER[: len(quantised)]}
    assert (plan.prediction.quality_source, len(quantised) in {2, 4}) == ("measured", True)
    assert plan.prediction.quality_loss == pytest.approx(0.001 * (2 ** len(quantised) - 1))
    assert f"quality loss {plan.prediction.quality_loss * 100:.3g} % measured" in plan.reasons[0]
    infeasible(planned(tight, profiles, ticket, bounded(0.0001), *ALONE))


def test_without_a_curve_the_loss_is_assumed_and_without_any_figure_the_goal_is_left_out(problem, profiles, ticket):
    stated = replace(smaller(problem, 14_000_000), limits=Limits(quality_loss={"int8": 0.01}))
    plan = plan_of(planned(stated, profiles, ticket, bounded(0.02), *ALONE))
    assert (plan.prediction.quality_loss > 0, plan.prediction.quality_source) == (True, "assumed")
    assert "assumed" in plan.reasons[0]
    (left_out,) = plan_of(planned(problem, profiles, ticket, bounded(0.02))).left_out
    assert "limits.quality_loss" in left_out.reason
    assert "intentctl profile --quality" in left_out.reason


@given(
    st.permutations(range(8)),
    st.sampled_from(["CPU[0]", "CPU[0]:0-3 > CPU[1]:3-8", "CPU[0,1]:0-5@fp32,1-3=int8 > CPU[2]:5-8"]),
)
def test_layers_are_quantised_in_the_order_that_was_measured_whatever_the_stages(
    laptop, counting, samples, order, text
):
    shape = parse_topology(text, laptop, 8, "fp32")
    here = SearchInput(laptop, counting, Workload(1.0, 100, 20, 2), None, capabilities=ENGINE, quality=curve_of(order))
    known = {"CPU": fit_cpu(replace(samples, products_s=PRODUCTS_S))}
    found = Finder(here, known, ("fp32", "int8"), None).by_curve([shape])
    sets = [{layer for layer, name in enumerate(formats_of(each)) if name == "int8"} for each in found]
    assert sets == [{*order[:count]} for count in (8, 6, 4, 2)]
    for each in found:
        assert parse_topology(str(each), laptop, 8, "fp32") == each
        assert {stage.precision_of(layer).kv for stage in each.stages for layer in stage.layers} == {"fp32"}
        assert [stage.devices for stage in each.stages] == [stage.devices for stage in shape.stages]
    assert Finder(here, known, ("fp32",), None).by_curve([shape]) == [], "nobody allowed it"
