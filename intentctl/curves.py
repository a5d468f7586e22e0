"""What is worth drawing, as plain data.

Latency against load, throughput against the split of layers, predicted against measured.

Units are seconds, requests per second and tokens per second; ``intentctl.plots`` draws it and adds nothing.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # benchmarks draw on machines without what documents need
    from service.documents.plans import FrontiersDocument, PlanDocument


@dataclass(frozen=True, slots=True)
class Curve:
    """P99 latencies of a server against the rate of its requests; empty where not one request fits."""

    label: str
    rates_rps: tuple[float, ...]
    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    """Zeros where an answer is one token."""
    saturation_rps: float


@dataclass(frozen=True, slots=True)
class GuideLine:
    """A line to compare with: what a goal allows, or the rate of the workload."""

    axis: Literal["ttft_s", "tpot_s", "rate_rps"]
    value: float
    """Seconds, or requests per second."""
    label: str


def frontiers(found: "FrontiersDocument") -> list[Curve]:
    """The curves of a plan, as the service computes them."""
    return [Curve(**curve.model_dump(exclude={"topology"})) for curve in found.curves]


def bounds(plan: "PlanDocument", rate_rps: float) -> list[GuideLine]:
    """The rate of a plan's workload, and its goals for P99 TTFT and TPOT."""
    axes: dict[str, Literal["ttft_s", "tpot_s"]] = {"p99 TTFT <=": "ttft_s", "p99 TPOT <=": "tpot_s"}
    goals = [
        GuideLine(axes[margin.goal[:11]], margin.bound, margin.goal)
        for margin in plan.margins
        if margin.goal[:11] in axes
    ]
    return [GuideLine("rate_rps", rate_rps, f"the workload: {rate_rps:g} requests/s"), *goals]
