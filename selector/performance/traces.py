"""Traces of requests, as they are published or kept. Pure."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from selector.models import WorkloadError
from selector.performance.simulator import RequestArrival
from selector.performance.work import LONGEST

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
