"""From what the clients saw to figures, a document and a table. Pure."""

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.stops import StopCurve
from benchmarks.strategy import Switched
from intentctl.measure import ClientStream, TimeInterval, gaps_within, percentiles, sham_stops, stop_of
from runtime.models import CutTimings

Document = dict[str, Any]

SHAMS = 20
"""Sham cuts per stream and quiet interval."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One switch with the undisturbed time on its two sides."""

    source: str
    target: str
    switched: Switched
    quiet: tuple[TimeInterval, TimeInterval]


@dataclass(frozen=True, slots=True)
class Tally:
    """Tokens over all streams of a run."""

    tokens: int
    lost: int
    duplicated: int


@dataclass(frozen=True, slots=True)
class Run:
    """All switches of one mode between the two topologies of a pair."""

    mode: str
    pair: str
    active: int
    """Streams at any time."""
    context: int
    """Prompt tokens of the longest."""
    layers_moved: int
    """With some KV that goes from one device to another."""
    measured: tuple[Measured, ...]
    streams: tuple[ClientStream, ...]
    tally: Tally
    error: str | None = None
    """Why it ended before all switches were done."""


def run_document(run: Run, memcpy_bytes_s: float) -> Document:
    """The figures of a run; null where there was nothing to measure."""
    switched = [one.switched for one in run.measured]
    stops = [switch_stops(one, run.streams) for one in run.measured]
    quiet = [interval for one in run.measured for interval in one.quiet]
    shams = [s for seed, stream in enumerate(run.streams) for s in sham_stops(stream, quiet, SHAMS, seed)]
    gaps = [gap * 1000 for stream in run.streams for interval in quiet for gap in gaps_within(stream, interval)]
    return {
        "mode": run.mode,
        "pair": run.pair,
        "active": run.active,
        "context": run.context,
        "layers_moved": run.layers_moved,
        "error": run.error,
        "switches": len(switched),
        "stops": sum(len(found) for found, _ in stops),
        "stop_ms": figures(itertools.chain.from_iterable(found for found, _ in stops)),
        "stop_ms_by_direction": _by_direction(run.measured, [found for found, _ in stops]),
        "sham_stop_ms": figures(shams),
        "fence_to_commit_ms": figures(map(fence_to_commit_ms, _timings(switched))),
        "median_gap_ms": round(statistics.median(gaps), 2) if gaps else None,
        "worst_gap_ms": figures(itertools.chain.from_iterable(worst for _, worst in stops)),
        "prepare_s": figures(one.prepare_s for one in switched),
        "drain_s": figures(one.drain_s for one in switched if one.drain_s is not None),
        "bytes_before": sum(one.bytes_before for one in switched),
        "bytes_inside": sum(one.bytes_inside for one in switched),
        "memcpy_share": memcpy_share(switched, memcpy_bytes_s),
        "tokens": run.tally.tokens,
        "tokens_recomputed": sum(one.tokens_recomputed for one in switched),
        "tokens_lost": run.tally.lost,
        "tokens_duplicated": run.tally.duplicated,
        "left_to_drain": sum(one.left_to_drain for one in switched),
        "paths": dict(sum((Counter(one.paths) for one in switched), Counter())),
        "engine_ms_p50": _engine_split(switched),
        "each": [_each(one, found) for one, (found, _) in zip(run.measured, stops, strict=True)],
    }


def switch_stops(measured: Measured, streams: Iterable[ClientStream]) -> tuple[list[float], list[float]]:
    """Stops and worst gaps of one switch in milliseconds: one each per stream, or what requests queued."""
    waits_s = measured.switched.waits_s
    if waits_s is not None:
        return [wait_s * 1000 for wait_s in waits_s], []
    found = [stop_of(stream, measured.switched.interval, measured.quiet) for stream in streams]
    stops = [stop for stop in found if stop]
    return [stop.stop_ms for stop in stops], [stop.worst_gap_ms for stop in stops]


def fence_to_commit_ms(timings: CutTimings) -> float:
    """How long no topology served, before the first step on the new one."""
    return timings.drain_ms + timings.patch_ms + timings.commit_ms


def memcpy_share(switched: Iterable[Switched], memcpy_bytes_s: float) -> float | None:
    """How fast the cuts copied, as a share of what memcpy does: the median over switches that copied something."""
    rates = [
        one.bytes_inside / (one.timings.patch_ms / 1000)
        for one in switched
        if one.timings and one.bytes_inside and one.timings.patch_ms
    ]
    return round(statistics.median(rates) / memcpy_bytes_s, 3) if rates else None


def figures(values: Iterable[float]) -> Document | None:
    """p50, p99 and max; None when there is no value."""
    found = percentiles(list(values))
    return {name: round(value, 3) for name, value in asdict(found).items()} if found else None


def ratios(documents: Sequence[Document]) -> list[Document]:
    """Per pair and load, how many times the stop p99 of each baseline is that of the engine's own patch; None: not known."""
    p99 = {(*_place(one), one["mode"]): one["stop_ms"]["p99"] for one in documents if one["stop_ms"]}
    baselines = [mode for mode in dict.fromkeys(one["mode"] for one in documents) if mode not in {"patch", "follow"}]
    return [
        dict(zip(PLACE, place, strict=True)) | {f"{mode}/patch": _ratio(p99, place, mode) for mode in baselines}
        for place in dict.fromkeys(map(_place, documents))
    ]


PLACE = ("pair", "active", "context")
"""What modes are compared at."""

Place = tuple[str, int, int]


