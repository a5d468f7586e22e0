"""Replicas behind a router in virtual time: requests go where they are predicted to end first. Pure.

The rule is that of ``runtime.replicas.choice``; each replica is a server of ``simulator``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from selector.performance.perf import ServerModel
from selector.performance.simulator import (
    COMPUTED,
    NOBODY,
    PEAK,
    PREFILLED,
    RUNNING,
    WAITS,
    Arrivals,
    Served,
    Values,
    Whole,
    advance,
    begun,
    compiled,
    kept,
)

BAND = 0.01
"""Forecasts this near to the best count as alike: among them the planned shares decide."""


@dataclass(frozen=True, slots=True)
class Routing:
    """What a router knows: of each replica (columns), and of each class of requests (rows).

    Other routers are others' knowledge: with an endless band the shares alone decide, and of replicas whose steps last as long as
    requests are there the one with the fewest is the quickest.
    """

    paces: Values
    """Seconds of a step without sequences, that a sequence adds, and of a token of a prompt; sequences at once."""
    shares: Values
    """That each replica is planned to have of a class; NaN: it may not serve the class."""
    output_tokens: float
    """Of an answer, as expected: nobody knows."""
    ttft_s: float = np.inf
    """Bounds that requests have: replicas that miss one are no candidates while others hold it."""
    tpot_s: float = np.inf
    band: float = BAND


def simulate_set(
    servers: Sequence[ServerModel], arrivals: Arrivals, classes: Whole, routing: Routing, most_steps: float = np.inf
) -> tuple[Served, Whole]:
    """Serve the arrivals, each by one of the servers, and which; ``simulate`` says the rest."""
    own, layers, reduce = (_padded([server.figures[part] for server in servers]) for part in range(3))
    stages = np.array([len(server.stages) for server in servers])
    limits = np.array([(each.slots, each.kv_tokens, each.chunk_tokens, 0) for each in servers], dtype=np.int64)
    at_s = arrivals.at_s.astype(float)
    load = at_s, np.stack([arrivals.inputs, arrivals.outputs, arrivals.cached]), classes
    figure = np.array([routing.output_tokens, routing.ttft_s, routing.tpot_s, routing.band])
    rule = routing.paces, routing.shares, figure
    figures = own, layers, reduce, stages, limits
    first_s, last_s, places, computed, peak = _serve_set(figures, load, rule, float(most_steps))
    return Served(at_s, first_s, last_s, arrivals.outputs, places == NOBODY, int(computed), int(peak)), places


def _padded(figures: Sequence[Values]) -> Values:
    """Of servers one above the other, with zeros where one has fewer."""
    shape = np.max([each.shape for each in figures], axis=0)
    padded = np.zeros((len(figures), *shape))
    for place, each in enumerate(figures):
        padded[place][tuple(slice(size) for size in each.shape)] = each
    return padded


@kept
def _serve_set(servers, load, rule, most_steps):  # type: ignore[no-untyped-def]
    own, layers, reduce, stages, limits = servers
    at_s, requests, classes = load
    replicas = stages.size
    number = at_s.size
    width = requests[1].max() + 1
    runs = [begun(stages[place], number, width) for place in range(replicas)]
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
            advance(
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
        computed += run.counts[COMPUTED]
        peak += run.counts[PEAK]
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
        together = count[RUNNING] + counted[place] - count[WAITS] + 1
        slots = paces[3, place]
        tpot_s = paces[0, place] + min(together, slots) * paces[1, place]
        queued = prompts[place] - count[PREFILLED] + request[0] - request[2]
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
