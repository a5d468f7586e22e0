"""What the idle connector takes of vLLM's throughput: two engines by turns, one without it."""

from argparse import Namespace

from benchmarks.connector_overhead import CONNECTOR, measure, summary
from benchmarks.gpu.heard import ChangedError
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.parts.vllm_gates import why_not
from benchmarks.gpu.rows import Row, Rows, SkippedError
from benchmarks.sides import EngineEndedError

RUNS = {"cuda": (7, 64, 300), "cpu": (1, 2, 40)}
"""Pairs of runs, streams of each, tokens of prompt and output."""


def run(machine: Machine, rows: Rows) -> None:
    """One row."""
    rows.take_each({"idle connector": lambda: measured(machine)})


def measured(machine: Machine) -> Row:
    """Throughput with it and without it.

    Raises:
        SkippedError: there is no vLLM.
        ChangedError: an engine ended.
    """
    if reason := why_not():
        raise SkippedError(reason)
    runs, streams, length = RUNS[machine.device]
    try:
        rates = measure(Namespace(runs=runs, streams=streams, context=length, output=length, connector=CONNECTOR))
    except EngineEndedError as problem:
        raise ChangedError(str(problem)) from problem
    return summary(*rates)
