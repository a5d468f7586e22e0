"""A slice of the random deployments, and that each kind of fault is seen where there is one."""

import json
from dataclasses import replace

import pytest

from benchmarks import decisions
from benchmarks.decisions import judged, main, table
from benchmarks.deployments import Case, case
from benchmarks.exhaustive import deal, moved, seatings, shared
from benchmarks.questions import cluster_of
from benchmarks.refusals import read_number
from benchmarks.verdicts import KINDS, Verdict
from runtime.notation import parse_topology
from selector import explain
from selector.models import Candidate, Infeasible, Plan
from tests.rows import rows

pytestmark = pytest.mark.slow

SEED = 1
SLICE = (4, 5, 6, 9, 10, 14, 23, 35, 41, 44)
"""Deployments that are asked here: small ones that take little, and every engine."""
PLANNED = 4
"""One where something is to be as small as it can be."""
REFUSED = 9


@pytest.fixture(scope="module")
def planned() -> Verdict:
    return Verdict(case(PLANNED, SEED))


@pytest.fixture(scope="module")
def refused() -> Verdict:
    return Verdict(case(REFUSED, SEED))


def plan_of(verdict: Verdict) -> Plan:
    assert isinstance(verdict.answer, Plan)
    return verdict.answer


def kinds(verdict: Verdict, answer: Plan | Infeasible) -> set[str]:
    """What is found to be wrong where something else had been answered."""
    kept = verdict.answer
    verdict.answer = answer
    try:
        return {fault.kind for fault in verdict.faults()}
    finally:
        verdict.answer = kept


def test_nothing_is_wrong_with_a_slice() -> None:
    found = judged(case(number, SEED) for number in SLICE)
    assert found["examples"] == {kind: [] for kind in KINDS}
    assert found["faults"] == dict.fromkeys(KINDS, 0)
    assert found["answers"]["plan"] >= 3
    assert found["answers"]["refusal"] >= 2


def test_a_deployment_is_the_same_each_time_and_of_all_sorts() -> None:
    assert str(case(7, SEED)) == str(case(7, SEED))
    assert case(7, SEED).problem == case(7, SEED).problem
    some = [case(number, SEED) for number in range(24)]
    assert {one.model.name for one in some} == {"llama-3.1-8b", "qwen3-32b", "llama-3-70b", "mixtral-8x7b"}
    assert 4 < sum(one.problem.now is not None for one in some) < 20
    assert {one.problem.capabilities is None for one in some} == {True, False}
    assert {goal.type for one in some for goal in one.goals} >= {"objective", "relative", "precision", "priority"}
    assert min(one.load_by_inventory for one in some) < 0.05
    assert max(one.load_by_inventory for one in some) > 1
    assert sum(one.is_small for one in some) > 12


def test_another_prediction_and_another_plan_are_contradictions(planned: Verdict) -> None:
    plan = plan_of(planned)
    assert kinds(planned, plan) == set()
    assert "contradiction" in kinds(planned, replace(plan, prediction=replace(plan.prediction, batch=1)))


def test_a_margin_with_the_wrong_sign_is_seen(planned: Verdict) -> None:
    plan = plan_of(planned)
    margins = tuple(replace(margin, margin=-1.0) for margin in plan.margins)
    assert "margin" in kinds(planned, replace(plan, margins=margins))


def test_a_worse_plan_is_seen(planned: Verdict) -> None:
    plan = plan_of(planned)
    aim = planned.demands.optimised[0]
    others = [one for one in planned.everything.holding(()) if not planned.ranking.missed(planned.demands.bounds, one)]
    assert planned.best_of_all
    worst = max(
        [*others, *planned.everything.holding(planned.demands.bounds)],
        key=lambda one: planned.ranking.reading(aim, one),
    )
    assert "worse" in kinds(planned, as_planned(plan, worst, planned))


def as_planned(plan: Plan, found: Candidate, verdict: Verdict) -> Plan:
    """A plan to something else."""
    stated = (*verdict.demands.bounds, *verdict.demands.wishes)
    margins = tuple(verdict.ranking.margin(bound, found) for bound in stated)
    return replace(plan, target=found.topology, batching=found.batching, prediction=found.prediction, margins=margins)


