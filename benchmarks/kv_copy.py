"""How fast KV is copied from a peer's blocks to one's own, beside a plain copy of as many bytes on the same device.

On a GPU the peer is a process of its own on the same device, and one kernel packs and scatters; on a CPU the stores are
two of one process. Exits with 2 where there is no such device.
"""

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.memcpy import memcpy_bytes_s
from runtime.errors import RuntimeFault
from runtime.footprint import Transfer
from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvHandle, KvShape, KvStore
from runtime.torch_engine.places import open_gpu

SHAPES = {
    "cpu": KvShape(4, 8, 512, 16, 128, torch.float32),
    "cuda": KvShape(32, 8, 8192, 16, 128, torch.bfloat16),  # Llama-3-8B: 16 GiB
}
REPEAT = 9
BLOCKS = {"cpu": 256, "cuda": 2048}
"""Copied in one go."""

Runs = NDArray[np.int64]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 2 where it cannot begin."""
    options = parser().parse_args(arguments)
    try:
        plain, copy = on_gpu() if options.device == "cuda" else on_cpu()
    except RuntimeFault as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    shape = SHAPES[options.device]
    print(f"plain copy: {plain / 1e9:.1f} GB/s")
    for name, runs in cases(shape, BLOCKS[options.device]).items():
        speed = rate(copy, runs)
        print(f"{name}: {speed / 1e9:.1f} GB/s, {speed / plain:.0%} of it")
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser("python -m benchmarks.kv_copy", description=__doc__)
    found.add_argument("--device", choices=SHAPES, default="cuda")
    return found


def cases(shape: KvShape, count: int) -> dict[str, Runs]:
    """What to copy: tokens, as runs."""
    size = shape.block_size
    scattered = np.sort(np.random.default_rng(0).choice(shape.num_blocks, count, replace=False)) * size
    return {
        "neighbouring blocks": np.array([[0, count * size]]),
        "scattered blocks": np.stack((scattered, scattered + size), axis=1),
        "a token of each block": np.stack((scattered, scattered + 1), axis=1),
    }


def rate(copy: Callable[[Runs], int], runs: Runs) -> float:
    """Bytes per second, the median of a few; the first opens what the peer holds and is left out."""
    copy(runs)
    rates = []
    for _ in range(REPEAT):
        began_s = time.perf_counter()
        num_bytes = copy(runs)
        rates.append(num_bytes / (time.perf_counter() - began_s))
    return statistics.median(rates)


def on_cpu() -> tuple[float, Callable[[Runs], int]]:
    """Speed of a plain copy, and a copy between stores."""
    source, target = KvStore(SHAPES["cpu"]), KvStore(SHAPES["cpu"])
    source.cache.fill_(1.0)
    target.cache.fill_(2.0)
    box = everything(SHAPES["cpu"])
    return memcpy_bytes_s(), lambda runs: target.copy([(box, source.handle)], runs)


def on_gpu() -> tuple[float, Callable[[Runs], int]]:
    """The same on the first GPU."""
    target = held(SHAPES["cuda"])
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    multiprocessing.get_context("spawn").Process(target=be_peer, args=(theirs,), daemon=True).start()
    handle: KvHandle = ours.recv()
    box = everything(SHAPES["cuda"])
    return plain_bytes_s(target), lambda runs: target.copy([(box, handle)], runs)


def plain_bytes_s(store: ChunkedStore) -> float:
    """Of a copy of 1 GiB within the device."""
    source = torch.ones(1 << 30, dtype=torch.uint8, device=store.device)
    target = torch.zeros_like(source)

    def copy(_: Any) -> int:
        target.copy_(source)
        store.wait()
        return source.nbytes

    return rate(copy, np.empty((0, 2), np.int64))


def be_peer(connection: Connection) -> None:
    """Hold what is copied until nobody listens."""
    connection.send(held(SHAPES["cuda"]).handle)
    connection.poll(None)


def held(shape: KvShape) -> ChunkedStore:
    """A store on the first GPU that holds everything."""
    store = open_gpu(0, shape).store
    assert isinstance(store, ChunkedStore), "GPUs have no other"
    store.gain(everything(shape).pieces, [(0, shape.num_blocks)], seconds=600)
    return store


def everything(shape: KvShape) -> Transfer:
    """All pieces."""
    return Transfer(1, 0, (0, shape.num_layers), (0, shape.num_kv_heads))


if __name__ == "__main__":
    sys.exit(main())
