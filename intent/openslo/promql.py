"""The few forms of PromQL that say a bound: text to their parts and back. Pure; everything else is no match."""

import re
from collections.abc import Collection

_MATCHERS = r'(?:\{(?P<labels>(?:"(?:[^"\\]|\\.)*"|[^{}"])*)\})?'
_RATE = r"(?:rate|increase)\((?P<name>[\w:]+)_"
_RANGE = r"\[(?P<range>\w+)\]\)"
BUCKET = re.compile(rf"sum\({_RATE}bucket{_MATCHERS}{_RANGE}\)")
"""Requests up to a bound; all forms are without spaces (``tight``)."""
COUNT = re.compile(rf"sum\({_RATE}(?P<kind>count|bucket){_MATCHERS}{_RANGE}\)")
"""All requests of a histogram."""
QUANTILE = re.compile(
    rf"histogram_quantile\((?P<share>0\.\d+),sum(?:by\(le\))?\({_RATE}bucket{_MATCHERS}{_RANGE}\)(?:by\(le\))?\)"
)
"""A percentile of a histogram."""
_QUOTED = r'"(?P<value>(?:[^"\\]|\\.)*)"'
_MATCHER = re.compile(rf"(?P<name>\w+)={_QUOTED}(?:,|$)")


def tight(text: str) -> str:
    """A query without the spaces outside quotation marks."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', text)
    return "".join(part if place % 2 else re.sub(r"\s+", "", part) for place, part in enumerate(parts))


def quoted(name: str) -> str:
    """A label's value as PromQL writes it."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def matchers(said: str | None, known: Collection[str]) -> dict[str, str] | None:
    """Labels and the values they must equal; None if there are others than the known ones, or other comparisons."""
    found: dict[str, str] = {}
    place = 0
    while said and place < len(said):
        match = _MATCHER.match(said, place)
        if match is None or match["name"] not in known or match["name"] in found:
            return None
        found[match["name"]], place = _plain(match["value"]), match.end()
    return found


def values_of(label: str, text: str) -> set[str]:
    """Every value that a label must equal somewhere in a query."""
    return {_plain(match["value"]) for match in re.finditer(rf"\b{label}={_QUOTED}", text)}


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), value)
