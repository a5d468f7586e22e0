"""A closer look at a topology that was chosen: the simulator under its workload, and its latency at other rates. Pure."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from intent.models import PERCENTILES
from runtime.models import Topology
from selector.models import Candidate, Problem, Profile
from selector.performance.load import Reading, reading_of
from selector.performance.simulator import Arrival, simulate
from selector.pipelines.operating import Load
from selector.prediction import candidate, server_of

REQUESTS = 4000
"""Simulated at most; the first tenth, which meet an empty server, do not count."""
_GROWTH = 1.3
"""By how much the mean wait of the last third has to exceed that of the middle one."""
LOADS = 24
"""Rates of a frontier, closer together where latency rises."""
_HIGHEST = 0.98


@dataclass(frozen=True, slots=True)
class Simulated:
    """What an event-driven simulation of Poisson arrivals gave. Latencies in seconds."""

    requests: int
    waits_grow: bool
    """The later ones waited longer, as they do where the load exceeds what is sustained."""
    ttft_s: Reading
    tpot_s: Reading
    e2e_s: Reading


def simulated(
    topology: Topology,
    problem: Problem,
    profiles: Mapping[str, Profile],
    most_steps: float = math.inf,
    seed: int = 0,
) -> Simulated | None:
    """The workload of a problem served in virtual time, with the same arrivals for a seed; None if no request is served.

    After ``most_steps`` of a stage the requests that are served by then are all there are.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    server = server_of(topology, problem.model, problem.cluster, profiles, problem.batching)
    load, draw, now, arrivals = Load.of(problem.workload), random.Random(seed), 0.0, list[Arrival]()
    for _ in range(REQUESTS):
        now += draw.expovariate(load.rate_rps)
        arrivals.append(Arrival(now, load.input_tokens, load.output_tokens))
    found = simulate(server, arrivals, most_steps=most_steps)
    done = found.index(None) if None in found else len(found)  # those behind may have overtaken slower ones
    served = [one for one in found[done // 10 : done] if one]
    if not served:
        return None
    ttft, tpot, e2e = (
        reading_of([getattr(one, name) for one in served], tuple(PERCENTILES))
        for name in ("ttft_s", "tpot_s", "e2e_s")
    )
    return Simulated(len(served), _grows([one.ttft_s for one in served]), ttft, tpot, e2e)


def _grows(waits_s: Sequence[float]) -> bool:
    """Whether the last third is well above the middle one: five thirds of it where waits grow steadily from none."""
    third = len(waits_s) // 3
    if not third:
        return False
    return float(np.mean(waits_s[2 * third :])) > _GROWTH * float(np.mean(waits_s[third : 2 * third]))


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
    here = candidate(topology, problem, profiles)
    most = here.prediction.throughput_tok_s / outputs if here else 0.0
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
    """At one rate; None where its latencies have no end."""
    asked = replace(problem, workload=replace(problem.workload, rate_rps=rate_rps))
    found = candidate(topology, asked, profiles)
    steady = found and math.isfinite(found.prediction.tpot_s["p99"] + found.prediction.ttft_s["p99"])
    return found if steady else None
