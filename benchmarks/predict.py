"""How near predictions come to published measurements: ``python -m benchmarks.predict [--json OUT] [--rows] [--beside PYTHON]``.

Prints mean, median, largest and signed errors by device kind and figure, the rows that the profiles were fitted to apart from
those for checking, the rank correlation of saturated throughput, and the time of an answer; on request aiconfigurator's beside.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from benchmarks.published import Row, rows
from intentctl.predict import case, predict
from selector.models import ALIKE, Workload, shape
from selector.performance.load import LONGEST

Document = dict[str, Any]

ASKING = Path(__file__).parent / "ask_aiconfigurator.py"
OVERLOAD_RPS = 1e6
"""A rate beyond any saturation."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure of one row: measured and predicted, in the unit of the row."""

    row: Row
    figure: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative and signed."""
        return self.predicted / self.measured - 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Predict every row and print how far off it is."""
    parser = argparse.ArgumentParser("python -m benchmarks.predict", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="OUT", help="where to write everything")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument(
        "--beside",
        type=Path,
        metavar="PYTHON",
        help="an interpreter that has aiconfigurator 0.12.0: ask it, too",
    )
    options = parser.parse_args(arguments)
    begun_s = time.perf_counter()
    compared = [figure for row in rows() for figure in compare(row)]
    each_s = (time.perf_counter() - begun_s) / len(rows())
    document = {
        "benchmark": "predict",
        **provenance(),
        "rows": len(rows()),
        "seconds_per_answer": each_s,
        "errors": errors(compared),
        "kendall_tau": ranks(compared),
        "figures": [asdict(one.row) | {"figure": one.figure, "predicted": one.predicted} for one in compared],
    }
    if options.beside:
        document["aiconfigurator"] = beside(options.beside)
    if options.json:
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(*table(document, compared if options.rows else ()), sep="\n")
    return 0


def compare(row: Row) -> list[Compared]:
    """The figures that a row has, beside what is predicted."""
    bound = case(row.topology, row.model)
    model = replace(bound.model, max_position_embeddings=LONGEST)  # some rows go beyond their model's context
    one = replace(bound, model=model)
    load = Workload(OVERLOAD_RPS, row.input_tokens, row.output_tokens, 1, ALIKE, ALIKE)
    found = predict(one, load, row.batch if row.load == "static" else None)
    ttft, tpot = (found[key]["mean"] * 1e3 if found[key] else None for key in ("ttft_s", "tpot_s"))
    throughput = "saturation" if row.load == "saturated" else "throughput"
    figures = [
        ("ttft", row.ttft_ms, ttft), ("tpot", row.decode_ms, tpot), (throughput, row.throughput_tok_s, found["throughput_tok_s"]),
    ]  # fmt: skip
    return [Compared(row, name, measured, value) for name, measured, value in figures if measured and value]


def errors(compared: Iterable[Compared]) -> list[Document]:
    """Errors by device kind, figure and whether it was fitted."""
    groups: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for one in compared:
        groups[one.row.gpu, one.figure, one.row.fitted].append(one.error)
    return [
        {
            "gpu": gpu,
            "figure": figure,
            "fitted": fitted,
            "count": len(found),
            "mean_abs": statistics.fmean(map(abs, found)),
            "median_abs": statistics.median(map(abs, found)),
            "max_abs": max(map(abs, found)),
            "bias": statistics.fmean(found),
        }
        for (gpu, figure, fitted), found in sorted(groups.items())
    ]


def ranks(compared: Iterable[Compared]) -> Document:
    """Kendall's tau of saturated throughput: over all pairs of rows of a device kind, how many are in the right order."""
    found: dict[str, list[Compared]] = defaultdict(list)
    for one in compared:
        if one.figure == "saturation":
            found[one.row.gpu].append(one)
    return {gpu: _tau(group) for gpu, group in sorted(found.items())}


def _tau(group: Sequence[Compared]) -> float:
    signs = [
        1 if (a.measured - b.measured) * (a.predicted - b.predicted) > 0 else -1 for a, b in combinations(group, 2)
    ]
    return statistics.fmean(signs)


def _line(one: Document) -> str:
    """One group of errors."""
    fitted = {True: "fitted", False: "unseen"}.get(one["fitted"], "")
    return (
        f"{one['gpu']:10}{one['figure']:12}{fitted:8}{one['count']:5}{one['mean_abs']:8.1%}{one['median_abs']:8.1%}"
        f"{one['max_abs']:8.1%}{one['bias']:+8.1%}"
    )


def beside(python: Path) -> Document:
    """What aiconfigurator says of the static rows, asked in its own environment.

    Raises:
        SystemExit: the interpreter could not be run, or has no aiconfigurator.
    """
    asked = [row for row in rows() if row.load == "static" and (row.ttft_ms or row.decode_ms)]
    questions = json.dumps([asdict(row) | {"config": config_of(row.model)} for row in asked])
    try:
        done = subprocess.run([str(python), str(ASKING)], input=questions, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise SystemExit(f"{python} could not ask aiconfigurator: {said[-1] if said else error}") from error
    answers = json.loads(done.stdout)
    compared = [
        Compared(row, figure, measured, answer[key])
        for row, answer in zip(asked, answers, strict=True)
        for figure, measured, key in (("ttft", row.ttft_ms, "ttft_ms"), ("tpot", row.decode_ms, "tpot_ms"))
        if measured and key in answer
    ]
    return {
        "errors": [one | {"fitted": None} for one in errors(compared)],
        "unanswered": [answer["error"] for answer in answers if "error" in answer],
        "seconds_per_answer": statistics.fmean(answer["seconds"] for answer in answers),
        "figures": [asdict(one.row) | {"figure": one.figure, "predicted": one.predicted} for one in compared],
    }


def config_of(name: str) -> Document:
    """The ``config.json`` of a model known by name, as far as a predictor needs it."""
    model = shape(name)
    return {
        "architectures": ["MixtralForCausalLM" if model.num_experts > 1 else "LlamaForCausalLM"],
        "model_type": "mixtral" if model.num_experts > 1 else "llama",
        "num_hidden_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_attention_heads": model.num_heads,
        "num_key_value_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings,
        "torch_dtype": "float16",
    }


def table(document: Document, listed: Iterable[Compared]) -> list[str]:
    """The document for people."""
    lines = [f"{'':10}{'':12}{'':8}{'rows':>5}{'mean':>8}{'median':>8}{'worst':>8}{'bias':>8}"]
    lines += map(_line, document["errors"])
    lines += [f"{gpu:10}rank correlation of saturation {tau:.2f}" for gpu, tau in document["kendall_tau"].items()]
    lines.append(f"{document['seconds_per_answer'] * 1e3:.1f} ms per answer")
    if other := document.get("aiconfigurator"):
        lines.append(
            f"aiconfigurator: {other['seconds_per_answer'] * 1e3:.0f} ms per answer, {len(other['unanswered'])} rows unanswered"
        )
        lines += map(_line, other["errors"])
    lines += [
        f"{one.error:+7.1%}  {one.row.topology:14}{one.row.model:15}{one.row.input_tokens}/{one.row.output_tokens}"
        f" {f'batch {one.row.batch} ' if one.row.batch else ''}{one.figure} {one.measured:g} predicted {one.predicted:.4g}"
        for one in listed
    ]
    return lines


if __name__ == "__main__":
    sys.exit(main())
