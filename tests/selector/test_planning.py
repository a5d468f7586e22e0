"""One question has one number, whoever asks it; and a plan to what is named."""

from dataclasses import replace

import pytest

from benchmarks.questions import questions
from intent.models import Config
from runtime.capabilities import Batching
from runtime.errors import TopologyError
from runtime.models import uniform
from selector.models import Plan, SearchInput
from selector.planning import named
from selector.prediction import candidate
from selector.search import select
from tests.selector.goals import plan_of


@pytest.mark.slow
def test_a_plan_says_of_its_target_and_of_today_what_is_said_of_them_alone(known, ticket):
    plans = 0
    for question in questions(4, 4)[1::31]:
        problem = question.problem
        plan = select(question.goals, problem, known, ticket)
        if isinstance(plan, Plan):
            plans += 1
            assert candidate(plan.target, problem, known, plan.batching).prediction == plan.prediction
            if plan.now_prediction:
                assert candidate(problem.now, problem, known).prediction == plan.now_prediction
            if plan.runner_up:
                second = plan.runner_up
                assert candidate(second.topology, problem, known, second.batching).prediction == second.prediction
    assert plans > 1


def test_a_named_topology_is_told_of_as_a_searched_one(small, known, ticket):
    plan = plan_of(select([Config("tp", "==", 2, "x")], small, known, ticket))
    told = named(plan.target, replace(small, limits=small.limits), known, ticket)
    assert (told.target, told.prediction, told.now_prediction) == (plan.target, plan.prediction, plan.now_prediction)
    assert told.reasons[0].startswith("named, not searched for: CPU TP2@fp32")
    assert told.switch == plan.switch


def test_what_a_named_topology_cannot_be_told_of_is_refused(large, known, ticket):
    small = uniform(large.cluster, "A100", 1, 1, 80, "bf16")
    with pytest.raises(TopologyError, match="does not hold the workload"):
        named(small, large, known, ticket)
    with pytest.raises(TopologyError, match="nothing is known of how fast it is"):
        named(uniform(large.cluster, "A100", 4, 1, 80, "bf16"), large, {}, ticket)


def test_what_runs_is_named_with_the_steps_that_it_has(mixed, llama, peak, known, ticket):
    now = uniform(mixed, "A100", 4, 1, 80, "bf16")
    problem = SearchInput(mixed, llama, peak, now, running=Batching(64, 512))
    plan = named(now, problem, known, ticket)
    assert plan.now_batching == Batching(64, 512)
    assert plan.now_prediction == candidate(now, problem, known, Batching(64, 512)).prediction
