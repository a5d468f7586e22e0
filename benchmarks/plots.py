"""The pictures of docs/plots: ``python -m benchmarks.plots [--out docs/plots]``.

``splits.svg`` is the throughput of every split of a 64-layer model over an A100 and an L40S, for a load that is mostly prompts
and one that is mostly answers; ``predicted.svg`` is every prediction beside its published measurement.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.patterns import DECODE, PREFILL
from benchmarks.pictures import Pair, SplitCurve, draw_pairs, draw_splits, split_curve, within
from benchmarks.predict import compare
from benchmarks.provenance import ROOT
from benchmarks.published import rows
from intentctl.status import CommandError
from selector.models import ALIKE, Workload

KINDS = ("A100", "L40S")
MODEL = "qwen2.5-32b"
LOADS = {str(one): (one.input_tokens, one.output_tokens) for one in (PREFILL, DECODE)}
FIGURES = {
    "ttft": "TTFT (ms)",
    "tpot": "TPOT (ms)",
    "throughput": "throughput (output tokens/s)",
    "saturation": "throughput (output tokens/s)",
}
BAND = 0.15


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw both, and print what they show."""
    parser = argparse.ArgumentParser("python -m benchmarks.plots", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "plots", help="folder of the pictures")
    out = parser.parse_args(arguments).out
    curves, found = splits(), pairs()
    try:
        out.mkdir(parents=True, exist_ok=True)
        draw_splits(curves, out / "splits.svg")
        draw_pairs(found, BAND, out / "predicted.svg")
    except (OSError, CommandError) as error:
        raise SystemExit(f"{out}: {error}") from error
    print(*table(curves, found), sep="\n")
    return 0


def splits() -> list[SplitCurve]:
    """Throughput over splits, a curve for each load."""
    return [split_curve(label, KINDS, MODEL, Workload(1, *tokens, 1, ALIKE, ALIKE)) for label, tokens in LOADS.items()]


def pairs() -> list[Pair]:
    """Every published figure with its prediction."""
    return [
        Pair(one.row.gpu, FIGURES[one.figure], one.measured, one.predicted, one.row.fitted)
        for row in rows()
        for one in compare(row)
    ]


def table(curves: Sequence[SplitCurve], found: Sequence[Pair]) -> list[str]:
    """What the pictures show, in words."""
    lines = [
        f"{curve.label}: best with {curve.best} of {curve.num_layers} layers on the {curve.kinds[1]},"
        f" {curve.lead(other):.1%} ahead of {other.best}"
        for curve, other in zip(curves, reversed(curves), strict=True)
    ]
    lines.append(f"{within(found, BAND):.1%} of {len(found)} predictions within {BAND:.0%}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
