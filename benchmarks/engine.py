"""How fast the built-in engine generates beside vLLM: ``python -m benchmarks.engine [--checkpoint NAME] [--streams N]``.

Both run one rank with one thread, in float32, and generate for the same prompts by turns, so that one is busy at a time.
"""

import argparse
import importlib.util
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.checkpoints import CHECKPOINTS, checkpoint
from benchmarks.provenance import provenance
from benchmarks.sides import EngineEndedError, by_turns, side


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when an engine ended, 2 when vLLM is not there."""
    options = parser().parse_args(arguments)
    if importlib.util.find_spec("vllm") is None:
        print(
            "error: vLLM is not installed, so there is nothing to compare with; see docs/vllm.md",
            file=sys.stderr,
        )
        return 2
    names = CHECKPOINTS if options.checkpoint == "all" else (options.checkpoint,)
    document: dict[str, Any] = {"benchmark": "engine", **provenance(), "parameters": parameters(options)}
    try:
        document["results"] = [measure(name, options) for name in names]
    except EngineEndedError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 1
    document["load_average_after"] = os.getloadavg()
    text = json.dumps(document, indent=1) + "\n"
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    print(text if options.format == "json" else "\n".join(table(document["results"])))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.engine", description=__doc__)
    found.add_argument("--checkpoint", choices=(*CHECKPOINTS, "all"), default="all")
    found.add_argument("--streams", type=_count, default=16, help="requests that run at once")
    found.add_argument("--context", type=_count, default=300, help="prompt tokens of the longest request")
    found.add_argument("--output", type=_count, default=200, help="tokens each request generates")
    found.add_argument("--temperature", type=float, default=0.0, help="of every request; above 0 each has a seed")
    found.add_argument("--rounds", type=_count, default=5, help="runs of each engine, by turns, after one to warm up")
    found.add_argument("-o", choices=("table", "json"), default="table", dest="format", help="what to print")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


def _count(text: str) -> int:
    if (found := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{found} is less than one")
    return found


def parameters(options: argparse.Namespace) -> dict[str, Any]:
    """What both engines were asked for, and with what."""
    asked = {name: getattr(options, name) for name in ("streams", "context", "output", "rounds", "temperature")}
    return {**asked, "topology": "1x1", "precision": "fp32", "threads": 1}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Both engines on a checkpoint.

    Raises:
        EngineEndedError: one did not start or broke.
    """
    sizes = [f"--{name}={getattr(options, name)}" for name in ("context", "output", "temperature")]
    with checkpoint(name) as folder:
        arguments = [str(folder), *sizes]
        with (
            side("torch", "benchmarks.torch_throughput", arguments) as ours,
            side("vllm", "benchmarks.vllm_throughput", arguments) as theirs,
        ):
            rates = by_turns([ours, theirs], options.rounds, options.streams)
    return {"checkpoint": name, **summary(rates["torch"], rates["vllm"])}


def summary(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Medians and the ratio of each round, ours over theirs. Pure."""
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "torch_tokens_per_s": round(statistics.median(ours), 1),
        "vllm_tokens_per_s": round(statistics.median(theirs), 1),
        "torch_runs": [round(rate, 1) for rate in ours],
        "vllm_runs": [round(rate, 1) for rate in theirs],
    }


def table(results: Sequence[dict[str, Any]]) -> list[str]:
    """The results for people. Pure."""
    lines = [f"{'checkpoint':<12}{'torch tokens/s':>16}{'vLLM tokens/s':>16}{'ratio':>8}   per round"]
    for one in results:
        rates = f"{one['torch_tokens_per_s']:>16,.0f}{one['vllm_tokens_per_s']:>16,.0f}"
        rounds = " ".join(f"{ratio:.2f}" for ratio in one["ratios"])
        lines.append(f"{one['checkpoint']:<12}{rates}{one['ratio']:>8.2f}   {rounds}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
