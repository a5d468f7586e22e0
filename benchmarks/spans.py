"""Which requests and which gaps between tokens fall into which span of a switch, and what they come to. Pure."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from intentctl.measure import TimeInterval
from runtime.models import Phase

Document = dict[str, Any]
Name = Literal["before", "sham", "warming", "syncing", "cutting", "after"]

WORDS: Mapping[Name, str] = {
    "before": "before",
    "sham": "sham: nothing happened",
    "warming": "warming",
    "syncing": "syncing",
    "cutting": "cutting to done",
    "after": "after, beside the target's before",
}
BEGINS: Mapping[Name, Phase] = {
    "warming": Phase.WARMING,
    "syncing": Phase.SYNCING,
    "cutting": Phase.CUTTING,
}
"""Spans of a switch to the phase each begins with; the last ends with ``done``."""
BAR = 1.10
"""The most that the median TPOT may be while KV is copied, by what it was before."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client saw it, in Unix seconds."""

    started_s: float
    arrivals_s: tuple[float, ...]
    """Of its tokens, in order."""


@dataclass(frozen=True, slots=True)
class Watched:
    """One switch with the time on its two sides, cut into spans."""

    source: str
    target: str
    spans: Mapping[Name, TimeInterval]


@dataclass(frozen=True, slots=True)
class Samples:
    """What fell into a span, in milliseconds."""

    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float, ...]


def switch_spans(phases_s: Mapping[Phase, float]) -> dict[Name, TimeInterval]:
    """The spans of a switch, which follow one another to its end."""
    begins = [phases_s[phase] for phase in BEGINS.values()]
    ends = [*begins[1:], phases_s[Phase.DONE]]
    return {name: TimeInterval(*times) for name, *times in zip(BEGINS, begins, ends, strict=True)}


def samples(requests: Iterable[Request], span: TimeInterval) -> Samples:
    """TTFT of the requests that began in a span, and the gaps between tokens whose middle lies in it.

    A moment at which one span ends and the next begins is the next one's, so everything is in one of them.
    """
    ttft, gaps = list[float](), list[float]()
    for one in requests:
        if one.arrivals_s and _holds(span, one.started_s):
            ttft.append((one.arrivals_s[0] - one.started_s) * 1000)
        gaps += [(b - a) * 1000 for a, b in pairwise(one.arrivals_s) if _holds(span, (a + b) / 2)]
    return Samples(tuple(ttft), tuple(gaps))


def _holds(span: TimeInterval, moment_s: float) -> bool:
    return span.start_s <= moment_s < span.end_s


def directions(watched: Sequence[Watched], requests: Sequence[Request]) -> list[Document]:
    """The figures of each direction, over all of its switches.

    Each span is compared with the time before on the same topology: what comes after a switch with what comes before the
    next one, on the way back.
    """
    found: dict[tuple[str, str], dict[Name, Samples]] = {}
    for one in watched:
        here = found.setdefault((one.source, one.target), dict.fromkeys(one.spans, Samples((), ())))
        for name, span in one.spans.items():
            here[name] = _joined(here[name], samples(requests, span))
    return [
        _direction(place, spans, found.get((place[1], place[0]), {}).get("before", Samples((), ())))
        for place, spans in found.items()
    ]


def _joined(one: Samples, other: Samples) -> Samples:
    return Samples(one.ttft_ms + other.ttft_ms, one.tpot_ms + other.tpot_ms)


def _direction(place: tuple[str, str], spans: Mapping[Name, Samples], settled: Samples) -> Document:
    rows = {name: _figures(found, settled if name == "after" else spans["before"]) for name, found in spans.items()}
    ratio = rows["syncing"]["tpot"]["ratio"] if "syncing" in rows else None
    return {
        "source": place[0],
        "target": place[1],
        "rows": [{"span": name, **row} for name, row in rows.items()],
        "syncing_tpot_ratio": ratio,
        "within_bar": None if ratio is None else ratio <= BAR,
    }


def each(watched: Sequence[Watched], requests: Sequence[Request]) -> list[Document]:
    """Every switch by itself: when each span began and ended, and its figures beside those of its own time before."""
    found = []
    for one in watched:
        inside = {name: samples(requests, span) for name, span in one.spans.items()}
        spans = {name: {**asdict(span), **_figures(inside[name], inside["before"])} for name, span in one.spans.items()}
        found.append({"source": one.source, "target": one.target, "spans": spans})
    return found


def _figures(found: Samples, usual: Samples) -> Document:
    return {"ttft": _figure(found.ttft_ms, usual.ttft_ms), "tpot": _figure(found.tpot_ms, usual.tpot_ms)}


def _figure(values: Sequence[float], usual: Sequence[float]) -> Document:
    """Median and number of samples, and the ratio to the median of what is usual; None where there is nothing."""
    median = statistics.median(values) if values else None
    ratio = median / statistics.median(usual) if median is not None and usual else None
    return {
        "median_ms": None if median is None else round(median, 3),
        "ratio": None if ratio is None else round(ratio, 3),
        "samples": len(values),
    }


def table(found: Sequence[Document]) -> str:
    """A block per direction: a row per span."""
    return "\n\n".join("\n".join(_block(one)) for one in found)


def _block(one: Document) -> list[str]:
    title = f"{one['source']} to {one['target']}"
    lines = [f"{title:36}{'TTFT ms':>10}{'ratio':>8}{'n':>8}{'TPOT ms':>10}{'ratio':>8}{'n':>8}"]
    lines += [f"{WORDS[row['span']]:36}{_cells(row['ttft'])}{_cells(row['tpot'])}" for row in one["rows"]]
    if one["within_bar"] is not None:
        said = "within" if one["within_bar"] else "over"
        lines.append(f"median TPOT while syncing: {one['syncing_tpot_ratio']:.2f} x before, {said} {BAR:.2f}")
    return lines


def _cells(figure: Document) -> str:
    median, ratio = figure["median_ms"], figure["ratio"]
    return (
        f"{'-' if median is None else f'{median:,.2f}':>10}{'-' if ratio is None else f'{ratio:.3f}':>8}"
        f"{figure['samples']:>8,}"
    )