def _place(document: Document) -> Place:
    pair, active, context = (document[name] for name in PLACE)
    return pair, active, context


def _ratio(p99: dict[tuple[str, int, int, str], float], place: Place, mode: str) -> float | None:
    above, below = p99.get((*place, mode)), p99.get((*place, "patch"))
    if above is None or below is None or min(above, below) <= 0:
        return None
    return round(above / below, 1)


def _by_direction(measured: Sequence[Measured], stops: Sequence[list[float]]) -> Document:
    directions: dict[str, list[float]] = {}
    for one, found in zip(measured, stops, strict=True):
        directions.setdefault(f"{one.source} to {one.target}", []).extend(found)
    return {direction: figures(found) for direction, found in directions.items()}


def _timings(switched: Iterable[Switched]) -> list[CutTimings]:
    return [one.timings for one in switched if one.timings]


def _engine_split(switched: Iterable[Switched]) -> Document | None:
    timings = [asdict(one) for one in _timings(switched)]
    if not timings:
        return None
    return {part: round(statistics.median(one[part] for one in timings), 2) for part in timings[0]}


def _each(measured: Measured, stops: Sequence[float]) -> Document:
    stops_ms = [round(stop, 2) for stop in stops]
    return {
        "source": measured.source,
        "target": measured.target,
        **asdict(measured.switched),
        "stops_ms": stops_ms,
    }


SWEPT = {"active": "streams that run", "context": "prompt tokens", "layers_moved": "layers that move"}
"""What stops may be drawn against."""


def stop_curves(documents: Sequence[Document]) -> tuple[list[StopCurve], str]:
    """Stops against the first of ``SWEPT`` that varies, and its name: a curve for each mode and what else differs."""
    swept = next((name for name in SWEPT if len({one[name] for one in documents}) > 1), "active")
    others = ["mode", *(name for name in PLACE if len({one[name] for one in documents}) > 1)]
    kept = [name for name in others if name != swept and (name, swept) != ("pair", "layers_moved")]
    curves: dict[str, dict[int, tuple[float, float]]] = {}
    for one in documents:
        stops = curves.setdefault(" ".join(str(one[name]) for name in kept), {})
        if one["stop_ms"]:
            stops[one[swept]] = one["stop_ms"]["p50"], one["stop_ms"]["p99"]
    return [StopCurve(label, stops) for label, stops in curves.items()], SWEPT[swept]


# --- the table -------------------------------------------------------------------------------------------------------

Cell = Callable[[Document], str]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _of(key: str, *names: str) -> Cell:
    """A cell with some of the figures under a key."""

    def cell(one: Document) -> str:
        found = one[key]
        return " / ".join(_number(found[name]) for name in names) if found else "-"

    return cell


def _plain(key: str) -> Cell:
    return lambda one: _number(one[key])


def _share(one: Document) -> str:
    return "-" if one["memcpy_share"] is None else f"{one['memcpy_share']:.0%}"


def _paths(one: Document) -> str:
    return ", ".join(f"{path} {count:,}" for path, count in one["paths"].items()) or "-"


ROWS: tuple[tuple[str, Cell], ...] = (
    ("switches", _plain("switches")),
    ("stops", _plain("stops")),
    ("stop ms p50/p99/max", _of("stop_ms", "p50", "p99", "max")),
    ("sham ms p50/p99", _of("sham_stop_ms", "p50", "p99")),
    ("fence to commit ms p50/p99/max", _of("fence_to_commit_ms", "p50", "p99", "max")),
    ("median gap ms", _plain("median_gap_ms")),
    ("worst gap ms p50/max", _of("worst_gap_ms", "p50", "max")),
    ("prepare s p50/max", _of("prepare_s", "p50", "max")),
    ("time to drain s p50/max", _of("drain_s", "p50", "max")),
    ("bytes before", _plain("bytes_before")),
    ("bytes inside", _plain("bytes_inside")),
    ("copy in cuts / memcpy", _share),
    ("tokens", _plain("tokens")),
    ("tokens recomputed", _plain("tokens_recomputed")),
    ("tokens lost", _plain("tokens_lost")),
    ("tokens duplicated", _plain("tokens_duplicated")),
    ("left to drain", _plain("left_to_drain")),
    ("moved by", _paths),
    ("engine: drain ms p50", _of("engine_ms_p50", "drain_ms")),
    ("engine: patch ms p50", _of("engine_ms_p50", "patch_ms")),
    ("engine: commit ms p50", _of("engine_ms_p50", "commit_ms")),
    ("engine: first step ms p50", _of("engine_ms_p50", "first_step_ms")),
)


def table(documents: Sequence[Document]) -> str:
    """One block per pair and load: a row per figure, a column per mode."""
    places = dict.fromkeys(map(_place, documents))
    return "\n\n".join(_block(place, [one for one in documents if _place(one) == place]) for place in places)


def _block(place: Place, documents: Sequence[Document]) -> str:
    lines = [(_title(*place), *(one["mode"] for one in documents))]
    lines += [(label, *map(cell, documents)) for label, cell in ROWS]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
    text += [f"{one['mode']} ended early: {one['error']}" for one in documents if one["error"]]
    return "\n".join(text)


def _title(pair: str, active: int, context: int) -> str:
    return f"{pair}, {active} active, {context} tokens"


def ratio_lines(documents: Iterable[Document]) -> list[str]:
    """Ratios for people; nothing where none is known."""
    return [
        f"{_title(*_place(one))}: stop p99 {name} = {value}"
        for one in documents
        for name, value in one.items()
        if name not in PLACE and value is not None
    ]
