"""What the service and a vLLM driver say to each other. A leaf module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.capabilities import Batching
from runtime.engine import GenerationRequest
from runtime.process import messages as wire
from runtime.process.content import PinnedCheckpoint
from runtime.vllm_engine.geometry import KvGeometry
from runtime.vllm_engine.staging import StagingHandle


class Preparation(wire.WireMessage, frozen=True):
    """The first message to a driver process: how it prepares for a ``VllmDriverConfig``."""

    environment: Mapping[str, str]
    """Set before vLLM is imported, where the operator has not."""
    niceness: int
    """Of the import, above that of the service; the engine has the service's own."""
    stall_after_s: float
    lost_after_s: float
    """Without progress for so long its engine ends."""


class VllmDriverConfig(wire.WireMessage, frozen=True):
    """What a driver is started with."""

    checkpoint: PinnedCheckpoint
    options: Mapping[str, Any]
    """vLLM's engine options, ours and the deployment's."""
    environment: Mapping[str, str]
    """What follows from the topology, set before vLLM reads it."""
    wanted_bytes: int | None
    """Of the device where it takes the most; None on a CPU."""
    made: str | None = None
    """The weight format that the checkpoint is quantised to before vLLM loads it; None: vLLM loads what is there."""


class VllmStarted(wire.WireMessage, frozen=True):
    """The engine serves."""

    geometry: KvGeometry | str
    """A string says why its KV cannot travel."""
    num_blocks: int
    block_size: int
    max_tokens: int
    """Prompt and output of one request at most."""
    pids: tuple[int, ...]
    """Of the workers, by rank."""
    shared_memory: tuple[str, ...]
    """Files in shared memory that a crash would leave."""
    prefill_tokens_s: float
    """Measured by the probe: tokens prefilled per second."""
    runner: str
    """Which of vLLM's model runners it has: the other one draws other noise from a seed."""
    batching: Batching
    """How far it fills its steps."""
    free_bytes: int | None = None
    """Of the device with the least, once the engine had started; None on a CPU."""


@dataclass(frozen=True, slots=True)
class Extent:
    """One request as it stands on the source."""

    num_tokens: int
    """Prompt and output."""
    num_computed: int
    """Positions before this one have KV."""
    staged: int
    """Positions before this one are in staging memory."""
    slots: tuple[int, ...]
    """Staging slots, in logical order."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """What ``sync`` and ``suspend`` answer."""

    extents: Mapping[str, Extent]
    copied_bytes: int
    free_slots: int
    """In staging memory."""
    patch_s: float = 0.0
    generators: Mapping[str, bytes] = field(default_factory=dict)
    """States of the generators of seeded requests."""


@dataclass(frozen=True, slots=True)
class Parking:
    """A request of the source that the target is to make ready for; it is sent once."""

    request: GenerationRequest
    emitted: tuple[int, ...]
    """Its output so far."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """What ``advance`` answers."""

    computed: Mapping[str, int]
    """Positions of each parked or followed request that have KV on the target."""
    copied_bytes: int


News = Mapping[str, tuple[int, ...]]
"""GenerationRequest to the tokens it said since the target was told last."""


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A parked or followed request goes on at the target."""

    request_id: str
    epoch: int
    index: int
    """Of its next token."""
    extent: Extent | None
    """Its KV on the source, all of it in staging memory; None when the target computed its own."""
    generator: bytes = b""
    """The state of its generator; empty where it has none."""


@dataclass(frozen=True, slots=True)
class TargetReleased:
    """What the target's part of the cut took."""

    load_s: float
    first_step_s: float
    loaded_bytes: int


class ForgetPrefixes(wire.Command[None], frozen=True):
    """Empty the prefix cache, for comparisons with what is computed anew."""


class Expose(wire.Command[str], frozen=True):
    """vLLM's own metrics, as Prometheus text."""


class AttachSource(wire.Command[None], frozen=True):
    """Begin a switch away from here."""

    staging: StagingHandle
    least_blocks: int
    """Copied between two steps at least."""


class Sync(wire.Command[SourceState], frozen=True):
    """Tell how far the copies are; once they are done, copy what these requests have computed since."""

    names: tuple[str, ...]


class Suspend(Sync, frozen=True):
    """Stop at a step boundary, everything pinned, and copy the rest of these requests' KV."""


class Resume(wire.Command[None], frozen=True):
    """Go on after ``Suspend``, without what has moved away; the switch is over on this side."""

    moved: tuple[str, ...]


class AttachTarget(AttachSource, frozen=True):
    """Begin a switch to here."""


class Park(wire.Command[None], frozen=True):
    """Take requests of the source in; they wait for their KV and for ``Takeover``."""

    parkings: list[Parking]


class Follow(Park, frozen=True):
    """Begin to compute the KV of these requests here."""


class Advance(wire.Command[TargetState], frozen=True):
    """Hear what was said and how far the source is; tell how far this side is."""

    extents: Mapping[str, Extent]
    news: News


class Settle(wire.Command[None], frozen=True):
    """Finish the inputs that followed requests are computing, so that the cut need not wait for them."""


class Takeover(wire.Command[TargetReleased], frozen=True):
    """The cut: these requests go on here. Answered when their KV is here and the first step is done."""

    releases: list[ReleaseRequest]
    news: News


class Commit(wire.Command[None], frozen=True):
    """The switch is over on this side."""


class Abandon(wire.Command[None], frozen=True):
    """Forget requests that were parked or followed."""

    names: tuple[str, ...]


class PageDigests(wire.Command[dict[tuple[int, int, int], str]], frozen=True):
    """Digests of a request's pages by (logical block, layer, head)."""

    name: str


Asked = (
    wire.Submit | wire.CancelStream | wire.Stats | ForgetPrefixes | Expose | AttachSource | Sync | Suspend | Resume | AttachTarget
    | Park | Follow | Advance | Settle | Takeover | Commit | Abandon | PageDigests
)  # fmt: skip
ToDriver = Preparation | VllmDriverConfig | wire.Call[Asked]
FromDriver = wire.Greeting | wire.Prepared | VllmStarted | wire.Tokens | wire.Reply | wire.Beat | wire.Fatal
