"""The queue with growing work against queues that are known, and against customers counted one by one."""

import math
import random

import numpy as np
import pytest

from selector.performance.latency import Ramp, Service, waiting
from tests.rows import rows

NEVER = 1e12
"""Seconds that no queue lasts."""


def alike(seconds):
    return Service(np.array([seconds]), np.ones(1))


def test_idle_is_what_the_work_leaves():
    service = Service(np.array([0.2, 1.5]), np.array([0.7, 0.3]))
    found = waiting(0.8, service, service, Ramp(NEVER, 0.5, 0.5))
    assert found.idle == pytest.approx(1 - 0.8 * service.mean_s, rel=0.02)


@rows("rate", [0.2, 0.5, 0.8])
def test_the_mean_is_pollaczek_khinchine(rate):
    service = Service(np.array([0.5, 1.0, 3.0]), np.array([0.5, 0.4, 0.1]))
    found = waiting(rate, service, service, Ramp(NEVER, 0.5, 0.5))
    middles = (np.arange(len(found.chances)) + 0.5) * found.cell_s
    known = rate * service.squared_s / (2 * (1 - rate * service.mean_s))
    assert found.chances @ middles == pytest.approx(known, rel=0.05)


@pytest.mark.slow
def test_work_that_grows_with_the_queue_is_what_counting_customers_gives():
    light, heavy, rate, ramp = alike(0.7), alike(0.95), 0.95, Ramp(8.0, 1 - 0.95 * 0.7, 1 - 0.95 * 0.95)
    draw, level, levels = random.Random(5), 0.0, []
    grown = ramp.heavy(np.arange(4000) * 0.05)
    for _ in range(300_000):
        level = max(0.0, level - draw.expovariate(rate))
        levels.append(level)
        level += 0.95 if draw.random() < grown[min(3999, int(level / 0.05))] else 0.7
    found = waiting(rate, light, heavy, ramp)
    middles = (np.arange(len(found.chances)) + 0.5) * found.cell_s
    assert found.idle == pytest.approx(np.mean(np.array(levels) == 0.0), rel=0.05)
    assert found.chances @ middles == pytest.approx(np.mean(levels), rel=0.1)


def test_work_grows_from_none_to_all_of_it():
    ramp = Ramp(10.0, 0.4, 0.1)
    heavy = ramp.heavy(np.array([0.0, 1.0, 4.0, 1e6]))
    assert heavy[0] == pytest.approx(0.0)
    assert (np.diff(heavy) > 0).all()
    assert heavy[-1] == pytest.approx(1.0, abs=1e-4)
    steady = Ramp(10.0, 0.1, 0.1).heavy(np.array([1.0]))[0]  # where nothing changes, time is level by what is spare
    assert steady == pytest.approx(1 - math.exp(-1.0), rel=0.01)
