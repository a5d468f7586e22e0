"""What a topology will do under a workload: its server, bound to model and devices, and the SLIs of that. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.footprint import blocks
from runtime.models import Cluster, ModelSpec, Stage, Topology
from selector.models import Candidate, Prediction, Problem, Profile, Source
from selector.performance.load import SERVING_SHARE
from selector.performance.perf import stage_costs
from selector.performance.simulator import Server
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BLOCK_TOKENS, STEPS, Setting, StageKind
from selector.pipelines.optimum import Metric, Threshold, latencies_s
from selector.pipelines.pools import pools_of
from selector.pipelines.queueing import STATISTICS
from selector.pipelines.stages import running


def server_of(
    topology: Topology,
    model: ModelSpec,
    cluster: Cluster,
    profiles: Mapping[str, Profile],
    batching: Batching = USUAL_BATCHING,
) -> Server:
    """A topology as a server of continuous batches.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    return Server(
        stages=stage_costs(topology, model, cluster, profiles),
        slots=batching.max_sequences,
        kv_tokens=blocks(topology, model, cluster, BLOCK_TOKENS) * BLOCK_TOKENS,
        chunk_tokens=batching.max_step_tokens,
        share=SERVING_SHARE,
    )


def candidates(topology: Topology, problem: Problem, profiles: Mapping[str, Profile]) -> list[Candidate]:
    """A topology at every batch limit with which its KV fits.

    Raises:
        ProfileError: a device kind, format or group size without figures.
    """
    pools = pools_of(problem.cluster, dict.fromkeys(stage.kind for stage in topology.stages))
    places = {device: place for place, pool in enumerate(pools) for node in pool.nodes for device in node}
    stages = [_parts(stage, places[stage.devices[0]]) for stage in topology.stages]
    kinds = list(dict.fromkeys(kind for parts in stages for kind, _ in parts))
    grid = Grid.of(kinds, [topology.pp_size], pools, Setting.of(problem, profiles, STEPS))
    return [Candidate(topology, one, "") for one in _predictions(topology, running(grid, stages), grid)]


def _parts(stage: Stage, pool: int) -> list[tuple[StageKind, int]]:
    """A stage by the precisions of its layers, its own first if any layer has it."""
    counts = dict.fromkeys([stage.precision.weights], 0)
    for layer in stage.layers:
        name = stage.precision_of(layer).weights
        counts[name] = counts.get(name, 0) + 1
    return [
        (StageKind(pool, stage.kind, stage.tp_size, name), count) for name, count in counts.items() if count
    ]


def _predictions(topology: Topology, pipelines: Sequence[Pipeline], grid: Grid) -> Iterator[Prediction]:
    """The SLIs at each batch limit, which rise; each statistic at the batch that is enough for it."""
    if not pipelines:
        return
    load, cluster = grid.setting.load, grid.setting.cluster
    source, error_band = confidence(topology, grid.setting.profiles)
    metrics: tuple[Metric, ...] = ("ttft", "tpot", "e2e")
    best = {
        (metric, stat): np.minimum.accumulate(latencies_s(pipelines, Threshold(metric, 0.0, stat), grid))
        for metric in metrics
        for stat in STATISTICS
    }
    for number, pipeline in enumerate(pipelines):
        ttft_s, tpot_s, e2e_s = (
            {stat: float(best[metric, stat][number]) for stat in STATISTICS} for metric in metrics
        )
        yield Prediction(
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            e2e_s=e2e_s,
            throughput_tok_s=load.output_tokens / pipeline.busy_s,
            gpu_util=min(1.0, load.rate_rps * pipeline.busy_s),
            usd_per_hour=sum(cluster.gpu(device).usd_per_hour for device in topology.devices),
            batch=pipeline.batch,
            quality_loss=_quality_loss(topology, grid.setting.quality_loss),
            error_band=error_band,
            source=source,
            devices=len(topology.devices),
        )


def _quality_loss(topology: Topology, losses: Mapping[str, float]) -> float:
    lost = [
        losses.get(stage.precision_of(layer).weights, 0.0)
        for stage in topology.stages
        for layer in stage.layers
    ]
    return math.fsum(lost) / len(lost)


def confidence(topology: Topology, profiles: Mapping[str, Profile]) -> tuple[Source, float]:
    """The least sure source among the profiles, and the relative error to expect; twice that for a format without anchor."""
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
