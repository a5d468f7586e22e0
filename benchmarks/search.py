"""How long an answer takes: ``python -m benchmarks.search [--clusters 4+4] [--repeat N] [-o json] [--beside cp-sat]``.

Whole answers of ``selector.search.select`` (plan or reasons) to the questions of ``benchmarks.questions``, for each cluster in a
process of its own, so that the first answer is a cold one and the memory is that of this cluster alone.
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cp_sat
from benchmarks.cp_sat import Found, OrToolsMissingError
from benchmarks.provenance import provenance
from benchmarks.questions import (
    MODEL,
    PRECISIONS,
    PROFILES,
    SEED,
    Question,
    cluster_of,
    quality_questions,
    questions,
)
from selector.models import Plan, PlanRef, SearchInput, Workload
from selector.pipelines.grid import Grid, Pipeline
from selector.pipelines.operating import BATCHES, OperatingLoad, Setting, pools_of
from selector.pipelines.optimum import Threshold, ladder
from selector.search import select
from selector.space import stage_counts, stage_kinds

Document = dict[str, Any]
Size = tuple[int, int]
"""Devices: A100 and L40S."""

CLUSTERS = ((4, 4), (8, 8), (16, 16), (64, 64))
REPEAT = 3
LIMIT_S = 30.0
"""What CP-SAT is given for one problem."""
CORE_LOAD = Workload(1.0, 800, 250, 16)
"""Under which the core question is asked."""
TICKET = PlanRef("benchmark", "benchmark", 1, "always")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every cluster; the exit status is 1 where CP-SAT found another optimum, 2 where it could not be asked."""
    options = _parser().parse_args(arguments)
    try:
        document = _document(options)
    except OrToolsMissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    text = json.dumps(document, indent=2)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text if options.output == "json" else "\n".join(table(document["rows"])))
    return _said(disagreements(document["rows"]))


def _document(options: argparse.Namespace) -> Document:
    """Everything measured. CP-SAT comes last: new processes begin with the peak memory of this one."""
    if options.beside:
        cp_sat.required()
    document = {
        "benchmark": "search",
        **provenance(),
        "parameters": _parameters(options),
        "load_average": os.getloadavg(),
        "rows": [in_new_process(measured, size, options.repeat, questions) for size in options.clusters]
        + [in_new_process(measured, size, options.repeat, quality_questions) for size in options.quality],
    }
    if options.beside:
        document["rows"] = [
            row if row["bounds_quality"] else row | beside((row["a100"], row["l40s"]), options.limit)
            for row in document["rows"]
        ]
    return document | {"load_average_after": os.getloadavg()}


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser("python -m benchmarks.search", description=__doc__)
    found.add_argument(
        "--clusters",
        type=sizes,
        default=CLUSTERS,
        metavar="A+L,...",
        help="A100 and L40S of each; default 4+4,8+8,16+16,64+64",
    )
    found.add_argument("--repeat", type=int, default=REPEAT, help="times that every question is asked")
    found.add_argument(
        "--quality", type=sizes, default=(), metavar="A+L,...", help="the same under a bound on quality loss"
    )
    found.add_argument("-o", "--output", choices=("table", "json"), default="table")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything")
    found.add_argument("--beside", choices=("cp-sat",), help="ask OR-tools the core question as well")
    found.add_argument("--limit", type=float, default=LIMIT_S, metavar="SECONDS", help="for each problem of CP-SAT")
    return found


def _parameters(options: argparse.Namespace) -> Document:
    return {
        "model": MODEL.name,
        "precisions": PRECISIONS,
        "seed": SEED,
        "repeat": options.repeat,
        "beside": options.beside,
        "limit_s": options.limit,
    }


def sizes(text: str) -> tuple[Size, ...]:
    """``4+4,16+16`` as pairs.

    Raises:
        argparse.ArgumentTypeError: it does not read so, or a cluster has no device.
    """
    try:
        found = tuple((int(a100), int(l40s)) for a100, l40s in (one.split("+") for one in text.split(",")))
    except ValueError:
        found = ()
    if not found or any(min(size) < 0 or not any(size) for size in found):
        raise argparse.ArgumentTypeError(f"{text!r} should read like 4+4,16+16")
    return found


def in_new_process(measure: Callable[..., Document], *arguments: Any) -> Document:
    """What a function returns in a process that has done nothing yet."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as apart:
        return apart.submit(measure, *arguments).result()


def measured(size: Size, repeat: int, questions_for: Callable[[int, int], list[Question]]) -> Document:
    """The times of every question, each asked so many times; the very first answer is the cold one and counts apart."""
    asked = questions_for(*size)
    before_mb = peak_mb()
    _, cold_ms = timed(asked[0])
    times, plan_times, plans = list[float](), list[float](), 0
    for question in asked:
        answered = [timed(question) for _ in range(repeat)]
        times += [taken_ms for _, taken_ms in answered]
        plan_times += [taken_ms for is_plan, taken_ms in answered if is_plan]
        plans += answered[0][0]
    p50, p95, most = (round(nearest_rank(times, share), 1) for share in (0.5, 0.95, 1.0))
    return {
        "a100": size[0],
        "l40s": size[1],
        "bounds_quality": questions_for is quality_questions,
        "p50_ms": p50,
        "p95_ms": p95,
        "max_ms": most,
        "plans_p95_ms": round(nearest_rank(plan_times, 0.95), 1) if plan_times else None,
        "cold_ms": round(cold_ms, 1),
        "plans": plans,
        "infeasible": len(asked) - plans,
        "questions": len(asked),
        "batch_sizes": len(BATCHES),
        "memory_mb": round(peak_mb(), 1),
        "memory_before_mb": round(before_mb, 1),
    }


def timed(question: Question) -> tuple[bool, float]:
    """Whether the answer is a plan, and the milliseconds that it took."""
    begun_s = time.perf_counter()
    answer = select(question.goals, question.problem, PROFILES, TICKET)
    taken_s = time.perf_counter() - begun_s
    return isinstance(answer, Plan), taken_s * 1e3


def nearest_rank(values: Iterable[float], share: float) -> float:
    """The least value that so great a share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def peak_mb() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


