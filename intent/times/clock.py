"""Clock times, dates and time zones, read and spoken. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

from intent.tables import table

_WORDS = table("intent.times", "words")
PARTS: dict[str, tuple[int, int]] = {name: (start, end) for name, (start, end) in _WORDS["parts"].items()}
"""The hours of a part of the day, in minutes from midnight."""
HALVES: dict[str, str] = _WORDS["halves"]
"""Which half of the day the hours in a part lie in."""

Said = Literal["bare", "word", "digits", "half", "sure"]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day as said: ``minutes`` from midnight, and how sure that is of the two halves of the day.

    ``bare`` is a number alone, ``word`` one that marks an hour (nine o'clock, 九点): up to 12 both could be meant twelve
    hours later. ``digits`` (9:00, 9点) are the 24 hours unless the words around speak of a half; ``half`` said which half
    (9 pm, 晚上9点); ``sure`` cannot be anything else.
    """

    minutes: int | None
    said: Said = "sure"

    @property
    def open(self) -> bool:
        """Whether twelve hours later could be meant."""
        return self.minutes is not None and self.said in {"bare", "word", "digits"} and 60 <= self.minutes < 780

    @property
    def is_unsure(self) -> bool:
        """Whether it has to be asked which half of the day is meant, if nothing around says so."""
        return self.open and self.said != "digits"

    def in_half(self, half: str) -> "Clock":
        """The same hour in this half of the day; ``night`` begins in the evening and ends in the morning."""
        if not self.open or self.minutes is None:
            return self
        hour, minute = divmod(self.minutes, 60)
        if half == "noon":
            half = "am" if hour in {10, 11} else "pm"
        if half == "day":
            half = "am" if 7 <= hour < 12 else "pm"
        if half == "night" and hour == 12:
            return Clock(1440 + minute if minute == 0 else minute, "half")
        if half == "night":
            half = "pm" if 6 <= hour < 12 else "am"
        return Clock((hour % 12 + 12 * (half == "pm")) * 60 + minute, "half")


def time_of(hour: int, minute: int, certainty: Said) -> Clock:
    """A clock time of the 24 hours; without minutes if there is none such."""
    if not 0 <= hour <= 24 or not 0 <= minute <= 59 or (hour == 24 and minute):
        return Clock(None)
    return Clock(hour * 60 + minute, certainty)


def span(start: Clock, end: Clock, half: str | None = None) -> tuple[int, int] | str:
    """Minutes from midnight at which a range begins and ends, or the code of a problem.

    ``half`` is that of the part of the day spoken of, if any. What is left open on one side follows from the other; "9 to
    5" is a working day; 24 hours are taken as such; whatever could still be meant twelve hours apart is a problem.
    """
    if start.minutes is None or end.minutes is None:
        return "impossible_time"
    if half is not None:
        start = start.in_half(half)
    first, last = _settled(start, end)
    if first is None or last is None:
        return "ambiguous_time"
    first %= 1440
    if last % 1440 == 0 and (first or last):
        last = 1440
    return "zero_length" if first == last else (first, last)


def _settled(start: Clock, end: Clock) -> tuple[int | None, int | None]:
    first = start.minutes or 0
    last = end.minutes or 0
    if start.is_unsure and end.is_unsure:
        return _both_open(first, last)
    if start.said == "half" and end.open:
        return first, _after(first, last)
    if end.said == "half" and start.is_unsure:
        return _before(last, first), last
    if end.is_unsure:
        return first, _after(first, last)
    to_midnight = start.is_unsure and last % 1440 == 0  # "6 to midnight"
    round_the_clock = (
        start.said == end.said == "digits" and start.open and end.open and last < min(first, 600)
    )  # "9:00 to 5:00"
    return (None, None) if to_midnight or round_the_clock else (first, last)


def _after(first: int, last: int) -> int:
    """The end, of the two it can be, that comes sooner after the start."""
    return min((last % 720, last % 720 + 720), key=lambda time: (time - first - 1) % 1440)


def _before(last: int, first: int) -> int:
    """The start, of the two it can be, that comes closer before the end."""
    return min((first % 720, first % 720 + 720), key=lambda time: (last - time - 1) % 1440)


def _both_open(first: int, last: int) -> tuple[int | None, int | None]:
    if first < last and first >= 420:
        return first, last
    if last < first and 420 <= first < 600:
        return first, last + 720
    return None, None


