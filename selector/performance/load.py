"""A load in closed form, and traces. Pure."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from selector.models import WorkloadError
from selector.performance.latency import Reading, latencies
from selector.performance.perf import Step
from selector.performance.simulator import RequestArrival, ServerModel
from selector.performance.work import LONGEST, Lengths, saturation, slots_for, times

SERVING_SHARE = 0.93
"""What continuous batching keeps of the step rate beside a static batch; fitted to saturated 7B and 8B rows of TensorRT-LLM."""
_CLOSE = 1e-3
"""How near to saturation a queue has no steady state to speak of."""


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What a load gets. Latencies in seconds."""

    ttft_s: Reading | None
    """None beyond saturation, where the queue has no steady state."""
    tpot_s: Reading | None
    """None where not one request fits."""
    e2e_s: Reading | None
    throughput_tok_s: float
    """Output tokens per second."""
    saturated: bool = False


def static_batch(server: ServerModel, batch: int, lengths: Lengths) -> LoadFigures:
    """Every sequence prefilled together, then decoded together, as offline benchmarks do.

    No queue, no mixing.
    """
    groups = min(len(server.stages), batch)
    prompt = round(lengths.input_tokens)
    context = round(lengths.context_tokens)
    stages = times(server, Step.of(math.ceil(batch / groups), prompt, 0))
    ttft_s = sum(stages) + (groups - 1) * max(stages)
    tpot_s = period_s(server, batch, Step.of(math.ceil(batch / groups), 1, context))
    e2e_s = ttft_s + (lengths.output_tokens - 1) * tpot_s
    return LoadFigures({"mean": ttft_s}, {"mean": tpot_s}, {"mean": e2e_s}, batch * lengths.output_tokens / e2e_s)


def period_s(server: ServerModel, sequences: float, part: Step) -> float:
    """Time in which every micro-batch advances once.

    Each passes all stages, and the slowest stage serves them all.
    """
    stages = times(server, part)
    return max(sum(stages), min(len(server.stages), sequences) * max(stages))


def saturation_tok_s(server: ServerModel, lengths: Lengths) -> float:
    """Output tokens per second with every slot taken and requests always waiting; 0 if not one fits."""
    return _overloaded(server, lengths).throughput_tok_s


def closed_loop_means(server: ServerModel, concurrency: int, lengths: Lengths) -> LoadFigures:
    """``concurrency`` clients, each sending its next request when the last one ends.

    Means alone, in a millisecond.
    """
    if slots_for(server, lengths) < 1:
        return _overloaded(server, lengths)
    found = saturation(server, lengths, concurrency)
    e2e_s = concurrency / found.rate_rps
    ttft_s = e2e_s - (lengths.output_tokens - 1) * found.tpot_s
    throughput = found.rate_rps * lengths.output_tokens
    beyond = concurrency > slots_for(server, lengths)
    return LoadFigures({"mean": ttft_s}, {"mean": found.tpot_s}, {"mean": e2e_s}, throughput, saturated=beyond)


def closed_loop(server: ServerModel, concurrency: int, lengths: Lengths) -> LoadFigures:
    """The same with percentiles.

    The spread of Poisson arrivals around these means, without a client's own part.

    They arrive as often as the loop's requests do, but not so often that their queue would be longer than the loop: with ``n``
    clients no more than ``n / (n + 1)`` of saturation; and what they wait longer on the mean narrows the spread in proportion.
    """
    means = closed_loop_means(server, concurrency, lengths)
    if means.ttft_s is None or means.tpot_s is None or means.e2e_s is None:
        return means
    clients = min(float(concurrency), slots_for(server, lengths))
    full = saturation(server, lengths, server.slots)
    rate_rps = min(means.throughput_tok_s / lengths.output_tokens, full.rate_rps * clients / (clients + 1))
    spread = latencies(server, lengths, rate_rps, full)
    others = 1 - 1 / clients

    def around(mean: Reading, reading: Reading) -> Reading:
        scale = others * min(1.0, mean["mean"] / reading["mean"]) if reading["mean"] else 0.0
        return {name: mean["mean"] + scale * (value - reading["mean"]) for name, value in reading.items()}

    return replace(
        means,
        ttft_s=around(means.ttft_s, spread.ttft_s),
        tpot_s=around(means.tpot_s, spread.tpot_s),
        e2e_s=around(means.e2e_s, spread.e2e_s),
    )


