"""The cluster as a picture: nodes, their devices, and what lies on each: stage, layers, precision.

Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from runtime.models import Stage, Topology
from service.documents.state import NodeDocument, StateDocument

HUES = 6
"""Stages are told apart by this many colours, and by their number."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a device holds."""

    model: str
    stage: int
    """From 1."""
    stages: int
    rank: int
    """Tensor rank, from 1."""
    ranks: int
    layers: str
    """The first and the last."""
    precision: str
    replica: str
    """Its place, as ``chat/1``; empty where the model has one pipeline."""

    @property
    def hue(self) -> int:
        """Of the stage."""
        return (self.stage - 1) % HUES


@dataclass(frozen=True, slots=True)
class Device:
    """A device and what lies on it; None: nothing of the models that are shown."""

    index: int
    kind: str
    memory_gb: float
    use: Use | None
    out: str
    """Why it is out; empty: it is not."""

    @property
    def group(self) -> str:
        """The replica that it is drawn with; empty: none of several."""
        return self.use.replica if self.use else ""


@dataclass(frozen=True, slots=True)
class Row:
    """A node."""

    name: str
    link: str
    devices: tuple[Device, ...]


def picture(
    inventory: Sequence[NodeDocument],
    topologies: Mapping[str, Sequence[Topology]],
    out: Mapping[int, str] = MappingProxyType({}),
) -> tuple[Row, ...]:
    """Nodes with what each device holds of the pipelines of each model, and why it is ``out``.

    Without an inventory: nothing.
    """
    uses = {
        index: use
        for model, sets in topologies.items()
        for pipelines in [[pipeline for each in sets for pipeline in each.replicas]]
        for place, topology in enumerate(pipelines, start=1)
        for index, use in _uses(model, topology, f"{model}/{place}" if len(pipelines) > 1 else "")
    }
    return tuple(
        Row(
            node.name,
            node.link,
            tuple(
                Device(gpu.index, gpu.kind, gpu.memory_bytes / 1e9, uses.get(gpu.index), out.get(gpu.index, ""))
                for gpu in node.gpus
            ),
        )
        for node in inventory
    )


def inventory_of(states: Sequence[StateDocument]) -> tuple[NodeDocument, ...]:
    """The nodes of all models: each knows those that it may use."""
    nodes = dict[str, NodeDocument]()
    for state in states:
        for node in state.inventory:
            known = nodes.get(node.name)
            gpus = {gpu.index: gpu for gpu in (*(known.gpus if known else ()), *node.gpus)}
            nodes[node.name] = node.model_copy(update={"gpus": tuple(gpus[index] for index in sorted(gpus))})
    return tuple(nodes.values())


def _uses(model: str, topology: Topology, replica: str) -> list[tuple[int, Use]]:
    count = len(topology.stages)
    return [
        (
            device,
            Use(
                model=model,
                stage=place,
                stages=count,
                rank=rank,
                ranks=len(stage.devices),
                layers=f"{stage.layers.start}–{stage.layers.end - 1}",
                precision=precision_of(stage),
                replica=replica,
            ),
        )
        for place, stage in enumerate(topology.stages, start=1)
        for rank, device in enumerate(stage.devices, start=1)
    ]


def precision_of(stage: Stage) -> str:
    """The format of a stage's weights: ``bf16, 2–5 int8``, or ``int8 on fp32`` where all layers are so."""
    if [layers for layers, _ in stage.overrides] == [stage.layers]:
        return f"{stage.overrides[0][1].weights} on {stage.precision.weights}"
    others = [f"{layers.start}–{layers.end - 1} {precision.weights}" for layers, precision in stage.overrides]
    return ", ".join([stage.precision.weights, *others])
