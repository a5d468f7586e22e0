"""What bad requests cost everybody else: ``python -m benchmarks.intake [--before TREE] [--json FILE]``.

The service with the built-in engine and the counting checkpoint, streams that run all the time, and a probe of ``/healthz``.
By turns nothing happens, or ten bad requests of a kind are sent at once from another process.
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.intake_sender import AT_ONCE, KINDS
from benchmarks.provenance import provenance, stolen_now_s

HERE = Path(__file__).parents[1]
PROBE_EVERY_S = 0.02
ANSWER_LIMIT_S, HEALTH_LIMIT_S, GAP_RATIO = 1.0, 0.25, 2.0
SLOW_BEFORE = ("64 MB", "64 MB without a length", "250 KB of wrong parts")
"""Kinds that the tree before is not asked about: they take it minutes."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    streams: int
    rounds: int
    window_s: float
    """How long each turn lasts at least."""


@dataclass(slots=True)
class Seen:
    """What the clients of one service saw: moments on one clock."""

    arrivals_s: list[list[float]] = field(default_factory=list)
    """Of each stream's pieces."""
    probes_s: list[tuple[float, float]] = field(default_factory=list)
    """When each was sent, and how long it took."""

    def worst_gaps_s(self, windows: Sequence[tuple[float, float]]) -> list[float]:
        """Of each stream: the longest time between two pieces that touches one of the windows."""
        return [
            max(
                (
                    after - before
                    for before, after in itertools.pairwise(stream)
                    if any(before < end and after > start for start, end in windows)
                ),
                default=0.0,
            )
            for stream in self.arrivals_s
        ]

    def probes_within(self, windows: Sequence[tuple[float, float]]) -> list[float]:
        """How long those took that were sent in a window."""
        return [took for sent, took in self.probes_s if any(start <= sent <= end for start, end in windows)]


@contextmanager
def service(tree: Path, deployment: Path | None = None) -> Iterator[str]:
    """A service of the packages of ``tree``, and its address with the key for it, if it asks for one, as the user."""
    deployment = deployment or tree / "examples" / "local-cpu.yaml"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "intentctl", "serve", "--port", "0", "--data-dir", folder]
        command += ["--deployment", str(deployment)]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                url, key = process.stdout.readline().strip(), Path(folder) / "admin.key"
                yield url.replace("//", f"//{key.read_text().strip()}@") if key.is_file() else url
            finally:
                process.kill()  # what it started ends with it


