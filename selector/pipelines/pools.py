"""Devices that are alike, and which of them the stages of a pipeline get. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from runtime.models import Cluster, Gpu


@dataclass(frozen=True, slots=True)
class Pool:
    """Devices of one kind, of which a stage may take any number up to the size of a node."""

    kind: str
    nodes: tuple[tuple[int, ...], ...]
    """Device indices by node."""
    memory_bytes: int
    """Of the smallest device."""
    usd_per_hour: float
    """Of one device, the mean."""

    @property
    def size(self) -> int:
        """Devices in all."""
        return sum(map(len, self.nodes))

    @property
    def node_size(self) -> int:
        """Devices of the largest node."""
        return max(map(len, self.nodes))


def pools_of(cluster: Cluster, kinds: Collection[str]) -> tuple[Pool, ...]:
    """The devices of these kinds, by kind; nodes together where counts alone say what fits into them."""
    found: list[Pool] = []
    for kind in kinds:
        groups: list[list[list[Gpu]]] = []
        for node in cluster.nodes:
            if gpus := [gpu for gpu in node.gpus if gpu.kind == kind]:
                home = next((group for group in groups if _together([*group, gpus])), None)
                if home is None:
                    groups.append([gpus])
                else:
                    home.append(gpus)
        found += [_pool(kind, group) for group in groups]
    return tuple(found)


def _together(nodes: Sequence[Sequence[Gpu]]) -> bool:
    """Whether stages of powers of two fit into nodes whenever there are devices enough, the largest first.

    They do where no size of stage leaves more over in the nodes one by one than in their sum. Nodes of several sizes have to
    have the same devices, too.
    """
    sizes = [len(gpus) for gpus in nodes]
    devices = {(gpu.memory_bytes, gpu.usd_per_hour) for gpus in nodes for gpu in gpus}
    if len(set(sizes)) > 1 and len(devices) > 1:
        return False
    parts = (2**power for power in range(max(sizes).bit_length()))
    return all(sum(size // part for size in sizes) == sum(sizes) // part for part in parts)


def _pool(kind: str, nodes: Sequence[Sequence[Gpu]]) -> Pool:
    gpus = [gpu for node in nodes for gpu in node]
    return Pool(
        kind,
        tuple(tuple(gpu.index for gpu in node) for node in nodes),
        min(gpu.memory_bytes for gpu in gpus),
        sum(gpu.usd_per_hour for gpu in gpus) / len(gpus),
    )


def dealt(
    pools: Sequence[Pool], wanted: Sequence[tuple[int, int]], first: Collection[int]
) -> list[tuple[int, ...]]:
    """Devices for stages that want (pool, how many), in their order; those in ``first`` go out before others.

    The largest stages choose first. Empty if they do not fit, which cannot be for powers of two in nodes of a power of two.
    """
    free = [[sorted(node, key=lambda device: device not in first) for node in pool.nodes] for pool in pools]
    given: dict[int, tuple[int, ...]] = {}
    for place, (pool, count) in sorted(enumerate(wanted), key=lambda item: -item[1][1]):
        nodes = [node for node in free[pool] if len(node) >= count]
        if not nodes:
            return []
        node = max(nodes, key=lambda node: (sum(device in first for device in node[:count]), -len(node)))
        given[place], node[:count] = tuple(node[:count]), []
    return [given[place] for place in range(len(wanted))]
