"""What it takes to bring requests in flight to another node, or to compute them anew. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace

from runtime.footprint import kv_bytes_per_token
from selector.models import Candidate, CrossingPrediction, Profile, ProfileError, SearchInput
from selector.performance.load import times
from selector.performance.perf import Step
from selector.pipelines.operating import OperatingLoad
from selector.prediction import server_of
from selector.switching import kv_bytes, way

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

    What goes from one node to another takes the network, whether these are hosts or not. None where nothing does, or where the
    deployment names no network or the target has no figures. Where what runs has to end first all of it is computed anew.
    """
    cluster = problem.cluster
    link = cluster.between or cluster.network
    load = OperatingLoad.of(problem.workload)
    engine = problem.capabilities
    at = {gpu.index: node.name for node in cluster.nodes for gpu in node.gpus}
    over_bytes = kv_bytes(today.topology, target.topology, problem.model, at)
    ends_first = way(target.topology, replace(problem, now=today.topology)) == "restart"
    if not ends_first and (link is None or not over_bytes):
        return None
    try:
        server = server_of(target.topology, problem.model, cluster, profiles, problem.batching, engine)
    except (KeyError, ProfileError):
        return None
    stages_s = times(server, Step.of(1, round(load.context_tokens), 0))
    anew_s = sum(stages_s) + (load.held - 1) * max(stages_s)
    tokens = load.held * load.context_tokens
    whole_bytes = kv_bytes_per_token(problem.model, today.topology.stages[0].precision.kv)
    if ends_first or link is None or engine is None or not engine.carries:
        return CrossingPrediction("anew", tokens * whole_bytes, anew_s, 0.0, anew_s)
    tokens_s = today.prediction.throughput_tok_s * today.prediction.gpu_util
    written_bytes_s = tokens_s * (1 + load.input_tokens / load.output_tokens) * over_bytes
    free_bytes_s = link.bandwidth_bytes_s * LINK_SHARE - written_bytes_s
    sync_s = tokens * over_bytes / free_bytes_s if free_bytes_s > 0 else math.inf
    last_bytes = load.held * LAST_TOKENS * over_bytes
    cut_s = ROUND_TRIPS * 2 * link.latency_s + last_bytes / link.bandwidth_bytes_s
    return CrossingPrediction("copied", tokens * over_bytes, sync_s, cut_s, anew_s)
