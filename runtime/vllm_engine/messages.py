"""What the service and a vLLM driver say to each other. A leaf module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.engine import Request
from runtime.vllm_engine.geometry import KvGeometry


@dataclass(frozen=True, slots=True)
class Preparation:
    """The first message to a driver process: how it prepares for a ``DriverConfig``."""

    environment: Mapping[str, str]
    """Set before vLLM is imported, where the operator has not."""
    niceness: int
    """Of the import, above that of the service; the engine has the service's own."""
    stall_after_s: float
    lost_after_s: float
    """Without progress for so long its engine ends."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The driver process has imported vLLM and waits for a ``DriverConfig``."""


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """What a driver is started with."""

    checkpoint: Path
    options: Mapping[str, Any]
    """vLLM's engine options, ours and the deployment's."""
    environment: Mapping[str, str]
    """What follows from the topology, set before vLLM reads it."""
    is_on_cpu: bool


@dataclass(frozen=True, slots=True)
class Started:
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

    request: Request
    emitted: tuple[int, ...]
    """Its output so far."""


@dataclass(frozen=True, slots=True)
class TargetState:
    """What ``advance`` answers."""

    computed: Mapping[str, int]
    """Positions of each parked or followed request that have KV on the target."""
    copied_bytes: int


News = Mapping[str, tuple[int, ...]]
"""Request to the tokens it said since the target was told last."""


@dataclass(frozen=True, slots=True)
class Release:
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
class Released:
    """What the target's part of the cut took."""

    load_s: float
    first_step_s: float
    loaded_bytes: int
