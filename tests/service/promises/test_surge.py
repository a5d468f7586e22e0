"""Surges that build a queue: the controller rescues, and does not take its own queue for the rescue's fault."""

from dataclasses import replace

import pytest

from tests.rows import rows
from tests.service.promises.bad_days import DAY_S, bad_days, uncontrolled
from tests.service.promises.queue_world import Queueing, QueueWorld, step
from tests.service.promises.world import TTFT, UTIL, topology

pytestmark = pytest.mark.slow

STEPS = [(rate_rps, prepare_s) for rate_rps in (1.3, 1.6, 3.0) for prepare_s in (15.0, 40.0)]
ONE, TWO, FOUR = (str(topology(size)) for size in (1, 2, 4))


@rows("rate_rps, prepare_s", STEPS)
def test_a_rescue_is_not_rolled_back_because_of_the_queue_that_it_was_made_for(rate_rps, prepare_s):
    world = QueueWorld(step(0.5, rate_rps), prepare_s)
    world.run(1500)
    causes = [cause for _, cause, _ in world.switches]
    assert "rescue" in causes
    assert "roll_back" not in causes
    assert "worse" not in world.verdicts


@pytest.mark.parametrize(("days", "most"), [(4, 1), pytest.param(8, 2, marks=pytest.mark.exhaustive)])
def test_quiet_days_make_no_rescue_of_what_chance_does(days, most):
    """At 0.5 requests/s one device is asked for a third of what it sustains; some minutes bring half as many again."""
    worlds = [QueueWorld(lambda _: 0.5, seed=seed) for seed in range(days)]
    for world in worlds:
        world.run(2 * 3600)
    assert sum(len(world.switches) for world in worlds) <= most


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 8), marks=pytest.mark.exhaustive)])
@rows("prepare_s", [15.0, 40.0])
def test_a_rescue_is_planned_for_the_load_of_the_last_seconds_not_for_the_mean_of_a_minute(prepare_s, seeds):
    """Half of the minute before the decision is from before the step: its mean is held by two devices, the load is not."""
    for seed in seeds:
        world = QueueWorld(step(0.5, 3.0), prepare_s, seed)
        world.run(600)
        assert [target for at_s, _, target in world.switches if at_s > 300] == [FOUR]


def test_a_queue_that_stands_tells_how_much_is_sustained_where_predictions_are_twice_too_fast():
    """It has to have stood for a patience, which by one of these seeds it has not."""
    first = list[str]()
    for seed in range(5):
        world = QueueWorld(step(0.5, 3.0), 40.0, seed, off=2.0)
        world.run(600)
        first.append(world.switches[0][2])
    assert first.count(FOUR) >= 4


def test_while_the_queue_of_before_stands_a_rescue_is_not_worse():
    """By predictions that are twice too fast two devices hold 3/s; they hold it barely, and the queue is as long for minutes."""
    world = QueueWorld(step(0.5, 3.0), 40.0, 6, off=2.0)
    world.planner = world.controller.planner = _TwoAtMost(world.planner.declared, 2.0)
    world.run(900)
    assert [cause for _, cause, _ in world.switches] == ["rescue"]
    assert "worse" not in world.verdicts


class _TwoAtMost(Queueing):
    """Four devices never hold anything."""

    def _holds(self, goal, one, asked, engine):
        return len(one.devices) < 4 and super()._holds(goal, one, asked, engine)

    def best_effort(self, segment, now, engine, load):
        return replace(super().best_effort(segment, now, engine, load), answer=self._plan(now, topology(2), load))


def test_a_no_just_after_a_window_began_holds_in_it_though_the_next_look_is_later():
    world = bad_days(2)
    world.run(32_460, 30)
    assert world.broken == []


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 3), marks=pytest.mark.exhaustive)])
def test_bad_days(seeds):
    """Surges, faults and people who say no: nothing is begun that must not be, and it is worth it."""
    for seed in seeds:
        one_bad_day(seed)


def one_bad_day(seed: int) -> None:
    world = bad_days(seed)
    world.run(DAY_S, 60)
    assert world.broken == []
    idle = uncontrolled(world, 1, foreseeing=False)
    idle.run(DAY_S, 60)
    assert world.over_now < 0.7 * idle.over_now


def test_half_an_hour_of_more_than_anything_holds_is_served_by_what_holds_most():
    world = QueueWorld(
        lambda at: 7.0 if 300 <= at < 2100 else 0.5, goals=(TTFT, replace(UTIL, window="always", value=0.3))
    )
    world.run(2100)
    best = QueueWorld(lambda at: 7.0 if 300 <= at < 2100 else 0.5, runs=topology(4), is_controlled=False)
    best.run(2100)
    assert world.served >= 0.95 * best.served
    while world.waiting:
        world.tick()
    world.run(600)
    assert str(world.runs) == str(topology(1))
    assert len(world.switches) <= 4


def test_a_probation_begins_by_the_prediction_though_a_queue_goes_on_shrinking():
    world = QueueWorld(step(0.5, 3.0), speed={4: 0.8})
    world.run(300)
    while not world.under_way or world.under_way.target != topology(4):
        world.tick()
    world.waiting.extend([world.now_s] * 400)
    waited = 0
    for _ in range(60):
        world.tick()
        probation = world.controller._probation
        if probation and probation.latest_s is not None and world.now_s >= probation.latest_s:
            assert probation.began_s is not None
            waited += len(world.waiting)
    assert waited
