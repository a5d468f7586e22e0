"""What slow requests cost everybody else: ``python -m benchmarks.stalls [--before TREE] [--rounds N] [--json FILE]``.

Two questions to the service with the built-in engine and the counting checkpoint, asked of a new service in each round.
Bodies: a hundred streamed chats at once, small ones or of 40 kB: what their client waits for a first token beside what the
service says of it. Stalls: one stream and a probe of ``/healthz`` while nothing happens, beside a process that computes without
end, and while a hundred such bodies, eight simulations and 55 texts to an LLM that never answers are under way.
"""

import argparse
import asyncio
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.intake import HERE, Document, Seen, service, watched
from benchmarks.misbehaving_llm import Endpoint, Exchange
from benchmarks.provenance import provenance, stolen_now_s

BODIES, SIMULATIONS, TEXTS = 100, 8, 55
BODY_BYTES = 40_000
WINDOW_S, LLM_TIMEOUT_S = 12.0, 12.0
STREAM_TOKENS = 500
"""Of each stream: in a long one steps take longer from token to token."""
KINDS = ("small", "40 kB of spaces", "40 kB of metadata")

SHARE, SLACK_S = 0.2, 0.02
"""What a client may wait for more than the service says, and beside it."""
TAIL_RATIO, TAIL_S = 2.0, 0.5
HEALTH_MEDIAN_S, HEALTH_WORST_S, GAP_RATIO = 0.02, 1.0, 1.3


