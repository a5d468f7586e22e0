"""Logits of the built-in engine's ranks beside those of transformers, with the same random weights.

float32 is held against a bound. bfloat16 is held against transformers' float32 as well, and may be off by what transformers'
own bfloat16 is off, and half of that.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.room import standing_bytes, too_little
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of, spec_of
from benchmarks.gpu.sizes import SIZES, Logits
from benchmarks.provenance import ROOT
from runtime.notation import parse_topology

SHAPES = ("1x1", "2x1", "1x2", "2x2")
"""TP x PP."""
BOUND = 1e-4
"""Relative error of float32: sums in another order."""
SLACK = 1.5
"""bfloat16: by how much of transformers' own error."""
FLAT = 1.0
"""Logits with a smaller standard deviation would hide a mistake."""


class ComputingError(Exception):
    """A process that computes logits ended before it had them."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each shape, topology and precision, as soon as it is there."""
    sizes = SIZES[machine.device].logits
    rows.plan(f"{name} {case}" for name in sizes.shapes for case in _cases(sizes))
    if reason := too_little(SIZES[machine.device].limits(machine), needed_bytes(machine, sizes)):
        rows.skip((f"{name} {case}" for name in sizes.shapes for case in _cases(sizes)), reason)
        return
    with ExitStack() as stack:
        folders = {name: stack.enter_context(folder_of(shape, name)) for name, shape in sizes.shapes.items()}
        _reference(folders.values(), machine, sizes)
        for name, folder in folders.items():
            for shape in _ranks(folder, machine, sizes):
                for precision in sizes.precisions:
                    rows.take(f"{name} {shape} {precision}", partial(compared, folder, shape, precision))


def _cases(sizes: Logits) -> list[str]:
    return [f"{shape} {precision}" for shape in SHAPES for precision in sizes.precisions]


def needed_bytes(machine: Machine, sizes: Logits) -> int:
    """Device memory of the largest: four ranks; transformers' one process has less."""
    specs = [spec_of(config, name) for name, config in sizes.shapes.items()]
    ways = [parse_topology("tp2pp2", machine.cluster, spec.num_layers, "fp32") for spec in specs]
    every = zip(specs, ways, strict=True)
    return max(standing_bytes(spec, [way], sum(sizes.chunks), 1) for spec, way in every)


def _reference(folders: Iterable[Path], machine: Machine, sizes: Logits) -> None:
    """What it could not compute is missed when logits are compared."""
    length, precisions = str(sum(sizes.chunks)), ",".join(dict.fromkeys(("fp32", *sizes.precisions)))
    command = [sys.executable, "-m", "benchmarks.gpu.reference", machine.device, length, precisions]
    subprocess.run([*command, *folders], cwd=ROOT, check=False)


def _ranks(folder: Path, machine: Machine, sizes: Logits) -> Iterator[str]:
    """Each topology when its ranks are done, those that failed at the end."""
    chunks, precisions = ",".join(map(str, sizes.chunks)), ",".join(sizes.precisions)
    name = str(folder)
    command = [sys.executable, "-m", "benchmarks.gpu.random_ranks", name, name, machine.kind, chunks]
    left = list(SHAPES)
    with subprocess.Popen([*command, precisions, *SHAPES], cwd=ROOT, stdout=subprocess.PIPE, text=True) as ranks:
        assert ranks.stdout is not None, "it was asked for"
        for line in ranks.stdout:
            if (shape := line.strip()) in left:
                left.remove(shape)
                yield shape
    yield from left


def compared(folder: Path, shape: str, precision: str) -> Row:
    """How far the logits of a topology are from transformers' in float32.

    Raises:
        ComputingError: there are none, of one or the other.
    """
    ours, exact = _saved(folder / f"{shape}-{precision}.pt"), _saved(folder / "transformers-fp32.pt")
    row = distance(ours, exact)
    if precision == "fp32":
        return judged({**row, "bound": BOUND})
    theirs = distance(_saved(folder / f"transformers-{precision}.pt"), exact)
    usual = theirs["relative_error"]
    return judged({**row, "transformers_relative_error": usual, "bound": SLACK * usual})


def _saved(file: Path) -> torch.Tensor:
    if not file.exists():
        raise ComputingError(f"there is no {file.name}: what computes it ended early; see what it said")
    logits: torch.Tensor = torch.load(file)
    return logits


def distance(logits: torch.Tensor, exact: torch.Tensor) -> Row:
    """Over all positions."""
    if logits.shape != exact.shape:
        raise ComputingError(f"logits are {tuple(logits.shape)}, not {tuple(exact.shape)}")
    error = (logits - exact).double()
    return {
        "relative_error": float(error.norm() / exact.double().norm()),
        "worst_difference": float(error.abs().max()),
        "same_argmax": float((logits.argmax(-1) == exact.argmax(-1)).double().mean()),
        "deviation": float(exact.std()),
    }


def judged(row: Row) -> Row:
    """The same with what is wrong; what is no number is."""
    if not row["relative_error"] <= row["bound"]:
        return {**row, "problem": f"relative error {row['relative_error']:.2g}, over {row['bound']:.2g}"}
    if not row["deviation"] >= FLAT:
        return {
            **row,
            "problem": f"logits deviate by {row['deviation']:.2g} only: too flat to show a difference",
        }
    return row
