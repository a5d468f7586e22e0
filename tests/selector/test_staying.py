"""What runs stays where it holds what was asked; what could be saved is offered."""

from dataclasses import replace

from intent.models import (
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    TenantException,
)
from runtime.models import uniform
from runtime.notation import parse_topology
from selector import explain, switching
from selector.models import Limits, SearchInput, Workload
from selector.search import select
from tests.rows import rows
from tests.selector.goals import CHEAPEST, config, cost, infeasible, plan_of, ttft


def test_what_holds_stays_and_what_could_be_saved_is_offered(choose, small):
    plan = plan_of(choose(small, ttft(2.0)))
    assert plan.target == plan.now == small.now
    assert plan.offers == (
        "CPU 1x1@fp32 would hold the same goals and save 1 device; ask for the lowest cost to get it",
    )
    assert "CPU PP2@fp32 stays: it holds what was asked, nothing has to move" in plan.reasons
    assert plan.bytes_to_move == {"weights": 0, "kv_per_token": 0}
    assert plan.runner_up.reason == "would cost less and hold no more goals; nobody asked for the lowest cost"


def test_what_stays_and_answers_slower_than_usual_misses_no_soft_goal(choose, small):
    tpot_s = plan_of(choose(small, ttft(2.0))).prediction.tpot_s["mean"]
    usual = Limits(usual_tpot_s=1.3 * tpot_s)  # within the error band of what runs, TP2 would hold it
    plan = plan_of(choose(replace(small, limits=usual), ttft(2.0)))
    assert plan.target == small.now
    assert any(margin.margin < 0 for margin in plan.margins)
    assert "soft goal" not in " ".join(plan.reasons)


def test_what_already_is_best_stays_and_nothing_moves(choose, small):
    one = uniform(small.cluster, "CPU", 1, 1, 8, "fp32")
    plan = plan_of(choose(replace(small, now=one), ttft(2.0)))
    assert plan.target == plan.now
    assert any("CPU 1x1@fp32 stays" in reason for reason in plan.reasons)
    assert plan.bytes_to_move == {"weights": 0, "kv_per_token": 0}


def test_nothing_is_offered_where_nothing_could_be_saved(choose, small):
    two = Objective("gpu_count", ">=", "two", value=2, unit="gpus")
    plans = [
        plan_of(choose(replace(small, now=uniform(small.cluster, "CPU", tp, pp, 8, "fp32")), ttft(2.0), two))
        for tp, pp in ((1, 2), (2, 1))
    ]
    assert [plan.target.shape for plan in plans] == ["PP2", "TP2"]
    assert [plan.offers for plan in plans] == [(), ()]


def test_today_stays_where_it_is_even_on_other_devices(choose, small):
    third = parse_topology("CPU[3]", small.cluster, 8, "fp32")
    assert plan_of(choose(replace(small, now=third), ttft(2.0))).target == third


def test_a_gain_within_the_error_band_is_not_worth_a_switch(laptop, counting, streams, known, ticket):
    tp2 = uniform(laptop, "CPU", 2, 1, 8, "fp32")
    problem = SearchInput(laptop, counting, streams, tp2)
    fewest = Objective("gpu_count", "minimize", "few", unit="gpus")
    two = (config("tp", ">=", 1), Objective("gpu_count", ">=", "two", value=2, unit="gpus"), fewest)
    doubtful = select(two, problem, known | {"CPU": replace(known["CPU"], error_band=10.0)}, ticket)
    assert plan_of(doubtful).target == tp2
    sure = replace(known["CPU"], error_band=0.0)
    pp2 = replace(problem, now=uniform(laptop, "CPU", 1, 2, 8, "fp32"))
    for here in (problem, pp2):
        assert plan_of(select(two, here, {"CPU": sure}, ticket)).target == here.now, "as few devices do"


def test_a_switch_that_does_not_pay_for_itself_in_time_is_not_made(choose, large, monkeypatch):
    running = replace(large, now=uniform(large.cluster, "L40S", 4, 1, 80, "int8"), workload=Workload(0.5, 800, 250, 8))
    goals = (PrecisionRule("allow", "int4", "x"), config("pp", "==", 1), CHEAPEST)
    plan = plan_of(choose(running, *goals))
    assert plan.switch is not None
    assert len(plan.target.devices) < 4
    monkeypatch.setattr(switching, "STORAGE_BYTES_S", (1e3, 1e3))
    slow = plan_of(choose(running, *goals))
    if set(plan.target.devices) - set(running.now.devices if running.now else ()):
        assert slow.target == running.now
        assert any("h to pay for itself" in reason for reason in slow.reasons)


