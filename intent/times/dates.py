"""Days as people name them: functions of today, and sets of weekdays."""

from collections.abc import Callable
from datetime import date, timedelta

Day = Callable[[date], date | str]
"""Today to the day that is meant, or the code of a problem."""

EVERY_DAY, WEEKDAYS, WEEKENDS = tuple(range(7)), (0, 1, 2, 3, 4), (5, 6)


def in_days(number: int) -> Day:
    """So many days from today."""
    return lambda today: today + timedelta(days=number)


def in_week(weeks: int, weekday: int) -> Day:
    """That day of this calendar week or of one to come."""
    return lambda today: today + timedelta(days=weekday - today.weekday() + 7 * weeks)


def coming(weekday: int) -> Day:
    """The nearest such day, today included."""
    return lambda today: today + timedelta(days=(weekday - today.weekday()) % 7)


def next_named(weekday: int) -> Day:
    """English "next Friday": the coming one, or the one of the week after; a problem unless both are the same."""

    def day(today: date) -> date | str:
        ahead = (weekday - today.weekday()) % 7 or 7
        in_next_week = weekday - today.weekday() + 7
        return today + timedelta(days=ahead) if ahead == in_next_week else "ambiguous_time"

    return day


def on_date(month: int, day: int, year: int | None = None) -> Day:
    """That date; without a year the first one that is not over."""

    def found(today: date) -> date | str:
        for candidate in [year] if year is not None else range(today.year, min(today.year + 9, 9999)):
            try:
                result = date(candidate, month, day)
            except ValueError:
                continue
            if year is not None or result >= today:
                return result
        return "impossible_date"

    return found


def on_day_of_month(day: int) -> Day:
    """The next day with that number."""

    def found(today: date) -> date | str:
        if not 1 <= day <= 31:
            return "impossible_date"
        return next(
            later for later in (today + timedelta(days=ahead) for ahead in range(63)) if later.day == day
        )

    return found


def several_days(_: date) -> str:
    """More days than one, each with its own hours: "this weekend"."""
    return "ambiguous_time"


def unclear_day(_: date) -> str:
    """Day and month, or month and day: 03/04."""
    return "ambiguous_time"


def days_between(first: int, last: int) -> tuple[int, ...]:
    """The days of the week from one to another, over Sunday if need be."""
    return tuple((first + ahead) % 7 for ahead in range((last - first) % 7 + 1))
