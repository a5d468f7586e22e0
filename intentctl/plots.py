"""Pictures as SVG. The same data gives the same bytes."""

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from intentctl.status import failure
from selector.models import Frontier, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's: told apart with any colour vision."""
MARKERS = "osD^vP"
Look = tuple[str, str]
"""Colour and marker."""
GREY = "#595959"
PLATE = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}
"""Behind words that a curve may cross."""
Keywords = dict[Any, Any]
"""What matplotlib takes by name."""

STYLE: Keywords = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and needs no outlines
    "svg.hashsalt": "intentctl",  # ids that do not change from run to run
    "text.parse_math": False,  # a dollar is a dollar
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E5E5E5",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class GuideLine:
    """A line to compare with: what a goal allows, or the rate of the workload."""

    axis: Literal["ttft_s", "tpot_s", "rate_rps"]
    value: float
    """Seconds, or requests per second."""
    label: str


def bounds(plan: Plan, rate_rps: float) -> list[GuideLine]:
    """The rate of a plan's workload, and its goals for P99 TTFT and TPOT."""
    axes: dict[str, Literal["ttft_s", "tpot_s"]] = {"p99 TTFT <=": "ttft_s", "p99 TPOT <=": "tpot_s"}
    goals = [
        GuideLine(axes[margin.goal[:11]], margin.bound, margin.goal)
        for margin in plan.margins
        if margin.goal[:11] in axes
    ]
    return [GuideLine("rate_rps", rate_rps, f"the workload: {rate_rps:g} requests/s"), *goals]


def draw_frontier(curves: Sequence[Frontier], bounds: Sequence[GuideLine], path: Path) -> None:
    """TTFT above TPOT against the rate, latencies logarithmic; where a curve saturates is dotted.

    Raises:
        CommandError: the path is no SVG's, or cannot be written.
    """
    with picture(path, (7.0, 6.0)) as figure:
        upper, lower = figure.subplots(2, sharex=True)
        _latencies(upper, curves, "ttft_s")
        _latencies(lower, curves, "tpot_s")
        for bound in bounds:
            _bound(bound, {"ttft_s": [upper], "tpot_s": [lower], "rate_rps": [upper, lower]}[bound.axis])
        upper.set_ylabel("P99 TTFT (s)")
        lower.set_ylabel("P99 TPOT (ms)")
        lower.yaxis.set_major_formatter(lambda seconds, _: f"{seconds * 1e3:,g}")
        lower.set_xlabel("request rate (requests/s)")
        lower.set_xlim(left=0)
        figure.legend(*upper.get_legend_handles_labels(), loc="outside upper left")


def _latencies(axes: "Axes", curves: Sequence[Frontier], which: Literal["ttft_s", "tpot_s"]) -> None:
    """One latency of every curve."""
    for curve, (colour, _) in zip(curves, looks(), strict=False):
        seconds = [value or math.nan for value in getattr(curve, which)]  # a logarithm has no place for zero
        axes.plot(curve.rates_rps, seconds, color=colour, linewidth=2, label=_limit(curve))
        if curve.saturation_rps:
            axes.axvline(curve.saturation_rps, color=colour, linewidth=1.2, linestyle=":")
    if any(any(getattr(curve, which)) for curve in curves):
        axes.set_yscale("log")
        plain_ticks(axes.yaxis, (1.0, 2.0, 5.0))
    else:
        axes.set_yticks([])
        axes.annotate("none", (0.5, 0.5), xycoords="axes fraction", color=GREY)


def _limit(curve: Frontier) -> str:
    """A curve's name, and the rate that it reaches."""
    if not curve.saturation_rps:
        return f"{curve.label}: not one request fits"
    return f"{curve.label}: saturated at {curve.saturation_rps:.3g} requests/s (dotted)"


def _bound(bound: GuideLine, places: Sequence["Axes"]) -> None:
    """A dashed line across, its words along it in the first place."""
    line: Keywords = {"color": GREY, "linewidth": 1.2, "linestyle": (0, (5, 3))}
    words: Keywords = {"color": GREY, "fontsize": 9, "textcoords": "offset points", "bbox": PLATE}
    if bound.axis == "rate_rps":
        for axes in places:
            axes.axvline(bound.value, **line)
        top = (bound.value, 1)
        places[0].annotate(bound.label, top, (4, -3), xycoords=("data", "axes fraction"), va="top", **words)
    else:
        places[0].axhline(bound.value, **line)
        left = (0, bound.value)
        places[0].annotate(bound.label, left, (4, 4), xycoords=("axes fraction", "data"), **words)


def looks() -> Iterator[Look]:
    """A colour and a marker for one after the other."""
    return itertools.cycle(zip(COLOURS, MARKERS, strict=True))


def plain_ticks(axis: "Axis", steps: Sequence[float]) -> None:
    """Numbers as people write them, 0.2 and 5,000, where a logarithmic axis would have powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def check_name(path: Path) -> None:
    """Refuse a file that no picture can be written to, before anything is computed for it.

    Raises:
        CommandError: it is no SVG by its name, or its folder is not there.
    """
    if path.suffix.lower() != ".svg":
        raise failure("error", f"{path}: pictures are written as SVG; give the file a name that ends with .svg")
    if not path.parent.is_dir():
        raise failure("error", f"{path} cannot be written: there is no folder {path.parent}; make it")


@contextmanager
def picture(path: Path, inches: tuple[float, float]) -> Iterator["Figure"]:
    """A figure in the house style, whatever the reader's own settings are; written when the block ends."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    check_name(path)
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # words stay words: who looks has the font
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        figure = Figure(inches, layout="constrained")
        yield figure
        try:
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        except OSError as error:
            raise failure(
                "error",
                f"{path} cannot be written: {error.strerror or error}; name a file in a folder that takes one",
            ) from error