async def stream(url: str, arrivals_s: list[float], number: int, tokens: int) -> None:
    """One stream after the other, each piece stamped as it comes."""
    body = {"model": "counting", "prompt": f"count by 7 from {23 + number}:", "stream": True}
    data = json.dumps(body | {"ignore_eos": True, "max_tokens": tokens, "temperature": 0}).encode()
    parts = urlsplit(url)
    while True:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = "POST /openai/v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {parts.username}\r\n"
        writer.write(f"{head}Connection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        while await reader.read(65536):
            arrivals_s.append(time.monotonic())
        writer.close()


async def probe(url: str, probes_s: list[tuple[float, float]]) -> None:
    """Ask ``/healthz`` again and again, on a new connection each time as a load balancer does."""
    parts = urlsplit(url)
    while True:
        sent_s = time.monotonic()
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        if not (await reader.read()).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("the service is not healthy")
        writer.close()
        probes_s.append((sent_s, time.monotonic() - sent_s))
        await asyncio.sleep(PROBE_EVERY_S)


@asynccontextmanager
async def watched(url: str, streams: int, tokens: int = 15_000) -> AsyncIterator[Seen]:
    """What clients see while the context lasts; their streams have so many tokens, one after the other."""
    seen = Seen([[] for _ in range(streams)])
    tasks = [asyncio.create_task(stream(url, one, number, tokens)) for number, one in enumerate(seen.arrivals_s)]
    tasks.append(asyncio.create_task(probe(url, seen.probes_s)))
    try:
        while not all(len(one) > 100 for one in seen.arrivals_s):  # noqa: ASYNC110 - polled, so that a piece costs no more
            await asyncio.sleep(0.1)
        yield seen
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


async def bad_requests(url: str, kind: str) -> tuple[float, float, list[Document]]:
    """When they were sent and answered, and how each was; the bodies are made before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.intake_sender",
        url,
        kind,
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    await process.stdout.readline()
    started_s = time.monotonic()
    process.stdin.write(b"\n")
    answers = json.loads(await process.stdout.readline())
    ended_s = time.monotonic()
    await process.wait()
    return started_s, ended_s, answers


async def measure(tree: Path, kinds: Sequence[str], parameters: Parameters) -> Document:
    """Every kind in turn with nothing, as often as there are rounds."""
    found: Document = {}
    with service(tree) as url:
        for kind in kinds:
            async with watched(url, parameters.streams) as seen:
                quiet, busy, answers = list[tuple[float, float]](), list[tuple[float, float]](), []
                for _ in range(parameters.rounds):
                    started_s = time.monotonic()
                    await asyncio.sleep(parameters.window_s)
                    quiet.append((started_s, time.monotonic()))
                    sent_s, ended_s, some = await bad_requests(url, kind)
                    await asyncio.sleep(max(0.0, parameters.window_s - (ended_s - sent_s)))
                    busy.append((sent_s, time.monotonic()))
                    answers += some
                found[kind] = row(seen, quiet, busy, answers)
            print(f"{tree.name}: {kind}", file=sys.stderr, flush=True)
    return found


def row(
    seen: Seen,
    quiet: Sequence[tuple[float, float]],
    busy: Sequence[tuple[float, float]],
    answers: Sequence[Document],
) -> Document:
    """The figures of a kind."""
    gaps = {name: seen.worst_gaps_s(windows) for name, windows in (("without", quiet), ("with", busy))}
    return {
        "statuses": sorted({answer["status"] for answer in answers}),
        "slowest_answer_s": max(answer["seconds"] for answer in answers),
        "median_answer_s": median(answer["seconds"] for answer in answers),
        "healthz_s": {
            "without": max(seen.probes_within(quiet)),
            "with": max(seen.probes_within(busy)),
        },
        "worst_gaps_s": gaps,
        "gap_ratio": max(after / before for before, after in zip(gaps["without"], gaps["with"], strict=True)),
    }


def table(rows: dict[str, Document]) -> str:
    """A line for each tree and kind."""
    lines = [
        f"{'ten at once':40}{'status':>8}{'slowest s':>11}{'/healthz ms':>14}{'worst gap ms':>18}{'ratio':>7}",
        f"{'':59}{'without, with':>14}{'without, with':>18}",
    ]
    for tree, kinds in rows.items():
        for kind, one in kinds.items():
            health, gaps = one["healthz_s"], one["worst_gaps_s"]
            statuses = ",".join(map(str, one["statuses"]))
            between = f"{health['without'] * 1e3:.0f}, {health['with'] * 1e3:.0f}"
            worst = f"{max(gaps['without']) * 1e3:.0f}, {max(gaps['with']) * 1e3:.0f}"
            lines.append(
                f"{f'{tree}: {kind}':40}{statuses:>8}{one['slowest_answer_s']:11.2f}{between:>14}{worst:>18}"
                f"{one['gap_ratio']:7.2f}"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write everything; the exit status is 1 where a bar is missed now."""
    found = argparse.ArgumentParser("python -m benchmarks.intake", description=__doc__)
    found.add_argument("--before", type=Path, help="a tree of another commit, asked about what it answers in time")
    found.add_argument("--kind", action="append", choices=KINDS, metavar="NAME", help="only this one")
    found.add_argument("--streams", type=int, default=8)
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--window", type=float, default=4.0, metavar="S", help="of each turn, at least")
    found.add_argument("--json", type=Path, metavar="FILE")
    options = found.parse_args(arguments)
    parameters = Parameters(options.streams, options.rounds, options.window)
    document: Document = {"benchmark": "intake", **provenance(), "parameters": asdict(parameters)}
    kinds = options.kind or list(KINDS)
    rows = {"now": asyncio.run(measure(HERE, kinds, parameters))}
    if options.before:
        some = [kind for kind in kinds if kind not in SLOW_BEFORE]
        rows["before"] = asyncio.run(measure(options.before, some, parameters))
    print(table(rows))
    if options.json:
        document |= {"at_once": AT_ONCE, "rows": rows, "stolen_after_s": stolen_now_s()}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(map(misses, rows["now"].values())))


def misses(one: Document) -> bool:
    """Whether a row is over a bar."""
    return bool(
        one["slowest_answer_s"] > ANSWER_LIMIT_S
        or one["healthz_s"]["with"] > HEALTH_LIMIT_S
        or one["gap_ratio"] > GAP_RATIO
    )


if __name__ == "__main__":
    sys.exit(main())
