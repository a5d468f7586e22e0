"""The connector beside vLLM's scheduler.

Which blocks a request holds, what to copy next, who is parked. Imports no vllm.

Idle, it only keeps the requests by their names. In a switch it is told from outside, between steps, what to do; it answers
the scheduler's questions accordingly and writes an ``Order`` for the workers into each step.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.sync.pace import Pace
from runtime.vllm_engine.connector import hooks
from runtime.vllm_engine.connector.frontier import (
    UNBOUNDED,
    Copies,
    SourceFrontier,
    TargetFrontier,
    View,
    tail_start,
)
from runtime.vllm_engine.connector.pasts import RequestPast
from runtime.vllm_engine.connector.worker_side import Ack, Order
from runtime.vllm_engine.geometry import KvGeometry
from runtime.vllm_engine.messages import Extent
from runtime.vllm_engine.staging import StagingHandle

COPY_SHARES = {"cuda": 0.08, "cpu": 0.25}
"""Device to the share of its time that a source which serves may copy: steps take longer by that. The first write to staging
memory takes a CPU 1 ms a MB, so that with less it would hardly gain on what it computes."""


@dataclass(slots=True)
class _Parked:
    """A request of the source that waits here for its KV, and for its turn."""

    holds_blocks: bool = False
    """It was admitted while parked: its KV comes between steps."""
    is_released: bool = False
    is_scheduled: bool = False
    """It was admitted after its release: its KV comes with its first step."""
    computed: int = 0
    """Once released: positions before this one have KV to come, or here."""
    matched: int = 0
    """What the scheduler was told last."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """An order that is under way."""

    store: Copies | None
    load: Copies | None
    at_s: float


class SchedulerSide:
    """One engine's books of requests and of the KV that is on its way from or to it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """``now``: seconds of a clock that does not jump."""
        self.geometry: KvGeometry | str = "no KV cache"
        """Of the whole engine, told by the workers; a string says why its pages cannot travel."""
        self.requests: dict[str, Any] = {}
        """The router's id to vLLM's request."""
        self.parked: dict[str, _Parked] = {}
        self.generators: dict[str, bytes] = {}
        """States of the generators of requests that no worker here has seen yet."""
        self.copied_bytes = 0
        """Stored and loaded since ``attach``."""
        self._with_past: dict[str, str] = {}
        """vLLM's id to the router's, of requests with output that no worker here has seen yet."""
        self._manager: Any = None
        self._staging: StagingHandle | None = None
        self._source: SourceFrontier | None = None
        self._target: TargetFrontier | None = None
        self._budget = 1
        """Blocks that a step takes from staging memory at most."""
        self._now = now
        self._pace: Pace | None = None
        """Of what a source copies between steps; None in the cut."""
        self._free_from_s = 0.0
        """Before it nothing is copied in a step that computes something."""
        self._sent: dict[int, _Sent] = {}
        self._number = 0
        self._admission_is_due = False

    def bind(self, manager: Any) -> None:
        """Learn of the engine's KV cache manager."""
        self._manager = manager

    # --- told from outside ---

    def attach_source(self, staging: StagingHandle, least_blocks: int) -> None:
        """Begin to bring KV to staging memory: ``least_blocks`` a step, or more if that takes little time."""
        self._attach(staging, 1)
        self._pace = Pace(COPY_SHARES[staging.geometry.device], least_blocks)
        self._source = SourceFrontier(staging.num_slots, staging.geometry.block_size)

    def attach_target(self, staging: StagingHandle, step_blocks: int) -> None:
        """Begin to take KV from staging memory, at most ``step_blocks`` blocks a step."""
        self._attach(staging, step_blocks)
        self._target = TargetFrontier(staging.geometry.block_size)

    def detach(self) -> None:
        """End the switch on this side; parked requests must be released or gone."""
        self._staging = self._source = self._target = None
        self._sent.clear()
        self.parked.clear()

    def aim(self, names: tuple[str, ...]) -> None:
        """Source: copy what these requests lack before their last block, which the cut copies again anyway."""
        self._aim(names, tail_start)

    def aim_at_all(self, names: tuple[str, ...]) -> None:
        """Source, in the cut: copy at once all that these requests have computed by now."""
        self._pace = None
        self._aim(names, lambda computed, _: computed)

    def extents(self) -> dict[str, Extent]:
        """Source: every request and how far it has come."""
        source = self._source
        return {
            name: Extent(
                request.num_tokens,
                request.num_computed_tokens,
                source.staged(name) if source else 0,
                source.slots(name) if source else (),
            )
            for name, request in self.requests.items()
        }

    def park(self, name: str) -> None:
        """Target: the request that is about to be added waits until ``release``."""
        self.parked[name] = _Parked()

    def extend(self, name: str, tokens: tuple[int, ...]) -> None:
        """A request that no worker here has seen yet said this elsewhere."""
        request = self.requests[name]
        request.append_output_token_ids(list(tokens))
        request.take_prefill_stats()  # its prompt was computed, and counted, elsewhere
        hooks.catch_up(request)
        self._with_past[request.request_id] = name

    def offer(self, name: str, extent: Extent) -> None:
        """Target: this much of a parked request's KV is in staging memory; it gets the blocks for it."""
        assert self._target is not None, "attach_target comes first"
        parked = self.parked[name]
        self._target.offer(name, extent.staged, extent.slots)
        if parked.holds_blocks:
            self._reserve(name, extent.staged)
        else:
            self._admission_is_due |= extent.staged > 0

    def loaded(self) -> dict[str, int]:
        """Target: positions of each parked request that are here."""
        return {name: self._target.loaded(name) if self._target else 0 for name in self.parked}

    def has_nothing_for(self, name: str, extent: Extent) -> bool:
        """Target: the request holds blocks for KV that never came and that its source has lost."""
        return self.parked[name].holds_blocks and max(extent.num_computed, self.loaded()[name]) == 0

    def release(self, name: str, extent: Extent, step_blocks: int) -> None:
        """Target: a parked request goes on with its KV as it stands on the source."""
        parked = self.parked[name]
        assert self._target is not None, "attach_target comes first"
        self._budget = step_blocks
        parked.is_released = True
        parked.computed = extent.num_computed
        if extent.staged == extent.num_computed:
            self._target.offer(name, extent.staged, extent.slots)
        if parked.holds_blocks:
            # a source that was preempted since has less than came over before
            self._reserve(name, max(extent.num_computed, self._target.loaded(name)))

    @property
    def free_slots(self) -> int:
        """Source: room that is left in staging memory."""
        return self._source.free_slots if self._source else 0

    @property
    def wants_step(self) -> bool:
        """There is work for a step, though no request may want one."""
        return bool(
            self._admission_is_due
            or (self._source and self._source.is_behind)
            or (self._target and self._target.is_behind)
        )

    @property
    def is_busy(self) -> bool:
        """Orders are outstanding, or one is wanted."""
        return bool(self._sent) or self.wants_step

    @property
    def num_idle(self) -> int:
        """Parked requests, which want no step by themselves."""
        return sum(not parked.is_released for parked in self.parked.values())

    # --- asked by the scheduler ---

    def new_request(self, name: str, request: Any) -> None:
        """A request was added."""
        self.requests[name] = request

    def request_finished(self, name: str) -> None:
        """A request ended."""
        if request := self.requests.pop(name, None):
            self._with_past.pop(request.request_id, None)
        self.generators.pop(name, None)
        self.parked.pop(name, None)
        for frontier in (self._source, self._target):
            if frontier is not None:
                frontier.drop(name)

    def matched_tokens(self, name: str, present: int) -> tuple[int | None, bool]:
        """How many tokens past ``present`` come from outside, and whether between steps.

        None: ask again later.
        """
        parked = self.parked.get(name)
        if parked is None:
            return 0, False
        if parked.is_released:
            parked.matched = max(parked.computed, present)
            return parked.matched - present, False
        staged = self._target.staged(name) if self._target else 0
        # the source may have said more since than this request knows; the rest comes with its release
        parked.matched = min(staged, self.requests[name].num_tokens - 1)
        return (parked.matched - present, True) if parked.matched > present else (None, False)

    def allocated(self, name: str, blocks: tuple[int, ...], num_external: int) -> None:
        """The scheduler gave a request blocks for ``num_external`` tokens from outside."""
        parked = self.parked.get(name)
        if parked is None or not num_external or self._target is None:
            return
        parked.is_scheduled = parked.is_released
        parked.holds_blocks = not parked.is_released
        self._target.admit(name, blocks, parked.matched - num_external)

    def order(self, scheduled: Mapping[str, int]) -> Order | None:
        """What the workers do around the step that computes ``scheduled`` tokens per request (vLLM's ids)."""
        self._admission_is_due = False
        if self._staging is None:
            return None
        store = self._store(scheduled)
        load = self._target.plan(self._budget) if self._target else None
        arrived = self._arrivals()
        if store is None and load is None and not arrived:
            return None
        self._number += 1
        self._sent[self._number] = _Sent(store, load, self._now())
        stored, loaded = (copies.pairs if copies else () for copies in (store, load))
        return Order(self._number, self._staging, stored, loaded, arrived)

    def pasts(self, new_ids: Iterable[str]) -> tuple[RequestPast, ...]:
        """The pasts of these requests, to send with the step that shows them to the workers.

        Ids are vLLM's.
        """
        if not self._with_past:
            return ()
        names = {new: self._with_past.pop(new) for new in new_ids if new in self._with_past}
        return tuple(
            RequestPast(new, tuple(self.requests[name].output_token_ids), self.generators.pop(name, b""))
            for new, name in names.items()
        )

    def acknowledged(self, ack: Ack) -> None:
        """The workers carried out an order."""
        sent = self._sent.pop(ack.number, _Sent(None, None, 0.0))
        self.copied_bytes += ack.stored_bytes + ack.loaded_bytes
        if sent.store and self._source:
            self._source.done(sent.store)
            self._keep_pace(len(sent.store.pairs), ack.storing_s, sent.at_s)
        if sent.load and self._target:
            self._target.done(sent.load)

    # --- inside ---

    def _store(self, scheduled: Mapping[str, int]) -> Copies | None:
        """What the source copies next, if it may: nobody waits for a step that computes nothing."""
        if self._source is None or (self._pace and scheduled and self._now() < self._free_from_s):
            return None
        return self._source.plan(self._views(scheduled), self._pace.slots if self._pace else UNBOUNDED)

    def _keep_pace(self, blocks: int, storing_s: float, ordered_s: float) -> None:
        if self._pace is not None:
            now_s = self._now()
            self._free_from_s = now_s + self._pace.copied(blocks, storing_s, now_s - ordered_s)

    def _attach(self, staging: StagingHandle, step_blocks: int) -> None:
        self.detach()
        self._staging = staging
        self._budget = step_blocks
        self.copied_bytes = 0
        self._free_from_s = 0.0

    def _aim(self, names: tuple[str, ...], enough: Callable[[int, int], int]) -> None:
        """Drop other requests, and copy for those that lack positions in staging memory.

        Those for whom ``enough(computed, block size)`` positions are not there.
        """
        if self._source is None or self._staging is None:
            return
        goals = {}
        for name in names:
            if request := self.requests.get(name):
                computed = request.num_computed_tokens
                staged = self._source.staged(name)
                is_there = staged >= enough(computed, self._staging.geometry.block_size)
                goals[name] = staged if is_there else computed
        self._source.aim(goals)

    def _reserve(self, name: str, computed: int) -> None:
        """Give a parked request that holds blocks those for ``computed`` positions."""
        assert self._target is not None, "attach_target comes first"
        request = self.requests[name]
        hooks.reserve(self._manager, request, min(computed, request.num_tokens - 1))
        self._target.admit(name, self._blocks(request), 0)

    def _arrivals(self) -> tuple[str, ...]:
        """Released requests that hold blocks, all of whose KV is here with this order; each is told of once."""
        released = {name: parked for name, parked in self.parked.items() if parked.is_released}
        for name, parked in released.items():
            if parked.holds_blocks or parked.is_scheduled or not parked.computed:
                del self.parked[name]
        return tuple(self.requests[name].request_id for name, parked in released.items() if parked.holds_blocks)

    def _views(self, scheduled: Mapping[str, int]) -> dict[str, View]:
        return {
            name: View(self._blocks(request), request.num_computed_tokens + scheduled.get(request.request_id, 0))
            for name, request in self.requests.items()
            if request.num_computed_tokens or request.request_id in scheduled
        }

    def _blocks(self, request: Any) -> tuple[int, ...]:
        return tuple(self._manager.get_block_ids(request.request_id)[0])
