"""A topology as a server, what it is predicted to do, and a closer look. Pure."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from intent.models import PERCENTILES
from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.footprint import blocks
from runtime.models import Cluster, ModelSpec, Stage, Topology
from selector.models import Candidate, Prediction, Profile, SearchInput, Source
from selector.performance.latency import Reading, reading_of
from selector.performance.load import SERVING_SHARE
from selector.performance.perf import stage_costs
from selector.performance.simulator import RequestArrival, ServerModel, simulate
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BLOCK_TOKENS, OperatingLoad, Setting, StageKind, pools_of
from selector.pipelines.optimum import STATISTICS, Metric, Threshold, latencies_s
from selector.pipelines.stages import running


def server_of(
    topology: Topology,
    model: ModelSpec,
    cluster: Cluster,
    profiles: Mapping[str, Profile],
    batching: Batching = USUAL_BATCHING,
) -> ServerModel:
    """A topology as a server of continuous batches.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    return ServerModel(
        stages=stage_costs(topology, model, cluster, profiles),
        slots=batching.max_sequences,
        kv_tokens=blocks(topology, model, cluster, BLOCK_TOKENS) * BLOCK_TOKENS,
        chunk_tokens=batching.max_step_tokens,
        share=SERVING_SHARE,
    )


def candidate(topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile]) -> Candidate | None:
    """A topology with as many sequences at once as the engine runs and its KV holds.

    None if it does not hold the load.

    Raises:
        ProfileError: a device kind, format or group size without figures.
    """
    if topology in problem.observed:
        return Candidate(topology, problem.observed[topology], "")
    pools = pools_of(problem.cluster, dict.fromkeys(stage.kind for stage in topology.stages))
    places = {device: place for place, pool in enumerate(pools) for node in pool.nodes for device in node}
    stages = [_parts(stage, places[stage.devices[0]]) for stage in topology.stages]
    kinds = list(dict.fromkeys(kind for parts in stages for kind, _ in parts))
    grid = Grid.of(kinds, [topology.pp_size], pools, Setting.of(problem, profiles))
    found = _prediction(topology, running(grid, stages), grid)
    return Candidate(topology, corrected(found, problem), "") if found else None


def corrected(prediction: Prediction, problem: SearchInput) -> Prediction:
    """A prediction times what predictions are known to be off by."""
    if not problem.corrections:
        return prediction

    def scaled(metric: str, reading: Mapping[str, float]) -> dict[str, float]:
        return {stat: value * problem.correction(metric, stat) for stat, value in reading.items()}

    sustained = problem.correction("rate", "mean")
    return replace(
        prediction,
        ttft_s=scaled("ttft", prediction.ttft_s),
        tpot_s=scaled("tpot", prediction.tpot_s),
        e2e_s=scaled("e2e", prediction.e2e_s),
        throughput_tok_s=prediction.throughput_tok_s * sustained,
        gpu_util=min(1.0, prediction.gpu_util / sustained),
    )


def _parts(stage: Stage, pool: int) -> list[tuple[StageKind, int]]:
    """A stage by the precisions of its layers, its own first if any layer has it."""
    counts = dict.fromkeys([stage.precision.weights], 0)
    for layer in stage.layers:
        name = stage.precision_of(layer).weights
        counts[name] = counts.get(name, 0) + 1
    return [(StageKind(pool, stage.kind, stage.tp_size, name), count) for name, count in counts.items() if count]


