"""What is asked of a model and how it is served: told by the router, read at every tick."""

import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

import numpy as np

from intent.models import Objective
from runtime.capabilities import Capabilities
from runtime.engine import Finish
from runtime.models import Topology
from runtime.stream import Observer, Observers, Usage
from selector.models import CHAT_INPUTS, CHAT_OUTPUTS, MOST_P95, Spread, Workload
from selector.performance.traces import burstiness
from service.promises.attainment import Kind, RequestSample, counted, needed

KEPT_S = 900.0
SURPRISING = 2.7
"""Standard deviations by which more requests came than before, from which on a load has grown."""
MOST = 200_000
"""Of each kind that are kept, whatever comes."""
ENOUGH = 30
"""Requests from which on spreads are told from chance."""
OBSERVED = "observed"
"""Where a spread comes from that was seen."""
Timed = TypeVar("Timed", "ObservedRequest", "Answered", "TickSample", RequestSample)


@dataclass(frozen=True, slots=True)
class ObservedRequest:
    """A request that came."""

    at_s: float
    tenant: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that ended by itself."""

    at_s: float
    tenant: str
    completion_tokens: int
    prompt_tokens: int
    cached_tokens: int | None
    """Of the prompt; None where the engine does not tell."""


@dataclass(frozen=True, slots=True)
class TickSample:
    """What a look saw."""

    at_s: float
    streams: int
    """Open then."""
    tokens: int
    """Accepted until then."""
    waiting: int = 0
    """Of the streams, those without a first token."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen over the last seconds; moments are of the watch's clock."""

    at_s: float
    load: Workload | None
    """As plans take it, rounded to two digits, without a length of answers where none ended; None where nobody asked."""
    answered_rps: float
    answered_tok_s: float
    samples: Sequence[RequestSample]
    """All that are kept, the oldest first."""
    waits_s: Sequence[tuple[str, float]] = ()
    """Tenant and age of the requests without a first token."""

    def since(self, at_s: float) -> Sequence[RequestSample]:
        """Samples from a moment on."""
        return self.samples[bisect_left(self.samples, at_s, key=attrgetter("at_s")) :]

    def arrived_since(self, at_s: float) -> Sequence[RequestSample]:
        """Samples of requests that came from a moment on."""
        return [sample for sample in self.since(at_s) if sample.arrived_s is None or sample.arrived_s >= at_s]

    def surging(self, load: Workload, span_s: float) -> Workload:
        """A load at the rate of the last seconds, where that is more than chance explains.

        A mean lags behind a step.
        """
        recent = self.arrived_since(self.at_s - span_s)
        came = sum(sample.kind == "ttft" and sample.arrived_s is not None for sample in recent)
        came += sum(age_s <= span_s for _, age_s in self.waits_s)
        usual = load.rate_rps * span_s
        is_chance = came <= usual * (1 + by_chance(usual))
        return load if is_chance else replace(load, rate_rps=rounded(came / span_s))


@dataclass(frozen=True, slots=True)
class LoopInput:
    """One look at what runs."""

    now: datetime
    """By the clock on the wall."""
    now_s: float
    """By the one that cannot jump, which is that of the observation."""
    runs: Topology
    engine: Capabilities | None
    observed: Observation
    switched_s: Sequence[float] = ()
    """Unix seconds of the switches of the last day, whoever made them."""
    is_switching: bool = False
    hold: str = ""
    """Why nothing is to be switched; empty: it may be."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Targets that a person said no to."""


@dataclass(frozen=True, slots=True)
class RecentRequests:
    """Request by request, what was seen in the last seconds."""

    seconds: float
    asked: Sequence[ObservedRequest]
    answered: Sequence[Answered]
    samples: Sequence[RequestSample]
    waits_s: Sequence[tuple[str, float]]
    concurrency: int
    """Most requests that ran at once, as the ticks saw it; those that waited are in ``waits_s``."""

    @property
    def tokens_s(self) -> float:
        """Of answers that ended."""
        return sum(answered.completion_tokens for answered in self.answered) / self.seconds

    @property
    def burstiness(self) -> float | None:
        """Of arrivals, in quarters; 1 where chance explains another. None with too few."""
        if len(self.asked) < ENOUGH:
            return None
        found = burstiness([request.at_s for request in self.asked])
        return _quarters(found) if abs(found - 1) > SURPRISING / math.sqrt(len(self.asked)) else 1.0

    @property
    def prefix_hit(self) -> float | None:
        """Share of the prompts that the engine found in its cache, in twentieths; None with too few that tell."""
        pairs = [(each.cached_tokens, each.prompt_tokens) for each in self.answered if each.cached_tokens is not None]
        if len(pairs) < ENOUGH:
            return None
        return min(19, round(20 * sum(cached for cached, _ in pairs) / sum(tokens for _, tokens in pairs))) / 20

    @property
    def tenants(self) -> tuple[str, ...]:
        """Who asked or was answered."""
        return tuple(
            sorted({request.tenant for request in self.asked} | {answered.tenant for answered in self.answered})
        )


