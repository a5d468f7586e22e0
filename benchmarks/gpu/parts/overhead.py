"""By how much steps are slower while a switch copies KV."""

import asyncio
from dataclasses import replace
from functools import partial

from benchmarks.engines import Demand, Subject
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.random_weights import random_engine_of
from benchmarks.gpu.room import needed_for
from benchmarks.gpu.rows import Row, Rows, SkippedError
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES
from benchmarks.overhead import Parameters, run_all


class OverheadError(Exception):
    """A switch or a stream broke; the message says which."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each pair of topologies."""
    sizes = SIZES[machine.device]
    with folder_of(sizes.overhead_shape, "overhead") as folder:
        subject = Subject(
            folder,
            spec_of(sizes.overhead_shape, "overhead"),
            machine.cluster,
            sizes.precision,
            torch_engine=random_engine_of,
        )
        rows.take_each(
            {
                "-".join(pair): partial(measured, machine, subject, replace(sizes.overhead, pairs=(pair,)))
                for pair in sizes.overhead.pairs
            }
        )


def measured(machine: Machine, subject: Subject, parameters: Parameters) -> Row:
    """Both directions of a pair.

    Raises:
        SkippedError: it does not fit.
        OverheadError: it broke.
    """
    demand = Demand(parameters.streams, parameters.context + parameters.output, parameters.standby)
    limits = SIZES[machine.device].limits(machine)
    needed = needed_for(subject, parameters.pairs[0], demand, (parameters.context, parameters.output))
    if not needed.fits(limits):
        raise SkippedError(f"{needed}, and {limits.device_bytes / 1e9:.1f} GB may be used")
    document = asyncio.run(run_all(parameters, subject))
    if document["errors"]:
        raise OverheadError("; ".join(document["errors"]))
    return {name: document[name] for name in ("parameters", "directions", "switches")}
