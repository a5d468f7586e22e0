"""A serving engine in virtual time, compiled: continuous batching, chunked prefill, pipelines. Pure.

Event-driven: the clock jumps from the end of one step to the next. Requests are admitted in order of arrival when a sequence slot
and KV for their whole length are free (so none is ever evicted); each step carries one token of every running sequence and as
much prefill as the chunk leaves room for. With several pipeline stages as many micro-batches are in flight, and a stage is one
server that they pass in order. What a step takes is ``StageCost``'s; a step counts one for each stage it passes.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np

from selector.models import OVERLAP
from selector.performance.perf import ALLREDUCES_PER_LAYER, ServerModel

Values = np.ndarray[Any, np.dtype[np.float64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Whole = np.ndarray[Any, np.dtype[np.int64]]
Function = Callable[..., Any]

log = logging.getLogger(__name__)


compiled: Callable[[Function], Function] = numba.njit(inline="always")  # calls would copy a run each time


def kept(function: Function) -> Function:
    """Compile at the first call, with all that it calls; kept beside this file or in the user's cache.

    It is compiled anew when this file changes, and no other one: whatever it calls has to stand here.
    """
    try:
        found: Function = numba.njit(function, cache=True, nogil=True)
    except RuntimeError as error:  # neither folder can be written
        log.warning("the simulator is compiled anew in each process, in some seconds: %s; set NUMBA_CACHE_DIR", error)
        found = numba.njit(function, nogil=True)
    return found


@dataclass(frozen=True, slots=True)
class RequestArrival:
    """One request of a load."""

    at_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests of a load in order of time, one for each place of the arrays."""

    at_s: Values
    inputs: Whole
    outputs: Whole
    cached: Whole
    """Tokens of the prompt, less than all, whose KV is there already."""

    @classmethod
    def of(cls, requests: Sequence[RequestArrival]) -> "Arrivals":
        """Those of a trace; no prefix is there already."""
        at_s = np.array([request.at_s for request in requests], dtype=float)
        inputs = np.array([request.input_tokens for request in requests], dtype=np.int64)
        outputs = np.array([request.output_tokens for request in requests], dtype=np.int64)
        return cls(at_s, inputs, outputs, np.zeros(len(requests), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True, slots=True)
class Served:
    """What became of requests, in their order; NaN where one can never fit, or was not served in time."""

    at_s: Values
    first_s: Values
    """When its first token came."""
    last_s: Values
    outputs: Whole
    never: Flags
    """It is longer than all the KV."""
    computed: int
    """Steps of a stage."""
    peak: int
    """Sequences that ran at once, at most."""

    @property
    def done(self) -> int:
        """So many from the first on were served, or can never be; those behind may have overtaken slower ones."""
        left = np.flatnonzero(np.isnan(self.last_s) & ~self.never)
        return int(left[0]) if len(left) else len(self.last_s)

    @property
    def ttft_s(self) -> Values:
        """From arrival to first token."""
        return np.asarray(self.first_s - self.at_s)

    @property
    def tpot_s(self) -> Values:
        """Mean time between the tokens of an answer; 0 of one token."""
        return np.asarray((self.last_s - self.first_s) / np.maximum(1, self.outputs - 1))

    @property
    def e2e_s(self) -> Values:
        """From arrival to last token."""
        return np.asarray(self.last_s - self.at_s)


def simulate(server: ServerModel, arrivals: Arrivals, most_steps: float = math.inf, clients: int = 0) -> Served:
    """Serve the arrivals; after ``most_steps`` what is not served yet never is.

    With ``clients`` the times of arrival do not count: each client sends its next request when its last one ends.
    """
    at_s = arrivals.at_s.astype(float)
    if clients:
        at_s = np.where(np.arange(len(at_s)) < clients, 0.0, np.inf)
    limits = np.array([server.slots, server.kv_tokens, server.chunk_tokens, clients], dtype=np.int64)
    requests = np.stack([arrivals.inputs, arrivals.outputs, arrivals.cached])
    first_s, last_s, computed, peak = _serve(*server.figures, limits, at_s, requests, float(most_steps))
    never = arrivals.inputs + arrivals.outputs > server.kv_tokens
    return Served(at_s, first_s, last_s, arrivals.outputs, never, int(computed), int(peak))


@compiled
def step_s(
    own: Values, layers: Values, reduce: Values, tokens: float, attended: float, kv: float, rows: float
) -> float:
    """Seconds of a step on one stage, as ``StageCost.seconds``."""
    size = tokens * own[3]
    total = own[0] + own[1] * rows + own[2] * tokens
    reduce_s = 0.0
    points = int(own[4])
    if points:
        after = 0
        while after < points - 1 and reduce[after, 0] < size:
            after += 1
        if size <= reduce[0, 0]:
            reduce_s = reduce[0, 1]
        else:
            after = max(after, 1)
            slope = (reduce[after, 1] - reduce[after - 1, 1]) / (reduce[after, 0] - reduce[after - 1, 0])
            reduce_s = reduce[after - 1, 1] + (size - reduce[after - 1, 0]) * slope
    for kind in range(layers.shape[0]):
        count, token, attend, fixed, experts, missed, kv_read, elementwise, overhead, packed, unpacked = layers[kind]
        if not count:
            continue
        weights = fixed + experts * (1 - missed**tokens if missed else 1.0)
        if packed != token or unpacked != 1.0:  # by tokens alone, so that steps of as many take one way
            few = (packed * tokens) ** OVERLAP + weights**OVERLAP
            if (token * tokens) ** OVERLAP + (weights * unpacked) ** OVERLAP < few:
                weights *= unpacked
            else:
                token = packed
        compute = token * tokens + attend * attended
        gemm = weights * (1 + (compute / weights) ** OVERLAP) ** (1 / OVERLAP)
        total += count * (gemm + kv_read * kv + elementwise * tokens + overhead + ALLREDUCES_PER_LAYER * reduce_s)
    return total / own[5]  # type: ignore[no-any-return]


NOBODY = -1
"""In place of a request's number."""


class ServerState(NamedTuple):
    """A server on the way through its arrivals; by micro-batch where not said otherwise."""

    ready_s: Values
    """When its next step may begin."""
    steps: Whole
    decoding: Whole
    context: Values
    """KV tokens of the sequences that decode."""
    size: Whole
    """Sequences."""
    front: Whole
    """The request whose prompt is computed first."""
    back: Whole
    """The last one in that queue."""
    ending: Whole
    """By micro-batch and step (modulo the width): the first of the requests that end with it."""
    behind: Whole
    """By request: the next one in the same queue or step."""
    done: Whole
    """By request: tokens of its prompt that are computed."""
    free_s: Values
    """By stage."""
    took_s: Values
    """By stage: its last step."""
    first_s: Values
    last_s: Values
    """By request, as the one before."""
    counts: Whole
    """Next to arrive, next to be admitted, running, KV tokens reserved, steps computed, next of a client, most that ran, and
    tokens of prompts that were computed."""


_COMES = 0
_WAITS = 1
_RUNNING = 2
_RESERVED = 3
_COMPUTED = 4
_CLIENT = 5
_PEAK = 6
_PREFILLED = 7
_LEAP = 3
"""From so many steps on it is quicker to take them together than one by one."""


@kept
def _serve(own, layers, reduce, limits, at_s, requests, most_steps):  # type: ignore[no-untyped-def]
    run = _begun(own.shape[0], at_s.size, requests[1].max() + 1)
    run.done[:] = requests[2]
    run.counts[_CLIENT] = limits[3]
    _advance(run, own, layers, reduce, limits, at_s, requests, np.array([np.inf, most_steps]))
    return run.first_s, run.last_s, run.counts[_COMPUTED], run.counts[_PEAK]


@compiled
def _begun(stages, number, width):  # type: ignore[no-untyped-def]
    """A server that nothing has reached yet, for so many requests of fewer tokens out than a width."""
    return ServerState(
        np.zeros(stages),
        np.zeros(stages, np.int64),
        np.zeros(stages, np.int64),
        np.zeros(stages),
        np.zeros(stages, np.int64),
        np.full(stages, NOBODY),
        np.full(stages, NOBODY),
        np.full((stages, width), NOBODY),
        np.full(number, NOBODY),
        np.zeros(number, np.int64),
        np.zeros(stages),
        np.zeros(stages),
        np.full(number, np.nan),
        np.full(number, np.nan),
        np.zeros(8, np.int64),
    )


@kept
def _advance(run, own, layers, reduce, limits, at_s, requests, ends):  # type: ignore[no-untyped-def]
    """Serve as long as what happens next does so before a time, and up to so many steps (``ends``)."""
    stages = own.shape[0]
    while run.counts[_COMPUTED] < ends[1]:
        group = NOBODY
        busy = 0
        for other in range(stages):
            if run.size[other]:
                busy += 1
                if group == NOBODY or run.ready_s[other] < run.ready_s[group]:
                    group = other
        comes_s = at_s[run.counts[_COMES]] if run.counts[_COMES] < at_s.size else np.inf
        if group != NOBODY and (busy == stages or run.ready_s[group] <= comes_s):
            if run.ready_s[group] >= ends[0]:
                break
            _admit(run, limits, at_s, requests, run.ready_s[group])
            _leap(run, own, layers, reduce, at_s, group)
            _step(run, own, layers, reduce, limits, at_s, requests, group)
        elif group == NOBODY and run.counts[_WAITS] < run.counts[_COMES]:  # what kept them out has just ended
            if run.ready_s.max() >= ends[0]:  # who comes before that is not known yet
                break
            _admit(run, limits, at_s, requests, run.ready_s.max())
        elif comes_s < ends[0]:
            _admit(run, limits, at_s, requests, comes_s)
        else:
            break


@compiled
def _admit(run, limits, at_s, requests, now_s):  # type: ignore[no-untyped-def]
    """Let in who has come, in order, as far as slots and KV go."""
    count = run.counts
    while count[_COMES] < at_s.size and at_s[count[_COMES]] <= now_s:
        count[_COMES] += 1
    while count[_WAITS] < count[_COMES]:
        request = count[_WAITS]
        length = requests[0, request] + requests[1, request]
        if length > limits[1]:  # never
            count[_WAITS] += 1
            _send_next(run, limits, at_s, now_s)
            continue
        if count[_RUNNING] >= limits[0] or count[_RESERVED] + length > limits[1]:
            return
        count[_WAITS] += 1
        group = run.size.argmin()
        if not run.size[group]:
            run.ready_s[group] = max(run.ready_s[group], now_s)
        if run.front[group] == NOBODY:
            run.front[group] = request
        else:
            run.behind[run.back[group]] = request
        run.back[group] = request
        run.behind[request] = NOBODY
        run.size[group] += 1
        count[_RUNNING] += 1
        count[_PEAK] = max(count[_PEAK], count[_RUNNING])
        count[_RESERVED] += length


@compiled
def _leap(run, own, layers, reduce, at_s, group):  # type: ignore[no-untyped-def]
    """Run steps of the only busy micro-batch until an answer ends or before something comes.

    Nothing but the context changes, and nearly evenly: the time is taken by Simpson's rule.
    """
    if run.front[group] != NOBODY or run.size.sum() != run.size[group]:
        return
    width = run.ending.shape[1]
    many = 0
    while many < width and run.ending[group, (run.steps[group] + many + 1) % width] == NOBODY:
        many += 1
    if many < _LEAP:
        return
    if run.counts[_COMES] < at_s.size and at_s[run.counts[_COMES]] < np.inf:
        longest_s = _decode_s(run, own, layers, reduce, group, many - 1.0)
        many = min(many, int((at_s[run.counts[_COMES]] - run.ready_s[group]) / longest_s) - 1)
    if many < _LEAP:
        return
    first_s = _decode_s(run, own, layers, reduce, group, 0.0)
    middle_s = _decode_s(run, own, layers, reduce, group, (many - 1) / 2)
    last_s = _decode_s(run, own, layers, reduce, group, many - 1.0)
    run.ready_s[group] += many * (first_s + 4 * middle_s + last_s) / 6
    run.steps[group] += many
    run.context[group] += many * run.decoding[group]
    run.free_s[:] = run.ready_s[group]


@compiled
def _decode_s(run, own, layers, reduce, group, after):  # type: ignore[no-untyped-def]
    """A step of decodes alone, after so many others: all stages in turn."""
    decoding = float(run.decoding[group])
    context = run.context[group] + after * decoding
    total_s = 0.0
    for stage in range(own.shape[0]):
        total_s += step_s(own[stage], layers[stage], reduce[stage], decoding, context, context, decoding)
    run.counts[_COMPUTED] += own.shape[0]
    return total_s


@compiled
def _step(run, own, layers, reduce, limits, at_s, requests, group):  # type: ignore[no-untyped-def]
    """One step of a micro-batch: its decodes and as much of its prompts as there is room for."""
    decoding = run.decoding[group]
    tokens = float(decoding)
    attended = run.context[group]
    kv = run.context[group]
    room = max(1, limits[2] - decoding)
    begun = NOBODY
    answering = 0
    while run.front[group] != NOBODY and room > 0:
        request = run.front[group]
        part = min(room, requests[0, request] - run.done[request])
        attended += part * (run.done[request] + (part + 1) / 2)
        kv += run.done[request] + part
        tokens += part
        room -= part
        run.counts[_PREFILLED] += part
        run.done[request] += part
        if run.done[request] == requests[0, request]:
            run.front[group] = run.behind[request]
            run.behind[request] = begun
            begun = request
            answering += 1
    end_s = run.ready_s[group]
    for stage in range(own.shape[0]):
        like = int(own[stage, 6])
        if like == stage:
            rows = float(decoding + answering)
            run.took_s[stage] = step_s(own[stage], layers[stage], reduce[stage], tokens, attended, kv, rows)
        end_s = max(end_s, run.free_s[stage]) + run.took_s[like]
        run.free_s[stage] = end_s
    run.counts[_COMPUTED] += own.shape[0]
    run.ready_s[group] = end_s
    run.steps[group] += 1
    run.context[group] += decoding
    _end(run, limits, at_s, requests, group)
    while begun != NOBODY:
        following = run.behind[begun]
        _begin(run, limits, at_s, requests, group, begun)
        begun = following


@compiled
def _end(run, limits, at_s, requests, group):  # type: ignore[no-untyped-def]
    """Release those whose last token the step made."""
    place = run.steps[group] % run.ending.shape[1]
    request = run.ending[group, place]
    run.ending[group, place] = NOBODY
    while request != NOBODY:
        following = run.behind[request]
        run.decoding[group] -= 1
        run.context[group] -= requests[0, request] + requests[1, request]
        _release(run, limits, at_s, requests, group, request)
        request = following


@compiled
def _begin(run, limits, at_s, requests, group, request):  # type: ignore[no-untyped-def]
    """A prompt is computed: its first token is there."""
    run.first_s[request] = run.ready_s[group]
    outputs = requests[1, request]
    if outputs <= 1:
        _release(run, limits, at_s, requests, group, request)
        return
    run.decoding[group] += 1
    run.context[group] += requests[0, request] + 1
    place = (run.steps[group] + outputs - 1) % run.ending.shape[1]
    run.behind[request] = run.ending[group, place]
    run.ending[group, place] = request


@compiled
def _release(run, limits, at_s, requests, group, request):  # type: ignore[no-untyped-def]
    """An answer is whole: its slot and its KV are free."""
    run.last_s[request] = run.ready_s[group]
    run.size[group] -= 1
    run.counts[_RUNNING] -= 1
    run.counts[_RESERVED] -= requests[0, request] + requests[1, request]
    _send_next(run, limits, at_s, run.ready_s[group])


@compiled
def _send_next(run, limits, at_s, now_s):  # type: ignore[no-untyped-def]
    """A client, if there are any, sends its next request."""
    if limits[3] and run.counts[_CLIENT] < at_s.size:
        at_s[run.counts[_CLIENT]] = now_s
        run.counts[_CLIENT] += 1


@kept
def serve_set(servers, load, rule, most_steps):  # type: ignore[no-untyped-def]
    """Serve a load by several servers behind a router; as ``routing.simulate_set`` hands them over."""
    own, layers, reduce, stages, limits = servers
    at_s, requests, classes = load
    replicas = stages.size
    number = at_s.size
    width = requests[1].max() + 1
    runs = [_begun(stages[place], number, width) for place in range(replicas)]
    # as arrays of their own: what ``advance`` takes is then what it takes of one server, and it is compiled once
    owns = [own[place, : stages[place]].copy() for place in range(replicas)]
    layered = [layers[place, : stages[place]].copy() for place in range(replicas)]
    reduced = [reduce[place, : stages[place]].copy() for place in range(replicas)]
    comes_s = np.full((replicas, number + 1), np.inf)
    served = np.zeros((replicas, 3, number + 1), np.int64)
    counted = np.zeros(replicas, np.int64)
    prompts = np.zeros(replicas, np.int64)
    by_class = np.zeros(rule[1].shape)
    given = counted, prompts, by_class
    taken = np.full(number, NOBODY)
    turns = np.zeros(number, np.int64)
    ends = np.array([np.inf, most_steps])
    for request in range(number + 1):
        ends[0] = at_s[request] if request < number else np.inf
        for place in range(replicas):
            comes_s[place, counted[place]] = ends[0]  # it may come here: nothing leaps beyond
            _advance(
                runs[place],
                owns[place],
                layered[place],
                reduced[place],
                limits[place],
                comes_s[place],
                served[place],
                ends,
            )
        if request == number:
            break
        place = _choose(runs, limits, given, requests[:, request], classes[request], rule)
        if place == NOBODY:
            continue
        turn = counted[place]
        turns[request] = turn
        taken[request] = place
        served[place, :, turn] = requests[:, request]
        runs[place].done[turn] = requests[2, request]
        counted[place] += 1
        prompts[place] += requests[0, request] - requests[2, request]
        by_class[classes[request], place] += 1
    first_s, last_s, computed, peak = _gathered(runs, taken, turns)
    return first_s, last_s, taken, computed, peak


@compiled
def _gathered(runs, taken, turns):  # type: ignore[no-untyped-def]
    """When each request had its first and its last token; steps, and sequences at once at most."""
    first_s = np.full(taken.size, np.nan)
    last_s = np.full(taken.size, np.nan)
    for request in range(taken.size):
        if taken[request] != NOBODY:
            first_s[request] = runs[taken[request]].first_s[turns[request]]
            last_s[request] = runs[taken[request]].last_s[turns[request]]
    computed = 0
    peak = 0
    for run in runs:
        computed += run.counts[_COMPUTED]
        peak += run.counts[_PEAK]
    return first_s, last_s, computed, peak


@compiled
def _choose(runs, limits, given, request, kind, rule):  # type: ignore[no-untyped-def]
    """Which replica takes a request; nobody where it fits into none that may serve it."""
    replicas = limits.shape[0]
    paces, shares, figures = rule
    counted, prompts, by_class = given
    outputs = figures[0]
    finish_s = np.full(replicas, np.inf)
    holds = np.zeros(replicas, np.bool_)
    for place in range(replicas):
        if np.isnan(shares[kind, place]) or request[0] + request[1] > limits[place, 1]:
            continue
        count = runs[place].counts
        together = count[_RUNNING] + counted[place] - count[_WAITS] + 1
        slots = paces[3, place]
        tpot_s = paces[0, place] + min(together, slots) * paces[1, place]
        queued = prompts[place] - count[_PREFILLED] + request[0] - request[2]
        over = max(0.0, together - slots)  # so many end before it may begin, one after each share of an answer
        ttft_s = over * outputs * tpot_s / slots + queued * paces[2, place] + tpot_s
        finish_s[place] = ttft_s + outputs * tpot_s
        holds[place] = ttft_s <= figures[1] and tpot_s <= figures[2]
    if holds.any():
        finish_s = np.where(holds, finish_s, np.inf)
    near_s = finish_s.min() * (1 + figures[3])
    total = max(1.0, by_class[kind].sum())
    chosen = NOBODY
    most_behind = -np.inf
    for place in range(replicas):
        behind = shares[kind, place] - by_class[kind, place] / total
        if finish_s[place] < np.inf and finish_s[place] <= near_s:
            is_sooner = chosen != NOBODY and behind == most_behind and finish_s[place] < finish_s[chosen]
            if chosen == NOBODY or behind > most_behind or is_sooner:
                chosen = place
                most_behind = behind
    return chosen
