"""Where a model may run, by what was said: devices that goals keep free, prefer or freeze. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from intent.models import Goal, Placement
from runtime.models import Cluster
from selector.models import Problem


@dataclass(frozen=True, slots=True)
class Places:
    """What placements leave of the inventory."""

    allowed: Cluster
    preferred: Cluster | None
    """Part of what is allowed, to be tried first."""
    frozen: tuple[int, ...]
    """Devices of what runs now that have to stay as they are."""
    notes: tuple[str, ...]


def places(goals: Sequence[Goal], problem: Problem) -> Places:
    """What the placements of a model, or of everything, leave; frozen devices that are idle stay idle."""
    mine = [goal for goal in goals if isinstance(goal, Placement) and concerns(goal, problem.model.name)]
    cluster, now = problem.cluster, set(problem.now.devices) if problem.now else set[int]()
    allowed = {gpu.index for gpu in cluster.gpus}
    frozen, preferred = set[int](), set[int]()
    for goal in mine:
        named = cluster.named(goal.selector)
        match goal.rule:
            case "require":
                allowed &= named
            case "forbid":
                allowed -= named
            case "freeze":
                frozen |= named
            case "prefer":
                preferred |= named
    left = allowed - (frozen - now)
    return Places(
        allowed=only(cluster, left),
        preferred=only(cluster, left & preferred) if left & preferred else None,
        frozen=tuple(sorted(frozen & now)),
        notes=(_note(mine, left),) if left != {gpu.index for gpu in cluster.gpus} else (),
    )


def concerns(goal: Placement, model: str) -> bool:
    """Whether a placement speaks of everything, or of this model."""
    return goal.workload in {None, model}


def only(cluster: Cluster, devices: Collection[int]) -> Cluster:
    """The cluster with no other devices."""
    nodes = (
        replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.index in devices)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(node for node in nodes if node.gpus))


def _note(goals: Sequence[Placement], left: Collection[int]) -> str:
    said = " and ".join(repr(goal.evidence) for goal in goals if goal.rule != "prefer")
    devices = ", ".join(map(str, sorted(left))) or "none"
    return f"{said}: of the inventory that leaves the devices {devices}"
