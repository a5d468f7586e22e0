"""What it takes to bring requests in flight to another host. Pure."""

import math
from collections.abc import Mapping

from runtime.footprint import kv_bytes_per_token
from runtime.models import Cluster, Topology
from selector.models import Candidate, CrossingPrediction, Profile, ProfileError, SearchInput
from selector.performance.perf import Step
from selector.performance.work import times
from selector.pipelines.operating import OperatingLoad
from selector.prediction import server_of

LINK_SHARE = 0.5
"""Of the network's time that the copy beside serving takes, as the built-in engine has it."""
ROUND_TRIPS = 4
"""Inside a cut between hosts."""
LAST_TOKENS = 8
"""A request lacks so many at most when its cut begins, unless the deployment says otherwise."""


def crossing(
    today: Candidate, target: Candidate, problem: SearchInput, profiles: Mapping[str, Profile]
) -> CrossingPrediction | None:
    """For as many requests as the workload has in flight, each of its mean length.

    None within a host, or where the deployment names no network between hosts or the target has no figures.
    """
    link = problem.cluster.between
    load = OperatingLoad.of(problem.workload)
    engine = problem.capabilities
    if link is None or _hosts(today.topology, problem.cluster) == _hosts(target.topology, problem.cluster):
        return None
    token_bytes = kv_bytes_per_token(problem.model, today.topology.stages[0].precision.kv)
    kv_bytes = load.held * load.context_tokens * token_bytes
    try:
        server = server_of(target.topology, problem.model, problem.cluster, profiles, problem.batching, engine)
    except (KeyError, ProfileError):
        return None
    stages_s = times(server, Step.of(1, round(load.context_tokens), 0))
    anew_s = sum(stages_s) + (load.held - 1) * max(stages_s)
    if engine is None or not engine.carries:
        return CrossingPrediction("anew", kv_bytes, anew_s, 0.0, anew_s)
    tokens_s = today.prediction.throughput_tok_s * today.prediction.gpu_util
    written_bytes_s = tokens_s * (1 + load.input_tokens / load.output_tokens) * token_bytes
    free_bytes_s = link.bandwidth_bytes_s * LINK_SHARE - written_bytes_s
    sync_s = kv_bytes / free_bytes_s if free_bytes_s > 0 else math.inf
    last_bytes = load.held * LAST_TOKENS * token_bytes
    cut_s = ROUND_TRIPS * 2 * link.latency_s + last_bytes / link.bandwidth_bytes_s
    return CrossingPrediction("copied", kv_bytes, sync_s, cut_s, anew_s)


def _hosts(topology: Topology, cluster: Cluster) -> set[str]:
    devices = set(topology.devices)
    return {node.name for node in cluster.nodes if any(gpu.index in devices for gpu in node.gpus)}
