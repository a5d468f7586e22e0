"""How long one step takes on each stage: a roofline per layer. Pure.

Per layer, on one rank: GEMM time from FLOPs and time to stream the weights overlap imperfectly (``OVERLAP``); reading the KV
cache, the elementwise operations, two all-reduces and a fixed overhead come on top. Weight-only formats compute in their
activation format, so they save memory traffic and no prefill FLOPs; where a profile says so, few tokens are multiplied by
weights as they are, and many by weights made whole before, whichever is quicker. Of a mixture of experts a step computes
``experts_per_token`` and streams those that its tokens are expected to touch. After Seesaw (arXiv 2503.06433): weights, KV,
compute and communication per TP, PP and DP; the elementwise term and the measured all-reduce points are ours.
"""

import bisect
from collections import Counter
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from runtime.footprint import value_bytes
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Precision, Stage, Topology, rank_part
from selector.models import OVERLAP, Profile, ProfileError

Values = np.ndarray[Any, np.dtype[np.float64]]


ALLREDUCES_PER_LAYER = 2
"""After attention and after the MLP."""

ELEMENTWISE_VALUES = 10
"""Hidden values a token reads and writes in two norms and two residual adds of a layer."""
MLP_VALUES = 3
"""Values a token reads and writes per unit of MLP width in the activation."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one forward pass computes; the parts of a mixed batch add up."""

    tokens: float
    """New tokens; a mean step has no whole number of them."""
    attended_tokens: float
    """Sum over the new tokens of how many tokens each attends to."""
    kv_tokens: float
    """Tokens whose KV is read."""
    rows: float
    """Sequences that get a token from it."""

    @classmethod
    def of(cls, sequences: int, new_tokens: int, cached_tokens: int) -> Self:
        """``sequences`` of ``new_tokens`` each, behind ``cached_tokens`` each."""
        tokens = sequences * new_tokens
        return cls(
            tokens=tokens,
            attended_tokens=tokens * (cached_tokens + (new_tokens + 1) / 2),
            kv_tokens=sequences * (cached_tokens + new_tokens),
            rows=sequences,
        )

    def __add__(self, other: "Step") -> "Step":
        return Step(
            self.tokens + other.tokens,
            self.attended_tokens + other.attended_tokens,
            self.kv_tokens + other.kv_tokens,
            self.rows + other.rows,
        )


@dataclass(frozen=True, slots=True)
class LayerCost:
    """What one layer costs on one rank of a stage, its figures looked up once."""

    token_s: float
    """Per new token in the GEMMs."""
    attended_s: float
    """Per token attended to."""
    attention_weights_s: float
    experts_weights_s: float
    """To stream every expert (the one MLP of a dense model)."""
    missed: float
    """Chance that one token does not need an expert; 0 for a dense model."""
    kv_s: float
    """Per token of KV read."""
    elementwise_s: float
    """Per new token."""
    overhead_s: float
    packed_token_s: float
    """Per new token in the GEMMs by weights as they are; ``token_s`` where nothing else is known."""
    unpacked: float
    """So many times as long as streaming weights takes making them whole, for GEMMs at ``token_s``."""

    @classmethod
    def of(cls, precision: Precision, tp: int, model: ModelSpec, profile: Profile) -> Self:
        """The cost of a layer in a precision, split ``tp`` ways: that of the rank with the most KV heads.

        Raises:
            ProfileError: a format without figures.
        """
        flops_s = _compute_rate(precision.activations, profile)
        packed_flops_s = min(flops_s, profile.packed_flops_s.get(precision.weights, flops_s))
        streamed = _weight_rate(precision.weights, profile) / profile.memory_bytes_s
        weight_s = value_bytes(precision.weights, model) / _weight_rate(precision.weights, profile)
        heads = len(rank_part(model.num_kv_heads, tp, 0)) / model.num_kv_heads
        width = len(rank_part(model.intermediate_size, tp, 0)) / model.intermediate_size
        experts = model.num_experts > 1
        mlp = model.experts_per_token * model.expert_parameters / (profile.expert_share if experts else 1.0)
        kv_bytes = 2 * model.num_kv_heads * model.head_dim * BYTES_PER_VALUE[precision.kv] * heads
        values = float(ELEMENTWISE_VALUES * model.hidden_size)
        values += MLP_VALUES * model.experts_per_token * model.intermediate_size * width
        token_s = 2 * (model.attention_parameters * heads + mlp * width) / flops_s
        return cls(
            token_s=token_s,
            attended_s=4 * model.num_heads * model.head_dim * heads / flops_s,
            attention_weights_s=model.attention_parameters * heads * weight_s,
            experts_weights_s=model.num_experts * model.expert_parameters * width * weight_s,
            missed=1 - model.experts_per_token / model.num_experts if experts else 0.0,
            kv_s=kv_bytes / (profile.memory_bytes_s * profile.kv_share),
            elementwise_s=values * _wide(precision.activations) / (profile.memory_bytes_s * profile.elementwise_share),
            overhead_s=profile.layer_overhead_s,
            packed_token_s=token_s * (flops_s / packed_flops_s),
            unpacked=streamed / profile.unpacked_share.get(precision.weights, streamed),
        )

    def seconds(self, step: Step) -> float:
        """Time of the layer in a step, all-reduces left out.

        Experts are drawn evenly and streamed if any token needs them.
        """
        touched = 1 - self.missed**step.tokens
        weights_s = self.attention_weights_s + self.experts_weights_s * touched
        packed = _overlap(self.packed_token_s * step.tokens, weights_s)
        is_whole = _overlap(self.token_s * step.tokens, weights_s * self.unpacked) < packed  # of arrays too
        token_s = self.token_s * is_whole + self.packed_token_s * (1 - is_whole)
        compute_s = token_s * step.tokens + self.attended_s * step.attended_tokens
        weights_s *= 1 + (self.unpacked - 1) * is_whole
        gemm_s: float = _overlap(compute_s, weights_s) ** (1 / OVERLAP)
        return gemm_s + self.kv_s * step.kv_tokens + self.elementwise_s * step.tokens + self.overhead_s


