"""What the KV connector costs while nothing is switched: throughput of vLLM with it and without it.

Two vLLM engines stay up, one with the connector; they generate by turns, so that one is busy at a time.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.engines import Subject
from benchmarks.provenance import provenance
from benchmarks.sides import EngineEndedError, Side, by_turns, side
from intentctl.arguments import EngineName

CONNECTOR = "runtime.vllm_engine.connector.hooked:KvConnector"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when an engine ended."""
    options = parser().parse_args(arguments)
    try:
        rates = measure(options)
    except EngineEndedError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    parameters = {name: value for name, value in vars(options).items() if name != "json"}
    document = {
        "benchmark": "connector_overhead",
        **provenance(),
        "parameters": parameters,
        **summary(*rates),
    }
    print("\n".join(lines(document)))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.connector_overhead", description=__doc__)
    found.add_argument("--runs", type=int, default=9, help="runs of each side, by turns")
    found.add_argument("--streams", type=int, default=12, help="requests of one run")
    found.add_argument("--context", type=int, default=300, help="prompt tokens of the longest request")
    found.add_argument("--output", type=int, default=300, help="tokens each request generates")
    found.add_argument("--connector", default=CONNECTOR, metavar="MODULE:CLASS")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def measure(options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Tokens per second of each run without and with the connector.

    Raises:
        EngineEndedError: one did not start or broke.
    """
    with (
        _side("without connector", options, []) as without,
        _side("with connector", options, ["--connector", options.connector]) as with_it,
    ):
        rates = by_turns([without, with_it], options.runs, options.streams)
    return rates[without.name], rates[with_it.name]


def _side(name: str, options: argparse.Namespace, more: list[str]) -> AbstractContextManager[Side]:
    checkpoint = str(Subject.example(EngineName.VLLM).checkpoint)
    sizes = ["--context", str(options.context), "--output", str(options.output)]
    return side(name, "benchmarks.vllm_throughput", [checkpoint, *sizes, *more])


def summary(without: Sequence[float], with_it: Sequence[float]) -> dict[str, Any]:
    """The share of throughput that the connector takes: the median over neighbouring runs. Pure."""
    overheads = [1 - b / a for a, b in zip(without, with_it, strict=True)]
    return {
        "overhead": round(statistics.median(overheads), 4),
        "overheads": [round(overhead, 4) for overhead in overheads],
        "tokens_per_s_without": round(statistics.median(without), 1),
        "tokens_per_s_with": round(statistics.median(with_it), 1),
        "runs_without": [round(rate, 1) for rate in without],
        "runs_with": [round(rate, 1) for rate in with_it],
    }


def lines(document: dict[str, Any]) -> list[str]:
    """The summary for people."""
    overheads = document["overheads"]
    return [
        f"without connector  {document['tokens_per_s_without']:,.0f} tokens/s, median of {len(overheads)} runs",
        f"with connector     {document['tokens_per_s_with']:,.0f} tokens/s",
        f"overhead           {document['overhead']:.1%}, from {min(overheads):.1%} to {max(overheads):.1%} per pair of runs",
    ]


if __name__ == "__main__":
    sys.exit(main())