@rows(
    ("goal", "words"),
    [
        (
            Objective("reconfig_pause", "<=", "50 ms", value=0.05, unit="s"),
            "bounds the switch, not what runs",
        ),
        (Objective("quality_loss", "<=", "1 %", value=0.01, unit="ratio"), "states no limits.quality_loss"),
        (Objective("availability", ">=", "x", value=0.99, unit="ratio"), "does not follow from a topology"),
        (ReconfigRule("limit", "at most once a day", 1.0, "1/day"), "limits how often"),
        (Placement("prefer", "gpu_type:CPU", "batch there", workload="batch"), "is for the workload 'batch'"),
        (TenantException("acme", "ttft", "acme may exceed"), "no goal here bounds"),
        (Priority("tenant:acme", "acme first"), "all tenants are served alike"),
        (cost(5.0), "states no usd_per_hour for CPU"),
        (replace(ttft(1.0), model="another"), "is for another"),
    ],
)
def test_what_cannot_be_evaluated_is_left_out_by_name_and_alone_plans_nothing(choose, small, goal, words):
    flooded = replace(small, workload=replace(small.workload, rate_rps=1e6))
    for problem in (small, flooded):
        plan = plan_of(choose(problem, goal))
        (left_out,) = plan.left_out
        assert words in left_out.reason
        assert plan.target == plan.now
        assert explain.NOTHING_ASKED in plan.reasons
    refused = infeasible(choose(small, goal, ttft(1e-6)))
    assert refused.left_out == plan.left_out or isinstance(goal, TenantException)


def test_where_a_switch_is_forbidden_what_runs_stays_or_misses_the_goals(choose, large):
    now = replace(large, now=uniform(large.cluster, "A100", 4, 1, 80, "bf16"))
    ban = ReconfigRule("forbid", "change freeze")
    assert plan_of(choose(now, ttft(2.0), CHEAPEST, ban)).target == now.now
    answer = infeasible(choose(now, ttft(0.1), ban))
    assert answer.reasons[0].startswith("'change freeze' forbids a switch, so what runs stays as it is, but it misses")


def test_what_runs_off_the_preferred_devices_moves_there(choose, large):
    rather = Placement("prefer", "gpu_type:L40S", "rather L40S")
    quiet = replace(large, workload=Workload(0.05, 100, 50, 2), now=uniform(large.cluster, "A100", 4, 1, 80, "bf16"))
    assert {stage.kind for stage in plan_of(choose(quiet, rather)).target.stages} == {"L40S"}


def test_what_serves_on_a_frozen_device_stays(choose, large):
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    frozen = Placement("freeze", "gpu:gpu-1", "do not touch gpu-1")
    plan = plan_of(choose(replace(large, now=now), ttft(2.0), frozen))
    assert plan.target == now
    assert "device 1 may not be touched, so what runs there stays as it is" in plan.reasons
    answer = infeasible(choose(replace(large, now=now), ttft(0.1), frozen))
    assert answer.reasons[0] == (
        "device 1 may not be touched, so what runs there stays as it is, but it misses p99 TTFT <= 100 ms"
    )
    idle = plan_of(
        choose(
            replace(large, now=now),
            cost(4.4),
            PrecisionRule("allow", "int4", "x"),
            Placement("freeze", "gpu:5", "y"),
        )
    )
    assert 5 not in idle.target.devices


def test_a_service_that_falls_behind_is_not_moved_unasked_and_that_is_said(choose, large):
    behind = replace(large, now=uniform(large.cluster, "L40S", 4, 1, 80, "bf16"))
    plan = plan_of(choose(behind, PrecisionRule("forbid", "int4", "don't use int4")))
    assert plan.target == plan.now
    assert plan.offers[0].startswith("L40S TP4@bf16 misses GPU utilisation <= 85 %, usual headroom: ")
    assert plan_of(choose(behind, ttft(2.0))).target != behind.now
