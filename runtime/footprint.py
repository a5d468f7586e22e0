"""The one arithmetic of memory and bytes to move: the selector chooses by it, the runtime acts by it.

Pure.

A *piece* is the KV of one layer and one KV head. TP divides the KV heads, PP the layers, so a device of stage
``s`` with TP rank ``r`` owns the pieces ``layers(s) x heads(r)``.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.errors import TopologyError
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Stage, Topology, rank_part
from runtime.weight_formats import value_bytes

HEADROOM = 0.1
"""Share of a device's memory left for activations, buffers and the allocator."""
LEAST_KV_BYTES = 64 << 20


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
