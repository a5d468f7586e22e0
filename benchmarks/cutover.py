"""What a switch costs the streams that run: the engine's own switch beside replay and drain.

Prints a table and, on request, writes everything measured as JSON; docs/benchmarks.md says what each figure means.
"""

import argparse
import asyncio
import gc
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.case import Case, run_case
from benchmarks.engines import OWN_PATHS, Subject
from benchmarks.parameters import MODES, Parameters, UsageError, parse_pair
from benchmarks.provenance import provenance
from benchmarks.report import Document, ratio_lines, ratios, run_document, table
from intentctl.arguments import EngineName
from runtime.errors import RuntimeFault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a run ended early, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    try:
        parameters = parameters_of(options)
        subject = Subject.example(parameters.engine)
        parameters.check(subject)
    except (UsageError, RuntimeFault) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    document = asyncio.run(run_all(parameters, subject, options.json))
    print(table(document["results"]), *ratio_lines(document["ratios"]), sep="\n")
    return int(any(result["error"] for result in document["results"]))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.cutover", description=__doc__)
    found.add_argument("--engine", choices=[*map(str, EngineName)], default="torch")
    found.add_argument("--mode", choices=(*MODES, "all"), default="patch")
    found.add_argument("--streams", type=int, default=12, help="streams that run at any time")
    found.add_argument("--switches", type=int, default=5, help="switches there and back, per mode and pair")
    found.add_argument("--context", type=int, default=300, help="prompt tokens of the longest stream")
    found.add_argument("--output", type=int, default=600, help="tokens each stream generates")
    found.add_argument("--pairs", default="1x1-tp2,1x1-pp2", help="topologies to switch between")
    found.add_argument(
        "--json", type=Path, metavar="FILE", help="where to write everything that was measured"
    )
    return found


def parameters_of(options: argparse.Namespace) -> Parameters:
    """What the command line means.

    Raises:
        UsageError: a pair that is none.
    """
    engine = EngineName(options.engine)
    return Parameters(
        engine=engine,
        modes=(*OWN_PATHS[engine], "replay", "drain") if options.mode == "all" else (options.mode,),
        pairs=tuple(parse_pair(text) for text in options.pairs.split(",")),
        streams=options.streams,
        switches=options.switches,
        context=options.context,
        output=options.output,
    )


async def run_all(parameters: Parameters, subject: Subject, file: Path | None) -> Document:
    """Every mode for every pair, one after the other; what there is so far is in ``file`` all the time."""
    results: list[Document] = []
    document = {"benchmark": "cutover", **provenance(), "parameters": asdict(parameters), "results": results}
    gc.freeze()  # the stamps are this process's: no long collection while it listens
    for pair, mode in itertools.product(parameters.pairs, parameters.modes):
        results.append(run_document(await run_case(Case(parameters, subject, mode, pair))))
        document["ratios"] = ratios(results)
        if file:
            text = json.dumps(document, indent=1) + "\n"
            file.write_text(text, encoding="utf-8")  # noqa: ASYNC240 - no stream runs between cases
    return document


if __name__ == "__main__":
    sys.exit(main())
