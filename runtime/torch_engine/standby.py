"""Topologies that served before: they keep their weights and their group, so that a switch back to one loads nothing."""

from collections import Counter
from collections.abc import Mapping

from runtime import footprint
from runtime.errors import SwitchError
from runtime.models import Cluster, ModelSpec, Topology
from runtime.torch_engine.crew import Crew
from runtime.torch_engine.lineup import Lineup


class Standby:
    """At most so many lineups, and only where nobody needs their memory."""

    def __init__(self, crew: Crew, model: ModelSpec, cluster: Cluster, most: int) -> None:
        self._crew, self._model, self._cluster, self._most = crew, model, cluster, most
        self._lineups: list[Lineup] = []

    @property
    def topologies(self) -> tuple[Topology, ...]:
        """The oldest first."""
        return tuple(lineup.topology for lineup in self._lineups)

    def take(self, topology: Topology) -> Lineup | None:
        """The lineup of a topology, which stands by no longer; none whose worker died."""
        for lineup in self._lineups:
            if lineup.topology == topology and lineup.is_whole(self._crew):
                self._lineups.remove(lineup)
                return lineup
        return None

    async def keep(self, lineup: Lineup, active: Lineup) -> None:
        """Have what is loaded but does not serve stand by, without KV memory that ``active`` does not need."""
        await lineup.stand_by(self._crew, keep=active)
        self._lineups.append(lineup)
        if not lineup.is_whole(self._crew):  # ``lose`` was told before it stood here
            await self._disband(lineup)
        while len(self._lineups) > self._most:
            await self._disband(self._lineups[0])

    async def give_way(self, needed: Mapping[int, int], target: Topology | None = None) -> None:
        """Disband the oldest, but not ``target``, until the others fit beside what is needed (bytes by device)."""
        while others := [lineup for lineup in self._lineups if lineup.topology != target]:
            held = Counter[int]()
            for lineup in others:
                held.update(footprint.weight_bytes(lineup.topology, self._model))
            if all(size + needed.get(device, 0) <= self._usable(device) for device, size in held.items()):
                return
            await self._disband(others[0])

    async def clear(self) -> None:
        """Disband all."""
        while self._lineups:
            await self._disband(self._lineups[0])

    async def lose(self, device: int, error: SwitchError) -> None:
        """A worker died: what stood by on it is of no use."""
        for lineup in [one for one in self._lineups if device in one.topology.devices]:
            lineup.lose(error)
            await self._disband(lineup)

    async def _disband(self, lineup: Lineup) -> None:
        self._lineups.remove(lineup)
        await lineup.dismiss(self._crew)

    def _usable(self, device: int) -> float:
        return self._cluster.gpu(device).memory_bytes * (1 - footprint.HEADROOM)