@dataclass(frozen=True, slots=True)
class WatchHistory:
    """All that is kept; moments are of the watch's clock."""

    at_s: float
    unix_s: float
    """Unix time when that clock stood at nothing."""
    began_s: float
    """When it began to watch."""
    whole_since_s: float | None
    """From then on nothing was forgotten because there was too much; None: nothing was at all."""
    asked: Sequence[ObservedRequest]
    samples: Sequence[RequestSample]
    looks: Sequence[TickSample]

    def unix(self, at_s: float) -> float:
        """A moment as unix time."""
        return self.unix_s + at_s


def measured(seen: RecentRequests) -> Workload | None:
    """A load as plans take it, rounded to two digits; None where nobody asked."""
    if not seen.asked:
        return None
    answers = [answered.completion_tokens for answered in seen.answered]
    prompts = [request.prompt_tokens for request in seen.asked]
    return Workload(
        rate_rps=rounded(len(seen.asked) / seen.seconds),
        input_tokens=max(1, round(rounded(mean(prompts)))),
        output_tokens=max(1, round(rounded(mean(answers)))) if answers else 0,
        concurrency=max(1, seen.concurrency),
        inputs=spread_of(prompts) or CHAT_INPUTS,
        outputs=spread_of(answers) or CHAT_OUTPUTS,
        burstiness=seen.burstiness or 1.0,
        prefix_hit=seen.prefix_hit or 0.0,
    )


def completed(load: Workload, declared: Workload) -> Workload:
    """A measured load; what it does not tell, or too few requests do, is as declared."""
    known = load if load.inputs.source == OBSERVED else declared
    return replace(
        load,
        output_tokens=load.output_tokens or declared.output_tokens,
        inputs=known.inputs,
        outputs=load.outputs if load.outputs.source == OBSERVED else declared.outputs,
        burstiness=known.burstiness,
        prefix_hit=known.prefix_hit,
    )


def spread_of(lengths: Sequence[int]) -> Spread | None:
    """How these lie around their mean, in quarters and as far as a lognormal can; None with too few."""
    if len(lengths) < ENOUGH:
        return None
    p95_by_mean = _quarters((percentile(lengths, 0.95) or 0.0) / max(1.0, mean(lengths)))
    return Spread(min(MOST_P95, max(1.0, p95_by_mean)), source=OBSERVED)


def _quarters(value: float) -> float:
    return max(0.25, round(4 * value) / 4)


