"""Plans are held against the simulator, and say what it says where the closed forms differ."""

import math
from dataclasses import replace

import pytest

from benchmarks.questions import ENGINE, questions
from intent.models import Objective
from runtime.models import uniform
from runtime.notation import parse_topology
from selector import planning
from selector.models import Infeasible, Plan, Prediction, SearchInput, Workload
from selector.planning import SimulatedPrediction, planned
from selector.prediction import Simulated, candidate, simulated
from selector.search import select
from tests.rows import rows
from tests.selector.goals import alike, plan_of

PREDICTED = Prediction(alike(1.0), alike(0.1), alike(11.0), 1000.0, 0.5, 4.0, 64, 0.0, 0.1, "measured", devices=2)


def seen(
    served_s: float = 1.0, *, grows: bool = False, sustained: float = 1000.0, **more: float
) -> SimulatedPrediction:
    predicted = replace(PREDICTED, **{name: alike(value) for name, value in more.items()})
    return SimulatedPrediction(predicted, Simulated(900, grows, alike(served_s), alike(0.1), alike(11.0)), sustained)


def at_most(value: float) -> Objective:
    return Objective("ttft", "<=", "x", stat="p99", value=value, unit="s")


@rows(
    ("ttft_s", "goal", "expected"),
    [(1.05, 2.0, 1.0), (1.3, 2.0, 1.3), (0.7, 2.0, 0.7), (1.05, 1.02, 1.05)],
    ids=["within the band", "slower", "faster", "on the other side of a bound"],
)
def test_a_simulation_is_believed_where_it_says_otherwise(ttft_s, goal, expected):
    found = seen(ttft_s).believed([at_most(goal)], 500.0)
    assert found.ttft_s["p99"] == expected
    assert found.simulated == (("ttft",) if expected == ttft_s else ())
    assert found.tpot_s == PREDICTED.tpot_s


def test_without_end_is_said_only_where_the_load_exceeds_what_is_sustained():
    endless = seen(9.0, grows=True, ttft_s=math.inf)
    assert math.isinf(endless.believed([], 1100.0).ttft_s["p99"])
    assert endless.believed([], 900.0).ttft_s["p99"] == 9.0
    assert seen(9.0, ttft_s=math.inf).believed([], 1100.0).ttft_s["p99"] == 9.0, "its waits do not grow"


def test_what_is_sustained_is_believed_where_the_closed_form_is_off():
    found = seen(sustained=1500.0).believed([], 750.0)
    assert (found.throughput_tok_s, found.gpu_util) == (1500.0, 0.5)


def test_corrections_are_what_was_seen_by_what_was_predicted():
    found = seen(1.5, sustained=800.0, tpot_s=math.inf).corrections
    assert found["ttft", "p95"] == pytest.approx(1.5)
    assert found["rate", "mean"] == pytest.approx(0.8)
    assert ("tpot", "mean") not in found


def test_corrections_scale_what_is_predicted(mixed, llama, known):
    topology = uniform(mixed, "A100", 4, 1, 80, "bf16")
    problem = SearchInput(mixed, llama, Workload(1.0, 800, 250, 8), None)
    plain = candidate(topology, problem, known)
    scaled = candidate(topology, replace(problem, corrections={("ttft", "p99"): 2.0, ("rate", "mean"): 0.5}), known)
    assert scaled.prediction.ttft_s["p99"] == pytest.approx(2 * plain.prediction.ttft_s["p99"])
    assert scaled.prediction.ttft_s["mean"] == plain.prediction.ttft_s["mean"]
    assert scaled.prediction.throughput_tok_s == pytest.approx(plain.prediction.throughput_tok_s / 2)


@pytest.fixture
def uneven(mixed, llama) -> SearchInput:
    """A pipeline of unlike stages, of whose TTFT the closed form says too much by half."""
    topology = parse_topology("A100x4:0-60@bf16 > L40Sx4:60-80@bf16", mixed, 80, "bf16")
    return SearchInput(mixed, llama, Workload(0.1, 800, 250, 2), topology, capabilities=ENGINE)


@pytest.mark.slow
def test_what_runs_stays_where_its_simulation_holds_the_goals(uneven, known, ticket):
    closed, served = candidate(uneven.now, uneven, known), simulated(uneven.now, uneven, known)
    between = math.sqrt(closed.prediction.ttft_s["p99"] * served.ttft_s["p99"])
    assert served.ttft_s["p99"] < between < closed.prediction.ttft_s["p99"]
    plan = plan_of(planned([at_most(between)], uneven, known, ticket))
    assert plan.target == uneven.now
    assert "ttft" in plan.prediction.simulated


@pytest.mark.slow
def test_the_signs_of_margins_are_those_of_the_simulation(known, ticket):
    for question in questions(4, 4)[15:50:7]:
        answer = planned(question.goals, question.problem, known, ticket)
        if isinstance(answer, Infeasible):
            continue
        served = simulated(answer.target, question.problem, known)
        assert served is not None
        bounds = [
            goal
            for goal in question.goals
            if isinstance(goal, Objective) and goal.op == "<=" and goal.metric in {"ttft", "tpot", "e2e"}
        ]
        for goal in bounds:
            reading = getattr(served, f"{goal.metric}_s")[goal.stat]
            assert reading <= (goal.value or 0.0) * 1.02, (str(answer.target), goal)


def test_few_searches_end_with_the_best_that_was_simulated(mixed, llama, known, ticket, monkeypatch):
    """A simulation that is always far slower than predicted, so that no search is ever borne out."""

    def slower(*arguments: object) -> Simulated:
        found = simulated(*arguments)
        return replace(found, ttft_s={stat: 50 * value for stat, value in found.ttft_s.items()})

    corrected = list[bool]()

    def searched(goals: object, problem: SearchInput, *arguments: object) -> Plan | Infeasible:
        corrected.append(("ttft", "p99") in problem.corrections)
        return select(goals, problem, *arguments)

    monkeypatch.setattr(planning, "simulated", slower)
    monkeypatch.setattr(planning, "select", searched)
    problem = SearchInput(mixed, llama, Workload(0.5, 800, 250, 4), None, capabilities=ENGINE)
    answer = planned([at_most(2.0)], problem, known, ticket)
    assert isinstance(answer, Infeasible)
    assert answer.nearest.prediction.ttft_s["p99"] > 2.0
    assert corrected[:3] == [False, False, True]
