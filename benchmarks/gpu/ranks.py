"""Forward one prompt through the ranks of topologies, without driver or scheduler.

``python -m benchmarks.gpu.ranks FOLDER OUT KIND CHUNKS PRECISIONS TPxPP...``: CHUNKS are the sizes that the prompt is cut
into, joined by commas as PRECISIONS are; KIND is that of the devices (CPU). Each rank is a forked process, so this one never
touches a GPU. The last stage's first rank saves the logits of every position to ``OUT/TPxPP-PRECISION.pt``; each topology
that is done is a line on stdout. Exits with 1 if one failed.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from runtime.footprint import Piece, heads_of
from runtime.kv.chunks import ChunkedStore
from runtime.kv.store import KvShape
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node, Stage, Topology, uniform
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.backends import DTYPES, Backend, open_cpu, open_gpu
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import GroupMemory, GroupShape, Peers
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights

BLOCK_SIZE = 8


def prompt(vocab_size: int, length: int) -> torch.Tensor:
    """The tokens every topology is asked about."""
    return torch.randint(0, vocab_size, (length,), generator=torch.Generator().manual_seed(5))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is computed."""

    checkpoint: Checkpoint
    out: Path
    kind: str
    chunks: tuple[int, ...]
    precisions: tuple[str, ...]

    @property
    def model(self) -> ModelSpec:
        """The model's shape."""
        return self.checkpoint.spec

    @property
    def num_blocks(self) -> int:
        """Twice what the prompt needs, so that its blocks are scattered."""
        return 2 * -(-sum(self.chunks) // BLOCK_SIZE)

    def topology(self, tp: int, pp: int) -> Topology:
        """On the first devices."""
        gpus = tuple(Gpu(index, self.kind, 1 << 30) for index in range(tp * pp))
        cluster = Cluster((Node("local", gpus, Link("shared-memory", 1e9, 1e-5)),))
        return uniform(cluster, self.kind, tp, pp, self.model.num_layers, "fp32")

    def place(self, index: int, precision: str) -> Backend:
        """With memory for all."""
        model = self.model
        dims = model.num_layers, model.num_kv_heads, self.num_blocks, BLOCK_SIZE, model.head_dim
        place = (open_cpu if self.kind == "CPU" else open_gpu)(index, KvShape(*dims, DTYPES[precision]))
        if isinstance(place.store, ChunkedStore):
            layers, heads = range(model.num_layers), range(model.num_kv_heads)
            pieces = [Piece(layer, head) for layer in layers for head in heads]
            place.store.gain(pieces, [(0, self.num_blocks)], seconds=60)
        return place


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank of a topology."""

    topology: Topology
    number: int
    """Of its stage."""
    rank: int
    formats: tuple[str | None, ...] = ()
    """Of the weights of its layers; none: as it computes."""

    @property
    def stage(self) -> Stage:
        """Where it is."""
        return self.topology.stages[self.number]

    @property
    def spec(self) -> ShardSpec:
        """Its part of the model."""
        is_last = self.number == self.topology.pp_size - 1
        return ShardSpec(self.stage.layers, self.rank, self.stage.tp_size, self.number == 0, is_last, self.formats)

    def logits(self, asked: Asked, ranks: Peers, precision: str) -> torch.Tensor:
        """All chunks through it; logits of all positions on the last stage."""
        place, spec, model = asked.place(self.stage.devices[self.rank], precision), self.spec, asked.model
        heads = slice(*heads_of(self.stage, self.rank, model))
        shard = Shard(Weights(asked.checkpoint, DTYPES[precision], place.device), spec, spec.layers)
        tokens = prompt(model.vocab_size, sum(asked.chunks)).to(place.device)
        table = torch.randperm(asked.num_blocks, generator=torch.Generator().manual_seed(2)).tolist()
        logits, at = [], 0
        for count in asked.chunks:
            attention = place.attention(heads, [Span(at, count, tuple(table))])
            hidden = shard.forward(tokens[at : at + count], attention, ranks)
            if spec.is_last:
                logits.append(shard.logits(hidden, range(count), ranks))
            at += count
        return torch.cat(logits).cpu() if logits else torch.empty(0)


def compute(asked: Asked, tp: int, pp: int) -> bool:
    """Fork the ranks of one topology and wait for them; whether all went well."""
    topology, model = asked.topology(tp, pp), asked.model
    values = sum(asked.chunks) * max(model.hidden_size, model.vocab_size)
    shape = GroupShape(tuple(stage.tp_size for stage in topology.stages), values)
    memories = [GroupMemory(shape) for _ in asked.precisions]
    children = []
    for number, stage in enumerate(topology.stages):
        for rank in range(stage.tp_size):
            if (pid := os.fork()) == 0:
                _be(Rank(topology, number, rank), asked, memories)
            children.append(pid)
    statuses = [os.waitpid(pid, 0)[1] for pid in children]
    for memory in memories:
        memory.close()
    return not any(statuses)


def _be(rank: Rank, asked: Asked, memories: Sequence[GroupMemory]) -> None:
    """Body of a forked process; returns never."""
    status = 1
    try:
        with torch.inference_mode():
            for precision, memory in zip(asked.precisions, memories, strict=True):
                ranks = memory.ranks.join(rank.number, rank.rank)
                logits = rank.logits(asked, ranks, precision)
                if rank.spec.is_last and rank.rank == 0:
                    name = f"{rank.stage.tp_size}x{rank.topology.pp_size}-{precision}.pt"
                    torch.save(logits, asked.out / name)
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        for memory in memories if status else ():
            memory.abort()  # or the other ranks would wait for this one
        sys.stderr.flush()
        os._exit(status)


def main(checkpoint_class: type[Checkpoint] = Checkpoint) -> None:
    """Compute what the command line says."""
    folder, out, kind, chunks, precisions, *shapes = sys.argv[1:]
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")
    sizes = tuple(int(size) for size in chunks.split(","))
    asked = Asked(checkpoint_class(Path(folder)), Path(out), kind, sizes, tuple(precisions.split(",")))
    failed = False
    for shape in shapes:
        tp, pp = map(int, shape.split("x"))
        if compute(asked, tp, pp):
            print(shape, flush=True)
        else:
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