def _overlap(compute_s: float, weights_s: float) -> float:
    powers: float = compute_s**OVERLAP + weights_s**OVERLAP
    return powers


@dataclass(frozen=True, slots=True)
class StageCost:
    """What one stage costs; ``seconds`` is quick enough to be asked a million times."""

    layers: tuple[tuple[int, LayerCost], ...]
    """How many layers there are of each cost."""
    allreduce: tuple[tuple[float, float], ...]
    """Points of message bytes to seconds; none for a group of one."""
    hidden_bytes: float
    """Of one token between layers."""
    overhead_s: float
    hop: tuple[float, float]
    """Latency and seconds per byte to the next stage; zeros for the last."""
    head_s: float
    """To stream the output head; 0 where there is none."""
    row_s: float
    """To compute the head of one row."""

    def allreduce_s(self, sizes: Values) -> Values:
        """Of messages of so many bytes, many at once."""
        if not self.allreduce:
            return np.zeros_like(sizes)
        known, seconds = np.array(self.allreduce).T
        slope = (seconds[-1] - seconds[-2]) / (known[-1] - known[-2])
        return np.asarray(np.interp(sizes, known, seconds) + slope * np.maximum(0.0, sizes - known[-1]))

    def seconds(self, step: Step) -> float:
        """How long the stage is busy with a step, its hop to the next stage included."""
        size = step.tokens * self.hidden_bytes
        total: float = self.overhead_s + self.head_s + self.row_s * step.rows + self.hop[0] + self.hop[1] * size
        reduce_s = ALLREDUCES_PER_LAYER * _interpolated(self.allreduce, size) if self.allreduce else 0.0
        for count, layer in self.layers:
            total += count * (layer.seconds(step) + reduce_s)
        return total


