"""Which requests, or which looks at the service, met a goal. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from intent.models import HOURS_OF_COST, LATENCIES, Goal, Objective, TenantException
from service.documents.promises import Counting
from service.promises.agenda import ActiveGoal, Segment

FEWEST = 5
"""Requests from which on something can be said."""
CERTAINTY = 1.645
"""Of a share, in standard deviations: nine of ten times it is not called missed by chance, and more."""
Kind = Literal["ttft", "tpot", "e2e", "error_rate"]


@dataclass(frozen=True, slots=True)
class RequestSample:
    """What was measured of one request."""

    kind: Kind
    tenant: str
    at_s: float
    value: float
    """Seconds; for ``error_rate`` 1 where it failed, 0 where not."""
    arrived_s: float | None = None
    """When the request came, by the clock of ``at_s``; None: not known."""
    is_cut_short: bool = False
    """Its client left before the value was known, which would have been more: a miss once it is over a bound, else nothing."""


@dataclass(frozen=True, slots=True)
class ServiceSample:
    """What was seen of the service at one tick, over the last seconds."""

    devices: int
    gpu_util: float | None
    """The work answered by what the topology sustains; None where nobody can tell."""
    usd_per_hour: float | None
    rate_rps: float
    """Answered."""
    rate_tok_s: float
    waiting: int
    """Requests without a first token."""
    means: Mapping[str, float] = field(default_factory=dict)
    """Of ttft, tpot and e2e, where there were requests."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of how many met a goal."""

    met: int = 0
    total: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.met + other.met, self.total + other.total)

    @property
    def share(self) -> float:
        """That met it; all where nothing was counted."""
        return self.met / self.total if self.total else 1.0

    def falls_short(self, needed: float) -> bool:
        """Whether the share is below the one that is needed, and not by chance (Wilson's interval)."""
        if self.total < FEWEST:
            return False
        n = self.total
        z2 = CERTAINTY**2
        middle = self.share + z2 / (2 * n)
        half = CERTAINTY * math.sqrt(self.share * (1 - self.share) / n + z2 / (4 * n * n))
        return (middle + half) / (1 + z2 / n) < needed


def saves(goal: Goal) -> bool:
    """Whether a goal is missed by taking too much, not by serving too little."""
    if not isinstance(goal, Objective):
        return False
    return goal.metric in {"gpu_count", "cost"} or (goal.metric == "gpu_util" and goal.op == ">=")


def counted(goal: Goal) -> Counting | None:
    """What is counted for a goal; None: nothing that is measured here tells."""
    if not isinstance(goal, Objective) or goal.value is None or goal.op in {"minimize", "maximize"}:
        return None
    if goal.metric == "error_rate" and goal.op == "<=":
        return "requests"
    if goal.metric in LATENCIES:
        if goal.op != "<=":
            return None
        return "ticks" if goal.stat in {None, "mean"} else "requests"
    known = {"gpu_util", "gpu_count", "cost", "throughput_tok", "throughput_req"}
    if goal.unit == "USD/Mtok":
        return None
    return "ticks" if goal.metric in known and goal.tenant is None else None


def needed(goal: Objective) -> float:
    """The share of what is counted that keeps a goal: of requests its percentile, of looks all."""
    if counted(goal) == "ticks":
        return 1.0
    if goal.metric == "error_rate":
        return 1.0 - (goal.value or 0.0)
    return float((goal.stat or "p100")[1:]) / 100


def requests(goal: Objective, samples: Sequence[RequestSample], exceptions: Sequence[TenantException] = ()) -> Tally:
    """The requests that met a goal, of those that it is about; an exception relaxes it for its tenant."""
    bound = _bound(goal)
    relaxed = {
        exception.tenant: _relaxed(goal, exception)
        for exception in exceptions
        if exception.metric == goal.metric and goal.tenant is None
    }
    met = total = 0
    for sample in samples:
        if sample.kind != goal.metric or goal.tenant not in {None, sample.tenant}:
            continue
        own = relaxed.get(sample.tenant, bound)
        if own < math.inf and not (sample.is_cut_short and sample.value <= own):
            total += 1
            met += sample.value <= own
    return Tally(met, total)


def counted_by(segment: Segment, what: Counting) -> list[tuple[ActiveGoal, Objective]]:
    """The goals of a segment that are counted in requests, or in looks."""
    return [
        (goal, goal.goal)
        for goal in segment.promised
        if isinstance(goal.goal, Objective) and counted(goal.goal) == what
    ]


def tally(goal: Objective, segment: Segment, samples: Sequence[RequestSample]) -> Tally:
    """How many requests met a goal of a segment, with the exceptions that hold in it."""
    exceptions = [goal.goal for goal in segment.promised if isinstance(goal.goal, TenantException)]
    return requests(goal, samples, exceptions)


def first_miss_s(goal: Objective, segment: Segment, samples: Sequence[RequestSample]) -> float | None:
    """When the first of some requests was known that missed a goal; None: none did."""
    return next((sample.at_s for sample in samples if tally(goal, segment, (sample,)).share < 1), None)


def look_meets(goal: Objective, look: ServiceSample) -> bool | None:
    """Whether a look meets a goal; None: it tells nothing. A rate is also met where nobody waits."""
    found = _seen(goal, look)
    if found is None or goal.value is None:
        return None
    if goal.metric.startswith("throughput") and goal.op == ">=" and look.waiting == 0:
        return True
    if goal.op == "==":
        return math.isclose(found, goal.value)
    return found <= goal.value if goal.op == "<=" else found >= goal.value


def _seen(goal: Objective, look: ServiceSample) -> float | None:
    """What a goal is about, in its own unit."""
    usd = look.usd_per_hour
    return {
        "gpu_util": look.gpu_util,
        "gpu_count": float(look.devices),
        "cost": None if usd is None else usd * HOURS_OF_COST.get(goal.unit or "", 1.0),
        "throughput_req": look.rate_rps,
        "throughput_tok": look.rate_tok_s,
    }.get(goal.metric, look.means.get(goal.metric))


def _bound(goal: Objective) -> float:
    """Of one request; of an error rate half: a request failed or it did not."""
    return 0.5 if goal.metric == "error_rate" else (goal.value or 0.0)


def _relaxed(goal: Objective, exception: TenantException) -> float:
    if exception.limit is not None:
        return exception.limit
    return (goal.value or 0.0) * exception.factor if exception.factor is not None else math.inf
