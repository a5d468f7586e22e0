"""Words for times, and a text as time tokens. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from intent.tables import table
from intent.times import clock as zones
from intent.times.clock import (
    HALVES,
    Clock,
    days_between,
    in_days,
    in_week,
    on_date,
    on_day_of_month,
    several_days,
    time_of,
    unclear_day,
)


class Mark(Enum):
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


def _meaning(mark: Mark, said: Any) -> Any:
    """What a row of the table says that its words mean."""
    if mark in {Mark.CLOCK, Mark.REST}:
        return Clock(said)
    if mark is Mark.DATE:
        return in_days(said), None
    return tuple(said) if isinstance(said, list) else said


WORDS: dict[str, tuple[Mark, Any]] = {
    word: (Mark[mark.upper()], word if value is None else _meaning(Mark[mark.upper()], value))
    for mark, value, words in _TABLE["words"]
    for word in words.split()
} | {
    word: (Mark.DATE, (several_days if days is None else in_days(days), part))
    for days, part, words in _TABLE["dates"]
    for word in words.split()
}
"""A word to what it does and means, common misspellings too."""

PHRASES: tuple[tuple[str, Mark, Any], ...] = tuple(
    (phrase, Mark[mark.upper()], _meaning(Mark[mark.upper()], value))
    for phrase, mark, value in _TABLE["phrases"]
)
"""Regular expressions of words that are read together."""

MONTHS = {name: month for month, names in enumerate(_TABLE["months"], 1) for name in names.split()}
NUMBERS: dict[str, int] = {word: value for value, word in enumerate(_TABLE["counts"])}
_HAN = {word: value for value, word in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}


def numeral(said: str) -> int:
    """A whole number in digits, English words or Chinese numerals below 100; -1 if it is none."""
    if said.isdecimal() and said.isascii():
        return int(said[:6])
    if said in NUMBERS:
        return NUMBERS[said]
    tens, ten, ones = said.partition("十")
    if len(tens) > 1 or len(ones) > 1 or not all(part in _HAN for part in tens + ones):
        return -1
    return (_HAN.get(tens, 1) * 10 if ten else 0) + _HAN.get(ones if ten else said, 0)


@dataclass(frozen=True, slots=True)
class Atom:
    """A word of time with its half-open place."""

    mark: Mark
    value: Any
    start: int
    end: int


_PATTERNS: dict[str, str] = _TABLE["patterns"]
_ANCHORS = {
    word
    for word, (mark, _) in WORDS.items()
    if mark in {Mark.CLOCK, Mark.DAYS, Mark.DAILY, Mark.DATE, Mark.PART, Mark.ALL_DAY}
} | set(MONTHS)
_WEEK = _PATTERNS["week"]
_NUMERAL = _PATTERNS["numeral"]
_DAY_PART = "|".join(word for word, (mark, _) in WORDS.items() if mark is Mark.PART and not word.isascii())
_FILLED = {
    "day_part": _DAY_PART,
    "chinese": "|".join(sorted((word for word in WORDS if not word.isascii()), key=len, reverse=True)),
    "month": "|".join(sorted(set(MONTHS) - {"may"}, key=len, reverse=True)),
    "zone": zones.PATTERN,
    "phrases": "|".join(phrase for phrase, _, _ in PHRASES),
    "anchors": "|".join(word for word in _ANCHORS if not any(other in word for other in _ANCHORS - {word})),
}


def _pattern(name: str) -> str:
    """A pattern of the table with what its names stand for."""
    return re.sub(
        r"(?<!P)<(\w+)>", lambda match: _FILLED.get(match[1]) or _pattern(match[1]), _PATTERNS[name]
    )


_ATOM = re.compile(_pattern("atom"), re.VERBOSE | re.ASCII)
_HINT = re.compile(_pattern("hint"), re.VERBOSE | re.ASCII)


def may_speak_of_time(text: str) -> bool:
    """Whether it is worth reading word by word; most wishes name no time."""
    return _HINT.search(text) is not None


def scan(text: str) -> Iterator[Atom]:
    """Every word, in order; one that has nothing to do with time is a ``WORD``."""
    for match in _ATOM.finditer(text):
        group = match.lastgroup or "other"
        mark, value = _READERS[group](match[0])
        yield Atom(mark, value, *match.span())


Read = tuple[Mark, Any]


def _word(said: str) -> Read:
    known = WORDS.get(said)
    if known is not None:
        return known
    if said in NUMBERS:
        return Mark.NUMBER, Clock(NUMBERS[said] * 60, "bare")
    if said in zones.ABBREVIATIONS or said in zones.SEVERAL_PLACES:
        return Mark.ZONE, said
    return Mark.WORD, said


def _phrase(said: str) -> Read:
    return next((mark, value) for phrase, mark, value in PHRASES if re.fullmatch(phrase, said, re.ASCII))


def _numeric_date(said: str) -> Read:
    first, second, third = (int(part) for part in re.split("[-/.]", said.removesuffix("t")))
    if first > 31:
        return Mark.DATE, (on_date(second, third, first), None)
    if first == second or second > 12:
        return Mark.DATE, (on_date(first, second, third), None)
    if first > 12:
        return Mark.DATE, (on_date(second, first, third), None)
    return Mark.DATE, (unclear_day, None)


def _chinese_date(said: str) -> Read:
    *year, month, day = re.split("[年月]", "".join(said.split()).rstrip("日号"))
    return Mark.DATE, (on_date(numeral(month), numeral(day), int(year[0]) if year else None), None)


def _day_index(character: str) -> int:
    return "一二三四五六日天".index(character) % 7 if character != "天" else 6


def _chinese_week(said: str) -> Read:
    weeks = 2 if said.startswith("下下") else int(said.startswith("下"))
    return Mark.DATE, (in_week(weeks, _day_index(said[-1])), None)


def _chinese_days(said: str) -> Read:
    days: list[int] = []
    running = False
    for character in re.sub(f"{_WEEK}|\\s", "", said):
        if character in "到至~-":
            running = True
        elif character in "一二三四五六日天":
            day = _day_index(character)
            days += days_between(days[-1], day) if running else (day,)
            running = False
    return Mark.DAYS, tuple(days)


def _clock12(said: str) -> Read:
    hour, *minute = (int(part) for part in re.findall(r"\d+", said))
    half = "pm" if "p" in said else "am"
    if hour > 12 or (hour == 0 and half == "pm") or (minute and minute[0] > 59):
        return Mark.CLOCK, Clock(None)
    return Mark.CLOCK, Clock((hour % 12 + 12 * (half == "pm")) * 60 + sum(minute), "half")


def _clock24(said: str) -> Read:
    hour, minute = (int(part) for part in said.split(":")[:2])
    if hour > 31:  # 70:30 is a share
        return Mark.WORD, said
    return Mark.CLOCK, time_of(hour, minute, "sure" if said[0] == "0" else "digits")


_CHINESE_CLOCK = re.compile(
    rf"(?P<part>{_DAY_PART}|[早晚])?的?\s?(?P<hour>{_NUMERAL})\s?(?:点钟?|时|:|$)(?P<rest>.*)", re.ASCII
)
_QUARTERS = {"": 0, "整": 0, "半": 30, "一刻": 15, "三刻": 45}


def _chinese_clock(said: str) -> Read:
    match = _CHINESE_CLOCK.fullmatch(said)
    assert match is not None
    rest = match["rest"].removesuffix("分")
    minute = _QUARTERS[rest] if rest in _QUARTERS else numeral(rest)
    hour = numeral(match["hour"])
    digits = match["hour"].isdecimal()
    clock = time_of(hour, minute, "sure" if said[0] == "0" else "digits" if digits else "word")
    return Mark.CLOCK, _in_part(clock, match["part"]) if match["part"] else clock


def _in_part(clock: Clock, said: str) -> Clock:
    part = {"早": "morning", "晚": "evening"}.get(said) or WORDS[said][1]
    if clock.minutes is None:
        return clock
    if clock.minutes == 720 and part == "morning":
        return Clock(720)
    if part in {"evening", "night"} and clock.minutes in {720, 1440}:
        return Clock(1440)  # 晚上12点
    if part in {"morning", "small hours"} and clock.minutes >= 780:
        return Clock(None)
    half = "pm" if said in {"傍晚", "晚"} else HALVES[part]
    if said == "晚" and clock.minutes < 300:
        half = "pm"
    return clock.in_half(half) if clock.open else Clock(clock.minutes, "half")


def _oclock(said: str) -> Read:
    hour = numeral(re.split(r"[\s']|o'?\s?clock", said)[0])
    return (Mark.CLOCK, time_of(hour, 0, "word")) if hour >= 0 else (Mark.WORD, said)


def _fourdigits(said: str) -> Read:
    return Mark.CLOCK, time_of(int(said[:2]), int(said[2:4]), "sure")


def _number(said: str) -> Read:
    if not said.isdecimal() or not said.isascii() or len(said) > 4:
        return Mark.WORD, said
    if len(said) > 2 or int(said) > 31:
        return Mark.NUMBER, int(said)
    sure = said[0] == "0" or int(said) > 12
    return Mark.NUMBER, Clock(int(said) * 60, "sure" if sure else "bare")


def _numeral_word(said: str) -> Read:
    value = numeral(said)
    return (Mark.NUMBER, Clock(value * 60, "bare")) if value >= 0 else (Mark.WORD, said)


def _short_date(said: str) -> Read:
    first, second = (int(part) for part in said.split("/"))
    if first == second or max(first, second) > 12:
        return Mark.DATE, (on_date(min(first, second), max(first, second)), None)
    return Mark.DATE, (unclear_day, None)


def _month_day(said: str) -> Read:
    month = next(MONTHS[word] for word in re.findall("[a-z]+", said) if word in MONTHS)
    day, *year = (int(number) for number in re.findall(r"\d+", said))
    return Mark.DATE, (on_date(month, day, year[0] if year else None), None)


def _day_of_month(said: str) -> Read:
    return Mark.DATE, (on_day_of_month(int(re.findall(r"\d+", said)[0])), None)


_READERS: dict[str, Callable[[str], Read]] = {
    "shortdate": _short_date,
    "several": lambda _: (Mark.DATE, (several_days, None)),
    "zhseveral": lambda _: (Mark.DATE, (several_days, None)),
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
    "zone": lambda said: (Mark.ZONE, said),
    "phrase": _phrase,
    "code": lambda said: (Mark.WORD, said),
    "word": _word,
    "zhword": lambda said: WORDS[said],
    "numeral": _numeral_word,
    "other": lambda said: WORDS.get(said, (Mark.WORD, said)),
}
