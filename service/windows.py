"""When a window is in force. Pure: the time comes in."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from intent.models import DatedWindow, FromNowWindow, RecurringWindow, Window

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


def covers(window: Window, now: datetime, said: datetime | None = None) -> bool:
    """Whether a window holds at ``now`` (aware); a name says nothing by itself, except ``always``.

    ``said``: when it was said, for a time from then on; that is ``now`` where it is not given.
    """
    match window:
        case str():
            return window == "always"
        case FromNowWindow(duration_s):
            return timedelta(0) <= now - (said or now) <= timedelta(seconds=duration_s)
        case RecurringWindow(days, start, end, tz):
            return _within(now.astimezone(ZoneInfo(tz)), start, end, lambda day: DAYS[day.weekday()] in days)
        case DatedWindow(date, start, end, tz):
            return _within(
                now.astimezone(ZoneInfo(tz)), start, end, lambda day: day.date().isoformat() == date
            )


def in_words(window: Window) -> str:
    """When a window holds: ``at peak``, ``from 14:00 to 15:00 on sat, sun``."""
    match window:
        case str():
            return window if window == "always" else f"at {window}"
        case RecurringWindow(days, start, end):
            on = "" if set(days) == set(DAYS) else f" on {', '.join(days)}"
            return f"from {start} to {end}{on}"
        case DatedWindow(date, start, end):
            return f"on {date} from {start} to {end}"
        case FromNowWindow(duration_s):
            return f"for {duration_s / 60:g} min from when it was said"


def in_force(windows: Mapping[str, Window], now: datetime) -> str:
    """The name of the window that holds at ``now``: the first declared one, or ``always``."""
    return next((name for name, window in windows.items() if covers(window, now)), "always")


def _within(now: datetime, start: str, end: str, on: Callable[[datetime], bool]) -> bool:
    """Whether local ``now`` is between start and end of a day that counts; an early end is the next day's."""
    clock = f"{now:%H:%M}"
    if start < end:
        return on(now) and start <= clock < end
    return (on(now) and clock >= start) or (on(now - timedelta(days=1)) and clock < end)
