"""A short calibration of this machine's CPU for one checkpoint.

Rates and fixed costs, measured in some seconds.

``measure`` starts ``python -m runtime.torch_engine.calibrate CHECKPOINT``, so that the caller loads no torch and the
measuring process is like a worker: one thread.
"""

import heapq
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from runtime.errors import CheckpointError, RuntimeFault
from runtime.footprint import why_not
from runtime.kv.store import KvShape, KvStore
from runtime.models import BYTES_PER_VALUE, LayerRange, ModelSpec, Precision, Stage, Topology
from runtime.process.channel import BlockingChannel
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.backends import DTYPES
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO, Group, GroupMemory, GroupShape, Hop
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import LayerShare, LayerWeights, Weights

_BLOCK_TOKENS = 32
_LARGE_VALUES = 1 << 18  # 1 MiB of float32: bandwidth, not latency
_LONGEST_S = 1.0
"""Of one figure in one round: a step of a large model is not repeated as often as that of a small one."""
ROUNDS = 5
"""At most: other work on the machine only slows things down, so that the quickest of several rounds is nearest."""
SETTLED = 0.1
"""Relative: two rounds that differ by less are enough."""
_TELLING = ("gemm_s", "memory_s", "all_s")
"""What rounds are compared by: the rest is small beside it, or made of it."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured, and how far it can be trusted."""

    figures: Mapping[str, Any]
    """Seconds and rates of one rank, and between two ranks; the keys name their units."""
    rounds: int
    apart: float
    """By which the two quickest rounds differ, relative."""
    load: float
    """Processes that wanted a core before it began, on average of a minute."""
    at_s: float
    """Unix seconds."""


def measure(checkpoint: Path, base: str = "fp32") -> Calibration:
    """Rates and fixed costs of an engine that computes in ``base``, in some seconds.

    Raises:
        CheckpointError: the folder cannot be served.
    """
    command = [sys.executable, "-P", "-m", "runtime.torch_engine.calibrate", str(checkpoint), base]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CheckpointError(f"calibration failed: {done.stderr.strip().splitlines()[-1]}")
    return Calibration(**json.loads(done.stdout))


def _median_s(action: Callable[[], object], times: int, longest_s: float = _LONGEST_S) -> float:
    """Median duration, after one run to warm up; of fewer than ``times`` where they take ``longest_s``."""
    action()
    spans = list[float]()
    while len(spans) < times and not (len(spans) >= 3 and sum(spans) > longest_s):
        began = time.perf_counter()
        action()
        spans.append(time.perf_counter() - began)
    return statistics.median(spans)


_GEMM = 768
_VALUES = 1 << 25  # 128 MiB: no cache holds it


def _gemm_s(dtype: torch.dtype) -> float:
    a = torch.randn(_GEMM, _GEMM).to(dtype)
    b = torch.randn(_GEMM, _GEMM).to(dtype)
    return _median_s(lambda: a @ b, 9)


def _memory_s() -> float:
    return _median_s(torch.ones(_VALUES).sum, 5)


