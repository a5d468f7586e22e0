"""The command line: ``python -m benchmarks.gpu --json FILE [--only PART]... [--device cpu] [--minutes 9]``."""

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.gpu.campaign import (
    FINE,
    SHARES_S,
    Campaign,
    NotWritableError,
    Result,
    check_writable,
    parts_on,
)
from benchmarks.gpu.machine import Machine, UnusableError, find_machine
from benchmarks.provenance import provenance, stolen_now_s


class DeviceName(StrEnum):
    """Where engines run."""

    CUDA = "cuda"
    CPU = "cpu"


def campaign(
    json: Annotated[Path, typer.Option(help="Where results go, all the time.")],
    only: Annotated[list[str] | None, typer.Option(help="A part; may be given several times.")] = None,
    device: Annotated[DeviceName, typer.Option(help="cpu rehearses with tiny shapes.")] = DeviceName.CUDA,
    minutes: Annotated[float, typer.Option(min=0.1, help="For all parts together.")] = 9.0,
) -> None:
    """Run everything that has to be seen on a GPU, most valuable first."""
    names = only or list(SHARES_S)
    if unknown := [name for name in names if name not in SHARES_S]:
        _refuse(f"--only {unknown[0]}: there are {', '.join(SHARES_S)}")
    try:
        check_writable(json)
        machine = find_machine(device.value)
    except (NotWritableError, UnusableError) as problem:
        _refuse(str(problem))
    parameters = {"parts": names, "device": machine.device, "minutes": minutes}
    results = run(json, machine, parameters)
    Console().print(table(results))
    sys.exit(int(any(result.status not in FINE for result in results)))


def run(file: Path, machine: Machine, parameters: dict[str, Any]) -> list[Result]:
    """Run the parts that the parameters name; all that is known is in the file all the time."""
    about = {"warnings": machine.warnings, "parameters": parameters, "machine": asdict(machine)}
    running = Campaign(file, {"benchmark": "gpu", "kind": machine.kind, **provenance(), **about}, _hear)
    for warning in machine.warnings:
        _hear(f"warning: {warning}")
    running.run(parts_on(machine, parameters["parts"]), 60 * parameters["minutes"])
    running.add(stolen_after_s=stolen_now_s())
    return running.results


def table(results: list[Result]) -> Table:
    """What became of each part."""
    found = Table("part", "status", "seconds", "rows", "skipped", "not reached", "why")
    for result in results:
        skipped = sum(bool(row.get("skipped")) for row in result.rows)
        counts = map(str, (round(result.seconds, 1), len(result.rows), skipped, len(result.not_reached)))
        found.add_row(result.part, result.status, *counts, result.reason or "")
    return found


def _hear(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _refuse(problem: str) -> None:
    print(f"error: {problem}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    typer.run(campaign)
