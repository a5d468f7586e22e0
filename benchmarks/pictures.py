"""Pictures of docs/plots: throughput against the split of layers, predicted against measured."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from intentctl.plots import GREY, Keywords, Look, looks, picture, plain_ticks
from intentctl.status import failure
from runtime.errors import UnsupportedModelError
from selector.models import Workload, shape
from selector.performance.judge import sustained_rps

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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


def split_curve(label: str, kinds: tuple[str, str], model: str, load: Workload) -> SplitCurve:
    """Every split of a model over a device of each kind, in bf16, under a load without end.

    Raises:
        CommandError: the model or a device kind is not known, or no split has room for a request.
    """
    from intentctl.predict import case

    try:
        layers = shape(model).num_layers
    except UnsupportedModelError as error:
        raise failure("error", str(error)) from error
    tokens = (load.input_tokens, load.output_tokens)
    found = {}
    for second in range(1, layers):
        first = layers - second
        topology = f"{kinds[0]}x1:0-{first}@bf16 > {kinds[1]}x1:{first}-{layers}@bf16"
        found[second] = sustained_rps(case(topology, model).server, load, sum(tokens))
    fitting = {second: rps * sum(tokens) for second, rps in found.items() if rps}
    if not fitting:
        raise failure(
            "error",
            f"no split of {model} over {' and '.join(kinds)} has room for a request of {sum(tokens):g} tokens",
        )
    return SplitCurve(label, kinds, layers, fitting)


def within(pairs: Sequence[Pair], band: float) -> float:
    """Share of the predictions, one at least, that are off by no more than ``band`` of what was measured."""
    return sum(abs(one.predicted / one.measured - 1) <= band for one in pairs) / len(pairs)


def draw_splits(curves: Sequence[SplitCurve], path: Path) -> None:
    """Throughput against the layers of the second device; a curve's best is filled, the others' best on it is hollow.

    The curves, one at least, are of the same model and devices.

    Raises:
        CommandError: the path is no SVG's, or cannot be written.
    """
    with picture(path, (7.0, 4.2)) as figure:
        axes = figure.subplots()
        for curve, look in zip(curves, looks(), strict=False):
            _split(axes, curve, {other.best for other in curves} - {curve.best}, look)
        first, second = curves[0].kinds
        axes.set_xlabel(f"layers on the {second}, of {curves[0].num_layers}; the others on the {first}")
        axes.set_ylabel("saturated throughput (tokens/s, in and out)")
        axes.set_xlim(0, curves[0].num_layers)
        axes.locator_params(axis="x", integer=True)
        axes.set_ylim(0, 1.15 * max(curve.tokens_s[curve.best] for curve in curves))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        figure.legend(loc="outside upper left")


def _split(axes: "Axes", curve: SplitCurve, rivals: Collection[int], look: Look) -> None:
    """One curve, with its best split and what those of others cost it."""
    colour, marker = look
    most = curve.tokens_s[curve.best]
    axes.plot(*zip(*curve.tokens_s.items(), strict=True), color=colour, linewidth=2, label=curve.label)
    axes.plot(curve.best, most, marker, color=colour, markersize=9)
    words: Keywords = {"color": colour, "textcoords": "offset points"}
    axes.annotate(f"best: {curve.best} layers\n{most:,.0f} tokens/s", (curve.best, most), (9, 1), **words)
    for rival in curve.tokens_s.keys() & rivals:
        place = (rival, curve.tokens_s[rival])
        axes.plot(*place, marker, color=colour, markerfacecolor="white", markersize=8)
        aside = (8, -14 if rival < curve.best else 5)  # where the curve is not
        axes.annotate(f"{curve.tokens_s[rival] / most - 1:+.0%}", place, aside, **words)


def draw_pairs(pairs: Sequence[Pair], band: float, path: Path) -> None:
    """Predicted against measured (one pair at least), a panel for each figure; what was fitted is filled, the rest hollow.

    Raises:
        CommandError: the path is no SVG's, or cannot be written.
    """
    figures = list(dict.fromkeys(one.figure for one in pairs))
    look_of = dict(zip(sorted({one.kind for one in pairs}), looks(), strict=False))
    with picture(path, (3.3 * len(figures), 3.9)) as figure:
        panels = figure.subplots(1, len(figures), squeeze=False)[0]
        for axes, name in zip(panels, figures, strict=True):
            _scatter(axes, [one for one in pairs if one.figure == name], band, look_of)
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("measured")
        panels[0].set_ylabel("predicted")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(look_of) + 2)


def _scatter(axes: "Axes", pairs: Sequence[Pair], band: float, looks: dict[str, Look]) -> None:
    """One figure of every device kind."""
    values = [value for one in pairs for value in (one.measured, one.predicted)]
    ends = (min(values) / 1.5, max(values) * 1.5)
    axes.fill_between(
        ends, [end * (1 - band) for end in ends], [end * (1 + band) for end in ends],
        color="#DDDDDD", linewidth=0, label=f"within {band:.0%}",
    )  # fmt: skip
    axes.plot(ends, ends, color=GREY, linewidth=0.8)
    for kind, (colour, marker) in looks.items():
        for fitted, face in ((True, colour), (False, "white")):
            chosen = [one for one in pairs if (one.kind, one.fitted) == (kind, fitted)]
            axes.plot(
                [one.measured for one in chosen], [one.predicted for one in chosen],
                marker, color=colour, markerfacecolor=face, markersize=4, linestyle="none",
                label=kind if fitted else None,
            )  # fmt: skip
    axes.plot([], [], "o", color=GREY, markerfacecolor="white", markersize=4, label="hollow: not fitted")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.annotate(
        f"{within(pairs, band):.0%} of {len(pairs)}\nwithin {band:.0%}", (0.05, 0.95), xycoords="axes fraction",
        va="top", color=GREY,
    )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis, (1.0,))
