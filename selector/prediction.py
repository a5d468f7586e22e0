"""A topology as a server, and what it is predicted to do. Pure."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from runtime.capabilities import USUAL_BATCHING, Batching, Capabilities
from runtime.errors import TopologyError
from runtime.footprint import blocks
from runtime.models import Cluster, ModelSpec, Stage, Topology
from selector.models import Candidate, Frontier, Prediction, Profile, ProfileError, ReplicaShare, SearchInput, Source
from selector.objectives import barred_tenants, named_tenants
from selector.performance.joint import SetFigures, judged_set, speed_of
from selector.performance.judge import LoadFigures, judged, sustained_rps
from selector.performance.load import IDLE_RPS, SERVING_SHARE
from selector.performance.perf import ServerModel, stage_costs
from selector.pipelines.operating import BLOCK_TOKENS


def server_of(
    topology: Topology,
    model: ModelSpec,
    cluster: Cluster,
    profiles: Mapping[str, Profile],
    batching: Batching = USUAL_BATCHING,
    engine: Capabilities | None = None,
) -> ServerModel:
    """A topology as a server of continuous batches; an engine may keep less KV than fits.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    kv_bytes = engine.kv_bytes if engine else None
    kv_tokens = engine.kv_tokens if engine else None
    held = blocks(topology, model, cluster, BLOCK_TOKENS, kv_bytes=kv_bytes, kv_tokens=kv_tokens)
    return ServerModel(
        stages=stage_costs(topology, model, cluster, profiles),
        slots=batching.max_sequences,
        kv_tokens=held * BLOCK_TOKENS,
        chunk_tokens=batching.max_step_tokens,
        share=SERVING_SHARE,
    )


