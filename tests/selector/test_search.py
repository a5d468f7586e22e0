"""What is chosen, and what is said about it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intent.models import (
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    Relative,
    TenantException,
)
from runtime.capabilities import Capabilities, Limits
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, uniform
from runtime.notation import parse_topology
from selector import moves, search
from selector.finder import Finder
from selector.models import Infeasible, Plan, Problem, Profile, Ticket, Workload
from selector.objectives import holds, sort_goals, thresholds
from selector.pipelines.optimum import Threshold, most_held
from selector.prediction import candidates
from selector.ranking import Ranking
from selector.search import select

Choose = Callable[..., Plan | Infeasible]


@pytest.fixture
def choose(known: dict[str, Profile], ticket: Ticket) -> Choose:
    def call(problem: Problem, *goals: Goal) -> Plan | Infeasible:
        return select(goals, problem, known, ticket)

    return call


@pytest.fixture(scope="module")
def small(laptop: Cluster, counting: ModelSpec, streams: Workload) -> Problem:
    """The counting model on the laptop, as PP2."""
    return Problem(laptop, counting, streams, uniform(laptop, "CPU", 1, 2, counting.num_layers, "fp32"))


@pytest.fixture
def large(mixed: Cluster, llama: ModelSpec, peak: Workload) -> Problem:
    """Llama-3-70B on the mixed cluster, nothing running."""
    return Problem(mixed, llama, peak, None)


def ttft(value: float, **more: object) -> Objective:
    return Objective("ttft", "<=", "keep p99 TTFT", stat="p99", value=value, unit="s", **more)  # type: ignore[arg-type]  # keywords vary by test


def cost(value: float) -> Objective:
    return Objective("cost", "<=", "cheap", value=value, unit="USD/h")


def config(key: str, op: str, value: int) -> Config:
    return Config(key, op, value, "run it so")  # type: ignore[arg-type]  # literals vary by test


def plan_of(answer: Plan | Infeasible) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


def infeasible(answer: Plan | Infeasible) -> Infeasible:
    assert isinstance(answer, Infeasible), answer
    return answer


def test_a_goal_that_one_device_holds_frees_the_second(choose: Choose, small: Problem) -> None:
    plan = plan_of(choose(small, ttft(2.0)))
    assert str(plan.target) == "CPU[0]:0-8@fp32"
    assert "today's CPU PP2@fp32 loses: it needs 2 devices where 1 holds every goal" in plan.reasons
    assert plan.now == small.now
    assert plan.now_prediction is not None
    assert plan.margins[0].goal == "p99 TTFT <= 2 s"


def test_a_wish_for_tp2_is_met_with_as_few_devices_as_it_takes(choose: Choose, small: Problem) -> None:
    one = uniform(small.cluster, "CPU", 1, 1, 8, "fp32")
    plan = plan_of(choose(replace(small, now=one), config("tp", "==", 2)))
    assert plan.target.shape == "TP2"
    assert "today's CPU 1x1@fp32 loses: it misses tp == 2: it has 1" in plan.reasons


def test_llama_70b_at_peak_has_a_plan_in_full_precision(choose: Choose, large: Problem) -> None:
    plan = plan_of(choose(large, ttft(2.0)))
    assert [(stage.kind, stage.tp_size) for stage in plan.target.stages] == [("A100", 4)]
    assert all(margin.margin >= 0 for margin in plan.margins)
    assert plan.certificate[0] == "on fewer than 4 devices at most 75 of 80 layers fit"
    assert plan.bytes_to_move["kv_per_token"] == 0
    assert plan.bytes_to_move["weights"] == pytest.approx(137e9, rel=0.01)


def test_an_impossible_goal_says_what_would_be_possible(choose: Choose, large: Problem) -> None:
    answer = infeasible(choose(large, ttft(0.001)))
    assert answer.nearest is not None
    assert str(answer.nearest.topology) == "A100[0,1,2,3]:0-80@bf16"
    assert "p99 TTFT <= 1 ms: no allowed topology holds it" in answer.reasons[0]
    assert answer.feasible_targets[0].startswith("p99 TTFT <= 530 ms would hold on A100 TP4@bf16")


def test_the_feasible_target_really_is_feasible_and_a_tenth_less_is_not(
    choose: Choose, large: Problem
) -> None:
    assert isinstance(choose(large, ttft(0.53)), Plan)
    assert isinstance(choose(large, ttft(0.53 * 0.9)), Infeasible)


def test_what_already_is_best_stays_and_nothing_moves(choose: Choose, small: Problem) -> None:
    one = uniform(small.cluster, "CPU", 1, 1, 8, "fp32")
    plan = plan_of(choose(replace(small, now=one), ttft(2.0)))
    assert plan.target == plan.now
    assert any("CPU 1x1@fp32 stays" in reason for reason in plan.reasons)
    assert plan.bytes_to_move == {"weights": 0, "kv_per_token": 0}


def test_today_stays_where_it_is_even_on_other_devices(choose: Choose, small: Problem) -> None:
    third = parse_topology("CPU[3]", small.cluster, 8, "fp32")
    assert plan_of(choose(replace(small, now=third), ttft(2.0))).target == third


def test_devices_of_today_are_used_again(choose: Choose, small: Problem) -> None:
    third = parse_topology("CPU[3]", small.cluster, 8, "fp32")
    plan = plan_of(choose(replace(small, now=third), config("tp", "==", 2)))
    assert plan.target.devices == (3, 0)


def test_devices_where_old_and_new_do_not_fit_together_are_left_for_free_ones(
    choose: Choose, llama: ModelSpec, peak: Workload
) -> None:
    gpus = tuple(Gpu(index, "A100", 80 * 10**9) for index in range(8))
    eight = Cluster((Node("a", gpus, Link("nvlink", 300e9, 5e-6)),))
    running = uniform(eight, "A100", 2, 2, 80, "bf16")
    half = Workload(0.1, 2000, 4000, 30)
    target = plan_of(choose(Problem(eight, llama, half, running), config("pp", "==", 1))).target
    assert set(target.devices).isdisjoint(running.devices)


def test_an_uneven_split_that_runs_is_judged_too(choose: Choose, small: Problem) -> None:
    uneven = parse_topology("CPU[0]:0-1 > CPU[1]:1-8", small.cluster, 8, "fp32")
    plan = plan_of(choose(replace(small, now=uneven), config("pp", "==", 2)))
    assert plan.now_prediction is not None
    assert plan.target.pp_size == 2


def test_a_gain_within_the_error_band_is_not_worth_a_switch(
    laptop: Cluster, counting: ModelSpec, streams: Workload, known: dict[str, Profile], ticket: Ticket
) -> None:
    tp2 = uniform(laptop, "CPU", 2, 1, 8, "fp32")
    problem = Problem(laptop, counting, streams, tp2)
    two = (config("tp", ">=", 1), Objective("gpu_count", ">=", "two", value=2, unit="gpus"))
    doubtful = select(two, problem, known | {"CPU": replace(known["CPU"], error_band=10.0)}, ticket)
    assert plan_of(doubtful).target == tp2
    sure = replace(known["CPU"], error_band=0.0)
    answer = plan_of(
        select(two, replace(problem, now=uniform(laptop, "CPU", 1, 2, 8, "fp32")), {"CPU": sure}, ticket)
    )
    other = plan_of(select(two, problem, {"CPU": sure}, ticket))
    assert answer.target.shape == other.target.shape, "without doubt, today's topology does not matter"


def test_a_switch_that_does_not_pay_for_itself_in_time_is_not_made(
    choose: Choose, large: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = replace(
        large, now=uniform(large.cluster, "L40S", 4, 1, 80, "int8"), workload=Workload(0.5, 800, 250, 8)
    )
    goals = (PrecisionRule("allow", "int4", "x"), config("pp", "==", 1))
    monkeypatch.setitem(moves.LOAD_BYTES_S, "nvlink", 20e9)
    plan = plan_of(choose(running, *goals))
    assert plan.switch is not None
    assert len(plan.target.devices) < 4
    monkeypatch.setattr(moves, "BUILD_S", 1e6)
    slow = plan_of(choose(running, *goals))
    if set(plan.target.devices) - set(running.now.devices if running.now else ()):
        assert slow.target == running.now
        assert any("h to pay for itself" in reason for reason in slow.reasons)


def test_the_running_precision_is_kept_and_that_is_said(choose: Choose, large: Problem) -> None:
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), ttft(2.0)))
    assert plan.target == now
    assert "keeps bf16: no goal asks for another precision" in plan.reasons


def test_a_precision_that_would_do_is_offered_never_taken(choose: Choose, large: Problem) -> None:
    large = replace(large, workload=replace(large.workload, rate_rps=1.0))
    goals = (ttft(4.0), Objective("gpu_count", "<=", "two", value=2, unit="gpus"))
    answer = infeasible(choose(large, *goals))
    assert any("every goal would hold with A100 TP2@" in target for target in answer.feasible_targets)
    allowed = plan_of(choose(large, *goals, PrecisionRule("allow", "int8", "may use int8")))
    assert str(allowed.target) == "A100[0,1]:0-80@int8"


def test_soft_goals_give_way_but_are_reported(choose: Choose, large: Problem) -> None:
    plan = plan_of(choose(large, ttft(0.01, soft=True)))
    assert any(reason.startswith("misses p99 TTFT <= 10 ms") for reason in plan.reasons)
    assert isinstance(choose(large, ttft(0.01)), Infeasible)


def test_an_objective_comes_before_the_number_of_devices(choose: Choose, small: Problem) -> None:
    fastest = plan_of(choose(small, Objective("throughput_tok", "maximize", "as much as possible")))
    assert len(fastest.target.devices) > 1
    assert (
        fastest.prediction.throughput_tok_s > (fastest.now_prediction or fastest.prediction).throughput_tok_s
    )


def test_minimising_cost_finds_the_cheapest_that_keeps_up(choose: Choose, large: Problem) -> None:
    quiet = replace(large, workload=Workload(0.5, 800, 250, 16))
    plan = plan_of(choose(quiet, Objective("cost", "minimize", "as cheap as possible")))
    assert plan.runner_up is not None
    assert plan.prediction.usd_per_hour <= plan.runner_up.prediction.usd_per_hour
    assert (
        plan.certificate[0]
        == f"for less than {plan.prediction.usd_per_hour:.4g} USD/h at most 67 of 80 layers fit"
    )


def test_a_latency_goal_does_not_hold_where_requests_pile_up(choose: Choose, small: Problem) -> None:
    flooded = replace(small, workload=replace(small.workload, rate_rps=1e6))
    answer = infeasible(choose(flooded, ttft(2.0)))
    assert any(
        "requests/s, the workload's rate: no allowed topology holds it" in reason for reason in answer.reasons
    )


def test_overload_without_a_latency_goal_is_said_and_does_not_forbid(choose: Choose, small: Problem) -> None:
    flooded = replace(small, workload=replace(small.workload, rate_rps=1e6))
    plan = plan_of(choose(flooded, config("tp", "==", 2)))
    assert any("the workload's rate" in reason and reason.startswith("misses") for reason in plan.reasons)


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        (Objective("reconfig_pause", "<=", "50 ms", value=0.05, unit="s"), "bounds the switch itself"),
        (Objective("quality_loss", "<=", "1 %", value=0.01, unit="ratio"), "states no limits.quality_loss"),
        (Objective("availability", ">=", "x", value=0.99, unit="ratio"), "watched while serving"),
        (Placement("prefer", "gpu_type:CPU", "batch there", workload="batch"), "placement ('batch there')"),
        (TenantException("acme", "ttft", "acme may exceed"), "exception ('acme may exceed')"),
        (Priority("tenant:acme", "acme first"), "priority ('acme first')"),
        (replace(ttft(1.0), model="another"), "p99 TTFT <= 1 s"),
    ],
)
def test_what_cannot_be_evaluated_is_reported_never_dropped(
    choose: Choose, small: Problem, goal: Goal, words: str
) -> None:
    reasons = plan_of(choose(small, goal)).reasons
    assert any(reason.startswith("not evaluated: ") and words in reason for reason in reasons)


def test_placements_are_kept_and_said(choose: Choose, large: Problem) -> None:
    plan = plan_of(choose(large, ttft(4.0), Placement("forbid", "gpu:gpu-0", "keep gpu-0 free")))
    assert 0 not in plan.target.devices
    assert "'keep gpu-0 free': of the inventory that leaves the devices 1, 2, 3, 4, 5, 6, 7" in plan.reasons
    answer = infeasible(choose(large, ttft(4.0), Placement("require", "gpu:gpu-0", "only gpu-0")))
    assert answer.reasons[0].startswith("at most 36 of the 80 layers")
    nowhere = infeasible(
        choose(large, ttft(4.0), Placement("forbid", "node:a", "x"), Placement("forbid", "node:b", "y"))
    )
    assert "'x' and 'y': of the inventory that leaves the devices none" in nowhere.reasons


def test_preferred_devices_are_tried_first(choose: Choose, large: Problem) -> None:
    rather = Placement("prefer", "gpu_type:L40S", "rather L40S")
    quiet = replace(large, workload=Workload(0.05, 100, 50, 2))
    assert {stage.kind for stage in plan_of(choose(quiet, rather)).target.stages} == {"L40S"}
    plan = plan_of(choose(large, ttft(0.6), rather))
    assert {stage.kind for stage in plan.target.stages} == {"A100"}
    assert "no topology on the preferred devices alone holds the goals" in plan.reasons


def test_what_serves_on_a_frozen_device_stays(choose: Choose, large: Problem) -> None:
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


def test_what_runs_where_it_may_not_is_left(choose: Choose, large: Problem) -> None:
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), Placement("forbid", "gpu:gpu-0", "free gpu-0")))
    assert "today's A100 TP4@bf16 is out: it uses the device 0, which a goal keeps free" in plan.reasons


@pytest.mark.slow
def test_a_bound_on_quality_is_leave_to_use_what_keeps_it(choose: Choose, large: Problem) -> None:
    losses = {"fp8": 0.002, "int8": 0.006, "int4": 0.04}
    stated = replace(large, limits=Limits(quality_loss=losses))
    loose, tight = (
        Objective("quality_loss", "<=", "x", value=value, unit="ratio") for value in (0.01, 0.004)
    )
    plan = plan_of(choose(stated, ttft(2.0), loose))
    assert plan.prediction.quality_loss <= 0.01
    assert len(plan.target.devices) < len(plan_of(choose(stated, ttft(2.0))).target.devices)
    formats = {stage.precision.weights for stage in plan_of(choose(stated, ttft(2.0), tight)).target.stages}
    assert formats <= {"bf16", "fp16", "fp8"}
    bare = choose(stated, ttft(2.0), loose, PrecisionRule("forbid", "int8", "x"))
    assert {stage.precision.weights for stage in plan_of(bare).target.stages} <= {"bf16", "fp16", "fp8"}


@pytest.mark.slow
def test_what_a_bound_on_quality_leaves_is_spent_on_some_layers(choose: Choose, large: Problem) -> None:
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


def test_priorities_decide_between_cost_and_latency(choose: Choose, large: Problem) -> None:
    quiet = replace(large, workload=Workload(1.0, 800, 250, 8))
    goals = (ttft(4.0), PrecisionRule("allow", "int4", "x"))
    fast, cheap, first = (
        plan_of(choose(quiet, *goals, Priority(*pair)))
        for pair in (("latency", "x", "cost"), ("cost", "x", "latency"), ("latency", "x"))
    )
    assert fast.prediction.usd_per_hour > cheap.prediction.usd_per_hour
    assert first.prediction.ttft_s["p99"] <= fast.prediction.ttft_s["p99"] < cheap.prediction.ttft_s["p99"]


def test_a_certificate_speaks_of_all_that_an_engine_runs(large: Problem, known: dict[str, Profile]) -> None:
    apart = Capabilities((1, 2, 4), 8, ("bf16", "int8"), tp_per_stage=False, replicated_kv_heads=False)
    problem, goals = replace(large, capabilities=apart), (ttft(2.0),)
    finder = Finder(
        Ranking(sort_goals(goals, problem), problem, ()), known, ("bf16", "int8"), problem.cluster
    )
    answer = finder.best(goals, ())
    assert answer is not None
    fewer = Threshold("devices", len(answer.best.topology.devices) - 1)
    held = [most_held(grid, [*thresholds(goals, problem.workload), fewer]) for grid in finder.grids(())]
    assert answer.proofs()[0].layers == max(held) > min(held)


def test_a_certificate_speaks_of_the_target_alone(choose: Choose, large: Problem) -> None:
    running = replace(large, now=uniform(large.cluster, "A100", 2, 2, 80, "bf16"))
    goals = (ttft(2.0), Objective("gpu_count", ">=", "x", value=4, unit="gpus"))
    assert plan_of(choose(large, *goals)).target != running.now
    assert plan_of(choose(large, *goals)).certificate
    frozen = plan_of(choose(running, *goals, Placement("freeze", "gpu:gpu-0", "x")))
    assert (frozen.target, frozen.certificate) == (running.now, ())


def test_a_relative_throughput_is_beside_all_that_today_can_do(
    choose: Choose, large: Problem, known: dict[str, Profile]
) -> None:
    running = replace(large, now=uniform(large.cluster, "A100", 4, 1, 80, "bf16"))
    plan = plan_of(choose(running, Relative("throughput_tok", ">=", "as much", factor=1.0)))
    (bound,) = [margin.bound for margin in plan.margins if margin.unit == "tokens/s"]
    assert running.now is not None
    assert bound == max(one.prediction.throughput_tok_s for one in candidates(running.now, running, known))


def test_goals_relative_to_today_are_bounds_on_it(choose: Choose, large: Problem) -> None:
    now = uniform(large.cluster, "A100", 4, 1, 80, "bf16")
    plan = plan_of(choose(replace(large, now=now), Relative("cost", "<=", "a quarter less", factor=0.75)))
    assert plan.prediction.usd_per_hour <= 6.6 * (1 + 1e-9)
    assert any("said relative to today" in reason for reason in plan.reasons)


def test_an_exception_to_a_bound_that_holds_for_everyone_is_not_needed(
    choose: Choose, small: Problem
) -> None:
    plan = plan_of(choose(small, ttft(2.0), TenantException("free", "ttft", "not for free")))
    assert "the exception for free is not needed: the bound on TTFT is held for everyone" in plan.reasons


def test_a_goal_of_one_tenant_is_checked_for_everyone_and_that_is_said(
    choose: Choose, small: Problem
) -> None:
    plan = plan_of(choose(small, ttft(2.0, tenant="acme")))
    assert any("was said for acme" in reason for reason in plan.reasons)
    assert isinstance(choose(small, ttft(1e-6, tenant="acme")), Infeasible)


def test_a_kind_without_a_profile_is_left_out_by_name(
    large: Problem, known: dict[str, Profile], ticket: Ticket
) -> None:
    profiles = {"A100": known["A100"]}
    plan = plan_of(select([ttft(2.0)], large, profiles, ticket))
    assert "L40S is left out: it has no profile" in plan.reasons
    answer = infeasible(select([ttft(2.0)], large, {}, ticket))
    assert answer.nearest is None
    assert "no device kind of the inventory has a profile" in answer.reasons[0]


def test_limits_and_capabilities_bound_what_is_chosen(choose: Choose, small: Problem) -> None:
    fast = Objective("throughput_tok", "maximize", "as much as possible")
    limited = replace(small, limits=Limits(max_gpus=3, allowed_tp=(1,)))
    assert plan_of(choose(limited, fast)).target.shape in {"1x1", "PP2", "PP3"}
    engine = Capabilities((1, 2), 1, ("fp32",), tp_per_stage=False, replicated_kv_heads=False)
    assert plan_of(choose(replace(small, capabilities=engine), fast)).target.shape in {"1x1", "TP2"}


def test_today_outside_the_limits_is_left_and_the_limit_named(choose: Choose, small: Problem) -> None:
    plan = plan_of(choose(replace(small, limits=Limits(allowed_pp=(1,))), ttft(2.0)))
    assert plan.target.pp_size == 1
    assert "today's CPU PP2@fp32 is out: the limits allow PP 1" in plan.reasons
    assert plan.now_prediction is None


def test_the_plan_carries_its_ticket(choose: Choose, small: Problem) -> None:
    plan = plan_of(choose(small, ttft(2.0)))
    assert (plan.id, plan.intent_id, plan.generation, plan.window) == ("plan-1", "intent-1", 3, "peak")
    assert plan.considered > 100
    assert plan.certificate == ("on fewer than 1 devices at most 0 of 8 layers fit",)


@pytest.mark.slow
@settings(max_examples=20)
@given(bound=st.floats(0.005, 3.0), degrees=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_every_plan_holds_what_was_asked_and_every_refusal_misses_something(
    bound: float, degrees: tuple[int, int], small: Problem, known: dict[str, Profile], ticket: Ticket
) -> None:
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
        assert any(not holds(goal, answer.nearest, problem.workload) for goal in goals)


def test_no_requests_and_no_devices_have_an_answer_too(choose: Choose, large: Problem) -> None:
    idle = replace(large, workload=Workload(0.0, 800, 250, 1))
    assert isinstance(choose(idle, ttft(2.0)), Plan)
    nothing = infeasible(choose(replace(large, cluster=Cluster(())), ttft(2.0)))
    assert nothing.nearest is None
    assert nothing.reasons == ("no device kind of the inventory has a profile with an allowed precision",)


def test_the_same_question_has_the_same_answer(choose: Choose, large: Problem) -> None:
    assert choose(large, ttft(2.0), cost(10)) == choose(large, ttft(2.0), cost(10))


@pytest.mark.slow
@pytest.mark.parametrize(
    "objective",
    [
        Objective("throughput_tok", "maximize", "as much as possible"),
        Objective("ttft", "minimize", "as early as possible", "p99"),
    ],
)
def test_the_runner_up_is_the_same_wherever_it_is_looked_for(
    choose: Choose, large: Problem, monkeypatch: pytest.MonkeyPatch, objective: Objective
) -> None:
    quick = plan_of(choose(large, objective))
    monkeypatch.setattr(search, "_about", lambda *_: None)
    assert plan_of(choose(large, objective)).runner_up == quick.runner_up
