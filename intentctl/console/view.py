"""Documents as HTML: templates, and how they write times, sizes and shares.

Every text is escaped and made visible.
"""

import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from intentctl.console import charts
from intentctl.console.words import Language, sayer
from intentctl.lines import visible_lines
from intentctl.render import marked, seconds, size
from selector.models import Margin

HARMLESS = "[…]"
LONGEST = 12_000
"""Characters of one text that are shown."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who reads, and how they like it."""

    language: Language = "en"
    theme: str = ""
    """``dark`` or ``light``; empty: as the browser has it."""
    timezone: str = "UTC"
    path: str = "/"


def page(template: str, reader: Viewer, **facts: object) -> str:
    """A template with facts, for somebody."""
    zone = zone_of(reader.timezone)
    written = {
        **asdict(reader),
        "_": sayer(reader.language),
        "moment": lambda at: moment(at, zone),
        "ahead": lambda segments: charts.ahead(segments, zone),
        "clock": lambda at: moment(at, zone, is_short=True),
    }
    return _templates().get_template(template).render({**written, **facts})


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("intentctl.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.tests["endless"] = math.isinf
    templates.filters |= {
        "seconds": lambda value: "∞" if value is None or math.isinf(value) else seconds(value),
        "ms": lambda value: "–" if value is None else f"{short(value)} ms",
        "latency": lambda value: "–" if value is None else seconds(value),
        "size": size,
        "share": share,
        "short": short,
        "figure": figure,
        "marked": marked,
    }
    return templates


def _harmless(value: object) -> object:
    """Control characters and marks that turn the direction of reading are shown as their codes."""
    if isinstance(value, str) and not isinstance(value, Markup):
        cut = value if len(value) <= LONGEST else f"{value[:LONGEST]} {HARMLESS}"
        return visible_lines(cut.replace("\u200d", "").replace("\xa0", " "))
    return value


def zone_of(name: str) -> tzinfo:
    """A time zone by its name; UTC where the name is none here."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        return UTC


def moment(at: float | datetime, zone: tzinfo, *, is_short: bool = False) -> Markup:
    """A moment as people read it, with the exact one behind it."""
    when = at.astimezone(zone) if isinstance(at, datetime) else datetime.fromtimestamp(at, zone)
    exact = when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    is_today = when.date() == datetime.now(zone).date()
    clock = (
        f"{when:%H:%M:%S}" if is_short and is_today else f"{when:%a %H:%M}" if is_short else f"{when:%a %d %b %H:%M:%S}"
    )
    return Markup('<time datetime="{}" title="{} = {}">{}</time>').format(
        exact, f"{when:%Y-%m-%d %H:%M:%S %Z}", exact, clock
    )


def share(value: float | None, digits: int = 0) -> str:
    """A share as a percentage."""
    return "–" if value is None else f"{value * 100:.{digits}f} %"


def short(value: float | None) -> str:
    """A number in three digits, in full."""
    return "–" if value is None else f"{float(f'{value:.3g}'):,.10g}"


def figure(margin: Margin, name: str) -> str:
    """A prediction or a bound in the unit that suits the bound."""
    value = margin.predicted if name == "predicted" else margin.bound
    if math.isinf(value):
        return "∞"
    match margin.unit:
        case "s":
            return seconds(value)
        case "ratio":
            return f"{value * 100:.3g} %"
        case unit:
            return f"{short(value)} {unit}".rstrip()
