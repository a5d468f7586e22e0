"""How long a translation takes when its LLM misbehaves, fault by fault, and what comes of it.

Asks an endpoint of its own that misbehaves over HTTP, through the client that a deployment uses. Every fault must end in the
right goals, a question or a named failure within the deadline and half a second.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.misbehaving_llm import FAULTS, TEXT, Endpoint
from benchmarks.provenance import provenance
from benchmarks.report import Document
from intent.models import NAMED_WINDOWS, Catalogue, Intent
from intent.translate import translate

GRACE_S = 0.5
"""How much longer than its deadline a translation may take."""
CATALOGUE = Catalogue(models=("counting",), windows=NAMED_WINDOWS, now=datetime(2026, 11, 20, 10, tzinfo=UTC), tz="UTC")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a fault ended otherwise than it must, or too late."""
    options = parser().parse_args(arguments)
    document = run(options.fault or list(FAULTS), options.deadline)
    print(table(document["faults"]))
    if options.json:
        options.json.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(one["passed"] for one in document["faults"]) else 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.llm_faults", description=__doc__)
    found.add_argument("--deadline", type=_seconds, default=2.0, metavar="S", help="of each translation")
    found.add_argument("--fault", action="append", choices=FAULTS, metavar="NAME", help="only this one")
    found.add_argument("--json", type=Path, metavar="OUT", help="where to write everything that was measured")
    return found


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= 600:
        raise argparse.ArgumentTypeError(f"{text}: give seconds above 0, at most 600")
    return value


def run(names: Sequence[str], deadline_s: float) -> Document:
    """Every fault once, the first of them with a client that is not loaded yet."""
    right = translate(TEXT, CATALOGUE)
    return {
        "benchmark": "llm_faults",
        **provenance(),
        "parameters": {"text": TEXT, "deadline_s": deadline_s, "grace_s": GRACE_S},
        "faults": [measure(name, deadline_s, right) for name in names],
    }


def measure(name: str, deadline_s: float, right: Intent) -> Document:
    """One translation against one fault."""
    reply, expected = FAULTS[name]
    with Endpoint(reply) as endpoint:
        started_s = time.perf_counter()
        intent = translate(TEXT, CATALOGUE, endpoint.settings(deadline_s))
        took_s = time.perf_counter() - started_s
    came = outcome(intent, right)
    return {
        "fault": name,
        "expected": str(expected),
        "came": came,
        "requests": len(endpoint.requests),
        "seconds": round(took_s, 3),
        "passed": came == str(expected) and took_s <= deadline_s + GRACE_S,
        "reason": intent.translator.reason,
    }


def outcome(intent: Intent, right: Intent) -> str:
    """The failure because of which the rules answered, ``clarify``, ``ok``, no wish, or ``wrong`` for other goals."""
    if intent.questions:
        return "clarify"
    if not intent.goals:
        return "out_of_scope"
    said, meant = ([replace(goal, evidence="") for goal in one.goals] for one in (intent, right))
    if said != meant:
        return "wrong"
    return (intent.translator.reason or "ok").partition(":")[0]


def table(faults: Sequence[Document]) -> str:
    """One row per fault, and the slowest."""
    rows = [("fault", "came", "must", "requests", "seconds", "")]
    for one in faults:
        mark = "" if one["passed"] else "FAILED"
        rows.append((one["fault"], one["came"], one["expected"], str(one["requests"]), f"{one['seconds']:.3f}", mark))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    slowest = max(faults, key=lambda one: float(one["seconds"]))
    passed = sum(one["passed"] for one in faults)
    lines.append(f"{passed} of {len(faults)} as they must; slowest: {slowest['fault']}, {slowest['seconds']:.3f} s")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
