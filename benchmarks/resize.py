"""How fast KV memory gives way: a full pool loses all that nobody uses while streams run, and grows back.

Each round fills the pool with requests, ends all but a few, shrinks the pool to what these need and grows it again.
Prints a table and, with ``--json``, writes everything measured; benchmarks/README.md says what each figure means.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.counting import counting_text
from benchmarks.engines import Subject
from benchmarks.parameters import UsageError
from benchmarks.provenance import provenance
from intentctl.arguments import EngineName
from runtime.engine import GenerationRequest, Moved, SamplingParams
from runtime.errors import RuntimeFault
from runtime.footprint import kv_bytes_per_token
from runtime.models import Cluster
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.engine import TorchEngine
from runtime.torch_engine.messages import KvDigests
from runtime.torch_engine.models import EngineSettings

PROMPT, OUTPUT = 720, 300
"""Tokens of every request; the checkpoint takes 1,024 in all."""

QUIET_TOKENS = 40
"""Tokens of each stream before anything is resized."""

SPARE = 4
"""Blocks left to each stream, so that none has to wait for one."""

STACKS = (
    (8, 4096, 4096),  # the counting model: K (or V) of 32 tokens, float32; CPU pages
    (32, 8 << 10, 2 << 20),  # 8B: K and V of 16 tokens, one head of 128, bf16; CUDA
    (80, 64 << 10, 2 << 20),  # 70B: the same of all 8 heads
)
"""Layers, bytes of one layer's part of a block, and of what the device allocates at once."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    shape: str
    pool_mib: int
    streams: int
    """Requests that go on while the pool is resized."""
    rounds: int
    block_size: int = 32

    def blocks(self, subject: Subject) -> int:
        """Blocks of the pool."""
        return (self.pool_mib << 20) // self.block_bytes(subject)

    def block_bytes(self, subject: Subject) -> int:
        """Bytes of a block over all layers and heads."""
        return kv_bytes_per_token(subject.spec, "fp32") * self.block_size

    def check(self, subject: Subject) -> None:
        """Refuse what cannot be run.

        Raises:
            UsageError, TopologyError: naming the value.
        """
        subject.topology(self.shape)
        if min(self.streams, self.rounds) < 1:
            raise UsageError("--streams and --rounds must be at least 1")
        needed = 2 * self.streams * -(-(PROMPT + OUTPUT) // self.block_size)
        if self.blocks(subject) < needed:
            size = -(-needed * self.block_bytes(subject) >> 20)
            raise UsageError(
                f"--pool-mib {self.pool_mib}: {self.streams} streams and as many that end need {size}; "
                "ask for more memory or fewer streams"
            )


@dataclass(frozen=True, slots=True)
class Round:
    """One shrinking and growing."""

    held_bytes: int
    """Behind the pool when it was full."""
    free_bytes: int
    """Of these, behind blocks that no stream used."""
    returned_bytes: int
    rss_fell_bytes: int
    """By how much the workers' RssShmem fell."""
    shrink_s: float
    grow_s: float
    first_token_s: float
    """From growing to the first token of a request that takes new blocks."""
    slices_ms: tuple[float, ...]
    gaps_ms: tuple[float, ...]
    """Waits of streams for a token while the pool shrank."""
    quiet_gaps_ms: tuple[float, ...]
    """The same before."""
    live_blocks: int
    moved_blocks: int
    """Live blocks that had another id, or other bytes, afterwards."""


class Listener:
    """An engine, and when each request's tokens came."""

    def __init__(self, engine: TorchEngine, block_bytes: int) -> None:
        self.engine, self.block_bytes = engine, block_bytes
        self.arrivals: dict[str, list[float]] = {}
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for batch in self.engine.outputs():
            now = time.perf_counter()
            for item in batch:
                if not isinstance(item, Moved) and item.token_id is not None:
                    self.arrivals.setdefault(item.request_id, []).append(now)
            self._news.set()

    async def news(self) -> None:
        """Wait for more tokens."""
        self._news.clear()
        await self._news.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Look whenever tokens come."""
        while not condition():
            await self.news()

    async def more(self, names: Sequence[str], count: int) -> None:
        """Wait for so many more tokens of each request."""
        enough = {name: len(self.arrivals[name]) + count for name in names}
        await self.until(lambda: all(len(self.arrivals[name]) >= enough[name] for name in names))

    def gaps_ms(self, names: Sequence[str], since: float, until: float) -> tuple[float, ...]:
        """Waits for a token that were going on between two moments."""
        return tuple(
            round(1000 * (after - before), 3)
            for name in names
            for before, after in pairwise(self.arrivals[name])
            if after >= since and before <= until
        )


async def run(parameters: Parameters, subject: Subject) -> list[Round]:
    """All rounds on one engine."""
    num_blocks = parameters.blocks(subject)
    settings = EngineSettings(
        block_size=parameters.block_size,
        num_blocks=num_blocks + 1,  # one is the engine's own
        max_running=num_blocks // -(-PROMPT // parameters.block_size),
        closing_batch_tokens=4096,
        max_batch_tokens=4096,  # fills the pool in a few steps
        prefix_caching=False,  # a prompt that comes twice shall fill it all the same
    )
    topology, cluster = subject.topology(parameters.shape), roomy(subject.cluster, parameters)
    engine = await TorchEngine.start(subject.checkpoint, topology, cluster, settings)
    listener, tokenizer = (
        Listener(engine, parameters.block_bytes(subject)),
        Tokenizer.load(subject.checkpoint),
    )
    try:
        return [await one_round(listener, tokenizer, number, parameters.streams) for number in range(parameters.rounds)]
    finally:
        await engine.close()


def roomy(cluster: Cluster, parameters: Parameters) -> Cluster:
    """The same with devices that hold the pool twice."""
    memory = max(1 << 30, parameters.pool_mib << 21)
    nodes = (
        replace(node, gpus=tuple(replace(gpu, memory_bytes=memory) for gpu in node.gpus)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(nodes))


async def one_round(listener: Listener, tokenizer: Tokenizer, number: int, streams: int) -> Round:
    """Fill, end most, shrink, grow."""
    engine = listener.engine
    kept = await fill(listener, tokenizer, number, streams)
    quiet = time.perf_counter()
    await listener.more(kept, QUIET_TOKENS)
    quiet_gaps_ms = listener.gaps_ms(kept, quiet, time.perf_counter())
    before = await engine.digests()
    await listener.more(kept, 1)
    stats = await engine.stats()
    pids, live = tuple(stats.worker_pids.values()), stats.total_blocks - stats.free_blocks
    held, rss = sum(map(held_bytes, pids)), sum(map(shared_rss_bytes, pids))
    began = time.perf_counter()
    shrunk = await engine.resize(live + SPARE * streams)
    ended = time.perf_counter()
    rss_fell = rss - sum(map(shared_rss_bytes, pids))
    await listener.more(kept, 1)
    gaps_ms = listener.gaps_ms(kept, began, ended)
    after = await engine.digests(before.positions)
    growing = time.perf_counter()
    await engine.resize(stats.total_blocks)
    grown = time.perf_counter()
    await submit(listener, tokenizer, f"{number}-new")
    await listener.until(lambda: f"{number}-new" in listener.arrivals)
    first = time.perf_counter()
    for name in [*kept, f"{number}-new"]:
        await engine.cancel(name)
    await idle(listener, 0)
    return Round(
        held_bytes=held,
        free_bytes=held - (live + 1) * listener.block_bytes,
        returned_bytes=shrunk.returned_bytes,
        rss_fell_bytes=rss_fell,
        shrink_s=ended - began,
        grow_s=grown - growing,
        first_token_s=first - grown,
        slices_ms=tuple(seconds * 1000 for seconds in shrunk.slices_s),
        gaps_ms=gaps_ms,
        quiet_gaps_ms=quiet_gaps_ms,
        live_blocks=len(before.blocks),
        moved_blocks=moved(before, after),
    )


async def fill(listener: Listener, tokenizer: Tokenizer, number: int, streams: int) -> list[str]:
    """Take most blocks, then end all requests but the youngest ``streams`` that speak; those."""
    engine = listener.engine
    total = (await engine.stats()).total_blocks
    names = [f"{number}-{index}" for index in range(total // (PROMPT // 32))]
    for name in names:
        await submit(listener, tokenizer, name)
    while (await engine.stats()).free_blocks > total // 16:
        await listener.news()
    kept = [name for name in names if name in listener.arrivals][-streams:]
    for name in names:
        if name not in kept:
            await engine.cancel(name)
    await idle(listener, streams)
    return kept


async def submit(listener: Listener, tokenizer: Tokenizer, name: str) -> None:
    """A request of ``PROMPT`` and ``OUTPUT`` tokens."""
    number = sum(map(ord, name)) + len(listener.arrivals)
    prompt = tokenizer.encode(counting_text(number, PROMPT))[:PROMPT]
    await listener.engine.submit(GenerationRequest(name, prompt, SamplingParams(OUTPUT), epoch=1))


async def idle(listener: Listener, running: int) -> None:
    """Wait until no more than so many requests are left."""
    while (stats := await listener.engine.stats()).running + stats.waiting > running:
        await listener.news()


def moved(before: KvDigests, after: KvDigests) -> int:
    """Live blocks that have another id, or a piece with other bytes, than before."""
    renamed = {place for place, block in before.blocks.items() if after.blocks.get(place) != block}
    changed = {key[:2] for key, digest in before.digests.items() if after.digests.get(key) != digest}
    return len(renamed | changed)


def held_bytes(pid: int) -> int:
    """Bytes behind a worker's KV memory."""
    files = [path for path in Path(f"/proc/{pid}/fd").iterdir() if "intentctl-kv" in str(path.readlink())]
    return files[0].stat().st_blocks * 512


def shared_rss_bytes(pid: int) -> int:
    """Shared memory that is resident in a process, in bytes."""
    (found,) = re.findall(r"RssShmem:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(found) << 10


def figures(rounds: Sequence[Round]) -> dict[str, Any]:
    """What the rounds come to; the worst where a bound is meant."""
    slices = [slice_ms for one in rounds for slice_ms in one.slices_ms]
    return {
        "returned_share_least": min(one.returned_bytes / one.free_bytes for one in rounds),
        "rss_share_least": min(one.rss_fell_bytes / one.free_bytes for one in rounds),
        "shrink_s": spread([one.shrink_s for one in rounds]),
        "grow_s": spread([one.grow_s for one in rounds]),
        "first_token_s": spread([one.first_token_s for one in rounds]),
        "slices": len(slices),
        "slice_ms": spread(slices),
        "delay_ms": spread([delay_ms(one, statistics.median) for one in rounds]),
        "longest_delay_ms": spread([delay_ms(one, max) for one in rounds]),
        "live_blocks": sum(one.live_blocks for one in rounds),
        "moved_blocks": sum(one.moved_blocks for one in rounds),
    }


def delay_ms(one: Round, figure: Callable[[Sequence[float]], float]) -> float:
    """By how much a figure of the waits is longer while the pool shrinks than before."""
    return figure(one.gaps_ms) - figure(one.quiet_gaps_ms)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median and most."""
    return {"least": min(values), "median": statistics.median(values), "most": max(values)}


def stacks() -> list[dict[str, Any]]:
    """Share of the allocated memory that holds KV, by layers to a stack, for blocks that are allocated one by one."""
    return [
        {
            "num_layers": num_layers,
            "block_bytes": block_bytes,
            "granularity": granularity,
            "utilisation": {k: utilisation(num_layers, k, block_bytes, granularity) for k in (1, 2, 4, 8, 16, 32, 64)},
        }
        for num_layers, block_bytes, granularity in STACKS
    ]


def utilisation(num_layers: int, stack: int, block_bytes: int, granularity: int) -> float:
    """Share of the allocated bytes that hold KV, where ``stack`` layers' parts of a block are allocated together.

    ``block_bytes`` is one layer's part; allocations are multiples of ``granularity``. A last stack with fewer layers
    takes as much as a full one, because slabs are alike.
    """
    allocated = -(-num_layers // stack) * -(-stack * block_bytes // granularity) * granularity
    return num_layers * block_bytes / allocated


def table(found: dict[str, Any]) -> str:
    """The figures, one a line."""
    lines = []
    for name, value in found.items():
        texts = value.values() if isinstance(value, dict) else (value,)
        lines.append(f"{name:22}" + "".join(f"{one:12.4g}" for one in texts))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 when a live block was moved, 2 when nothing could begin."""
    options = parser().parse_args(arguments)
    parameters = Parameters(options.shape, options.pool_mib, options.streams, options.rounds)
    subject = Subject.example(EngineName.TORCH)
    try:
        parameters.check(subject)
    except (UsageError, RuntimeFault) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    rounds = asyncio.run(run(parameters, subject))
    document = {
        "benchmark": "resize",
        **provenance(),
        "parameters": asdict(parameters),
        "load_average_after": os.getloadavg(),
        "figures": figures(rounds),
        "rounds": [asdict(one) for one in rounds],
        "stacks": stacks(),
    }
    text = json.dumps(document, indent=1)
    print(text if options.format == "json" else table(document["figures"]))
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return int(document["figures"]["moved_blocks"] > 0)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.resize", description=__doc__)
    found.add_argument("--shape", default="1x1", help="topology whose pool is resized")
    found.add_argument("--pool-mib", type=int, default=1024, help="memory of the pool, over all devices")
    found.add_argument("--streams", type=int, default=8, help="requests that go on while the pool is resized")
    found.add_argument("--rounds", type=int, default=5, help="how often it shrinks and grows")
    found.add_argument("-o", choices=("table", "json"), default="table", dest="format", help="what to print")
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


if __name__ == "__main__":
    sys.exit(main())
