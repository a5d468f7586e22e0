"""SLIs of a server under a load, in closed form: a static batch, a closed loop, Poisson arrivals, saturation. Pure.

Steady state of continuous batching: in one period every running sequence gets a token, and the prefills of the requests that
arrive meanwhile are mixed in. For any number of decoding sequences Little's law gives the rate of arrivals that keeps it, so a
steady state is found by bisection over that number. The prompts in front are an M/G/1 (Pollaczek-Khinchine) whose service is the
time by which a prompt lengthens the steps; its wait is the geometric compound of the residual service, computed on a grid.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from selector.errors import WorkloadError
from selector.perf import Step
from selector.simulator import Server

SERVING_SHARE = 0.93
"""What continuous batching keeps of the step rate beside a static batch; fitted to saturated 7B and 8B rows of TensorRT-LLM."""
PERCENTILES = ("p50", "p90", "p95", "p99")
LONGEST = 2**20
"""Tokens in or out of the longest request that is taken seriously."""
_CELLS = 4096
_FEW, _MANY = 24, 256
"""Prompt lengths that stand for all of a trace, for a mean and for a distribution."""
_ROUNDS = 24
"""Halvings of the number of sequences, by magnitude: to a millionth of it."""
_TINY = 1e-9
_BRIEF = 0.05
"""Steps for which an answer of one token is taken to decode, so that a rate belongs to every number of sequences."""
_CLOSE = 1e-3
"""By how much the rate of a steady state may miss the one asked for."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """The requests of a load by their tokens: means, and what their spread does to the work."""

    input_tokens: float
    output_tokens: float
    context_tokens: float
    """KV tokens of a sequence that decodes, over time."""
    attended_tokens: float
    """Sum over the tokens of a prompt of how many each attends to."""
    pairs: tuple[tuple[int, int], ...]
    """Input and output tokens, each pair as likely as the next."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> Self:
        """The lengths of these requests.

        Raises:
            WorkloadError: there are none, or one is not positive.
        """
        if not pairs or min(map(min, pairs)) < 1 or max(map(max, pairs)) > LONGEST:
            raise WorkloadError(f"a load needs requests of 1 to {LONGEST:,} tokens, in and out")
        inputs, outputs = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
        return cls(
            input_tokens=float(inputs.mean()),
            output_tokens=float(outputs.mean()),
            context_tokens=float((outputs * (inputs + outputs / 2)).sum() / outputs.sum()),
            attended_tokens=float((inputs * (inputs + 1) / 2).mean()),
            pairs=tuple(pairs),
        )

    @classmethod
    def fixed(cls, input_tokens: int, output_tokens: int) -> Self:
        """Every request alike."""
        return cls.of([(input_tokens, output_tokens)])

    @property
    def total(self) -> float:
        """KV tokens of a finished request."""
        return self.input_tokens + self.output_tokens


Values = np.ndarray[Any, np.dtype[np.float64]]
Reading = dict[str, float]
"""``mean`` and percentiles, in seconds."""


@dataclass(frozen=True, slots=True)
class Slis:
    """What a load gets. Latencies in seconds."""

    ttft_s: Reading | None
    """None beyond saturation, where the queue has no steady state."""
    tpot_s: Reading | None
    """None where not one request fits."""
    e2e_s: Reading | None
    throughput_tok_s: float
    """Output tokens per second."""
    saturated: bool = False


def static_batch(server: Server, batch: int, lengths: Lengths) -> Slis:
    """Every sequence prefilled together, then decoded together, as offline benchmarks do; no queue, no mixing."""
    groups = min(len(server.stages), batch)
    prompt, context = round(lengths.input_tokens), round(lengths.context_tokens)
    times = _times(server, Step.of(math.ceil(batch / groups), prompt, 0))
    ttft_s = sum(times) + (groups - 1) * max(times)
    tpot_s = period_s(server, batch, Step.of(math.ceil(batch / groups), 1, context))
    e2e_s = ttft_s + (lengths.output_tokens - 1) * tpot_s
    return Slis({"mean": ttft_s}, {"mean": tpot_s}, {"mean": e2e_s}, batch * lengths.output_tokens / e2e_s)


