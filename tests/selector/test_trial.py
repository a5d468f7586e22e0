"""Which topologies are simulated, and with which steps."""

from dataclasses import replace

import pytest

from intent.models import Objective, PrecisionRule
from runtime.models import Cluster, ModelSpec, uniform
from selector.models import Limits, SearchInput, Spread, Workload
from selector.objectives import sort_goals
from selector.ranking import Ranking
from selector.trial import Trial, first_of_each
from tests.selector.goals import plan_of, predicted

QUICKEST = Objective("e2e", "minimize", "as quick as possible", stat="p99")


@pytest.fixture
def pair(mixed) -> SearchInput:
    """A 32B on two A100."""
    node = mixed.nodes[0]
    model = ModelSpec("a-32b", "Qwen3ForCausalLM", 64, 5120, 25_600, 64, 8, 128, 151_936, 40_960)
    load = Workload(0.419, 2500, 80, 4, Spread(2.73), Spread(1.8), burstiness=2.0)
    cluster = Cluster((replace(node, gpus=node.gpus[:2]),))
    return SearchInput(cluster, model, load, None, Limits(max_sequences=256, max_step_tokens=2048))


def test_the_first_of_each_topology_keeps_its_place(laptop):
    best, other = (predicted(uniform(laptop, "CPU", tp, 1, 8, "fp32")) for tp in (1, 2))
    worse = replace(best, reason="its steps are worse")
    assert first_of_each([best, other, worse]) == [best, other]


def test_steps_that_suit_a_wish_are_not_bettered_by_tuning_them_again(pair, known):
    trial = Trial(Ranking(sort_goals([QUICKEST], pair), pair), known)
    start = trial.judge(uniform(pair.cluster, "A100", 2, 1, 64, "int4"))
    once = trial.tune([start], (), QUICKEST)
    assert trial.tune(once, (), QUICKEST) == once


def test_on_one_device_every_format_is_a_choice(pair, choose):
    model = ModelSpec("an-8b", "LlamaForCausalLM", 32, 4096, 14_336, 32, 8, 128, 128_256, 131_072)
    cluster = Cluster((replace(pair.cluster.nodes[0], gpus=pair.cluster.gpus[:1]),))
    now = uniform(cluster, "A100", 1, 1, 32, "bf16")
    alone = replace(pair, cluster=cluster, model=model, now=now, workload=Workload(0.1, 4000, 300, 4))
    quick = Objective("tpot", "<=", "quick", stat="p50", value=0.0112, unit="s")
    plan = plan_of(choose(alone, quick, PrecisionRule("min", "int8", "at least int8")))
    assert {stage.precision.weights for stage in plan.target.stages} == {"int8"}
