"""The nouns of the selector, its errors, and common models by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal, Self, get_args

from intent.models import Finding, Placement, PrecisionRule
from intent.tables import mapping
from runtime.capabilities import USUAL_BATCHING, Batching, Capabilities, Limits
from runtime.errors import UnsupportedModelError
from runtime.forms import DESCRIBED, Endless, told
from runtime.models import FULL, Cluster, ModelSpec, Topology
from runtime.replicas.choice import UNBOUND, Bounds, ReplicaSpeed
from selector.quality import QualityCurve, QualitySource

OVERLAP = 1.44
"""Exponent of the norm that joins compute and weight streaming: 1 adds, infinity takes the larger; fitted."""


class SelectorError(Exception):
    """Root of the tree; every message says what was wrong, where and what to do."""


class ProfileError(SelectorError):
    """A profile that is missing, malformed or says nothing about what was asked."""


class WorkloadError(SelectorError):
    """A load or trace that is none: no requests, no rate, lengths that are not positive."""


class SampleError(SelectorError):
    """Measurements that no profile can be fitted to: too few, or times that are none."""


def available() -> tuple[str, ...]:
    """The names that are known."""
    return tuple(sorted(_shapes()))


def shape(name: str) -> ModelSpec:
    """The model of that name, case and organisation left out: ``Qwen/Qwen3-8B`` is ``qwen3-8b``.

    Raises:
        UnsupportedModelError: it is not known; the message lists those that are.
    """
    known = _shapes()
    short = name.rsplit("/", 1)[-1].casefold()
    if short not in known:
        raise UnsupportedModelError(
            f"no shape for {name!r}; known are {', '.join(available())}, or give the path of a config.json"
        )
    return known[short]


@cache
def _shapes() -> Mapping[str, ModelSpec]:
    found: Mapping[str, Any] = mapping("selector", "shapes")
    return {name: _spec(name, sizes) for name, sizes in found.items()}


def _spec(name: str, sizes: list[int]) -> ModelSpec:
    layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions = sizes[:8]
    dense = ModelSpec(name, "shape only", layers, hidden, width, heads, kv_heads, head_dim, vocabulary, positions)
    experts, used = sizes[8:] or (1, 1)
    return replace(dense, num_experts=experts, experts_per_token=used)


Source = Literal["measured", "calibrated", "analytic", "extrapolated"]
Way = Literal["shadow", "stream", "restart"]
"""How a switch goes: the target comes up beside what runs; layers move one by one where only one copy of the weights fits; or
what runs ends first, and the target computes its requests anew."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How lengths lie around their mean: lognormal by mean and P95, or a histogram."""

    __get_pydantic_json_schema__ = DESCRIBED

    p95_by_mean: float
    """1: all alike. No lognormal has more than ``MOST_P95``."""
    histogram: tuple[tuple[float, float], ...] = ()
    """Lengths, each by the mean of all, with the share of requests that have it; empty: lognormal."""
    source: str = field(default="said", compare=False)
    """Where it comes from, in words."""


