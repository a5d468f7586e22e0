"""The one arithmetic of memory and bytes to move: the selector chooses by it, the runtime acts by it.

Pure.

A *piece* is the KV of one layer and one KV head. TP divides the KV heads, PP the layers, so a device of stage
``s`` with TP rank ``r`` owns the pieces ``layers(s) x heads(r)``.

int8 has a scale for each output row of a weight, int4 one for each group along a row (those of fp8 are too few to count). A
checkpoint is quantised whole and sliced afterwards, so that numbers do not change with TP; slices then end where groups do.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from runtime.errors import TopologyError
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Stage, Topology, rank_part

HEADROOM = 0.1
"""Share of a device's memory left for activations, buffers and the allocator."""
LEAST_KV_BYTES = 64 << 20
GROUPS = (128, 64, 32)
"""Values that share a scale in int4; the first that suits a weight."""
RECIPE = "round to nearest, 2"
"""Raised when other codes are made of the same weights."""
_SCALE_BYTES = 4
"""Of a row or a group: a 16-bit scale and a 16-bit zero point, or a scale in 32 bits."""


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """KV of one layer and one KV head."""

    layer: int
    head: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """Pieces one device copies from another: a box of layers and heads, both half-open."""

    target: int
    source: int
    layers: tuple[int, int]
    heads: tuple[int, int]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Every piece in the box."""
        return tuple(Piece(layer, head) for layer in range(*self.layers) for head in range(*self.heads))


def heads_of(stage: Stage, rank: int, model: ModelSpec) -> tuple[int, int]:
    """The KV heads of one TP rank, half-open."""
    heads = rank_part(model.num_kv_heads, stage.tp_size, rank)
    return heads.start, heads.stop


def owned(topology: Topology, model: ModelSpec) -> dict[int, frozenset[Piece]]:
    """Device to the pieces it owns."""
    pieces: dict[int, frozenset[Piece]] = {}
    for stage in topology.stages:
        for rank, device in enumerate(stage.devices):
            heads = range(*heads_of(stage, rank, model))
            pieces[device] = frozenset(Piece(layer, head) for layer in stage.layers for head in heads)
    return pieces


def transfer(now: Topology, target: Topology, model: ModelSpec) -> tuple[Transfer, ...]:
    """The boxes to copy so that each target device gets what it owns and lacks.

    Each piece exactly once, from one source.

    What a device holds now and still owns in ``target`` is not copied. Boxes are intersections of the (layers x
    heads) rectangles of the two topologies, so there are at most as many as pairs of ranks.
    """
    boxes = []
    for new in target.stages:
        for new_rank, device in enumerate(new.devices):
            new_heads = heads_of(new, new_rank, model)
            for old in now.stages:
                layers = _overlap((new.layers.start, new.layers.end), (old.layers.start, old.layers.end))
                for old_rank, source in enumerate(old.devices):
                    heads = _overlap(new_heads, heads_of(old, old_rank, model))
                    if source != device and layers and heads:
                        boxes.append(Transfer(device, source, layers, heads))
    return tuple(boxes)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    start = max(a[0], b[0])
    end = min(a[1], b[1])
    return (start, end) if start < end else None


def group_of(width: int, parts: tuple[int, ...] = (1,)) -> int | None:
    """Values of a group in rows of ``width``; None: none divides it.

    The most that divide it, and each of its ``parts`` where some do.
    """
    whole = [group for group in GROUPS if not width % group]
    fine = [group for group in whole if all(not width % (part * group) for part in parts)]
    return next(iter(fine), whole[-1] if whole else None)


@cache
def groups(model: ModelSpec) -> dict[str, int | None]:
    """Values of a group of int4, by what a weight multiplies: ``hidden``, ``attention`` or ``mlp``."""
    return {
        "hidden": group_of(model.hidden_size),
        "attention": group_of(model.num_heads * model.head_dim, model.tp_degrees),
        "mlp": group_of(model.intermediate_size, model.tp_degrees),
    }


def recipe(model: ModelSpec) -> dict[str, int | str | None]:
    """How a model's weights are quantised; what was measured with another recipe is of other weights."""
    return {"rounding": RECIPE, **groups(model)}


