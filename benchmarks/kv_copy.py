"""How fast KV is copied from a peer's blocks, beside a plain copy of as many bytes on that device.

On a GPU the peer is a process of its own on the same device, and one kernel packs and scatters; on a CPU the stores are
two of one process. Exits with 2 where there is no such device.
"""

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.memcpy import memcpy_bytes_s
from runtime.errors import EngineStartError, RuntimeFault
from runtime.footprint import Piece, Transfer
from runtime.kv.chunks import ChunkedStore
from runtime.kv.memory import CudaMemory
from runtime.kv.store import KvHandle, KvShape, KvStore
from runtime.torch_engine.worker.backends import open_gpu

SHAPES = {
    "cpu": KvShape(4, 8, 512, 16, 128, torch.float32),
    "cuda": KvShape(32, 8, 8192, 16, 128, torch.bfloat16),  # Llama-3-8B: 16 GiB
}
REPEAT = 9
BLOCKS = {"cpu": 256, "cuda": 2048}
"""Copied in one go."""
PLAIN_BYTES = 1 << 30
"""Of a plain copy."""
CHUNK_WORDS = CudaMemory.granularity // 4
"""int32 values of the KV of a slab that is allocated together."""

Runs = NDArray[np.int64]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 2 where it cannot begin."""
    device = parser().parse_args(arguments).device
    try:
        with PEERS[device](SHAPES[device]) as peers:
            print(f"plain copy: {peers.plain_bytes_s / 1e9:.1f} GB/s")
            for name, runs in cases(SHAPES[device], BLOCKS[device]).items():
                row = peers.row(runs)
                print(
                    f"{name}: {row['gb_s']:.1f} GB/s, {row['share_of_plain']:.0%} of it, {row['problem'] or 'bytes equal'}"
                )
    except RuntimeFault as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
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


@dataclass(frozen=True, slots=True)
class Peers:
    """A store, and a peer's that it copies from."""

    target: KvStore | ChunkedStore
    source: KvHandle
    digest: Callable[[Piece, int, int], str]
    """Of the peer's KV: piece, block, tokens."""
    plain_bytes_s: float
    """How fast the device copies as plain bytes."""

    def copy(self, runs: Runs) -> int:
        """These tokens of all pieces. Returns the bytes once they are here."""
        return self.target.copy([(everything(self.target.shape), self.source)], runs)

    def row(self, runs: Runs) -> dict[str, Any]:
        """How fast they are copied, and whether the last of them are the peer's bytes."""
        bytes_s = rate(self.copy, runs)
        return {
            "gb_s": bytes_s / 1e9,
            "plain_gb_s": self.plain_bytes_s / 1e9,
            "share_of_plain": bytes_s / self.plain_bytes_s,
            "problem": None if self.is_equal(runs) else "what was copied is not what the peer has",
        }

    def is_equal(self, runs: Runs) -> bool:
        """Of the block that the last run ends in, up to its end, in the last piece and the first."""
        shape, (start, end) = self.target.shape, map(int, runs[-1])
        block = (end - 1) // shape.block_size
        if start > block * shape.block_size:
            return True  # what is before it in the block was not copied
        what = block, end - block * shape.block_size
        ends = Piece(0, 0), Piece(shape.num_layers - 1, shape.num_kv_heads - 1)
        return all(self.target.digest(piece, *what) == self.digest(piece, *what) for piece in ends)


@contextmanager
def on_cpu(shape: KvShape) -> Iterator[Peers]:
    """Two stores of this process."""
    source, target = KvStore(shape), KvStore(shape)
    source.cache.uniform_()
    target.cache.fill_(2.0)
    yield Peers(target, source.handle, source.digest, memcpy_bytes_s())


@contextmanager
def on_gpu(shape: KvShape) -> Iterator[Peers]:
    """On the first GPU; the peer is a process of its own."""
    target = held(shape)
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    peer = spawning.Process(target=be_peer, args=(theirs, shape), daemon=True)
    peer.start()
    theirs.close()

    def digest(piece: Piece, block: int, tokens: int) -> str:
        ours.send((piece, block, tokens))
        found: str = ours.recv()
        return found

    try:
        handle: KvHandle = ours.recv()
        yield Peers(target, handle, digest, plain_bytes_s())
        target.forget_peers(math.inf)
    except EOFError:
        raise EngineStartError("the process that held the KV to copy ended; see what it said") from None
    finally:
        ours.close()
        peer.join()


PEERS = {"cpu": on_cpu, "cuda": on_gpu}


def plain_bytes_s(num_bytes: int = PLAIN_BYTES) -> float:
    """Of a copy within the first GPU."""
    source = torch.randint(0, 256, (num_bytes,), dtype=torch.uint8, device="cuda:0")
    target = torch.zeros_like(source)

    def copy(_: Any) -> int:
        target.copy_(source)
        torch.cuda.synchronize()
        return source.nbytes

    return rate(copy, np.empty((0, 2), np.int64))


def be_peer(connection: Connection, shape: KvShape) -> None:
    """Hold random KV and tell its digests until nobody listens."""
    store = held(shape)
    for address in store.table.flatten().tolist():
        words = {"data": (address, False), "shape": (CHUNK_WORDS,), "typestr": "<i4", "version": 3}
        torch.as_tensor(SimpleNamespace(__cuda_array_interface__=words), device="cuda").random_()
    store.wait()
    connection.send(store.handle)
    with suppress(EOFError):
        while True:
            connection.send(store.digest(*connection.recv()))


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