def candidate(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], batching: Batching | None = None
) -> Candidate | None:
    """A topology with what it is predicted to do.

    Steps are filled as said, else as they are, else as far as they may. None if it does not hold the KV of the load, or if no
    replica may serve some tenant.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    steps = batching or usual_batching(topology, problem)
    if len(topology.replicas) > 1:
        joint = _joint(topology, problem, profiles, steps)
        return _candidate_of_set(topology, problem, profiles, steps, joint) if joint else None
    found = outcome(topology, problem, profiles, steps)
    return Candidate(topology, _prediction(topology, problem, profiles, found), "", batching=steps) if found else None


def outcome(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], batching: Batching | None = None
) -> LoadFigures | None:
    """What the simulation gives of a topology, of all its replicas together; else as ``candidate``."""
    steps = batching or usual_batching(topology, problem)
    if len(topology.replicas) > 1:
        joint = _joint(topology, problem, profiles, steps)
        return joint.together if joint else None
    servers = _servers(topology, problem, profiles, steps)
    found = judged(servers[0], problem.workload, problem.model.max_position_embeddings) if servers else None
    return found if found and found.sustained_rps else None


def _servers(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], steps: Batching
) -> tuple[ServerModel, ...]:
    """Of each replica; none where they do not hold the KV of the load together."""
    servers = tuple(
        server_of(replica, problem.model, problem.cluster, profiles, steps.of(place), problem.capabilities)
        for place, replica in enumerate(topology.replicas)
    )
    workload = problem.workload
    held = max(1, workload.concurrency) * (workload.input_tokens + workload.output_tokens)
    return servers if sum(server.kv_tokens for server in servers) >= held else ()


def _joint(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], steps: Batching
) -> SetFigures | None:
    servers = _servers(topology, problem, profiles, steps)
    barred = tuple(barred_tenants(replica, problem) for replica in topology.replicas)
    longest = problem.model.max_position_embeddings
    tenants = (*named_tenants(problem), "")
    return judged_set(servers, problem.workload, longest, barred, problem.bounds, tenants) if servers else None


def _candidate_of_set(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], steps: Batching, found: SetFigures
) -> Candidate:
    servers = _servers(topology, problem, profiles, steps)
    replicas = []
    for place, replica in enumerate(topology.replicas):
        share = found.given[place]
        part = replace(problem, workload=replace(problem.workload, rate_rps=problem.workload.rate_rps * share))
        prediction = _prediction(replica, part, profiles, found.each[place])
        barred = barred_tenants(replica, problem)
        replicas.append(
            ReplicaShare(
                replica,
                steps.of(place),
                share,
                found.planned[place],
                prediction,
                speed_of(servers[place], problem.workload),
                not_for=tuple(sorted(name or OTHERS for name in barred)),
                only_for=tuple(sorted({*named_tenants(problem)} - barred)) if "" in barred else (),
            )
        )
    together = replace(
        _prediction(topology, problem, profiles, found.together),
        quality_loss=math.fsum(each.share * each.prediction.quality_loss for each in replicas),
        quality_source=min(each.prediction.quality_source for each in replicas),  # assumed, if one is
    )
    return Candidate(topology, together, "", steps, tuple(replicas))


def known(
    topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], batching: Batching | None = None
) -> Candidate | None:
    """As ``candidate``, and None where nobody can tell."""
    try:
        return candidate(topology, problem, profiles, batching)
    except (KeyError, ProfileError, TopologyError):
        return None


def as_it_runs(problem: SearchInput, profiles: Mapping[str, Profile]) -> Candidate | None:
    """What runs, may it go on or not; None where nothing does, or nobody can tell."""
    if problem.now is None:
        return None
    alone = replace(problem, workload=replace(problem.workload, concurrency=1))
    return known(problem.now, problem, profiles) or known(problem.now, alone, profiles)


def usual_batching(topology: Topology, problem: SearchInput) -> Batching:
    """As what runs fills its steps, or as far as engine and limits allow."""
    return (problem.running if topology == problem.now else None) or problem.batching


def _prediction(
    topology: Topology,
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    outcome: LoadFigures,
) -> Prediction:
    workload = problem.workload
    source, error_band = confidence(topology, profiles)
    quality_loss, quality_source = problem.loss_of(topology)
    return Prediction(
        ttft_s=outcome.ttft_s,
        tpot_s=outcome.tpot_s,
        e2e_s=outcome.e2e_s,
        throughput_tok_s=outcome.sustained_rps * max(1, workload.output_tokens),
        gpu_util=min(1.0, max(workload.rate_rps, IDLE_RPS) / outcome.sustained_rps),
        usd_per_hour=sum(problem.cluster.gpu(device).usd_per_hour for device in topology.devices),
        batch=outcome.batch,
        peak=outcome.peak,
        quality_loss=quality_loss,
        error_band=error_band,
        source=source,
        devices=len(topology.devices),
        quality_source=quality_source,
    )


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


OTHERS = "everyone else"
"""Tenants of whom nothing was said."""

LOADS = 24
"""Rates of a frontier, closer together where latency rises."""
_HIGHEST = 0.98


def frontier(
    label: str,
    topology: Topology,
    problem: SearchInput,
    profiles: Mapping[str, Profile],
    batching: Batching | None = None,
) -> Frontier:
    """From next to nothing up to saturation.

    Raises:
        ProfileError: a device kind, format or group size without figures.
    """
    alone = replace(problem, workload=replace(problem.workload, concurrency=1))
    steps = batching or usual_batching(topology, problem)
    servers = _servers(topology, alone, profiles, steps)
    most = sum(sustained_rps(server, problem.workload, problem.model.max_position_embeddings) for server in servers)
    rates = [most * _HIGHEST * math.sin(math.pi / 2 * step / LOADS) for step in range(1, LOADS + 1)]
    points = [
        (rate, found.prediction.ttft_s["p99"], found.prediction.tpot_s["p99"])
        for rate in rates
        if most and (found := _at(rate, topology, alone, profiles, steps))
    ]
    rates_rps, ttft_s, tpot_s = tuple(zip(*points, strict=True)) or ((), (), ())
    return Frontier(label, str(topology), rates_rps, ttft_s, tpot_s, most)


def _at(
    rate_rps: float, topology: Topology, problem: SearchInput, profiles: Mapping[str, Profile], batching: Batching
) -> Candidate | None:
    """At one rate; None where its latencies have no end."""
    at_rate = replace(problem, workload=replace(problem.workload, rate_rps=rate_rps))
    found = candidate(topology, at_rate, profiles, batching)
    return found if found and math.isfinite(found.prediction.ttft_s["p99"]) else None
