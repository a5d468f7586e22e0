"""What is worth drawing, as plain data: latency against load, throughput against the split of layers, predicted against measured.

Units are seconds, requests per second and tokens per second; ``intentctl.plots`` draws it and adds nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from intentctl.status import failure
from runtime.errors import UnsupportedModelError
from selector.performance.load import Lengths, saturation_tok_s
from selector.shapes import shape

if TYPE_CHECKING:  # benchmarks draw stops on machines without what documents need
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
class Bound:
    """A line to compare with: what a goal allows, or the rate of the workload."""

    axis: Literal["ttft_s", "tpot_s", "rate_rps"]
    value: float
    """Seconds, or requests per second."""
    label: str


@dataclass(frozen=True, slots=True)
class SplitCurve:
    """Saturated throughput of a pipeline of two devices against the layers of the second."""

    label: str
    kinds: tuple[str, str]
    num_layers: int
    tokens_s: dict[int, float]
    """Layers on the second device to tokens per second, in and out; splits without room for a request are left out."""

    @property
    def best(self) -> int:
        """Layers on the second device where the throughput is highest."""
        return max(self.tokens_s, key=self.tokens_s.__getitem__)

    def lead(self, other: "SplitCurve") -> float:
        """By what share its own best split is ahead of the other's best, under its own load; infinite where that has no room."""
        there = self.tokens_s.get(other.best)
        return self.tokens_s[self.best] / there - 1 if there else math.inf


@dataclass(frozen=True, slots=True)
class StopCurve:
    """What a way to switch costs streams, against how many run, how long they are or how much moves."""

    label: str
    stops_ms: dict[int, tuple[float, float]]
    """From what it is drawn against to p50 and p99 of the stops."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure, measured and predicted, in the unit that ``figure`` names."""

    kind: str
    figure: str
    measured: float
    predicted: float
    fitted: bool
    """Whether the prediction was fitted to it."""


def frontiers(found: "FrontiersDocument") -> list[Curve]:
    """The curves of a plan, as the service computes them."""
    return [
        Curve(
            label=one.label,
            rates_rps=one.rates_rps,
            ttft_s=one.ttft_s,
            tpot_s=one.tpot_s,
            saturation_rps=one.saturation_rps,
        )
        for one in found.curves
    ]


def bounds(plan: "PlanDocument", rate_rps: float) -> list[Bound]:
    """The rate of a plan's workload, and its goals for P99 TTFT and TPOT."""
    axes: dict[str, Literal["ttft_s", "tpot_s"]] = {"p99 TTFT <=": "ttft_s", "p99 TPOT <=": "tpot_s"}
    goals = [
        Bound(axes[margin.goal[:11]], margin.bound, margin.goal)
        for margin in plan.margins
        if margin.goal[:11] in axes
    ]
    return [Bound("rate_rps", rate_rps, f"the workload: {rate_rps:g} requests/s"), *goals]


def split_curve(label: str, kinds: tuple[str, str], model: str, lengths: Lengths) -> SplitCurve:
    """Every split of a model over a device of each kind, in bf16, under a load without end.

    Raises:
        CommandError: the model or a device kind is not known, or no split has room for a request.
    """
    from intentctl.predict import case

    try:
        layers = shape(model).num_layers
    except UnsupportedModelError as error:
        raise failure("error", str(error)) from error
    found = {}
    for second in range(1, layers):
        first = layers - second
        topology = f"{kinds[0]}x1:0-{first}@bf16 > {kinds[1]}x1:{first}-{layers}@bf16"
        found[second] = saturation_tok_s(case(topology, model).server, lengths)
    both = lengths.total / lengths.output_tokens
    fitting = {second: both * tokens_s for second, tokens_s in found.items() if tokens_s}
    if not fitting:
        raise failure(
            "error",
            f"no split of {model} over {' and '.join(kinds)} has room for a request of {lengths.total:g} tokens",
        )
    return SplitCurve(label, kinds, layers, fitting)


def within(pairs: Sequence[Pair], band: float) -> float:
    """Share of the predictions, one at least, that are off by no more than ``band`` of what was measured."""
    return sum(abs(one.predicted / one.measured - 1) <= band for one in pairs) / len(pairs)
