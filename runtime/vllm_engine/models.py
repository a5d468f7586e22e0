"""Settings of the vLLM engine.

A leaf: imports neither torch nor vllm, so that the service can use it without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

SwitchPath = Literal["patch", "follow"]
"""How a request comes over: its KV is copied, or the target computes its own."""


class Stay(StrEnum):
    """Why a request does not come over: it ends on the source."""

    NEARLY_DONE = "nearly done"
    SEED = "the target's model runner draws other noise from a seed"
    NO_ROOM = "no room in staging memory"


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """How vLLM engines are run and switched."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """vLLM's own engine options by their Python names, passed through unread."""
    kv_cache_bytes: int = 0
    """KV cache of each worker; 0: a part of its device. Two engines stand side by side during a switch: it counts twice then."""
    staging_bytes: int = 0
    """Bound on the shared memory that KV is copied through during a switch; 0: as much as the KV caches."""
    slice_bytes: int = 4 << 20
    """KV copied between two steps at least, and more where that takes little time."""
    path: Literal["auto", "patch", "follow"] = "auto"
    """How requests come over; auto chooses for each."""
    visible: str = ""
    """What the service may see of its machine's GPUs, as ``CUDA_VISIBLE_DEVICES`` says; empty: all of them."""
    drain_tokens: int = 4
    """A request this close to its end stays where it is: it has ended before anything about it pays."""
    drain_timeout_s: float | None = None
    """How long requests that were left on the source may take to end; None lets them."""
    drain: Literal["wait", "refuse"] = "wait"
    """What becomes of a switch when requests cannot move: it waits for their end, or is given up before its cut."""
    max_sequences: int | None = None
    """Sequences that run at once, where ``options`` say none; None leaves it to vLLM."""
    max_step_tokens: int | None = None
    """Tokens of one step, in the same way."""
    num_standby: int = 1
    """Engines kept warm after a switch away from them, so that the way back starts nothing."""
    spare: bool = True
    """A process that has imported vLLM waits for the next engine that is to be started."""
    stall_after_s: float = 10.0
    """Without progress for so long the engine counts as stalled."""
    lost_after_s: float = 20.0
    """Without progress for so long it counts as lost and is ended; more where steps take long."""
    start_timeout_s: float = 900.0
    """How long an engine may take from its first message to its first answer: load, compile, capture."""
