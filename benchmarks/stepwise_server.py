"""The server of ``selector.performance.simulator``, a step at a time in plain Python.

The compiled one is held to it (``tests/selector/performance``), and ``changing_server`` changes it on the way.

Event-driven: the clock jumps from the end of one step to the next. Requests are admitted in order of arrival when a sequence slot
and KV for their whole length are free (so none is ever evicted); each step carries one token of every running sequence and as
much prefill as the chunk leaves room for. With several pipeline stages as many micro-batches are in flight, and a stage is one
server that they pass in order. What a step takes is ``StageCost``'s.
"""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from selector.performance.perf import ServerModel, Step
from selector.performance.simulator import RequestArrival

_LEAP = 3
"""From so many steps on it is quicker to take them together than one by one."""


@dataclass(frozen=True, slots=True)
class SimulatedRequest:
    """What became of one request, in seconds."""

    ttft_s: float
    tpot_s: float
    e2e_s: float


@dataclass(slots=True)
class MicroBatch:
    """One micro-batch: the sequences that step together."""

    ready_s: float = 0.0
    steps: int = 0
    decoding: int = 0
    context: float = 0.0
    """KV tokens of the decoding sequences."""
    prefilling: deque[list[float]] = field(default_factory=deque)
    """Request number, tokens left and tokens done of each."""
    ending: list[tuple[int, int]] = field(default_factory=list)
    """Heap of the step after which a sequence has all its tokens, and its number."""

    @property
    def size(self) -> int:
        """Its sequences."""
        return self.decoding + len(self.prefilling)


def simulate(
    server: ServerModel,
    arrivals: Sequence[RequestArrival],
    most_steps: float = math.inf,
    *,
    clients: int = 0,
    cached: Sequence[int] = (),
) -> list[SimulatedRequest | None]:
    """Serve the arrivals, which come in order of time; None where a request cannot ever fit.

    The results are in the order of the arrivals. Time grows with the number of steps, those apart between which nothing
    comes or ends; after ``most_steps`` (a batch in a stage counts one) what is not served yet stays None. ``clients`` is as of
    the compiled one, and ``cached`` are the tokens of each prompt whose KV is there already.
    """
    run = ServerRun(server, arrivals, clients, cached)
    while run.computed < most_steps and run.advance():
        pass
    return run.served


