"""Series over time as lines in a box of 600 by 140: what a template draws as SVG. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from intentctl.console.cluster import HUES
from service.documents.promises import SegmentDocument

WIDTH = 600.0
HEIGHT = 140.0
TICKS_MIN = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440)

Points = Sequence[tuple[float, float | None]]
"""Unix seconds and values; None where nothing is known."""


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A moment that something happened in."""

    at_s: float
    name: str
    link: str


@dataclass(frozen=True, slots=True)
class Band:
    """What was predicted from a moment on."""

    since_s: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ChartSpec:
    """What is to be drawn."""

    title: str
    unit: str
    lines: Sequence[tuple[str, Points]]
    begins_s: float
    ends_s: float
    marks: Sequence[ChartMark] = ()
    band: Band | None = None
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    name: str
    path: str
    last: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, in the units of its box; y grows downwards."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    top: float
    """The value at the upper edge; the lower one is 0."""
    ticks: tuple[tuple[float, str], ...]
    marks: tuple[tuple[float, ChartMark], ...] = ()
    band: tuple[float, float, float] | None = None
    """Where it begins, its upper edge and its height."""
    bound: float | None = None
    bound_value: float | None = None
    summary: str = field(default="")

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return all(line.last is None for line in self.lines)


def chart(spec: ChartSpec, zone: tzinfo) -> Chart:
    """A chart with its scale, its clock times and a sentence that says what is seen."""
    values = [value for _, points in spec.lines for _, value in points if value is not None]
    beside = [spec.bound or 0.0, spec.band.high if spec.band else 0.0]
    tallest = max([*values, *(level for level in beside if level <= 4 * max(values, default=level))], default=0.0)
    top = rounded_up(tallest)

    def x(at_s: float) -> float:
        return round((at_s - spec.begins_s) / (spec.ends_s - spec.begins_s) * WIDTH, 1)

    def y(value: float) -> float:
        return round(HEIGHT - min(value / top, 1.0) * HEIGHT, 1)

    band = None
    if spec.band is not None and spec.band.low < top:
        upper = y(spec.band.high)
        band = (max(0.0, x(spec.band.since_s)), upper, round(max(1.5, y(spec.band.low) - upper), 1))
    lines = tuple(
        Line(
            name,
            _path([(x(at_s), None if value is None else y(value)) for at_s, value in points]),
            _last(points),
        )
        for name, points in spec.lines
    )
    seen = [mark for mark in spec.marks if spec.begins_s <= mark.at_s <= spec.ends_s]
    return Chart(
        title=spec.title,
        unit=spec.unit,
        lines=lines,
        top=top,
        ticks=tuple((x(at_s), name) for at_s, name in clock_times(spec.begins_s, spec.ends_s, zone)),
        marks=tuple((x(mark.at_s), mark) for mark in seen),
        band=band,
        bound=y(spec.bound) if spec.bound is not None and spec.bound <= top else None,
        bound_value=spec.bound,
        summary=_summary(spec, lines),
    )


@dataclass(frozen=True, slots=True)
class BandPart:
    """A segment of the time ahead, as a part of a band 600 wide."""

    x: float
    width: float
    label: str
    hue: int
    """Of the topology: the same one has the same colour."""
    is_held: bool
    changes: bool


@dataclass(frozen=True, slots=True)
class TimelineBand:
    """The time ahead as a band, with its clock."""

    stretches: tuple[BandPart, ...]
    ticks: tuple[tuple[float, str], ...]


def ahead(segments: Sequence[SegmentDocument], zone: tzinfo) -> TimelineBand:
    """The segments of one model, side by side. There is at least one."""
    begins_s = segments[0].begins.timestamp()
    ends_s = segments[-1].ends.timestamp()
    scale = WIDTH / max(1.0, ends_s - begins_s)
    shapes = dict.fromkeys(segment.topology.text for segment in segments if segment.topology)
    hue_of = {shape: place % HUES for place, shape in enumerate(shapes)}
    stretches = tuple(
        BandPart(
            x=round((segment.begins.timestamp() - begins_s) * scale, 1),
            width=round((segment.ends - segment.begins).total_seconds() * scale, 1),
            label=segment.topology.shape if segment.topology else "–",
            hue=hue_of.get(segment.topology.text, 0) if segment.topology else 0,
            is_held=segment.infeasible is None,
            changes=segment.changes,
        )
        for segment in segments
    )
    ticks = tuple((round((at - begins_s) * scale, 1), name) for at, name in clock_times(begins_s, ends_s, zone))
    return TimelineBand(stretches, ticks)


def rounded_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * 0.999)


def clock_times(begins_s: float, ends_s: float, zone: tzinfo) -> list[tuple[float, str]]:
    """Four to eight round clock times between two moments."""
    minutes = (ends_s - begins_s) / 60
    step = timedelta(
        minutes=next(
            (step_min for step_min in TICKS_MIN if minutes / step_min <= 7),
            math.ceil(minutes / 1440 / 7) * 1440,
        )
    )
    moment = datetime.fromtimestamp(begins_s, zone).replace(hour=0, minute=0, second=0, microsecond=0)
    found = list[tuple[float, str]]()
    while moment.timestamp() <= ends_s:
        if moment.timestamp() >= begins_s:
            is_day = step >= timedelta(days=1) or (moment.hour == moment.minute == 0 and minutes > 24 * 60)
            found.append((moment.timestamp(), f"{moment:%a %d}" if is_day else f"{moment:%H:%M}"))
        moment += step
    return found


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """As SVG has it; where nothing is known the line has a gap."""
    parts = list[str]()
    is_drawn = False
    for x, y in points:
        if y is not None:
            parts.append(f"{'L' if is_drawn else 'M'}{x:g} {y:g}")
            parts += [] if is_drawn else ["h0.1"]  # a point alone is seen, too
        is_drawn = y is not None
    return "".join(parts)


def _last(points: Points) -> float | None:
    return next((value for _, value in reversed(points) if value is not None), None)


def _summary(spec: ChartSpec, lines: Sequence[Line]) -> str:
    """For those who cannot see it."""
    parts = [f"{line.name} {'unknown' if line.last is None else format(line.last, '.3g')}" for line in lines]
    return f"{spec.title} ({spec.unit}), last: {', '.join(parts)}"
