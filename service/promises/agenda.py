"""The time ahead, cut where what is promised, or the expected load, changes. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from intent.models import DatedWindow, DatesWindow, FromNowWindow, Goal, Priority, RecurringWindow, Window
from intent.windows import clock_moment, holds, minutes, span

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ActiveGoal:
    """A goal of an active intent."""

    intent_id: str
    goal: Goal
    said: datetime
    """A time from now on begins then."""

    @property
    def is_wish(self) -> bool:
        """Whether it orders what holds, and need not be held."""
        is_best = getattr(self.goal, "op", None) in {"minimize", "maximize"} or isinstance(self.goal, Priority)
        return is_best or getattr(self.goal, "rule", None) == "prefer" or getattr(self.goal, "soft", False)


@dataclass(frozen=True, slots=True)
class Segment:
    """A time in which the same goals hold and the same load is expected."""

    begins: datetime
    ends: datetime
    """Excluded."""
    windows: tuple[str, ...]
    """The deployment's that are in force, as they are declared."""
    promised: tuple[ActiveGoal, ...]

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What has to hold."""
        return tuple(goal.goal for goal in self.promised)


def cut(
    promised: Sequence[ActiveGoal], windows: Mapping[str, Window], begins: datetime, ends: datetime
) -> list[Segment]:
    """The segments from ``begins`` to ``ends`` (both aware), in order and without a gap.

    A window begins and ends as clocks on the wall show it: also where they are put forward or back.
    """
    begins = begins.astimezone(UTC)
    ends = ends.astimezone(UTC)
    pairs = {(goal.goal.window, goal.said) for goal in promised if not isinstance(goal.goal.window, str)}
    of_names = {(window, begins) for window in windows.values()}
    moments = {at for window, said_at in pairs | of_names for at in _moments(window, said_at, begins, ends)}
    cuts = [begins, *sorted(at for at in moments if begins < at < ends), ends]
    segments = list[Segment]()
    for first, last in pairwise(cuts):
        named = tuple(name for name, window in windows.items() if holds(window, first))
        segment = Segment(first, last, named, tuple(in_force(promised, windows, first)))
        if segments and (segments[-1].windows, segments[-1].promised) == (segment.windows, segment.promised):
            segment = replace(segment, begins=segments.pop().begins)
        segments.append(segment)
    return segments


def in_force(promised: Sequence[ActiveGoal], windows: Mapping[str, Window], now: datetime) -> list[ActiveGoal]:
    """The goals that hold at a moment."""
    return [goal for goal in promised if _holds(goal, windows, now)]


def _holds(goal: ActiveGoal, windows: Mapping[str, Window], now: datetime) -> bool:
    window = goal.goal.window
    defined = windows.get(window, window) if isinstance(window, str) else window
    if isinstance(defined, FromNowWindow):  # its last moment is the first of what comes after
        return goal.said <= now < goal.said + timedelta(seconds=defined.duration_s)
    return holds(defined, now)


def _moments(window: Window, said_at: datetime, begins: datetime, ends: datetime) -> Iterator[datetime]:
    """When a window may begin or end between two moments, and some more."""
    match window:
        case str():
            return
        case FromNowWindow(duration_s):
            yield said_at
            yield said_at + timedelta(seconds=min(duration_s, (ends - said_at).total_seconds() + 1))
        case DatesWindow(date=first):
            yield from span(window, date.fromisoformat(first))
        case _:
            zone = ZoneInfo(window.tz)
            yield from _changes(zone, begins, ends)
            for day in _days(window, zone, begins, ends):
                for minute in minutes(window.start, window.end):
                    yield from _both(day, minute, zone)


def _days(window: RecurringWindow | DatedWindow, zone: ZoneInfo, begins: datetime, ends: datetime) -> Iterator[date]:
    """The days on which it may begin."""
    if isinstance(window, DatedWindow):
        yield date.fromisoformat(window.date)
        return
    day = begins.astimezone(zone).date() - DAY
    last = ends.astimezone(zone).date()
    while day <= last:
        yield day
        day += DAY


def _both(day: date, minute: int, zone: ZoneInfo) -> Iterator[datetime]:
    """When a clock shows that, and when it shows it again on a night on which it is put back."""
    first = clock_moment(day, minute, zone)
    yield first
    yield first.astimezone(zone).replace(fold=1).astimezone(UTC)


def _changes(zone: ZoneInfo, begins: datetime, ends: datetime) -> Iterator[datetime]:
    """When clocks of a zone are put forward or back between two moments, to the minute."""
    at = begins.replace(minute=0, second=0, microsecond=0)
    while at < ends:
        if _offset(at, zone) != _offset(at + HOUR, zone):
            minute = at
            while _offset(minute, zone) == _offset(at, zone):
                minute += MINUTE
            yield minute
        at += HOUR


def _offset(at: datetime, zone: ZoneInfo) -> timedelta | None:
    return at.astimezone(zone).utcoffset()