def test_a_refusal_of_what_holds_is_seen(planned: Verdict) -> None:
    assert kinds(planned, Infeasible(("nothing holds it",), None)) >= {"refused", "contradiction"}


def test_the_furthest_in_place_of_the_nearest_is_seen(refused: Verdict) -> None:
    answer = refused.answer
    assert isinstance(answer, Infeasible)
    assert refused.best_of_all
    furthest = max(refused.everything.holding(()), key=refused.ranking.shortfall)
    assert kinds(refused, answer) == set()
    assert "not nearest" in kinds(refused, replace(answer, nearest=furthest))
    assert "not nearest" in kinds(refused, replace(answer, nearest=None))


@rows(
    ("told", "kind"),
    [
        ("{easy} would hold on L40S", "false target"),
        ("every goal holds at {rate} of your {rate} requests/s on L40S", "false part"),
    ],
)
def test_an_offer_that_is_refused_when_it_is_taken_is_false(refused: Verdict, told: str, kind: str) -> None:
    answer = refused.answer
    assert isinstance(answer, Infeasible)
    (bound, *_) = refused.demands.bounds
    rate_rps = refused.problem.workload.rate_rps
    offer = told.format(easy=explain.goal_words(bound), rate=f"{rate_rps:.3g}")
    assert kinds(refused, replace(answer, feasible_targets=(offer,))) == {kind}


def test_a_reason_is_false_where_the_goal_is_held(refused: Verdict) -> None:
    """Keeping up is held by something, alone."""
    answer = refused.answer
    assert isinstance(answer, Infeasible)
    easy = refused.demands.bounds[-1]
    words = explain.goal_words(easy)
    assert "workload" in words or "headroom" in words
    assert "false reason" in kinds(refused, replace(answer, reasons=(f"{words}: nothing holds it; the best is 9",)))


def test_everything_is_every_seat_every_split_and_no_device_twice() -> None:
    cluster = cluster_of(2, 1)
    found = seatings(cluster)
    assert (("A100", 2), ("L40S", 1)) in found
    assert (("L40S", 1), ("A100", 1), ("A100", 1)) in found
    assert len(found) == len(set(found)) == 10
    assert deal(cluster, (("A100", 1), ("A100", 1), ("L40S", 1)), {1}) == [(1,), (0,), (2,)]
    assert deal(cluster, (("A100", 2), ("A100", 1)), set()) == []
    assert shared((3.0, 1.0), 80) == (0, 60, 80)
    two = parse_topology("A100[0]:0-40@bf16 > A100[1]:40-80@bf16", cluster, 80)
    assert {one.stages[0].layers.end for one in moved(two, 80)} == {36, 44}


@rows(
    ("number", "unit", "value"),
    [("88", "ms", 0.088), ("1,104", "tokens/s", 1104.0), ("2", "%", 0.02), ("3", None, 3.0)],
)
def test_an_amount_is_read_as_goals_have_it(number: str, unit: str | None, value: float) -> None:
    assert read_number(number, unit) == pytest.approx(value)


def test_one_document_is_printed_and_written(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(decisions, "cases", lambda count, seed: [case(SLICE[0], seed)] * count)
    file = tmp_path / "decisions.json"
    assert main(["--deployments", "1", "--no-times", "--json", str(file)]) == 0
    document = json.loads(file.read_text(encoding="utf-8"))
    assert {"commit", "hardware", "parameters", "faults", "examples"} <= document.keys()
    assert "dominated" in capsys.readouterr().out
    assert main(["--only", str(SLICE[0])]) == 0


def test_an_answer_that_breaks_is_counted_and_shown(monkeypatch) -> None:
    def broken(_case: Case) -> Verdict:
        raise ValueError("no answer")

    monkeypatch.setattr(decisions, "Verdict", broken)
    found = judged([case(SLICE[0], SEED)])
    assert found["faults"]["error"] == 1
    assert any("--only 4 --seed 1" in line for line in table({**found, "times": []}))
