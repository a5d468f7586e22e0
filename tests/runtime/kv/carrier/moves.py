"""Moves of a test: any topology to any other on other devices, any runs of tokens; whose KV says what it is."""

import itertools
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from runtime.footprint import Piece, Transfer, owned, transfer
from runtime.kv.carrier.layout import KvLayout
from runtime.kv.pages import Runs
from runtime.models import LayerRange, ModelSpec, Precision, Stage, Topology

Kv = NDArray[np.int32]
"""``[2, stacks, KV heads, blocks, layers of a stack, block size, head dim]``."""
NOTHING = -1


@dataclass(frozen=True, slots=True)
class Move:
    layout: KvLayout
    model: ModelSpec
    now: Topology
    target: Topology
    runs: Runs

    @property
    def boxes(self) -> tuple[Transfer, ...]:
        return transfer(self.now, self.target, self.model)

    @property
    def dims(self) -> tuple[int, ...]:
        layout = self.layout
        stacks = -(-layout.num_layers // layout.stack)
        return 2, stacks, layout.num_kv_heads, layout.num_blocks, layout.stack, layout.block_size, layout.head_dim

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Block and position of each token."""
        return [divmod(token, self.layout.block_size) for run in self.runs.tolist() for token in range(*run)]

    def place(self, piece: Piece, block: int, at: int) -> tuple[slice | int, ...]:
        """Where K and V of a token lie in a ``Kv``."""
        return slice(None), piece.layer // self.layout.stack, piece.head, block, piece.layer % self.layout.stack, at

    def sources(self) -> dict[int, Kv]:
        """Each device has what it owns, no two values alike, and nothing else."""
        whole = np.arange(np.prod(self.dims), dtype=np.int32).reshape(self.dims)
        return {device: self.with_pieces(pieces, whole) for device, pieces in owned(self.now, self.model).items()}

    def targets(self) -> dict[int, Kv]:
        return {device: np.full(self.dims, NOTHING, np.int32) for device in self.target.devices}

    def wanted(self) -> dict[int, Kv]:
        """What targets have when these tokens were moved: by the textbook, a token at a time."""
        whole = np.arange(np.prod(self.dims), dtype=np.int32).reshape(self.dims)
        kv = self.targets()
        for device, pieces in owned(self.target, self.model).items():
            for piece, (block, at) in itertools.product(pieces, self.blocks):
                where = self.place(piece, block, at)
                kv[device][where] = whole[where]
        return kv

    def with_pieces(self, pieces: frozenset[Piece], whole: Kv) -> Kv:
        kv = np.full(self.dims, NOTHING, np.int32)
        for piece in pieces:
            where = self.place(piece, 0, 0)[:3]
            kv[where][:, :, piece.layer % self.layout.stack] = whole[where][:, :, piece.layer % self.layout.stack]
        return kv


def topology(bounds: list[int], degrees: list[int], first: int) -> Topology:
    stages, precision = [], Precision.named("fp32", "CPU")
    for (start, end), tp in zip(itertools.pairwise(bounds), degrees, strict=True):
        stages.append(Stage("CPU", tuple(range(first, first + tp)), LayerRange(start, end), precision))
        first += tp
    return Topology(tuple(stages))


@st.composite
def moves(draw: st.DrawFn) -> Move:
    stack, stacks, heads = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4]))
    layers = stack * stacks - draw(st.integers(0, stack - 1))
    size = draw(st.sampled_from([1, 4, 16]))
    layout = KvLayout(layers, heads, 6, size, draw(st.integers(1, 3)), "int32", 4, stack)
    model = ModelSpec("m", "LlamaForCausalLM", layers, 64, 128, heads, heads, 16, 100, 1024)
    sides = []
    for first in (0, 50):
        cuts = draw(st.sets(st.integers(1, max(1, stacks - 1)), max_size=2))
        bounds = [0, *sorted(cut * stack for cut in cuts if cut < stacks), layers]
        degrees = [draw(st.sampled_from([tp for tp in (1, 2, 4) if heads % tp == 0])) for _ in bounds[1:]]
        sides.append(topology(bounds, degrees, first))
    ends = sorted(draw(st.sets(st.integers(0, 6 * size), max_size=8)))
    runs = np.array(list(zip(ends[::2], ends[1::2], strict=False)), np.int64).reshape(-1, 2)
    return Move(layout, model, *sides, runs)
