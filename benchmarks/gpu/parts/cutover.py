"""What a cut costs streams of large models: the engine's patch beside stop-and-copy, sham cuts beside both."""

import asyncio
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.case import Case, run_case
from benchmarks.engines import OwnPath, Subject
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.random_weights import random_engine_of
from benchmarks.gpu.room import Limits, Needed, choose
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Cutover, Sizes
from benchmarks.parameters import Parameters
from benchmarks.report import run_document
from intentctl.arguments import EngineName

MODES: tuple[OwnPath, ...] = ("patch", "stop-and-copy")
BLOCK_TOKENS = 16
"""Of a KV block: with fewer tokens less of a short stream's last one is in vain."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each case and mode; first those that do not fit, which take no time."""
    sizes = SIZES[machine.device]
    limits = sizes.limits(machine)
    with ExitStack() as stack:
        folders = {one.name: stack.enter_context(folder_of(one.shape, one.name)) for one in sizes.cutovers}
        fitting, others = list[tuple[Cutover, Subject, Needed]](), list[tuple[Cutover, Needed]]()
        for one in sizes.cutovers:
            subject = subject_of(machine, sizes, one, folders[one.name])
            needed = choose(subject, one.pair, one.active, limits)
            if needed.fits(limits):
                fitting.append((one, subject, needed))
            else:
                others.append((one, needed))
        rows.plan(f"{name_of(one)} {mode}" for one in sizes.cutovers for mode in MODES)
        for one, needed in others:
            for mode in MODES:
                rows.say(f"{name_of(one)} {mode}", {"skipped": why_not(needed, limits), **figures(needed)})
        for one, subject, needed in fitting:
            for mode in MODES:
                rows.take(f"{name_of(one)} {mode}", partial(measured, machine, one, (subject, needed), mode))


def subject_of(machine: Machine, sizes: Sizes, one: Cutover, folder: Path) -> Subject:
    """A model with random weights on the one device."""
    return Subject(
        folder,
        spec_of(one.shape, one.name),
        machine.cluster,
        sizes.precision,
        torch_engine=random_engine_of,
        block_tokens=BLOCK_TOKENS,
    )


def name_of(one: Cutover) -> str:
    """Without the mode."""
    return f"{one.name} {'-'.join(one.pair)} {one.active} streams"


def why_not(needed: Needed, limits: Limits) -> str:
    """Why a case is skipped, with the figures."""
    may = f"{limits.device_bytes / 1e9:.1f} GB and {limits.host_bytes / 1e9:.1f} GB may be used"
    return f"even the shortest streams, {needed}, and {may}"


def figures(needed: Needed) -> Row:
    """What a case takes by the footprint."""
    return {
        "context": needed.context,
        "output": needed.output,
        "device_bytes_needed": needed.device_bytes,
        "host_bytes_needed": needed.host_bytes,
    }


def measured(machine: Machine, one: Cutover, fitted: tuple[Subject, Needed], mode: OwnPath) -> Row:
    """Run one case.

    Raises:
        UsageError, TopologyError: it cannot be run.
    """
    subject, needed = fitted
    parameters = Parameters(
        EngineName.TORCH,
        (mode,),
        (one.pair,),
        (one.active,),
        (one.switches,),
        (needed.context,),
        needed.output,
    )
    parameters.check(subject)
    case = Case(parameters, subject, mode, one.pair, one.active, needed.context)
    document = run_document(asyncio.run(run_case(case)), machine.copy_bytes_s)
    lost = document["tokens_lost"], document["tokens_duplicated"]
    problem = document["error"] or (f"{lost[0]} tokens lost, {lost[1]} duplicated" if any(lost) else None)
    return {**figures(needed), **document, "problem": problem}
