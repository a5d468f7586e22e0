"""Which replicas to put into which boxes: an exact choice, by what each does alone. Pure.

A box is the devices of one kind in one node. What a set costs and the rate it holds are sums, so of all sets only those are
kept that no other beats in both: a knapsack, box by box. The simulation of the whole set has the last word.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from runtime.capabilities import Batching
from runtime.models import Topology


@dataclass(frozen=True, slots=True)
class BoxPipeline:
    """A pipeline that fits into a box, on its first devices."""

    topology: Topology
    batching: Batching
    rates_rps: tuple[float, ...]
    """At which it holds the goals: for all, and for those whom others may not serve."""
    cost: float
    """In money, or devices."""
    error_band: float = 0.0

    @property
    def size(self) -> int:
        """Devices that it takes."""
        return len(self.topology.devices)


@dataclass(frozen=True, slots=True)
class Box:
    """Devices of one kind in one node, and what fits there."""

    node: str
    devices: tuple[int, ...]
    pipelines: tuple[BoxPipeline, ...]


@dataclass(frozen=True, slots=True)
class Pack:
    """Replicas, each with the place of its box."""

    chosen: tuple[tuple[int, BoxPipeline], ...] = ()
    cost: float = 0.0
    rates_rps: tuple[float, ...] = ()

    def __add__(self, other: "Pack") -> "Pack":
        rates = tuple(map(operator.add, self.rates_rps, other.rates_rps)) or self.rates_rps or other.rates_rps
        return Pack((*self.chosen, *other.chosen), self.cost + other.cost, rates)

    @property
    def size(self) -> int:
        """Devices that it takes."""
        return sum(pipeline.size for _, pipeline in self.chosen)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What goals ask of a set beside rates."""

    replicas: Callable[[int], bool] | None = None
    """Whether so many are allowed; None: any number."""
    per_node: Callable[[int], bool] | None = None
    most_devices: float = float("inf")
    lost_devices: int = 0
    """So many, at worst each of the best replica, are to be lost without harm."""
    lost_nodes: int = 0

    def left(self, pack: Pack, boxes: Sequence[Box]) -> tuple[float, ...]:
        """The rates of what is left at worst, as far as one at a time tells."""
        by_node = dict[str, Pack]()
        for place, pipeline in pack.chosen:
            part = Pack((), 0.0, pipeline.rates_rps)
            by_node[boxes[place].node] = by_node.get(boxes[place].node, Pack()) + part
        found = []
        for number, rate in enumerate(pack.rates_rps):
            each = sorted((pipeline.rates_rps[number] for _, pipeline in pack.chosen), reverse=True)
            nodes = sorted((part.rates_rps[number] for part in by_node.values()), reverse=True)
            found.append(rate - max(sum(each[: self.lost_devices]), sum(nodes[: self.lost_nodes])))
        return tuple(found)


def packs(boxes: Sequence[Box], wanted: Wanted) -> list[Pack]:
    """The sets that no other beats, the cheapest first; the empty one is none.

    Where something may be lost the best replica (or node) sets what is missing then: so those under each such best are found.
    """
    caps = [float("inf")]
    if wanted.lost_devices:
        caps += sorted({pipeline.rates_rps[0] for box in boxes for pipeline in box.pipelines})
    if wanted.lost_nodes:
        alone = (pack for node in _by_node(boxes).values() for pack in _of_node(boxes, node, wanted))
        caps += sorted({pack.rates_rps[0] for pack in alone if pack.chosen})
    found = [pack for cap in caps for pack in _under(cap, boxes, wanted)]
    fits = [pack for pack in dict.fromkeys(found) if pack.chosen and _is_wanted(len(pack.chosen), wanted.replicas)]
    return sorted(fits, key=lambda pack: (pack.cost, [-rate for rate in pack.rates_rps]))


def _under(cap: float, boxes: Sequence[Box], wanted: Wanted) -> list[Pack]:
    """The best sets whose best replica, or node, is no better than a cap."""
    found = [Pack()]
    for node in _by_node(boxes).values():
        parts = _of_node(boxes, node, wanted, cap if wanted.lost_devices else float("inf"))
        if wanted.lost_nodes:
            parts = [part for part in parts if not part.chosen or part.rates_rps[0] <= cap]
        found = _unbeaten((pack + part for pack in found for part in parts), wanted)
    return found


def _by_node(boxes: Sequence[Box]) -> Mapping[str, list[int]]:
    places = dict[str, list[int]]()
    for place, box in enumerate(boxes):
        places.setdefault(box.node, []).append(place)
    return places


def _of_node(boxes: Sequence[Box], places: Sequence[int], wanted: Wanted, cap: float = float("inf")) -> list[Pack]:
    """The best sets of one node, and none where nothing has to be there."""
    found = [Pack()]
    for place in places:
        inside = [Pack()]
        for pipeline in boxes[place].pipelines:
            if pipeline.rates_rps[0] <= cap:
                grown = (
                    again for pack in inside for again in _repeated(pack, place, pipeline, len(boxes[place].devices))
                )
                inside = _unbeaten(grown, wanted)
        found = _unbeaten((pack + part for pack in found for part in inside), wanted)
    return [pack for pack in found if _is_wanted(len(pack.chosen), wanted.per_node)]


def _repeated(pack: Pack, place: int, pipeline: BoxPipeline, devices: int) -> Iterator[Pack]:
    """With as many more of one pipeline as there is room for."""
    more = Pack(((place, pipeline),), pipeline.cost, pipeline.rates_rps)
    while pack.size <= devices:
        yield pack
        pack += more


def _unbeaten(packs: Iterable[Pack], wanted: Wanted) -> list[Pack]:
    """Those that no other with as many replicas (where that counts) matches for less, or as much."""
    is_counted = wanted.replicas or wanted.per_node
    kept = dict[tuple[int, int], list[Pack]]()
    for pack in sorted(packs, key=lambda pack: (pack.cost, pack.size, [-rate for rate in pack.rates_rps])):
        if pack.size > wanted.most_devices:
            continue
        key = (len(pack.chosen) if is_counted else 0, pack.size if wanted.most_devices < float("inf") else 0)
        rivals = kept.setdefault(key, [])
        if not any(rival.chosen and all(map(operator.ge, rival.rates_rps, pack.rates_rps)) for rival in rivals):
            rivals.append(pack)
    return [pack for rivals in kept.values() for pack in rivals]


def _is_wanted(count: int, test: Callable[[int], bool] | None) -> bool:
    return test is None or test(count)
