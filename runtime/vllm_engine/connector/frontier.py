"""How far the KV of each request has come.

From the source to staging memory, and from there to the target. Pure.

KV is append-only, so one number per request, its frontier, says what is copied: every position before it. A block that
a step writes again holds positions past the frontier, so it is copied again; blocks are always copied whole, for inside
one an attention kernel packs as it likes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runtime.engine import GenerationRequest
from runtime.vllm_engine.models import Stay, SwitchPath

UNBOUNDED = 1 << 30
"""Blocks of an order of which nobody waits for the step: all at once."""


@dataclass(frozen=True, slots=True)
class View:
    """A request as the scheduler sees it."""

    blocks: tuple[int, ...]
    """Block ids in logical order."""
    num_computed: int
    """Positions before this one have KV."""


@dataclass(frozen=True, slots=True)
class Copies:
    """One order to copy whole blocks."""

    pairs: tuple[tuple[int, int], ...]
    """(engine block, staging slot)."""
    frontiers: Mapping[str, int]
    """What the requests' frontiers are once it is done."""


def covering(start: int, end: int, block_size: int) -> range:
    """Logical blocks that hold a position of ``start`` to ``end`` (half-open)."""
    return range(start // block_size, -(-end // block_size) if end > start else start // block_size)


def tail_start(num_computed: int, block_size: int) -> int:
    """How many positions must have come over before the cut.

    So many that it finds no more than the last block of a request to copy.

    One position of the last block is among them: its memory was touched then, on both sides.
    """
    return (num_computed - 1) // block_size * block_size + 1 if num_computed else 0


@dataclass(slots=True)
class _Extent:
    """One request's place in staging memory."""

    slots: list[int] = field(default_factory=list)
    blocks: tuple[int, ...] = ()
    """What was copied last, to notice that a preemption took the blocks away."""
    planned: int = 0
    staged: int = 0


class SourceFrontier:
    """What of the running requests' KV is in staging memory. Slots are its own to give."""

    def __init__(self, num_slots: int, block_size: int) -> None:
        self._block_size = block_size
        self._free = list(range(num_slots - 1, -1, -1))
        self._extents: dict[str, _Extent] = {}
        self._goals: dict[str, int] = {}

    @property
    def free_slots(self) -> int:
        """Slots nobody holds."""
        return len(self._free)

    def staged(self, request_id: str) -> int:
        """Positions before this one are in staging memory."""
        return self._extents.get(request_id, _Extent()).staged

    def slots(self, request_id: str) -> tuple[int, ...]:
        """Slots of a request, in logical order."""
        return tuple(self._extents.get(request_id, _Extent()).slots)

    def aim(self, goals: Mapping[str, int]) -> None:
        """Copy up to these positions; whoever is not named is let go."""
        for request_id in self._extents.keys() - goals.keys():
            self.drop(request_id)
        self._goals = dict(goals)

    def drop(self, request_id: str) -> None:
        """Forget a request and take its slots back."""
        self._goals.pop(request_id, None)
        if extent := self._extents.pop(request_id, None):
            self._free.extend(reversed(extent.slots))

    @property
    def is_behind(self) -> bool:
        """Some request has a goal that no order reaches yet, and room to reach it."""
        return any(self._can_go_on(request_id, goal) for request_id, goal in self._goals.items())

    def plan(self, views: Mapping[str, View], max_blocks: int) -> Copies | None:
        """The next order, at most ``max_blocks`` blocks; None when nothing can be copied.

        ``views`` are what will be true when the order is carried out.
        """
        pairs: list[tuple[int, int]] = []
        frontiers: dict[str, int] = {}
        for request_id, goal in list(self._goals.items()):
            view = views.get(request_id)
            # what a preempted request lost is copied when it is computed again, at the next aim
            self._goals[request_id] = min(goal, view.num_computed if view else 0)
            if view is None:
                continue
            extent = self._extents.setdefault(request_id, _Extent())
            self._notice_preemption(extent, view)
            if extent.planned >= min(goal, view.num_computed):
                continue
            for block in covering(extent.planned, view.num_computed, self._block_size):
                if len(pairs) >= max_blocks or not self._reserve(extent, block):
                    break
                pairs.append((view.blocks[block], extent.slots[block]))
                extent.planned = min(view.num_computed, (block + 1) * self._block_size)
                frontiers[request_id] = extent.planned
            extent.blocks = view.blocks
        return Copies(tuple(pairs), frontiers) if pairs else None

    def done(self, copies: Copies) -> None:
        """An order was carried out."""
        for request_id, frontier in copies.frontiers.items():
            if extent := self._extents.get(request_id):
                extent.staged = max(extent.staged, min(frontier, extent.planned))

    def _can_go_on(self, request_id: str, goal: int) -> bool:
        extent = self._extents.get(request_id, _Extent())
        if extent.planned >= goal:
            return False
        return bool(self._free) or extent.planned // self._block_size < len(extent.slots)

    def _reserve(self, extent: _Extent, block: int) -> bool:
        while len(extent.slots) <= block and self._free:
            extent.slots.append(self._free.pop())
        return len(extent.slots) > block

    def _notice_preemption(self, extent: _Extent, view: View) -> None:
        """A request that was preempted has other blocks, or none: what it wrote since must be copied anew."""
        copied = -(-extent.planned // self._block_size)
        if extent.planned > view.num_computed or extent.blocks[:copied] != view.blocks[:copied]:
            extent.planned = extent.staged = 0


@dataclass(slots=True)
class _Inflow:
    slots: tuple[int, ...] = ()
    staged: int = 0
    blocks: tuple[int, ...] = ()
    planned: int = 0
    loaded: int = 0


class TargetFrontier:
    """What of the parked requests' KV has come from staging memory into this engine's blocks."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._inflows: dict[str, _Inflow] = {}

    def offer(self, request_id: str, staged: int, slots: Iterable[int]) -> None:
        """Positions before ``staged`` are in these slots."""
        inflow = self._inflows.setdefault(request_id, _Inflow())
        inflow.staged = staged
        inflow.slots = tuple(slots)

    def admit(self, request_id: str, blocks: Iterable[int], present: int) -> None:
        """The request has these blocks.

        Positions before ``present`` need no copy (a prefix that is cached here).
        """
        inflow = self._inflows[request_id]
        inflow.blocks = tuple(blocks)
        inflow.planned = max(inflow.planned, present)
        inflow.loaded = max(inflow.loaded, present)

    def loaded(self, request_id: str) -> int:
        """Positions before this one are here."""
        return self._inflows.get(request_id, _Inflow()).loaded

    def staged(self, request_id: str) -> int:
        """Positions before this one could be here."""
        return self._inflows.get(request_id, _Inflow()).staged

    def drop(self, request_id: str) -> None:
        """Forget a request."""
        self._inflows.pop(request_id, None)

    @property
    def is_behind(self) -> bool:
        """Something can be loaded that no order loads yet."""
        return any(self._reachable(inflow) > inflow.planned for inflow in self._inflows.values())

    def plan(self, max_blocks: int) -> Copies | None:
        """The next order, at most ``max_blocks`` blocks; None when nothing can be loaded."""
        pairs: list[tuple[int, int]] = []
        frontiers: dict[str, int] = {}
        for request_id, inflow in self._inflows.items():
            end = self._reachable(inflow)
            for block in covering(inflow.planned, end, self._block_size):
                if len(pairs) >= max_blocks:
                    break
                pairs.append((inflow.blocks[block], inflow.slots[block]))
                inflow.planned = min(end, (block + 1) * self._block_size)
                frontiers[request_id] = inflow.planned
        return Copies(tuple(pairs), frontiers) if pairs else None

    def done(self, copies: Copies) -> None:
        """An order was carried out."""
        for request_id, frontier in copies.frontiers.items():
            if inflow := self._inflows.get(request_id):
                inflow.loaded = max(inflow.loaded, frontier)

    def _reachable(self, inflow: _Inflow) -> int:
        return min(inflow.staged, len(inflow.blocks) * self._block_size)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the choice depends on, the same for all requests of a switch."""

    wanted: str
    """``auto``, or the path the deployment insists on."""
    difference: str
    """Why KV of the source means nothing to the target; empty when it does."""
    kv_bytes_per_token: int
    link_bytes_s: float
    prefill_tokens_s: float
    """Of the target, measured by its probe."""
    seeds_travel: bool
    """The target draws the noise that the source would."""
    drain_tokens: int
    """A request with so many left to its end stays."""


def path_of(request: GenerationRequest, num_emitted: int, terms: Terms) -> SwitchPath | Stay:
    """The path of one request, or why it stays."""
    if request.sampling.is_seeded and not terms.seeds_travel:
        return Stay.SEED
    if request.sampling.max_tokens - num_emitted <= terms.drain_tokens:
        return Stay.NEARLY_DONE
    if terms.difference or terms.wanted == "follow":
        return "follow"
    if terms.wanted == "patch":
        return "patch"
    tokens = len(request.prompt) + num_emitted
    # both are done in the background and once; what is slower there is not chosen
    copy_s = tokens * terms.kv_bytes_per_token / terms.link_bytes_s
    compute_s = tokens / terms.prefill_tokens_s
    return "patch" if copy_s <= compute_s else "follow"


def counted(taken: Iterable[SwitchPath | Stay]) -> dict[str, int]:
    """Path, or why requests stayed, to their number."""
    return dict(sorted(Counter(map(str, taken)).items()))
