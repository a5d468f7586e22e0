"""Forward one prompt through the ranks of a topology, without driver or scheduler; run by test_shard.

``python compute_logits.py CHECKPOINT TP PP CHUNKS OUT [KIND]``: CHUNKS is a comma list of prefill chunk sizes, KIND that of the
devices (CPU). Each rank is a forked process; the last stage's first rank saves the logits of every position to OUT.
"""

import os
import sys
from pathlib import Path

import torch

from runtime.footprint import Piece, heads_of
from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvShape
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, uniform
from runtime.torch_engine.checkpoint import Checkpoint
from runtime.torch_engine.group import Group, GroupMemory, GroupShape
from runtime.torch_engine.models import Span
from runtime.torch_engine.places import Place, open_cpu, open_gpu
from runtime.torch_engine.shard import Shard, ShardSpec
from runtime.torch_engine.weights import Weights

BLOCK_SIZE, BLOCKS = 8, 16


def prompt(vocab_size: int, length: int) -> torch.Tensor:
    """The tokens every topology is asked about."""
    return torch.randint(0, vocab_size, (length,), generator=torch.Generator().manual_seed(5))


def place_of(kind: str, index: int, model: ModelSpec) -> Place:
    """With memory for all."""
    dims = model.num_layers, model.num_kv_heads, BLOCKS, BLOCK_SIZE, model.head_dim
    place = (open_cpu if kind == "CPU" else open_gpu)(index, KvShape(*dims, torch.float32))
    if isinstance(place.store, ChunkedStore):
        layers, heads = range(model.num_layers), range(model.num_kv_heads)
        place.store.gain([Piece(layer, head) for layer in layers for head in heads], [(0, BLOCKS)], 60)
    return place


def run_rank(
    checkpoint: Checkpoint,
    spec: ShardSpec,
    heads: tuple[int, int],
    group: Group,
    chunks: list[int],
    place: Place,
) -> torch.Tensor:
    """All chunks through one rank; logits of all positions on the last stage."""
    model = checkpoint.spec
    shard = Shard(Weights(checkpoint, torch.float32, place.device), spec, spec.layers)
    tokens = prompt(model.vocab_size, sum(chunks)).to(place.device)
    table = tuple(torch.randperm(BLOCKS, generator=torch.Generator().manual_seed(2)).tolist())
    logits, at = [], 0
    for count in chunks:
        attention = place.attention(slice(*heads), [Span(at, count, table)])
        hidden = shard.forward(tokens[at : at + count], attention, group)
        if spec.is_last:
            logits.append(shard.logits(hidden, range(count), group))
        at += count
    return torch.cat(logits).cpu() if logits else torch.empty(0)


def main() -> None:
    """Fork the ranks and wait for them."""
    folder, tp, pp, sizes, out, *kinds = sys.argv[1:]
    kind = kinds[0] if kinds else "CPU"
    chunks = [int(size) for size in sizes.split(",")]
    torch.set_num_threads(1)
    checkpoint = Checkpoint(Path(folder))
    model = checkpoint.spec
    gpus = tuple(Gpu(index, kind, 1 << 30) for index in range(int(tp) * int(pp)))
    cluster = Cluster((Node("local", gpus, Link("shared-memory", 1e9, 1e-5)),))
    topology = uniform(cluster, kind, int(tp), int(pp), model.num_layers, "fp32")
    shape = GroupShape((int(tp),) * int(pp), sum(chunks) * max(model.hidden_size, model.vocab_size))
    memory = GroupMemory(shape)
    children = []
    for number, stage in enumerate(topology.stages):
        for rank in range(stage.tp_size):
            if (pid := os.fork()) == 0:
                spec = ShardSpec(
                    stage.layers, rank, stage.tp_size, number == 0, number == topology.pp_size - 1
                )
                with torch.inference_mode():
                    group = Group(memory.path, shape, number, rank)
                    place = place_of(kind, stage.devices[rank], model)
                    logits = run_rank(checkpoint, spec, heads_of(stage, rank, model), group, chunks, place)
                if spec.is_last and rank == 0:
                    torch.save(logits, out)
                os._exit(0)
            children.append(pid)
    sys.exit(any(os.waitpid(pid, 0)[1] for pid in children))


if __name__ == "__main__":
    main()