class Watch:
    """The router's observers: passes everything on to the metrics, and keeps what goals are about."""

    def __init__(
        self,
        metrics: Observers,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._began_s = clock()
        self._asked: deque[ObservedRequest] = deque(maxlen=MOST)
        self._answered: deque[Answered] = deque(maxlen=MOST)
        self._samples: deque[RequestSample] = deque(maxlen=MOST)
        self._looks: deque[TickSample] = deque(maxlen=MOST)
        self._tenants: dict[str, _Tenant] = {}

    def of(self, tenant: str) -> "_Tenant":
        """Who is told of a tenant's requests."""
        if tenant not in self._tenants:
            self._tenants[tenant] = _Tenant(self, tenant, self._metrics.of(tenant))
        return self._tenants[tenant]

    def look(
        self, lookback_s: float, waits_s: Sequence[tuple[str, float]], num_streams: int, num_tokens: int = 0
    ) -> Observation:
        """What was seen until now; ``num_streams`` are open, and ``num_tokens`` were accepted in all.

        Called at every tick (5 s where nobody says otherwise), it forgets what is old.
        """
        now_s = self._clock()
        self._looks.append(TickSample(now_s, num_streams, num_tokens, len(waits_s)))
        for kept in (self._asked, self._answered, self._samples, self._looks):
            while kept and kept[0].at_s < now_s - KEPT_S:
                kept.popleft()
        seen = self.seconds(lookback_s, waits_s)
        return Observation(
            at_s=now_s,
            load=measured(seen),
            answered_rps=len(seen.answered) / lookback_s,
            answered_tok_s=seen.tokens_s,
            samples=tuple(self._samples),
            waits_s=waits_s,
        )

    def seconds(self, lookback_s: float, waits_s: Sequence[tuple[str, float]]) -> RecentRequests:
        """All that was seen in the last seconds. Called in the event loop, as all of this."""
        since_s = self._clock() - lookback_s
        looks = _lately(self._looks, since_s) or tuple(self._looks)[-1:]
        return RecentRequests(
            seconds=lookback_s,
            asked=_lately(self._asked, since_s),
            answered=_lately(self._answered, since_s),
            samples=_lately(self._samples, since_s),
            waits_s=waits_s,
            concurrency=max((look.streams - look.waiting for look in looks), default=0),
        )

    def minutes(self) -> WatchHistory:
        """All that is kept, of at least the last 900 s. Called in the event loop."""
        now_s = self._clock()
        full = [kept[0].at_s for kept in (self._asked, self._samples) if len(kept) == kept.maxlen]
        return WatchHistory(
            at_s=now_s,
            unix_s=self._wall() - now_s,
            began_s=self._began_s,
            whole_since_s=max(full, default=None),
            asked=tuple(self._asked),
            samples=tuple(self._samples),
            looks=tuple(self._looks),
        )

    def turned_away(self) -> None:
        """Count a client that was refused for no fault of its own.

        Before anybody knew which model it wanted.
        """
        now_s = self._clock()
        self._samples.append(RequestSample("error_rate", "", now_s, 1.0, now_s))

    def _arrived(self, tenant: str, prompt_tokens: int) -> None:
        self._asked.append(ObservedRequest(self._clock(), tenant, prompt_tokens))

    def _ended(self, tenant: str, finish: Finish, usage: Usage, e2e_s: float, tpot_s: float | None) -> None:
        now_s = self._clock()
        is_whole = finish is not Finish.ERROR
        arrived_s = now_s - e2e_s
        if finish is Finish.CANCELLED:
            kinds: tuple[Kind, ...] = ("e2e",) if usage.completion_tokens else ("ttft", "e2e")
            self._samples += [RequestSample(kind, tenant, now_s, e2e_s, arrived_s, True) for kind in kinds]
            return
        self._samples.append(RequestSample("error_rate", tenant, now_s, 0.0 if is_whole else 1.0, arrived_s))
        if not is_whole:
            return
        self._answered.append(
            Answered(now_s, tenant, usage.completion_tokens, usage.prompt_tokens, usage.cached_tokens)
        )
        self._samples.append(RequestSample("e2e", tenant, now_s, e2e_s, arrived_s))
        if tpot_s is not None:
            self._samples.append(RequestSample("tpot", tenant, now_s, tpot_s, arrived_s))

    def _began(self, tenant: str, ttft_s: float) -> None:
        now_s = self._clock()
        self._samples.append(RequestSample("ttft", tenant, now_s, ttft_s, now_s - ttft_s))


class _Tenant:
    """An observer of one tenant's requests; tokens go to the metrics without a detour."""

    def __init__(self, watch: Watch, tenant: str, metrics: Observer) -> None:
        self._watch = watch
        self._tenant = tenant
        self._metrics = metrics
        self.next_token = metrics.next_token
        self.refused = metrics.refused

    def arrived(self, prompt_tokens: int) -> None:
        self._metrics.arrived(prompt_tokens)
        self._watch._arrived(self._tenant, prompt_tokens)  # noqa: SLF001 - a part of it

    def first_token(self, ttft_s: float) -> None:
        self._metrics.first_token(ttft_s)
        self._watch._began(self._tenant, ttft_s)  # noqa: SLF001

    def finished(self, finish: Finish, usage: Usage, *, e2e_s: float, tpot_s: float | None) -> None:
        self._metrics.finished(finish, usage, e2e_s=e2e_s, tpot_s=tpot_s)
        self._watch._ended(self._tenant, finish, usage, e2e_s, tpot_s)  # noqa: SLF001


def mean(values: Iterable[float]) -> float:
    """Of values; 0 where there is none."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def by_chance(expected: float) -> float:
    """Share by which more requests than are expected may come by chance."""
    return SURPRISING / math.sqrt(expected) if expected > 0 else math.inf


def rounded(value: float) -> float:
    """To two digits: loads that are alike are planned for once."""
    return round(value, 1 - math.floor(math.log10(value))) if value > 0 else 0.0


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that a share of them do not exceed; None where there is none."""
    return float(np.quantile(values, share, method="inverted_cdf")) if values else None


def _lately(kept: deque[Timed], since_s: float) -> tuple[Timed, ...]:
    return tuple(request for request in kept if request.at_s >= since_s)


def statistic(goal: Objective, samples: Sequence[RequestSample]) -> float | None:
    """What a goal is about, as it was measured."""
    values = [
        sample.value
        for sample in samples
        if sample.kind == goal.metric and goal.tenant in {None, sample.tenant} and not sample.is_cut_short
    ]
    return percentile(values, needed(goal)) if counted(goal) == "requests" else mean(values) or None
