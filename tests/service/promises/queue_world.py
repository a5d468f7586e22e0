"""A service with a first-come queue in virtual time: a real keeper, topologies that serve so many requests a second."""

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from intent.models import Objective
from runtime.capabilities import Capabilities
from runtime.models import Topology
from selector.models import Prediction, Workload
from service.promises.attainment import Sample
from service.promises.decide import Past, Rules
from service.promises.keeper import Keeper
from service.promises.watch import Observation, Seen, rounded
from tests.service.promises.world import (
    MONDAY,
    SIZES,
    TTFT,
    Capacities,
    always,
    load,
    topology,
)

PER_DEVICE_RPS = 1.6
BASE_S = 0.2
"""From its turn to a request's first token."""
BOUND_S = 2.0


class Queueing(Capacities):
    """Closed forms of a queue with one server and steady service (M/D/1); ``off`` is how much too fast they are."""

    off: float = 1.0

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
    goals: Sequence[Objective] = (TTFT,)
    runs: Topology = field(default_factory=lambda: topology(1))
    now_s: float = 0.0
    switches: list[tuple[float, str, str]] = field(default_factory=list)
    """When each was begun, why, and to what."""
    verdicts: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    waiting: deque[float] = field(default_factory=deque)
    """When those came who wait."""
    over: int = 0
    """Requests that waited past the bound."""
    served: int = 0

    def __post_init__(self) -> None:
        self.draw, self.free_s = random.Random(self.seed), 0.0
        self.planner = Queueing({"always": self.rate(0)})
        self.planner.off = self.off
        self.keeper = Keeper("m", {}, self.planner, self.rules)
        self.keeper.promise([always(goal) for goal in self.goals])
        self.next_s = self.draw.expovariate(self.rate(0))
        self.samples: list[Sample] = []
        self.came: deque[float] = deque()
        self.under_way: tuple[float, Seen, Past, object] | None = None

    @property
    def sustained_rps(self) -> float:
        size = len(self.runs.devices)
        return PER_DEVICE_RPS * size * self.speed.get(size, 1.0)

    def run(self, seconds: float) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.tick()

    def tick(self) -> None:
        """Five seconds, then a look."""
        until_s = self.now_s + self.rules.tick_s
        if self.under_way and self.under_way[0] <= until_s:
            self.serve(self.under_way[0])
            self._turn()
        self.serve(until_s)
        self.now_s = until_s
        if not self.is_controlled:
            return
        found = self.keeper.look(seen := self.seen())
        self.reasons.append(found.decision.reason)
        if found.judgement:
            self.verdicts.append(found.judgement.verdict)
        decision = found.decision
        if decision.kind == "switch" and decision.target and decision.cause:
            self.switches.append((self.now_s, decision.cause, decision.target))
            ended_s = self.now_s + self.prepare_s
            past = Past(ended_s, str(self.runs), decision.target, decision.cause, is_done=True)
            self.under_way = ended_s, seen, past, found.segment

    def _turn(self) -> None:
        assert self.under_way is not None
        _, seen, past, segment = self.under_way
        left, self.runs, self.under_way = self.runs, SIZES[past.target], None
        self.keeper.switched(past, segment, left, seen)  # type: ignore[arg-type]

    def serve(self, until_s: float) -> None:
        """Let requests come and be served until then."""
        while self.next_s <= until_s:
            self.waiting.append(self.next_s)
            self.came.append(self.next_s)
            self.next_s += self.draw.expovariate(self.rate(self.next_s))
        while self.waiting and (begins_s := max(self.waiting[0], self.free_s)) <= until_s:
            came_s = self.waiting.popleft()
            self.free_s = begins_s + 1 / self.sustained_rps
            ttft_s = begins_s - came_s + BASE_S
            self.samples.append(Sample("ttft", "", begins_s + BASE_S, ttft_s, came_s))
            self.over += ttft_s > BOUND_S
            self.served += 1

    def seen(self) -> Seen:
        since_s = self.now_s - self.rules.lookback_s
        while self.came and self.came[0] < since_s:
            self.came.popleft()
        self.samples = [one for one in self.samples if one.at_s > self.now_s - 900]
        answered = sum(since_s < one.at_s <= self.now_s for one in self.samples) / self.rules.lookback_s
        asked = rounded(len(self.came) / self.rules.lookback_s)
        observed = Observation(
            at_s=self.now_s,
            load=load(asked) if asked else None,
            answered_rps=answered,
            answered_tok_s=10 * answered,
            samples=tuple(one for one in self.samples if one.at_s <= self.now_s),
            waits_s=tuple(("", self.now_s - came_s) for came_s in self.waiting),
        )
        now = MONDAY + timedelta(seconds=self.now_s)
        is_switching = self.under_way is not None
        return Seen(now, self.now_s, self.runs, None, observed, (), is_switching=is_switching)


def step(before_rps: float, after_rps: float, at_s: float = 300.0) -> Callable[[float], float]:
    """A load that jumps."""
    return lambda at: after_rps if at >= at_s else before_rps
