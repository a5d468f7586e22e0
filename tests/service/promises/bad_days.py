"""Random days and weeks on which much goes wrong: surges, faults, people who say no. What a controller must not do is noted."""

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from intent.models import Goal, ReconfigRule, RecurringWindow
from service.promises.attainment import RequestSample
from service.promises.watch import LoopInput
from tests.service.promises.queue_world import (
    BASE_S,
    BOUND_S,
    KEPT_S,
    STOP_S,
    Mishaps,
    QueueWorld,
)
from tests.service.promises.world import SIZES, TTFT, UTIL, WINDOWS

DAY_S, HOUR_S, STEP_S = 86_400.0, 3600.0, 10.0
DECLARED = {"peak": 3.0, "off_peak": 0.5, "always": 0.5}
FREEZE = RecurringWindow(("mon", "tue", "wed", "thu", "fri", "sat", "sun"), "12:00", "14:00", "UTC")
MOST_WAITING = 3000
"""Requests of a backlog that a look sees one by one."""
SAMPLES = 4
"""Of a step of the fluid queue, at most, while nothing is going on."""


@dataclass
class FluidWorld(QueueWorld):
    """A queue that grows by rate less capacity, in steps of a few seconds."""

    backlog: float = 0.0
    served_until_s: float = 0.0
    flows: deque[tuple[float, float, float]] = field(default_factory=deque)
    """Of each step that is measured: when, how many came, how many were begun."""

    @property
    def num_waiting(self) -> int:
        return min(int(self.backlog), MOST_WAITING)

    @property
    def asked(self) -> float:
        return self.served + self.backlog

    @property
    def over_now(self) -> float:
        return self.over + max(0.0, self.backlog - self.sustained_rps * (BOUND_S - BASE_S))

    def stop(self, at_s: float) -> None:
        self.backlog += self.rate(at_s) * STOP_S

    def serve(self, until_s: float) -> None:
        at_s = self.served_until_s
        while at_s < until_s:
            lasts_s = min(until_s - at_s, STEP_S if self.num_waiting else 3 * STEP_S)
            at_s += lasts_s
            self._flow(at_s, lasts_s)
        self.served_until_s = at_s

    def _flow(self, at_s: float, lasts_s: float) -> None:
        sustained, came = self.sustained_rps, self.rate(at_s) * lasts_s
        begun = min(self.backlog + came, sustained * lasts_s)
        self.backlog += came - begun
        self.served += begun
        busy = min(came / lasts_s / sustained, 0.95)
        self.over += begun * self._share_over(busy, sustained)
        if self.is_controlled and not self.is_dead:
            self.flows.append((at_s, came, begun))
            waits_s = self._waits_s(busy, sustained, self._num_samples(begun))
            self.samples.extend([RequestSample("ttft", "", at_s, one, at_s - one) for one in waits_s])

    def _num_samples(self, begun: float) -> int:
        whole = int(begun + self.draw.random())
        return whole if self.is_busy else min(whole, SAMPLES)

    def _share_over(self, busy: float, sustained_rps: float) -> float:
        """Of the requests whose turn comes: all behind a backlog, else as many as in a queue with steady service."""
        spare_s = BOUND_S - BASE_S
        if self.backlog >= 1:
            return float(self.backlog / sustained_rps > spare_s)
        return busy * math.exp(-2 * (1 - busy) * sustained_rps * spare_s)

    def _waits_s(self, busy: float, sustained_rps: float, num: int) -> list[float]:
        """Until the first tokens of some requests."""
        if self.backlog >= 1 or not busy:
            return [BASE_S + self.backlog / sustained_rps] * num
        by = 2 * (1 - busy) * sustained_rps
        return [BASE_S + max(0.0, math.log(busy / (1 - self.draw.random())) / by) for _ in range(num)]

    def seen(self) -> LoopInput:
        since_s = self.now_s - self.rules.lookback_s
        while self.flows and self.flows[0][0] <= since_s:
            self.flows.popleft()
        while self.samples and self.samples[0].at_s < self.now_s - KEPT_S:
            self.samples.popleft()
        if not self.is_dead:
            self.measured_s = self.now_s
        came, begun = (sum(one[place] for one in self.flows) for place in (1, 2))
        longest_s = self.backlog / self.sustained_rps
        waits = [longest_s * (1 - n / self.num_waiting) for n in range(self.num_waiting)]
        return self._seen(came, begun, tuple(self.samples), waits)


