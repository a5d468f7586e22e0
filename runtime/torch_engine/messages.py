"""What the engine's processes say to each other. Orders go down, events come up; a leaf module."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.errors import SwitchError
from runtime.footprint import Piece, Transfer
from runtime.kv.store import KvHandle
from runtime.models import Cluster, LayerRange, ModelSpec, Topology
from runtime.torch_engine.models import EngineSettings, Sampled, Span, Wish
from runtime.torch_engine.worker.group import GroupShape
from runtime.torch_engine.worker.shard import ShardSpec


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """What the driver is started with."""

    checkpoint: Path
    topology: Topology
    cluster: Cluster
    settings: EngineSettings


@dataclass(frozen=True, slots=True)
class Load:
    """Take an incoming role: load weights, join the group, warm up alone."""

    generation: int
    shard: ShardSpec
    layers: LayerRange
    """Whose weights to load now: all of the shard's, or none where they come later."""
    stage: int
    group_path: str
    group_shape: GroupShape


@dataclass(frozen=True, slots=True)
class Run:
    """Compute one micro-batch in a role."""

    generation: int
    batch_id: int
    tokens: list[int]
    spans: tuple[Span, ...]
    rows: list[int]
    """Rows that sample."""
    wishes: list[Wish]


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy slots from peers."""

    order: int
    boxes: tuple[tuple[Transfer, KvHandle], ...]
    runs: NDArray[np.int64]
    """``[runs, 2]``: first slot and the one after the last."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Let one role go of the weights of these layers, and another take its own; either may be absent."""

    order: int
    sheds: int
    """Generation."""
    takes: int
    layers: LayerRange


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a role, if it is still there, and the memory of peers."""

    order: int
    generation: int


@dataclass(frozen=True, slots=True)
class Gain:
    """Have memory for these runs of blocks, in these pieces, for one slice; between steps, or beside them where it can be."""

    order: int
    pieces: tuple[Piece, ...]
    runs: tuple[tuple[int, int], ...]
    after: int
    """As in ``GiveBack``."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Close the memory of peers; they open it again for the next copy."""

    order: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give the memory of these runs of blocks back to the system, in these pieces, for one slice; when, as with ``Gain``."""

    order: int
    pieces: tuple[Piece, ...]
    runs: tuple[tuple[int, int], ...]
    after: int
    """Where to go on: the ``rest`` of the slice before."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Answer: a worker that does not is hung."""

    order: int


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Run a step alone in a role; what is done says whether this worker has that role."""

    order: int
    generation: int


@dataclass(frozen=True, slots=True)
class Digest:
    """Digests of this worker's pieces of (block, valid tokens)."""

    order: int
    pieces: tuple[Piece, ...]
    blocks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The role is ready for its group."""

    generation: int


@dataclass(frozen=True, slots=True)
class Loading:
    """Another layer of the role is there."""

    generation: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The role could not be taken."""

    generation: int
    detail: str


@dataclass(frozen=True, slots=True)
class Ran:
    """The last stage finished a micro-batch."""

    batch_id: int
    sampled: list[Sampled]


class Copied(NamedTuple):
    """What a copy was, as the worker's ``Done``."""

    num_bytes: int
    seconds: float
    """Of its device's time; see ``Place.clock_s``."""


@dataclass(frozen=True, slots=True)
class Done:
    """An order with a number is done, or failed with ``error``."""

    order: int
    value: Any = None
    error: SwitchError | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The driver serves."""

    spec: ModelSpec
    num_blocks: int


@dataclass(frozen=True, slots=True)
class KvDigests:
    """Digests of KV bytes that do not depend on the topology."""

    positions: dict[str, int]
    """Request to how many of its first positions were read."""
    digests: dict[tuple[str, int, Piece], str]
    """(request, logical block, piece) to digest."""
    blocks: dict[tuple[str, int], int]
    """(request, logical block) to block id."""
