"""What goals for replicas read of a topology: how many a node has, and how much may be lost. Pure."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations

from intent.models import Config
from runtime.capabilities import Batching
from runtime.models import Cluster, Topology
from selector.models import Candidate

COUNTED = frozenset({"replicas_per_node", "lost_devices", "lost_nodes"})

Holds = Callable[[Topology, Batching], bool]
"""Whether what is left still holds every hard latency goal at the load."""


def counts_of(found: Candidate, wishes: Sequence[Config], cluster: Cluster, holds: Holds) -> Mapping[str, int]:
    """By the keys of some goals."""
    nodes = [frozenset(gpu.index for gpu in node.gpus) for node in cluster.nodes]
    devices = [frozenset({device}) for device in found.topology.devices]
    counts = dict[str, int]()
    for wish in wishes:
        if wish.key == "replicas_per_node":
            counts[wish.key] = _per_node(found.topology, nodes, wish)
        elif wish.key in COUNTED:
            places = devices if wish.key == "lost_devices" else nodes
            kept = (count for count in range(1, wish.value + 1) if not all(_left(found, places, count, holds)))
            counts[wish.key] = next(kept, wish.value + 1) - 1
    return counts


def _per_node(topology: Topology, nodes: Sequence[Collection[int]], wish: Config) -> int:
    """Of the node that is farthest from a goal; 0 where a replica spans nodes, or not all have as many."""
    inside = [sum(set(replica.devices) <= set(node) for replica in topology.replicas) for node in nodes]
    if sum(inside) < len(topology.replicas):
        return 0
    if wish.op == "==":
        return inside[0] if len(set(inside)) == 1 else 0
    return max(inside) if wish.op == "<=" else min(inside)


def _left(found: Candidate, places: Sequence[frozenset[int]], count: int, holds: Holds) -> Iterator[bool]:
    """Whether goals hold without the replicas that so many places take along, for each choice."""
    seen = set[tuple[object, ...]]()
    replicas = found.topology.replicas
    steps = found.batching or Batching()
    for lost in combinations(places, count):
        gone = frozenset[int]().union(*lost)
        left = [place for place, replica in enumerate(replicas) if not gone & set(replica.devices)]
        like = tuple((_shape(replicas[place]), steps.of(place)) for place in left)
        if like not in seen:
            seen.add(like)
            yield bool(left) and holds(
                Topology.of_replicas(replicas[place] for place in left),
                Batching.of_replicas([steps.of(place) for place in left]),
            )


def _shape(topology: Topology) -> tuple[object, ...]:
    """What decides what it does: all but which of its kind of device it uses."""
    return tuple(
        (stage.kind, stage.tp_size, stage.layers, stage.precision, stage.overrides) for stage in topology.stages
    )
