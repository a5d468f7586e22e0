"""Logits of the built-in engine's ranks beside those of transformers, with the same random weights.

float32 is held against a bound. bfloat16 is held against transformers' float32 as well, and may be off by what transformers'
own bfloat16 is off, and half of that.
"""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, Rows
from benchmarks.gpu.shapes import folder_of
from benchmarks.gpu.sizes import SIZES, Logits
from benchmarks.provenance import ROOT

SHAPES = ("1x1", "2x1", "1x2", "2x2")
"""TP x PP."""
BOUND = 1e-4
"""Relative error of float32: sums in another order."""
SLACK = 1.5
"""bfloat16: by how much of transformers' own error."""
FLAT = 1.0
"""Logits with a smaller standard deviation would hide a mistake."""


class ComputingError(Exception):
    """A process that computes logits ended early; its last line."""


def run(machine: Machine, rows: Rows) -> None:
    """A row for each shape, topology and precision, as soon as it is there."""
    sizes = SIZES[machine.device].logits
    rows.plan(f"{name} {case}" for name in sizes.shapes for case in _cases(sizes))
    for name, config in sizes.shapes.items():
        with folder_of(config, name) as folder, TemporaryDirectory() as temporary:
            out = Path(temporary)
            try:
                _reference(folder, out, machine, sizes)
            except ComputingError as problem:
                for case in _cases(sizes):
                    rows.say(f"{name} {case}", {"problem": f"transformers: {problem}"})
                continue
            for shape in _ranks(folder, out, machine, sizes):
                for precision in sizes.precisions:
                    rows.take(f"{name} {shape} {precision}", partial(compared, out, shape, precision))


def _cases(sizes: Logits) -> list[str]:
    return [f"{shape} {precision}" for shape in SHAPES for precision in sizes.precisions]


def _reference(folder: Path, out: Path, machine: Machine, sizes: Logits) -> None:
    length, precisions = str(sum(sizes.chunks)), ",".join(dict.fromkeys(("fp32", *sizes.precisions)))
    command = [folder, out, machine.device, length, precisions]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu.reference", *command],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ComputingError(_last(done.stderr))


def _ranks(folder: Path, out: Path, machine: Machine, sizes: Logits) -> Iterator[str]:
    """Each topology when its ranks are done, those that failed at the end."""
    chunks, precisions = ",".join(map(str, sizes.chunks)), ",".join(sizes.precisions)
    command = [sys.executable, "-m", "benchmarks.gpu.random_ranks", folder, out, machine.kind, chunks]
    left = list(SHAPES)
    with subprocess.Popen(
        [*command, precisions, *SHAPES], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as ranks:
        assert ranks.stdout is not None, "it was asked for"
        for line in ranks.stdout:
            if (shape := line.strip()) in left:
                left.remove(shape)
                yield shape
    yield from left


def compared(out: Path, shape: str, precision: str) -> Row:
    """How far the logits of a topology are from transformers' in float32.

    Raises:
        ComputingError: there are none.
    """
    file = out / f"{shape}-{precision}.pt"
    if not file.exists():
        raise ComputingError("the ranks ended before they had logits; see what they said")
    exact: torch.Tensor = torch.load(out / "transformers-fp32.pt")
    row = distance(torch.load(file), exact)
    if precision == "fp32":
        return judged({**row, "bound": BOUND})
    theirs = distance(torch.load(out / f"transformers-{precision}.pt"), exact)
    usual = theirs["relative_error"]
    return judged({**row, "transformers_relative_error": usual, "bound": SLACK * usual})


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


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it ended without a word"