def random_rate(rng: random.Random, days: int, bursts: int) -> Callable[[float], float]:
    """Seconds to requests a second: the declared load of each window with waves, noise, bursts and holes."""
    hours = 24 * days
    events = [(rng.uniform(0, hours), rng.uniform(0.1, 1), rng.choice([0, 0.3, 2, 3])) for _ in range(bursts)]
    phase = rng.uniform(0, math.tau)
    table = list[float]()
    for place in range(int(days * DAY_S / STEP_S) + 1):
        hour = place * STEP_S / HOUR_S
        is_peak = hour // 24 % 7 < 5 and 9 <= hour % 24 < 21
        times = math.prod(by for begins, lasts, by in events if begins <= hour < begins + lasts)
        wave = (1 + 0.2 * math.sin(hour * 5 + phase)) * rng.uniform(0.9, 1.1)
        table.append(DECLARED["peak" if is_peak else "off_peak"] * times * wave)
    return lambda at_s: table[int(at_s / STEP_S)] if at_s < days * DAY_S else DECLARED["off_peak"]


def bad_days(seed: int, days: int = 1, kind: type[QueueWorld] = QueueWorld) -> QueueWorld:
    """Days on which much goes wrong, alike for the same seed."""
    rng = random.Random(seed)
    seconds = days * DAY_S

    def spells(a_day: int, least_s: float, most_s: float) -> list[tuple[float, float]]:
        begins = [rng.uniform(0, seconds) for _ in range(a_day * days)]
        return [(at_s, at_s + rng.uniform(least_s, most_s)) for at_s in begins]

    rate = random_rate(rng, days, bursts=2 + 2 * days)
    mishaps = Mishaps(
        aborts=rng.choice([0, 0.1, 0.3]),
        rejects=rng.choice([0, 0.02, 0.2]),
        cancels=rng.choice([0, 0.1, 0.2]),
        resumes_s=sorted(rng.uniform(0, seconds) for _ in range(2 * days)),
        dead=spells(3, 30, 900),
        slow=[(*spell, rng.uniform(0.5, 0.9)) for spell in spells(1, 600, 7200)],
    )
    goals: list[Goal] = [TTFT, replace(UTIL, value=0.2)]
    if seed % 3 == 1:
        goals.append(ReconfigRule("limit", "at most 6 a day", 6, "1/day"))
    if seed % 4 == 2:
        goals.append(ReconfigRule("forbid", "no switch over noon", window=FREEZE))
    return kind(
        rate,
        rng.choice([15.0, 40.0]),
        seed,
        off=rng.choice([0.5, 0.8, 1.0, 1.0, 1.25, 2.0]),
        goals=goals,
        declared=DECLARED,
        windows=WINDOWS,
        mishaps=mishaps,
    )


def uncontrolled(world: QueueWorld, days: int, *, foreseeing: bool) -> QueueWorld:
    """The same days without a controller: what runs at first goes on, or is always what a planner would take that knows them."""
    script = foreseen(world, days) if foreseeing else ()
    mishaps = Mishaps(slow=world.mishaps.slow)
    kind, rate = type(world), world.rate
    return kind(
        rate,
        world.prepare_s,
        world.seed,
        declared=DECLARED,
        is_controlled=False,
        script=script,
        mishaps=mishaps,
    )


def foreseen(world: QueueWorld, days: int) -> list[tuple[float, int]]:
    """When a planner that knows all rates and devices would switch, and to how many devices: the fewest that hold what
    comes until five minutes after the switch."""
    minute, script, runs = 60, list[tuple[float, int]](), 1
    needs = [
        _fewest(world, at_s, max(_mean(world, at_s + n * 20, 20) for n in range(3)))
        for at_s in range(0, int(days * DAY_S), minute)
    ]
    for place in range(len(needs)):
        most = max(needs[place : place + 7])
        if most != runs:
            script.append((place * minute, most))
            runs = most
    return script


def _mean(world: QueueWorld, at_s: float, span_s: int) -> float:
    return sum(world.rate(at_s + n) for n in range(0, span_s, 10)) / (span_s / 10)


def _fewest(world: QueueWorld, at_s: float, rate_rps: float) -> int:
    for size in sorted(len(one.devices) for one in SIZES.values()):
        sustained = world._sustained_rps(size, at_s)
        busy = rate_rps / sustained
        wait_s = busy / (2 * sustained * (1 - busy)) if busy < 1 else math.inf
        if BASE_S + 4.6 * wait_s + 1 / sustained <= BOUND_S:
            return size
    return 4
