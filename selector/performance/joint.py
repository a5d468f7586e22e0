"""What replicas behind a router make of a load, all together and each. Pure."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from runtime.replicas.choice import PROMPT, UNBOUND, Bounds, ReplicaSpeed
from selector.models import Workload
from selector.performance.judge import (
    MOST_REQUESTS,
    MOST_STEPS,
    LoadFigures,
    arrivals,
    batch_of,
    endless,
    figures_of,
    judged,
    piled_up,
    requests_for,
    sustained_rps,
)
from selector.performance.load import IDLE_RPS, period_s, times
from selector.performance.perf import ServerModel, Step
from selector.performance.routing import Routing, simulate_set
from selector.performance.shares import dealt_evenly, edges_of, words_of
from selector.performance.simulator import Arrivals, Served, Values, Whole

CALM = 0.75
"""Mean time between tokens by the bound on it, as far as a replica is planned to be filled: some wait longer."""
_TENANT_SEED = 1
_MOST_OF_ALL = 4 * MOST_REQUESTS


@dataclass(frozen=True, slots=True)
class SetFigures:
    """What a set makes of a load."""

    together: LoadFigures
    each: tuple[LoadFigures, ...]
    given: tuple[float, ...]
    """The share of the requests that each replica got."""
    planned: tuple[dict[str, float], ...]
    """Class of requests, in words, to the share of it that each replica is planned to have."""


def judged_set(
    servers: tuple[ServerModel, ...],
    workload: Workload,
    most_tokens: int,
    barred: tuple[frozenset[str], ...],
    bounds: Bounds = UNBOUND,
    tenants: tuple[str, ...] = ("",),
) -> SetFigures | None:
    """Of replicas, of which each may not serve some tenants; None where somebody is served nowhere.

    All tenants (the empty name is everyone else) send as many requests: nobody knows better.
    """
    rate_rps = max(workload.rate_rps, IDLE_RPS)
    return _judged_set(
        servers, replace(workload, rate_rps=rate_rps, concurrency=1), most_tokens, barred, bounds, tenants
    )


@lru_cache(maxsize=1024)
def _judged_set(
    servers: tuple[ServerModel, ...],
    workload: Workload,
    most_tokens: int,
    barred: tuple[frozenset[str], ...],
    bounds: Bounds,
    tenants: tuple[str, ...],
) -> SetFigures | None:
    sustained = [sustained_rps(server, workload, most_tokens) for server in servers]
    may_serve = np.array([[name not in names for names in barred] for name in tenants])
    if not all(sustained) or not may_serve.any(axis=1).all():
        return None
    batches = [batch_of(server, workload) for server in servers]
    drawn = arrivals(workload, _requests_of_all(servers, workload, sustained), most_tokens)
    classes = Classes.of(drawn, tenants)
    routing = routing_of(servers, workload, sustained, classes, may_serve, bounds)
    planned = tuple(dict(zip(classes.words, np.nan_to_num(part).tolist(), strict=True)) for part in routing.shares.T)
    if workload.rate_rps >= sum(sustained):
        each = [piled_up(*figures) for figures in zip(servers, sustained, batches, strict=True)]
        slots = sum(server.slots for server in servers)
        together = LoadFigures(endless(), endless(), endless(), sum(sustained), 0, sum(batches), slots)
        means = np.nan_to_num(routing.shares).mean(axis=0)
        return SetFigures(together, tuple(each), tuple(means.tolist()), planned)
    served, places = simulate_set(servers, drawn, classes.numbers, routing, MOST_STEPS)
    idle = replace(workload, rate_rps=IDLE_RPS)
    each = [
        figures_of(_part(served, places == place), sustained[place], batches[place])
        if (places == place).any()
        else judged(server, idle, most_tokens)  # it is there for more than comes
        for place, server in enumerate(servers)
    ]
    given = np.bincount(np.maximum(places, 0), minlength=len(servers)) / len(places)
    return SetFigures(figures_of(served, sum(sustained), sum(batches)), tuple(each), tuple(given.tolist()), planned)


@dataclass(frozen=True, slots=True)
class Classes:
    """The class of each of some requests, and the classes: by tenant, and by the length of the prompt."""

    numbers: Whole
    lengths: Values
    """Tokens to compute of a prompt of each class, the mean."""
    weights: Values
    words: tuple[str, ...]
    tenants: int

    @classmethod
    def of(cls, drawn: Arrivals, tenants: Sequence[str]) -> "Classes":
        """Of requests, each from one of the tenants by chance; the empty name is everyone else."""
        edges = edges_of(drawn.inputs)
        longs = np.minimum(np.searchsorted(edges, drawn.inputs), len(edges) - 1)
        whose = np.random.default_rng(_TENANT_SEED).integers(len(tenants), size=len(drawn))
        numbers = whose * len(edges) + longs
        size = len(tenants) * len(edges)
        weights = np.bincount(numbers, minlength=size) / len(drawn)
        tokens = np.bincount(numbers, drawn.inputs - drawn.cached, size) / len(drawn)
        words = tuple(f"{name}, {length}".removeprefix(", ") for name in tenants for length in words_of(edges))
        return cls(numbers, tokens / np.maximum(weights, 1e-12), weights, words, len(tenants))


def routing_of(
    servers: Sequence[ServerModel],
    workload: Workload,
    sustained: Sequence[float],
    classes: Classes,
    may_serve: Values,
    bounds: Bounds = UNBOUND,
) -> Routing:
    """What the router knows of servers, and the planned shares; ``may_serve`` is by tenant and server."""
    paces = np.array([astuple(speed_of(server, workload)) for server in servers]).T
    outputs = max(1, workload.output_tokens)
    step_s, sequence_s, token_s, slots = paces
    calm = np.clip((CALM * bounds.tpot_s - step_s) / sequence_s, 1.0, slots)
    rates = np.minimum(sustained, calm / (outputs * (step_s + calm * sequence_s)))
    prompts_s = classes.lengths[:, None] * token_s
    mean_s = classes.weights @ prompts_s
    costs = 1 / rates + (prompts_s - mean_s) * np.minimum(1.0, 1 / (rates * np.maximum(mean_s, 1e-12)))
    allowed = np.repeat(may_serve, len(classes.words) // classes.tenants, axis=0)
    like = [(server, *may_serve[:, place].tolist()) for place, server in enumerate(servers)]
    shares = dealt_evenly(np.where(allowed, costs, np.inf), classes.weights, [like.index(each) for each in like])
    return Routing(paces, shares, float(outputs), PROMPT * bounds.ttft_s, bounds.tpot_s)


@lru_cache(maxsize=1024)
def speed_of(server: ServerModel, workload: Workload) -> ReplicaSpeed:
    """How fast a replica is under a load: a sequence adds its part of prompts to a step, too."""
    slots = max(1, batch_of(server, workload))
    outputs = max(1, workload.output_tokens)
    context = round(workload.input_tokens + outputs / 2)
    computed = max(1.0, workload.input_tokens * (1 - workload.prefix_hit))
    chunk = int(min(server.chunk_tokens, computed))
    decode = Step.of(1, 1, context)
    token_s = max(
        (long_s - short_s) / chunk
        for long_s, short_s in zip(times(server, decode + Step.of(1, chunk, 0)), times(server, decode), strict=True)
    )
    groups = min(len(server.stages), slots)
    least_s = period_s(server, 1, decode)
    most_s = period_s(server, slots, Step.of(-(-slots // groups), 1, context))
    decode_s = (most_s - least_s) / max(1, slots - 1)
    sequence_s = decode_s + token_s * computed / outputs
    return ReplicaSpeed(max(1e-9, least_s - decode_s), sequence_s, token_s, slots)


def _requests_of_all(servers: Sequence[ServerModel], workload: Workload, sustained: Sequence[float]) -> int:
    """As many as their parts would be judged by, alone."""
    rates = [workload.rate_rps * rate / sum(sustained) for rate in sustained]
    parts = [
        requests_for(server, replace(workload, rate_rps=rate)) for server, rate in zip(servers, rates, strict=True)
    ]
    return int(2 ** np.floor(np.log2(min(_MOST_OF_ALL, sum(parts)))))


def _part(served: Served, mine: Values) -> Served:
    """Those that one replica served."""
    at_s, first_s, last_s = (values[mine] for values in (served.at_s, served.first_s, served.last_s))
    return Served(at_s, first_s, last_s, served.outputs[mine], served.never[mine], served.computed, served.peak)
