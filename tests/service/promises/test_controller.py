"""A keeper in virtual time: days, surprises, noise, dead measurements, clocks that jump."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from intent.models import FromNowWindow, ReconfigRule, RecurringWindow
from selector.models import Workload
from service.deployment.policy import Rules
from service.promises.agenda import ActiveGoal
from service.promises.attainment import RequestSample
from service.promises.course import PlannedSegment
from service.promises.decide import PastSwitch
from tests.rows import rows
from tests.service.promises.world import (
    DECLARED,
    MONDAY,
    TTFT,
    UTIL,
    WINDOWS,
    Capacities,
    World,
    always,
    load,
    topology,
)

pytestmark = pytest.mark.slow

DAY_S, HOUR_S = 86_400.0, 3600.0
GOALS = [always(TTFT), always(UTIL)]
ONE, TWO, FOUR = (str(topology(size)) for size in (1, 2, 4))


def declared(now: datetime) -> float:
    """The load of each window as the deployment has it."""
    is_peak = now.weekday() < 5 and 9 <= now.hour < 21
    return DECLARED["peak" if is_peak else "off_peak"]


def causes(world: World) -> list[str]:
    return [cause for _, cause, _ in world.switches]


def test_a_day_is_ready_before_its_peak_and_small_after_it() -> None:
    world = World(declared, GOALS)
    for until_h, every_s in ((8.5, 60), (9.5, 15), (20.9, 60), (21.1, 10), (24, 60)):
        world.run(until_h * HOUR_S - world.now_s, every_s)
    (up, down) = world.switches
    assert up[1:] == ("window", FOUR)
    assert MONDAY.replace(hour=8, minute=58) < up[0] < MONDAY.replace(hour=8, minute=59, second=20)
    assert down[1:] == ("window", ONE)
    assert MONDAY.replace(hour=21) <= down[0] <= MONDAY.replace(hour=21, second=10)
    assert world.verdicts == ["recovered", "recovered"]


def test_a_surprise_is_rescued_and_taken_back_when_it_was_calm() -> None:
    tuesday = MONDAY + timedelta(days=1)
    world = World(lambda now: 3.5 if now.hour == 3 else declared(now), GOALS, begins=tuesday)
    world.run(6 * HOUR_S)
    (rescue, back) = world.switches
    assert rescue[1:] == ("rescue", TWO)
    assert rescue[0] < tuesday.replace(hour=3, minute=1)
    assert back[1] in {"return", "saving"}
    assert back[2] == ONE
    assert tuesday.replace(hour=4, minute=4) <= back[0] <= tuesday.replace(hour=4, minute=8)


def test_a_load_that_will_break_a_goal_is_acted_on_before_it_does() -> None:
    """Requests wait in a queue that grows; none has missed its bound yet."""
    world = World(lambda now: 3.5 if now.hour >= 3 else 1.5, GOALS[:1], speed={1: 3.0})
    world.run(4 * HOUR_S)
    assert [switch[1:] for switch in world.switches] == [("rescue", TWO)]
    assert world.reasons == ["p99 TTFT <= 2 s (soon) is missed for 15 s"]


def test_what_was_planned_against_a_miss_stands_for_a_minute() -> None:
    """Measured loads differ a little from look to look; planning for each would take time from serving."""
    noise = random.Random(3)
    world = World(lambda _now: noise.uniform(95, 105), GOALS[:1])
    world.run(HOUR_S)
    assert world.planner.rescues <= 120  # with predictions corrected, and as they are


def test_what_is_saved_is_planned_for_the_load_that_is_measured() -> None:
    """At a load below the declared one fewer devices do, and a goal on utilisation says so."""
    util = replace(UTIL, window="always")
    world = World(lambda _now: 1.0, [always(util)], declared={"always": 3.0}, windows={}, runs=topology(2))
    world.run(HOUR_S)
    assert [switch[1:] for switch in world.switches] == [("saving", ONE)]


def test_requests_that_wait_for_longer_than_they_may_have_missed_already() -> None:
    world = World(lambda _now: 0.0, GOALS[:1])
    world.run(60)
    world.waits_s = [("", 2.5)] * 6
    assert "p99 TTFT <= 2 s is missed" in world.tick(1).decision.reason
    world.waits_s = [("", 1.5)] * 6
    assert "missed" not in world.tick(1).decision.reason


def test_what_runs_is_left_where_it_misses_what_it_is_predicted_to_hold() -> None:
    """Requests come in bursts, say: no prediction knows, and nothing that was answered was late."""
    world = World(lambda _now: 0.5, GOALS[:1])
    world.run(60)
    world.waits_s = [("", 2.5)] * 4
    world.run(30)
    assert [switch[1:] for switch in world.switches] == [("rescue", FOUR)]
    assert "p99 TTFT <= 2 s is missed" in world.reasons[0]


def test_what_was_planned_against_a_miss_to_come_is_planned_again_when_it_has_come() -> None:
    """The closer look of a plan sees no miss where the quick one that foresees does."""

    class Closer(Capacities):
        def outlook(self, *where: Any, workload: Workload | None = None) -> PlannedSegment:
            return super().outlook(*where, workload=workload and load(1.0))

    world = World(lambda _now: 2.3, GOALS[:1], speed={1: 3.0})
    world.controller.planner = Closer()
    world.run(45)
    assert "(soon) is missed, and nothing better is known" in world.tick(5).decision.reason
    world.waits_s = [("", 2.5)] * 6
    world.run(30)
    assert [switch[1:] for switch in world.switches] == [("rescue", FOUR)]


def test_where_nothing_is_promised_nothing_is_done() -> None:
    world = World(lambda _now: 50.0, [])
    world.run(2 * HOUR_S)
    assert world.switches == []


def test_a_load_that_nothing_holds_gets_what_comes_nearest() -> None:
    util = replace(UTIL, window="always")
    world = World(lambda now: 16.0 if now.hour < 2 else 1.5, [always(TTFT), always(util)])
    world.run(1.9 * HOUR_S)
    assert [switch[1:] for switch in world.switches] == [("rescue", FOUR)]
    assert "; nothing holds this load; TP4 serves 50% of it" in world.reasons[0]
    assert "nothing holds this load; TP4, which runs, serves 50% of it" in world.tick(5).decision.reason
    world.run(HOUR_S)
    assert [switch[2] for switch in world.switches[1:]] == [ONE]


def test_no_measurements_no_change() -> None:
    world = World(declared, GOALS)
    world.run(7 * HOUR_S)
    world.is_dead = True
    world.run(5 * HOUR_S, every_s=30)
    assert world.switches == []
    assert "without data" in world.tick(5).decision.reason
    world.is_dead = False
    world.run(60)
    assert causes(world) == ["window"]


def test_a_freeze_holds_until_it_ends() -> None:
    freeze = ActiveGoal("intent-2", ReconfigRule("forbid", "for 10 h", window=FromNowWindow(duration_s=36_000)), MONDAY)
    world = World(declared, [*GOALS, freeze])
    world.run(9.9 * HOUR_S, every_s=60)
    world.run(2.1 * HOUR_S, every_s=10)
    ((at, _, _),) = world.switches
    assert MONDAY + timedelta(hours=10) <= at <= MONDAY + timedelta(hours=10, seconds=10)


def test_one_switch_a_day_is_one_switch_a_day() -> None:
    limit = ActiveGoal("intent-2", ReconfigRule("limit", "once a day", 1, "1/day"), MONDAY)
    world = World(declared, [*GOALS, limit])
    world.run(5 * DAY_S, every_s=240)
    assert len(world.switches) >= 4
    assert all(b - a >= timedelta(days=1) for (a, _, _), (b, _, _) in pairwise(world.switches))


def test_a_topology_that_is_slower_than_predicted_is_left_and_not_tried_again() -> None:
    """At night one device is to be enough, and is not: where it came from does better."""
    world = World(lambda now: 1.5 if now.hour < 9 else declared(now), GOALS, speed={1: 0.4}, runs=topology(2))
    world.controller.promise([always(TTFT), always(replace(UTIL, window="always", value=0.5))])
    world.run(4 * HOUR_S)
    assert [switch[1:] for switch in world.switches] == [("window", ONE), ("roll_back", TWO)]
    assert world.switches[1][0] - world.switches[0][0] < timedelta(seconds=300)
    assert world.verdicts[0] == "worse"
    assert "rolled back" in world.tick(5).decision.reason
    world.run(HOUR_S)
    assert [switch[1:] for switch in world.switches[2:]] == [("saving", ONE), ("roll_back", TWO)]


def test_a_prediction_that_is_off_by_two_is_corrected_by_what_is_measured() -> None:
    """All are half as fast as predicted: one is not enough, and the rescue knows by how much."""
    world = World(lambda _now: 1.5, GOALS[:1], speed={1: 0.5, 2: 0.5, 4: 0.5})
    world.run(HOUR_S)
    assert [switch[1:] for switch in world.switches] == [("rescue", TWO)]
    assert world.verdicts == ["recovered"]


def test_switches_that_are_given_up_are_tried_again_later_and_later() -> None:
    world = World(declared, GOALS, aborts=True)
    world.run(10 * HOUR_S)
    times = [at for at, _, _ in world.switches]
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    assert len(times) < 10
    assert all(later >= earlier for earlier, later in pairwise(gaps))
    assert gaps[0] < 120
    assert gaps[-1] > 600


@rows("period_s", [20, 120, 400, 900, 3600])
def test_a_square_wave_around_the_threshold(period_s: int) -> None:
    world = World(lambda now: 2.6 if now.timestamp() % period_s < period_s / 2 else 1.4, GOALS[:1])
    world.run(4 * HOUR_S)
    assert_bounded(world, boundaries=0)


def test_noise_a_step_and_a_ramp() -> None:
    noise = random.Random(7)
    for rate in (
        lambda _now: noise.uniform(1.0, 2.6),
        lambda now: 1.0 if now.hour < 4 else 3.0,
        lambda now: 0.5 + 3.4 * (now - MONDAY) / timedelta(hours=8),
    ):
        world = World(rate, [always(TTFT)])
        world.run(8 * HOUR_S)
        assert_bounded(world, boundaries=0)
        assert world.ttft_s <= 2 or world.runs == topology(4)


@rows("jump", [timedelta(hours=-5), timedelta(days=400)])
def test_a_clock_that_jumps(jump: timedelta) -> None:
    """Into a window and out of it again, every minute for a quarter of an hour."""
    world = World(declared, GOALS, begins=MONDAY + timedelta(hours=6))
    for _ in range(15):
        world.run(60)
        world.wall_off = jump - world.wall_off
    world.wall_off = timedelta(0)
    world.run(HOUR_S)
    assert len(world.switches) <= 2 + 15 * 60 / world.rules.dwell_s
    world.run(10 * HOUR_S, every_s=60)
    assert world.runs == topology(4)


@rows("begins", [datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC)])
def test_days_on_which_clocks_change(begins: datetime) -> None:
    night = RecurringWindow(("sat", "sun", "mon"), "01:00", "04:00", "Europe/Berlin")
    world = World(lambda _now: 1.5, [always(replace(TTFT, window="batch"))], {"batch": night}, begins=begins)
    world.run(4 * DAY_S, every_s=240)
    assert world.switches == []


def random_week(seed: int) -> World:
    """A week of a load that follows the day, with bursts and holes."""
    rng = random.Random(seed)
    bursts = [(rng.uniform(0, 7 * 24), rng.uniform(0.1, 2), rng.choice([0, 0.3, 2, 3])) for _ in range(12)]
    phase = rng.uniform(0, math.tau)

    def rate(now: datetime) -> float:
        hour = (now - MONDAY) / timedelta(hours=1)
        factor = math.prod(times for begins, lasts, times in bursts if begins <= hour < begins + lasts)
        return declared(now) * factor * (1 + 0.2 * math.sin(hour * 5 + phase)) * rng.uniform(0.9, 1.1)

    return World(rate, GOALS)


def assert_bounded(world: World, boundaries: int) -> None:
    """Two switches for each boundary of a window, and one beside it in a dwell time."""
    by_window = [at for at, cause, _ in world.switches if cause == "window"]
    others = [at for at, cause, _ in world.switches if cause in {"rescue", "return", "saving"}]
    assert len(by_window) + causes(world).count("roll_back") <= 2 * boundaries + len(others)
    assert all((b - a).total_seconds() >= world.rules.dwell_s for a, b in pairwise(others))


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.exhaustive)])
def test_random_weeks(seeds: range) -> None:
    for seed in seeds:
        one_random_week(seed)


def one_random_week(seed: int) -> None:
    world = random_week(seed)
    world.run(7 * DAY_S, every_s=300)
    assert_bounded(world, boundaries=10)
    assert causes(world).count("window") >= 9


RULES_FOR_AN_HOUR = Rules(dwell_s=60, calm_s=60, probation_s=30)


def test_every_tick_of_a_day() -> None:
    world = replace_rules(random_week(100), RULES_FOR_AN_HOUR)
    world.run(DAY_S / 4)
    assert_bounded(world, boundaries=1)


def replace_rules(world: World, rules: Rules) -> World:
    return World(world.rate, GOALS, WINDOWS, rules)


def test_a_verdict_is_about_the_switch_that_was_made_not_about_one_given_up_since() -> None:
    world = World(declared, GOALS)
    world.run(9 * HOUR_S - 60)  # ready for peak, and on probation until it has begun
    made = world.controller.past[-1]
    world.controller.switched(
        replace(made, is_done=False),
        world.controller.enter(world.now, world.now_s),
        world.runs,
        world.seen(5),
    )
    world.run(600)
    assert [one.verdict for one in world.controller.past] == ["recovered", None]


def test_switches_for_earlier_promises_do_not_count_for_the_next() -> None:
    world = World(lambda _now: 1.5, GOALS[:1])
    made = [PastSwitch(-600.0 + n, ONE, ONE, "window", is_done=True, verdict="recovered") for n in range(2)]
    world.controller.past += made
    world.controller.promise([always(replace(TTFT, value=0.9))], MONDAY)
    world.run(60)
    assert [switch[1:] for switch in world.switches] == [("window", TWO)]


def test_who_came_in_the_standstill_of_a_switch_counts_in_its_verdict() -> None:
    verdicts = []
    for stopped_s in (None, 57.0):
        world = World(lambda _now: 0.2, GOALS[:1], rules=Rules(patience_s=HOUR_S))
        world.run(60)
        segment, past = (
            world.controller.enter(world.now, 60.0),
            PastSwitch(60.0, TWO, ONE, "person", is_done=True),
        )
        world.controller.switched(replace(past, stopped_s=stopped_s), segment, topology(2), world.seen(0))
        world.samples += [RequestSample("ttft", "", 60.5, 3.0, arrived_s=57.5)] * 3
        world.run(120)
        verdicts += world.verdicts
    assert verdicts == ["recovered", "not_recovered"]
