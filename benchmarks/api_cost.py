"""What the service process spends on a streamed token: ``python -m benchmarks.api_cost [--before TREE] [--json FILE]``.

64 streams over an engine that computes nothing and makes a step every 20 ms, by turns: this tree, the tree of another commit
(``git worktree add TREE COMMIT``), and each parameter whose code may be in the path. Then one chunk by hand and by orjson.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import timeit
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from benchmarks.provenance import provenance, stolen_now_s
from runtime.engine import Finish
from runtime.stream import Delta
from service.openai.chunks import Choice, CompletionWriter

HERE = Path(__file__).parents[1]
PROMPT = "the quick brown fox jumps over a lazy dog: "
TEXT = {"prompt": PROMPT}
CHAT = {"messages": [{"role": "user", "content": PROMPT}]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ROWS: dict[str, tuple[str, dict[str, Any], int]] = {
    "completion": ("/completions", TEXT, 1),
    "chat": ("/chat/completions", CHAT, 1),
    "stop, 4 strings": ("/completions", TEXT | {"stop": ["fog", "xyz", "dig", "###"]}, 1),
    "logprobs 5": ("/completions", TEXT | {"logprobs": 5}, 1),
    "chat logprobs 5": ("/chat/completions", CHAT | {"logprobs": True, "top_logprobs": 5}, 1),
    "usage": ("/completions", TEXT | {"stream_options": {"include_usage": True}}, 1),
    "n 8": ("/completions", TEXT | {"n": 8}, 8),
    "8 prompts": ("/completions", {"prompt": [PROMPT] * 8}, 8),
    "penalties, bias": ("/completions", TEXT | {"presence_penalty": 1, "logit_bias": {"5": 1}}, 1),
    "tools": ("/chat/completions", CHAT | {"tools": [TOOL]}, 1),
}
"""Name to endpoint, request and choices of one request."""
NEW = {"n 8", "8 prompts", "penalties, bias", "tools"}
"""What a tree before these parameters refuses."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    streams: int
    tokens: int
    """Of each stream."""
    rounds: int
    pace_s: float
    rows: tuple[str, ...]


@contextmanager
def server(tree: Path, pace_s: float) -> Iterator[tuple[int, int]]:
    """A process that serves with the packages of ``tree``: its id and port."""
    command = [sys.executable, str(HERE / "benchmarks" / "api_server.py"), str(pace_s)]
    with subprocess.Popen(command, env={"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def cpu_s(pid: int) -> float:
    """CPU time of a process's main thread, by the kernel's own count."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9


async def stream(port: int, path: str, body: dict[str, Any]) -> int:
    """Events of one streamed answer, read as they come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body | {"model": "m", "stream": True, "temperature": 0}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    events = 0
    while piece := await reader.read(65536):
        events += piece.count(b"data: {")
    writer.close()
    return events


async def spent_us(pid: int, port: int, row: str, parameters: Parameters) -> float:
    """CPU time of the service per token, in microseconds."""
    path, body, choices = ROWS[row]
    body = body | {"max_tokens": parameters.tokens}
    before_s = cpu_s(pid)
    count = parameters.streams // choices
    events = sum(await asyncio.gather(*(stream(port, path, body) for _ in range(count))))
    spent_s = cpu_s(pid) - before_s
    expected = parameters.streams * parameters.tokens
    if not expected <= events <= expected + count:
        raise RuntimeError(f"{row}: {events} events for {expected} tokens")
    return spent_s / expected * 1e6


async def measure(trees: dict[str, Path], parameters: Parameters) -> dict[str, dict[str, list[float]]]:
    """Microseconds per token of each row and tree, one figure a round; trees take turns within a row."""
    found: dict[str, dict[str, list[float]]] = {row: defaultdict(list) for row in parameters.rows}
    for number in range(parameters.rounds):
        for name, tree in trees.items() if number % 2 == 0 else reversed(trees.items()):
            with server(tree, parameters.pace_s) as (pid, port):
                await spent_us(pid, port, "completion", parameters)  # imports, caches
                for row in parameters.rows:
                    if name != "before" or row not in NEW:
                        found[row][name].append(await spent_us(pid, port, row, parameters))
        print(f"round {number + 1} of {parameters.rounds}", file=sys.stderr, flush=True)
    return found


def encoders() -> dict[str, float]:
    """Microseconds for the chunk of one token, by hand and as an object that orjson writes."""
    answer = CompletionWriter(
        "cmpl-1", "text_completion", "m", 1700000000, [Choice(0, None)], 1, None, include_usage=False
    )
    facts = {"id": "cmpl-1", "object": "text_completion", "created": 1700000000, "model": "m"}
    deltas = [Delta(f"{number % 97} ", number, -0.5, (), number, None, "3-TP2", 0.0) for number in range(500)]

    def by_orjson(delta: Delta) -> bytes:
        finish = None if delta.finish is None else "length" if delta.finish is Finish.LENGTH else "stop"
        choice = {"index": 0, "text": delta.text, "logprobs": None, "finish_reason": finish}
        document = {**facts, "system_fingerprint": delta.fingerprint, "choices": [choice]}
        return b"data: " + orjson.dumps(document) + b"\n\n"

    assert all(answer.chunk((0, delta)) == by_orjson(delta) for delta in deltas)

    def microseconds(work: Any) -> float:
        return min(timeit.repeat(work, number=20, repeat=20)) / 20 / len(deltas) * 1e6

    return {
        "by hand": microseconds(lambda: [answer.chunk((0, delta)) for delta in deltas]),
        "orjson": microseconds(lambda: [by_orjson(delta) for delta in deltas]),
    }


def table(found: dict[str, dict[str, list[float]]], trees: dict[str, Path]) -> str:
    """Medians, a row for each parameter."""
    lines = [f"{'us of CPU per streamed token':30}" + "".join(f"{name:>12}" for name in trees)]
    for row, by_tree in found.items():
        cells = [f"{median(by_tree[name]):12.1f}" if by_tree.get(name) else f"{'-':>12}" for name in trees]
        lines.append(f"{row:30}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, and write everything that was measured."""
    found = argparse.ArgumentParser("python -m benchmarks.api_cost", description=__doc__)
    found.add_argument("--before", type=Path, help="a tree of the commit before")
    found.add_argument("--streams", type=int, default=64)
    found.add_argument("--tokens", type=int, default=150, help="of each stream")
    found.add_argument("--rounds", type=int, default=5)
    found.add_argument("--row", action="append", choices=ROWS, help="only these rows; may be said several times")
    found.add_argument("--json", type=Path, metavar="FILE")
    options = found.parse_args()
    rows = tuple(options.row or ROWS)
    parameters = Parameters(options.streams, options.tokens, options.rounds, pace_s=0.02, rows=rows)
    trees = {"now": HERE, "now again": HERE} | ({"before": options.before} if options.before else {})
    document = {"benchmark": "api_cost", **provenance()}
    measured = asyncio.run(measure(trees, parameters))
    chunk = encoders()
    print(table(measured, trees))
    print("\nus for a chunk: " + ", ".join(f"{name} {spent:.2f}" for name, spent in chunk.items()))
    if options.json:
        document |= {"rows": measured, "chunk_us": chunk, "stolen_after_s": stolen_now_s()}
        document["parameters"] = {name: getattr(parameters, name) for name in Parameters.__slots__}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
