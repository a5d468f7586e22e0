"""What is planned for a segment, by the planner that serves."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from intent.models import Objective
from runtime.capabilities import Batching, Capabilities
from selector.models import ALIKE, Workload
from service.deployment.file import load
from service.deployment.profiles import load_profiles
from service.documents.plans import leads_to
from service.promises.agenda import ActiveGoal, Segment
from service.promises.planner import LEAST_SHARE, Planner, tightened

EXAMPLES = Path(__file__).parents[3] / "examples"
NOW = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def planner() -> Planner:
    deployment = load(EXAMPLES / "a100-l40s.yaml")
    (model, *_) = deployment.models
    return Planner(deployment, model, load_profiles(deployment, model, EXAMPLES))


def segment(*goals: Objective) -> Segment:
    promised = tuple(ActiveGoal("intent-1", goal, NOW) for goal in goals)
    return Segment(NOW, NOW + timedelta(hours=1), ("peak",), promised)


def test_what_holds_most_of_a_load_that_nothing_holds(planner: Planner) -> None:
    goal = Objective("ttft", "<=", "P99 TTFT < 2 s", "p99", 2.0, "s")
    asked = Workload(5.0, 2000, 500, 64, ALIKE, ALIKE)
    assert planner.outlook(segment(goal), None, None, workload=asked).plan is None
    found = planner.best_effort(segment(goal), None, None, asked)
    assert found.plan is not None
    assert LEAST_SHARE <= found.share < 1
    part = Workload(asked.rate_rps * found.share * 0.9, 2000, 500, 64, ALIKE, ALIKE)
    assert planner.outlook(segment(goal), None, None, workload=part).plan is not None


def test_where_a_goal_holds_at_no_load_the_most_throughput_is_best(planner: Planner) -> None:
    goal = Objective("ttft", "<=", "P99 TTFT < 1 us", "p99", 1e-6, "s")
    found = planner.best_effort(segment(goal), None, None, Workload(400.0, 2000, 500, 64, ALIKE, ALIKE))
    assert found.plan is not None
    assert len(found.plan.target.devices) > 1
    assert 0 < found.share < 1


def test_what_runs_is_held_against_what_comes_nearest_by_the_share_that_it_serves(planner: Planner) -> None:
    goal, asked = Objective("ttft", "<=", "P99 TTFT < 4 s", "p99", 4.0, "s"), Workload(5.0, 2000, 500, 64, ALIKE, ALIKE)
    engine = Capabilities((1, 2, 4), 4, ("bf16",), True, True, batching=Batching(256, 2048))
    best = planner.best_effort(segment(goal), None, engine, asked)
    assert best.plan is not None
    nearly = planner.held(best.plan.target, segment(goal), replace(engine, running=best.plan.batching), asked)
    assert nearly > 0
    assert abs(nearly - best.share) <= 2 * LEAST_SHARE
    small = planner.outlook(segment(goal), None, engine, workload=Workload(0.2, 2000, 500, 4, ALIKE, ALIKE)).plan
    assert small is not None
    assert planner.held(small.target, segment(goal), engine, asked) < nearly


def test_a_switch_out_of_what_holds_far_less_than_is_asked_has_a_stop_too(planner: Planner) -> None:
    goal = Objective("ttft", "<=", "P99 TTFT < 2 s", "p99", 2.0, "s")
    small = planner.outlook(segment(goal), None, None, workload=Workload(0.1, 2000, 500, 2, ALIKE, ALIKE)).plan
    assert small is not None
    asked = Workload(0.8, 2000, 500, 4, ALIKE, ALIKE)
    over = planner.prediction(small.target, asked, None)
    assert over is not None
    assert over.tpot_s["mean"] == math.inf
    found = planner.outlook(segment(goal), small.target, None, workload=asked)
    assert found.changes
    assert found.plan is not None
    assert found.plan.switch is not None
    assert 0 < found.plan.switch.stop_s < 10


def test_bounds_on_latencies_alone_are_tightened_by_how_slow_what_runs_is() -> None:
    ttft = Objective("ttft", "<=", "P99 TTFT < 2 s", "p99", 2.0, "s")
    devices = Objective("gpu_count", "<=", "at most four", value=4)
    assert tightened(ttft, 2.0) == Objective("ttft", "<=", "P99 TTFT < 2 s", "p99", 1.0, "s")
    assert tightened(devices, 2.0) == devices


def test_steps_that_are_filled_otherwise_are_a_change_with_a_name_of_its_own(planner: Planner) -> None:
    """So that what people and failures say of it is not said of what runs."""
    goal, few = Objective("ttft", "<=", "P99 TTFT < 20 s", "p99", 20.0, "s"), Batching(8, 256)
    first = planner.outlook(segment(goal), None, None).plan
    assert first is not None
    stays = replace(first, now=first.target, batching=None, now_batching=few)
    found = planner.outlook(segment(goal), first.target, None)
    for plan, changes, target in (
        (stays, False, str(first.target)),
        (replace(stays, batching=few), False, str(first.target)),
        (
            replace(stays, batching=Batching(9, 256)),
            True,
            f"{first.target} with 9 sequences at once, 256 tokens a step",
        ),
        (replace(stays, now=None, batching=few), True, str(first.target)),
    ):
        made = replace(found, answer=plan)
        assert (made.changes, made.target) == (changes, target)
        ahead = made.ahead(NOW)
        assert (ahead is not None, ahead and ahead.target) == (changes, target if changes else None)
    assert leads_to("a", "a", few) != leads_to("b", "a", few) == "a"
