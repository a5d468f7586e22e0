"""A switch keeps the bound on its stop, or is not made; what would miss it says so."""

from dataclasses import replace

import pytest

from intent.models import Goal, Objective
from runtime.models import uniform
from selector.models import Infeasible, Plan, SearchInput, Workload
from selector.planning import planned_within
from selector.search import select
from tests.selector.goals import CHEAPEST, config, infeasible, plan_of, ttft

pytestmark = pytest.mark.slow

TP2 = config("tp", "==", 2)


@pytest.fixture
def within(known, ticket):
    def call(problem: SearchInput, *goals: Goal) -> Plan | Infeasible:
        return planned_within(goals, problem, known, ticket)

    return call


def pause(value_s: float, *, soft: bool = False) -> Objective:
    return Objective("reconfig_pause", "<=", "the pause", value=value_s, unit="s", soft=soft)


@pytest.fixture(scope="module")
def pause_s(known, ticket, small):
    """How long the switch to TP2 would pause streams."""
    plan = plan_of(select([TP2], small, known, ticket))
    assert plan.target != plan.now
    return plan.switch.pause_s


def test_a_bound_that_the_switch_keeps_is_told_beside_it(within, pause_s, small):
    plan = plan_of(within(small, TP2, pause(2 * pause_s)))
    assert plan.target != plan.now
    told = plan.margins[-1]
    assert told.goal.startswith("reconfiguration pause <= ")
    assert (told.predicted, told.margin) == (pytest.approx(pause_s), pytest.approx(0.5))
    assert not plan.left_out


def test_a_hard_bound_that_every_way_misses_is_refused_with_what_could_be_held(within, pause_s, small):
    refused = infeasible(within(small, TP2, pause(pause_s / 10)))
    assert "would pause its streams for about" in refused.reasons[0]
    assert "more than reconfiguration pause <= " in refused.reasons[0]
    assert refused.reasons[1] == "CPU PP2@fp32 is all that may run; misses tp == 2"
    assert not refused.left_out
    (offer,) = refused.feasible_targets
    assert offer.startswith("reconfiguration pause <= ")
    assert plan_of(within(small, TP2, pause(pause_s + 0.001))).target != small.now


def test_a_saving_that_would_stand_still_too_long_is_not_made(within, small):
    assert plan_of(within(small, CHEAPEST)).target != small.now
    plan = plan_of(within(small, CHEAPEST, pause(1e-4)))
    assert plan.target == plan.now
    assert any("would pause its streams for about" in reason for reason in plan.reasons)
    assert plan.margins[-1].predicted == 0


def test_another_target_is_found_that_keeps_the_bound(within, mixed, llama):
    """Two A100 are cheapest, and as slow as what runs; four are quick enough."""
    now = uniform(mixed, "L40S", 4, 1, 80, "bf16")
    load = Workload(rate_rps=0.1, input_tokens=400, output_tokens=100, concurrency=2)
    running = SearchInput(mixed, llama, load, now)
    goals = (CHEAPEST, config("pp", "==", 2))
    cheapest = plan_of(within(running, *goals))
    bound = pause(cheapest.switch.pause_s * 0.9)
    plan = plan_of(within(running, *goals, bound))
    assert len(cheapest.target.devices) < len(plan.target.devices)
    assert 0 < plan.switch.pause_s <= bound.value
    said = [
        *(margin.goal for margin in plan.margins),
        *plan.reasons,
        plan.runner_up and plan.runner_up.reason,
    ]
    assert not [text for text in said if "TPOT <=" in (text or "")]
    assert any("would pause its streams for about" in reason for reason in plan.reasons)


def test_a_soft_bound_may_be_missed_and_says_so(within, pause_s, small):
    plan = plan_of(within(small, TP2, pause(pause_s / 10, soft=True)))
    assert plan.target != plan.now
    assert any(reason.startswith("misses reconfiguration pause <= ") for reason in plan.reasons)


def test_the_tightest_of_several_bounds_counts(within, pause_s, small):
    bounds = pause(pause_s * 2), pause(pause_s / 2), pause(pause_s * 3)
    assert isinstance(within(small, TP2, *bounds), Infeasible)


def test_without_a_bound_nothing_is_different(within, known, ticket, small):
    goals = (TP2, ttft(2.0))
    assert within(small, *goals) == select(goals, small, known, ticket)
    nothing_runs = replace(small, now=None)
    assert plan_of(within(nothing_runs, *goals, pause(0.001))).margins[-1].predicted == 0
