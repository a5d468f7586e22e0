"""When goals hold at the same time: occurrences of windows, and stretches of time. Pure."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

from intent.models import (
    DAYS,
    HOURS_OF_COST,
    Config,
    DatedWindow,
    FromNowWindow,
    Goal,
    Objective,
    Placement,
    RecurringWindow,
    Window,
)
from intent.windows import DAY_MIN, Span, minutes, span
from validator.models import Site

WEEK_MIN = 7 * DAY_MIN
EVERY_DAY = timedelta(days=9)
"""A stretch longer than this holds every day of the week whole, in any zone."""


def overlap(a: Window, b: Window, windows: Mapping[str, Window], now: datetime) -> bool:
    """Whether both windows hold at some moment from ``now`` (aware) on.

    One that can never hold overlaps only itself.
    """
    window = defined(a, windows)
    other = defined(b, windows)
    if window == other or "always" in (window, other):
        return True
    if isinstance(window, str) or isinstance(other, str):
        return False
    if isinstance(window, RecurringWindow) and isinstance(other, RecurringWindow):
        return _recurring(window, other, now.astimezone(UTC).date().isoformat())
    if isinstance(window, RecurringWindow):
        return _meets(window, _stretch(other, now))
    if isinstance(other, RecurringWindow):
        return _meets(other, _stretch(window, now))
    first = _stretch(window, now)
    second = _stretch(other, now)
    return first is not None and second is not None and max(first[0], second[0]) < min(first[1], second[1])


def defined(window: Window, windows: Mapping[str, Window]) -> Window:
    """What a name stands for, through other names.

    Itself where nothing is defined (or the names run in a circle).
    """
    for _ in range(len(windows)):
        if not isinstance(window, str) or window not in windows:
            break
        window = windows[window]
    return window


def once(window: DatedWindow) -> Span | None:
    """From when to when hours on a date are; None if there is no such date or zone."""
    try:
        return span(window, date.fromisoformat(window.date))
    except (ValueError, KeyError, OSError, OverflowError):
        return None


# -- recurring beside recurring --------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _recurring(a: RecurringWindow, b: RecurringWindow, today: str) -> bool:
    """Weeks as minutes; two zones are shifted against each other by every difference of the year to come."""
    weeks = product(_minutes(a), _minutes(b), _shifts_min(a.tz, b.tz, today))
    return any(
        max(s, t + shift + week) < min(e, f + shift + week)
        for (s, e), (t, f), shift in weeks
        for week in (-WEEK_MIN, 0, WEEK_MIN)
    )


def _minutes(window: RecurringWindow) -> list[tuple[int, int]]:
    """Half-open minutes of the week, Monday 00:00 being 0; the last ones may run into the next week."""
    first, last = minutes(window.start, window.end)
    days = [DAYS.index(day) * DAY_MIN for day in window.days]
    return [(day + first, day + last) for day in days]


@lru_cache(maxsize=256)
def _shifts_min(a: str, b: str, today: str) -> tuple[int, ...]:
    """By how many minutes clocks of zone ``a`` are ahead of those of ``b``, sampled on each day of a year.

    () if unknown.
    """
    if a == b:
        return (0,)
    try:
        zones = ZoneInfo(a), ZoneInfo(b)
    except (ValueError, KeyError, OSError):
        return ()
    noon = datetime.fromisoformat(today).replace(hour=12, tzinfo=UTC)
    days = [noon + timedelta(days=day) for day in range(366)]
    offsets = [[day.astimezone(zone).utcoffset() or timedelta() for zone in zones] for day in days]
    return tuple({int((offset - other).total_seconds() // 60) for offset, other in offsets})


# -- something that happens once -------------------------------------------------------------------


def _stretch(window: Window, now: datetime) -> Span | None:
    """What is left of it; None if nothing is, or it can never be."""
    if isinstance(window, FromNowWindow):
        return now, _later(now, window.duration_s)
    when = once(window) if isinstance(window, DatedWindow) else None
    return (max(when[0], now), when[1]) if when and when[1] > now else None


def _later(now: datetime, duration_s: float) -> datetime:
    """As far as the calendar goes."""
    try:
        return now + timedelta(seconds=duration_s)
    except (OverflowError, ValueError):
        return datetime.max.replace(tzinfo=UTC)


def _meets(recurring: RecurringWindow, stretch: Span | None) -> bool:
    """Whether an occurrence of the recurring hours touches a stretch of time."""
    if stretch is None:
        return False
    start, end = stretch
    return end - start > EVERY_DAY or any(
        max(start, first) < min(end, last) for first, last in _occurrences(recurring, start, end)
    )


def _occurrences(recurring: RecurringWindow, start: datetime, end: datetime) -> Iterator[Span]:
    """Those of the days from the eve of ``start`` to ``end``, as far as the calendar goes."""
    try:
        zone = ZoneInfo(recurring.tz)
        day = start.astimezone(zone).date() - timedelta(days=1)
        last = end.astimezone(zone).date()
        while day <= last:
            if DAYS[day.weekday()] in recurring.days:
                yield span(recurring, day)
            day += timedelta(days=1)
    except (ValueError, KeyError, OSError, OverflowError):
        return


@dataclass(frozen=True, slots=True)
class ValueInterval:
    """Values a goal allows, both ends included."""

    low: float
    high: float

    def disjoint(self, other: "ValueInterval") -> bool:
        """Whether no value lies in both."""
        return max(self.low, other.low) > min(self.high, other.high)


def bounded(op: str, value: float) -> ValueInterval:
    """What a comparison with a value allows."""
    return ValueInterval(
        value if op in {">=", "=="} else -math.inf,
        value if op in {"<=", "=="} else math.inf,
    )


def interval(goal: Objective | Config) -> ValueInterval:
    """The values a bound allows; costs per day or month as costs per hour, optimisations everything."""
    if goal.value is None:
        return ValueInterval(-math.inf, math.inf)
    return bounded(
        goal.op,
        goal.value / (HOURS_OF_COST.get(goal.unit or "", 1.0) if isinstance(goal, Objective) else 1.0),
    )


def satisfies(value: float, goal: Objective | Config) -> bool:
    """Whether a value lies in what the goal allows."""
    allowed = interval(goal)
    return allowed.low <= value <= allowed.high


def hard(goal: Goal) -> bool:
    """Whether a goal must hold; what is only preferred yields, and so never clashes."""
    return not (goal.rule == "prefer" if isinstance(goal, Placement) else getattr(goal, "soft", False))


def together(a: Goal, b: Goal, site: Site) -> bool:
    """Whether both hold at some time for some request.

    Nothing said covers everything, two other names nothing in common.
    """
    return all(_alike(a, b, name) for name in ("tenant", "model")) and overlap(
        a.window, b.window, site.windows, site.now
    )


def _alike(a: Goal, b: Goal, name: str) -> bool:
    first = getattr(a, name, None)
    other = getattr(b, name, None)
    return first is None or other is None or first == other


def covers(a: Goal, b: Goal, site: Site) -> bool:
    """Whether ``a`` holds whenever and for whomever ``b`` does (as far as their words show)."""
    for name in ("tenant", "model"):
        if getattr(a, name, None) not in {None, getattr(b, name, None)}:
            return False
    window = defined(a.window, site.windows)
    return window == "always" or window == defined(b.window, site.windows)