def spelled(minutes: int) -> str:
    """``HH:MM``; the end of the day is 24:00."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


Day = Callable[[date], date | str]
"""Today to the day that is meant, or the code of a problem."""

EVERY_DAY = tuple(range(7))
WEEKDAYS = (0, 1, 2, 3, 4)
WEEKENDS = (5, 6)


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
    """English "next Friday": the coming one, or the one of the week after.

    A problem unless both are the same.
    """

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
        return next(later for later in (today + timedelta(days=ahead) for ahead in range(63)) if later.day == day)

    return found


def several_days(_: date) -> str:
    """More days than one, which could be several: "next weekend"."""
    return "ambiguous_time"


@dataclass(frozen=True, slots=True)
class Days:
    """Days that follow each other: "this weekend", "20-27 December"."""

    first: Day
    last: Day


def unclear_day(_: date) -> str:
    """Day and month, or month and day: 03/04."""
    return "ambiguous_time"


def days_between(first: int, last: int) -> tuple[int, ...]:
    """The days of the week from one to another, over Sunday if need be."""
    return tuple((first + ahead) % 7 for ahead in range((last - first) % 7 + 1))


UNKNOWN = "unknown_zone"
AMBIGUOUS = "ambiguous_time"

ABBREVIATIONS: dict[str, str] = _WORDS["abbreviations"]
"""Standard and summer abbreviations of one place alike: the place keeps its own calendar."""

SEVERAL_PLACES = frozenset({"ist", "cst", "ast", "sst"})
"""Used for places hours apart: India, Israel and Ireland; Chicago and China; ..."""

PLACES: dict[str, str] = _WORDS["places"]
"""What may stand before "time" or 时间."""

HERE = frozenset({"local", "our", "server", "本地", "当地", "服务器"})
"""Before "time": the deployment's own zone."""

_PLACE = "|".join(sorted([*PLACES, *HERE], key=len, reverse=True))
PATTERN = rf"""
    (?:utc|gmt)\s?[+-]\s?\d{{1,2}}(?::?\d{{2}})?(?!\d)
  | (?<![\w/])(?!(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*/)[a-z]+(?:/[a-z][a-z_-]*){{0,1}}/[a-z][a-z_-]*(?:[+-]?\d{{1,2}})?(?![\w/])
  | (?:{_PLACE.replace(" ", "[ ]")})\s?(?:time\b|时间)
"""
"""Verbose regular expression of the zones that are plain without looking round."""

_OFFSET = re.compile(r"(?:utc|gmt)\s?([+-])\s?(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_TIME = re.compile(r"\s?(?:time|时间)$", re.ASCII)
_LOWER = {"of", "es", "au"}
_ODD = {
    name.lower(): name
    for name in (
        "Antarctica/McMurdo", "Antarctica/DumontDUrville", "America/Argentina/ComodRivadavia", "America/Knox_IN",
        "Brazil/DeNoronha", "Chile/EasterIsland", "Mexico/BajaNorte", "Mexico/BajaSur", "GB-Eire",
    )
}  # fmt: skip


def resolve(text: str, here: str) -> str:
    """The IANA name of a zone said in lower case, ``here`` being the deployment's.

    Else UNKNOWN or AMBIGUOUS.
    """
    if text == here.lower():
        return here
    if text in SEVERAL_PLACES:
        return AMBIGUOUS
    if text in ABBREVIATIONS:
        return ABBREVIATIONS[text]
    place, is_place = _TIME.subn("", text)
    if is_place and place in HERE:
        return here
    if is_place and place in PLACES:
        return PLACES[place]
    return _iana(text) or _offset(text) or UNKNOWN


def _offset(text: str) -> str | None:
    """``utc+8`` is ``Etc/GMT-8``: POSIX counts westwards. Parts of an hour have no such name."""
    match = _OFFSET.fullmatch(text)
    if match is None or match[3] not in {None, "00"}:
        return None
    hours = int(match[1] + match[2])
    if hours == 0:
        return "UTC"
    return f"Etc/GMT{-hours:+d}" if -12 <= hours <= 14 else None


def _iana(text: str) -> str | None:
    """The name in its own case, tried in the few ways such names are written.

    Listing all zones would read 600 files.
    """
    area, slash, place = text.partition("/")
    titled = re.sub(r"[a-z]+", lambda word: word[0] if word[0] in _LOWER else word[0].capitalize(), text)
    upper = area.upper() + slash + titled[len(area) + 1 :]
    tries = (_ODD.get(text, titled), text.upper(), upper, area.capitalize() + slash + place.upper())
    return next((name for name in tries if exists(name)), None)


def exists(name: str) -> bool:
    """Whether this is the name of an IANA zone."""
    try:
        return ZoneInfo(name).key == name
    except (KeyError, ValueError, OSError):  # unknown, not a name at all, a folder of zones
        return False