@dataclass(frozen=True)
class ServerModel:
    """A topology as a server: its stages, and what may be in flight."""

    stages: tuple[StageCost, ...]
    slots: int
    """Sequences that may run at once."""
    kv_tokens: int
    """Tokens whose KV fits."""
    chunk_tokens: int
    """Tokens of one step, decodes included."""
    share: float = 1.0
    """Share of the step rate that scheduling and ragged batches leave; 1 is a step model alone."""

    @cached_property
    def figures(self) -> tuple[Values, Values, Values]:
        """The stages as ``step_s`` reads them: of each, of its layers, and the points of its all-reduce."""
        kinds = max(len(stage.layers) for stage in self.stages)
        points = max(2, *(len(stage.allreduce) for stage in self.stages))
        own = np.zeros((len(self.stages), 7))
        layers = np.zeros((len(self.stages), kinds, 11))
        reduce = np.zeros((len(self.stages), points, 2))
        for place, stage in enumerate(self.stages):
            own[place] = (
                stage.overhead_s + stage.head_s + stage.hop[0],
                stage.row_s,
                stage.hop[1] * stage.hidden_bytes,
                stage.hidden_bytes,
                len(stage.allreduce),
                self.share,
                self.stages.index(stage),  # the first that is alike
            )
            for number, (count, layer) in enumerate(stage.layers):
                layers[place, number] = (count, *astuple(layer))
            reduce[place, : len(stage.allreduce)] = stage.allreduce or np.zeros((0, 2))
        return own, layers, reduce


def stage_costs(
    topology: Topology, model: ModelSpec, cluster: Cluster, profiles: Mapping[str, Profile]
) -> tuple[StageCost, ...]:
    """The cost of each stage.

    Raises:
        ProfileError: a device kind, format or group size without figures.
        TopologyError: two stages on nodes without a network between them.
    """
    last = topology.pp_size - 1
    return tuple(
        _stage_cost(
            stage,
            model,
            _profile(stage, profiles),
            _hop(stage, topology.stages[number + 1], cluster, profiles) if number < last else None,
        )
        for number, stage in enumerate(topology.stages)
    )


def _stage_cost(stage: Stage, model: ModelSpec, profile: Profile, hop: tuple[float, float] | None) -> StageCost:
    precisions = Counter(map(stage.precision_of, stage.layers))
    wide = "fp32" if stage.precision.activations == "fp32" else "bf16"
    head = model.embedding_parameters / stage.tp_size if hop is None else 0.0
    rate = max(profile.weight_share.values()) * profile.memory_bytes_s
    return StageCost(
        layers=tuple(
            (count, LayerCost.of(precision, stage.tp_size, model, profile)) for precision, count in precisions.items()
        ),
        allreduce=_allreduce_points(stage.tp_size, profile),
        hidden_bytes=model.hidden_size * _wide(stage.precision.activations),
        overhead_s=profile.step_overhead_s,
        hop=hop or (0.0, 0.0),
        head_s=head * BYTES_PER_VALUE[wide] / rate,
        row_s=2 * head / _compute_rate(wide, profile) if head else 0.0,
    )


def _profile(stage: Stage, profiles: Mapping[str, Profile]) -> Profile:
    if stage.kind not in profiles:
        raise ProfileError(f"no profile for {stage.kind}; there are {', '.join(profiles) or 'none'}")
    return profiles[stage.kind]


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


def _allreduce_points(tp: int, profile: Profile) -> tuple[tuple[float, float], ...]:
    """The points for a group size; one between two known ones takes the larger's figures."""
    if tp == 1:
        return ()
    groups = [size for size in sorted(profile.allreduce_s) if size >= tp]
    if not groups:
        raise ProfileError(f"{profile.kind} has no all-reduce figure for groups of {tp}")
    return tuple((float(size), seconds) for size, seconds in profile.allreduce_s[groups[0]].items())


def _interpolated(points: tuple[tuple[float, float], ...], size: float) -> float:
    """Straight lines between the points; flat before the first, the last slope beyond the last."""
    if size <= points[0][0]:
        return points[0][1]
    after = min(bisect.bisect_left(points, (size, 0.0)), len(points) - 1)
    (small, seconds), (large, longer) = points[max(after - 1, 0)], points[max(after, 1)]
    return seconds + (size - small) * (longer - seconds) / (large - small)


def _hop(source: Stage, target: Stage, cluster: Cluster, profiles: Mapping[str, Profile]) -> tuple[float, float]:
    """Hidden states to the next stage: the node's own link as profiled, or the network as declared."""
    link = cluster.link_between(source.devices[0], target.devices[0])
    if link is not cluster.network:
        profile = _profile(source, profiles)
        return profile.p2p_latency_s, 1 / profile.p2p_bytes_s
    return link.latency_s, 1 / link.bandwidth_bytes_s


def _wide(activations: str) -> float:
    """Bytes of one value between layers: FP8 engines keep hidden states, embedding and head in 16 bits."""
    return max(2.0, BYTES_PER_VALUE[activations])
