"""A copy of KV that is made while requests run: what it lacks, how fast it goes, whether it gains."""

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator

from runtime.engine import Lag
from runtime.errors import SwitchError
from runtime.footprint import Transfer, transfer
from runtime.models import Topology
from runtime.sync.pace import Pace, Passes
from runtime.sync.patch import PatchSync
from runtime.torch_engine.driver.host import Host
from runtime.torch_engine.worker.attention import GAP

_CLOSING_SLICES = 4
"""With no more than so many slices left the cut is near; while they are copied the longest step in flight ends."""


class Syncing:
    """The copy of what the active topology holds, for a target."""

    def __init__(self, host: Host, target: Topology) -> None:
        self._host = host
        self._parts = host.parts
        self._source = host.active
        self._sync = PatchSync(self._parts.pool, self._parts.settings.block_size)
        self._boxes: dict[int, list[Transfer]] = {}
        for box in transfer(self._source.topology, target, self._parts.model):
            self._boxes.setdefault(box.target, []).append(box)
        self._copied_bytes = 0
        self._pace = Pace(self.copy_share, self._parts.settings.copy_slice_bytes // self._slot_bytes(max))
        self._passes = Passes()
        self._held_s = 0.0
        self._held_since_s: float | None = None
        self.is_closing = False
        """The cut is near: no step may take long, or it would delay the cut."""
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lost.add_done_callback(lambda future: future.exception())

    @property
    def copy_share(self) -> float:
        """Share of the copiers' time that copying may take."""
        settings = self._parts.settings
        serves = self._boxes.keys() & set(self._source.topology.devices)
        return settings.copy_share if serves else settings.beside_copy_share

    def _measured(self, slots: int) -> Lag:
        """What is left after so many slots were copied; the nearer and the slower, the less else is begun."""
        left = self._sync.lag(self._upcoming())
        self.is_closing = left <= _CLOSING_SLICES * self._pace.slots
        self._passes.measured(slots, left)
        self._hold_back(not self._passes.is_gaining and self._held_s < self._parts.settings.hold_back_s)
        return Lag(left, left * self._slot_bytes(sum), self._copied_bytes, held_s=self._held_s)

    def _hold_back(self, is_held: bool) -> None:
        """Start no new sequence while what runs is written faster than it is copied, and count for how long."""
        now_s = time.monotonic()
        self._held_s += now_s - self._held_since_s if self._held_since_s is not None else 0.0
        self._held_since_s = now_s if is_held else None
        (self._host.hold if is_held else self._host.admit)()

    def _call_off(self, error: SwitchError) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)

    def _check(self) -> None:
        if self._lost.done() and (error := self._lost.exception()):
            raise error

    def _upcoming(self, each: int = 1) -> list[int]:
        """Blocks that steps take next, ``each`` by each sequence, and those over which they read.

        They shall be warm.
        """
        pool = self._parts.pool
        return [*pool.next_free(each * self._host.num_running), *pool.between(GAP)]

    def _slot_bytes(self, over: Callable[[Iterable[int]], int]) -> int:
        """Bytes to copy of one token, ``over`` all target devices; 1 where nothing is to be copied."""
        pieces = [sum(len(box.pieces) for box in boxes) for boxes in self._boxes.values()]
        return over(pieces or [1]) * self._parts.shape.piece_slot_bytes


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector: a full collection takes as long as the cut itself."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