@cache
def value_bytes(weights: str, model: ModelSpec) -> float:
    """Bytes that a value of a decoder layer takes in a weight format, with its part of the scales."""
    plain = BYTES_PER_VALUE[weights]
    if weights not in {"int8", "int4"}:
        return plain
    heads = model.num_heads * model.head_dim
    mlp = model.num_experts * model.intermediate_size
    rows = {  # output rows, and how wide they are
        "hidden": (heads + 2 * model.num_kv_heads * model.head_dim + 2 * mlp, model.hidden_size),
        "attention": (model.hidden_size, heads),
        "mlp": (model.hidden_size * model.num_experts, model.intermediate_size),
    }
    scales = 0.0
    for name, (count, width) in rows.items():
        group = groups(model)[name] if weights == "int4" else width
        scales += count * width / (group or GROUPS[-1])
    return plain + _SCALE_BYTES * scales / model.layer_parameters


def refuse_cut_groups(topology: Topology, model: ModelSpec) -> None:
    """Refuse int4 layers whose groups a slice would cut.

    Raises:
        TopologyError: naming the width.
    """
    for stage in topology.stages:
        if any(stage.precision_of(layer).weights == "int4" for layer in stage.layers) and (
            why := why_not("int4", Topology((stage,)), model)
        ):
            raise TopologyError(f"{stage}: {why}")


