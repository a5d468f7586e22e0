"""In which order layers change the format of their weights where not all have room twice. Pure."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

from runtime.errors import Reason, SwitchError
from runtime.footprint import value_bytes
from runtime.models import ModelSpec, Stage, Topology

Round = Mapping[int, tuple[str, str]]
"""Layers that change at once: from which format to which."""


def is_swap(now: Topology, target: Topology) -> bool:
    """Whether a topology becomes another one by formats of weights alone: devices, layers and KV stay."""
    return now != target and _bare(now) == _bare(target)


def in_words(now: Topology, target: Topology) -> str:
    """What a swap changes, as ``weights of layers 2 to 5 become int8``; empty where it is none."""
    changed = dict[int, str]()
    for old, new in zip(now.stages, target.stages, strict=True) if is_swap(now, target) else ():
        formats = {layer: (old.precision_of(layer).weights, new.precision_of(layer).weights) for layer in old.layers}
        changed |= {layer: after for layer, (before, after) in formats.items() if before != after}
    spans = dict[str, list[str]]()
    for (name, _), run in groupby(enumerate(sorted(changed)), lambda each: (changed[each[1]], each[1] - each[0])):
        layers = [layer for _, layer in run]
        spans.setdefault(name, []).append(f"{layers[0]} to {layers[-1]}" if layers[1:] else str(layers[0]))
    lists = {name: ", ".join(each) for name, each in spans.items()}
    parts = [f"of layer{'' if text.isdigit() else 's'} {text} become {name}" for name, text in lists.items()]
    return f"weights {', '.join(parts)}" if parts else ""


def _bare(topology: Topology) -> list[tuple[object, ...]]:
    return [
        (stage.kind, stage.devices, stage.layers, [(stage.precision_of(layer).kv) for layer in stage.layers])
        for stage in topology.stages
    ]


def weights_by_layer(topology: Topology) -> list[str]:
    """The format of each layer's weights."""
    return [stage.precision_of(layer).weights for stage in topology.stages for layer in stage.layers]


def rounds(now: Topology, target: Topology, model: ModelSpec, room: Mapping[int, float]) -> tuple[Round, ...]:
    """Layers in as few rounds as there is ``room`` for beside what runs (bytes by device).

    Those that shrink come first. In a round each device holds its layers in both formats.

    Raises:
        SwitchError: a single layer has no room.
    """
    left = dict(room)
    found: list[dict[int, tuple[str, str]]] = [{}]
    freed = dict.fromkeys(left, 0.0)
    for layer, formats, sizes in _changing(now, target, model):
        if any(new > left[device] for device, (_, new) in sizes.items()):
            found.append({})
            left = {device: size + freed.pop(device, 0.0) for device, size in left.items()}
            freed = dict.fromkeys(left, 0.0)
        found[-1][layer] = formats
        for device, (old, new) in sizes.items():
            if new > left[device]:
                raise SwitchError(
                    Reason.NO_MEMORY,
                    f"device {device} has {left[device]:,.0f} bytes for layer {layer} in {formats[1]}, which needs {new:,.0f}; "
                    "wait until some requests have ended, or have fewer KV blocks",
                )
            left[device] -= new
            freed[device] += old
    return tuple(each for each in found if each)


def least_room(now: Topology, target: Topology, model: ModelSpec) -> Mapping[int, float]:
    """Bytes beside what runs, by device, that ``rounds`` of a layer each need."""
    needed = Counter[int]()
    grown = Counter[int]()
    for _, _, sizes in _changing(now, target, model):
        for device, (old, new) in sizes.items():
            needed[device] = max(needed[device], math.ceil(grown[device] + new))
            grown[device] += math.ceil(new - old)
    return needed


def _changing(
    now: Topology, target: Topology, model: ModelSpec
) -> list[tuple[int, tuple[str, str], Mapping[int, tuple[float, float]]]]:
    """Layers that change, with old and new bytes on each device; those that gain the least first."""
    found = []
    for stage in now.stages:
        for layer in stage.layers:
            formats = stage.precision_of(layer).weights, target.stage_of(layer).precision_of(layer).weights
            if formats[0] != formats[1]:
                found.append((layer, formats, _sizes(stage, formats, model)))
    return sorted(found, key=lambda each: sum(new - old for old, new in each[2].values()))


def _sizes(stage: Stage, formats: tuple[str, str], model: ModelSpec) -> Mapping[int, tuple[float, float]]:
    parameters = {device: model.rank_parameters(stage.tp_size, rank) for rank, device in enumerate(stage.devices)}
    old, new = (value_bytes(name, model) for name in formats)
    return {device: (count * old, count * new) for device, count in parameters.items()}


def mixed(now: Topology, target: Topology, changed: set[int]) -> Topology:
    """What runs once these layers have changed."""
    stages = []
    for old, new in zip(now.stages, target.stages, strict=True):
        formats = [(new if layer in changed else old).precision_of(layer) for layer in old.layers]
        ranges = [replace(old.layers, start=layer, end=layer + 1) for layer in old.layers]
        stages.append(Stage.of(old.kind, old.devices, zip(ranges, formats, strict=True)))
    return Topology(tuple(stages))