MOST_P95 = 3.87
"""exp(1.645 ** 2 / 2): of a lognormal's P95 by its mean."""
ALIKE = Spread(1.0)
PUBLIC_CHAT = "public chat (Azure 2023)"
CHAT_INPUTS = Spread(2.73, source=PUBLIC_CHAT)
CHAT_OUTPUTS = Spread(2.43, source=PUBLIC_CHAT)
"""As uneven (coefficient of variation 0.96 and 0.77) as Azure's public conversations of 2023 (AzurePublicDataset, CC-BY 4.0)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the service in one window."""

    __get_pydantic_json_schema__ = DESCRIBED

    rate_rps: float
    input_tokens: int
    """Mean, as of the answers."""
    output_tokens: int
    concurrency: int
    """Requests in flight at once that the service should hold."""
    inputs: Spread = CHAT_INPUTS
    outputs: Spread = CHAT_OUTPUTS
    burstiness: float = 1.0
    """Coefficient of variation of the times between arrivals, which are gamma distributed; 1: Poisson."""
    prefix_hit: float = 0.0
    """Share of the prompts' tokens whose KV is in the prefix cache already."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What one device kind can do: peaks, the shares of them that are reached, and fixed costs.

    A *share* is reached / peak, between 0 and 1. Group sizes are TP degrees.
    """

    kind: str
    memory_bytes: float
    """Memory of one device."""
    memory_bytes_s: float
    """Peak memory bandwidth."""
    flops_s: Mapping[str, float]
    """Activation format to peak FLOP/s; a format that is absent is not computed in natively."""
    compute_share: Mapping[str, float]
    """Activation format to the share of ``flops_s`` that large GEMMs reach."""
    weight_share: Mapping[str, float]
    """Weight format to the share of ``memory_bytes_s`` at which weights stream; its keys can be served."""
    kv_share: float
    """Share of ``memory_bytes_s`` at which attention reads the KV cache."""
    elementwise_share: float
    """Bytes/s of norms, activations and residual adds, by ``memory_bytes_s``; above 1 where the L2 cache holds them."""
    expert_share: float
    """Share of the GEMM rate that the grouped GEMMs of a mixture of experts reach."""
    layer_overhead_s: float
    """Fixed cost of one decoder layer in one step (launches, synchronisation)."""
    step_overhead_s: float
    """Fixed cost of one step on one stage (scheduling, sampling)."""
    allreduce_s: Mapping[int, Mapping[int, float]]
    """Group size to measured points of message bytes to seconds; between them straight lines, beyond them the last slope."""
    p2p_bytes_s: float
    p2p_latency_s: float
    error_band: float
    """Relative error that predictions stay within at the anchors, half-width."""
    source: "Source"
    extrapolated: tuple[str, ...] = ()
    """Weight formats without an anchor of their own."""
    packed_flops_s: Mapping[str, float] = field(default_factory=dict)
    """Weight format to FLOP/s of products by weights as they are, which suit few tokens; absent: as ``flops_s`` has it."""
    unpacked_share: Mapping[str, float] = field(default_factory=dict)
    """The same formats to the share of ``memory_bytes_s`` at which weights are made whole first, which suits many tokens."""
    made: str = ""
    """When and how it was measured, in words; empty: its source says it."""

    @property
    def precisions(self) -> tuple[str, ...]:
        """The weight formats that can be served."""
        return tuple(self.weight_share)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, object]) -> Self:
        """Read what ``to_mapping`` wrote, or a YAML or JSON file of the same form (JSON's keys are strings).

        Raises:
            ProfileError: naming the key that is missing, unknown, not a number, or beyond what it can be.
        """
        where = f"profile of {mapping.get('kind', 'a device without kind')}"
        known = {item.name for item in fields(cls)}
        if unknown := sorted(map(str, mapping.keys() - known)):
            raise ProfileError(f"{where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")
        if missing := sorted(known - mapping.keys() - {"extrapolated", "made", *_PACKED}):
            raise ProfileError(f"{where}: {', '.join(missing)} missing")
        if mapping["source"] not in get_args(Source):
            raise ProfileError(f"{where}: source is {mapping['source']!r}; use one of {', '.join(get_args(Source))}")
        profile = cls(**{key: _read(f"{where}: {key}", key, value) for key, value in mapping.items()})
        _check_figures(where, profile)
        return profile

    def to_mapping(self) -> dict[str, object]:
        """Plain data that JSON and YAML can hold; ``from_mapping`` reads it back."""
        return asdict(self)


_PACKED = ("packed_flops_s", "unpacked_share")


def _read(where: str, key: str, value: Any) -> Any:
    """One value of a profile in the type its field has."""
    if key in {"kind", "source", "made"}:
        return str(value)
    if key == "extrapolated":
        return tuple(map(str, _list(where, value)))
    if key in {"flops_s", "compute_share", "weight_share", *_PACKED}:
        return {name: _number(f"{where}.{name}", item) for name, item in _mapping(where, value).items()}
    if key == "allreduce_s":
        return {_whole(where, size): _points(f"{where}.{size}", item) for size, item in _mapping(where, value).items()}
    return _number(where, value)


