"""A service with a first-come queue in virtual time: a real keeper, topologies that serve so many requests a second."""

import math
import random
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from intent.models import Goal, ReconfigRule, Window
from intent.windows import holds
from runtime.capabilities import Capabilities
from runtime.models import Topology
from selector.models import Prediction, Workload
from service.deployment.policy import Rules
from service.documents.promises import Cause
from service.promises.agenda import ActiveGoal, Segment, cut
from service.promises.attainment import RequestSample
from service.promises.controller import PromiseController
from service.promises.course import PlannedSegment
from service.promises.decide import LEARNED_S, PastSwitch
from service.promises.watch import LoopInput, Observation, rounded
from tests.service.promises.world import MONDAY, SIZES, TTFT, Capacities, load, topology

PER_DEVICE_RPS = 1.6
BASE_S = 0.2
"""From its turn to a request's first token."""
BOUND_S = 2.0
STOP_S = 0.05
"""For so long a switch lets nobody's turn come."""
WARMING = 0.9
"""Of the requests that are served while another topology is prepared."""
KEPT_S = 900.0
STALE_S = 1200.0
"""From when on what goes on is nothing new."""
Fate = Literal["done", "aborted", "cancelled"]


class Queueing(Capacities):
    """Closed forms of a queue with one server and steady service (M/D/1); ``off`` is how much too fast they are."""

    def __init__(self, declared: Mapping[str, float], off: float = 1.0) -> None:
        super().__init__(declared)
        self.off = off
        self._known: dict[tuple[object, ...], PlannedSegment] = {}

    def outlook(
        self,
        segment: Segment,
        now: Topology | None,
        engine: Capabilities | None,
        *,
        workload: Workload | None = None,
    ) -> PlannedSegment:
        asked = segment.goals, workload or self.workload(segment), str(now)
        if asked not in self._known:
            self._known[asked] = super().outlook(segment, now, engine, workload=workload)
        return replace(self._known[asked], segment=segment)

    def prediction(self, topology: Topology, workload: Workload, engine: Capabilities | None) -> Prediction:
        sustained = PER_DEVICE_RPS * len(topology.devices) * self.off
        busy = min(workload.rate_rps / sustained, 0.999)
        wait_s = busy / (2 * sustained * (1 - busy))
        found = super().prediction(topology, workload, engine)
        ttft_s = {"mean": BASE_S + wait_s, "p99": BASE_S + 4.6 * wait_s + 1 / sustained}
        return replace(
            found,
            ttft_s=ttft_s,
            throughput_tok_s=sustained * workload.output_tokens,
            gpu_util=min(1.0, workload.rate_rps / sustained),
        )


@dataclass(frozen=True)
class Mishaps:
    """What goes wrong, and what people say."""

    aborts: float = 0.0
    """Share of the switches that are given up."""
    rejects: float = 0.0
    """Share of what the controller wants that a person says no to."""
    cancels: float = 0.0
    """Share of its switches that a person cancels."""
    resumes_s: Sequence[float] = ()
    """When somebody has the controller go on."""
    dead: Sequence[tuple[float, float]] = ()
    """From when to when nothing is measured."""
    slow: Sequence[tuple[float, float, float]] = ()
    """From when to when the second device, and with it all that has more than one, is so fast by what is true else."""


@dataclass
class _UnderWay:
    ends_s: float
    target: Topology
    fate: Fate = "done"
    cause: Cause = "window"
    segment: Segment | None = None


