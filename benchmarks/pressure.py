"""What switching gains under a load whose pattern shifts: ``python -m benchmarks.pressure [--part simulated,live]``.

PipeLive's load: 512 tokens in and 16 out by turns with 128 in and 512 out. Switching to what is best for each beside three
choices that stay: in virtual time on A100 and L40S, and live on the built-in engine; benchmarks/README.md says how.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.engines import Subject
from benchmarks.parameters import UsageError, parse_numbers
from benchmarks.patterns import table
from benchmarks.pressure_live import Live, run_live, splits
from benchmarks.pressure_simulated import Costs, Simulation, measured, simulated
from benchmarks.provenance import provenance
from benchmarks.search import sizes
from intentctl.arguments import EngineName
from runtime.errors import RuntimeFault
from selector.models import shape

Document = dict[str, Any]
PARTS = ("simulated", "live")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    parts: tuple[str, ...]
    simulations: tuple[Simulation, ...]
    costs: Costs
    live: Live

    def check(self, subject: Subject) -> None:
        """Refuse what cannot be run.

        Raises:
            UsageError, UnsupportedModelError: naming the value.
        """
        if unknown := [part for part in self.parts if part not in PARTS]:
            raise UsageError(f"--part {unknown[0]}: there are {' and '.join(PARTS)}")
        for one in self.simulations:
            shape(one.model)
            if not (math.isfinite(one.load) and one.load > 0):
                raise UsageError(
                    f"--loads {one.load:g}: a load is more than 0, and 1 is all that the best choice sustains"
                )
            if min(one.phases, one.num_requests) < 1:
                raise UsageError("--phases and --requests must be at least 1")
        live = self.live
        if min(live.clients, live.num_requests, live.rounds, live.phases) < 1 or live.scale <= 0:
            raise UsageError("--clients, --live-requests, --rounds, --phases and --scale must be more than 0")
        if "live" in self.parts:
            splits(live, subject.spec)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when the live part broke, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    subject = Subject.example(EngineName.TORCH)
    document: Document = {"benchmark": "pressure", **provenance(), "load_average": os.getloadavg()}
    try:
        parameters = parameters_of(options)
        parameters.check(subject)
        document |= {"parameters": asdict(parameters), **results(parameters, subject)}
    except (UsageError, RuntimeFault) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    document["load_average_after"] = os.getloadavg()
    text = json.dumps(document, indent=1) + "\n"
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    print(text if options.format == "json" else "\n\n".join(map(block, document["results"])))
    for error in document["errors"]:
        print(f"error: {error}", file=sys.stderr)
    return int(bool(document["errors"]))


def results(parameters: Parameters, subject: Subject) -> Document:
    """Each part; a live part that breaks leaves why.

    Raises:
        UsageError: the selector has no choice for a simulation, or two choices do not fit side by side.
    """
    found, errors = list[Document](), list[str]()
    if "simulated" in parameters.parts:
        for one in parameters.simulations:
            found.append(simulated(one, parameters.costs))
            turned = simulated(replace(one, aligned=True), parameters.costs)
            if turned["choices"] != found[-1]["choices"]:
                found.append(turned)
    if "live" in parameters.parts:
        try:
            found.append(asyncio.run(run_live(parameters.live, subject)))
        except RuntimeFault as problem:
            errors.append(f"live: {type(problem).__name__}: {problem}")
    return {"results": found, "errors": errors}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.pressure", description=__doc__)
    found.add_argument("--part", default="simulated,live", help="simulated, live, or both joined by a comma")
    found.add_argument("--phases", type=int, default=4, help="times of one pattern, which take turns")
    found.add_argument("--seed", type=int, default=0, help="of the arrivals, and where prompts begin to count")
    group = found.add_argument_group("simulated")
    group.add_argument("--models", default="llama-2-13b:1+1,llama-3-70b:4+4", help="each with its A100 + L40S")
    group.add_argument("--loads", default="0.8,1", help="rates, by what the best choice of each pattern sustains")
    group.add_argument("--requests", default="200,2000", help="requests of a phase; a case for each number")
    group.add_argument("--stop-ms", type=float, help="a switch's stop; without it, results/cutover-torch.json's")
    group.add_argument("--prepare-s", type=float, help="what it takes to prepare at least; the same")
    group.add_argument("--syncing-ratio", type=float, help="TPOT meanwhile by before; results/overhead.json's")
    group = found.add_argument_group("live")
    group.add_argument("--memory-mb", default="76,25", help="of the two CPU slots")
    group.add_argument("--clients", type=int, default=24, help="each asks when its last request has ended")
    group.add_argument("--live-requests", type=int, default=40, help="requests of a phase")
    group.add_argument("--rounds", type=int, default=3, help="times that every choice serves the load, by turns")
    group.add_argument("--scale", type=float, default=1.0, help="of the patterns' lengths")
    found.add_argument("-o", choices=("table", "json"), default="table", dest="format", help="what to print")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything")
    return found


def parameters_of(options: argparse.Namespace) -> Parameters:
    """What the command line means.

    Raises:
        UsageError: a part of it that cannot be read, or results that are not there.
    """
    cases = itertools.product(
        options.models.split(","),
        parse_numbers("--requests", options.requests),
        _floats("--loads", options.loads),
    )
    memory_mb = _floats("--memory-mb", options.memory_mb)
    if len(memory_mb) != 2:
        raise UsageError(f"--memory-mb {options.memory_mb!r}: write two numbers joined by a comma, as in 76,25")
    return Parameters(
        parts=tuple(options.part.split(",")),
        simulations=tuple(
            Simulation(*parse_model(model), load, options.phases, count, options.seed) for model, count, load in cases
        ),
        costs=costs_of(options),
        live=Live(
            memory_mb=(memory_mb[0], memory_mb[1]),
            clients=options.clients,
            phases=options.phases,
            num_requests=options.live_requests,
            scale=options.scale,
            rounds=options.rounds,
            seed=options.seed,
        ),
    )


def costs_of(options: argparse.Namespace) -> Costs:
    """What was said, and the rest from the results.

    Raises:
        UsageError: these are not there, or what was said is no cost.
    """
    said = (options.stop_ms, options.syncing_ratio, options.prepare_s)
    if any(one is not None and not 0 <= one < math.inf for one in said) or options.syncing_ratio == 0:
        raise UsageError("--stop-ms and --prepare-s must be 0 or more, --syncing-ratio more than 0")
    is_asked = None in said and "simulated" in options.part.split(",")
    found = measured() if is_asked else Costs(0.0, 1.0, 0.0)
    return Costs(
        stop_s=found.stop_s if options.stop_ms is None else options.stop_ms / 1000,
        syncing_ratio=options.syncing_ratio or found.syncing_ratio,
        prepare_s=found.prepare_s if options.prepare_s is None else options.prepare_s,
    )


def parse_model(text: str) -> tuple[str, tuple[int, int]]:
    """``llama-2-13b:1+1``: a model and its A100 and L40S.

    Raises:
        UsageError: it is not that.
    """
    model, _, devices = text.rpartition(":")
    try:
        (found,) = sizes(devices)
    except (argparse.ArgumentTypeError, ValueError):
        raise UsageError(f"--models {text!r}: write a model and its devices, as in llama-2-13b:1+1") from None
    return model, found


def _floats(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}: write numbers joined by commas, as in 0.8,1") from None


def block(found: Document) -> str:
    """One result for people."""
    lines = table(found)
    if found["kind"] == "live":
        title = f"live: {found['num_requests']} requests a phase, {found['clients']} clients, {found['rounds']} rounds"
        kv = ", ".join(f"{name} {count}" for name, count in found["kv_blocks"].items())
        return "\n".join([title, *lines, f"KV blocks: {kv}, beside one another {found['kv_blocks_beside']}"])
    a100, l40s = found["devices"]
    title = f"simulated: {found['model']} on {a100} A100 + {l40s} L40S, {found['num_requests']} requests a phase"
    order = ", stages in the order that moves least" if found["aligned"] else ""
    return "\n".join([f"{title}, load {found['load']:g}{order}", *lines])


if __name__ == "__main__":
    sys.exit(main())