def open_loop(server: ServerModel, rate_rps: float, lengths: Lengths) -> LoadFigures:
    """Poisson arrivals at a rate: means and percentiles.

    Beyond saturation no latencies but the throughput there.

    Raises:
        WorkloadError: the rate is not positive.
    """
    if not rate_rps > 0:
        raise WorkloadError(f"a rate of {rate_rps:g} requests/s is no load; it has to be more than 0")
    if slots_for(server, lengths) < 1:
        return _overloaded(server, lengths)
    full = saturation(server, lengths, server.slots)
    if rate_rps > full.rate_rps * (1 - _CLOSE):
        return _overloaded(server, lengths)
    found = latencies(server, lengths, rate_rps, full)
    return LoadFigures(found.ttft_s, found.tpot_s, found.e2e_s, rate_rps * lengths.output_tokens)


def _overloaded(server: ServerModel, lengths: Lengths) -> LoadFigures:
    """No steady state: what it gets done is what it does with every slot taken."""
    if slots_for(server, lengths) < 1:
        return LoadFigures(None, None, None, 0.0, saturated=True)
    full = saturation(server, lengths, server.slots)
    tpot = {"mean": full.tpot_s} if lengths.output_tokens > 1 else None
    return LoadFigures(None, tpot, None, full.rate_rps * lengths.output_tokens, saturated=True)


EXAMPLES = 3
"""Bad rows that are named."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, the first at 0 s, and what could not be read."""

    arrivals: tuple[RequestArrival, ...]
    bad_rows: int
    examples: tuple[str, ...]
    """The first bad rows, each with its line and why."""


Read = Callable[[Mapping[str, object]], RequestArrival]


def read_trace(text: str, name: str) -> Trace:
    """Read a trace of arrivals from CSV or lines of JSON; count and leave out bad rows.

    CSV: ``TIMESTAMP,ContextTokens,GeneratedTokens`` (Azure) or ``arrival_s,input_tokens,output_tokens``.
    JSON: ``timestamp`` in ms, ``input_length`` and ``output_length`` (Mooncake).

    Raises:
        WorkloadError: neither format, or not one good row.
    """
    first = text.lstrip("\ufeff \r\n").split("\n", 1)[0].strip()
    if first.startswith("{"):
        rows = _json_rows(text)
        read = _mooncake
    elif "ContextTokens" in first:
        rows = _csv_rows(text)
        read = _azure
    elif {"arrival_s", "input_tokens", "output_tokens"} <= set(first.split(",")):
        rows = _csv_rows(text)
        read = _plain
    else:
        raise WorkloadError(
            f"{name}: no trace; its first line should be TIMESTAMP,ContextTokens,GeneratedTokens or "
            "arrival_s,input_tokens,output_tokens or a JSON object with timestamp, input_length and output_length"
        )
    good = []
    bad = []
    for line, row in rows:
        try:
            good.append(read(row) if isinstance(row, Mapping) else _refuse("not an object"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            bad.append(f"line {line}: {_reason(error)}")
    if not good:
        raise WorkloadError(f"{name}: not one readable request; {'; '.join(bad[:EXAMPLES]) or 'it has no rows'}")
    good.sort(key=lambda arrival: arrival.at_s)
    start_s = good[0].at_s
    shifted = tuple(
        RequestArrival(arrival.at_s - start_s, arrival.input_tokens, arrival.output_tokens) for arrival in good
    )
    return Trace(shifted, len(bad), tuple(bad[:EXAMPLES]))


def _reason(error: Exception) -> str:
    return f"{error.args[0]} missing" if isinstance(error, KeyError) else str(error)


def _csv_rows(text: str) -> Iterator[tuple[int, object]]:
    reader = csv.DictReader(io.StringIO(text.lstrip("\ufeff"), newline=""))
    for row in reader:
        yield reader.line_num, row


def _json_rows(text: str) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None


def _azure(row: Mapping[str, object]) -> RequestArrival:
    moment = datetime.fromisoformat(str(row["TIMESTAMP"]).strip()[:26])
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return _arrival(seconds, row["ContextTokens"], row["GeneratedTokens"])


def _mooncake(row: Mapping[str, object]) -> RequestArrival:
    return _arrival(float(str(row["timestamp"])) / 1000, row["input_length"], row["output_length"])


def _plain(row: Mapping[str, object]) -> RequestArrival:
    return _arrival(float(str(row["arrival_s"])), row["input_tokens"], row["output_tokens"])


def _arrival(at_s: float, inputs: object, outputs: object) -> RequestArrival:
    found = RequestArrival(at_s, int(str(inputs)), int(str(outputs)))
    if not math.isfinite(at_s):
        _refuse(f"arrival at {at_s}")
    if not (1 <= found.input_tokens <= LONGEST and 1 <= found.output_tokens <= LONGEST):
        _refuse(f"{found.input_tokens} tokens in and {found.output_tokens} out; each has to be 1 to {LONGEST:,}")
    return found


def _refuse(reason: str) -> RequestArrival:
    raise ValueError(reason)
