"""Everything that has to be seen on a GPU, most valuable first: ``python -m benchmarks.gpu --json FILE``.

What each part has found is in the file all the time. benchmarks/README.md says what the parts are.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gpu.campaign import (
    FINE,
    SHARES_S,
    Campaign,
    NotWritableError,
    Result,
    check_writable,
    parts_here,
    parts_on,
)
from benchmarks.gpu.machine import Machine, UnusableError, find_machine
from benchmarks.parameters import UsageError
from benchmarks.provenance import ROOT, provenance, stolen_now_s

Document = dict[str, Any]

RESULTS = ROOT / "benchmarks" / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; 1 when a part did not go well, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    try:
        names = names_of(options.only)
        check_writable(options.json or RESULTS / "gpu.json")
        machine = find_machine(options.device)
        file = options.json or RESULTS / f"gpu-{machine.kind}.json"
        asked = {"parts": names, "device": options.device, "minutes": options.minutes}
        results = run(file, machine, asked)
    except (UsageError, NotWritableError, UnusableError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: what was found is in the file", file=sys.stderr)
        return 130
    Console().print(table(results))
    return int(any(result.status not in FINE for result in results))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__)
    found.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where results go; benchmarks/results/gpu-KIND.json if unsaid",
    )
    found.add_argument(
        "--only", action="append", metavar="PART", help=f"may be given several times: {', '.join(SHARES_S)}"
    )
    found.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu rehearses with tiny shapes")
    found.add_argument("--minutes", type=minutes, default=9.0, help="for all parts together")
    return found


def minutes(text: str) -> float:
    """More than none."""
    if not 0 < (found := float(text)) < 10_000:
        raise argparse.ArgumentTypeError(f"{text} is no time to run for")
    return found


def names_of(only: Sequence[str] | None) -> list[str]:
    """The parts that are asked for; where none is named all, those of vLLM if it is installed.

    Raises:
        UsageError: there is no such part.
    """
    for name in only or ():
        if name not in SHARES_S:
            raise UsageError(f"--only {name}: there are {', '.join(SHARES_S)}")
    return list(only or parts_here(has_vllm=find_spec("vllm") is not None))


def run(file: Path, machine: Machine, parameters: Document) -> list[Result]:
    """Run the parts that the parameters name; all that is known is in the file all the time.

    Raises:
        NotWritableError: the file cannot be written any more.
    """
    about = {"warnings": machine.warnings, "parameters": parameters, "machine": asdict(machine)}
    running = Campaign(file, {"benchmark": "gpu", "kind": machine.kind, **provenance(), **about}, _hear)
    for warning in machine.warnings:
        _hear(f"warning: {warning}")
    running.run(parts_on(machine, parameters["parts"]), 60 * parameters["minutes"])
    running.add(stolen_after_s=stolen_now_s())
    return running.results


def table(results: Sequence[Result]) -> Table:
    """What became of each part."""
    found = Table("part", "status", "seconds", "rows", "skipped", "not reached", "why")
    for result in results:
        skipped = sum(bool(row.get("skipped")) for row in result.rows)
        counts = map(str, (round(result.seconds, 1), len(result.rows), skipped, len(result.not_reached)))
        found.add_row(result.part, result.status, *counts, result.reason or "")
    return found


def _hear(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
