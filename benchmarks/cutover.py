"""What a switch costs the streams that run: the engine's own switch beside baselines.

Prints a table and, on request, writes everything measured as JSON; benchmarks/README.md says what each figure means.
"""

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.case import Case, run_case
from benchmarks.checkpoints import CHECKPOINTS, checkpoint
from benchmarks.engines import OWN_PATHS, Subject
from benchmarks.memcpy import memcpy_bytes_s
from benchmarks.parameters import ANY_ENGINE, Mode, Parameters, UsageError, parse_numbers, parse_pair
from benchmarks.provenance import provenance
from benchmarks.report import Document, ratio_lines, ratios, run_document, stop_curves, table
from benchmarks.stops import draw_stops
from intentctl.arguments import EngineName
from intentctl.plots import check_name
from intentctl.status import CommandError
from runtime.errors import RuntimeFault
from service.deployment.file import load
from service.documents.errors import DeploymentError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a run ended early, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    if options.hosts:
        from benchmarks.between_hosts import run_hosts

        return run_hosts(options)
    try:
        parameters = parameters_of(options)
        subject = Subject.of(load(options.deployment)) if options.deployment else Subject.example(parameters.engine)
        parameters.check(subject)
        if options.plot:
            check_name(options.plot)
    except (UsageError, RuntimeFault, DeploymentError, CommandError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    with checkpoint(options.checkpoint) as folder:
        subject = subject if options.checkpoint == "counting" else subject.with_checkpoint(folder)
        document = asyncio.run(run_all(parameters, subject, options.json))
    if options.plot:
        draw_stops(*stop_curves(document["rows"]), options.plot)
    if options.format == "json":
        print(json.dumps(document, indent=1))
    else:
        print(table(document["rows"]), *ratio_lines(document["ratios"]), sep="\n")
    return int(any(row["error"] for row in document["rows"]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.cutover", description=__doc__)
    found.add_argument("--engine", choices=[*map(str, EngineName)], default="torch")
    found.add_argument(
        "--deployment",
        type=Path,
        metavar="FILE",
        help="another checkpoint and cluster than the example's, GPUs say",
    )
    found.add_argument(
        "--checkpoint",
        choices=CHECKPOINTS,
        default="counting",
        help="instead of the example's: random weights, made for the run",
    )
    found.add_argument("--mode", default="patch", help="one or several, joined by commas, or all")
    found.add_argument("--active", default="12", help="streams that run at any time, a case for each number")
    found.add_argument("--switches", default="5", help="there and back; one number, or one for each of --active")
    found.add_argument("--context", default="300", help="prompt tokens of the longest stream, a case for each number")
    found.add_argument("--output", type=int, default=600, help="tokens each stream generates")
    found.add_argument("--temperature", type=float, default=0.0, help="of every stream; above 0 every third has a seed")
    found.add_argument("--pairs", default="1x1-tp2,1x1-pp2", help="topologies to switch between")
    found.add_argument(
        "--hosts", type=int, choices=(2,), help="between two hosts (root), with pairs and modes of its own"
    )
    found.add_argument("--rate", default="8gbit", help="with --hosts: of the link, each way")
    found.add_argument(
        "--delay-ms",
        type=float,
        default=0.0,
        help="with --hosts: of the link, one way; it carries 200mbit at most then",
    )
    found.add_argument("-o", "--output-format", dest="format", choices=("table", "json"), default="table")
    found.add_argument("--plot", type=Path, metavar="FILE", help="where to draw stops (SVG)")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def parameters_of(options: argparse.Namespace) -> Parameters:
    """What the command line means.

    Raises:
        UsageError: a pair that is none.
    """
    engine = EngineName(options.engine)
    modes: Sequence[Mode] = options.mode.split(",")  # checked with the other parameters
    return Parameters(
        engine=engine,
        modes=(*OWN_PATHS[engine], *ANY_ENGINE) if options.mode == "all" else tuple(modes),
        pairs=tuple(parse_pair(text) for text in options.pairs.split(",")),
        active=parse_numbers("--active", options.active),
        switches=parse_numbers("--switches", options.switches),
        context=parse_numbers("--context", options.context),
        output=options.output,
        temperature=options.temperature,
    )


async def run_all(parameters: Parameters, subject: Subject, file: Path | None) -> Document:
    """Every mode for every pair, one after the other; what there is so far is in ``file`` all the time."""
    rows: list[Document] = []
    memcpy = memcpy_bytes_s()
    document = {"benchmark": "cutover", **provenance(), "memcpy_bytes_s": round(memcpy)}
    document |= {"parameters": asdict(parameters), "rows": rows}
    cases = itertools.product(parameters.pairs, parameters.active, parameters.context, parameters.modes)
    for pair, active, context, mode in cases:
        run = await run_case(Case(parameters, subject, mode, pair, active, context))
        rows.append(run_document(run, memcpy))
        document["ratios"] = ratios(rows)
        if file:
            text = json.dumps(document, indent=1) + "\n"
            file.write_text(text, encoding="utf-8")  # noqa: ASYNC240 - no stream runs between cases
    return document


if __name__ == "__main__":
    sys.exit(main())
