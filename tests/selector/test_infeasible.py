"""Why nothing holds, what comes nearest and what would hold."""

from dataclasses import replace

import pytest

from intent.models import Config, Goal, Objective
from runtime.capabilities import Limits
from runtime.models import Cluster, ModelSpec, Topology
from runtime.notation import parse_topology
from selector.finder import Finder, why_infeasible
from selector.models import Infeasible, Profile, SearchInput, Workload
from selector.objectives import sort_goals
from selector.ranking import Ranking
from tests.rows import rows
from tests.selector.goals import predicted

FAST = Objective("ttft", "<=", "x", stat="mean", value=1.0, unit="s")
CHEAP = Objective("cost", "<=", "x", value=2.0, unit="USD/h")


@pytest.fixture
def ask(priced, counting, known) -> "Ask":
    return Ask(priced, counting, known)


class Ask:
    """Two candidates: ``CPU 1x1`` at 2 USD/h and ``CPU TP2`` at 4, with the TTFTs given."""

    def __init__(self, cluster: Cluster, model: ModelSpec, known: dict[str, Profile]) -> None:
        self.known = known
        self.problem = SearchInput(cluster, model, Workload(1, 10, 10, 1), None)

    def topology(self, text: str) -> Topology:
        return parse_topology(text, self.problem.cluster, 8, "fp32")

    def __call__(self, goals: list[Goal], slow_s: float, fast_s: float) -> Infeasible:
        figures = {"CPU[0]": (slow_s, 2.0), "CPU[0,1]": (fast_s, 4.0)}
        candidates = [predicted(self.topology(text), ttft_s, usd=usd) for text, (ttft_s, usd) in figures.items()]
        demands = sort_goals(goals, self.problem)
        ranking = Ranking(demands, self.problem, candidates)
        return why_infeasible(ranking, Finder(ranking, self.known, ("fp32",), self.problem.cluster))


def test_a_goal_that_nothing_holds_is_named_with_the_best_there_is(ask):
    answer = ask([FAST, Objective("cost", "<=", "x", value=9.0, unit="USD/h")], 3.0, 1.5)
    assert answer.reasons == ("mean TTFT <= 1 s: no allowed topology holds it; the best is 1.5 s on CPU TP2@fp32",)
    assert answer.feasible_targets == ("mean TTFT <= 1.5 s would hold on CPU TP2@fp32",)
    assert answer.nearest.topology == ask.topology("CPU[0,1]")
    assert answer.nearest.reason == "comes nearest; misses mean TTFT <= 1 s"


def test_goals_that_exclude_each_other_are_named_together(ask):
    answer = ask([FAST, CHEAP], 1.2, 0.8)
    (reason,) = answer.reasons
    assert reason.startswith("mean TTFT <= 1 s and cost <= 2 USD/h exclude each other: each can be held alone")
    assert answer.feasible_targets == ("mean TTFT <= 1.2 s would hold on CPU 1x1@fp32",)


def test_the_nearest_misses_least_in_proportion(ask):
    nearest = ask([FAST, CHEAP], 100.0, 0.8).nearest
    assert nearest.topology == ask.topology("CPU[0,1]"), "twice the price is nearer than a hundred times the TTFT"


def test_a_target_that_needs_another_goal_to_give_way_says_so(ask):
    cheaper = Objective("cost", "<=", "x", value=1.0, unit="USD/h")
    answer = ask([FAST, cheaper], 3.0, 1.5)
    assert all(target.endswith(", without the other goals") for target in answer.feasible_targets)


def test_targets_are_rounded_to_the_side_that_holds(ask):
    most = Objective("gpu_count", ">=", "x", value=3, unit="gpus")
    assert ask([FAST], 3.0, 1.501).feasible_targets == ("mean TTFT <= 1.6 s would hold on CPU TP2@fp32",)
    assert ask([most], 3.0, 1.5).feasible_targets == ("GPUs >= 2 would hold on CPU TP2@fp32",)


@rows(
    ("wish", "reason"),
    [
        (
            Config("tp", "==", 3, "x"),
            "tp == 3: no allowed topology has it (TP 3 does not divide the 4 KV heads of counting)",
        ),
        (
            Config("tp", ">=", 5, "x"),
            "tp >= 5: no allowed topology has it (the largest node has 4 devices of a kind)",
        ),
        (Config("pp", "==", 3, "x"), "pp == 3: no allowed topology has it (the limits allow PP 1, 2)"),
        (
            Config("replicas", "==", 2, "x"),
            "replicas == 2: no allowed topology has it (replicas are 1, 2, 4 or 8, over a network)",
        ),
    ],
)
def test_a_wish_for_the_topology_that_nothing_meets_gives_the_reason(ask, wish, reason):
    ask.problem = replace(ask.problem, limits=Limits(allowed_pp=(1, 2)))
    answer = ask([wish], 0.5, 0.5)
    assert (answer.reasons, answer.feasible_targets) == ((reason,), ())


def test_with_nothing_left_it_says_how_much_would_fit(ask, llama):
    ask.problem = replace(ask.problem, model=llama)
    ranking = Ranking(sort_goals([FAST], ask.problem), ask.problem, [])
    answer = why_infeasible(ranking, Finder(ranking, ask.known, ("fp32",), ask.problem.cluster))
    assert answer.nearest is None
    assert answer.reasons[0].startswith("at most 0 of the 80 layers of llama-3-70b fit, with the KV of 1 requests")


def test_with_nothing_allowed_each_reason_is_given_once_with_an_example(ask):
    ask.problem = replace(ask.problem, limits=Limits(allowed_tp=(8,)))
    ranking = Ranking(sort_goals([FAST], ask.problem), ask.problem, [])
    assert why_infeasible(ranking, Finder(ranking, ask.known, ("fp32",), ask.problem.cluster)).reasons == (
        "TP1@fp32: the limits allow TP 8",
    )
    unknown = why_infeasible(ranking, Finder(ranking, {}, (), ask.problem.cluster))
    assert unknown.reasons == ("no device kind of the inventory has a profile with an allowed precision",)
