"""Surges that build a queue: the controller rescues, and does not take its own queue for the rescue's fault."""

from dataclasses import replace

from tests.rows import rows
from tests.service.promises.queue_world import QueueWorld, step
from tests.service.promises.world import TTFT, UTIL, topology

STEPS = [(rate_rps, prepare_s) for rate_rps in (1.6, 2.0, 3.0) for prepare_s in (15.0, 40.0)]


@rows("rate_rps, prepare_s", STEPS)
def test_a_rescue_is_not_rolled_back_because_of_the_queue_that_it_was_made_for(rate_rps, prepare_s):
    world = QueueWorld(step(0.5, rate_rps), prepare_s)
    world.run(1500)
    causes = [cause for _, cause, _ in world.switches]
    assert "rescue" in causes
    assert "roll_back" not in causes
    assert "worse" not in world.verdicts


def test_an_hour_of_more_than_anything_holds_is_served_by_what_holds_most():
    world = QueueWorld(
        lambda at: 7.0 if 300 <= at < 3900 else 0.5, goals=(TTFT, replace(UTIL, window="always", value=0.3))
    )
    world.run(3900)
    best = QueueWorld(lambda at: 7.0 if 300 <= at < 3900 else 0.5, runs=topology(4), is_controlled=False)
    best.run(3900)
    assert world.served >= 0.95 * best.served
    while world.waiting:
        world.tick()
    world.run(600)
    assert str(world.runs) == str(topology(1))
    assert len(world.switches) <= 4


def test_a_probation_begins_by_the_prediction_though_a_queue_goes_on_shrinking():
    world = QueueWorld(step(0.5, 3.0), speed={4: 0.8})
    world.run(300)
    while not world.under_way or world.under_way[2].target != str(topology(4)):
        world.tick()
    world.waiting.extend([world.now_s] * 400)
    waited = 0
    for _ in range(60):
        world.tick()
        probation = world.keeper._probation
        if probation and probation.latest_s is not None and world.now_s >= probation.latest_s:
            assert probation.began_s is not None
            waited += len(world.waiting)
    assert waited
