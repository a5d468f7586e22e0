"""A service in virtual time: a keeper, topologies of known capacity, and a load that moves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from intent.models import Goal, Objective, RecurringWindow, Window
from runtime.capabilities import Capabilities
from runtime.models import LayerRange, Precision, Stage, Topology
from selector.models import Infeasible, Plan, Prediction, SwitchPrediction, Workload
from service.deployment.policy import Rules
from service.promises.agenda import ActiveGoal, Segment
from service.promises.attainment import RequestSample, saves
from service.promises.controller import LoopOutput, PromiseController
from service.promises.course import PlannedSegment
from service.promises.decide import PastSwitch
from service.promises.watch import LoopInput, Observation, rounded

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
PEAK = RecurringWindow(("mon", "tue", "wed", "thu", "fri"), "09:00", "21:00", "UTC")
NIGHT = RecurringWindow(("mon", "tue", "wed", "thu", "fri"), "21:00", "09:00", "UTC")
WINDOWS: dict[str, Window] = {"peak": PEAK, "off_peak": NIGHT}
DECLARED = {"peak": 7.0, "off_peak": 1.5, "always": 1.5}
PER_DEVICE_RPS = 2.0
TTFT = Objective("ttft", "<=", "P99 TTFT < 2s", "p99", 2.0, "s")
UTIL = Objective("gpu_util", ">=", "utilisation over 40 %", value=0.4, unit="ratio", window="off_peak")
PREPARE_S, STOP_S = 40.0, 0.01


def topology(num_devices: int) -> Topology:
    stage = Stage("CPU", tuple(range(num_devices)), LayerRange(0, 8), Precision("fp32", "fp32", "fp32"))
    return Topology((stage,))


SIZES = {str(topology(size)): topology(size) for size in (1, 2, 4)}


def load(rate_rps: float) -> Workload:
    return Workload(rate_rps, 10, 10, 4)


@lru_cache(maxsize=4096)
def predicted(num_devices: int, rate_rps: float, output_tokens: int) -> Prediction:
    """Of one stage on so many devices; a world asks a dozen times at each look."""
    sustained = PER_DEVICE_RPS * num_devices
    return Prediction(
        ttft_s=dict.fromkeys(("mean", "p99"), 2 * rate_rps / sustained),
        tpot_s={},
        e2e_s={},
        throughput_tok_s=sustained * output_tokens,
        gpu_util=min(1.0, rate_rps / sustained),
        usd_per_hour=float(num_devices),
        batch=4,
        quality_loss=0.0,
        error_band=0.1,
        source="analytic",
        devices=num_devices,
    )


@dataclass
class Capacities:
    """Plans as ``Planner`` makes them: P99 TTFT is 2 s where a topology is asked for all that it holds."""

    declared: Mapping[str, float] = field(default_factory=lambda: DECLARED)
    rescues: int = 0
    """How often it planned for a load that was measured."""

    def agenda(
        self,
        segments: Sequence[Segment],
        now: Topology | None,
        engine: Capabilities | None,
        *,
        upto: int | None = None,
        since: datetime | None = None,
    ) -> list[PlannedSegment]:
        found = list[PlannedSegment]()
        for number, segment in enumerate(segments[:upto]):
            outlook = self.outlook(segment, now, engine)
            if number and outlook.plan:
                before = segments[number - 1]
                served = tuple(one for one in before.promised if not saves(one.goal))
                back = self.outlook(replace(before, promised=served), outlook.plan.target, engine).plan
                outlook = replace(outlook, is_early=back is not None and back.target == outlook.plan.target)
            found.append(outlook)
            now = outlook.plan.target if outlook.plan else now
        return found

    def outlook(
        self,
        segment: Segment,
        now: Topology | None,
        engine: Capabilities | None,
        *,
        workload: Workload | None = None,
    ) -> PlannedSegment:
        self.rescues += workload is not None
        asked = workload or self.workload(segment)
        fits = [one for one in SIZES.values() if all(self._holds(goal, one, asked, engine) for goal in segment.goals)]
        target = now if now in fits else next(iter(fits), None)
        if target is None:
            return PlannedSegment(segment, asked, Infeasible(("too much",), None))
        return PlannedSegment(segment, asked, self._plan(now, target, asked))

    def best_effort(
        self, segment: Segment, now: Topology | None, engine: Capabilities | None, load: Workload
    ) -> PlannedSegment:
        most = max(SIZES.values(), key=lambda one: len(one.devices))
        sustained = self.prediction(most, load, engine).throughput_tok_s
        share = min(1.0, sustained / (load.rate_rps * load.output_tokens))
        return PlannedSegment(segment, load, self._plan(now, most, load), share=share)

    def held(self, topology: Topology, segment: Segment, engine: Capabilities | None, load: Workload) -> float:
        sustained = self.prediction(topology, load, engine).throughput_tok_s
        return min(1.0, sustained / (load.rate_rps * load.output_tokens))

    def workload(self, segment: Segment) -> Workload:
        return load(self.declared.get(next(iter(segment.windows), "always"), 1.5))

    def prediction(self, topology: Topology, workload: Workload, engine: Capabilities | None) -> Prediction:
        return predicted(topology.stages[0].tp_size, workload.rate_rps, workload.output_tokens)

    def _holds(self, goal: Goal, one: Topology, asked: Workload, engine: Capabilities | None) -> bool:
        predicted = self.prediction(one, asked, engine)
        if not isinstance(goal, Objective) or goal.value is None:
            return True
        if goal.metric == "gpu_util":
            return predicted.gpu_util >= goal.value
        return predicted.ttft_s["p99"] <= goal.value

    def _plan(self, now: Topology | None, target: Topology, asked: Workload) -> Plan:
        return Plan(
            id="",
            intent_id="",
            generation=0,
            model="m",
            window="",
            now=now,
            target=target,
            prediction=self.prediction(target, asked, None),
            now_prediction=None,
            runner_up=None,
            reasons=(),
            switch=SwitchPrediction("shadow", PREPARE_S, STOP_S, STOP_S, None),
        )


@dataclass
class World:
    """What runs, and what is asked of it; ``speed`` is how fast a topology is by what is predicted."""

    rate: Callable[[datetime], float]
    promised: Sequence[ActiveGoal]
    windows: Mapping[str, Window] = field(default_factory=lambda: WINDOWS)
    rules: Rules = field(default_factory=Rules)
    speed: Mapping[int, float] = field(default_factory=dict)
    runs: Topology = field(default_factory=lambda: topology(1))
    declared: Mapping[str, float] = field(default_factory=lambda: DECLARED)
    begins: datetime = MONDAY
    switches: list[tuple[datetime, str, str]] = field(default_factory=list)
    """When, why, and to what."""
    reasons: list[str] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    is_dead: bool = False
    waits_s: Sequence[tuple[str, float]] = ()
    aborts: bool = False
    wall_off: timedelta = timedelta(0)
    now_s: float = 0.0
    samples: list[RequestSample] = field(default_factory=list)
    missed_s: float = 0.0
    """For so long a goal was missed, as clients measure it."""

    def __post_init__(self) -> None:
        self.planner = Capacities(self.declared)
        self.controller = PromiseController("m", self.windows, self.planner, self.rules)
        self.controller.promise(self.promised)

    @property
    def now(self) -> datetime:
        return self.begins + timedelta(seconds=self.now_s) + self.wall_off

    def tick(self, after_s: float) -> LoopOutput:
        """Let so many seconds pass, then look."""
        self.now_s += after_s
        found = self.controller.look(seen := self.seen(after_s))
        if found.judgement:
            self.verdicts.append(found.judgement.verdict)
        if found.decision.kind == "switch":
            self._switch(found, seen)
        return found

    def run(self, seconds: float, every_s: float = 15) -> None:
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self.tick(every_s)

    @property
    def ttft_s(self) -> float:
        """Of every request now."""
        size = len(self.runs.devices)
        return 2 * self.rate(self.now) / (PER_DEVICE_RPS * size * self.speed.get(size, 1.0))

    def seen(self, after_s: float) -> LoopInput:
        rate, ttft_s = self.rate(self.now), self.ttft_s
        if not self.is_dead:
            times = [self.now_s - after_s * n / 12 for n in range(12)] if rate else []
            self.samples = [one for one in self.samples if one.at_s > self.now_s - 300]
            self.samples += [RequestSample("ttft", "", at_s, ttft_s) for at_s in sorted(times)]
            self.newest_s = self.now_s
        observed = Observation(
            at_s=getattr(self, "newest_s", self.now_s),
            load=load(rounded(rate)) if rate else None,
            answered_rps=rate,
            answered_tok_s=10 * rate,
            samples=tuple(self.samples),
            waits_s=self.waits_s,
        )
        switched_s = [at.timestamp() for at, _, _ in self.switches]
        return LoopInput(self.now, self.now_s, self.runs, None, observed, switched_s)

    def _switch(self, found: LoopOutput, seen: LoopInput) -> None:
        decision = found.decision
        assert decision.target is not None
        assert decision.cause is not None
        if decision.cause == "roll_back":
            assert found.plan is None
        else:
            assert found.plan is not None
            assert str(found.plan.target) == decision.target
        self.switches.append((self.now, decision.cause, decision.target))
        self.reasons.append(decision.reason)
        left, self.runs = self.runs, self.runs if self.aborts else SIZES[decision.target]
        self.now_s += PREPARE_S
        past = PastSwitch(self.now_s, str(left), decision.target, decision.cause, is_done=not self.aborts)
        self.controller.switched(past, found.segment, left, seen)


def always(goal: Objective, said: datetime = MONDAY) -> ActiveGoal:
    return ActiveGoal("intent-1", goal, said)
