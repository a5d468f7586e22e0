"""Why nothing holds, what comes nearest and what would hold: each checked by asking for the opposite."""

import math
import re
from dataclasses import replace

import pytest

from intent.models import Config, Objective
from runtime.capabilities import Limits
from runtime.models import Cluster
from selector.models import Infeasible, Plan, SearchInput
from selector.objectives import sort_goals
from selector.prediction import candidate
from selector.ranking import Ranking
from selector.search import select
from tests.rows import rows
from tests.selector.goals import config, cost, infeasible, plan_of, ttft


@pytest.fixture
def asked(priced, counting, streams) -> SearchInput:
    """The counting model on four priced devices; nothing runs."""
    return SearchInput(priced, counting, streams, None, Limits(allowed_pp=(1, 2)))


def said_s(target: str) -> float:
    """The time that a target names."""
    number, unit = re.search(r"<= ([\d.]+) (ms|s) would hold", target).groups()
    return float(number) * {"ms": 1e-3, "s": 1.0}[unit]


@pytest.mark.slow
@rows(("metric", "model"), [("ttft", "large"), ("e2e", "small")])
def test_what_would_hold_does_and_a_tenth_less_does_not(choose, asked, large, metric, model):
    problem = {"small": asked, "large": large}[model]

    def at_most(value_s: float) -> Objective:
        return Objective(metric, "<=", "x", stat="p99", value=value_s, unit="s")

    answer = infeasible(choose(problem, at_most(1e-5)))
    assert "nothing that was simulated holds it; the best is" in answer.reasons[0]
    (target,) = [one for one in answer.feasible_targets if "would hold" in one]
    assert isinstance(choose(problem, at_most(said_s(target))), Plan)
    assert isinstance(choose(problem, at_most(0.85 * said_s(target))), Infeasible)
    assert math.isfinite(Ranking(sort_goals([at_most(1e-5)], problem), problem).shortfall(answer.nearest))


def test_goals_that_exclude_each_other_can_each_be_held_alone(choose, large):
    fast, cheap = ttft(0.9), cost(4.4)
    answer = infeasible(choose(large, fast, cheap))
    if "exclude each other" in answer.reasons[0]:
        for goal in (fast, cheap):
            assert isinstance(choose(large, goal), Plan)
    assert answer.nearest is not None
    assert answer.nearest.reason.startswith("comes nearest; ")


def test_of_too_much_load_it_is_said_how_much_holds_and_that_much_does(choose, asked):
    flooded = replace(asked, workload=replace(asked.workload, rate_rps=8.0))
    answer = infeasible(choose(flooded, ttft(1.0)))
    assert 0 < answer.share < 0.5
    assert any(f"of your {flooded.workload.rate_rps:g} requests/s" in target for target in answer.feasible_targets)
    part = replace(flooded.workload, rate_rps=flooded.workload.rate_rps * answer.share)
    assert isinstance(choose(replace(flooded, workload=part), ttft(1.0)), Plan)


def test_the_nearest_misses_least_in_proportion_of_all_that_there_is(choose, asked, known):
    goals = (ttft(0.02), cost(2.0))
    problem = replace(asked, limits=Limits(headroom=0.0))
    answer = infeasible(choose(problem, *goals))
    ranking = Ranking(sort_goals(goals, problem), problem)
    shapes = [(config("tp", "==", tp), config("pp", "==", pp)) for tp in (1, 2, 4) for pp in (1, 2, 4) if tp * pp <= 4]
    targets = [plan_of(choose(replace(problem, workload=problem.workload), *shape)).target for shape in shapes]
    least = min(ranking.shortfall(candidate(one, problem, known)) for one in targets)
    assert ranking.shortfall(answer.nearest) <= least + math.log(1.05)


@rows(
    ("wish", "reason"),
    [
        (Config("tp", "==", 3, "x"),
         "tp == 3: no allowed topology has it (TP 3 does not divide the 4 KV heads of counting; 1, 2, 4 do)"),
        (Config("tp", ">=", 5, "x"), "tp >= 5: no allowed topology has it (the largest node has 4 devices of a kind)"),
        (Config("pp", "==", 3, "x"), "pp == 3: no allowed topology has it (the limits allow PP 1, 2)"),
        (Config("replicas", "==", 9, "x"),
         "replicas == 9: no allowed topology has it (so many do not fit into the devices that may be used)"),
        (Config("lost_nodes", ">=", 1, "x"),
         ("nodes that may be lost >= 1: no allowed topology has it (what is left then misses a latency goal, or nothing is "
          "left)")),
    ],
)  # fmt: skip
def test_a_wish_for_the_topology_that_nothing_meets_gives_the_reason(choose, asked, wish, reason):
    answer = infeasible(choose(asked, wish))
    assert (answer.reasons, answer.feasible_targets) == ((reason,), ())


def test_a_goal_of_use_is_not_blamed_for_what_another_goal_rules_out(choose, asked):
    busy = Objective("gpu_util", ">=", "x", value=0.01, unit="ratio")
    answer = infeasible(choose(asked, busy, Config("tp", ">=", 5, "x")))
    assert answer.reasons[0].startswith("tp >= 5: no allowed topology has it")


def test_no_part_of_the_load_is_offered_that_costs_more_per_token_than_may_be_spent(choose, asked):
    flooded = replace(asked, workload=replace(asked.workload, rate_rps=40.0))
    for most_usd in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
        goals = (ttft(1.0), Objective("cost", "<=", "x", value=most_usd, unit="USD/Mtok"))
        answer = choose(flooded, *goals)
        if isinstance(answer, Infeasible) and any("buys" in target for target in answer.feasible_targets):
            (words,) = [target for target in answer.feasible_targets if "buys" in target]
            part_rps = float(re.search(r"buys ([\d.]+) of", words)[1])
            part = replace(flooded.workload, rate_rps=0.99 * part_rps)
            assert isinstance(choose(replace(flooded, workload=part), *goals), Plan), words


def test_with_nothing_left_it_says_what_bars_it(choose, asked, llama, known, ticket):
    too_large = infeasible(choose(replace(asked, model=llama), ttft(1.0)))
    assert too_large.nearest is None
    assert too_large.reasons[0].startswith("at most 0 of the 80 layers of llama-3-70b fit, with the KV of 8 requests")
    barred = infeasible(choose(replace(asked, limits=Limits(allowed_tp=(8,))), ttft(1.0)))
    assert barred.reasons == ("TP1@fp32: the limits allow TP 8",)
    unknown = infeasible(select([ttft(1.0)], asked, {}, ticket))
    assert unknown.reasons[0] == "no device kind of the inventory has a profile with an allowed precision"
    empty = infeasible(choose(replace(asked, cluster=Cluster(())), ttft(1.0)))
    assert empty.reasons == ("the goals leave no device",)