def why_not(weights: str, topology: Topology, model: ModelSpec) -> str:
    """Why a model cannot be in a weight format on a topology: a slice would cut a group; empty: it can."""
    if weights != "int4":
        return ""
    names = {
        "hidden": (model.hidden_size, 1, 1),
        "attention": (model.num_kv_heads, model.num_heads // model.num_kv_heads * model.head_dim, 0),
        "mlp": (model.intermediate_size, 1, 0),
    }
    for name, (count, width, is_whole) in names.items():
        group = groups(model)[name]
        if group is None:
            return f"int4 is in groups of {', '.join(map(str, GROUPS))}, of which none divides the {name} width {count * width}"
        for degree in {1} if is_whole else {stage.tp_size for stage in topology.stages}:
            if any(rank_part(count, degree, rank).start * width % group for rank in range(degree)):
                return f"TP {degree} cuts groups of {group} of int4 in the {name} width {count * width} of {model.name}"
    return ""


def weight_bytes(topology: Topology, model: ModelSpec) -> dict[int, int]:
    """Bytes of weights on each device.

    Its slices of its layers, the embedding on the first stage, the head on the last.

    The embedding is held whole by each rank of the first stage, the head is split over the last stage's ranks;
    both stay in 16 bits at least, whatever the layers compute in.
    """
    return {device: round(size) for device, size in _weight_bytes(topology, model).items()}


def _weight_bytes(topology: Topology, model: ModelSpec) -> dict[int, float]:
    """As ``weight_bytes``, with fractions of a byte."""
    firsts = _firsts(topology)
    lasts = _lasts(topology)
    sizes: dict[int, float] = {}
    for stage in topology.stages:
        widths = sum(value_bytes(stage.precision_of(layer).weights, model) for layer in stage.layers)
        ends = _end_bytes(stage, model)
        size = (stage in firsts) * ends + (stage in lasts) * ends / stage.tp_size
        for rank, device in enumerate(stage.devices):
            sizes[device] = model.rank_parameters(stage.tp_size, rank) * widths + size
    return sizes


def _firsts(topology: Topology) -> list[Stage]:
    """The stages that hold an embedding."""
    return [replica.stages[0] for replica in topology.replicas]


def _lasts(topology: Topology) -> list[Stage]:
    """The stages that hold a head."""
    return [replica.stages[-1] for replica in topology.replicas]


def _end_bytes(stage: Stage, model: ModelSpec) -> float:
    """Bytes of the embedding, or of the head, of a stage that has it."""
    return model.embedding_parameters * max(2.0, BYTES_PER_VALUE[stage.precision.activations])


@dataclass(frozen=True, slots=True)
class WeightSlice:
    """What a rank holds of one tensor group; two ranks that hold equal slices can share one copy."""

    name: str
    """``layer``, ``embedding`` or ``head``."""
    layer: int
    """The embedding goes with the first, the head with the last."""
    rank: int
    tp_size: int
    format: str


def weight_slices(topology: Topology, model: ModelSpec) -> Mapping[int, Mapping[WeightSlice, float]]:
    """Device to the slices of weights it holds, with the bytes of each; ``weight_bytes`` is their sum."""
    firsts = _firsts(topology)
    lasts = _lasts(topology)
    held: dict[int, dict[WeightSlice, float]] = {}
    for stage in topology.stages:
        ends = stage.precision.activations
        width = _end_bytes(stage, model)
        for rank, device in enumerate(stage.devices):
            slices = held[device] = {}
            parameters = model.rank_parameters(stage.tp_size, rank)
            for layer in stage.layers:
                name = stage.precision_of(layer).weights
                slices[WeightSlice("layer", layer, rank, stage.tp_size, name)] = parameters * value_bytes(name, model)
            if stage in firsts:
                slices[WeightSlice("embedding", 0, 0, 1, ends)] = width
            if stage in lasts:
                slices[WeightSlice("head", model.num_layers - 1, rank, stage.tp_size, ends)] = width / stage.tp_size
    return held


def block_bytes(topology: Topology, model: ModelSpec, block_size: int) -> dict[int, int]:
    """Bytes one KV block of ``block_size`` tokens takes on each device."""
    sizes: dict[int, int] = {}
    for stage in topology.stages:
        widths = sum(BYTES_PER_VALUE[stage.precision_of(layer).kv] for layer in stage.layers)
        for rank, device in enumerate(stage.devices):
            heads = len(rank_part(model.num_kv_heads, stage.tp_size, rank))
            sizes[device] = round(2 * block_size * model.head_dim * heads * widths)
    return sizes


def kv_bytes_per_token(model: ModelSpec, kv: str) -> int:
    """Bytes of KV cache one token takes over the whole model in KV format ``kv``."""
    return round(2 * model.num_layers * model.num_kv_heads * model.head_dim * BYTES_PER_VALUE[kv])


def usual_kv_bytes(memory: int, weights: int, own: int) -> int:
    """KV cache on a device of an engine whose next one comes up beside it.

    A quarter leaves room for the weights of both.
    """
    return max(LEAST_KV_BYTES, min(memory // 4, memory - weights - own))


def blocks(
    topology: Topology,
    model: ModelSpec,
    cluster: Cluster,
    block_size: int,
    *,
    kv_bytes: int | None = None,
    kv_tokens: int | None = None,
) -> int:
    """KV blocks the engine can have: the minimum over devices of what is left beside the weights.

    Of replicas all together.

    0 if nothing is. An engine that keeps ``kv_bytes`` on each device, or ``kv_tokens`` in all, has no more
    (``Capabilities``), but for what layers in fewer bits free of the latter.
    """
    if len(topology.replicas) > 1:
        return sum(
            blocks(replica, model, cluster, block_size, kv_bytes=kv_bytes, kv_tokens=kv_tokens)
            for replica in topology.replicas
        )
    weights = weight_bytes(topology, model)
    per_block = block_bytes(topology, model, block_size)
    counts = []
    for device in topology.devices:
        left = cluster.gpu(device).memory_bytes * (1 - HEADROOM) - weights[device]
        counts.append(int((left if kv_bytes is None else min(left, kv_bytes)) // per_block[device]))
    if kv_tokens is not None:
        counts.append(kv_tokens // block_size + freed_blocks(topology, model, block_size))
    return max(0, min(counts))


def freed_blocks(topology: Topology, model: ModelSpec, block_size: int) -> int:
    """KV blocks that layers in fewer bits than their KV make room for: the minimum over devices.

    Of replicas all together; 0 of full formats.
    """
    if len(topology.replicas) > 1:
        return sum(freed_blocks(replica, model, block_size) for replica in topology.replicas)
    per_block = block_bytes(topology, model, block_size)
    counts = []
    for stage in topology.stages:
        formats = [stage.precision_of(layer) for layer in stage.layers]
        saved = sum(value_bytes(each.kv, model) - value_bytes(each.weights, model) for each in formats)
        for rank, device in enumerate(stage.devices):
            counts.append(int(model.rank_parameters(stage.tp_size, rank) * saved // per_block[device]))
    return max(0, min(counts))


def peak_bytes(
    now: Topology, target: Topology, model: ModelSpec, num_blocks: int, block_size: int
) -> Mapping[int, int]:
    """Bytes each device needs while old and new stand side by side, with ``num_blocks`` KV blocks.

    What a device has in both roles is counted once: the same slice of a layer's weights in the same format, and a KV
    piece, in its wider format.
    """
    running, coming = (_weight_bytes(topology, model) for topology in (now, target))
    shared = _shared_bytes(now, target, model)
    peak = {
        device: round(running.get(device, 0.0) + coming.get(device, 0.0) - shared.get(device, 0.0))
        for device in {**running, **coming}
    }
    for topology in (now, target):
        for device, size in block_bytes(topology, model, block_size).items():
            peak[device] += num_blocks * size
    for old, new in itertools.product(now.stages, target.stages):
        for device in set(old.devices) & set(new.devices):
            kept = _kept_bytes(old, new, device, model) * block_size
            peak[device] -= num_blocks * round(kept)
    return peak


def _shared_bytes(now: Topology, target: Topology, model: ModelSpec) -> dict[int, float]:
    """Bytes of weights that a device holds alike in both.

    Its slices of a layer, the embedding or the head, in one format.
    """
    shared: dict[int, float] = {}
    for old, new in itertools.product(now.stages, target.stages):
        is_first = old in _firsts(now) and new in _firsts(target)
        is_last = old in _lasts(now) and new in _lasts(target)
        ends = _end_bytes(new, model)
        same_ends = old.precision.activations == new.precision.activations
        for rank, device in enumerate(new.devices):
            if device in old.devices:
                same_rank = old.tp_size == new.tp_size and old.devices.index(device) == rank
                size = _alike_bytes(old, new, model, rank) * same_rank
                size += same_ends * (is_first * ends + is_last * same_rank * ends / new.tp_size)
                shared[device] = shared.get(device, 0.0) + size
    return shared


def _alike_bytes(old: Stage, new: Stage, model: ModelSpec, rank: int) -> float:
    """Bytes of weights of the layers that two stages hold in one format, on one rank."""
    layers = _overlap((old.layers.start, old.layers.end), (new.layers.start, new.layers.end)) or (0, 0)
    formats = ((old.precision_of(layer).weights, new.precision_of(layer).weights) for layer in range(*layers))
    return sum(value_bytes(a, model) for a, b in formats if a == b) * model.rank_parameters(new.tp_size, rank)


def blocks_beside(now: Topology, target: Topology, model: ModelSpec, cluster: Cluster, block_size: int) -> int:
    """The most KV blocks with which old and new fit side by side: the minimum over devices.

    Negative if weights alone do not.
    """
    fixed, single = (peak_bytes(now, target, model, num_blocks, block_size) for num_blocks in (0, 1))
    usable = {device: cluster.gpu(device).memory_bytes * (1 - HEADROOM) for device in fixed}
    return min(int((usable[device] - fixed[device]) // (single[device] - fixed[device])) for device in fixed)


def _kept_bytes(old: Stage, new: Stage, device: int, model: ModelSpec) -> float:
    """KV bytes per token that a device holds in both stages, in the narrower format of the two."""
    layers = _overlap((old.layers.start, old.layers.end), (new.layers.start, new.layers.end))
    heads = _overlap(*(heads_of(stage, stage.devices.index(device), model) for stage in (old, new)))
    if not layers or not heads:
        return 0.0
    widths = (min(BYTES_PER_VALUE[stage.precision_of(layer).kv] for stage in (old, new)) for layer in range(*layers))
    return 2 * model.head_dim * (heads[1] - heads[0]) * sum(widths)


def refuse_divided_stacks(topology: Topology, stack: int) -> None:
    """Refuse stages that divide a stack of layers: they are gained and dropped together.

    Raises:
        TopologyError: naming the stage.
    """
    for number, stage in enumerate(topology.stages):
        if stage.layers.start % stack:
            raise TopologyError(
                f"stage {number} ({stage}): starts in the middle of a slab of {stack} layers; "
                f"let it start at a multiple of {stack}"
            )
