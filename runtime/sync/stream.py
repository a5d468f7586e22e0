"""Stream: layers move one after the other where only one copy of the weights fits. Pure.

Requests stand still meanwhile.

ReMP's layer-by-layer switch. A step moves a few layers: the target's ranks copy their KV, the old ranks let go of their slices
of the weights, the new ones take theirs from the host copy, and the old KV goes. So a device holds what it keeps, what it has
got already, and the KV of one step twice. In which order layers move decides how much that is: each next step is the one
for which the fullest of its devices gets least full.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from runtime.footprint import Piece, WeightSlice, owned, weight_slices
from runtime.models import BYTES_PER_VALUE, LayerRange, ModelSpec, Topology

_Items = Mapping[int, Mapping[WeightSlice | Piece, float]]
"""Device to what it holds, with the bytes of each."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """How a topology becomes another in place."""

    steps: tuple[LayerRange, ...]
    """Layers that move together, in their order."""
    peak_bytes: Mapping[int, int]
    """The most that each device holds meanwhile."""
    load_bytes: Mapping[int, int]
    """Weights that each device takes from the host copy."""


@dataclass(frozen=True, slots=True)
class KvSize:
    """How much KV there is."""

    num_blocks: int
    block_size: int
    """Tokens."""
    stack: int = 1
    """Layers that move together because they share slabs."""


@dataclass(frozen=True, slots=True)
class _Step:
    layers: LayerRange
    copied: Mapping[int, float]
    """Bytes of KV that each device gets while it still has all it had."""
    exchanged: Mapping[int, float]
    """Bytes by which each device's weights grow."""
    change: Mapping[int, float]
    """Bytes by which all it holds grows, once the old KV is gone too."""

    def peak(self, held: Mapping[int, float]) -> dict[int, float]:
        """Bytes on the devices it touches, at most: the old KV goes last, so that the step can be undone."""
        return {
            device: held.get(device, 0.0) + copied + max(self.exchanged[device], 0.0)
            for device, copied in self.copied.items()
        }


def plan(now: Topology, target: Topology, model: ModelSpec, kv: KvSize, usable: Mapping[int, float]) -> StreamPlan:
    """The steps and what they take; ``usable`` is bytes by device, of both topologies' devices."""
    old = _items(now, model, kv)
    new = _items(target, model, kv)
    firsts = range(0, model.num_layers, kv.stack)
    ranges = [LayerRange(first, min(first + kv.stack, model.num_layers)) for first in firsts]
    left = [_step(layers, old, new) for layers in ranges]
    held = {device: sum(items.values()) for device, items in old.items()}
    peak = dict(held)
    steps = list[LayerRange]()
    while left:
        step = min(left, key=lambda move: _fullness(move.peak(held), usable))
        left.remove(step)
        peak.update({device: max(size, peak.get(device, 0.0)) for device, size in step.peak(held).items()})
        held.update({device: held.get(device, 0.0) + size for device, size in step.change.items()})
        steps.append(step.layers)
    return StreamPlan(tuple(steps), _rounded(peak), _rounded(_loaded(now, target, model)))


def _items(topology: Topology, model: ModelSpec, kv: KvSize) -> _Items:
    """Weights and KV."""
    slot_bytes = 2 * model.head_dim * kv.num_blocks * kv.block_size
    weights = weight_slices(topology, model)
    items = dict[int, dict[WeightSlice | Piece, float]]()
    for device, pieces in owned(topology, model).items():
        here = items[device] = dict[WeightSlice | Piece, float](weights[device].items())
        for piece in pieces:
            precision = topology.stage_of(piece.layer).precision_of(piece.layer)
            here[piece] = slot_bytes * BYTES_PER_VALUE[precision.kv]
    return items


def _step(layers: LayerRange, old: _Items, new: _Items) -> _Step:
    copied = dict[int, float]()
    exchanged = dict[int, float]()
    change = dict[int, float]()
    for device in {*old, *new}:
        before, after = (
            {item: size for item, size in items.get(device, {}).items() if item.layer in layers} for items in (old, new)
        )
        if before != after:
            wider = {item: size - before.get(item, 0.0) for item, size in after.items() if isinstance(item, Piece)}
            copied[device] = sum(size for size in wider.values() if size > 0)
            change[device] = sum(after.values()) - sum(before.values())
            exchanged[device] = _weights(after) - _weights(before)
    return _Step(layers, copied, exchanged, change)


def _weights(items: Mapping[WeightSlice | Piece, float]) -> float:
    return sum(size for item, size in items.items() if isinstance(item, WeightSlice))


def _fullness(sizes: Mapping[int, float], usable: Mapping[int, float]) -> float:
    """Of the fullest device; 0 where nothing moves."""
    return max((size / usable[device] for device, size in sizes.items()), default=0.0)


def _loaded(now: Topology, target: Topology, model: ModelSpec) -> dict[int, float]:
    old = weight_slices(now, model)
    new = weight_slices(target, model)
    return {
        device: sum(size for weight_slice, size in slices.items() if weight_slice not in old.get(device, {}))
        for device, slices in new.items()
    }


def _rounded(sizes: Mapping[int, float]) -> dict[int, int]:
    return {device: round(size) for device, size in sizes.items()}
