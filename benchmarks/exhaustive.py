"""Every pipeline of a small inventory, tried in earnest: stages, splits of the layers, and how full their steps are.

It shares nothing with the search but the simulation and what bars a topology (memory, limits, engine).
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from intent.models import Objective
from runtime.capabilities import Batching
from runtime.errors import TopologyError
from runtime.models import Cluster, LayerRange, Precision, Stage, Topology
from selector.models import Candidate, Profile, ProfileError, SearchInput
from selector.objectives import Bound
from selector.performance.perf import LayerCost, Step
from selector.prediction import candidate, usual_batching
from selector.ranking import Ranking
from selector.space import blocker
from selector.switching import way

STAGES = 4
DEGREES = (1, 2, 4, 8)
STEP_TOKENS = (256, 512, 1024, 2048)
SEQUENCES = (32, 64, 128, 256)
SHIFT = 4
"""Layers by which a split is moved."""
WIDTH = 6
"""Topologies that get every setting of their steps."""
USUAL = Step(32, 256, 32 * 1000, 32)

Seat = tuple[str, int]
"""A kind of devices and how many."""


@dataclass
class Everything:
    """What there is, each simulated once."""

    ranking: Ranking
    profiles: dict[str, Profile]
    precisions: tuple[str, ...]
    seen: dict[tuple[Topology, Batching], Candidate | None] = field(default_factory=dict)

    @property
    def problem(self) -> SearchInput:
        """What is to be solved, on the devices that goals leave."""
        return self.ranking.problem

    def nearest(self, bounds: Sequence[Bound]) -> Candidate | None:
        """What misses bounds least and, of what holds them, costs least."""
        pool = self._settled(self._first, bounds)
        return min(pool, key=lambda one: self._worth(one, bounds), default=None)

    def holding(self, bounds: Sequence[Bound]) -> list[Candidate]:
        """All that was found to hold some bounds."""
        return [one for one in self.seen.values() if one and not self.ranking.missed(bounds, one)]

    def _worth(self, one: Candidate, bounds: Sequence[Bound]) -> tuple[float, float]:
        return round(self.ranking.shortfall(one, bounds), 6), self.ranking.cost(one)

    def _settled(self, first: Iterable[Candidate], bounds: Sequence[Bound]) -> list[Candidate]:
        """Those that come nearest with every setting of their steps, and then with other splits."""
        best = sorted(first, key=lambda one: self._worth(one, bounds))[:WIDTH]
        tuned = [found for one in best for steps in self._settings if (found := self._judged(one.topology, steps))]
        pool = [*best, *tuned]
        nearest = sorted(pool, key=lambda one: self._worth(one, bounds))[:WIDTH]
        for one in nearest:
            others = [each for each in moved(one.topology, self.problem.model.num_layers) if not self._barred(each)]
            pool += [found for topology in others if (found := self._judged(topology, one.batching))]
        return pool

    @cached_property
    def _first(self) -> list[Candidate]:
        """Every pipeline, balanced, with steps as they are and short ones."""
        most = self.problem.batching
        short = None if self._wants_use else Batching(min(64, most.max_sequences), min(512, most.max_step_tokens))
        found = [self._judged(topology, steps) for topology in self._topologies() for steps in (None, short)]
        return [one for one in found if one]

    @cached_property
    def _settings(self) -> list[Batching]:
        most = self.problem.batching
        if self._wants_use:
            return [most]
        pairs = itertools.product(
            sorted({min(number, most.max_sequences) for number in SEQUENCES}),
            sorted({min(number, most.max_step_tokens) for number in STEP_TOKENS}),
        )
        return [Batching(*pair) for pair in pairs if pair[0] <= pair[1]]

    def _judged(self, topology: Topology, steps: Batching | None) -> Candidate | None:
        steps = steps or usual_batching(topology, self.problem)
        if (topology, steps) not in self.seen:
            try:
                found = candidate(topology, self.problem, self.profiles, steps)
            except (KeyError, ProfileError, TopologyError):
                found = None
            self.seen[topology, steps] = found
        return self.seen[topology, steps]

    def _barred(self, topology: Topology) -> bool:
        """Whether it may not run; where devices are to be busy that is also what is busy for being slow."""
        now = self.problem.now
        is_more = now is not None and topology != now and len(topology.devices) >= len(now.devices)
        is_barred = bool(blocker(topology, self.problem, self.precisions)) or way(topology, self.problem) is None
        return (is_more and self._wants_use) or is_barred

    @cached_property
    def _wants_use(self) -> bool:
        demands = self.ranking.demands
        goals = [goal for goal in (*demands.bounds, *demands.optimised) if isinstance(goal, Objective)]
        return any(goal.metric == "gpu_util" and goal.op in {">=", "maximize"} for goal in goals)

    def _topologies(self) -> Iterator[Topology]:
        """Balanced by time or by memory, on what runs first or on what is free."""
        cluster = self.problem.cluster
        now = set(self.problem.now.devices) if self.problem.now else set[int]()
        for part in _connected(cluster):
            for seats, name in itertools.product(seatings(part), self.precisions):
                if not self._engine_runs(seats) or any(name not in self.profiles[kind].precisions for kind, _ in seats):
                    continue
                for first in (now, {gpu.index for gpu in cluster.gpus} - now) if now else (now,):
                    dealt = deal(part, seats, first)
                    found = (
                        [self._pipeline(seats, dealt, name, cuts) for cuts in self._cuts(seats, name)] if dealt else []
                    )
                    if usable := [topology for topology in found if not self._barred(topology)]:
                        yield from usable
                        break

    def _engine_runs(self, seats: Sequence[Seat]) -> bool:
        engine = self.problem.capabilities
        return engine is None or engine.tp_per_stage or len({tp for _, tp in seats}) == 1

    def _cuts(self, seats: Sequence[Seat], name: str) -> list[tuple[int, ...]]:
        model = self.problem.model
        speeds = []
        for kind, tp in seats:
            try:
                speeds.append(
                    1 / LayerCost.of(Precision.named(name, kind), tp, model, self.profiles[kind]).seconds(USUAL)
                )
            except (KeyError, ProfileError, ZeroDivisionError):
                return []
        sizes = {gpu.kind: gpu.memory_bytes for gpu in self.problem.cluster.gpus}
        memory = [tp * sizes[kind] for kind, tp in seats]
        found = {shared(shares, model.num_layers) for shares in (speeds, memory)}
        return [cuts for cuts in found if all(a < b for a, b in itertools.pairwise(cuts))]

    def _pipeline(
        self, seats: Sequence[Seat], dealt: Sequence[tuple[int, ...]], name: str, cuts: Sequence[int]
    ) -> Topology:
        return Topology(
            tuple(
                Stage(kind, devices, LayerRange(*ends), Precision.named(name, kind))
                for (kind, _), devices, ends in zip(seats, dealt, itertools.pairwise(cuts), strict=True)
            )
        )


def seatings(cluster: Cluster) -> list[tuple[Seat, ...]]:
    """Up to four stages, those of a kind together and the larger ones first."""
    kinds = cluster.kinds
    counts = {kind: sum(gpu.kind == kind for gpu in cluster.gpus) for kind in kinds}
    parts = {kind: _splits(counts[kind]) for kind in kinds}
    found = [tuple((kind, tp) for tp in part) for kind in kinds for part in parts[kind] if part]
    for first, second in itertools.permutations(kinds, 2):
        for one, other in itertools.product(parts[first], parts[second]):
            if one and other and len(one) + len(other) <= STAGES:
                found.append((*((first, tp) for tp in one), *((second, tp) for tp in other)))
    return found


def _splits(count: int) -> list[tuple[int, ...]]:
    """Degrees of up to four stages on so many devices, in falling order."""
    chosen = (
        degrees
        for number in range(STAGES + 1)
        for degrees in itertools.combinations_with_replacement(DEGREES[::-1], number)
    )
    return [degrees for degrees in chosen if sum(degrees) <= count]


def deal(cluster: Cluster, seats: Sequence[Seat], first: set[int]) -> list[tuple[int, ...]]:
    """Devices for each stage on one node, those in ``first`` before others; empty if they do not fit."""
    free = [
        (node.gpus[0].kind, sorted((gpu.index for gpu in node.gpus), key=lambda device: device not in first))
        for node in cluster.nodes
    ]
    given: dict[int, tuple[int, ...]] = {}
    for place, (kind, tp) in sorted(enumerate(seats), key=lambda item: -item[1][1]):
        fitting = [devices for name, devices in free if name == kind and len(devices) >= tp]
        if not fitting:
            return []
        best = max(fitting, key=lambda devices: (sum(device in first for device in devices[:tp]), -len(devices)))
        given[place] = tuple(best[:tp])
        del best[:tp]
    return [given[place] for place in range(len(seats))]


def shared(shares: Sequence[float], layers: int) -> tuple[int, ...]:
    """Ends of stages that have layers by their shares."""
    ends = itertools.accumulate(shares)
    return (0, *(max(0, min(layers, round(layers * end / math.fsum(shares)))) for end in ends))


def moved(topology: Topology, layers: int) -> Iterator[Topology]:
    """The same with cuts moved by some layers, every way."""
    cuts = [stage.layers.end for stage in topology.stages[:-1]]
    for shifts in itertools.product((-SHIFT, 0, SHIFT), repeat=len(cuts)):
        ends = (0, *(cut + shift for cut, shift in zip(cuts, shifts, strict=True)), layers)
        if any(shifts) and all(a < b for a, b in itertools.pairwise(ends)):
            yield Topology(
                tuple(
                    Stage(stage.kind, stage.devices, LayerRange(*pair), stage.precision)
                    for stage, pair in zip(topology.stages, itertools.pairwise(ends), strict=True)
                )
            )


def _connected(cluster: Cluster) -> list[Cluster]:
    if cluster.network is not None or len(cluster.nodes) == 1:
        return [cluster]
    return [Cluster((node,)) for node in cluster.nodes]