def _check_figures(where: str, profile: Profile) -> None:
    """Refuse what would divide by zero, or be faster than the peak."""
    if not profile.weight_share or profile.flops_s.keys() != profile.compute_share.keys():
        raise ProfileError(
            f"{where}: weight_share needs a format, and compute_share the formats of flops_s ({', '.join(profile.flops_s)})"
        )
    if profile.packed_flops_s.keys() != profile.unpacked_share.keys():
        raise ProfileError(f"{where}: packed_flops_s and unpacked_share need the same formats")
    shares = {
        **{f"unpacked_share.{name}": share for name, share in profile.unpacked_share.items()},
        **{f"compute_share.{name}": share for name, share in profile.compute_share.items()},
        **{f"weight_share.{name}": share for name, share in profile.weight_share.items()},
        "kv_share": profile.kv_share,
        "expert_share": profile.expert_share,
    }
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise ProfileError(f"{where}: {name} is {share:g}; a share is more than 0 and at most 1")
    positive = {
        **{f"flops_s.{name}": peak for name, peak in profile.flops_s.items()},
        **{f"packed_flops_s.{name}": peak for name, peak in profile.packed_flops_s.items()},
        **{key: getattr(profile, key) for key in ("memory_bytes_s", "elementwise_share", "p2p_bytes_s")},
    }
    for name, figure in positive.items():
        if not figure > 0:
            raise ProfileError(f"{where}: {name} is {figure:g}; it must be more than 0")


def _points(where: str, value: Any) -> Mapping[int, float]:
    """Message bytes to seconds, in order.

    Raises:
        ProfileError: fewer than two points, or a larger message that takes less time.
    """
    points = {_whole(where, size): _number(f"{where}.{size}", item) for size, item in _mapping(where, value).items()}
    ordered = dict(sorted(points.items()))
    times = list(ordered.values())
    if len(times) < 2 or times != sorted(times):
        raise ProfileError(f"{where} needs two points or more, and a larger message may not take less time")
    return ordered


