"""What a server makes of a load: requests drawn from its distributions, served by the simulator. Pure.

The one estimator: every plan, segment, prediction and "nearest" is read from here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from intent.models import PERCENTILES
from selector.models import ALIKE, Spread, Workload
from selector.performance.load import IDLE_RPS
from selector.performance.perf import ServerModel, Step
from selector.performance.simulator import Arrivals, Served, Values, Whole, simulate

Reading = dict[str, float]
"""``mean`` and percentiles, in seconds."""

MOST_REQUESTS = 4096
LEAST_REQUESTS = 512
"""Of one simulation; the first tenth, which meet an empty server, do not count."""
STEPS = 50_000
"""Of a stage, that one simulation is meant to compute: it has so many fewer requests where each needs more."""
MOST_STEPS = 20_000_000
"""Of a stage, after which a simulation ends whatever is left: about a second, which only answers of 10,000s of tokens take."""
_SEED = 0
_TURNS = 24
_LEAST_TURNS = 8
"""How often a backlog fills every place, to see what a server sustains; less often where each turn needs more steps."""
_IN_FLIGHT = 12
"""Times the requests in flight, of which a simulation has more."""
_WARM = 0.4
_COLD = 0.9
"""Shares of a backlog between which the rate is taken: before, all prompts come at once; after, places stay empty."""


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What a server makes of a load. Latencies in seconds, infinite where requests pile up."""

    ttft_s: Reading
    tpot_s: Reading
    e2e_s: Reading
    sustained_rps: float
    """With every place taken and requests always waiting; 0 where not one fits."""
    requests: int
    """That were counted."""
    batch: int
    """Sequences of the mean length that run at once, at most."""
    peak: int
    """Sequences that did."""

    @property
    def waits_grow(self) -> bool:
        """Whether the load exceeds what is sustained."""
        return not math.isfinite(self.ttft_s["mean"])


def reading_of(values: Values | Sequence[float], names: Sequence[str] = tuple(PERCENTILES)) -> Reading:
    """Mean and percentiles of some values, by names such as ``p99.9``; zeros where there are none."""
    values = np.asarray(values, dtype=float).ravel()
    values = values if values.size else np.zeros(1)
    quantiles = np.quantile(values, [float(name[1:]) / 100 for name in names])
    return {"mean": float(values.mean()), **dict(zip(names, quantiles.tolist(), strict=True))}


def judged(server: ServerModel, workload: Workload, most_tokens: int) -> LoadFigures:
    """Latencies of a load, and what the server sustains; no request is longer than ``most_tokens``."""
    rate_rps = max(workload.rate_rps, IDLE_RPS)
    return _judged(server, replace(workload, rate_rps=rate_rps, concurrency=1), most_tokens)


@lru_cache(maxsize=4096)
def _judged(server: ServerModel, workload: Workload, most_tokens: int) -> LoadFigures:
    sustained = sustained_rps(server, workload, most_tokens)
    if workload.rate_rps >= sustained:
        return piled_up(server, sustained, batch_of(server, workload))
    number = requests_for(server, workload)
    served = simulate(server, arrivals(workload, number, most_tokens), MOST_STEPS)
    return figures_of(served, sustained, batch_of(server, workload))


def piled_up(server: ServerModel, sustained: float, batch: int) -> LoadFigures:
    """Of more than a server sustains."""
    return LoadFigures(endless(), endless(), endless(), sustained, 0, batch, server.slots)


