"""Topologies of a driver that are loaded and serve no more."""

from collections import Counter
from collections.abc import Callable, Mapping

from runtime import footprint
from runtime.errors import SwitchError
from runtime.models import Cluster, ModelSpec, Topology
from runtime.torch_engine.driver.workers import Ranks, Workers


class Standby:
    """At most so many topologies, and only where nobody needs their memory."""

    def __init__(self, workers: Workers, model: ModelSpec, cluster: Cluster, most: int) -> None:
        self._workers = workers
        self._model = model
        self._cluster = cluster
        self._most = most
        self._rank_sets: list[Ranks] = []

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The oldest first."""
        return tuple(ranks.topology for ranks in self._rank_sets)

    def take(self, topology: Topology) -> Ranks | None:
        """The topology of a topology, which stands by no longer; none whose worker died."""
        for ranks in self._rank_sets:
            if ranks.topology == topology and ranks.is_whole(self._workers):
                self._rank_sets.remove(ranks)
                return ranks
        return None

    def whole(self, can_serve: Callable[[Topology], bool]) -> Ranks | None:
        """The newest that can serve and whose workers all live; it stands by no longer."""
        topologies = [ranks.topology for ranks in reversed(self._rank_sets) if ranks.is_whole(self._workers)]
        found = next(filter(can_serve, topologies), None)
        return self.take(found) if found else None

    async def keep(self, ranks: Ranks, active: Ranks) -> None:
        """Have what is loaded but does not serve stand by, without KV memory that ``active`` does not need."""
        await ranks.stand_by(self._workers, keep=active)
        self._rank_sets.append(ranks)
        if not ranks.is_whole(self._workers):  # ``lose`` was told before it stood here
            await self._release_all(ranks)
        while len(self._rank_sets) > self._most:
            await self._release_all(self._rank_sets[0])

    async def give_way(self, needed: Mapping[int, int], target: Topology | None = None) -> None:
        """Release the oldest, but not ``target``, until the others fit.

        Beside what is needed (bytes by device).
        """
        while others := [ranks for ranks in self._rank_sets if ranks.topology != target]:
            held = Counter[int]()
            for ranks in others:
                held.update(footprint.weight_bytes(ranks.topology, self._model))
            if all(size + needed.get(device, 0) <= self._usable(device) for device, size in held.items()):
                return
            await self._release_all(others[0])

    async def clear(self) -> None:
        """Disband all."""
        while self._rank_sets:
            await self._release_all(self._rank_sets[0])

    async def lose(self, device: int, error: SwitchError) -> None:
        """A worker died: what stood by on it is of no use."""
        for ranks in [rank_set for rank_set in self._rank_sets if device in rank_set.topology.devices]:
            ranks.lose(error)
            await self._release_all(ranks)

    async def _release_all(self, ranks: Ranks) -> None:
        self._rank_sets.remove(ranks)
        await ranks.release(self._workers)

    def _usable(self, device: int) -> float:
        return self._cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM)