def period_s(server: Server, sequences: float, part: Step) -> float:
    """Time in which every micro-batch advances once: each passes all stages, and the slowest stage serves them all."""
    times = _times(server, part)
    return max(sum(times), min(len(server.stages), sequences) * max(times))


def _times(server: Server, step: Step) -> list[float]:
    return [stage.seconds(step) / server.share for stage in server.stages]


def slots_for(server: Server, lengths: Lengths) -> float:
    """Sequences that fit at once, KV reserved for their whole length."""
    return min(float(server.slots), server.kv_tokens / lengths.total)


@dataclass(frozen=True, slots=True)
class _Flow:
    """A server at an arrival rate: steps that only decode, and steps that carry prompts as well."""

    rate_rps: float
    decoding: float
    """Sequences that decode, mean."""
    plain_s: float
    """A step without a prompt."""
    mixed_s: float
    """A step that carries a prompt as well."""
    mixed_per_prompt: float
    """Steps with prompts, per request: 1 for a short prompt that comes alone, less where several share a step."""
    mixed_share: float
    """Share of the steps that carry a prompt."""
    persistence: float
    """Chance that a step with a prompt is followed by another."""
    busy: float
    """Share of the time in which some prompt is being computed."""
    tpot_s: float


def _flow(server: Server, lengths: Lengths, prompts: Sequence[float], decoding: float) -> _Flow:
    """The steady state in which so many sequences decode, and the rate of arrivals that brings it about.

    With ``T`` a step without and ``m`` what a prompt adds, a token takes ``T / (1 - rate m)`` on the mean, and Little's law asks
    for ``decoding = rate (outputs - 1) T / (1 - rate m)``; solved for the rate.
    """
    plain_s = _plain_s(server, decoding, lengths)
    marginal_s = float(np.mean([_occupied_s(server, decoding, lengths, tokens) for tokens in prompts]))
    chunks = float(np.mean([len(_chunks(server, decoding, tokens)) for tokens in prompts]))
    rate = decoding / (max(lengths.output_tokens - 1, _BRIEF) * plain_s + decoding * marginal_s)
    tpot_s = plain_s / max(_TINY, 1 - rate * marginal_s)
    fewest = lengths.input_tokens / max(1.0, server.chunk_tokens - decoding / len(server.stages))
    arriving = rate * (plain_s + marginal_s / chunks)  # while one step with a prompt runs
    alone = max(fewest, chunks * -math.expm1(-arriving) / arriving)
    packed = min(1.0, rate * (marginal_s + fewest * plain_s))  # a full server has no step with room left
    steps = alone + (fewest - alone) * packed
    busy = rate * (marginal_s + steps * plain_s)
    return _Flow(
        rate_rps=rate,
        decoding=decoding,
        plain_s=plain_s,
        mixed_s=plain_s + marginal_s / steps,
        mixed_per_prompt=steps,
        mixed_share=min(1.0, rate * steps * tpot_s),
        persistence=min(1 - _TINY, max(0.0, 1 - (1 - busy) / max(1.0, steps))),
        busy=busy,
        tpot_s=tpot_s,
    )


def _most(server: Server, lengths: Lengths, wanted: Callable[[_Flow], bool]) -> _Flow | None:
    """The fullest steady state of which something still holds that a fuller one loses; None if it never does."""
    prompts = _quantiles([tokens for tokens, _ in lengths.pairs], _FEW)
    high = slots_for(server, lengths)
    fullest = _flow(server, lengths, prompts, high)
    if wanted(fullest):
        return fullest
    low, found = high * _TINY, None
    for _ in range(_ROUNDS):  # halving by magnitude: a light load keeps far less than one sequence
        middle = math.sqrt(low * high)
        flow = _flow(server, lengths, prompts, middle)
        if wanted(flow):
            low, found = middle, flow
        else:
            high = middle
    return found


def saturation_tok_s(server: Server, lengths: Lengths) -> float:
    """Output tokens per second with every slot taken and requests always waiting; 0 if not one fits."""
    return _overloaded(server, lengths).throughput_tok_s


