"""A short calibration of this machine's CPU for one checkpoint.

Rates and fixed costs, measured in some seconds.

``measure`` starts ``python -m runtime.torch_engine.calibrate CHECKPOINT``, so that the caller loads no torch and the
measuring process is like a worker: one thread.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from runtime.errors import CheckpointError, RuntimeFault
from runtime.kv.store import KvShape, KvStore
from runtime.models import LayerRange
from runtime.process.channel import BlockingChannel
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO, Group, GroupMemory, GroupShape, Hop
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights

_BLOCK_TOKENS = 32
_LARGE_VALUES = 1 << 18  # 1 MiB of float32: bandwidth, not latency


def measure(checkpoint: Path) -> dict[str, float]:
    """Seconds and rates of one rank, and between two ranks; the keys name their units.

    Raises:
        CheckpointError: the folder cannot be served.
    """
    command = [sys.executable, "-P", "-m", "runtime.torch_engine.calibrate", str(checkpoint)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckpointError(f"calibration failed: {done.stderr.strip().splitlines()[-1]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _median_s(action: Callable[[], object], times: int) -> float:
    """Median duration, after one run to warm up."""
    action()
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        spans.append(time.perf_counter() - began)
    return statistics.median(spans)


def _gemm_flops_s() -> float:
    a = torch.randn(768, 768)
    b = torch.randn(768, 768)
    return 2 * 768**3 / _median_s(lambda: a @ b, 9)


def _memory_bytes_s() -> float:
    values = torch.ones(1 << 25)  # 128 MiB: no cache holds it
    return values.numel() * 4 / _median_s(values.sum, 5)


def _step_s(checkpoint: Checkpoint, num_layers: int, sequences: int = 1, context: int = 6) -> float:
    """One-token step of the first layers, with head, of sequences that attend to ``context`` tokens each."""
    model = checkpoint.spec
    blocks = -(-context // _BLOCK_TOKENS)
    shape = KvShape(
        model.num_layers, model.num_kv_heads, sequences * blocks, _BLOCK_TOKENS, model.head_dim, torch.float32
    )
    store = KvStore(shape)
    spec = ShardSpec(LayerRange(0, num_layers), 0, 1, True, True)
    shard = Shard(Weights(checkpoint, torch.float32), spec, spec.layers)
    tokens = torch.zeros(sequences, dtype=torch.int64)
    tables = [tuple(range(first, first + blocks)) for first in range(0, sequences * blocks, blocks)]

    def step() -> None:
        attention = Attention(store.cache, slice(None), [Span(context - 1, 1, table) for table in tables])
        shard.logits(shard.forward(tokens, attention, SOLO), list(range(sequences)), SOLO)

    return _median_s(step, 40)


def _kv_bytes_s(checkpoint: Checkpoint, alone_s: float) -> float:
    """KV bytes per second of a busy decode step.

    What it reads over what it takes longer than a step alone.
    """
    model = checkpoint.spec
    sequences = 8
    context = min(512, model.max_position_embeddings)
    read = 2 * 4 * model.num_layers * model.num_kv_heads * model.head_dim * sequences * context
    return read / max(_step_s(checkpoint, model.num_layers, sequences, context) - alone_s, 1e-9)


def _between_ranks() -> tuple[float, float, float]:
    """Seconds of a small and a large all-reduce, and of one hop, between two processes."""
    memory, hops = (GroupMemory(GroupShape(tp_sizes, _LARGE_VALUES)) for tp_sizes in ((2,), (1, 1)))
    if (child := os.fork()) == 0:
        try:
            _rank(memory.ranks.join(0, 1).group, hops.ranks.join(1, 0).hop, is_sender=False)
        finally:
            os._exit(0)
    result = _rank(memory.ranks.join(0, 0).group, hops.ranks.join(0, 0).hop, is_sender=True)
    os.waitpid(child, 0)
    return result


def _rank(reducing: Group, hopping: Hop, *, is_sender: bool) -> tuple[float, float, float]:
    small = torch.ones(128)
    large = torch.ones(_LARGE_VALUES)
    latency_s = _median_s(lambda: reducing.all_reduce(small), 200)
    large_s = _median_s(lambda: reducing.all_reduce(large), 20)

    def hop() -> None:
        if is_sender:
            hopping.send(small)
        else:
            hopping.receive((1, 128), torch.float32)
        reducing.all_reduce(small)  # the other side has it

    return latency_s, large_s, max(0.0, _median_s(hop, 200) - latency_s)


def _round_trip_s() -> float:
    """One order to another process and its answer: what the driver adds to each step."""

    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        try:
            channel = BlockingChannel(theirs)
            for message in channel.messages():
                channel.send(message)
        finally:
            os._exit(0)
    theirs.close()
    channel = BlockingChannel(ours)
    answers = channel.messages()

    def ask() -> None:
        channel.send(list(range(100)))
        next(answers)

    duration_s = _median_s(ask, 200)
    ours.close()
    os.wait()
    return duration_s


def _figures(folder: Path) -> dict[str, float]:
    checkpoint = Checkpoint(folder)
    layers = checkpoint.spec.num_layers
    one_s = _step_s(checkpoint, 1)
    all_s = _step_s(checkpoint, layers)
    layer_s = (all_s - one_s) / max(1, layers - 1)
    latency_s, large_s, hop_s = _between_ranks()
    memory_bytes_s = _memory_bytes_s()
    weights_s = checkpoint.spec.layer_parameters * 4 / memory_bytes_s
    return {
        "gemm_flops_s": _gemm_flops_s(),
        "memory_bytes_s": memory_bytes_s,
        "kv_bytes_s": _kv_bytes_s(checkpoint, all_s),
        "layer_overhead_s": max(0.0, layer_s - weights_s),
        "allreduce_latency_s": latency_s,
        "allreduce_bytes_s": _LARGE_VALUES * 4 / max(large_s - latency_s, 1e-9),
        "p2p_latency_s": hop_s,
        "step_overhead_s": max(0.0, one_s - layer_s) + _round_trip_s(),
    }


def main() -> None:
    """Print the figures of the checkpoint folder given as the only argument."""
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            print(json.dumps(_figures(Path(sys.argv[1]))))  # noqa: T201 - the parent reads it
    except RuntimeFault as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