class ServerRun:
    """A server on the way through its arrivals."""

    def __init__(
        self,
        server: ServerModel,
        arrivals: Sequence[RequestArrival],
        clients: int = 0,
        cached: Sequence[int] = (),
    ) -> None:
        self.server = server
        self.clients = clients
        self.cached = cached or [0] * len(arrivals)
        self.arrivals = list(arrivals)
        if clients:
            self.arrivals = [
                replace(arrival, at_s=0.0 if number < clients else math.inf) for number, arrival in enumerate(arrivals)
            ]
        self.sent = clients
        self.served: list[SimulatedRequest | None] = [None] * len(arrivals)
        self.groups = [MicroBatch() for _ in server.stages]
        self.free = [0.0] * len(server.stages)
        self.first = [0.0] * len(arrivals)
        self.waiting: deque[int] = deque()
        self.next = 0
        self.running = 0
        self.reserved = 0
        self.computed = 0
        """Steps of a stage whose time was computed."""

    def advance(self) -> bool:
        """Do what comes first, an arrival that an idle group can take or the step of a group.

        False when nothing is left.
        """
        busy = [group for group in self.groups if group.size]
        group = min(busy, key=lambda candidate: candidate.ready_s, default=None)
        arrival_s = self.next_arrival_s
        if group is not None and (len(busy) == len(self.groups) or group.ready_s <= arrival_s):
            self._admit(group.ready_s)
            if sum(group.size > 0 for group in self.groups) == 1:
                self._leap(group)
            self._run(group)
            return True
        if self.waiting and group is None:  # what kept them out has just ended
            self._admit(self.next_step_s(group))
            return True
        self._admit(arrival_s)
        return group is not None or arrival_s < math.inf

    @property
    def next_arrival_s(self) -> float:
        """When the next request comes."""
        return self.arrivals[self.next].at_s if self.next < len(self.arrivals) else math.inf

    @property
    def comes_s(self) -> float:
        """Until when nothing comes."""
        return self.next_arrival_s

    def next_step_s(self, group: MicroBatch | None) -> float:
        """When the next step ends for which something waits, given the group that is first."""
        if group is not None:
            return group.ready_s
        return max(group.ready_s for group in self.groups) if self.waiting else math.inf

    def _admit(self, now: float) -> None:
        while self.next < len(self.arrivals) and self.arrivals[self.next].at_s <= now:
            self.waiting.append(self.next)
            self.next += 1
        while self.waiting:
            arrival = self.arrivals[self.waiting[0]]
            length = arrival.input_tokens + arrival.output_tokens
            if length > self.server.kv_tokens:
                self.waiting.popleft()  # never
                self._send_next(now)
                continue
            if self.running >= self.server.slots or self.reserved + length > self.server.kv_tokens:
                return
            number = self.waiting.popleft()
            group = min(self.groups, key=lambda group: group.size)
            if not group.size:
                group.ready_s = max(group.ready_s, now)
            done = self.cached[number]
            group.prefilling.append([number, arrival.input_tokens - done, done])
            self.running += 1
            self.reserved += length

    def _leap(self, group: MicroBatch) -> None:
        """Run steps of the only busy group until an answer ends or before something comes.

        Nothing but the context changes, and nearly evenly: the time is taken by Simpson's rule.
        """
        if group.prefilling:
            return
        count = group.ending[0][0] - group.steps - 1
        if count < _LEAP:
            return
        if self.comes_s < math.inf:
            longest_s = self._seconds(group, count - 1)
            count = min(count, int((self.comes_s - group.ready_s) / longest_s) - 1)
        if count < _LEAP:
            return
        first_s, middle_s, last_s = (self._seconds(group, after) for after in (0, (count - 1) / 2, count - 1))
        group.ready_s += count * (first_s + 4 * middle_s + last_s) / 6
        group.steps += count
        group.context += count * group.decoding
        self.free = [group.ready_s] * len(self.free)

    def _seconds(self, group: MicroBatch, after: float) -> float:
        """A step of decodes alone, after so many others: all stages in turn."""
        context = group.context + after * group.decoding
        step = Step(group.decoding, context, context, group.decoding)
        self.computed += len(self.server.stages)
        return sum(stage.seconds(step) for stage in self.server.stages) / self.server.share

    def _run(self, group: MicroBatch) -> None:
        self.computed += len(self.server.stages)
        step, completed = self._compose(group)
        end = group.ready_s
        for place, stage in enumerate(self.server.stages):
            end = max(end, self.free[place]) + stage.seconds(step) / self.server.share
            self.free[place] = end
        group.ready_s = end
        group.steps += 1
        group.context += group.decoding
        while group.ending and group.ending[0][0] <= group.steps:
            self._finish(group, heapq.heappop(group.ending)[1], end)
        for number in completed:
            self.first[number] = end
            arrival = self.arrivals[number]
            if arrival.output_tokens <= 1:
                self._release(arrival, end)
                self.served[number] = SimulatedRequest(end - arrival.at_s, 0.0, end - arrival.at_s)
                continue
            group.decoding += 1
            group.context += arrival.input_tokens + 1
            heapq.heappush(group.ending, (group.steps + arrival.output_tokens - 1, number))

    def _compose(self, group: MicroBatch) -> tuple[Step, list[int]]:
        """The step of a group, and the requests whose prefill it completes."""
        tokens = group.decoding
        attended = group.context
        kv = group.context
        completed: list[int] = []
        room = max(1, self.server.chunk_tokens - group.decoding)
        while group.prefilling and room > 0:
            head = group.prefilling[0]
            part = int(min(room, head[1]))
            attended += part * (head[2] + (part + 1) / 2)
            kv += head[2] + part
            tokens += part
            room -= part
            head[1] -= part
            head[2] += part
            if head[1] <= 0:
                completed.append(int(group.prefilling.popleft()[0]))
        return Step(tokens, attended, kv, group.decoding + len(completed)), completed

    def _finish(self, group: MicroBatch, number: int, end: float) -> None:
        arrival = self.arrivals[number]
        first = self.first[number]
        group.decoding -= 1
        group.context -= arrival.input_tokens + arrival.output_tokens
        self._release(arrival, end)
        self.served[number] = SimulatedRequest(
            ttft_s=first - arrival.at_s,
            tpot_s=(end - first) / (arrival.output_tokens - 1),
            e2e_s=end - arrival.at_s,
        )

    def _release(self, arrival: RequestArrival, now: float) -> None:
        self.running -= 1
        self.reserved -= arrival.input_tokens + arrival.output_tokens
        self._send_next(now)

    def _send_next(self, now: float) -> None:
        """A client is free."""
        if self.clients and self.sent < len(self.arrivals):
            self.arrivals[self.sent] = replace(self.arrivals[self.sent], at_s=now)
            self.sent += 1
