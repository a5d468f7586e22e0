"""What a topology will do under a workload: its server, bound to model and devices, and the SLIs of that. Pure."""

import math
from collections.abc import Mapping
from typing import get_args

from runtime.footprint import blocks
from runtime.models import Cluster, ModelSpec, Stage, Topology
from selector.load import SERVING_SHARE, Lengths, closed_loop_means
from selector.models import Prediction, Profile, Source, Workload
from selector.perf import stage_costs
from selector.simulator import Server
from selector.space import BLOCK_TOKENS

CHUNK_TOKENS = 2048
"""Tokens of one step, decodes included, unless the engine says otherwise: what serving engines default to."""
MAX_SEQUENCES = 2048
"""Sequences that may run at once, unless the engine says otherwise; memory is what usually bounds them."""


def server_of(
    topology: Topology, model: ModelSpec, cluster: Cluster, profiles: Mapping[str, Profile]
) -> Server:
    """A topology as a server of continuous batches.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    return Server(
        stages=stage_costs(topology, model, cluster, profiles),
        slots=MAX_SEQUENCES,
        kv_tokens=blocks(topology, model, cluster, BLOCK_TOKENS) * BLOCK_TOKENS,
        chunk_tokens=CHUNK_TOKENS,
        share=SERVING_SHARE,
    )


def predict(
    topology: Topology,
    workload: Workload,
    model: ModelSpec,
    cluster: Cluster,
    profiles: Mapping[str, Profile],
) -> Prediction:
    """SLIs of a service that holds ``workload.concurrency`` requests in flight, all of them means.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
        WorkloadError: lengths that are not positive.
    """
    server = server_of(topology, model, cluster, profiles)
    lengths = Lengths.fixed(workload.input_tokens, max(1, workload.output_tokens))
    slis = closed_loop_means(server, max(1, workload.concurrency), lengths)
    ttft_s = slis.ttft_s["mean"] if slis.ttft_s else math.inf
    tpot_s = slis.tpot_s["mean"] if slis.tpot_s else math.inf
    source, error_band = confidence(topology, profiles)
    return Prediction(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=ttft_s + (lengths.output_tokens - 1) * tpot_s,
        throughput_tok_s=slis.throughput_tok_s,
        gpu_util=min(1.0, workload.rate_rps * lengths.output_tokens / max(slis.throughput_tok_s, 1e-12)),
        usd_per_hour=sum(cluster.gpu(device).usd_per_hour for device in topology.devices),
        error_band=error_band,
        source=source,
    )


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