# --- beside CP-SAT ---------------------------------------------------------------------------------------------------


def core_grid(size: Size) -> Grid:
    """Everything that may be built on a cluster for the core question: which pipeline sustains the highest rate?"""
    cluster = cluster_of(*size)
    problem, pools = SearchInput(cluster, MODEL, CORE_LOAD, None), pools_of(cluster, cluster.kinds)
    kinds = stage_kinds(pools, PRECISIONS, problem, PROFILES)
    return Grid.of(kinds, stage_counts(problem), pools, Setting(MODEL, cluster, PROFILES, OperatingLoad.of(CORE_LOAD)))


def beside(size: Size, limit_s: float) -> Document:
    """The core question over all operating points, and at the best of them alone; answered by both."""
    grid = core_grid(size)
    best = quickest(grid)
    if best is None:
        return {}
    one = grid.taken([_place(grid, best)])
    return {"one_point": compared(one, limit_s), "all_points": compared(grid, limit_s)}


def quickest(grid: Grid) -> Pipeline | None:
    """The pipeline whose slowest stage is busy for least."""
    return min(ladder(grid, (), Threshold("rate", 0.0), "devices"), key=lambda one: one.busy_s, default=None)


def _place(grid: Grid, pipeline: Pipeline) -> int:
    """The operating point of a pipeline."""
    points = grid.points
    return int(np.flatnonzero((points.stages == len(pipeline.stages)) & (points.batch == pipeline.batch))[0])


def compared(grid: Grid, limit_s: float) -> Document:
    """Least *busy* by the search and by CP-SAT; both times are without building the grid, CP-SAT's without its model."""
    begun_s = time.perf_counter()
    best = quickest(grid)
    ours_seconds = time.perf_counter() - begun_s
    theirs = cp_sat.least_busy(grid, limit_s)
    return {
        "points": len(grid.points),
        "kinds": len(grid.kinds),
        "ours_value": best.busy_s if best else None,
        "ours_seconds": round(ours_seconds, 4),
        "cp_sat": {
            "status": theirs.status,
            "value": theirs.value_s,
            "bound": theirs.bound_s,
            "seconds": round(theirs.seconds, 3),
        },
        "agree": agree(best.busy_s if best else None, theirs, grid.setting.model.num_layers),
    }


def agree(ours_s: float | None, theirs: Found, num_layers: int) -> bool:
    """Whether nothing that CP-SAT proved or found speaks against the search's optimum, but for the rounding of its times."""
    if ours_s is None:
        return theirs.value_s is None
    room_s = cp_sat.tolerance_s(num_layers) + 1e-8 * ours_s
    better = theirs.value_s is not None and theirs.value_s < ours_s - room_s
    return theirs.status != "INFEASIBLE" and not better and theirs.bound_s <= ours_s + room_s


def disagreements(rows: Iterable[Document]) -> list[str]:
    """Where CP-SAT says otherwise, a sentence each."""
    return [
        f"{row['a100']}+{row['l40s']}, {row[key]['points']} operating points: the search has {row[key]['ours_value']} s, "
        f"CP-SAT {row[key]['cp_sat']}"
        for row in rows
        for key in ("one_point", "all_points")
        if key in row and not row[key]["agree"]
    ]


def _said(lines: Sequence[str]) -> int:
    print(*(f"disagreement: {line}" for line in lines), sep="\n", end="\n" * bool(lines), file=sys.stderr)
    return 1 if lines else 0


def table(rows: Sequence[Document]) -> list[str]:
    """The rows for people."""
    names = ("p50 ms", "p95 ms", "max ms", "plans p95", "cold ms")
    lines = [f"{'A100+L40S':14}" + "".join(f"{name:>11}" for name in names) + f"{'plans':>8}{'questions':>11}{'MB':>8}"]
    lines += [
        f"{_name(row):14}{row['p50_ms']:11.1f}{row['p95_ms']:11.1f}{row['max_ms']:11.1f}"
        f"{row['plans_p95_ms'] or math.nan:11.1f}{row['cold_ms']:11.1f}"
        f"{row['plans'] / row['questions']:8.0%}{row['questions']:11}{row['memory_mb']:8.0f}"
        for row in rows
    ]
    return lines + [_core_line(row, row[key]) for row in rows for key in ("one_point", "all_points") if key in row]


def _core_line(row: Document, core: Document) -> str:
    theirs = core["cp_sat"]
    return (
        f"{_name(row):14}{core['points']:4} points: {core['ours_seconds'] * 1e3:.0f} ms; CP-SAT {theirs['status']}"
        f" after {theirs['seconds']:.2f} s, {'no other optimum' if core['agree'] else 'ANOTHER OPTIMUM'}"
    )


def _name(row: Document) -> str:
    bounded = " quality" if row["bounds_quality"] else ""
    return f"{row['a100']}+{row['l40s']}{bounded}"


if __name__ == "__main__":
    sys.exit(main())