def _prediction(topology: Topology, pipelines: Sequence[Pipeline], grid: Grid) -> Prediction | None:
    """The SLIs at the largest of some batch limits, which rise.

    Each statistic at the batch that is enough for it.
    """
    if not pipelines:
        return None
    load = grid.setting.load
    cluster = grid.setting.cluster
    most = pipelines[-1]
    source, error_band = confidence(topology, grid.setting.profiles)

    def lowest(metric: Metric) -> dict[str, float]:
        return {stat: float(latencies_s(pipelines, Threshold(metric, 0.0, stat), grid).min()) for stat in STATISTICS}

    return Prediction(
        ttft_s=lowest("ttft"),
        tpot_s=lowest("tpot"),
        e2e_s=lowest("e2e"),
        throughput_tok_s=load.output_tokens / most.busy_s,
        gpu_util=min(1.0, load.rate_rps * most.busy_s),
        usd_per_hour=sum(cluster.gpu(device).usd_per_hour for device in topology.devices),
        batch=most.batch,
        quality_loss=_quality_loss(topology, grid.setting.quality_loss),
        error_band=error_band,
        source=source,
        devices=len(topology.devices),
    )


def _quality_loss(topology: Topology, losses: Mapping[str, float]) -> float:
    lost = [losses.get(stage.precision_of(layer).weights, 0.0) for stage in topology.stages for layer in stage.layers]
    return math.fsum(lost) / len(lost)


def confidence(topology: Topology, profiles: Mapping[str, Profile]) -> tuple[Source, float]:
    """The least sure source among the profiles, and the relative error to expect.

    Twice that for a format without anchor.
    """
    used = [profiles[stage.kind] for stage in topology.stages]
    guessed = any(_extrapolates(stage, profiles[stage.kind]) for stage in topology.stages)
    band = max(profile.error_band for profile in used)
    if guessed:
        return "extrapolated", 2 * band
    return max((profile.source for profile in used), key=_doubt), band


def _extrapolates(stage: Stage, profile: Profile) -> bool:
    return any(stage.precision_of(layer).weights in profile.extrapolated for layer in stage.layers)


def _doubt(source: Source) -> int:
    return get_args(Source).index(source)


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
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    most_steps: float = math.inf,
    seed: int = 0,
) -> Simulated | None:
    """The workload of a problem served in virtual time, with the same arrivals for a seed.

    None if no request is served.

    After ``most_steps`` of a stage the requests that are served by then are all there are.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    server = server_of(topology, problem.model, problem.cluster, profiles, problem.batching)
    load = OperatingLoad.of(problem.workload)
    draw = random.Random(seed)
    now = 0.0
    arrivals = list[RequestArrival]()
    for _ in range(REQUESTS):
        now += draw.expovariate(load.rate_rps)
        arrivals.append(RequestArrival(now, load.input_tokens, load.output_tokens))
    found = simulate(server, arrivals, most_steps=most_steps)
    done = found.index(None) if None in found else len(found)  # those behind may have overtaken slower ones
    served = [served for served in found[done // 10 : done] if served]
    if not served:
        return None
    ttft, tpot, e2e = (
        reading_of([getattr(served, name) for served in served], tuple(PERCENTILES))
        for name in ("ttft_s", "tpot_s", "e2e_s")
    )
    return Simulated(len(served), _grows([served.ttft_s for served in served]), ttft, tpot, e2e)


def _grows(waits_s: Sequence[float]) -> bool:
    """Whether the last third is well above the middle one.

    Five thirds of it where waits grow steadily from none.
    """
    third = len(waits_s) // 3
    if not third:
        return False
    return float(np.mean(waits_s[2 * third :])) > _GROWTH * float(np.mean(waits_s[third : 2 * third]))


@dataclass(frozen=True, slots=True)
class Frontier:
    """P99 latencies at rising rates, each at the batch limit that is best there.

    Empty where no request fits.
    """

    rates_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    saturation_rps: float


def frontier(topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile]) -> Frontier:
    """From next to nothing up to saturation.

    Raises:
        ProfileError: a device kind, format or group size without figures.
    """
    outputs = OperatingLoad.of(problem.workload).output_tokens
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


def _at(rate_rps: float, topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile]) -> Candidate | None:
    """At one rate; None where its latencies have no end."""
    at_rate = replace(problem, workload=replace(problem.workload, rate_rps=rate_rps))
    found = candidate(topology, at_rate, profiles)
    steady = found and math.isfinite(found.prediction.tpot_s["p99"] + found.prediction.ttft_s["p99"])
    return found if steady else None
