"""From one set of replicas to another, by sets that differ in one replica. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from runtime.capabilities import Batching
from runtime.models import Topology


@dataclass(frozen=True, slots=True)
class Change:
    """One replica switches (both sides are there), starts (nothing before) or stops (nothing after)."""

    before: Topology | None
    after: Topology | None
    leads_to: Topology
    """The whole set behind it."""
    batching: Batching | None = None
    """Of the replica behind it; None: as it is."""
    filled: Batching | None = None
    """Of the whole set behind it; None: as it is."""

    @property
    def verb(self) -> str:
        """What the replica does."""
        return "starts" if self.before is None else "stops" if self.after is None else "switches"

    def __str__(self) -> str:
        shape = (self.after or self.before or self.leads_to).text
        return f"{self.before} becomes {self.after}" if self.before and self.after else f"{shape} {self.verb}"


@dataclass(slots=True)
class _Way:
    """The changes so far, and the set that they lead to."""

    present: list[Topology]
    changes: list[Change] = field(default_factory=list)

    def go(self, before: Topology | None, after: Topology | None) -> None:
        self.present = [each for each in self.present if each != before] + ([after] if after else [])
        self.changes.append(Change(before, after, Topology.of_replicas(self.present)))

    def is_free(self, after: Topology, before: Topology | None = None) -> bool:
        """Whether no other replica uses its devices."""
        used = {device for each in self.present if each != before for device in each.devices}
        return used.isdisjoint(after.devices)


CanSwitch = Callable[[Topology, Topology], bool]
"""Whether a replica can become another one while it serves; else that starts, and the old one stops."""


def always(_: Topology, __: Topology) -> bool:
    """Any replica can become any other."""
    return True


def changes(now: Topology, target: Topology, can_switch: CanSwitch = always) -> tuple[Change, ...]:
    """The changes from one set to another, each on devices that no other replica uses by then.

    Replicas that are in both stay. Of the rest those switch into each other that can and share the most devices; what is over
    starts or stops. A replica stops early only where nothing else can be done, so that as many serve meanwhile as may.
    """
    pairs = _paired(now, target, can_switch)
    way = _Way(list(now.replicas))
    left: list[tuple[Topology | None, Topology | None]] = [pair for pair in pairs if pair[0] != pair[1]]
    while left:
        free = [pair for pair in left if pair[1] is not None and way.is_free(pair[1], pair[0])]
        stops = [pair for pair in left if pair[1] is None]
        if found := (free or stops)[:1]:
            left.remove(found[0])
            way.go(*found[0])
            continue
        before, after = max(left, key=lambda pair: _freed(pair, left, way))  # each waits for another's devices
        left.remove((before, after))
        way.go(before, None)
        left.append((None, after))
    return tuple(way.changes)


def _freed(
    pair: tuple[Topology | None, Topology | None], left: list[tuple[Topology | None, Topology | None]], way: _Way
) -> tuple[bool, int]:
    """Whether a replica serves, and how many others can change once it has stopped."""
    others = _Way([each for each in way.present if each != pair[0]])
    return pair[0] is not None, sum(after is not None and others.is_free(after, before) for before, after in left)


def _paired(now: Topology, target: Topology, can_switch: CanSwitch) -> list[tuple[Topology | None, Topology | None]]:
    """Each replica of both sides once, with what it becomes or was."""
    old = list(now.replicas)
    new = list(target.replicas)
    pairs: list[tuple[Topology | None, Topology | None]] = []
    while shared := {(a, b): (a == b, _shared(a, b)) for a in old for b in new if a == b or can_switch(a, b)}:
        before, after = max(shared, key=lambda pair: shared[pair])
        pairs.append((before, after))
        old.remove(before)
        new.remove(after)
    starts: list[tuple[Topology | None, Topology | None]] = [(None, each) for each in new]
    return [*pairs, *starts, *((each, None) for each in old)]


def _shared(a: Topology, b: Topology) -> int:
    return len({*a.devices} & {*b.devices})


def transition(
    now: Topology,
    target: Topology,
    filled: Sequence[Batching | None],
    wanted: Batching | None,
    can_switch: CanSwitch = always,
) -> tuple[Change, ...]:
    """Every change from what runs to a target, how replicas fill their steps included.

    ``filled`` is of each that runs, in their order.
    """
    moves = changes(now, target, can_switch)
    if wanted is None:
        return moves
    batching = {each: wanted.of(place) for place, each in enumerate(target.replicas)}
    fills = dict(zip(now.replicas, filled, strict=True))
    stay = [
        Change(each, each, target, batching[each])
        for each, has in fills.items()
        if each in batching and has != batching[each]
    ]
    found = list[Change]()
    for move in (*moves, *stay):
        if move.after:
            fills[move.after] = batching.get(move.after)
        behind = [fills[each] or wanted for each in move.leads_to.replicas]
        found.append(
            replace(move, batching=fills[move.after] if move.after else None, filled=Batching.of_replicas(behind))
        )
    return tuple(found)
