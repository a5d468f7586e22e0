"""What is worth drawing, as plain data: latency against load, throughput against the split of layers, predicted against measured.

Units are seconds, requests per second and tokens per second; ``intentctl.plots`` draws it and adds nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from intentctl.predict import case
from intentctl.status import failure
from runtime.errors import UnsupportedModelError
from selector.load import Lengths, open_loop, saturation_tok_s
from selector.shapes import shape
from selector.simulator import Server

LOADS = 40
"""Rates at which a frontier is computed, closer together where the latency rises."""
HIGHEST = 0.99
"""Share of the saturating rate up to which it is drawn."""
_HALVINGS = 20
_BEYOND = 1.01
"""Times the throughput with every slot taken, beyond which no rate has a steady state."""


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
class Pair:
    """One figure, measured and predicted, in the unit that ``figure`` names."""

    kind: str
    figure: str
    measured: float
    predicted: float
    fitted: bool
    """Whether the prediction was fitted to it."""


def frontier(label: str, server: Server, lengths: Lengths) -> Curve:
    """P99 TTFT and TPOT under Poisson arrivals, from next to nothing up to saturation."""
    saturation_rps = _saturation_rps(server, lengths)
    if not saturation_rps:
        return Curve(label, (), (), (), 0.0)
    shares = [HIGHEST * math.sin(math.pi / 2 * step / LOADS) for step in range(1, LOADS + 1)]
    readings = [
        (share * saturation_rps, open_loop(server, share * saturation_rps, lengths)) for share in shares
    ]
    steady = [
        (rate, slis.ttft_s["p99"], slis.tpot_s["p99"])
        for rate, slis in readings
        if slis.ttft_s and slis.tpot_s
    ]
    rates, ttft, tpot = zip(*steady, strict=True)
    return Curve(label, rates, ttft, tpot, saturation_rps)


def _saturation_rps(server: Server, lengths: Lengths) -> float:
    """The rate beyond which arrivals have no steady state; 0 where not one request fits."""
    low, high = 0.0, _BEYOND * saturation_tok_s(server, lengths) / lengths.output_tokens
    for _ in range(_HALVINGS if high else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if open_loop(server, middle, lengths).saturated else (middle, high)
    return low


def split_curve(label: str, kinds: tuple[str, str], model: str, lengths: Lengths) -> SplitCurve:
    """Every split of a model over a device of each kind, in bf16, under a load without end.

    Raises:
        CommandError: the model or a device kind is not known, or no split has room for a request.
    """
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