def closed_loop_means(server: Server, concurrency: int, lengths: Lengths) -> Slis:
    """``concurrency`` clients, each sending its next request when the last one ends; means alone, in a millisecond.

    The steady state is the one into which Little's law puts as many requests as there are clients, or slots.
    """
    flow = _clients(server, concurrency, lengths)
    if flow is None:
        return _overloaded(server, lengths)
    e2e_s = concurrency / flow.rate_rps
    ttft_s = e2e_s - (lengths.output_tokens - 1) * flow.tpot_s
    throughput = flow.rate_rps * lengths.output_tokens
    beyond = concurrency > slots_for(server, lengths)
    return Slis({"mean": ttft_s}, {"mean": flow.tpot_s}, {"mean": e2e_s}, throughput, saturated=beyond)


def closed_loop(server: Server, concurrency: int, lengths: Lengths) -> Slis:
    """The same with percentiles: the spread of Poisson arrivals at that rate around these means, without a client's own part."""
    means, flow = closed_loop_means(server, concurrency, lengths), _clients(server, concurrency, lengths)
    if flow is None or means.ttft_s is None or means.tpot_s is None or means.e2e_s is None:
        return means
    spread = _spread(server, lengths, flow)
    others = 1 - 1 / min(float(concurrency), slots_for(server, lengths))

    def around(mean: Reading, reading: Reading) -> Reading:
        return {name: mean["mean"] + others * (value - reading["mean"]) for name, value in reading.items()}

    return replace(
        means,
        ttft_s=around(means.ttft_s, spread.ttft_s),
        tpot_s=around(means.tpot_s, spread.tpot_s),
        e2e_s=around(means.e2e_s, spread.e2e_s),
    )


def _clients(server: Server, concurrency: int, lengths: Lengths) -> _Flow | None:
    """The steady state with so many clients; None where not one request fits."""
    slots = slots_for(server, lengths)
    running = min(float(concurrency), slots)

    def fits(flow: _Flow) -> bool:
        held_s = _first_s(server, lengths, flow, running) + (lengths.output_tokens - 1) * flow.tpot_s
        return flow.busy < 1 and flow.rate_rps * held_s <= running

    return _most(server, lengths, fits) if slots >= 1 else None


def _overloaded(server: Server, lengths: Lengths) -> Slis:
    """No steady state: what it gets done is what it does with every slot taken."""
    slots = slots_for(server, lengths)
    if slots < 1:
        return Slis(None, None, None, 0.0, saturated=True)
    prompts = _quantiles([tokens for tokens, _ in lengths.pairs], _FEW)
    flow = _flow(server, lengths, prompts, slots)
    tpot = {"mean": flow.tpot_s} if lengths.output_tokens > 1 else None
    return Slis(None, tpot, None, flow.rate_rps * lengths.output_tokens, saturated=True)


def _beside(server: Server, decoding: float, lengths: Lengths, prompt: tuple[float, float]) -> Step:
    """One micro-batch with its share of the decodes beside so many tokens of a prompt, behind so many of its own."""
    share = decoding / min(float(len(server.stages)), max(1.0, decoding))
    tokens, done = prompt
    return Step(
        tokens=share + tokens,
        attended_tokens=share * lengths.context_tokens + tokens * (done + tokens / 2),
        kv_tokens=share * lengths.context_tokens + done + tokens,
        rows=share + 1,
    )


def _plain_s(server: Server, decoding: float, lengths: Lengths) -> float:
    """The period of steps that carry no prompt."""
    return period_s(server, decoding, _beside(server, decoding, lengths, (0.0, 0.0)))


def _chunks(server: Server, decoding: float, tokens: float) -> list[tuple[float, float]]:
    """A prompt in chunks: tokens of each, and tokens before it."""
    chunk = max(1.0, server.chunk_tokens - decoding / len(server.stages))
    count = math.ceil(tokens / chunk)
    return [(min(chunk, tokens - done * chunk), done * chunk) for done in range(count)]


def _prompt_s(server: Server, decoding: float, lengths: Lengths, tokens: float) -> float:
    """From the start of a prompt's first chunk to its first token, beside the decodes."""
    done = [0.0] * len(server.stages)
    for part in _chunks(server, decoding, tokens):
        end = 0.0
        for place, seconds in enumerate(_times(server, _beside(server, decoding, lengths, part))):
            end = done[place] = max(end, done[place]) + seconds
    return done[-1]


