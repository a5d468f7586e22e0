"""Durations, and the pieces that windows are made of. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from math import isfinite
from zoneinfo import ZoneInfo

from intent.models import DAYS, Catalogue, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow, Window
from intent.tables import table
from intent.times import clock as zones
from intent.times.clock import EVERY_DAY, HALVES, PARTS, Clock, Day, coming, in_days, span, spelled
from intent.windows import DAY_MIN, clock_moment, last_minute, minute_of

LONGEST_S = 366 * 86400.0
"""A window longer than this has no end that anybody means."""

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_TABLE = table("intent.times", "words")
_UNITS: dict[str, list[str]] = _TABLE["spans"]
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names}
_NUMBERS: dict[str, float] = _TABLE["lengths"]
_HAN = {character: value for value, character in enumerate("零一二三四五六七八九十")} | {"两": 2, "半": 0.5}

ENGLISH_NUMBER = "|".join(sorted((word for word in _NUMBERS if word), key=len, reverse=True)).replace(" ", r"\s")
"""A pattern of the lengths that words say."""
_ENGLISH_UNIT = "|".join(sorted((name for name in _UNIT_OF if name.isascii()), key=len, reverse=True))
_HAN_UNIT = "|".join(sorted((name for name in _UNIT_OF if not name.isascii()), key=len, reverse=True))

_STOPS_FOR = re.compile(
    r"(?:paus\w*|stop\w*|stall\w*|interrupt\w*|block\w*|wait\w*|hang\w*|freez\w*|down|offline|than|only|last\w*)\s*$",
    re.ASCII,
)
_STRETCHES: str = _TABLE["stretches"]
_PATTERN = re.compile(
    _STRETCHES.replace("<number>", ENGLISH_NUMBER).replace("<unit>", _ENGLISH_UNIT)
    .replace("<han unit>", _HAN_UNIT),
    re.VERBOSE | re.ASCII,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Duration:
    """A half-open place and the seconds said there, or the code of a problem."""

    start: int
    end: int
    seconds: float | str


def find_durations(text: str) -> Iterator[Duration]:
    """Every stretch from now, in order."""
    for match in _PATTERN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "for" and not match["now"] and _STOPS_FOR.search(text, max(0, match.start() - 30), match.start()):
            continue
        if kind == "next" and not match["next_n"] and not _means_a_length(match):
            continue
        yield Duration(*match.span(), _problem(_seconds(match, kind), match["lead"]))


def _means_a_length(match: re.Match[str]) -> bool:
    """ "for the next day" is 24 hours, "the next day" and "next week" are dates."""
    return match["next_unit"] in {"hour", "minute"} or bool(match["lead"])


def _seconds(match: re.Match[str], kind: str) -> float | None:
    unit = _UNIT_OF[match[f"{kind}_unit"]]
    number = number_of(match[f"{kind}_n"] or "")
    halves = [match[f"{kind}_half"], match[f"{kind}_mid"] if kind in {"for", "han"} else None]
    if kind == "han" and not match["han_n"] and match["han_mid"]:
        number = 0.5
        halves = []
    is_half_a_day = unit == "d" and number == 0.5  # 半天 is no twelve hours
    if number == 0.5 and any(halves):  # 半半小时 is a slip
        number = None
    if not unit or number is None or is_half_a_day:
        return None
    return float(f"{(number + 0.5 * any(halves)) * _UNITS_S[unit]:.15g}")


def number_of(text: str) -> float | None:
    """How many a length in digits, English or Chinese says; None if it says none."""
    if text in _NUMBERS:
        return _NUMBERS[text]
    if text[:1].isdecimal():
        return float(text)
    if len(text) == 1:
        return _HAN.get(text)
    tens, _, ones = text.partition("十")
    known = len(tens) <= 1 and len(ones) <= 1 and "十" in text and "半" not in text
    return _HAN.get(tens, 1) * 10 + _HAN.get(ones, 0) if known else None


def _problem(seconds: float | None, lead: str | None) -> float | str:
    if seconds is None or lead == "within":  # a month has no length; "within the next hour" may be a deadline
        return "ambiguous_time"
    if seconds == 0:
        return "zero_length"
    return seconds if isfinite(seconds) and seconds <= LONGEST_S else "ambiguous_time"


AMBIGUOUS = zones.AMBIGUOUS

_NIGHT_ENDS = 6 * 60
"""Hours of "tonight" before this are of the next date, unless it is still night."""

Result = tuple[Window | None, str | None]
"""A window, or the code of a problem; both for a date that is over."""


@dataclass(slots=True)
class WindowParts:
    """What was said, each None or False if it was not."""

    days: tuple[int, ...] | None = None
    but_days: tuple[int, ...] = ()
    """Days taken away: "every day except Sunday"."""
    recurs: bool = False
    """The days were said to come again: "Fridays", "every Friday"."""
    daily: str | None = None
    day: Day | None = None
    last_day: Day | None = None
    """The last day, or that on which the hours end, if it was said."""
    whole_days: bool = False
    """Several days were said without hours between them."""
    last_weekday: int | None = None
    """The same of a day that recurs."""
    day_edge: str | None = None
    """``after``, ``before``, ``until`` or ``by``, said of the day."""
    part: str | None = None
    start: Clock | None = None
    end: Clock | None = None
    """Of a range; of a single time ``start`` alone."""
    edge: str | None = None
    """The same of the single time."""
    from_now: bool = False
    """It was said to begin now."""
    ends_next_day: bool = False
    day_came_first: bool = False
    outside: bool = False
    all_day: bool = False
    zone: str | None = None
    code: str | None = None

    def span(self, first: Day, last: Day) -> None:
        """Note whole days that follow each other."""
        self.day = first
        self.last_day = last
        self.whole_days = True

    @property
    def is_until(self) -> bool:
        """Whether it ends at the time said."""
        return self.end is None and "until" in {self.edge, self.day_edge}

    @property
    def has_hours(self) -> bool:
        """Whether hours were said."""
        return self.start is not None or self.part is not None or self.all_day

    @property
    def has_days(self) -> bool:
        """Whether it was said on which days."""
        return self.days is not None or self.day is not None or self.daily is not None


def window_of(parts: WindowParts, catalogue: Catalogue) -> Result:
    """The one window that the pieces can mean."""
    zone = catalogue.tz if parts.zone is None else zones.resolve(parts.zone, catalogue.tz)
    if zone in {zones.UNKNOWN, zones.AMBIGUOUS}:
        return None, zone
    if parts.code is not None or (parts.whole_days and parts.has_hours):  # hours of each day, or of the first and last
        return None, parts.code or AMBIGUOUS
    now = catalogue.now.astimezone(ZoneInfo(zone))
    if parts.is_until and parts.day is None:
        parts = replace(parts, day=_day_of_until(parts, now))
    is_open = parts.end is None and not parts.whole_days
    if is_open and parts.day_edge is not None and (parts.start is None or parts.day_edge != "until"):
        return None, AMBIGUOUS  # from, before or by a day: no end, or two
    hours = _hours(parts)
    if isinstance(hours, str):
        return None, hours
    if parts.day is None:
        return _recurring(parts, hours, now)
    return _dated(parts, parts.day, hours, now)


def _day_of_until(parts: WindowParts, now: datetime) -> Day | None:
    """ "Until Friday 6 pm" means the coming one, "until midnight" today's.

    "until 9 am" alone is said of every day.
    """
    if parts.days is not None and len(parts.days) == 1 and not parts.recurs:
        is_today = parts.days == (now.weekday(),)
        is_over = is_today and parts.start is not None and (parts.start.minutes or 0) <= minute_of(now)
        return in_days(7) if is_over else coming(parts.days[0])
    is_today = parts.from_now or (parts.start is not None and parts.start.minutes == DAY_MIN)
    return in_days(0) if is_today and not parts.has_days else None


# -- hours --------------------------------------------------------------------------------------------

Hours = tuple[int, int]


def _hours(parts: WindowParts) -> Hours | str:
    part = "evening" if parts.part == "tonight" else parts.part
    half = HALVES[part] if part is not None else "night" if parts.daily == "night" else None
    if parts.start is not None and parts.end is not None:
        return _range(parts, span(parts.start, parts.end, half))
    if parts.start is not None:
        return _single(parts, parts.start if half is None else parts.start.in_half(half))
    return PARTS[part] if part is not None else (0, DAY_MIN)


def _range(parts: WindowParts, hours: Hours | str) -> Hours | str:
    if isinstance(hours, str):
        return hours
    first, last = hours
    if parts.ends_next_day and first < last:
        return AMBIGUOUS  # more than a day
    if not parts.outside:
        return first, last
    if parts.days is not None or parts.day is not None:
        return AMBIGUOUS  # the other hours of these days, or all other times
    return (last % DAY_MIN, first or DAY_MIN) if last - first != DAY_MIN else "zero_length"


def _single(parts: WindowParts, clock: Clock) -> Hours | str:
    """After or before one time; a time alone is a moment, and how long from there is not said."""
    if clock.minutes is None:
        return "impossible_time"
    edge = parts.edge or parts.day_edge
    if edge == "until" and clock.minutes == DAY_MIN:
        return 0, DAY_MIN
    if edge not in {"after", "before", "until"} or clock.is_unsure or clock.minutes % DAY_MIN == 0:
        return AMBIGUOUS
    return (clock.minutes, DAY_MIN) if edge == "after" else (0, clock.minutes)


# -- windows ------------------------------------------------------------------------------------------


def _recurring(parts: WindowParts, hours: Hours, now: datetime) -> Result:
    days = {day for day in parts.days or EVERY_DAY if day not in parts.but_days}
    if not days:
        return None, "zero_length"
    if parts.last_weekday is not None and (min(days) + (hours[1] <= hours[0])) % 7 != parts.last_weekday:
        return _dated(parts, coming(min(days)), hours, now)[0], AMBIGUOUS  # each week, or the next one
    names = tuple(DAYS[day] for day in sorted(days))
    return RecurringWindow(names, spelled(hours[0]), spelled(hours[1]), _zone_of(now)), None


def _dated(parts: WindowParts, meant: Day, hours: Hours, now: datetime) -> Result:
    day = meant(now.date())
    if isinstance(day, str):
        return None, day
    if not date.min.year < day.year < date.max.year or (parts.days is not None and parts.days != (day.weekday(),)):
        return None, "impossible_date"
    is_today = day == now.date()
    if (parts.is_until and (is_today or not parts.day_came_first)) or (parts.edge == "before" and is_today):
        return _until(day, hours[1], now)
    if parts.edge == "before" or parts.is_until:
        return None, AMBIGUOUS  # from now, or from the midnight before
    first, last = hours
    if parts.part == "tonight" and parts.start is not None and first < _NIGHT_ENDS <= minute_of(now):
        day += timedelta(days=1)
    window = DatedWindow(day.isoformat(), spelled(first), spelled(last), _zone_of(now))
    ends = clock_moment(day, last_minute(first, last), now.tzinfo)
    if end := _last_day(parts, day, now.date()):
        if isinstance(end, str):
            return None, end
        if end != day + timedelta(days=last <= first):
            window = DatesWindow(day.isoformat(), spelled(first), spelled(last), _zone_of(now), end.isoformat())
            ends = clock_moment(end, last, now.tzinfo)
    return window, "past_date" if ends <= now else None


def _last_day(parts: WindowParts, first: date, today: date) -> date | str | None:
    """On which day it ends, or the code of a problem; None where that was not said."""
    if parts.last_weekday is not None:
        return first + timedelta(days=(parts.last_weekday - first.weekday()) % 7)
    end = parts.last_day(today) if parts.last_day is not None else None
    if isinstance(end, str) or end is None:
        return end
    return end if timedelta() <= end - first <= timedelta(seconds=LONGEST_S) else AMBIGUOUS


def _until(day: date, last: int, now: datetime) -> Result:
    """From now to a time: hours of today, else so many seconds."""
    seconds = round((clock_moment(day, last, now.tzinfo) - now.astimezone(UTC)).total_seconds())
    if seconds <= 0:
        return None, "past_date"
    if day == now.date():
        return DatedWindow(day.isoformat(), spelled(minute_of(now)), spelled(last), _zone_of(now)), None
    return (FromNowWindow(float(seconds)), None) if seconds <= LONGEST_S else (None, "ambiguous_time")


def _zone_of(now: datetime) -> str:
    assert isinstance(now.tzinfo, ZoneInfo)
    return now.tzinfo.key
