"""What is chosen, and what is said about it."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intent.models import (
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    Relative,
    TenantException,
)
from runtime.capabilities import Capabilities, Limits
from runtime.models import Cluster, Gpu, Link, Node, uniform
from runtime.notation import parse_topology
from selector.finder import Finder
from selector.models import Infeasible, Plan, SearchInput, Workload
from selector.objectives import sort_goals
from selector.performance import judge
from selector.pipelines.optimum import Threshold, eased_of, most_held
from selector.prediction import candidate
from selector.ranking import Ranking
from selector.search import _precisions, select
from tests.selector.goals import CHEAPEST, config, cost, infeasible, plan_of, ttft
from tests.tries import tries


def test_what_is_to_be_as_cheap_as_possible_frees_the_second_device(choose, small):
    plan = plan_of(choose(small, ttft(2.0), CHEAPEST))
    assert str(plan.target) == "CPU[0]:0-8@fp32"
    assert plan.offers == ()
    assert "today's CPU PP2@fp32 loses: it is worse for minimize GPUs: 2 against 1" in plan.reasons
    assert plan.now == small.now
    assert plan.now_prediction is not None
    assert plan.margins[0].goal == "p99 TTFT <= 2 s"


def test_a_wish_for_tp2_is_met_with_as_few_devices_as_it_takes(choose, small):
    one = uniform(small.cluster, "CPU", 1, 1, 8, "fp32")
    plan = plan_of(choose(replace(small, now=one), config("tp", "==", 2)))
    assert plan.target.shape == "TP2"
    assert "today's CPU 1x1@fp32 loses: it misses tp == 2: it has 1" in plan.reasons


def test_llama_70b_at_peak_has_a_plan_in_full_precision(choose, large):
    plan = plan_of(choose(large, ttft(2.0)))
    assert str(plan.target) == "A100[0,1,2,3]:0-80@bf16"
    assert all(margin.margin >= 0 for margin in plan.margins)
    assert re.search(r"\d+ topologies were simulated, \d+ of them cheaper", plan.certificate[-1])
    assert plan.bytes_to_move["kv_per_token"] == 0
    assert plan.bytes_to_move["weights"] == pytest.approx(137e9, rel=0.01)


def test_devices_of_today_are_used_again(choose, small):
    third = parse_topology("CPU[3]", small.cluster, 8, "fp32")
    plan = plan_of(choose(replace(small, now=third), config("tp", "==", 2)))
    assert plan.target.devices == (3, 0)


def test_devices_where_old_and_new_do_not_fit_together_are_left_for_free_ones(choose, llama, peak):
    gpus = tuple(Gpu(index, "A100", 80 * 10**9) for index in range(8))
    eight = Cluster((Node("a", gpus, Link("nvlink", 300e9, 5e-6)),))
    running = uniform(eight, "A100", 2, 2, 80, "bf16")
    half = Workload(0.1, 2000, 4000, 30)
    target = plan_of(choose(SearchInput(eight, llama, half, running), config("pp", "==", 1))).target
    assert set(target.devices).isdisjoint(running.devices)


def test_an_uneven_split_that_runs_is_judged_too(choose, small):
    uneven = parse_topology("CPU[0]:0-1 > CPU[1]:1-8", small.cluster, 8, "fp32")
    plan = plan_of(choose(replace(small, now=uneven), config("pp", "==", 2)))
    assert plan.now_prediction is not None
    assert plan.target.pp_size == 2


def test_the_running_precision_is_kept_and_that_is_said(choose, large):
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), ttft(2.0)))
    assert plan.target == now
    assert "keeps bf16: no goal asks for another precision" in plan.reasons


def test_a_precision_that_would_do_is_offered_never_taken(choose, large):
    large = replace(large, workload=replace(large.workload, rate_rps=1.0))
    goals = (ttft(4.0), Objective("gpu_count", "<=", "two", value=2, unit="gpus"))
    answer = infeasible(choose(large, *goals))
    assert any("every goal would hold with " in target for target in answer.feasible_targets)
    allowed = plan_of(choose(large, *goals, PrecisionRule("allow", "int8", "may use int8")))
    assert len(allowed.target.devices) == 2
    assert {stage.precision.weights for stage in allowed.target.stages} == {"int8"}


def test_soft_goals_give_way_but_are_reported(choose, large):
    plan = plan_of(choose(large, ttft(0.01, soft=True)))
    assert any(reason.startswith("misses p99 TTFT <= 10 ms") for reason in plan.reasons)
    assert isinstance(choose(large, ttft(0.01)), Infeasible)


def test_an_objective_comes_before_the_number_of_devices(choose, small):
    fastest = plan_of(choose(small, Objective("throughput_tok", "maximize", "as much as possible")))
    assert len(fastest.target.devices) > 1
    assert fastest.prediction.throughput_tok_s > (fastest.now_prediction or fastest.prediction).throughput_tok_s


def test_minimising_cost_finds_the_cheapest_that_keeps_up(choose, large):
    quiet = replace(large, workload=Workload(0.5, 800, 250, 16))
    plan = plan_of(choose(quiet, Objective("cost", "minimize", "as cheap as possible")))
    assert plan.prediction.usd_per_hour <= plan.runner_up.prediction.usd_per_hour
    assert plan.certificate[0].startswith(
        f"for less than {plan.prediction.usd_per_hour:.4g} USD/h nothing can hold these goals"
    )


def test_a_latency_goal_does_not_hold_where_requests_pile_up(choose, small):
    flooded = replace(small, workload=replace(small.workload, rate_rps=1e6))
    answer = infeasible(choose(flooded, ttft(2.0)))
    assert any("usual headroom: nothing that was simulated holds it" in reason for reason in answer.reasons)


def test_overload_without_a_latency_goal_is_said_and_does_not_forbid(choose, small):
    flooded = replace(small, workload=replace(small.workload, rate_rps=1e6))
    plan = plan_of(choose(flooded, config("tp", "==", 2)))
    assert any("usual headroom" in reason and reason.startswith("misses") for reason in plan.reasons)


def test_every_goal_has_a_margin_is_a_rule_or_is_left_out(choose, large):
    goals = (
        ttft(4.0), ttft(9.0, soft=True), CHEAPEST, PrecisionRule("forbid", "int4", "no int4"), config("pp", "<=", 4),
        Priority("latency", "latency first"), Placement("forbid", "gpu:gpu-0", "not gpu-0"),
        TenantException("acme", "ttft", "acme"),
        Objective("availability", ">=", "x", value=0.99, unit="ratio"),
    )  # fmt: skip
    plan = plan_of(choose(large, *goals))
    unsaid = [margin.goal for margin in plan.margins if "usual" in margin.goal]
    assert len(unsaid) == 2, "headroom, and a TPOT at which answers can be read"
    assert len(plan.margins) - len(unsaid) + len(plan.rules) + len(plan.left_out) == len(goals)
    assert [one.goal for one in plan.left_out] == ["availability >= 99 %"]


def test_placements_are_kept_and_said(choose, large):
    plan = plan_of(choose(large, ttft(4.0), Placement("forbid", "gpu:gpu-0", "keep gpu-0 free")))
    assert 0 not in plan.target.devices
    assert "'keep gpu-0 free': of the inventory that leaves the devices 1, 2, 3, 4, 5, 6, 7" in plan.reasons
    answer = infeasible(choose(large, ttft(4.0), Placement("require", "gpu:gpu-0", "only gpu-0")))
    assert answer.reasons[0].startswith("at most 36 of the 80 layers")
    nowhere = infeasible(
        choose(large, ttft(4.0), Placement("forbid", "node:a", "x"), Placement("forbid", "node:b", "y"))
    )
    assert "'x' and 'y': of the inventory that leaves the devices none" in nowhere.reasons


def test_preferred_devices_are_tried_first(choose, large):
    rather = Placement("prefer", "gpu_type:L40S", "rather L40S")
    quiet = replace(large, workload=Workload(0.05, 100, 50, 2))
    assert {stage.kind for stage in plan_of(choose(quiet, rather)).target.stages} == {"L40S"}
    plan = plan_of(choose(large, ttft(1.6), rather))
    assert {stage.kind for stage in plan.target.stages} == {"A100"}
    assert "no topology on the preferred devices alone holds the goals" in plan.reasons


def test_what_runs_where_it_may_not_is_left(choose, large):
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), Placement("forbid", "gpu:gpu-0", "free gpu-0")))
    assert "today's A100 TP4@bf16 is out: it uses the device 0, which a goal keeps free" in plan.reasons


@pytest.mark.slow
def test_a_bound_on_quality_is_leave_to_use_what_keeps_it(choose, large):
    losses = {"fp8": 0.002, "int8": 0.006, "int4": 0.04}
    stated = replace(large, limits=Limits(quality_loss=losses))
    loose, tight = (Objective("quality_loss", "<=", "x", value=value, unit="ratio") for value in (0.01, 0.004))
    plan = plan_of(choose(stated, ttft(4.0), loose))
    assert plan.prediction.quality_loss <= 0.01
    assert plan.prediction.usd_per_hour < plan_of(choose(stated, ttft(4.0))).prediction.usd_per_hour
    formats = {stage.precision.weights for stage in plan_of(choose(stated, ttft(4.0), tight)).target.stages}
    assert formats <= {"bf16", "fp16", "fp8"}
    bare = choose(stated, ttft(4.0), loose, PrecisionRule("forbid", "int8", "x"))
    assert {stage.precision.weights for stage in plan_of(bare).target.stages} <= {"bf16", "fp16", "fp8"}


def test_a_bound_on_quality_opens_no_format_that_a_rule_forbids(large, known):
    stated = replace(large, limits=Limits(quality_loss={"fp8": 0.002, "int8": 0.006}))
    bound = Objective("quality_loss", "<=", "x", value=0.01, unit="ratio")
    demands = sort_goals([bound, PrecisionRule("forbid", "int8", "x")], stated)
    assert {"fp8", "int8"} & {*_precisions(demands.rules, demands, stated, known)} == {"fp8"}


@pytest.mark.slow
def test_what_a_bound_on_quality_leaves_is_spent_on_some_layers(choose, large):
    stated = replace(large, limits=Limits(quality_loss={"int4": 0.04}))
    fast = Objective("tpot", "minimize", "x", unit="s")
    bound = Objective("quality_loss", "<=", "x", value=0.01, unit="ratio")
    plan, full = plan_of(choose(stated, bound, fast)), plan_of(choose(stated, fast))
    assert plan.prediction.tpot_s["mean"] < full.prediction.tpot_s["mean"]
    assert 0.005 < plan.prediction.quality_loss <= 0.01
    formats = [[stage.precision_of(layer).weights for layer in stage.layers] for stage in plan.target.stages]
    assert all(names == sorted(names) for names in formats), "full layers come first"
    assert {name for names in formats for name in names} == {"bf16", "int4"}
    assert parse_topology(str(plan.target), large.cluster, 80, "bf16") == plan.target
    uniform = replace(stated, capabilities=Capabilities((1, 2, 4), 4, ("bf16", "int4"), False, False))
    assert plan_of(choose(uniform, bound, fast)).prediction.quality_loss == 0


def test_priorities_decide_between_cost_and_latency(choose, large):
    quiet = replace(large, workload=Workload(1.0, 800, 250, 8))
    goals = (ttft(4.0), PrecisionRule("allow", "int4", "x"))
    fast, cheap, first = (
        plan_of(choose(quiet, *goals, Priority(*pair)))
        for pair in (("latency", "x", "cost"), ("cost", "x", "latency"), ("latency", "x"))
    )
    assert fast.prediction.usd_per_hour > cheap.prediction.usd_per_hour
    assert first.prediction.ttft_s["p99"] <= fast.prediction.ttft_s["p99"] < cheap.prediction.ttft_s["p99"]


def test_a_certificate_speaks_of_all_that_an_engine_runs(large, known):
    apart = Capabilities((1, 2, 4), 8, ("bf16", "int8"), tp_per_stage=False, replicated_kv_heads=False)
    finder = Finder(replace(large, capabilities=apart), known, ("bf16", "int8"), None)
    assert len(finder.grids(())) > 1
    held = [most_held(grid, eased_of([Threshold("usd_per_hour", 2.2 * (1 - 1e-8))])) for grid in finder.grids(())]
    assert finder.none_below((), 2.2).layers == max(held) > min(held)


def test_a_certificate_speaks_of_the_target_alone(choose, large):
    running = replace(large, now=uniform(large.cluster, "A100", 2, 2, 80, "bf16"))
    goals = (ttft(5.0), Objective("gpu_count", ">=", "x", value=4, unit="gpus"))
    assert plan_of(choose(large, *goals)).target != running.now
    assert plan_of(choose(large, *goals)).certificate
    frozen = plan_of(choose(running, *goals, Placement("freeze", "gpu:gpu-0", "x")))
    assert frozen.target == running.now
    assert not any("nothing can hold" in line for line in frozen.certificate)


def test_a_relative_throughput_is_beside_all_that_today_can_do(choose, large, known):
    running = replace(large, now=uniform(large.cluster, "A100", 4, 1, 80, "bf16"))
    plan = plan_of(choose(running, Relative("throughput_tok", ">=", "as much", factor=1.0)))
    (bound,) = [margin.bound for margin in plan.margins if margin.unit == "tokens/s"]
    assert running.now is not None
    today = candidate(running.now, running, known)
    assert bound == today.prediction.throughput_tok_s


def test_goals_relative_to_today_are_bounds_on_it(choose, large):
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), Relative("cost", "<=", "a quarter less", factor=0.75)))
    assert plan.prediction.usd_per_hour <= 6.6 * (1 + 1e-9)
    assert any("said relative to today" in reason for reason in plan.reasons)


def test_an_exception_to_a_bound_that_holds_for_everyone_is_not_needed(choose, small):
    plan = plan_of(choose(small, ttft(2.0), TenantException("free", "ttft", "not for free")))
    assert "the exception for free is not needed: the bound on TTFT is held for everyone" in plan.reasons


def test_a_goal_of_one_tenant_is_checked_for_everyone_and_that_is_said(choose, small):
    plan = plan_of(choose(small, ttft(2.0, tenant="acme")))
    assert any("was said for acme" in reason for reason in plan.reasons)
    assert isinstance(choose(small, ttft(1e-6, tenant="acme")), Infeasible)


def test_a_kind_without_a_profile_is_left_out_by_name(large, known, ticket):
    profiles = {"A100": known["A100"]}
    plan = plan_of(select([ttft(2.0)], large, profiles, ticket))
    assert "L40S is left out: it has no profile" in plan.reasons
    answer = infeasible(select([ttft(2.0)], large, {}, ticket))
    assert answer.nearest is None
    assert "no device kind of the inventory has a profile" in answer.reasons[0]


def test_limits_and_capabilities_bound_what_is_chosen(choose, small):
    fast = Objective("throughput_tok", "maximize", "as much as possible")
    limited = replace(small, limits=Limits(max_gpus=3, allowed_tp=(1,)))
    plan = plan_of(choose(limited, fast))
    assert len(plan.target.devices) <= 3
    assert {stage.tp_size for stage in plan.target.stages} == {1}
    engine = Capabilities((1, 2), 1, ("fp32",), tp_per_stage=False, replicated_kv_heads=False)
    plan = plan_of(choose(replace(small, capabilities=engine), fast))
    assert {replica.shape for replica in plan.target.replicas} <= {"1x1", "TP2"}


def test_today_outside_the_limits_is_left_and_the_limit_named(choose, small):
    plan = plan_of(choose(replace(small, limits=Limits(allowed_pp=(1,))), ttft(2.0)))
    assert plan.target.pp_size == 1
    assert "today's CPU PP2@fp32 is out: the limits allow PP 1" in plan.reasons
    assert plan.now_prediction is None


def test_the_plan_carries_its_ticket(choose, small):
    plan = plan_of(choose(small, ttft(2.0), CHEAPEST))
    assert (plan.id, plan.intent_id, plan.generation, plan.window) == ("plan-1", "intent-1", 3, "peak")
    assert plan.considered > 100
    assert plan.certificate[0].endswith("topologies were simulated")


@pytest.mark.slow
@tries(20)
@given(bound=st.floats(0.005, 3.0), degrees=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_every_plan_holds_what_was_asked_and_every_refusal_misses_something(bound, degrees, small, known, ticket):
    problem = replace(small, now=uniform(small.cluster, "CPU", 1, 1, 8, "fp32"))
    tp, pp = degrees
    goals = [ttft(bound), config("tp", "<=", tp), config("pp", ">=", pp)]
    answer = select(goals, problem, known, ticket)
    if isinstance(answer, Plan):
        assert all(margin.margin >= 0 for margin in answer.margins)
        assert answer.target.stages[0].tp_size <= tp
        assert answer.target.pp_size >= pp
    else:
        assert answer.nearest is not None
        assert Ranking(sort_goals(goals, problem), problem).shortfall(answer.nearest) > 0


def test_no_requests_and_no_devices_have_an_answer_too(choose, large):
    idle = replace(large, workload=Workload(0.0, 800, 250, 1))
    assert isinstance(choose(idle, ttft(2.0)), Plan)
    nothing = infeasible(choose(replace(large, cluster=Cluster(())), ttft(2.0)))
    assert nothing.nearest is None
    assert nothing.reasons == ("the goals leave no device",)


def test_the_same_question_has_the_same_answer(choose, large):
    once = choose(large, ttft(2.0), cost(10))
    judge._judged.cache_clear()
    assert choose(large, ttft(2.0), cost(10)) == once