def _occupied_s(server: Server, decoding: float, lengths: Lengths, tokens: float) -> float:
    """By how much a prompt lengthens the steps of the slowest stage."""
    base = _times(server, _beside(server, decoding, lengths, (0.0, 0.0)))
    longer = [0.0] * len(base)
    for part in _chunks(server, decoding, tokens):
        times = _times(server, _beside(server, decoding, lengths, part))
        longer = [total + more - less for total, more, less in zip(longer, times, base, strict=True)]
    return max(longer)


def _first_s(server: Server, lengths: Lengths, flow: _Flow, clients: float) -> float:
    """Mean time from admission to the first token: what is left of the running step, the prompts in front, its own.

    One of so many clients meets the work of the others alone (the arrival theorem of closed networks).
    """
    own_s = _prompt_s(server, flow.decoding, lengths, lengths.input_tokens)
    service_s = _service_s(server, lengths, flow, lengths.input_tokens)
    met_s = flow.plain_s / 2 * (1 - flow.busy) + flow.busy / (2 * (1 - flow.busy)) * service_s
    return own_s + met_s * (1 - 1 / clients)


def _service_s(server: Server, lengths: Lengths, flow: _Flow, tokens: float) -> float:
    """How long a prompt keeps the server from others: what it adds to the steps, and its part of the steps it shares."""
    shared = flow.mixed_per_prompt * tokens / lengths.input_tokens
    steps = min(shared, len(_chunks(server, flow.decoding, tokens)))
    return _occupied_s(server, flow.decoding, lengths, tokens) + steps * flow.plain_s


def open_loop(server: Server, rate_rps: float, lengths: Lengths) -> Slis:
    """Poisson arrivals at a rate: means and percentiles; beyond saturation no latencies but the throughput there.

    Raises:
        WorkloadError: the rate is not positive.
    """
    if not rate_rps > 0:
        raise WorkloadError(f"a rate of {rate_rps:g} requests/s is no load; it has to be more than 0")
    fits = slots_for(server, lengths) >= 1
    flow = _most(server, lengths, lambda flow: flow.busy < 1 and flow.rate_rps <= rate_rps) if fits else None
    if flow is None or flow.rate_rps < rate_rps * (1 - _CLOSE):
        return _overloaded(server, lengths)
    found = _spread(server, lengths, flow)
    return Slis(found.ttft_s, found.tpot_s, found.e2e_s, rate_rps * lengths.output_tokens)


@dataclass(frozen=True, slots=True)
class _Readings:
    """Means and percentiles of the three latencies."""

    ttft_s: Reading
    tpot_s: Reading
    e2e_s: Reading


def _spread(server: Server, lengths: Lengths, flow: _Flow) -> _Readings:
    """How the latencies of a steady state under Poisson arrivals are spread."""
    ttft = _Spread.of_first_tokens(server, lengths, flow)
    outputs = np.array(_quantiles([output for _, output in lengths.pairs], _MANY))
    tpots, deviations = _tpots(server, lengths, flow, outputs)
    e2e = ttft.plus((outputs - 1) * tpots)
    slow = np.clip(tpots[:, None] + deviations[:, None] * _NORMAL, flow.plain_s / 2, None)[outputs > 1]
    return _Readings(ttft.reading(), reading_of(slow), e2e.reading())


_NORMAL = np.array([-1.8, -1.16, -0.81, -0.52, -0.25, 0.0, 0.25, 0.52, 0.81, 1.16, 1.8])
"""Equally likely values of a standard normal."""


def reading_of(values: Values | Sequence[float]) -> Reading:
    """Mean and percentiles of some values; zeros where there are none."""
    values = np.asarray(values, dtype=float).ravel()
    values = values if values.size else np.zeros(1)
    found = {name: float(np.quantile(values, float(name[1:]) / 100)) for name in PERCENTILES}
    return {"mean": float(values.mean()), **found}


def _tpots(server: Server, lengths: Lengths, flow: _Flow, outputs: Values) -> tuple[Values, Values]:
    """Mean and deviation of TPOT for requests of so many output tokens.

    A request begins to decode when a prompt has just been computed, so the next steps carry prompts more often than steps do on
    the whole: the excess fades with ``persistence``. Beside that the number of others that run moves, a Poisson number.
    """
    steps = np.maximum(outputs - 1, 1)
    fading = flow.persistence
    excess = (flow.busy - flow.mixed_share) * (1 - fading**steps) / (1 - fading) / steps
    mixed = np.clip(flow.mixed_share + excess, 0.0, 1.0)
    independent = np.maximum(1.0, steps * (1 - fading) / (1 + fading))
    per_mixed = flow.mixed_s - flow.plain_s
    others = flow.decoding + math.sqrt(flow.decoding)
    slower = _plain_s(server, others, lengths) / flow.plain_s - 1
    means = flow.plain_s + per_mixed * mixed
    deviations = np.hypot(per_mixed * np.sqrt(mixed * (1 - mixed) / independent), slower * means)
    return means, deviations