def _step_s(checkpoint: Checkpoint, weights: Weights, num_layers: int, sequences: int = 1, context: int = 6) -> float:
    """One-token step of the first layers, with head, of sequences that attend to ``context`` tokens each."""
    model = checkpoint.spec
    blocks = -(-context // _BLOCK_TOKENS)
    shape = KvShape(
        model.num_layers, model.num_kv_heads, sequences * blocks, _BLOCK_TOKENS, model.head_dim, weights.dtype
    )
    store = KvStore(shape)
    spec = ShardSpec(LayerRange(0, num_layers), 0, 1, True, True)
    shard = Shard(weights, spec, spec.layers)
    tokens = torch.zeros(sequences, dtype=torch.int64)
    tables = [tuple(range(first, first + blocks)) for first in range(0, sequences * blocks, blocks)]

    def step() -> None:
        attention = Attention(store.cache, slice(None), [Span(context - 1, 1, table) for table in tables])
        shard.logits(shard.forward(tokens, attention, SOLO), list(range(sequences)), SOLO)

    return _median_s(step, 40)


def _between_ranks() -> tuple[float, float, float]:
    """Seconds of a small and a large all-reduce, and of a hop with a small one, between two processes."""
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
    """One side of ``_between_ranks``; both repeat as often, or one would be waited for."""
    small = torch.ones(128)
    large = torch.ones(_LARGE_VALUES)
    latency_s = _median_s(lambda: reducing.all_reduce(small), 200, math.inf)
    large_s = _median_s(lambda: reducing.all_reduce(large), 20, math.inf)

    def hop() -> None:
        if is_sender:
            hopping.send(small)
        else:
            hopping.receive((1, 128), torch.float32)
        reducing.all_reduce(small)  # the other side has it

    return latency_s, large_s, _median_s(hop, 200, math.inf)


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


def _busy(checkpoint: Checkpoint) -> tuple[int, int]:
    """Sequences of a busy decode step, and the tokens that each attends to."""
    return 8, min(512, checkpoint.spec.max_position_embeddings)


FORMATS = ("int8", "int4")
"""Of weights, beside that of activations."""
ROWS = (1, 4, 64)
"""Of products: alone, few, and so many that whole weights are the quicker way."""
_MOST_VALUES = 1 << 26
"""Of layers that are held in every format at once."""

Held = Mapping[str, Sequence[LayerWeights]]
"""Format to layers."""


def _held(weights: Weights, base: str) -> Held:
    """As many layers as are enough, in the base and in each format in which the model can be."""
    model = weights.checkpoint.spec
    layers = range(min(model.num_layers, max(1, _MOST_VALUES // model.layer_parameters)))
    alone = Topology((Stage("CPU", (0,), LayerRange(0, model.num_layers), Precision.named(base, "CPU")),))
    names = [name for name in FORMATS if not why_not(name, alone, model)]
    share = LayerShare(0, 1)
    quantised = {name: [weights.layer(layer, share, name) for layer in layers] for name in names}
    return {base: [weights.layer(layer, share) for layer in layers], **quantised}


def _products_s(layers: Sequence[LayerWeights], model: ModelSpec, dtype: torch.dtype, rows: int) -> float:
    """All products of some layers, one after the other, per value of a weight."""
    heads = model.num_heads * model.head_dim
    hidden, attended, wide = (
        torch.ones(rows, width, dtype=dtype) for width in (model.hidden_size, heads, model.intermediate_size)
    )

    def multiply() -> None:
        for layer in layers:
            layer.qkv(hidden)
            layer.o(attended)
            layer.gate_up(hidden)
            layer.down(wide)

    return _median_s(multiply, 9, _LONGEST_S / 4) / len(layers) / model.layer_parameters


def _round(checkpoint: Checkpoint, weights: Weights, held: Held) -> dict[str, float]:
    """Every duration once, in seconds."""
    layers = checkpoint.spec.num_layers
    latency_s, large_s, hop_s = _between_ranks()
    return {
        "gemm_s": _gemm_s(weights.dtype),
        "memory_s": _memory_s(),
        "one_s": _step_s(checkpoint, weights, 1),
        "all_s": _step_s(checkpoint, weights, layers),
        "busy_s": _step_s(checkpoint, weights, layers, *_busy(checkpoint)),
        "latency_s": latency_s,
        "large_s": large_s,
        "hop_s": hop_s,
        "round_trip_s": _round_trip_s(),
        **{
            f"{name} {rows}": _products_s(layers, checkpoint.spec, weights.dtype, rows)
            for name, layers in held.items()
            for rows in ROWS
        },
    }


def settled(measured: Callable[[], Mapping[str, float]]) -> tuple[dict[str, float], int, float]:
    """The shortest of each duration, in how many rounds, and by how much the two quickest differ.

    Rounds are repeated until two of them differ by little, or there are too many.
    """
    rounds = [measured()]
    apart = math.inf
    while apart > SETTLED and len(rounds) < ROUNDS:
        rounds.append(measured())
        quickest = (heapq.nsmallest(2, (found[name] for found in rounds)) for name in _TELLING)
        apart = max(second / first - 1 for first, second in quickest)
    return {name: min(found[name] for found in rounds) for name in rounds[0]}, len(rounds), apart


def _figures(checkpoint: Checkpoint, took_s: Mapping[str, float], base: str, formats: Iterable[str]) -> dict[str, Any]:
    """Rates and fixed costs that follow from the durations."""
    model = checkpoint.spec
    layer_s = (took_s["all_s"] - took_s["one_s"]) / max(1, model.num_layers - 1)
    memory_bytes_s = _VALUES * 4 / took_s["memory_s"]
    sequences, context = _busy(checkpoint)
    kv_bytes = 2 * BYTES_PER_VALUE[base] * model.num_layers * model.num_kv_heads * model.head_dim * sequences * context
    return {
        "gemm_flops_s": 2 * _GEMM**3 / took_s["gemm_s"],
        "memory_bytes_s": memory_bytes_s,
        "kv_bytes_s": kv_bytes / max(took_s["busy_s"] - took_s["all_s"], 1e-9),
        "layer_overhead_s": max(0.0, layer_s - model.layer_parameters * took_s[f"{base} 1"]),
        "allreduce_latency_s": took_s["latency_s"],
        "allreduce_bytes_s": _LARGE_VALUES * 4 / max(took_s["large_s"] - took_s["latency_s"], 1e-9),
        "p2p_latency_s": max(0.0, took_s["hop_s"] - took_s["latency_s"]),
        "step_overhead_s": max(0.0, took_s["one_s"] - layer_s) + took_s["round_trip_s"],
        "base": base,
        "products_s": {name: [(rows, took_s[f"{name} {rows}"]) for rows in ROWS] for name in formats},
    }


def _calibrated(folder: Path, base: str) -> Calibration:
    load, _, _ = os.getloadavg()
    checkpoint = Checkpoint(folder)
    weights = Weights(checkpoint, DTYPES[base])
    held = _held(weights, base)
    spec = ShardSpec(LayerRange(0, checkpoint.spec.num_layers), 0, 1, True, True)
    shard = Shard(weights, spec, spec.layers)  # holds what the steps share
    took_s, rounds, apart = settled(lambda: _round(checkpoint, weights, held))
    assert shard.is_complete, "as it was made"
    return Calibration(_figures(checkpoint, took_s, base, held), rounds, apart, load, time.time())


def main() -> None:
    """Print the calibration; arguments are the checkpoint folder, and what activations are in."""
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            print(json.dumps(asdict(_calibrated(Path(sys.argv[1]), sys.argv[2]))))  # noqa: T201 - the parent reads it
    except RuntimeFault as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
