"""When a window is in force. Pure: the time comes in."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from intent.models import DatedWindow, RecurringWindow, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


MOMENT = "ISO 8601, as 2026-01-05T09:30 (in the deployment's zone) or 2026-01-05T09:30+08:00"
"""How a moment is written."""


def moment(said: str, tz: str) -> datetime:
    """A moment as people write it; without an offset it is in the zone ``tz``.

    Raises:
        ValueError: it is none, or far from any year of use; the message shows the form.
    """
    try:
        parsed = datetime.fromisoformat(said.strip())
    except ValueError:
        raise ValueError(f"{said!r} is no moment; write {MOMENT}") from None
    if not 1970 <= parsed.year < 3000:  # arithmetic on days and zones needs room at both ends of the calendar
        raise ValueError(f"{said!r} is before 1970 or after 2999; write {MOMENT}")
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=ZoneInfo(tz))


def covers(window: Window, now: datetime) -> bool:
    """Whether a window holds at ``now`` (aware); a name says nothing by itself, except ``always``."""
    match window:
        case str():
            return window == "always"
        case RecurringWindow(days, start, end, tz):
            return _within(now.astimezone(ZoneInfo(tz)), start, end, lambda day: DAYS[day.weekday()] in days)
        case DatedWindow(date, start, end, tz):
            return _within(
                now.astimezone(ZoneInfo(tz)), start, end, lambda day: day.date().isoformat() == date
            )
        case _:
            return True  # from now on: it was said about now


def in_force(windows: Mapping[str, Window], now: datetime) -> str:
    """The name of the window that holds at ``now``: the first declared one, or ``always``."""
    return next((name for name, window in windows.items() if covers(window, now)), "always")


def _within(now: datetime, start: str, end: str, on: Callable[[datetime], bool]) -> bool:
    """Whether local ``now`` is between start and end of a day that counts; an early end is the next day's."""
    clock = f"{now:%H:%M}"
    if start < end:
        return on(now) and start <= clock < end
    return (on(now) and clock >= start) or (on(now - timedelta(days=1)) and clock < end)
