"""The text form of a topology, read everywhere (``Topology.__str__`` prints it). Pure.

Replicas joined by ``|``, their stages by ``>``; a stage is ``KIND`` or ``KINDxTP`` (bound in inventory order, on one node) or
``KIND[ids]``, then ``:start-end`` (half-open), then ``@precision``, with layer overrides after commas.
"""

import re
from dataclasses import replace
from itertools import pairwise

from runtime.errors import TopologyError
from runtime.models import Cluster, LayerRange, Precision, Stage, Topology, uniform

_SHORT = re.compile(r"^(?=.*\d)(?:tp(?P<tp>\d+))?[x×]?(?:pp(?P<pp>\d+))?$|^1[x×]1$", re.IGNORECASE)
_STAGE = re.compile(
    r"^(?P<kind>[A-Za-z][A-Za-z0-9-]*?)(?:x(?P<tp>\d+)|\[(?P<ids>\d+(?:,\d+)*)\]|(?=[:@]))"
    r"(?::(?P<start>\d+)-(?P<end>\d+))?(?:@(?P<precision>[a-z0-9]+)(?P<overrides>(?:,\d+-\d+=[a-z0-9]+)*))?$"
)


def parse_topology(text: str, cluster: Cluster, num_layers: int, precision: str | None = None) -> Topology:
    """Read the text form of a topology, for example ``tp2pp4``.

    Or ``A100x4:0-52@bf16 > L40S[4,5,6,7]:52-80@fp8,60-64=int4``, or replicas: ``A100x4@bf16 | L40Sx4@fp8``.

    ``precision`` is what holds where the text says none; without it the text has to say one. ``tp2pp4`` needs a cluster of
    one device kind.

    Raises:
        TopologyError: naming the part that could not be read or bound.
    """
    stripped = text.strip()
    if stripped and (short := _SHORT.match(stripped)):
        if len(cluster.kinds) != 1:
            raise TopologyError(
                f"{text!r} does not say which of {', '.join(cluster.kinds)} to use; write e.g. {cluster.kinds[0]}x2"
            )
        if precision is None:
            raise TopologyError(f"{text!r} does not say its precision; write e.g. {cluster.kinds[0]}x2@bf16")
        tp = int(short["tp"] or 1)
        pp = int(short["pp"] or 1)
        return uniform(cluster, cluster.kinds[0], tp, pp, num_layers, precision)
    stages: list[Stage] = []
    used: set[int] = set()
    for replica in stripped.split("|"):
        parts = replica.split(">")
        for place, part in enumerate(parts):
            stage = _parse_stage(part.strip(), cluster, used, (num_layers if len(parts) == 1 else None, precision))
            if stages and bool(place) is not bool(stage.layers.start):
                where = "go on where the stage before ends" if place else "start at 0, for it begins a replica"
                raise TopologyError(f"stage {part.strip()!r}: let its layers {where}")
            used.update(stage.devices)
            stages.append(stage)
    return Topology.of_replicas(Topology(tuple(stages)).replicas)


def _parse_stage(part: str, cluster: Cluster, used: set[int], defaults: tuple[int | None, str | None]) -> Stage:
    match = _STAGE.match(part)
    if match is None:
        raise TopologyError(f"cannot read stage {part!r}; write KINDxTP or KIND[ids], then :start-end, then @precision")
    num_layers, precision = defaults
    if match["start"] is None and num_layers is None:
        raise TopologyError(f"stage {part!r} of several does not say its layers; write :start-end")
    if (named := match["precision"] or precision) is None:
        raise TopologyError(f"stage {part!r} does not say its precision; write @bf16 or another behind it")
    kind = match["kind"]
    devices = (
        tuple(map(int, match["ids"].split(",")))
        if match["ids"]
        else cluster.free_devices(kind, int(match["tp"] or 1), used)
    )
    layers = LayerRange(int(match["start"] or 0), int(match["end"] or num_layers or 0))
    whole = Stage(kind, devices, layers, Precision.named(named, kind))
    return _with_overrides(part, whole, match["overrides"].split(",")[1:]) if match["overrides"] else whole


def _with_overrides(part: str, stage: Stage, items: list[str]) -> Stage:
    """A stage with layers in other formats; of two that name a layer the first holds."""
    others = []
    for item in items:
        interval, name = item.split("=")
        start, end = map(int, interval.split("-"))
        if not stage.layers.start <= start < end <= stage.layers.end:
            raise TopologyError(f"stage {part!r} holds the layers {stage.layers}; {interval} are none of its own")
        others.append((LayerRange(start, end), stage.precision.beside(name, stage.kind)))
    mixed = replace(stage, overrides=tuple(others))
    bounds = {stage.layers.start, stage.layers.end}
    bounds.update(bound for layers, _ in others for bound in (layers.start, layers.end))
    parts = [LayerRange(*pair) for pair in pairwise(sorted(bounds))]
    return Stage.of(stage.kind, stage.devices, [(layers, mixed.precision_of(layers.start)) for layers in parts])
