"""When a window is in force. Pure: the time comes in."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from intent.models import DatedWindow, RecurringWindow, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


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
