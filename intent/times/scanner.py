"""Words for times, and a text as time tokens. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from intent.tables import expanded, table
from intent.times import clock as zones
from intent.times.clock import (
    HALVES,
    Clock,
    Day,
    Days,
    days_between,
    in_days,
    in_week,
    on_date,
    on_day_of_month,
    several_days,
    time_of,
    unclear_day,
)


class TimeRole(Enum):
    """What a word does in the saying of a time."""

    CLOCK = auto()
    NUMBER = auto()
    """A number that may be an hour (its value is a Clock), or not (an int)."""
    DAYS = auto()
    DAILY = auto()
    EVERY = auto()
    DATE = auto()
    """A day, and the part of it if the word says one."""
    PART = auto()
    ZONE = auto()
    TO = auto()
    LEAD = auto()
    """Stands before a time: from, on, outside."""
    BINDER = auto()
    THIS = auto()
    NEXT_DAY = auto()
    ALL_DAY = auto()
    REST = auto()
    """From now to a time of today."""
    EDGE = auto()
    """Stands behind a time and says which side of it is meant."""
    TRAILER = auto()
    SPAN = auto()
    COMMA = auto()
    WORD = auto()
    """None of these."""


_TABLE = table("intent.times", "words")


def _meaning(mark: TimeRole, value: Any) -> Any:
    """What a row of the table says that its words mean."""
    if mark in {TimeRole.CLOCK, TimeRole.REST}:
        return Clock(value)
    if mark is TimeRole.DATE:
        return in_days(value), None
    return tuple(value) if isinstance(value, list) else value


def _day(days: Any) -> Day | Days:
    """What a row means: so many days from today, from one weekday of a week to another, or several."""
    if isinstance(days, list):
        first, last = days
        return Days(in_week(*first), in_week(*last))
    return several_days if days is None else in_days(days)


WORDS: dict[str, tuple[TimeRole, Any]] = {
    word: (TimeRole[mark.upper()], word if value is None else _meaning(TimeRole[mark.upper()], value))
    for mark, value, words in _TABLE["words"]
    for word in words.split()
} | {word: (TimeRole.DATE, (_day(days), part)) for days, part, words in _TABLE["dates"] for word in words.split()}
"""A word to what it does and means, common misspellings too."""

PHRASES: tuple[tuple[str, TimeRole, Any], ...] = tuple(
    (phrase, TimeRole[mark.upper()], _meaning(TimeRole[mark.upper()], value))
    for phrase, mark, value in _TABLE["phrases"]
)
"""Regular expressions of words that are read together."""

MONTHS = {name: month for month, names in enumerate(_TABLE["months"], 1) for name in names.split()}
NUMBERS: dict[str, int] = {word: value for value, word in enumerate(_TABLE["counts"])}
_HAN = {word: value for value, word in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}


def numeral(text: str) -> int:
    """A whole number in digits, English words or Chinese numerals below 100; -1 if it is none."""
    if text.isdecimal() and text.isascii():
        return int(text[:6])
    if text in NUMBERS:
        return NUMBERS[text]
    tens, ten, ones = text.partition("十")
    if len(tens) > 1 or len(ones) > 1 or not all(part in _HAN for part in tens + ones):
        return -1
    return (_HAN.get(tens, 1) * 10 if ten else 0) + _HAN.get(ones if ten else text, 0)


@dataclass(frozen=True, slots=True)
class TimeToken:
    """A word of time with its half-open place."""

    mark: TimeRole
    value: Any
    start: int
    end: int


_PATTERNS: dict[str, str] = _TABLE["patterns"]
_ANCHORS = {
    word
    for word, (mark, _) in WORDS.items()
    if mark in {TimeRole.CLOCK, TimeRole.DAYS, TimeRole.DAILY, TimeRole.DATE, TimeRole.PART, TimeRole.ALL_DAY}
} | set(MONTHS)
_WEEK = _PATTERNS["week"]
_NUMERAL = _PATTERNS["numeral"]
_DAY_PART = "|".join(word for word, (mark, _) in WORDS.items() if mark is TimeRole.PART and not word.isascii())
_FILLED = {
    "day_part": _DAY_PART,
    "chinese": "|".join(sorted((word for word in WORDS if not word.isascii()), key=len, reverse=True)),
    "month": "|".join(sorted(set(MONTHS) - {"may"}, key=len, reverse=True)),
    "zone": zones.PATTERN,
    "phrases": "|".join(phrase for phrase, _, _ in PHRASES),
    "anchors": "|".join(word for word in _ANCHORS if not any(other in word for other in _ANCHORS - {word})),
}
_ATOM = re.compile(expanded(_PATTERNS["atom"], _PATTERNS | _FILLED), re.VERBOSE | re.ASCII)
_HINT = re.compile(expanded(_PATTERNS["hint"], _PATTERNS | _FILLED), re.VERBOSE | re.ASCII)


def may_speak_of_time(text: str) -> bool:
    """Whether it is worth reading word by word; most wishes name no time."""
    return _HINT.search(text) is not None


def scan(text: str) -> Iterator[TimeToken]:
    """Every word, in order; one that has nothing to do with time is a ``WORD``."""
    for match in _ATOM.finditer(text):
        group = match.lastgroup or "other"
        mark, value = _READERS[group](match[0])
        yield TimeToken(mark, value, *match.span())


Read = tuple[TimeRole, Any]


def _word(text: str) -> Read:
    known = WORDS.get(text)
    if known is not None:
        return known
    if text in NUMBERS:
        return TimeRole.NUMBER, Clock(NUMBERS[text] * 60, "bare")
    if text in zones.ABBREVIATIONS or text in zones.SEVERAL_PLACES:
        return TimeRole.ZONE, text
    return TimeRole.WORD, text


def _phrase(text: str) -> Read:
    return next((mark, value) for phrase, mark, value in PHRASES if re.fullmatch(phrase, text, re.ASCII))


def _numeric_date(text: str) -> Read:
    first, second, third = (int(part) for part in re.split("[-/.]", text.removesuffix("t")))
    if first > 31:
        return TimeRole.DATE, (on_date(second, third, first), None)
    if first == second or second > 12:
        return TimeRole.DATE, (on_date(first, second, third), None)
    if first > 12:
        return TimeRole.DATE, (on_date(second, first, third), None)
    return TimeRole.DATE, (unclear_day, None)


def _chinese_date(text: str) -> Read:
    *year, month, day = re.split("[年月]", "".join(text.split()).rstrip("日号"))
    return TimeRole.DATE, (on_date(numeral(month), numeral(day), int(year[0]) if year else None), None)


def _day_index(character: str) -> int:
    return "一二三四五六日天".index(character) % 7 if character != "天" else 6


def _chinese_week(text: str) -> Read:
    weeks = 2 if text.startswith("下下") else int(text.startswith("下"))
    return TimeRole.DATE, (in_week(weeks, _day_index(text[-1])), None)


def _chinese_days(text: str) -> Read:
    days: list[int] = []
    running = False
    for character in re.sub(f"{_WEEK}|\\s", "", text):
        if character in "到至~-":
            running = True
        elif character in "一二三四五六日天":
            day = _day_index(character)
            days += days_between(days[-1], day) if running else (day,)
            running = False
    return TimeRole.DAYS, tuple(days)


def _clock12(text: str) -> Read:
    hour, *minute = (int(part) for part in re.findall(r"\d+", text))
    half = "pm" if "p" in text else "am"
    if hour > 12 or (hour == 0 and half == "pm") or (minute and minute[0] > 59):
        return TimeRole.CLOCK, Clock(None)
    return TimeRole.CLOCK, Clock((hour % 12 + 12 * (half == "pm")) * 60 + sum(minute), "half")


def _clock24(text: str) -> Read:
    hour, minute = (int(part) for part in text.split(":")[:2])
    if hour > 31:  # 70:30 is a share
        return TimeRole.WORD, text
    return TimeRole.CLOCK, time_of(hour, minute, "sure" if text[0] == "0" else "digits")


_CHINESE_CLOCK = re.compile(
    rf"(?P<part>{_DAY_PART}|[早晚])?的?\s?(?P<hour>{_NUMERAL})\s?(?:点钟?|时|:|$)(?P<rest>.*)", re.ASCII
)
_QUARTERS = {"": 0, "整": 0, "半": 30, "一刻": 15, "三刻": 45}


def _chinese_clock(text: str) -> Read:
    match = _CHINESE_CLOCK.fullmatch(text)
    assert match is not None
    rest = match["rest"].removesuffix("分")
    minute = _QUARTERS[rest] if rest in _QUARTERS else numeral(rest)
    hour = numeral(match["hour"])
    digits = match["hour"].isdecimal()
    clock = time_of(hour, minute, "sure" if text[0] == "0" else "digits" if digits else "word")
    return TimeRole.CLOCK, _in_part(clock, match["part"]) if match["part"] else clock


def _in_part(clock: Clock, text: str) -> Clock:
    part = {"早": "morning", "晚": "evening"}.get(text) or WORDS[text][1]
    if clock.minutes is None:
        return clock
    if clock.minutes == 720 and part == "morning":
        return Clock(720)
    if part in {"evening", "night"} and clock.minutes in {720, 1440}:
        return Clock(1440)  # 晚上12点
    if part in {"morning", "small hours"} and clock.minutes >= 780:
        return Clock(None)
    half = "pm" if text in {"傍晚", "晚"} else HALVES[part]
    if text == "晚" and clock.minutes < 300:
        half = "pm"
    return clock.in_half(half) if clock.open else Clock(clock.minutes, "half")


def _oclock(text: str) -> Read:
    hour = numeral(re.split(r"[\s']|o'?\s?clock", text)[0])
    return (TimeRole.CLOCK, time_of(hour, 0, "word")) if hour >= 0 else (TimeRole.WORD, text)


def _fourdigits(text: str) -> Read:
    return TimeRole.CLOCK, time_of(int(text[:2]), int(text[2:4]), "sure")


def _number(text: str) -> Read:
    if not text.isdecimal() or not text.isascii() or len(text) > 4:
        return TimeRole.WORD, text
    if len(text) > 2 or int(text) > 31:
        return TimeRole.NUMBER, int(text)
    sure = text[0] == "0" or int(text) > 12
    return TimeRole.NUMBER, Clock(int(text) * 60, "sure" if sure else "bare")


def _numeral_word(text: str) -> Read:
    value = numeral(text)
    return (TimeRole.NUMBER, Clock(value * 60, "bare")) if value >= 0 else (TimeRole.WORD, text)


def _short_date(text: str) -> Read:
    first, second = (int(part) for part in text.split("/"))
    if first == second or max(first, second) > 12:
        return TimeRole.DATE, (on_date(min(first, second), max(first, second)), None)
    return TimeRole.DATE, (unclear_day, None)


def _month_day(text: str) -> Read:
    month = next(MONTHS[word] for word in re.findall("[a-z]+", text) if word in MONTHS)
    day, *year = (int(number) for number in re.findall(r"\d+", text))
    return TimeRole.DATE, (on_date(month, day, year[0] if year else None), None)


def _several(text: str) -> Read:
    month = next(MONTHS[word] for word in re.findall("[a-z]+", text) if word in MONTHS)
    first, last, *year = (int(number) for number in re.findall(r"\d+", text))
    in_year = year[0] if year else None
    return TimeRole.DATE, (Days(on_date(month, first, in_year), on_date(month, last, in_year)), None)


def _chinese_several(text: str) -> Read:
    month, first, *other, last = (
        numeral(number) for number in re.findall(rf"{_NUMERAL}(?=[月日号]|\s?[到至~-])", text)
    )
    return TimeRole.DATE, (Days(on_date(month, first), on_date(other[0] if other else month, last)), None)


def _day_of_month(text: str) -> Read:
    return TimeRole.DATE, (on_day_of_month(int(re.findall(r"\d+", text)[0])), None)


_READERS: dict[str, Callable[[str], Read]] = {
    "shortdate": _short_date,
    "several": _several,
    "zhseveral": _chinese_several,
    "monthday": _month_day,
    "dayofmonth": _day_of_month,
    "date": _numeric_date,
    "zhdate": _chinese_date,
    "zhweek": _chinese_week,
    "zhdays": _chinese_days,
    "clock12": _clock12,
    "zhclock": _chinese_clock,
    "zhcolon": _chinese_clock,
    "idiom": _chinese_clock,
    "clock24": _clock24,
    "oclock": _oclock,
    "fourdigits": _fourdigits,
    "number": _number,
    "zone": lambda word: (TimeRole.ZONE, word),
    "phrase": _phrase,
    "code": lambda word: (TimeRole.WORD, word),
    "word": _word,
    "zhword": lambda word: WORDS[word],
    "numeral": _numeral_word,
    "other": lambda word: WORDS.get(word, (TimeRole.WORD, word)),
}
