"""Whether two windows share a moment from now on. Pure: the time comes in.

Names are looked up in the deployment's definitions. A name without one is a time nobody knows: it overlaps itself and
``always``, nothing else. Recurring hours recur for ever; hours that the clock skips in spring count as they are written.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import product
from zoneinfo import ZoneInfo

from intent.models import DatedWindow, FromNowWindow, RecurringWindow, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN
EVERY_DAY = timedelta(days=9)
"""A stretch longer than this holds every day of the week whole, in any zone."""

Span = tuple[datetime, datetime]


def overlap(a: Window, b: Window, windows: Mapping[str, Window], now: datetime) -> bool:
    """Whether both windows hold at some moment from ``now`` (aware) on; one that can never hold overlaps only itself."""
    one, other = defined(a, windows), defined(b, windows)
    if one == other or "always" in (one, other):
        return True
    if isinstance(one, str) or isinstance(other, str):
        return False
    if isinstance(one, RecurringWindow) and isinstance(other, RecurringWindow):
        return _recurring(one, other, now.astimezone(UTC).date().isoformat())
    if isinstance(one, RecurringWindow):
        return _meets(one, _stretch(other, now))
    if isinstance(other, RecurringWindow):
        return _meets(other, _stretch(one, now))
    first, second = _stretch(one, now), _stretch(other, now)
    return first is not None and second is not None and max(first[0], second[0]) < min(first[1], second[1])


def defined(window: Window, windows: Mapping[str, Window]) -> Window:
    """What a name stands for, through other names; itself where nothing is defined (or the names run in a circle)."""
    for _ in range(len(windows)):
        if not isinstance(window, str) or window not in windows:
            break
        window = windows[window]
    return window


def span(window: DatedWindow) -> Span | None:
    """First and (excluded) last moment of hours on a date; None if there is no such date or zone."""
    try:
        midnight = datetime.fromisoformat(window.date).replace(tzinfo=ZoneInfo(window.tz))
        return _hours(midnight, window.start, window.end)
    except (ValueError, KeyError, OSError, OverflowError):
        return None


def _hours(midnight: datetime, start: str, end: str) -> Span:
    """Wall-clock hours of the day that begins at ``midnight``; an end at or before the start is the next day's."""
    first, last = clock_min(start), clock_min(end)
    last += DAY_MIN if last <= first else 0
    ends = (midnight + timedelta(minutes=minutes) for minutes in (first, last))
    start_utc, end_utc = (
        moment.astimezone(UTC) for moment in ends
    )  # within a zone, comparing ignores its offset
    return start_utc, end_utc


def clock_min(clock: str) -> int:
    """Minutes since midnight of ``HH:MM``."""
    return int(clock[:2]) * 60 + int(clock[3:])


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
    first, last = clock_min(window.start), clock_min(window.end)
    last += DAY_MIN if last <= first else 0
    days = [DAYS.index(day) * DAY_MIN for day in window.days]
    return [(day + first, day + last) for day in days]


@lru_cache(maxsize=256)
def _shifts_min(a: str, b: str, today: str) -> tuple[int, ...]:
    """By how many minutes clocks of zone ``a`` are ahead of those of ``b``, sampled on each day of a year; () if unknown."""
    if a == b:
        return (0,)
    try:
        zones = ZoneInfo(a), ZoneInfo(b)
    except (ValueError, KeyError, OSError):
        return ()
    noon = datetime.fromisoformat(today).replace(hour=12, tzinfo=UTC)
    days = [noon + timedelta(days=day) for day in range(366)]
    offsets = [[day.astimezone(zone).utcoffset() or timedelta() for zone in zones] for day in days]
    return tuple({int((one - other).total_seconds() // 60) for one, other in offsets})


# -- something that happens once -------------------------------------------------------------------


def _stretch(once: Window, now: datetime) -> Span | None:
    """What is left of it; None if nothing is, or it can never be."""
    if isinstance(once, FromNowWindow):
        return now, _later(now, once.duration_s)
    when = span(once) if isinstance(once, DatedWindow) else None
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
        day = start.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        last = end.astimezone(zone)
        while day <= last:
            if DAYS[day.weekday()] in recurring.days:
                yield _hours(day, recurring.start, recurring.end)
            day += timedelta(days=1)
    except (ValueError, KeyError, OSError, OverflowError):
        return
