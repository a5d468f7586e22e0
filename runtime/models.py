"""The nouns of the runtime: cluster, model, topology, phases and the report of a cutover.

A leaf module: no I/O, no torch. Every layer interval is half-open, every device an inventory index.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from runtime.architectures import MIXTURES, architecture_of, quantised
from runtime.errors import Reason as Reason  # noqa: PLC0414 - a noun of the runtime, though errors carry it
from runtime.errors import TopologyError, UnsupportedModelError
from runtime.forms import DESCRIBED, told

BYTES_PER_VALUE: Mapping[str, float] = {
    "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5,
}  # fmt: skip
"""Bytes one value takes in each numeric format (scales left out, see ``footprint.value_bytes``)."""

FULL = ("fp32", "bf16", "fp16")
"""Weight formats in which nothing is quantised."""

FP8_KINDS = frozenset({"L40S", "L4", "H100", "H200", "RTX5090"})
"""GPU kinds that compute in FP8; elsewhere FP8 weights are decompressed before use."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device: a GPU, or a CPU slot for one rank with its share of memory."""

    index: int
    """Inventory index, unique in the cluster."""
    kind: str
    memory_bytes: int
    usd_per_hour: float = 0.0


@dataclass(frozen=True, slots=True)
class Link:
    """A connection between devices, one direction."""

    kind: str
    """``nvlink``, ``pcie``, ``network`` or ``shared-memory``."""
    bandwidth_bytes_s: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class Node:
    """Devices that share a machine."""

    name: str
    gpus: tuple[Gpu, ...]
    link: Link
    storage_bytes_s: float | None = None
    """At which all its devices together read weights from its disk or network file system; None: nobody measured it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The inventory a deployment may use."""

    nodes: tuple[Node, ...]
    network: Link | None = None
    """Over which topologies reach from node to node."""
    between: Link | None = None
    """Over which requests move from host to host, where no topology reaches over two."""

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All devices in inventory order."""
        return tuple(itertools.chain.from_iterable(node.gpus for node in self.nodes))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The distinct device kinds in inventory order."""
        return tuple(dict.fromkeys(gpu.kind for gpu in self.gpus))

    def part(self, devices: Collection[int]) -> "Cluster":
        """The same machines with these devices alone; one without any is left out."""
        kept = ((node, tuple(gpu for gpu in node.gpus if gpu.index in devices)) for node in self.nodes)
        nodes = tuple(replace(node, gpus=gpus) for node, gpus in kept if gpus)
        return replace(self, nodes=nodes)

    def gpu(self, index: int) -> Gpu:
        """The device with this inventory index.

        Raises:
            TopologyError: there is none.
        """
        for gpu in self.gpus:
            if gpu.index == index:
                return gpu
        known = ", ".join(f"{gpu.index} ({gpu.kind})" for gpu in self.gpus)
        raise TopologyError(f"device {index} is not in the inventory; it has {known}")

    def named(self, selector: str) -> frozenset[int]:
        """The devices that ``gpu_type:A100``, ``gpu:gpu-3`` or ``node:a`` means.

        None if it names nothing here.
        """
        prefix, _, name = selector.partition(":")
        if prefix == "node":
            return frozenset(gpu.index for node in self.nodes if node.name == name for gpu in node.gpus)
        if prefix == "gpu_type":
            return frozenset(gpu.index for gpu in self.gpus if gpu.kind.lower() == name.lower())
        index = name.removeprefix("gpu-") if name.removeprefix("gpu-").isdecimal() else name
        return frozenset(gpu.index for gpu in self.gpus if str(gpu.index) == index)

    def free_devices(self, kind: str, count: int, used: Collection[int]) -> tuple[int, ...]:
        """The first devices of a kind on one node that are not in ``used``.

        Raises:
            TopologyError: no node has that many.
        """
        if kind not in self.kinds:
            raise TopologyError(f"no {kind} in the inventory; it has {', '.join(self.kinds)}")
        for node in self.nodes:
            free = [gpu.index for gpu in node.gpus if gpu.kind == kind and gpu.index not in used]
            if len(free) >= count:
                return tuple(free[:count])
        have = sum(gpu.kind == kind for gpu in self.gpus)
        raise TopologyError(
            f"{count} free {kind} on one node are needed; the inventory has {have} {kind}, "
            f"{len(used)} devices already in use"
        )

    def link_between(self, a: int, b: int) -> Link:
        """The link that data takes between two devices (the node's own link, or the network)."""
        for node in self.nodes:
            indices = {gpu.index for gpu in node.gpus}
            if a in indices and b in indices:
                return node.link
        if self.network is None:
            raise TopologyError(
                f"devices {a} and {b} are on different nodes: a topology reaches over two only for sizing, in a file that names "
                "a network and no engine"
            )
        return self.network


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The shape of a decoder-only transformer, read from a checkpoint's ``config.json``."""

    name: str
    architecture: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    qk_norm: bool = False
    num_experts: int = 1
    """MLPs a layer has; ``intermediate_size`` is the width of one."""
    experts_per_token: int = 1
    quantised: str | None = None
    """The weight format that the checkpoint itself is in; None: a full one, from which others can be made."""

    @classmethod
    def from_config(cls, config: Mapping[str, object], name: str) -> Self:
        """Read a Hugging Face ``config.json``.

        Raises:
            UnsupportedModelError: the architecture is not known, or a needed key is missing or impossible.
        """
        architecture, known = architecture_of(config, name)
        fields: dict[str, Any] = dict(config)
        try:
            heads = int(fields["num_attention_heads"])
            num_experts, experts_per_token = known.experts(config)
            spec = cls(
                name=name,
                architecture=architecture,
                num_layers=int(fields["num_hidden_layers"]),
                hidden_size=int(fields["hidden_size"]),
                intermediate_size=int(fields[known.width]),
                num_heads=heads,
                num_kv_heads=int(fields.get("num_key_value_heads") or heads),
                head_dim=int(fields.get("head_dim") or fields["hidden_size"] // max(1, heads)),
                vocab_size=int(fields["vocab_size"]),
                max_position_embeddings=int(fields["max_position_embeddings"]),
                tie_word_embeddings=bool(fields.get("tie_word_embeddings", False)),
                attention_bias=known.attention_bias or bool(fields.get("attention_bias", False)),
                qk_norm=known.qk_norm,
                num_experts=num_experts,
                experts_per_token=experts_per_token,
                quantised=quantised(config, name),
            )
        except KeyError as missing:
            raise UnsupportedModelError(f"{name}: config.json has no {missing}") from missing
        except (AttributeError, TypeError, ValueError) as error:
            raise UnsupportedModelError(f"{name}: config.json misstates a number: {error}") from error
        if wrong := spec._impossible():
            raise UnsupportedModelError(f"{name}: {wrong}")
        return spec

    def _impossible(self) -> str | None:
        """What is wrong with the sizes, in the words of a config.json."""
        sizes = {
            "num_hidden_layers": self.num_layers, "hidden_size": self.hidden_size, "intermediate_size": self.intermediate_size,
            "num_attention_heads": self.num_heads, "num_key_value_heads": self.num_kv_heads, "head_dim": self.head_dim,
            "vocab_size": self.vocab_size, "the number of experts": self.num_experts,
        }  # fmt: skip
        if wrong := [key for key, value in sizes.items() if value < 1]:
            return f"{', '.join(wrong)} must be 1 or more"
        if self.num_heads % self.num_kv_heads:
            return f"{self.num_heads} heads cannot share {self.num_kv_heads} KV heads evenly"
        if not 1 <= self.experts_per_token <= self.num_experts:
            return f"a token cannot use {self.experts_per_token} of {self.num_experts} experts"
        return None

    @property
    def unserved(self) -> str | None:
        """Why no engine here serves the model; None where they do."""
        if self.architecture not in MIXTURES:
            return None
        return f"{self.name} is a mixture of experts ({self.architecture}): it can be planned for but not served"

    @property
    def tp_degrees(self) -> tuple[int, ...]:
        """Those that divide the KV heads and the MLP."""
        return tuple(
            n for n in range(1, self.num_kv_heads + 1) if not self.num_kv_heads % n and not self.intermediate_size % n
        )

    def undivided(self, tp: int) -> str:
        """Why an engine that divides heads and MLP evenly cannot run a TP degree; empty: it can."""
        parts = {"KV heads": self.num_kv_heads, "MLP width": self.intermediate_size}
        what = next((f"{size} {name}" for name, size in parts.items() if size % tp), "")
        degrees = f"{', '.join(map(str, self.tp_degrees))} {'do' if len(self.tp_degrees) > 1 else 'does'}"
        return what and f"TP {tp} does not divide the {what} of {self.name}; {degrees}"

    def rank_parameters(self, tp: int, rank: int) -> int:
        """Parameters of one decoder layer on one of ``tp`` ranks; the first ranks have the most."""
        heads = len(rank_part(self.num_kv_heads, tp, rank))
        width = len(rank_part(self.intermediate_size, tp, rank))
        experts = self.num_experts * self.expert_parameters // self.intermediate_size * width
        return self.attention_parameters // self.num_kv_heads * heads + experts

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention of one layer."""
        return self.hidden_size * self.head_dim * (2 * self.num_heads + 2 * self.num_kv_heads)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one MLP of one layer."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer (norms, biases and the experts' router left out: under 0.1 %)."""
        return self.attention_parameters + self.num_experts * self.expert_parameters

    @property
    def active_layer_parameters(self) -> int:
        """Parameters of one decoder layer that a token meets: of the experts, those that it uses."""
        return self.attention_parameters + self.experts_per_token * self.expert_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding; the output head has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """Parameters in all, the head counted once when it is tied."""
        heads = 1 if self.tie_word_embeddings else 2
        return self.num_layers * self.layer_parameters + heads * self.embedding_parameters


def rank_part(total: int, ranks: int, rank: int) -> range:
    """What one of several ranks gets of KV heads or columns, dealt in order.

    The first ones get one more where some are left.
    """
    each, left = divmod(total, ranks)
    start = rank * each + min(rank, left)
    return range(start, start + each + (rank < left))


@dataclass(frozen=True, slots=True)
class Precision:
    """Numeric formats of weights, activations and KV cache."""

    weights: str
    activations: str
    kv: str

    @classmethod
    def named(cls, name: str, kind: str) -> Self:
        """The usual precision of that name on a GPU kind.

        FP8 computes in FP8 where the GPU has it; INT8 and INT4 (and FP8 elsewhere) are weight-only in bf16.

        Raises:
            TopologyError: no such format.
        """
        if name not in BYTES_PER_VALUE:
            raise TopologyError(f"unknown precision {name!r}; use one of {', '.join(BYTES_PER_VALUE)}")
        computes = name in {"fp32", "bf16", "fp16"} or (name == "fp8" and kind in FP8_KINDS)
        activations = name if computes else "bf16"
        return cls(weights=name, activations=activations, kv=activations)

    def beside(self, name: str, kind: str) -> "Precision":
        """That of layers in another weight format in a stage of this one.

        Where this computes in a full format, quantised layers keep its KV, and its activations unless they compute in FP8.

        Raises:
            TopologyError: no such format.
        """
        named = Precision.named(name, kind)
        if name in FULL or self.activations not in FULL:
            return named
        return Precision(name, "fp8" if named.activations == "fp8" else self.activations, self.kv)


@dataclass(frozen=True, slots=True)
class LayerRange:
    """Layers ``start`` up to, not including, ``end``."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, layer: int) -> bool:
        return self.start <= layer < self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: devices in tensor-rank order, the layers they hold and in which precision."""

    kind: str
    devices: tuple[int, ...]
    layers: LayerRange
    precision: Precision
    overrides: tuple[tuple[LayerRange, Precision], ...] = ()

    @classmethod
    def of(cls, kind: str, devices: tuple[int, ...], parts: Iterable[tuple[LayerRange, Precision]]) -> Self:
        """Of neighbouring parts, in the one form that a stage has: that in which its text form is read back."""
        runs: list[tuple[LayerRange, Precision]] = []
        for layers, precision in parts:
            start = runs.pop()[0].start if runs and runs[-1][1] == precision else layers.start
            runs.append((LayerRange(start, layers.end), precision))
        formats = [precision for _, precision in runs]
        names = sorted((each.weights for each in formats), key=lambda name: name not in FULL)
        mains = [Precision.named(name, kind) for name in (*names, formats[0].kv)]
        main = next(
            (m for m in mains if all(each in {m, m.beside(each.weights, kind)} for each in formats)), formats[0]
        )
        others = tuple((layers, precision) for layers, precision in runs if precision != main)
        return cls(kind, devices, LayerRange(runs[0][0].start, runs[-1][0].end), main, others)

    @property
    def tp_size(self) -> int:
        """Tensor-parallel degree."""
        return len(self.devices)

    def precision_of(self, layer: int) -> Precision:
        """The precision of one layer, overrides applied."""
        for layers, precision in self.overrides:
            if layer in layers:
                return precision
        return self.precision

    def __str__(self) -> str:
        ids = ",".join(map(str, self.devices))
        overrides = "".join(f",{layers}={precision.weights}" for layers, precision in self.overrides)
        return f"{self.kind}[{ids}]:{self.layers}@{self.precision.weights}{overrides}"


@dataclass(frozen=True, slots=True)
class Topology:
    """What runs: pipeline stages bound to devices.

    Each stage that holds layer 0 begins a replica of the model.
    """

    __get_pydantic_json_schema__ = DESCRIBED
    __get_pydantic_core_schema__ = told("text", "shape", "devices")

    stages: tuple[Stage, ...]

    @property
    def replicas(self) -> tuple["Topology", ...]:
        """The pipelines that serve the model beside each other, each with all its layers; one is itself."""
        starts = [place for place, stage in enumerate(self.stages) if not stage.layers.start or not place]
        if len(starts) == 1:
            return (self,)
        ends = [*starts[1:], len(self.stages)]
        return tuple(Topology(self.stages[start:end]) for start, end in zip(starts, ends, strict=True))

    @classmethod
    def of_replicas(cls, replicas: Iterable["Topology"]) -> "Topology":
        """These beside each other, in the order of their first devices: a set has one form."""
        ordered = sorted(replicas, key=lambda replica: min(replica.devices))
        return cls(tuple(itertools.chain.from_iterable(replica.stages for replica in ordered)))

    @property
    def pp_size(self) -> int:
        """Number of pipeline stages; of several replicas, of the one with the most."""
        return max(len(replica.stages) for replica in self.replicas)

    @property
    def devices(self) -> tuple[int, ...]:
        """All devices, stage by stage, in rank order."""
        return tuple(itertools.chain.from_iterable(stage.devices for stage in self.stages))

    @property
    def shape(self) -> str:
        """How people call it: ``1x1``, ``TP2``, ``PP2``, ``TP2xPP2``; unequal TP degrees as ``TP2+1``.

        Replicas are joined by ``|``.
        """
        if len(self.replicas) > 1:
            return " | ".join(replica.shape for replica in self.replicas)
        degrees = [stage.tp_size for stage in self.stages]
        if len(set(degrees)) > 1:
            return "TP" + "+".join(map(str, degrees))
        parts = [f"TP{degrees[0]}"] if degrees[0] > 1 else []
        parts += [f"PP{self.pp_size}"] if self.pp_size > 1 else []
        return "x".join(parts) or "1x1"

    def stage_of(self, layer: int) -> Stage:
        """The stage that holds a layer."""
        for stage in self.stages:
            if layer in stage.layers:
                return stage
        raise TopologyError(f"layer {layer} is in no stage of {self}")

    @property
    def text(self) -> str:
        """Its text form, which ``notation.parse_topology`` reads."""
        return " | ".join(" > ".join(map(str, replica.stages)) for replica in self.replicas)

    def __str__(self) -> str:
        return self.text

    def check(self, cluster: Cluster, model: ModelSpec) -> None:
        """Refuse what cannot be.

        Unknown or doubly used devices, a gap in the layers, more ranks than KV heads.

        Raises:
            TopologyError: naming the stage and the reason.
        """
        used: set[int] = set()
        for replica in self.replicas:
            replica.check_alone(cluster, model, used)

    def check_alone(self, cluster: Cluster, model: ModelSpec, used: set[int]) -> None:
        """The same of one replica; ``used`` are the devices of those before it, and then also its own."""
        expected = 0
        for number, stage in enumerate(self.stages):
            where = f"stage {number} ({stage})"
            for device in stage.devices:
                if (kind := cluster.gpu(device).kind) != stage.kind:
                    raise TopologyError(f"{where}: device {device} is a {kind}, not a {stage.kind}")
                if device in used:
                    raise TopologyError(f"{where}: device {device} is used twice")
                used.add(device)
            if stage.layers.start != expected or stage.layers.end <= expected:
                raise TopologyError(f"{where}: its layers should start at {expected} and not be empty")
            expected = stage.layers.end
            if stage.tp_size > model.num_kv_heads:
                raise TopologyError(
                    f"{where}: TP {stage.tp_size} is more than the {model.num_kv_heads} KV heads of {model.name}"
                )
        if expected != model.num_layers:
            raise TopologyError(f"{self}: holds {expected} layers, but {model.name} has {model.num_layers}")


def uniform(cluster: Cluster, kind: str, tp: int, pp: int, num_layers: int, precision: str) -> Topology:
    """TP ``tp`` and PP ``pp`` on the first devices of a kind, one node per stage, layers split evenly.

    Raises:
        TopologyError: not enough devices of the kind on the nodes, or more stages than layers.
    """
    if tp < 1 or not 1 <= pp <= num_layers:
        raise TopologyError(f"TP {tp} and PP {pp} are not possible with {num_layers} layers")
    base, extra = divmod(num_layers, pp)
    ends = list(itertools.accumulate(base + (i < extra) for i in range(pp)))
    stages: list[Stage] = []
    used: set[int] = set()
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        devices = cluster.free_devices(kind, tp, used)
        used.update(devices)
        stages.append(Stage(kind, devices, LayerRange(start, end), Precision.named(precision, kind)))
    return Topology(tuple(stages))


class Phase(StrEnum):
    """Where a switch stands."""

    PLANNED = "planned"
    WARMING = "warming"
    SYNCING = "syncing"
    CUTTING = "cutting"
    COMMITTED = "committed"
    CLEANING = "cleaning"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a switch has come; one at each change of phase, and a few per second while KV is copied."""

    switch_id: str
    phase: Phase
    at_s: float
    """Unix time."""
    detail: str = ""
    copied_bytes: int = 0
    """Copied so far while serving."""
    lag_bytes: int = 0
    """Still to copy."""
    lag_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CutTimings:
    """The parts of the cut as the engine saw them, in milliseconds."""

    drain_ms: float
    patch_ms: float
    commit_ms: float
    first_step_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredLink:
    """The way between two hosts, as a switch found it before anything moved."""

    bytes_s: float
    round_trip_s: float
    """Of a read of one page."""
    lane: str = ""
    """Network interfaces that carried it, as ``tcp/eth0``; empty where the transport does not say."""


@dataclass(frozen=True, slots=True)
class CutoverReport:
    """What a switch did. The client's own measurements are reported beside it, never in it."""

    switch_id: str
    source: str
    """Topology before, in text form."""
    target: str
    phase: Phase
    """``done`` or ``aborted``."""
    reason: Reason | None = None
    detail: str = ""
    epoch: int = 0
    prepare_s: float = 0.0
    """Planned to ready to cut: warming and syncing."""
    warming_s: float = 0.0
    syncing_s: float = 0.0
    held_s: float = 0.0  # new requests were not admitted, so that copying could catch up
    bytes_before: int = 0
    """Bytes copied while serving."""
    bytes_inside: int = 0
    """Bytes copied inside the cut."""
    free_device_bytes: int | None = None
    """Memory of the target's device with the least, once it had started; None where nobody measured."""
    moved: int = 0
    """Requests that changed owner."""
    left_to_drain: int = 0
    stays: Mapping[str, int] = field(default_factory=dict)
    """Why requests were left to drain: reason to their number."""
    tokens_recomputed: int = 0
    paths: Mapping[str, int] = field(default_factory=dict)
    """How the moved requests came over: path to their number."""
    timings: CutTimings = field(default_factory=lambda: CutTimings(0.0, 0.0, 0.0, 0.0))
    transport: str = "file"
    """How KV came over: ``file`` on one host, ``nixl`` between two, ``none`` where it was computed anew."""
    bytes_between_hosts: int = 0
    """KV that went over the network, before and inside the cut."""
    link: MeasuredLink | None = None
    """None on one host."""
