"""``python -m benchmarks.carry [--json FILE]``: how fast carriers move KV, beside bare NIXL reads.

Two hosts are two processes of this one, over TCP (``UCX_TLS`` says otherwise). By turns: carriers gather, read and scatter;
NIXL reads each piece from where it lies to where it belongs. Then what two carriers cost while nothing moves.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.kv_copy import cases
from benchmarks.provenance import provenance
from runtime.footprint import Transfer
from runtime.kv.carrier.carrier import Carrier
from runtime.kv.carrier.one_sided import ReadPort
from runtime.kv.store import KvShape, KvStore
from runtime.process.launcher import LocalLauncher

SHAPE = KvShape(16, 8, 512, 16, 64, torch.bfloat16)
BOX = Transfer(1, 0, (0, SHAPE.num_layers), (0, SHAPE.num_kv_heads))
BLOCKS, REPEAT, IDLE_S = 64, 7, 3.0
BAR = 0.6
"""Of the rate of the bare read."""

Runs = NDArray[np.int64]
Document = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    report = parser().parse_args(arguments).json
    os.environ.setdefault("UCX_TLS", "tcp")
    document = {**provenance(), "ucx_tls": os.environ["UCX_TLS"], "bar": BAR, **asyncio.run(measured())}
    if report:
        report.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.carry", description=__doc__)
    found.add_argument("--json", type=Path, metavar="FILE", help="where to write everything that was measured")
    return found


async def measured() -> Document:
    """Rates of each case, the probe and the cost of idle carriers."""
    source, target = KvStore(SHAPE), KvStore(SHAPE)
    source.cache.uniform_()
    giver = await Carrier.start(LocalLauncher("a"), SHAPE, [BOX], {0: source.handle})
    taker = await Carrier.start(LocalLauncher("b"), SHAPE, [BOX], {1: target.handle})
    try:
        met = await taker.meet(giver.address)
        print(f"probe: {met.bytes_s / 1e9:.2f} GB/s, {met.round_trip_s * 1e3:.2f} ms, {met.lane}")
        with bare_port() as port:
            rows = [await row(name, runs, giver, taker, port) for name, runs in cases(SHAPE, BLOCKS).items()]
        pids = [carrier.process.pid for carrier in (giver, taker)]
        before_s = [cpu_s(pid) for pid in pids]
        await asyncio.sleep(IDLE_S)
        idle = [(cpu_s(pid) - was_s) / IDLE_S for pid, was_s in zip(pids, before_s, strict=True)]
        print(f"idle: {' and '.join(f'{share:.1%}' for share in idle)} of a core")
    finally:
        for carrier in (giver, taker):
            carrier.close()
            await carrier.process.close()
    probe = {"bytes_s": met.bytes_s, "round_trip_s": met.round_trip_s, "lane": met.lane}
    return {"probe": probe, "rows": rows, "idle_cores": idle}


async def row(name: str, runs: Runs, giver: Carrier, taker: Carrier, port: ReadPort) -> Document:
    """One case, by turns; the first turn of each touches memory and is left out."""
    carried, bare, parts = list[float](), list[float](), list[tuple[float, float, float]]()
    ranges = places(runs)
    for _ in range(REPEAT + 1):
        began_s = time.perf_counter()
        gathered = await giver.gather(runs)
        fetched = await taker.fetch(runs)
        carried.append(fetched.num_bytes / (time.perf_counter() - began_s))
        parts.append((gathered.copy_s, fetched.link_s, fetched.copy_s))
        began_s = time.perf_counter()
        port.read(*ranges)
        bare.append(fetched.num_bytes / (time.perf_counter() - began_s))
    problem = None if await giver.digest(runs) == await taker.digest(runs) else "the bytes differ"
    found = {
        "case": name, "num_bytes": fetched.num_bytes, "pieces": len(ranges), "carried_gb_s": median(carried[1:]) / 1e9,
        "bare_gb_s": median(bare[1:]) / 1e9, "share": median(carried[1:]) / median(bare[1:]), "problem": problem,
        **dict(zip(("gather_s", "link_s", "scatter_s"), np.median(parts[1:], axis=0).tolist(), strict=True)),
    }  # fmt: skip
    print(
        f"{name}: {found['carried_gb_s']:.2f} GB/s, {found['share']:.0%} of a bare read of {len(ranges):,} pieces, "
        f"{problem or 'bytes equal'}"
    )
    return found


def places(runs: Runs) -> list[tuple[int, int]]:
    """Where pieces of these tokens lie in a KV file, as byte ranges."""
    size, num_slabs = SHAPE.half_slot_bytes, 2 * SHAPE.num_layers * SHAPE.num_kv_heads
    return [
        (slab * SHAPE.slab_bytes + start * size, slab * SHAPE.slab_bytes + stop * size)
        for slab in range(num_slabs)
        for start, stop in runs.tolist()
    ]


@contextmanager
def bare_port() -> Iterator[ReadPort]:
    """Of this process, connected to one of another with as much memory as a KV file."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    owner = spawning.Process(target=own, args=(theirs,), daemon=True)
    owner.start()
    theirs.close()
    port = ReadPort("reader", memory(), "127.0.0.1")
    port.connect("owner", ours.recv())
    yield port
    ours.close()
    owner.join()


def own(connection: Connection) -> None:
    """Be read from until nobody listens."""
    port = ReadPort("owner", memory(), "127.0.0.1")
    connection.send(port.address)
    while not connection.poll(port.turn_s):
        port.turn()


def memory() -> NDArray[np.uint8]:
    """As much as a KV file."""
    return np.ones(2 * SHAPE.num_layers * SHAPE.num_kv_heads * SHAPE.slab_bytes, np.uint8)


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())
