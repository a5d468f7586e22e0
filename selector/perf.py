"""How long a step takes and what a service of such steps gives: a roofline per layer. Pure.

One step on one rank, per layer: GEMM time from FLOPs and time to stream the weights overlap imperfectly
(``OVERLAP``); reading the KV cache, two all-reduces and a fixed overhead come on top. Stages add up for
latency; the slowest one sets the throughput, with as many micro-batches in flight as stages. Weight-only
formats compute in their activation format, so they save memory traffic and no prefill FLOPs. Left out:
chunked prefill, queueing, prefix hits.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Precision, Stage, Topology
from selector.errors import ProfileError
from selector.models import Prediction, Profile, Source, Workload

OVERLAP = 1.5
"""Exponent of the norm that joins compute and weight streaming: 1 adds, infinity takes the larger; fitted."""

ALLREDUCES_PER_LAYER = 2
"""After attention and after the MLP."""


@dataclass(frozen=True, slots=True)
class Step:
    """One forward pass: ``sequences`` of ``new_tokens`` each, behind ``cached_tokens`` each."""

    sequences: int
    new_tokens: int
    cached_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens computed."""
        return self.sequences * self.new_tokens

    @property
    def attended_tokens(self) -> float:
        """Sum over the new tokens of how many tokens each attends to."""
        return self.tokens * (self.cached_tokens + (self.new_tokens + 1) / 2)

    @property
    def kv_tokens(self) -> int:
        """Tokens whose KV is read."""
        return self.sequences * (self.cached_tokens + self.new_tokens)


def stage_times_s(
    topology: Topology, step: Step, model: ModelSpec, cluster: Cluster, profiles: Mapping[str, Profile]
) -> tuple[float, ...]:
    """Seconds each stage is busy with a step, its hop to the next stage included.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    times = [_stage_s(stage, step, model, _profile(stage, profiles)) for stage in topology.stages]
    for number, (stage, after) in enumerate(zip(topology.stages, topology.stages[1:], strict=False)):
        times[number] += _hop_s(stage, after, step.tokens * _hidden_bytes(stage, model), cluster, profiles)
    times[-1] += _head_s(topology.stages[-1], model, _profile(topology.stages[-1], profiles))
    return tuple(times)


def _profile(stage: Stage, profiles: Mapping[str, Profile]) -> Profile:
    if stage.kind not in profiles:
        raise ProfileError(f"no profile for {stage.kind}; there are {', '.join(profiles) or 'none'}")
    return profiles[stage.kind]


def _stage_s(stage: Stage, step: Step, model: ModelSpec, profile: Profile) -> float:
    precisions = Counter(map(stage.precision_of, stage.layers))
    layers = sum(
        count * _layer_s(precision, stage.tp_size, step, model, profile)
        for precision, count in precisions.items()
    )
    reduces = (
        len(stage.layers)
        * ALLREDUCES_PER_LAYER
        * _allreduce_s(stage, step.tokens * _hidden_bytes(stage, model), profile)
    )
    return layers + reduces + profile.step_overhead_s


def _layer_s(precision: Precision, tp: int, step: Step, model: ModelSpec, profile: Profile) -> float:
    attention_flops = 4 * model.num_heads * model.head_dim * step.attended_tokens
    flops = (2 * model.layer_parameters * step.tokens + attention_flops) / tp
    compute_s = flops / _compute_rate(precision.activations, profile)
    weight_bytes = model.layer_parameters * BYTES_PER_VALUE[precision.weights] / tp
    weights_s = weight_bytes / _weight_rate(precision.weights, profile)
    kv_bytes = 2 * model.num_kv_heads * model.head_dim * BYTES_PER_VALUE[precision.kv] * step.kv_tokens / tp
    kv_s = kv_bytes / (profile.memory_bytes_s * profile.kv_share)
    gemm_s: float = (compute_s**OVERLAP + weights_s**OVERLAP) ** (1 / OVERLAP)
    return gemm_s + kv_s + profile.layer_overhead_s


def _head_s(stage: Stage, model: ModelSpec, profile: Profile) -> float:
    """The output head: few rows, so its weights are what counts; 16 bits at least."""
    size = model.embedding_parameters * _wide(stage.precision.activations) / stage.tp_size
    rate = max(profile.weight_share.values()) * profile.memory_bytes_s
    return size / rate


def _compute_rate(activations: str, profile: Profile) -> float:
    if activations not in profile.flops_s:
        raise ProfileError(f"{profile.kind} has no figure for computing in {activations}")
    return profile.flops_s[activations] * profile.compute_share[activations]


def _weight_rate(weights: str, profile: Profile) -> float:
    if weights not in profile.weight_share:
        raise ProfileError(
            f"{profile.kind} has no figure for weights in {weights}; it has {', '.join(profile.precisions)}"
        )
    return profile.memory_bytes_s * profile.weight_share[weights]


def _allreduce_s(stage: Stage, size_bytes: float, profile: Profile) -> float:
    """One all-reduce; a group size between two known ones takes the larger's figures."""
    if stage.tp_size == 1:
        return 0.0
    groups = [size for size in sorted(profile.allreduce_bytes_s) if size >= stage.tp_size]
    if not groups:
        raise ProfileError(f"{profile.kind} has no all-reduce figure for groups of {stage.tp_size}")
    return profile.allreduce_latency_s[groups[0]] + size_bytes / profile.allreduce_bytes_s[groups[0]]