def _list(where: str, value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ProfileError(f"{where} should be a list, not {value!r}")
    return value


def _mapping(where: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ProfileError(f"{where} should be a mapping, not {value!r}")
    return value


def _whole(where: str, size: Any) -> int:
    """A group size or message size; JSON has only strings for keys."""
    if not str(size).isdecimal():
        raise ProfileError(f"{where} has the size {size!r}, not a whole number")
    return int(size)


def _number(where: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ProfileError(f"{where} is {value!r}, not a number") from None
    if not 0 <= number < float("inf"):
        raise ProfileError(f"{where} is {value!r}; it must be a finite number, 0 or more")
    return number


@dataclass(frozen=True, slots=True)
class CpuSamples:
    """What the calibration measured on this machine's CPU, one rank alone unless said."""

    gemm_flops_s: float
    """Large GEMM in fp32."""
    memory_bytes_s: float
    """Streaming read of memory that no cache holds."""
    kv_bytes_s: float
    """KV cache that a decode step of several sequences gets through: gathering and attention included."""
    layer_overhead_s: float
    """Fixed cost of one decoder layer step."""
    allreduce_latency_s: float
    """Between two ranks."""
    allreduce_bytes_s: float
    """Message bytes / time, between two ranks."""
    p2p_latency_s: float
    """One hop between two ranks, small message."""
    step_overhead_s: float
    """Fixed cost of one step, layers left out."""
    base: str = "fp32"
    """What activations and KV are in."""
    products_s: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    """Weight format to numbers of rows with seconds per value of a weight, over all products of a layer; of ``base``, too."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Modelled SLIs of a topology under a workload; never called measurement.

    Infinite where requests pile up.
    """

    __get_pydantic_json_schema__ = DESCRIBED

    ttft_s: Mapping[str, Endless]
    """``mean`` and percentiles, as the other latencies."""
    tpot_s: Mapping[str, Endless]
    e2e_s: Mapping[str, Endless]
    throughput_tok_s: float
    """Output tokens per second that it sustains at its batch limit."""
    gpu_util: Endless
    """The workload's rate by the rate that it sustains."""
    usd_per_hour: float
    batch: int
    """The batch limit: sequences that run at once."""
    quality_loss: float
    """Share of quality that its weight formats lose."""
    error_band: float
    """Relative half-width: 0.3 means that the truth is expected within 30 %."""
    source: Source
    devices: int
    peak: int = 0
    """Sequences that ran at once in the simulation, at most: with room for more nothing would be otherwise."""
    quality_source: QualitySource = "measured"
    """Whether the loss was measured for this set of layers; ``assumed``: of single layers, or as the deployment states it."""


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """One replica of a set: what it is, what it gets, and what it is predicted to do with that."""

    __get_pydantic_json_schema__ = DESCRIBED

    topology: Topology
    batching: Batching
    share: float
    """Of all requests."""
    shares: Mapping[str, float]
    """Class of requests (tenant, length of the prompt), in words, to the share of it that is planned to go here."""
    prediction: Prediction
    speed: ReplicaSpeed
    """As the router takes it to be until it has measured it."""
    not_for: tuple[str, ...] = ()
    """Tenants whom it may not serve."""
    only_for: tuple[str, ...] = ()
    """Where it may not serve everyone else: those whom it may."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One topology with what it is predicted to do and why it is not better placed."""

    __get_pydantic_json_schema__ = DESCRIBED

    topology: Topology
    prediction: Prediction
    reason: str
    """Why it was chosen, came second or lost; one sentence for people."""
    batching: Batching | None = None
    """How far it fills its steps; None: as the engine is set."""
    replicas: tuple[ReplicaShare, ...] = ()
    """Of a set, in its order; empty: it is one pipeline."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What goals for replicas read: how many each node has, and how many devices or nodes may be lost. Empty: nobody asked."""


@dataclass(frozen=True, slots=True)
class SearchInput:
    """Everything the search needs: pure data."""

    cluster: Cluster
    model: ModelSpec
    workload: Workload
    now: Topology | None
    """What runs, or None when nothing does."""
    limits: Limits = field(default_factory=Limits)
    capabilities: Capabilities | None = None
    """What the engine can run; None does not narrow."""
    precision: str | None = None
    """The weight format that the deployment names for the model; None: the first full one."""
    running: Batching | None = None
    """How what runs fills its steps; None: as far as it may."""
    bounds: Bounds = UNBOUND
    """What the router of a set keeps requests within."""
    for_tenants: tuple[PrecisionRule | Placement, ...] = ()
    """What was said for one tenant: replicas that break it do not serve that tenant."""
    quality: QualityCurve | None = None
    """What was measured of the checkpoint; None: nothing."""

    @property
    def losses(self) -> Mapping[str, float]:
        """Weight format to what all layers in it lose at least: as measured, else as stated."""
        measured = self.quality.formats if self.quality else {}
        return {**self.limits.quality_loss, **{name: curve.least_loss for name, curve in measured.items()}}

    def loss_of(self, topology: Topology) -> tuple[float, QualitySource]:
        """What a pipeline loses, and whether that was measured."""
        formats = {layer: stage.precision_of(layer).weights for stage in topology.stages for layer in stage.layers}
        stated = self.limits.quality_loss
        if self.quality:
            return self.quality.loss_of(formats, stated)
        loss = math.fsum(stated.get(name, 0.0) for name in formats.values()) / len(formats)
        return loss, "assumed" if {*formats.values()} - {*FULL} else "measured"

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Device kinds of which some device has no price."""
        return tuple(dict.fromkeys(gpu.kind for gpu in self.cluster.gpus if not gpu.usd_per_hour))

    @property
    def batching(self) -> Batching:
        """As far as engine and limits allow steps to be filled."""
        limits = self.limits
        engine = self.capabilities.batching if self.capabilities else USUAL_BATCHING
        return Batching(
            min(engine.max_sequences, limits.max_sequences or engine.max_sequences),
            min(engine.max_step_tokens, limits.max_step_tokens or engine.max_step_tokens),
        )


@dataclass(frozen=True, slots=True)
class PlanRef:
    """What a plan carries for the world outside: handed in, never made up by the pure search."""

    plan_id: str
    intent_id: str
    generation: int
    window: str


@dataclass(frozen=True, slots=True)
class Margin:
    """How far a prediction is from a goal's bound; positive is good. Relative to the bound."""

    __get_pydantic_json_schema__ = DESCRIBED
    __get_pydantic_core_schema__ = told("is_knife_edge")

    goal: str
    """The goal in words."""
    predicted: Endless
    bound: float
    unit: str
    margin: Endless
    """Of ``worst``."""
    worst: Endless = math.nan
    """The end of the prediction's error band that has to hold."""

    @property
    def is_knife_edge(self) -> bool:
        """Whether the prediction itself holds, but not with the headroom that is asked for."""
        low, high = sorted((self.predicted, self.worst))
        return self.margin < 0 and low <= self.bound <= high


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A goal that a plan does not weigh."""

    __get_pydantic_json_schema__ = DESCRIBED

    goal: str
    """In words."""
    reason: str


@dataclass(frozen=True, slots=True)
class CrossingPrediction:
    """What it takes to bring requests in flight to another host, as predicted."""

    __get_pydantic_json_schema__ = DESCRIBED

    path: Literal["copied", "anew"]
    """Their KV is copied over the network, or the target computes it from their tokens."""
    kv_bytes: float
    """Of the requests that the workload has in flight."""
    sync_s: Endless
    """Until the target has it, while requests run; infinite where KV is written faster than the network takes it."""
    cut_s: float
    """By which the stop is longer than within a host: round trips and the last patch."""
    anew_s: Endless
    """In which the target would compute all of it, alone."""


@dataclass(frozen=True, slots=True)
class SwitchPrediction:
    """What it takes to get from one topology to another, as predicted.

    Infinite where what runs or the target is overloaded.
    """

    __get_pydantic_json_schema__ = DESCRIBED

    strategy: Way
    prepare_s: Endless
    """To start, load weights and copy KV while the old one serves; what only one copy fits for is loaded in the stop."""
    stop_s: Endless
    """For which streams stand still: from their last token on the one to their first on the other."""
    pause_s: Endless = math.inf
    """The part of it beyond what they wait between two tokens anyway, on the slower side: what is measured of a switch."""
    payback_s: float | None = None
    """After which the devices (or the money) saved have won back those occupied twice; None where none are saved."""
    between_hosts: CrossingPrediction | None = None
    """None where no KV goes over a network, or nothing is known of it."""
    prepare_least_s: Endless = 0.0
    prepare_most_s: Endless = 0.0
    """The band around ``prepare_s``: storage and starts of engines are known in bands."""
    stop_most_s: Endless = 0.0
    """Of a restart, at most."""
    loading_s: Endless = 0.0
    """The part of preparing, or of a restart's stop, in which weights are read and loaded."""
    unmeasured: tuple[str, ...] = ()
    """Nodes that read weights from a storage that nobody measured: a usual band is assumed."""
    swap: str = ""
    """What changes, as ``weights of layers 2 to 5 become int8``, where that is all: no KV moves."""

    @property
    def latest_s(self) -> float:
        """From its beginning to the first token on the target, at most."""
        return max(self.prepare_s, self.prepare_most_s) + max(self.stop_s, self.stop_most_s)


@dataclass(frozen=True, slots=True)
class Plan:
    """From what runs to what would run, for one model; immutable."""

    __get_pydantic_json_schema__ = DESCRIBED
    __get_pydantic_core_schema__ = told("changes")

    id: str
    intent_id: str
    generation: int
    """Apply refuses the plan when another one runs."""
    model: str
    window: str
    now: Topology | None
    target: Topology
    prediction: Prediction
    now_prediction: Prediction | None
    runner_up: Candidate | None
    reasons: tuple[str, ...]
    """Why the target, why today's topology loses or stays, what was not weighed; the runner-up has its own."""
    margins: tuple[Margin, ...] = ()
    rules: tuple[str, ...] = ()
    """The other goals that were weighed, in words: they narrowed the space, or say what comes first."""
    left_out: tuple[LeftOut, ...] = ()
    """The goals of the text that were not, each with the reason."""
    offers: tuple[str, ...] = ()
    """What a change could save that nobody asked for; never taken."""
    considered: int = 0
    """Operating points and device counts examined; each stands for every split of the layers."""
    switch: SwitchPrediction | None = None
    """From what runs; None when nothing does, or when it cannot be predicted."""
    certificate: tuple[str, ...] = ()
    """What bounds rule out for less money, and how many topologies were simulated."""
    workload: Workload | None = None
    """What it was made for."""
    bytes_to_move: Mapping[str, int] = field(default_factory=dict)
    """``weights`` and ``kv_per_token``: what the switch has to move."""
    batching: Batching | None = None
    """How far the target fills its steps; null: as the engine is set."""
    now_batching: Batching | None = None
    """How what runs fills its steps; null: nothing runs."""
    intent_version: int | None = None
    """Of the intent that is kept."""
    kind: Literal["act", "promise"] = "promise"
    """`act`: names a configuration alone, at any time; `promise`: what must hold."""
    to_acknowledge: tuple[Finding, ...] = ()
    """Findings that apply wants acknowledged, by code; `breaks_promise`: what it breaks."""
    promised: tuple[str, ...] = ()
    """Goals of active intents, for its time, that it was held against."""
    digest: str = ""
    """What an approval is for: it changes with anything that the plan says."""
    applied_by: str | None = None
    """The operation that applied it; null: none has, or its document was made before."""
    simulation: "Simulation | None" = None
    """Of its target, where somebody asked for it."""
    replicas: tuple[ReplicaShare, ...] = ()
    """Of a set, in the target's order; empty: it is one pipeline."""

    @property
    def changes(self) -> bool:
        """Whether anything would run that does not, or with its steps filled otherwise."""
        return self.target != self.now or self.batching not in {None, self.now_batching}


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulation of a plan's target gave. Latencies in seconds, null without end."""

    __get_pydantic_json_schema__ = DESCRIBED

    plan_id: str
    topology: str
    requests: int
    """Served, the first ones left out."""
    waits_grow: bool
    """The load exceeds what is sustained, and latencies are without end."""
    ttft_s: Mapping[str, Endless]
    """``mean`` and percentiles, as the other latencies."""
    tpot_s: Mapping[str, Endless]
    e2e_s: Mapping[str, Endless]


@dataclass(frozen=True, slots=True)
class Frontier:
    """P99 latencies of a topology at rising rates; empty where no request fits."""

    __get_pydantic_json_schema__ = DESCRIBED

    label: str
    topology: str
    rates_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    """Zeros where an answer is one token."""
    saturation_rps: float


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No topology holds the goals."""

    __get_pydantic_json_schema__ = DESCRIBED

    reasons: tuple[str, ...]
    """Which goals or limits clash, in words."""
    nearest: Candidate | None
    """The topology that comes closest."""
    feasible_targets: tuple[str, ...] = ()
    """In words: the part of the load that is held, the bound that would hold for each goal missed, another precision."""
    left_out: tuple[LeftOut, ...] = ()
    """The goals of the text that were not weighed, each with the reason."""
    share: float = 0.0
    """Of the load, at which ``nearest`` holds every goal."""