@dataclass
class QueueWorld:
    """What is asked and served, request by request."""

    rate: Callable[[float], float]
    """Seconds to requests a second."""
    prepare_s: float = 40.0
    seed: int = 1
    off: float = 1.0
    speed: Mapping[int, float] = field(default_factory=dict)
    """Devices to how fast they are by what is true of the others."""
    rules: Rules = field(default_factory=Rules)
    is_controlled: bool = True
    goals: Sequence[Goal] = (TTFT,)
    runs: Topology = field(default_factory=lambda: topology(1))
    declared: Mapping[str, float] | None = None
    windows: Mapping[str, Window] = field(default_factory=dict)
    mishaps: Mishaps = field(default_factory=Mishaps)
    script: Sequence[tuple[float, int]] = ()
    """Switches that are begun without a controller: when, and to how many devices."""
    now_s: float = 0.0
    switches: list[tuple[float, str, str]] = field(default_factory=list)
    """When each was begun, why, and to what."""
    verdicts: list[str] = field(default_factory=list)
    reasons: deque[str] = field(default_factory=lambda: deque(maxlen=1000))
    broken: list[str] = field(default_factory=list)
    """What the controller did that it must not."""
    waiting: deque[float] = field(default_factory=deque)
    """When those came who wait."""
    over: float = 0
    """Requests that waited past the bound."""
    served: float = 0
    device_s: float = 0.0
    first_over_s: float = math.inf
    """When it could be known that a request misses the bound, of those that come after ``watched_s``."""
    watched_s: float = 0.0

    def __post_init__(self) -> None:
        self.draw, self.luck, self.free_s = random.Random(self.seed), random.Random(-self.seed), 0.0
        self.planner = Queueing(self.declared or {"always": self.rate(0)}, self.off)
        self.controller = PromiseController("m", self.windows, self.planner, self.rules)
        self.promised = [ActiveGoal("intent-1", goal, MONDAY) for goal in self.goals]
        self.controller.promise(self.promised, MONDAY)
        self.next_s = self._gap()
        self.samples, self.coming = deque[RequestSample](), deque[RequestSample]()
        self.came = deque[float]()
        self.measured_s = 0.0
        self.under_way: _UnderWay | None = None
        self.last: LoopInput | None = None
        self.made: list[PastSwitch] = []
        self.noes: list[tuple[float, str]] = []
        self.begun_script = 0
        self.busy_since_s = 0.0

    @property
    def sustained_rps(self) -> float:
        return self._sustained_rps(len(self.runs.devices), self.now_s) * (WARMING if self.under_way else 1.0)

    def _sustained_rps(self, size: int, at_s: float) -> float:
        slow = [by for begins_s, ends_s, by in self.mishaps.slow if size > 1 and begins_s <= at_s < ends_s]
        return PER_DEVICE_RPS * size * self.speed.get(size, 1.0) * math.prod(slow)

    def run(self, seconds: float, calm_s: float = 0.0) -> None:
        """Looks every five seconds; every ``calm_s``, where that is said, while nothing goes on or the same for long."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            if not self.is_busy:
                self.busy_since_s = self.now_s
            is_new = self.is_busy and self.now_s - self.busy_since_s < STALE_S
            self.tick(0.0 if is_new else calm_s)

    @property
    def is_busy(self) -> bool:
        """Whether something is going on."""
        is_odd = bool(self.controller._missed_since) or self.controller._probation is not None
        return is_odd or self.under_way is not None or self.num_waiting > 3

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def tick(self, after_s: float = 0.0) -> None:
        """Some seconds (five where nobody says otherwise), then a look."""
        until_s = self.now_s + (after_s or self.rules.tick_s)
        self.device_s += len(self.runs.devices) * (until_s - self.now_s)
        if self.under_way and self.under_way.ends_s <= until_s:
            self.serve(self.under_way.ends_s)
            self._turn(self.under_way)
        self.serve(until_s)
        self.now_s = until_s
        if self.is_controlled:
            self._look()
        while self.begun_script < len(self.script) and self.script[self.begun_script][0] <= self.now_s:
            if self.under_way:
                return
            size = self.script[self.begun_script][1]
            self.begun_script += 1
            if topology(size) != self.runs:
                self.under_way = _UnderWay(self.now_s + self.prepare_s, topology(size))

    # -- switches -------------------------------------------------------------------------------------

    def _look(self) -> None:
        found = self.controller.look(seen := self.seen())
        self.last = seen
        self.reasons.append(found.decision.reason)
        if found.judgement:
            self.verdicts.append(found.judgement.verdict)
        decision = found.decision
        if decision.kind != "switch" or not decision.target or not decision.cause:
            return
        if self.luck.random() < self.mishaps.rejects:
            self.noes.append((self.now_s, decision.target))
            return
        self._check(decision.target, decision.cause)
        self.switches.append((self.now_s, decision.cause, decision.target))
        fate: Fate = "done"
        takes_s, draw = self.prepare_s, self.luck.random()
        if draw < self.mishaps.aborts:
            fate = "aborted"
        elif draw < self.mishaps.aborts + self.mishaps.cancels:
            fate, takes_s = "cancelled", self.prepare_s * self.luck.random()
        self.under_way = _UnderWay(self.now_s + takes_s, SIZES[decision.target], fate, decision.cause, found.segment)

    def _turn(self, switch: _UnderWay) -> None:
        """The end of a switch."""
        left, self.under_way = self.runs, None
        if switch.fate == "done":
            self.runs = switch.target
            self.stop(switch.ends_s)
        if switch.fate == "cancelled":
            self.noes.append((switch.ends_s, str(switch.target)))
        if self.last is None or switch.segment is None:
            return
        is_done = switch.fate == "done"
        past = PastSwitch(switch.ends_s, str(left), str(switch.target), switch.cause, is_done)
        self.made.append(past)
        self.controller.switched(past, switch.segment, left, self.last)

    def stop(self, at_s: float) -> None:
        """Nobody's turn comes for a moment."""
        self.free_s = max(self.free_s, at_s) + STOP_S

    def _check(self, target: str, cause: str) -> None:
        """Note what must not be begun."""
        now = MONDAY + timedelta(seconds=self.now_s)
        done = [one for one in self.made if one.is_done]
        at = f"{self.now_s:.0f} s: {cause} to {target}"
        if any(target == refused and self._stands(at_s) for at_s, refused in self.noes):
            self.broken.append(f"{at}: it was refused")
        is_soon = bool(done) and self.now_s - done[-1].ended_s < self.rules.dwell_s
        if is_soon and cause != "roll_back" and target == done[-1].source:
            self.broken.append(f"{at}: it undoes the last switch")
        if cause == "roll_back" and "worse" not in self.verdicts[-1:]:
            self.broken.append(f"{at}: nothing was worse")
        lately = sum(past.ended_s > self.now_s - 86_400 for past in done)
        for one in self.goals:
            if not isinstance(one, ReconfigRule):
                continue
            if one.rule == "forbid" and holds(one.window, now):
                self.broken.append(f"{at}: a promise forbids it")
            if one.rule == "limit" and lately >= (one.value or 0):
                self.broken.append(f"{at}: one too many")

    def _stands(self, at_s: float) -> bool:
        """Whether a no of then stands: in the same segment, for four hours, until somebody has the controller go on."""
        resumed_s = max((one for one in self.mishaps.resumes_s if one <= self.now_s), default=-1.0)
        began = MONDAY + timedelta(seconds=at_s)
        segments = cut(self.promised, self.windows, began, began + timedelta(days=8))
        ends_s = at_s + (segments[0].ends - began).total_seconds()
        return at_s > resumed_s and self.now_s - at_s < LEARNED_S and self.now_s < ends_s

    def _refused(self) -> dict[str, str]:
        """Targets that somebody said no to, as the runner tells them."""
        if not self.noes:
            return {}
        self.controller.enter(MONDAY + timedelta(seconds=self.now_s), self.now_s)
        resumed_s = max((one for one in self.mishaps.resumes_s if one <= self.now_s), default=-1.0)
        since_s = max(self.controller.began_s, resumed_s, self.now_s - LEARNED_S)
        return {target: "somebody said no" for at_s, target in self.noes if at_s >= since_s}

    # -- requests -------------------------------------------------------------------------------------

    def _gap(self) -> float:
        """When the next request comes."""
        at_s = getattr(self, "next_s", 0.0)
        while (rate := self.rate(at_s)) <= 0:
            at_s += 10
        return at_s + self.draw.expovariate(rate)

    def serve(self, until_s: float) -> None:
        """Let requests come and be served until then."""
        is_dead, waiting = self.is_dead, self.waiting
        while self.next_s <= until_s:
            waiting.append(self.next_s)
            if self.is_controlled and not is_dead:
                self.came.append(self.next_s)
            self.next_s = self._gap()
        takes_s = 1 / self.sustained_rps
        while waiting and (begins_s := max(waiting[0], self.free_s)) <= until_s:
            came_s = waiting.popleft()
            self.free_s = begins_s + takes_s
            ttft_s = begins_s - came_s + BASE_S
            if self.is_controlled and not is_dead:
                self.coming.append(RequestSample("ttft", "", begins_s + BASE_S, ttft_s, came_s))
            self.served += 1
            if ttft_s > BOUND_S:
                self.over += 1
                self._know(came_s + BOUND_S)
        if waiting and waiting[0] >= self.watched_s:
            self._know(waiting[0] + BOUND_S)

    def _know(self, at_s: float) -> None:
        if self.watched_s <= at_s - BOUND_S:
            self.first_over_s = min(self.first_over_s, at_s)

    @property
    def asked(self) -> float:
        """Requests that were served or wait."""
        return self.served + len(self.waiting)

    @property
    def over_now(self) -> float:
        """Requests over the bound, with those that wait past it still."""
        return self.over + bisect_left(self.waiting, self.now_s - BOUND_S + BASE_S)

    @property
    def is_dead(self) -> bool:
        return any(begins_s <= self.now_s < ends_s for begins_s, ends_s in self.mishaps.dead)

    def seen(self) -> LoopInput:
        since_s = self.now_s - self.rules.lookback_s
        while self.came and self.came[0] < since_s:
            self.came.popleft()
        while self.coming and self.coming[0].at_s <= self.now_s:
            self.samples.append(self.coming.popleft())
        while self.samples and self.samples[0].at_s < self.now_s - KEPT_S:
            self.samples.popleft()
        if not self.is_dead:
            self.measured_s = self.now_s
        samples = tuple(self.samples)
        answered = len(samples) - bisect_left(samples, since_s, key=lambda one: one.at_s)
        return self._seen(len(self.came), answered, samples, [self.now_s - one for one in self.waiting])

    def _seen(
        self, came: float, answered: float, samples: Sequence[RequestSample], waits: Sequence[float]
    ) -> LoopInput:
        asked = rounded(came / self.rules.lookback_s)
        answered_rps = answered / self.rules.lookback_s
        observed = Observation(
            at_s=self.measured_s,
            load=load(asked) if asked else None,
            answered_rps=answered_rps,
            answered_tok_s=10 * answered_rps,
            samples=samples,
            waits_s=[("", one) for one in waits],
        )
        now = MONDAY + timedelta(seconds=self.now_s)
        switched_s = [
            MONDAY.timestamp() + one.ended_s for one in self.made if one.is_done and one.ended_s > self.now_s - 86_400
        ]
        return LoopInput(
            now,
            self.now_s,
            self.runs,
            None,
            observed,
            switched_s,
            is_switching=self.under_way is not None,
            refused=self._refused(),
        )


def step(before_rps: float, after_rps: float, at_s: float = 300.0) -> Callable[[float], float]:
    """A load that jumps."""
    return lambda at: after_rps if at >= at_s else before_rps
