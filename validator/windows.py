"""Windows that can never be: days and zones that do not exist, hours that are over. Pure: the time comes in."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from intent.models import DatedWindow, Finding, Goal, RecurringWindow
from validator.models import Site
from validator.overlap import once
from validator.words import Words

MOST_ZONES = 3
"""Named in a suggestion."""


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each goal with such a window."""
    for number, goal in enumerate(goals):
        window, place = goal.window, f"/goals/{number}/window"
        if isinstance(window, RecurringWindow | DatedWindow) and not is_zone(window.tz):
            nearest = words.listed(_nearest(window.tz))
            yield words.finding("unknown_zone", f"{place}/tz", goal, "zones", zone=window.tz, nearest=nearest)
        elif isinstance(window, DatedWindow):
            when = once(window)
            if when is None:
                yield words.finding("no_such_date", f"{place}/date", goal, date=window.date)
            elif when[1] <= site.now:
                today = f"{site.now.astimezone(ZoneInfo(window.tz)):%Y-%m-%d %H:%M}"
                yield words.finding("window_over", place, goal, window=words.window(window), now=today)


def is_zone(name: str) -> bool:
    """Whether a time zone has this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _nearest(name: str) -> list[str]:
    """Zones with a part of this name, else those most like it."""
    parts = {part for part in name.lower().replace("/", " ").split() if len(part) > 2}
    zones = sorted(available_timezones())
    named = [zone for zone in zones if zone.lower().rsplit("/", 1)[-1] in parts]
    return named[:MOST_ZONES] or get_close_matches(name, zones, MOST_ZONES, cutoff=0.5) or ["Europe/Berlin"]
