"""Where the agenda switches and where it stays: planned by the planner that serves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from intent.models import Goal, Objective, Placement
from runtime.capabilities import Capabilities
from runtime.notation import parse_topology
from service.deployment.file import load
from service.deployment.profiles import load_profiles
from service.promises.agenda import ActiveGoal, cut
from service.promises.course import PlannedSegment
from service.promises.decide import Hold
from service.promises.people import NEVER
from service.promises.planner import Planner
from tests.rows import rows

EXAMPLES = Path(__file__).parents[3] / "examples"
EIGHT = datetime(2026, 1, 5, 8, tzinfo=UTC)
QUICK = Objective("ttft", "<=", "P99 TTFT < 5 s", "p99", 5.0, "s")
CHEAPEST = Objective("cost", "minimize", "as cheap as possible")
A100, L40S = "A100[0,1,2,3]:0-80@bf16", "L40S[4,5,6,7]:0-80@bf16"
BUSY, CALM = 2.0, 0.5
"""Requests/s that four A100 hold, and that four L40S hold as well."""

Agenda = Callable[..., list[PlannedSegment]]


@pytest.fixture(scope="module")
def agenda(tmp_path_factory) -> Agenda:
    def planned(
        spans: Sequence[tuple[int, float]],
        goals: Sequence[Goal] = (QUICK, CHEAPEST),
        runs: str = A100,
        promises: Mapping[str, float] | None = None,
        engine: Capabilities | None = None,
        **how: object,
    ) -> list[PlannedSegment]:
        """With windows of so many minutes and so many requests/s from eight on; then it is calm for the rest of two days."""
        data = yaml.safe_load((EXAMPLES / "a100-l40s.yaml").read_text())
        begins, windows, workload = EIGHT, {}, {"always": data["workload"]["always"] | {"rate_rps": CALM}}
        for number, (minutes, rate_rps) in enumerate(spans):
            ends = begins + timedelta(minutes=minutes)
            windows[f"w{number}"] = {"start": f"{begins:%H:%M}", "end": f"{ends:%H:%M}"}
            workload[f"w{number}"] = workload["always"] | {"rate_rps": rate_rps}
            begins = ends
        data |= {"windows": windows, "workload": workload, "promises": promises or {"stay_s": 1800}}
        data["models"][0]["config"] = str(EXAMPLES / "llama-3-70b/config.json")
        file = tmp_path_factory.mktemp("course") / "deployment.yaml"
        file.write_text(yaml.safe_dump(data))
        deployment = load(file)
        (model,) = deployment.models
        planner = Planner(deployment, model, load_profiles(deployment, model, EXAMPLES))
        promised = [ActiveGoal("intent-1", goal, EIGHT) for goal in goals]
        segments = cut(promised, deployment.windows, EIGHT, EIGHT + timedelta(hours=20))
        now = parse_topology(runs, model.cluster, 80, "bf16")
        return planner.agenda(segments, now, engine, **how)

    return planned


def switches(found: Sequence[PlannedSegment]) -> list[tuple[str, str | None]]:
    """When each begins, and to which devices."""
    return [(f"{each.segment.begins:%H:%M}", each.target and each.target[:4]) for each in found if each.changes]


FLAPPING = [(10, CALM), (10, BUSY)] * 6


def test_windows_of_ten_minutes_are_served_by_what_holds_all_of_them(agenda):
    found = agenda(FLAPPING)
    assert switches(found) == [("10:00", "L40S")], "then it is calm for good"
    assert "for 10 min is for less than promises.stay_s" in found[0].kept
    assert all(each.plan is not None for each in found)


def test_from_what_does_not_hold_the_busy_ones_there_is_one_switch_more(agenda):
    assert switches(agenda(FLAPPING, runs=L40S)) == [("08:10", "A100"), ("10:00", "L40S")]


def test_whoever_says_so_has_a_switch_for_every_window_that_saves_anything(agenda):
    eager = {"stay_s": 0, "least_gain": 0}
    hours = [(60, CALM), (60, BUSY)] * 3
    assert len(switches(agenda(hours, promises=eager))) == 7
    assert len(switches(agenda(hours))) == 1
    found = agenda(FLAPPING, promises=eager)
    assert "and back saves -0." in found[0].kept, "both sides are occupied twice, for minutes"
    assert len(switches(found)) == 1


@rows(
    ("minutes", "expected"),
    [
        (70, [("10:10", "L40S")]),  # there and back would save 4 of 211 USD a day
        (480, [("08:00", "L40S"), ("16:00", "A100"), ("17:00", "L40S")]),
    ],
)
def test_a_round_trip_is_made_where_it_saves_enough_of_a_day(agenda, minutes, expected):
    found = agenda([(minutes, CALM), (60, BUSY)])
    assert switches(found) == expected
    assert ("and back saves 2" in found[0].kept) == (minutes == 70)


def test_what_a_hard_goal_needs_is_done_however_soon(agenda):
    least = Objective("cost", "<=", "at most 5 USD/h", value=5.0, unit="USD/h", window="w1")
    found = agenda([(10, BUSY), (10, CALM), (600, BUSY)], (QUICK, CHEAPEST, least), runs=L40S)
    assert switches(found)[:3] == [("08:00", "A100"), ("08:10", "L40S"), ("08:20", "A100")]


def test_what_was_switched_to_a_moment_ago_stays_and_the_segment_is_divided(agenda):
    found = agenda([], since=EIGHT - timedelta(minutes=10))
    assert [f"{each.segment.begins:%H:%M}" for each in found] == ["08:00", "08:20"]
    assert switches(found) == [("08:20", "L40S")]
    assert "promises.stay_s" in found[0].kept


@rows(("until", "then"), [(EIGHT + timedelta(minutes=30), [("08:30", "L40S")]), (NEVER, [])])
def test_what_somebody_keeps_is_left_when_that_ends(agenda, until, then):
    assert switches(agenda([])) == [("08:00", "L40S")]
    found = agenda([], hold=Hold("ada pinned it", until))
    assert (found[0].kept, found[0].target[:4]) == ("ada pinned it", "A100")
    assert found[0].plan.prediction == found[0].plan.now_prediction
    assert switches(found) == then


def test_nothing_is_saved_by_an_outage(agenda):
    here = Placement("require", "gpu_type:A100", "on A100")
    alone = Capabilities((1, 2, 4), 80, ("fp8",), tp_per_stage=True, replicated_kv_heads=False, shares_weights=False)
    ways = [replace(alone, kv_bytes=gb * 10**9) for gb in (10, 22)]
    beside, ends_first = (agenda([], (here, CHEAPEST), "A100[0,1,2,3]:0-80@fp8", engine=engine)[0] for engine in ways)
    assert beside.changes
    assert not ends_first.changes


def test_the_first_ones_are_planned_with_the_others_in_view(agenda):
    assert switches(agenda(FLAPPING, upto=2)) == []
    assert len(agenda(FLAPPING, upto=2)) == 2


def test_a_switch_begins_by_the_most_that_preparing_takes(agenda):
    found = agenda([(60, CALM), (600, BUSY)], runs=L40S)
    ahead = found[1].ahead(EIGHT)
    assert ahead is not None
    assert ahead.takes_s >= found[1].plan.switch.prepare_most_s > 1.3 * found[1].plan.switch.prepare_s
