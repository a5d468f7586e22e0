"""The nouns of the selector: workload, prediction, plan and infeasible. A leaf module."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runtime.models import Capabilities, Cluster, Limits, ModelSpec, Topology

Source = Literal["measured", "calibrated", "analytic", "extrapolated"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of the service in one window."""

    rate_rps: float
    input_tokens: int
    output_tokens: int
    concurrency: int
    """Requests in flight at once that the service should hold."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Modelled SLIs of a topology under a workload; never called measurement."""

    ttft_s: float
    tpot_s: float
    e2e_s: float
    throughput_tok_s: float
    gpu_util: float
    usd_per_hour: float
    error_band: float
    """Relative half-width: 0.3 means that the truth is expected within 30 %."""
    source: Source


@dataclass(frozen=True, slots=True)
class Candidate:
    """One topology with what it is predicted to do and why it is not better placed."""

    topology: Topology
    prediction: Prediction
    reason: str
    """Why it was chosen, came second or lost; one sentence for people."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything the search needs: pure data."""

    cluster: Cluster
    model: ModelSpec
    workload: Workload
    now: Topology | None
    """What runs, or None when nothing does."""
    limits: Limits = field(default_factory=Limits)
    capabilities: Capabilities | None = None
    """What the engine can run; None does not narrow."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a plan carries for the world outside: handed in, never made up by the pure search."""

    plan_id: str
    intent_id: str
    generation: int
    window: str


@dataclass(frozen=True, slots=True)
class Margin:
    """How far a prediction is from a goal's bound; positive is good. Relative to the bound."""

    goal: str
    """The goal in words."""
    predicted: float
    bound: float
    unit: str
    margin: float


@dataclass(frozen=True, slots=True)
class Plan:
    """From now to next, immutable; apply refuses it when ``generation`` is no longer the running one."""

    id: str
    intent_id: str
    generation: int
    model: str
    window: str
    now: Topology | None
    target: Topology
    prediction: Prediction
    now_prediction: Prediction | None
    runner_up: Candidate | None
    reasons: tuple[str, ...]
    """Why the target, why the runner-up and today's topology lose."""
    margins: tuple[Margin, ...] = ()
    considered: int = 0
    """Topologies examined."""
    bytes_to_move: Mapping[str, int] = field(default_factory=dict)
    """``weights`` and ``kv_per_token``: what the switch has to move."""


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No topology holds the goals."""

    reasons: tuple[str, ...]
    """Which goals or limits clash, in words."""
    nearest: Candidate | None
    """The topology that comes closest."""
    feasible_targets: tuple[str, ...] = ()
    """For each goal that fails, the nearest bound that could be held, in words."""
