"""The simulated server of ``selector.performance.simulator`` where it changes on the way; what runs goes on."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.stepwise_server import MicroBatch, ServerRun, SimulatedRequest
from selector.performance.perf import ServerModel
from selector.performance.simulator import RequestArrival


@dataclass(frozen=True, slots=True)
class Change:
    """From a moment on there is another server.

    Where its stages are others, it waits until the requests that run fit the KV of both and the steps in flight have ended,
    and then all stand still for ``stop_s``. Each has to have room for every request of the load, or those would be dropped.
    """

    at_s: float
    server: ServerModel
    stop_s: float = 0.0


def simulate(
    server: ServerModel, arrivals: Sequence[RequestArrival], changes: Sequence[Change]
) -> list[SimulatedRequest | None]:
    """Serve the arrivals, which come in order of time, as do the changes; None where a request cannot ever fit."""
    run = _Changing(server, arrivals, changes)
    while run.advance():
        pass
    return run.served


class _Changing(ServerRun):
    def __init__(self, server: ServerModel, arrivals: Sequence[RequestArrival], changes: Sequence[Change]) -> None:
        super().__init__(server, arrivals)
        self.changes = deque(changes)

    @property
    def comes_s(self) -> float:
        return min(self.next_arrival_s, self.changes[0].at_s if self.changes else math.inf)

    def advance(self) -> bool:
        busy = (group for group in self.groups if group.size)
        group = min(busy, key=lambda one: one.ready_s, default=None)
        return self._changes(min(self.next_step_s(group), self.next_arrival_s)) or super().advance()

    def _changes(self, now: float) -> bool:
        """Make the next change if its time has come before what comes next, and what runs has room."""
        if not self.changes or self.changes[0].at_s > now:
            return False
        change = self.changes[0]
        is_other = change.server.stages != self.server.stages
        if is_other and self.reserved > min(self.server.kv_tokens, change.server.kv_tokens):
            return False
        self.changes.popleft()
        self.server = change.server
        if is_other:
            start_s = max([change.at_s, *self.free]) + change.stop_s
            self.groups = self._dealt(start_s)
            self.free = [start_s] * len(change.server.stages)
        return True

    def _dealt(self, start_s: float) -> list[MicroBatch]:
        """What runs, dealt anew to as many micro-batches as the server has stages."""
        groups = [MicroBatch(start_s) for _ in self.server.stages]
        for old in self.groups:
            for end, number in old.ending:
                group = min(groups, key=lambda one: one.size)
                one, steps_left = self.arrivals[number], end - old.steps
                group.decoding += 1
                group.context += one.input_tokens + one.output_tokens - steps_left
                heapq.heappush(group.ending, (steps_left, number))
            for part in old.prefilling:
                min(groups, key=lambda one: one.size).prefilling.append(part)
        return groups
