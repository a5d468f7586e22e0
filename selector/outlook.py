"""A closer look at a topology that was chosen: the simulator under its workload, and its latency at other rates. Pure."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from runtime.models import Topology
from selector.models import Candidate, Problem, Profile
from selector.performance.load import Reading, reading_of
from selector.performance.simulator import Arrival, simulate
from selector.pipelines.operating import Load
from selector.prediction import candidates, server_of

REQUESTS = 4000
"""Simulated; the first tenth, which meet an empty server, do not count."""
LOADS = 24
"""Rates of a frontier, closer together where latency rises."""
_HIGHEST = 0.98


@dataclass(frozen=True, slots=True)
class Simulated:
    """What an event-driven simulation of Poisson arrivals gave. Latencies in seconds."""

    requests: int
    ttft_s: Reading
    tpot_s: Reading
    e2e_s: Reading


def simulated(
    topology: Topology, batch: int, problem: Problem, profiles: Mapping[str, Profile]
) -> Simulated | None:
    """The workload of a problem served in virtual time, always with the same arrivals; None if no request fits.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    batching = replace(problem.batching, max_sequences=batch)
    server = server_of(topology, problem.model, problem.cluster, profiles, batching)
    load, draw, now, arrivals = Load.of(problem.workload), random.Random(0), 0.0, list[Arrival]()
    for _ in range(REQUESTS):
        now += draw.expovariate(load.rate_rps)
        arrivals.append(Arrival(now, load.input_tokens, load.output_tokens))
    served = [one for one in simulate(server, arrivals)[REQUESTS // 10 :] if one]
    if not served:
        return None
    ttft, tpot, e2e = (
        reading_of(np.array([getattr(one, name) for one in served])) for name in ("ttft_s", "tpot_s", "e2e_s")
    )
    return Simulated(len(served), ttft, tpot, e2e)


@dataclass(frozen=True, slots=True)
class Frontier:
    """P99 latencies at rising rates, each at the batch limit that is best there; empty where no request fits."""

    rates_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    saturation_rps: float


def frontier(topology: Topology, problem: Problem, profiles: Mapping[str, Profile]) -> Frontier:
    """From next to nothing up to saturation.

    Raises:
        ProfileError: a device kind, format or group size without figures.
    """
    outputs = Load.of(problem.workload).output_tokens
    here = candidates(topology, problem, profiles)
    most = max((one.prediction.throughput_tok_s / outputs for one in here), default=0.0)
    rates = [most * _HIGHEST * math.sin(math.pi / 2 * step / LOADS) for step in range(1, LOADS + 1)]
    points = [
        (rate, best.prediction.ttft_s["p99"], best.prediction.tpot_s["p99"])
        for rate in rates
        if most and (best := _at(rate, topology, problem, profiles))
    ]
    rates_rps, ttft_s, tpot_s = tuple(zip(*points, strict=True)) or ((), (), ())
    return Frontier(rates_rps, ttft_s, tpot_s, most)


def _at(
    rate_rps: float, topology: Topology, problem: Problem, profiles: Mapping[str, Profile]
) -> Candidate | None:
    """At the smallest batch limit with which p99 latencies have an end."""
    asked = replace(problem, workload=replace(problem.workload, rate_rps=rate_rps))
    steady = (
        one
        for one in candidates(topology, asked, profiles)
        if math.isfinite(one.prediction.tpot_s["p99"]) and math.isfinite(one.prediction.ttft_s["p99"])
    )
    return min(steady, key=lambda one: one.prediction.batch, default=None)
