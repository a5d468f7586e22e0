"""Traces of requests, as they are published or kept, and the load that each stands for. Pure."""

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NoReturn

import numpy as np

from selector.models import Spread, Workload, WorkloadError
from selector.performance.load import LONGEST
from selector.performance.simulator import RequestArrival

LATEST_S = 1e11
"""Of an arrival; beyond, the time of a step is lost in the digits of a moment."""
EXAMPLES = 3
"""Bad rows that are named."""
HASHED_TOKENS = 512
"""Of a prompt, for each of its ``hash_ids`` (Mooncake)."""
PACE_S = 0.05
"""Taken for a token of an answer, to tell by Little's law how many requests of a trace are in flight."""
LEAST_BURSTINESS = 0.05
"""No gamma distribution has none."""
EDGES = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
"""Shares of the requests between which the bins of a trace's histogram lie."""
Lengths = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in order of arrival, the first at 0 s, and what could not be read."""

    arrivals: tuple[RequestArrival, ...]
    bad_rows: int
    examples: tuple[str, ...]
    """The first bad rows, each with its line and why."""
    prefix_hit: float = 0.0
    """Share of the prompts' tokens that a prefix cache without bounds would hold, where the trace tells."""


def read_trace(text: str, name: str) -> Trace:
    """Read a trace of arrivals from CSV or lines of JSON; count and leave out bad rows.

    CSV: ``TIMESTAMP,ContextTokens,GeneratedTokens`` (Azure) or ``arrival_s,input_tokens,output_tokens``.
    JSON: ``timestamp`` in ms, ``input_length`` and ``output_length`` (Mooncake).

    Raises:
        WorkloadError: neither format, or not one good row.
    """
    first = text.lstrip("\ufeff \r\n").split("\n", 1)[0].strip()
    is_json = first.startswith("{")
    if is_json:
        read = _mooncake
    elif "ContextTokens" in first:
        read = _azure
    elif {"arrival_s", "input_tokens", "output_tokens"} <= set(first.split(",")):
        read = _plain
    else:
        raise WorkloadError(
            f"{name}: no trace; its first line should be TIMESTAMP,ContextTokens,GeneratedTokens or "
            "arrival_s,input_tokens,output_tokens or a JSON object with timestamp, input_length and output_length"
        )
    good = []
    bad = []
    for line, row in _json_rows(text) if is_json else _csv_rows(text):
        try:
            good.append((read(row), _hashes(row)) if isinstance(row, Mapping) else _refuse("not an object"))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            bad.append(f"line {line}: {_reason(error)}")
    if not good:
        raise WorkloadError(f"{name}: not one readable request; {'; '.join(bad[:EXAMPLES]) or 'it has no rows'}")
    good.sort(key=lambda request: request[0].at_s)
    start_s = good[0][0].at_s
    shifted = tuple(
        RequestArrival(arrival.at_s - start_s, arrival.input_tokens, arrival.output_tokens) for arrival, _ in good
    )
    return Trace(shifted, len(bad), tuple(bad[:EXAMPLES]), _hit_share(good))


def _hit_share(requests: Sequence[tuple[RequestArrival, Sequence[str]]]) -> float:
    """Of the prompts' tokens, what requests before had in the same place."""
    known = set[str]()
    hits = 0
    for arrival, hashes in requests:
        count = next((place for place, block in enumerate(hashes) if block not in known), len(hashes))
        hits += min(count * HASHED_TOKENS, arrival.input_tokens - 1)  # the last one is computed anyway
        known.update(hashes)
    return hits / sum(arrival.input_tokens for arrival, _ in requests)


def workload_of(trace: Trace, name: str) -> Workload:
    """The load that a trace stands for, with one request in flight; its rate is 0 where it takes no time."""
    arrivals = trace.arrivals
    span_s = arrivals[-1].at_s
    inputs = np.array([arrival.input_tokens for arrival in arrivals], dtype=float)
    outputs = np.array([arrival.output_tokens for arrival in arrivals], dtype=float)
    return Workload(
        rate_rps=(len(arrivals) - 1) / span_s if span_s else 0.0,
        input_tokens=round(inputs.mean()),
        output_tokens=round(outputs.mean()),
        concurrency=1,
        inputs=_spread(inputs, name),
        outputs=_spread(outputs, name),
        burstiness=burstiness([arrival.at_s for arrival in arrivals]),
        prefix_hit=trace.prefix_hit,
    )


def in_flight(load: Workload) -> int:
    """Requests at once, by Little's law."""
    return max(1, math.ceil(load.rate_rps * load.output_tokens * PACE_S))


def _spread(lengths: Lengths, name: str) -> Spread:
    """A bin for each tenth of the lengths, and the longest tenth in three: each by its mean."""
    ordered = np.sort(lengths) / lengths.mean()
    bins = [part for part in np.split(ordered, (EDGES * len(ordered)).round().astype(int)) if len(part)]
    histogram = tuple((float(part.mean()), len(part) / len(ordered)) for part in bins)
    return Spread(float(np.quantile(ordered, 0.95)), histogram, f"trace {name}")


def burstiness(moments_s: Sequence[float]) -> float:
    """Coefficient of variation of the times between moments in order; 1 where there are too few to tell."""
    gaps = np.diff(moments_s)
    if len(gaps) < 2 or not gaps.any():
        return 1.0
    return max(LEAST_BURSTINESS, float(gaps.std() / gaps.mean()))


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
    if not abs(at_s) <= LATEST_S:
        _refuse(f"arrival at {at_s}")
    if not (1 <= found.input_tokens <= LONGEST and 1 <= found.output_tokens <= LONGEST):
        _refuse(f"{found.input_tokens} tokens in and {found.output_tokens} out; each has to be 1 to {LONGEST:,}")
    return found


def _hashes(row: Mapping[str, object]) -> list[str]:
    """Of the blocks of its prompt, each with all before it."""
    hashes = row.get("hash_ids", [])
    return list(map(str, hashes)) if isinstance(hashes, list) else _refuse(f"hash_ids is {hashes!r}, not a list")


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