def _hop_s(
    source: Stage, target: Stage, size_bytes: float, cluster: Cluster, profiles: Mapping[str, Profile]
) -> float:
    """Hidden states to the next stage: the node's own link as profiled, or the network as declared."""
    a, b = source.devices[0], target.devices[0]
    link = cluster.link_between(a, b)
    if link is not cluster.network:
        profile = _profile(source, profiles)
        return profile.p2p_latency_s + size_bytes / profile.p2p_bytes_s
    return link.latency_s + size_bytes / link.bandwidth_bytes_s


def _wide(activations: str) -> float:
    """Bytes of one value between layers: FP8 engines keep hidden states, embedding and head in 16 bits."""
    return max(2.0, BYTES_PER_VALUE[activations])


def _hidden_bytes(stage: Stage, model: ModelSpec) -> float:
    return model.hidden_size * _wide(stage.precision.activations)


def predict(
    topology: Topology,
    workload: Workload,
    model: ModelSpec,
    cluster: Cluster,
    profiles: Mapping[str, Profile],
) -> Prediction:
    """SLIs of a service that holds ``workload.concurrency`` requests in flight, all of them means.

    In steady state each period (one token for every request) also carries the prefills of the requests that
    take the place of finished ones, so they lengthen TPOT. A new request waits half a period, then for its
    own prefill.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    in_flight = max(1, workload.concurrency)
    batches = min(topology.pp_size, in_flight)
    batch = math.ceil(in_flight / batches)
    context = workload.input_tokens + workload.output_tokens // 2
    prefill = stage_times_s(topology, Step(1, workload.input_tokens, 0), model, cluster, profiles)
    decode = stage_times_s(topology, Step(batch, 1, context), model, cluster, profiles)
    period_s = max(sum(decode), batches * max(decode))
    outputs = max(1, workload.output_tokens)
    tpot_s = period_s + in_flight / outputs * max(prefill)
    ttft_s = period_s / 2 + sum(prefill)
    used = [profiles[stage.kind] for stage in topology.stages]
    throughput_tok_s = in_flight / tpot_s
    guessed = any(_extrapolates(stage, profiles[stage.kind]) for stage in topology.stages)
    return Prediction(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=ttft_s + (outputs - 1) * tpot_s,
        throughput_tok_s=throughput_tok_s,
        gpu_util=min(1.0, workload.rate_rps * outputs / throughput_tok_s),
        usd_per_hour=sum(cluster.gpu(device).usd_per_hour for device in topology.devices),
        error_band=max(profile.error_band for profile in used) * (2 if guessed else 1),
        source="extrapolated" if guessed else max((profile.source for profile in used), key=_doubt),
    )


def _extrapolates(stage: Stage, profile: Profile) -> bool:
    return any(stage.precision_of(layer).weights in profile.extrapolated for layer in stage.layers)


def _doubt(source: Source) -> int:
    return get_args(Source).index(source)