def percentile(values: Sequence[float], share: float) -> float:
    """Of sorted or unsorted values, the nearest rank."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def chat(kind: str) -> bytes:
    """A streamed chat of eight tokens."""
    messages = [{"role": "user", "content": "count by 7 from 23:"}]
    body: Document = {"model": "counting", "messages": messages, "stream": True, "max_tokens": 8}
    if "metadata" in kind:
        body["metadata"] = {"note": "x" * BODY_BYTES}
    text = json.dumps(body)
    return (text + " " * (BODY_BYTES - len(text)) if "spaces" in kind else text).encode()


async def asked(url: str, method: str, path: str, body: bytes = b"") -> tuple[int, float, bytes]:
    """Status, seconds to the first byte of the answer, and the answer; a connection of its own."""
    parts, started_s = urlsplit(url), time.monotonic()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {parts.username}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    first = await reader.read(65_536)
    seconds = time.monotonic() - started_s
    whole = first + await reader.read()
    writer.close()
    return int(whole.split(maxsplit=2)[1]), seconds, whole.partition(b"\r\n\r\n")[2]


async def together(number: int, ask: Callable[[], Awaitable[tuple[int, float, bytes]]]) -> Document:
    """The same request so often at once: its statuses, and how long each waited for its first byte."""
    answers = await asyncio.gather(*(ask() for _ in range(number)))
    return {"statuses": sorted({one[0] for one in answers}), "seconds": sorted(one[1] for one in answers)}


def sent(url: str, what: str) -> "subprocess.Popen[str]":
    """A process that sends and prints what came of it."""
    command = [sys.executable, "-m", "benchmarks.stalls", "--send", what, "--url", url]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.PIPE, text=True)


def hog() -> "subprocess.Popen[str]":
    """A process that computes without end."""
    return subprocess.Popen([sys.executable, "-c", "while True: pass"], text=True)


def send(url: str, what: str) -> Document:
    """A hundred bodies of a kind, or the simulations of some plans, or texts."""
    if what in KINDS:
        body = chat(what)
        return asyncio.run(together(BODIES, lambda: asked(url, "POST", "/openai/v1/chat/completions", body)))
    if what == "texts":
        text = b'{"text": "keep P99 TTFT < 2s at peak"}'
        return asyncio.run(together(TEXTS, lambda: asked(url, "POST", "/v1/intents:translate", text)))
    plans = iter(what.split(","))
    return asyncio.run(together(SIMULATIONS, lambda: asked(url, "GET", f"/v1/plans/{next(plans)}/simulation")))


@contextmanager
def deployment(tree: Path) -> Iterator[Path]:
    """The deployment of a laptop, with an LLM that never answers; a spare would import torch beside the first requests."""
    with Endpoint(_silent) as endpoint, tempfile.TemporaryDirectory() as folder:
        examples = tree / "examples"
        text = (examples / "local-cpu.yaml").read_text()
        text = text.replace("path: counting", f"path: {examples / 'counting'}")
        llm = f"base_url: '{endpoint.settings().base_url}', model: m, timeout_s: {LLM_TIMEOUT_S:g}"
        file = Path(folder) / "deployment.yaml"
        file.write_text(f"{text}\nllm: {{{llm}}}\ntorch: {{spare: false}}\n")
        yield file


def _silent(exchange: Exchange) -> None:
    exchange.released.wait()


# -- bodies ----------------------------------------------------------------------------------------


def bodies(tree: Path, kind: str) -> Document:
    """What clients of a hundred bodies at once waited for, and what the service says that they did."""
    with deployment(tree) as file, service(tree, file) as url:
        asyncio.run(asked(url, "POST", "/openai/v1/chat/completions", chat("small")))
        with sent(url, kind) as sender:
            assert sender.stdout is not None
            answers = json.loads(sender.stdout.read())
        load = json.loads(asyncio.run(asked(url, "GET", "/v1/load"))[2])
    (everybody,) = (one for one in load["models"][0]["tenants"] if not one["tenant"])
    seconds = answers["seconds"]
    return {
        "statuses": answers["statuses"],
        "client_s": {f"p{share}": percentile(seconds, share / 100) for share in (50, 90, 95, 99)},
        "service_s": {name: everybody["ttft_s"][name] for name in ("p50", "p95", "p99")},
    }


def misses_of_bodies(rows: dict[str, list[Document]]) -> list[str]:
    """Which bars are missed by the middle of the rounds."""
    found = []
    small_s = tail_s(rows["small"])
    for kind, rounds in rows.items():
        for name in ("p50", "p95"):
            client_s, said_s = (median(one[f"{who}_s"][name] for one in rounds) for who in ("client", "service"))
            if client_s > said_s * (1 + SHARE) + SLACK_S:
                found.append(f"{kind}: {name} of the client {client_s:.3f} s, of the service {said_s:.3f} s")
        if tail_s(rounds) > TAIL_RATIO * small_s + TAIL_S:
            found.append(f"{kind}: p99 {tail_s(rounds):.3f} s, of small ones {small_s:.3f} s")
    return found


def tail_s(rounds: Sequence[Document]) -> float:
    """What clients waited at p99, the middle of the rounds."""
    middle_s: float = median(one["client_s"]["p99"] for one in rounds)
    return middle_s


# -- stalls ----------------------------------------------------------------------------------------


def seen_in(seen: Seen, start_s: float, end_s: float) -> Document:
    """What the stream and the probe saw in a window."""
    (arrivals_s,) = seen.arrivals_s
    gaps_s = [b - a for a, b in itertools.pairwise(arrivals_s) if a >= start_s and b <= end_s]
    probes_s = seen.probes_within([(start_s, end_s)])
    return {
        "gaps": len(gaps_s),
        "gap_s": {"p50": median(gaps_s), "p99": percentile(gaps_s, 0.99), "max": max(gaps_s)},
        "healthz_s": {"p50": median(probes_s), "max": max(probes_s)},
    }


async def stalls(url: str) -> Document:
    """A quiet window, one beside a process that computes, one with all that is slow."""
    made = [await asked(url, "POST", "/v1/plans", b'{"target": "tp2"}') for _ in range(SIMULATIONS)]
    plans = ",".join(json.loads(one[2])["plans"][0]["id"] for one in made)
    found: Document = {}
    async with watched(url, 1, STREAM_TOKENS) as seen:
        for name in ("quiet", "hog", "busy"):
            work = {"quiet": [], "hog": [], "busy": [KINDS[1], "texts", plans]}[name]
            start_s = time.monotonic()
            processes = [sent(url, what) for what in work]
            hogs = [hog()] if name == "hog" else []
            try:
                await asyncio.sleep(WINDOW_S)
                found[name] = seen_in(seen, start_s, time.monotonic())
                if processes:
                    found[name]["simulations_go_on"] = processes[2].poll() is None
                    some = [asyncio.to_thread(process.communicate) for process in processes[:2]]
                    answers = [json.loads(out) for out, _ in await asyncio.gather(*some)]
                    found[name] |= {
                        what: {"statuses": one["statuses"], "slowest_s": one["seconds"][-1]}
                        for what, one in zip(("bodies", "texts"), answers, strict=True)
                    }
            finally:
                for process in (*processes, *hogs):
                    process.kill()
                    process.wait()
    return found


def misses_of_stalls(rounds: Sequence[Document]) -> list[str]:
    """The same of these bars."""
    ratio = median(gap_ratio(one) for one in rounds)
    usual_s, worst_s = (median(one["busy"]["healthz_s"][name] for one in rounds) for name in ("p50", "max"))
    bars = {
        f"median gap {ratio:.2f} times the quiet one": ratio > GAP_RATIO,
        f"median of /healthz {usual_s * 1e3:.1f} ms": usual_s > HEALTH_MEDIAN_S,
        f"worst of /healthz {worst_s:.2f} s": worst_s > HEALTH_WORST_S,
    }
    return [name for name, missed in bars.items() if missed]


def gap_ratio(one: Document) -> float:
    """Of the median gaps, busy to quiet."""
    ratio: float = one["busy"]["gap_s"]["p50"] / one["quiet"]["gap_s"]["p50"]
    return ratio


# -- both ------------------------------------------------------------------------------------------


def table(rows: Document) -> str:
    """A line for each kind and window: the middle of the rounds."""
    lines = [f"{'a hundred at once':36}{'client p50, p95, p99 s':>28}{'service p50, p95, p99 s':>28}"]
    for tree, found in rows.items():
        for kind, rounds in found["bodies"].items():
            client, said = (
                ", ".join(f"{median(one[who][name] for one in rounds):.3f}" for name in ("p50", "p95", "p99"))
                for who in ("client_s", "service_s")
            )
            ratio = tail_s(rounds) / tail_s(found["bodies"]["small"])
            lines.append(f"{f'{tree}: {kind}':36}{client:>28}{said:>28}  p99 {ratio:.2f} times that of small ones")
    lines.append(f"{'one stream':36}{'gap p50, p99, max ms':>28}{'/healthz p50, max ms':>28}")
    for tree, found in rows.items():
        for name in ("quiet", "hog", "busy"):
            gaps, probes = (
                ", ".join(f"{median(one[name][what][key] for one in found['stalls']) * 1e3:.1f}" for key in keys)
                for what, keys in (("gap_s", ("p50", "p99", "max")), ("healthz_s", ("p50", "max")))
            )
            lines.append(f"{f'{tree}: {name}':36}{gaps:>28}{probes:>28}")
        lines.append(f"{tree}: median gap {median(map(gap_ratio, found['stalls'])):.2f} times the quiet one")
    return "\n".join(lines)


def measured(tree: Path, rounds: int) -> Document:
    """Everything of the packages of a tree."""
    found: dict[str, Any] = {"bodies": {kind: [] for kind in KINDS}, "stalls": []}
    for number in range(rounds):
        for kind in KINDS:
            found["bodies"][kind].append(bodies(tree, kind))
        with deployment(tree) as file, service(tree, file) as url:
            found["stalls"].append(asyncio.run(stalls(url)))
        print(f"{tree.name}: round {number + 1}", file=sys.stderr, flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, write everything; the exit status is 1 where a bar is missed now."""
    parser = argparse.ArgumentParser("python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--before", type=Path, help="a tree of another commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--send", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.send:
        print(json.dumps(send(options.url, options.send)))
        return 0
    document: Document = {"benchmark": "stalls", **provenance(), "rounds": options.rounds}
    rows = {"now": measured(HERE, options.rounds)}
    if options.before:
        rows["before"] = measured(options.before, options.rounds)
    print(table(rows))
    missed = misses_of_bodies(rows["now"]["bodies"]) + misses_of_stalls(rows["now"]["stalls"])
    print(*(f"missed: {one}" for one in missed), sep="\n")
    if options.json:
        document |= {"rows": rows, "missed": missed, "stolen_after_s": stolen_now_s()}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
