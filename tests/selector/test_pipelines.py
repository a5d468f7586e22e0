"""Pipelines over A100 and L40S: which there are, and that the split follows the workload."""

from dataclasses import replace

import pytest

from runtime.models import Capabilities, Cluster, Limits
from selector.models import Plan, Problem, Workload
from selector.pipelines import mixed as pipelines
from selector.search import select
from selector.shapes import shape

LONG_PROMPTS, LONG_ANSWERS = Workload(1.0, 512, 16, 32), Workload(1.0, 128, 512, 32)
NO_PROMPTS = Workload(1.0, 1, 1038, 32)
"""As much context as the long prompts, hardly a prompt."""


@pytest.fixture
def problem(mixed, llama, peak):
    return Problem(mixed, llama, peak, now=None)


def allowed(problem, known, precisions=("bf16",)):
    return [topology for topology, reason in pipelines(problem, known, precisions) if not reason]


def test_every_pipeline_holds_the_whole_model_on_devices_of_two_kinds(problem, known):
    found = allowed(problem, known, ("bf16", "fp8", "int8"))
    assert found
    for topology in found:
        topology.check(problem.cluster, problem.model)
        assert {stage.kind for stage in topology.stages} == {"A100", "L40S"}


def test_the_faster_devices_get_more_layers(problem, known):
    for topology in allowed(problem, known):
        pairs = [stage for stage in topology.stages if stage.tp_size == 2]
        a100s, l40s = ([len(one.layers) for one in pairs if one.kind == kind] for kind in ("A100", "L40S"))
        assert not (a100s and l40s) or min(a100s) > max(l40s)


def l40s_layers(topology):
    return sum(len(stage.layers) for stage in topology.stages if stage.kind == "L40S")


def test_long_prompts_give_the_l40s_more_layers_than_long_answers(mixed, known):
    """The L40S computes in FP8, the A100 reads memory faster (PipeLive, arXiv 2604.12171, figure 1)."""
    one_each = Limits(max_gpus=2)
    found = {}
    for workload in (LONG_PROMPTS, LONG_ANSWERS, NO_PROMPTS):
        problem = Problem(mixed, shape("qwen2.5-32b"), workload, now=None, limits=one_each)
        (topology,) = {
            topology
            for topology in allowed(problem, {**known}, ("bf16", "int8", "fp8"))
            if topology.pp_size == 2
        }
        found[workload] = l40s_layers(topology)
    assert found[LONG_PROMPTS] > max(found[LONG_ANSWERS], found[NO_PROMPTS])


@pytest.mark.parametrize(
    "narrowed",
    [
        lambda problem: replace(problem, capabilities=Capabilities((1, 2, 4), 8, ("bf16",), False, False)),
        lambda problem: replace(problem, cluster=Cluster(problem.cluster.nodes)),
        lambda problem: replace(problem, limits=Limits(max_gpus=1)),
        lambda problem: replace(problem, cluster=replace(problem.cluster, nodes=problem.cluster.nodes[:1])),
    ],
    ids=["one TP degree", "no network", "one device", "one kind"],
)
def test_there_are_none_where_none_can_run(problem, known, narrowed):
    assert list(pipelines(narrowed(problem), known, ("bf16",))) == []


def test_a_limit_that_a_pipeline_breaks_is_its_reason(problem, known):
    tight = replace(problem, limits=Limits(allowed_pp=(1, 2)))
    reasons = {topology.pp_size: reason for topology, reason in pipelines(tight, known, ("bf16",))}
    assert "the limits allow PP 1, 2" in reasons[3]
    assert not [reason for _, reason in pipelines(problem, known, ("bf16",)) if "limits" in reason]


def test_a_model_that_fits_on_no_kind_alone_is_planned_over_both(mixed, llama, known, ticket):
    two = [replace(node, gpus=node.gpus[:2]) for node in mixed.nodes]
    problem = Problem(replace(mixed, nodes=tuple(two)), llama, Workload(0.01, 2000, 500, 32), now=None)
    plan = select((), problem, known, ticket)
    assert isinstance(plan, Plan)
    assert {stage.kind for stage in plan.target.stages} == {"A100", "L40S"}


def test_the_split_minds_the_memory_where_the_fastest_one_would_not_fit(mixed, llama, known):
    """In the time of 19 layers on an L40S the A100 does 42, and holds 33 here."""
    (a100, *_), (l40s, *_) = (node.gpus for node in mixed.nodes)
    small = replace(mixed.nodes[0], gpus=(replace(a100, memory_bytes=66 * 10**9),))
    two = replace(mixed.nodes[1], gpus=(l40s, mixed.nodes[1].gpus[1]))
    problem = Problem(replace(mixed, nodes=(small, two)), llama, Workload(0.01, 200, 50, 1), now=None)
    found = [topology for topology in allowed(problem, known) if topology.pp_size == 3]
    assert found
    assert max(len(stage.layers) for topology in found for stage in topology.stages) == 33
