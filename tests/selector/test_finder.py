"""Where a target goes beside what runs, and what is done where it cannot."""

from dataclasses import replace

import pytest

from intent.models import Config, Objective
from runtime.capabilities import Capabilities
from runtime.models import Cluster, ModelSpec, uniform
from selector.models import Infeasible, SearchInput, Workload
from tests.selector.goals import infeasible, plan_of, ttft

TP4 = Config("tp", "==", 4, "run it so")
STREAMS = Capabilities((1, 2, 4), 4, ("bf16",), tp_per_stage=True, replicated_kv_heads=False, streams=True)
SMALL = ModelSpec("small", "LlamaForCausalLM", 80, 4096, 14_336, 32, 8, 128, 32_000, 8192)


@pytest.fixture
def crowd(mixed, llama) -> SearchInput:
    """Llama-3-70B on four A100, whose memory it nearly fills."""
    return SearchInput(Cluster(mixed.nodes[:1]), llama, Workload(1.0, 800, 250, 300), None)


def test_where_nothing_fits_beside_what_runs_it_is_drained_and_that_is_said(choose, crowd):
    assert plan_of(choose(crowd, TP4)).switch is None
    running = replace(crowd, now=uniform(crowd.cluster, "A100", 2, 2, 80, "bf16"))
    plan = plan_of(choose(running, TP4))
    assert plan.switch.strategy == "restart"
    assert plan.switch.stop_s > 10
    bounded = Objective("reconfig_pause", "<=", "50 ms", value=0.05, unit="s")
    assert isinstance(choose(running, TP4, bounded), Infeasible)


def test_a_refusal_denies_nothing_that_an_outage_would_make_possible(choose, crowd):
    running = replace(crowd, now=uniform(crowd.cluster, "A100", 2, 2, 80, "bf16"))
    refusal = infeasible(choose(running, TP4, ttft(0.05)))
    assert not any(reason.startswith("tp == 4") for reason in refusal.reasons)
    assert refusal.nearest.reason.startswith("comes nearest; tp 2 where you said 4")


@pytest.mark.slow
def test_what_cannot_stand_beside_what_runs_is_streamed_if_the_engine_can_and_nobody_bounds_the_stop(choose, crowd):
    now = uniform(crowd.cluster, "A100", 2, 2, 80, "bf16")
    running = replace(crowd, now=now, capabilities=STREAMS)
    plan = plan_of(choose(running, TP4))
    assert plan.switch.strategy == "stream"
    assert plan.switch.stop_s > 1
    assert f"requests will stand still for about {plan.switch.stop_s:.2g} s: only one copy" in " ".join(plan.reasons)
    bounded = Objective("reconfig_pause", "<=", "50 ms", value=0.05, unit="s")
    assert isinstance(choose(running, TP4, bounded), Infeasible)


def test_what_stands_beside_what_runs_is_not_streamed(choose, crowd):
    quiet = replace(crowd, workload=replace(crowd.workload, concurrency=10), model=SMALL, capabilities=STREAMS)
    plan = plan_of(choose(replace(quiet, now=uniform(crowd.cluster, "A100", 2, 2, 80, "bf16")), TP4))
    assert plan.switch.strategy == "shadow"
