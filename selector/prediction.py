"""What a topology will do under a workload: its server, bound to model and devices, and the SLIs of that. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from runtime.capabilities import USUAL_BATCHING, Batching
from runtime.footprint import blocks
from runtime.models import Cluster, ModelSpec, Stage, Topology
from selector.models import Candidate, Prediction, Problem, Profile, Source
from selector.performance.load import SERVING_SHARE
from selector.performance.perf import stage_costs
from selector.performance.simulator import Server
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BLOCK_TOKENS, Setting, StageKind
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


def candidate(topology: Topology, problem: Problem, profiles: Mapping[str, Profile]) -> Candidate | None:
    """A topology with as many sequences at once as the engine runs and its KV holds; None if it does not hold the load.

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


def corrected(prediction: Prediction, problem: Problem) -> Prediction:
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
    return [
        (StageKind(pool, stage.kind, stage.tp_size, name), count) for name, count in counts.items() if count
    ]


def _prediction(topology: Topology, pipelines: Sequence[Pipeline], grid: Grid) -> Prediction | None:
    """The SLIs at the largest of some batch limits, which rise; each statistic at the batch that is enough for it."""
    if not pipelines:
        return None
    load, cluster, most = grid.setting.load, grid.setting.cluster, pipelines[-1]
    source, error_band = confidence(topology, grid.setting.profiles)

    def lowest(metric: Metric) -> dict[str, float]:
        return {
            stat: float(latencies_s(pipelines, Threshold(metric, 0.0, stat), grid).min())
            for stat in STATISTICS
        }

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
