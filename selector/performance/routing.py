"""Replicas behind a router in virtual time: requests go where they are predicted to end first. Pure.

The rule is that of ``runtime.replicas.choice``; ``simulator`` has it, for what is compiled of one file is compiled anew with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.replicas.choice import BAND
from selector.performance.perf import ServerModel
from selector.performance.simulator import NOBODY, Arrivals, Served, Values, Whole, serve_set


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
    first_s, last_s, places, computed, peak = serve_set(figures, load, rule, float(most_steps))
    return Served(at_s, first_s, last_s, arrivals.outputs, places == NOBODY, int(computed), int(peak)), places


def _padded(figures: Sequence[Values]) -> Values:
    """Of servers one above the other, with zeros where one has fewer."""
    shape = np.max([each.shape for each in figures], axis=0)
    padded = np.zeros((len(figures), *shape))
    for place, each in enumerate(figures):
        padded[place][tuple(slice(size) for size in each.shape)] = each
    return padded
