"""When a window holds: at a moment by the clock on the wall, and from when to when.

Pure: the time comes in.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

from intent.models import DAYS, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow, Window

DAY_MIN = 24 * 60

Span = tuple[datetime, datetime]
"""First and (excluded) last moment."""

MOMENT = "ISO 8601, as 2026-01-05T09:30 (in the deployment's zone) or 2026-01-05T09:30+08:00"
"""How a moment is written."""


def moment(text: str, tz: str) -> datetime:
    """A moment as people write it; without an offset it is in the zone ``tz``.

    Raises:
        ValueError: it is none, or far from any year of use; the message shows the form.
    """
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no moment; write {MOMENT}") from None
    if not 1970 <= parsed.year < 3000:  # arithmetic on days and zones needs room at both ends of the calendar
        raise ValueError(f"{text!r} is before 1970 or after 2999; write {MOMENT}")
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=ZoneInfo(tz))


def holds(window: Window, now: datetime, said_at: datetime | None = None) -> bool:
    """Whether a window holds at ``now`` (aware); a name says nothing by itself, except ``always``.

    ``said_at``: when it was said, for a time from then on; that is ``now`` where it is not given.
    """
    match window:
        case str():
            return window == "always"
        case FromNowWindow(duration_s):
            return timedelta(0) <= now - (said_at or now) <= timedelta(seconds=duration_s)
        case DatesWindow(date=first):
            begins, ends = span(window, date.fromisoformat(first))
            return begins <= now < ends
        case _:
            return _on_the_wall(window, now.astimezone(ZoneInfo(window.tz)))


def _on_the_wall(window: RecurringWindow | DatedWindow, local: datetime) -> bool:
    """Whether the clock there shows one of the hours of today, or of those that began yesterday."""
    first, last = minutes(window.start, window.end)
    today = local.date()
    clock = minute_of(local)
    return (_begins(window, today) and first <= clock < last) or (
        _begins(window, today - timedelta(days=1)) and first <= clock + DAY_MIN < last
    )


def _begins(window: RecurringWindow | DatedWindow, day: date) -> bool:
    """Whether the hours begin on that day."""
    if isinstance(window, DatedWindow):
        return day.isoformat() == window.date
    return DAYS[day.weekday()] in window.days


def in_force(windows: Mapping[str, Window], now: datetime) -> str:
    """The name of the window that holds at ``now``: the first declared one, or ``always``."""
    return next((name for name, window in windows.items() if holds(window, now)), "always")


def minutes(start: str, end: str) -> tuple[int, int]:
    """``HH:MM`` to ``HH:MM`` as minutes since the midnight before.

    An end at or before the start is the next day's.
    """
    first = _minute(start)
    return first, last_minute(first, _minute(end))


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def last_minute(first: int, last: int) -> int:
    """The end of hours in minutes since the midnight before their start."""
    return last + DAY_MIN if last <= first else last


def minute_of(local: datetime) -> int:
    """What the clock shows, in minutes since midnight."""
    return local.hour * 60 + local.minute


def span(window: RecurringWindow | DatedWindow, day: date) -> Span:
    """From when to when the hours are that begin on a day.

    Raises:
        KeyError, OSError, ValueError: there is no such zone.
        OverflowError: the calendar ends before.
    """
    zone = ZoneInfo(window.tz)
    first, last = minutes(window.start, window.end)
    if isinstance(window, DatesWindow):
        end = date.fromisoformat(window.last)
        return clock_moment(day, first, zone), clock_moment(end, _minute(window.end), zone)
    return clock_moment(day, first, zone), clock_moment(day, last, zone)


def clock_moment(day: date, minute: int, zone: tzinfo | None) -> datetime:
    """When clocks there have gone so many minutes since the midnight that begins a day."""
    there = datetime.combine(day, time(), zone) + timedelta(minutes=minute)
    return there.astimezone(UTC)  # within a zone, comparing ignores its offset


def in_words(window: Window) -> str:
    """When a window holds: ``at peak``, ``from 14:00 to 15:00 on sat, sun``."""
    match window:
        case str():
            return window if window == "always" else f"at {window}"
        case RecurringWindow(days, start, end):
            on = "" if set(days) == set(DAYS) else f" on {', '.join(days)}"
            return f"from {start} to {end}{on}"
        case DatesWindow(date, start, end, _, last):
            return f"from {date} {start} to {last} {end}"
        case DatedWindow(date, start, end):
            return f"on {date} from {start} to {end}"
        case FromNowWindow(duration_s):
            return f"for {duration_s / 60:g} min from when it was said"