@dataclass(frozen=True, slots=True)
class _Spread:
    """A distribution of seconds on a grid."""

    cell_s: float
    chances: Values

    @classmethod
    def of_first_tokens(cls, server: Server, lengths: Lengths, flow: _Flow) -> "_Spread":
        """TTFT: what is left of the running step, the prompts in front, its own prompt."""
        prompts = _quantiles([tokens for tokens, _ in lengths.pairs], _MANY)
        services = np.array([_service_s(server, lengths, flow, tokens) for tokens in prompts])
        own = np.array([_prompt_s(server, flow.decoding, lengths, tokens) for tokens in prompts])
        busy = min(0.999, flow.rate_rps * float(services.mean()))
        mean_wait = flow.rate_rps * float((services**2).mean()) / (2 * (1 - busy))
        cell_s = (12 * mean_wait + 2 * float(own.max()) + flow.tpot_s) / _CELLS
        residual = np.zeros(_CELLS)
        for service in services:
            cells = max(1, round(service / cell_s))
            residual[:cells] += service / cells
        residual /= residual.sum()
        wait = np.fft.irfft((1 - busy) / (1 - busy * np.fft.rfft(residual, 2 * _CELLS)), 2 * _CELLS)[:_CELLS]
        running = np.zeros(_CELLS)
        running[: max(1, round(flow.plain_s / cell_s))] = 1.0
        idle = np.zeros(_CELLS)
        idle[0] = 1.0
        rest = (1 - busy) * running / running.sum() + busy * idle
        spread = cls(cell_s, np.clip(wait, 0.0, None))
        return spread.convolved(rest).plus(own)

    def convolved(self, other: Values) -> "_Spread":
        """The sum with an independent one on the same grid; what lies beyond the grid is kept in its last cell."""
        size = 2 * len(self.chances)
        product = np.fft.irfft(np.fft.rfft(self.chances, size) * np.fft.rfft(other, size), size)[
            : len(self.chances)
        ]
        return replace(self, chances=np.clip(product, 0.0, None))

    def plus(self, seconds: Values) -> "_Spread":
        """The sum with an independent one of equally likely values; the grid grows where it must."""
        cell_s = max(self.cell_s, (len(self.chances) * self.cell_s + float(np.max(seconds))) / (2 * _CELLS))
        places = np.arange(len(self.chances)) * self.cell_s
        mine = np.bincount((places / cell_s).astype(int), weights=self.chances, minlength=2 * _CELLS)[
            : 2 * _CELLS
        ]
        other = np.bincount(np.round(np.asarray(seconds) / cell_s).astype(int), minlength=2 * _CELLS)[
            : 2 * _CELLS
        ]
        return _Spread(cell_s, mine.astype(float)).convolved(other / other.sum())

    def reading(self) -> Reading:
        """Mean and percentiles."""
        chances = self.chances / self.chances.sum()
        places = (np.arange(len(chances)) + 0.5) * self.cell_s
        cumulated = np.cumsum(chances)
        found = {
            name: float(places[np.searchsorted(cumulated, float(name[1:]) / 100)]) for name in PERCENTILES
        }
        return {"mean": float((chances * places).sum()), **found}


def _quantiles(values: Sequence[int], count: int) -> list[float]:
    """``count`` values, equally likely, that stand for all; one if all are alike."""
    if len(set(values)) == 1:
        return [float(values[0])]
    ordered = np.sort(np.array(values, dtype=float))
    cumulated = np.concatenate([[0.0], np.cumsum(ordered)])
    edges = np.interp(np.linspace(0, len(ordered), count + 1), np.arange(len(ordered) + 1), cumulated)
    return [float(mean) for mean in np.diff(edges) * count / len(ordered)]