def batch_of(server: ServerModel, workload: Workload) -> int:
    """Sequences of the mean length that run at once, at most."""
    return min(server.slots, server.kv_tokens // max(1, workload.input_tokens + workload.output_tokens))


def closed(server: ServerModel, workload: Workload, clients: int, most_tokens: int) -> LoadFigures:
    """The same of clients that each send their next request when the last one ends."""
    number = min(2 * MOST_REQUESTS, max(2 * LEAST_REQUESTS, 20 * clients))
    served = simulate(server, arrivals(workload, number, most_tokens), MOST_STEPS, clients)
    return figures_of(served, _rate(served), batch_of(server, workload))


def sustained_rps(server: ServerModel, workload: Workload, most_tokens: int) -> float:
    """Requests per second with every place taken and requests always waiting; 0 where not one fits."""
    return _sustained_rps(server, replace(workload, rate_rps=1.0, concurrency=1, burstiness=1.0), most_tokens)


@lru_cache(maxsize=4096)
def _sustained_rps(server: ServerModel, workload: Workload, most_tokens: int) -> float:
    places = batch_of(server, workload)
    if places < 1:
        return 0.0
    turns = max(_LEAST_TURNS, _TURNS // len(server.stages))
    number = int(min(6000, max(LEAST_REQUESTS, turns * places)))
    drawn = arrivals(workload, number, most_tokens)
    backlog = replace(drawn, at_s=np.zeros(number))
    return _rate(simulate(server, backlog, MOST_STEPS))


def arrivals(workload: Workload, number: int, most_tokens: int) -> Arrivals:
    """So many requests of a load, the same ones each time, their lengths drawn evenly."""
    inputs, outputs, gaps = _drawn(replace(workload, rate_rps=1.0, concurrency=1), number, most_tokens)
    cached = np.minimum(inputs - 1, (inputs * workload.prefix_hit).astype(np.int64))
    return Arrivals(np.cumsum(gaps) / max(workload.rate_rps, IDLE_RPS), inputs, outputs, cached)


@lru_cache(maxsize=64)
def _drawn(workload: Workload, number: int, most_tokens: int) -> tuple[Whole, Whole, Values]:
    """Tokens in and out, and the times between arrivals at one request a second."""
    draw = np.random.default_rng(_SEED)
    outputs = _lengths(workload.outputs, max(1, workload.output_tokens), number, max(1, most_tokens - 1))
    outputs = draw.permutation(outputs)
    inputs = _lengths(workload.inputs, max(1, workload.input_tokens), number, max(1, most_tokens - 1))
    inputs = np.maximum(1, np.minimum(draw.permutation(inputs), most_tokens - outputs))
    shape = 1 / workload.burstiness**2
    gaps = draw.gamma(shape, 1 / shape, number)
    return inputs, outputs, gaps / gaps.mean()


def _lengths(spread: Spread, mean: int, number: int, most: int) -> Whole:
    """Quantiles of lengths, evenly apart, none above a length, with the mean as near as that allows."""
    places = (np.arange(number) + 0.5) / number
    if spread.histogram:
        lengths, shares = np.array(sorted(spread.histogram)).T
        relative: Values = lengths[np.minimum(np.searchsorted(np.cumsum(shares), places), len(lengths) - 1)]
    elif spread.p95_by_mean <= ALIKE.p95_by_mean:
        return np.full(number, min(mean, most), dtype=np.int64)
    else:
        relative = np.exp(_sigma(spread.p95_by_mean) * _normal(number))
    tokens: Values = np.minimum(most, relative * mean / relative.mean())
    tokens = np.minimum(most, tokens * mean / tokens.mean())
    return np.asarray(np.maximum(1, np.rint(tokens)), dtype=np.int64)


@lru_cache(maxsize=8)
def _normal(number: int) -> Values:
    """Quantiles of a standard normal, evenly apart."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((place + 0.5) / number) for place in range(number)])


def _sigma(p95_by_mean: float) -> float:
    """Of a lognormal by its P95: the smaller root of ``1.645 s - s**2 / 2 = log(p95_by_mean)``."""
    z = NormalDist().inv_cdf(0.95)
    return z - math.sqrt(max(0.0, z * z - 2 * math.log(p95_by_mean)))


def requests_for(server: ServerModel, workload: Workload) -> int:
    """As many as ``STEPS`` allow; a power of 2, so that neighbours draw alike."""
    outputs = max(1, workload.output_tokens)
    context = workload.input_tokens + outputs / 2
    alone_s = sum(stage.seconds(Step(1, context, context, 1)) for stage in server.stages) / server.share
    running = max(1.0, workload.rate_rps * outputs * alone_s)
    together = running / min(len(server.stages), running)
    least = max(LEAST_REQUESTS, _IN_FLIGHT * running)
    wanted = min(MOST_REQUESTS, max(least, STEPS * together / (outputs * len(server.stages))))
    return int(2 ** math.floor(math.log2(wanted)))


def figures_of(served: Served, sustained: float, batch: int) -> LoadFigures:
    """Of requests that were served, the first ones left out."""
    done = served.done
    e2e_s = served.e2e_s[:done]
    in_flight = np.nansum(e2e_s) / max(1e-9, served.at_s[done - 1]) if done else 0.0
    counted = slice(min(done // 2, max(done // 10, int(2 * in_flight))), done)
    there = ~np.isnan(served.last_s[counted])
    if not there.any():  # so long are the answers that none ended: nobody can tell
        return LoadFigures(endless(), endless(), endless(), sustained, 0, batch, served.peak)
    several = there & (served.outputs[counted] > 1)
    return LoadFigures(
        ttft_s=reading_of(served.ttft_s[counted][there]),
        tpot_s=reading_of(served.tpot_s[counted][several]),
        e2e_s=reading_of(served.e2e_s[counted][there]),
        sustained_rps=sustained,
        requests=int(there.sum()),
        batch=batch,
        peak=served.peak,
    )


def _rate(served: Served) -> float:
    """Requests begun per second in the middle of a run: as many as end, whatever their lengths."""
    if served.done < len(served.last_s):  # cut short: the tokens of whole answers, which are fewer than there were
        whole = ~np.isnan(served.last_s)
        answers = served.outputs[whole].sum() / served.outputs.mean()
        return float(answers / served.last_s[whole].max()) if whole.any() else 0.0
    begins_s = np.sort(served.first_s[~np.isnan(served.first_s)])
    first = int(len(begins_s) * _WARM)
    last = int(len(begins_s) * _COLD)
    took_s = begins_s[last] - begins_s[first] if last > first else 0.0
    return float((last - first) / took_s) if took_s > 0 else 0.0


def endless() -> Reading:
    """Of requests that pile up."""
    return dict.fromkeys(("mean", *PERCENTILES), math.inf)
