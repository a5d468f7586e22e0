"""What a switch costs streams, as curves and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intentctl.plots import looks, picture, plain_ticks


@dataclass(frozen=True, slots=True)
class StopCurve:
    """What a way to switch costs streams, against how many run, how long they are or how much moves."""

    label: str
    stops_ms: dict[int, tuple[float, float]]
    """From what it is drawn against to p50 and p99 of the stops."""


def draw_stops(curves: Sequence[StopCurve], against: str, path: Path) -> None:
    """P99 of stops (solid) and their median (dotted), both scales logarithmic; stops below 0.1 ms are drawn there.

    Raises:
        CommandError: the path is no SVG's, or cannot be written.
    """
    with picture(path, (7.0, 4.2)) as figure:
        axes = figure.subplots()
        for curve, (colour, marker) in zip(curves, looks(), strict=False):
            for number, line in enumerate((":", "-")):
                heights = [max(stops[number], 0.1) for stops in curve.stops_ms.values()]
                label = curve.label if line == "-" else None
                axes.plot(list(curve.stops_ms), heights, line + marker, color=colour, markersize=5, label=label)
        axes.set(xscale="log", yscale="log", xlabel=against, ylabel="stop (ms): p99, and p50 dotted")
        for axis in (axes.xaxis, axes.yaxis):
            plain_ticks(axis, (1.0, 2.0, 5.0))
        figure.legend(loc="outside upper left", ncols=2)
