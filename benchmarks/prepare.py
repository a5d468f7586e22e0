"""How long a vLLM target that does not stand by takes to be ready beside an engine that serves, and what streams notice.

By turns in one run: with a spare process, without one, and the code of an older commit (``--before REF``) in its own checkout.
"""

import argparse
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.provenance import ROOT, provenance, stolen_now_s

SIDE = Path(__file__).with_name("prepare_side.py")
SPARE, WITHOUT, BEFORE = "spare", "without", "before"
Document = dict[str, Any]


class SideEndedError(Exception):
    """A process of the benchmark ended; what it said is on stderr."""


@dataclass(frozen=True, slots=True)
class Side:
    """One engine, in a process of its own."""

    name: str
    process: subprocess.Popen[str]

    def hear(self) -> Document:
        """Its next answer.

        Raises:
            SideEndedError: there is none.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SideEndedError(f"{self.name} ended; see what it said above")
        answer: Document = json.loads(line)
        return answer

    def prepare(self, target: str) -> Document:
        """Let it prepare a target beside its streams."""
        assert self.process.stdin is not None
        print(target, file=self.process.stdin, flush=True)
        return {"side": self.name, "target": target, **self.hear()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a side ended, 2 when the commit is none."""
    options = parser().parse_args(arguments)
    document: Document = {"benchmark": "prepare", **provenance()}
    document["parameters"] = {name: value for name, value in vars(options).items() if name != "json"}
    try:
        with ExitStack() as stack:
            sides = list(_sides(options, stack))
            document["runs"] = list(by_turns(sides, options.targets.split(","), options.rounds))
    except SideEndedError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as problem:
        print(f"error: --before {options.before}: {problem.stderr.decode().strip()}", file=sys.stderr)
        return 2
    document |= {"stolen_after_s": stolen_now_s(), "load_average_after": os.getloadavg()[0]}
    document["rows"] = summary(document["runs"])
    print("\n".join(table(document["rows"])))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.prepare", description=__doc__)
    found.add_argument("--targets", default="tp2,pp2", help="from 1x1, joined by commas")
    found.add_argument("--rounds", type=int, default=3, help="of each side and target, by turns")
    found.add_argument("--streams", type=int, default=8, help="that run meanwhile")
    found.add_argument("--context", type=int, default=300, help="prompt tokens of the longest stream")
    found.add_argument("--before", metavar="REF", help="a commit whose code takes turns too")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def by_turns(sides: Sequence[Side], targets: Sequence[str], rounds: int) -> Iterator[Document]:
    """What each side measured of each target, in turn; the order turns each round, so that a machine that drifts favours none."""
    for one in sides:
        one.hear()
    for number in range(rounds):
        for target in targets:
            for one in sides[:: -1 if number % 2 else 1]:
                answer = one.prepare(target)
                gaps = {name: spread(found) for name, found in answer.pop("gaps_ms").items()}
                run = {"round": number, **answer, "gaps_ms": gaps}
                print(f"{number} {target} {one.name}: {run['prepare_s']:.1f} s", file=sys.stderr)
                yield run


def spread(gaps_ms: Sequence[float]) -> dict[str, float]:
    """Median, P99 and worst of gaps, and their number. Pure."""
    ordered = sorted(gaps_ms)
    if not ordered:
        return {"count": 0}
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {"count": len(ordered), "median": statistics.median(ordered), "p99": p99, "worst": ordered[-1]}


def summary(runs: Sequence[Document]) -> list[Document]:
    """A row for each target and side: medians over rounds, the worst gap, and the median ratio to each other side. Pure."""
    rows = []
    for target, name in dict.fromkeys((run["target"], run["side"]) for run in runs):
        mine = [run for run in runs if (run["target"], run["side"]) == (target, name)]
        row: Document = {"target": target, "side": name}
        row["prepare_s"] = round(statistics.median(run["prepare_s"] for run in mine), 2)
        for span in ("before", "meanwhile", "importing"):
            found = [run["gaps_ms"][span] for run in mine if run["gaps_ms"].get(span, {}).get("count")]
            if found:
                row[f"{span}_median_ms"] = round(statistics.median(gaps["median"] for gaps in found), 2)
                row[f"{span}_worst_ms"] = max(gaps["worst"] for gaps in found)
        row["of_before"] = _ratio(mine, [run for run in runs if run["target"] == target])
        rows.append(row)
    return rows


def _ratio(mine: Sequence[Document], others: Sequence[Document]) -> float | None:
    """The median over rounds of the time taken by that of the older code in the same round."""
    older = {run["round"]: run["prepare_s"] for run in others if run["side"] == BEFORE}
    found = [run["prepare_s"] / older[run["round"]] for run in mine if run["round"] in older]
    return round(statistics.median(found), 3) if found else None


def table(rows: Sequence[Document]) -> list[str]:
    """The rows for people."""
    heads = (
        "target",
        "side",
        "prepare s",
        "of before",
        "gap ms before",
        "meanwhile",
        "worst",
        "importing",
        "worst",
    )
    keys = (
        "target", "side", "prepare_s", "of_before", "before_median_ms", "meanwhile_median_ms", "meanwhile_worst_ms",
        "importing_median_ms", "importing_worst_ms",
    )  # fmt: skip
    widths = [max(len(head), 7) for head in heads]
    cells = [heads, *([_cell(row.get(key)) for key in keys] for row in rows)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.2f}"


def _sides(options: argparse.Namespace, stack: ExitStack) -> Iterator[Side]:
    sizes = ["--streams", str(options.streams), "--context", str(options.context)]
    if options.before:
        folder = stack.enter_context(checkout(options.before))
        yield stack.enter_context(_side(BEFORE, folder, sizes))
    yield stack.enter_context(_side(WITHOUT, ROOT, [*sizes, "--settings", '{"spare": false}']))
    yield stack.enter_context(_side(SPARE, ROOT, [*sizes, "--has-spare"]))


@contextmanager
def checkout(reference: str) -> Iterator[Path]:
    """The files of a commit in a folder, with this benchmark's side among them.

    Raises:
        CalledProcessError: there is no such commit.
    """
    command = ["git", "-C", str(ROOT), "archive", reference]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="intentctl-before-") as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(folder, filter="data")
        shutil.copy(SIDE, Path(folder) / "benchmarks" / SIDE.name)
        yield Path(folder)


@contextmanager
def _side(name: str, folder: Path, arguments: Sequence[str]) -> Iterator[Side]:
    """An engine that runs the code of a folder; it ends with the context."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.prepare_side", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            yield Side(name, process)
        finally:
            process.kill()  # its engines end with it


if __name__ == "__main__":
    sys.exit(main())
