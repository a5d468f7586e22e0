"""Stretches of time that begin now: "for the next two hours", 接下来两小时.

Other durations ("every 2 hours", "within 2 minutes", "pause for 50 ms") belong to other wishes and are left alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite

LONGEST_S = 366 * 86400.0
"""A window longer than this has no end that anybody means."""

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds", "秒", "秒钟"),
    "m": ("m", "min", "mins", "minute", "minutes", "分钟", "分"),
    "h": ("h", "hr", "hrs", "hour", "hours", "小时", "钟头", "个小时"),
    "d": ("d", "day", "days", "天", "日"),
    "w": ("w", "week", "weeks", "周", "星期", "礼拜"),
    "": ("month", "months", "year", "years", "quarter", "quarters", "个月", "月", "年"),
}
_UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names}
_NUMBERS = {
    word: float(value)
    for value, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
} | {
    "": 1.0, "a": 1.0, "an": 1.0, "half": 0.5, "half a": 0.5, "half an": 0.5, "fifteen": 15.0, "twenty": 20.0, "thirty": 30.0,
    "forty": 40.0, "forty-five": 45.0, "forty five": 45.0, "sixty": 60.0, "ninety": 90.0, "twenty-four": 24.0,
    "twenty four": 24.0, "forty-eight": 48.0,
}  # fmt: skip
_HAN = {character: value for value, character in enumerate("零一二三四五六七八九十")} | {"两": 2, "半": 0.5}

_ENGLISH_NUMBER = "|".join(sorted((word for word in _NUMBERS if word), key=len, reverse=True)).replace(
    " ", r"\s"
)
_ENGLISH_UNIT = "|".join(sorted((name for name in _UNIT_OF if name.isascii()), key=len, reverse=True))
_HAN_UNIT = "|".join(sorted((name for name in _UNIT_OF if not name.isascii()), key=len, reverse=True))

_AFTER_FOR = r"(?P<unit>minutes?|mins?|hours?|hrs?|h|days?|d|weeks?|months?|years?)\b"
_ANOTHERS = (
    r"(?!\s*(?:per\b|an?\b|each\b|every\b|/|at\s(?:most|a\stime)|or\s(?:less|more)|in\sa\srow|tops\b|max))"
)
_STOPS_FOR = re.compile(
    r"(?:paus\w*|stop\w*|stall\w*|interrupt\w*|block\w*|wait\w*|hang\w*|freez\w*|down|offline|than|only|last\w*)\s*$",
    re.ASCII,
)
_PATTERN = re.compile(
    rf"""
    (?P<next>(?:\b(?P<lead>for|over|during|in|within|throughout)\s)?\b(?:the\s)?(?:next|coming|following)\s
        (?:(?P<next_n>\d{{1,9}}(?:\.\d{{1,9}})?|{_ENGLISH_NUMBER})[\s-]?)?(?:of\s)?
        (?P<next_unit>{_ENGLISH_UNIT})\b(?P<next_half>\sand\sa\shalf\b)?(?:\sfrom\snow\b)?)
  | (?P<for>\bfor\s(?:about\s|another\s)?(?P<for_n>\d{{1,9}}(?:\.\d{{1,9}})?|{_ENGLISH_NUMBER})
        (?P<for_mid>\sand\sa\shalf)?[\s-]?
        {_AFTER_FOR.replace("<unit>", "<for_unit>")}(?P<for_half>\sand\sa\shalf\b)?(?:(?P<now>\sfrom\snow\b)|{_ANOTHERS}))
  | (?P<han>在?(?:接下来|接下來|未来|今后|往后|随后|后续|从?现在起|从?现在开始|持续)的?这?\s?
        (?P<han_n>\d{{1,9}}(?:\.\d{{1,9}})?|[零一二两三四五六七八九十半]{{1,3}})?\s?个?(?P<han_mid>半)?\s?
        (?P<han_unit>{_HAN_UNIT}|(?:hours?|minutes?|mins?|h)(?![a-z]))(?P<han_half>半)?(?:之?内|里|期间)?)
  | (?P<no>(?P<no_n>\d{{1,9}}(?:\.\d{{1,9}})?|[一二两三四五六七八九十半]{{1,3}})\s?个?(?P<no_half>半)?\s?(?P<no_unit>{_HAN_UNIT})
        (?:之|以)?内(?<!秒内)(?<!秒钟内)
        (?=\s?(?:请勿|不要|别|勿|禁止|不许|不准|不得)(?:再|做|进行)?(?![超多高低少大小慢])))
    """,
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A half-open place and the seconds said there, or the code of a problem."""

    start: int
    end: int
    seconds: float | str


def find_durations(text: str) -> Iterator[Stretch]:
    """Every stretch from now, in order."""
    for match in _PATTERN.finditer(text):
        kind = match.lastgroup or ""
        if (
            kind == "for"
            and not match["now"]
            and _STOPS_FOR.search(text, max(0, match.start() - 30), match.start())
        ):
            continue
        if kind == "next" and not match["next_n"] and not _means_a_length(match):
            continue
        yield Stretch(*match.span(), _problem(_seconds(match, kind), match["lead"]))


def _means_a_length(match: re.Match[str]) -> bool:
    """ "for the next day" is 24 hours, "the next day" and "next week" are dates."""
    return match["next_unit"] in {"hour", "minute"} or bool(match["lead"])


def _seconds(match: re.Match[str], kind: str) -> float | None:
    unit = _UNIT_OF[match[f"{kind}_unit"]]
    number = _number(match[f"{kind}_n"] or "")
    halves = [match[f"{kind}_half"], match[f"{kind}_mid"] if kind in {"for", "han"} else None]
    if kind == "han" and not match["han_n"] and match["han_mid"]:
        number, halves = 0.5, []
    is_half_a_day = unit == "d" and number == 0.5  # 半天 is no twelve hours
    if number == 0.5 and any(halves):  # 半半小时 is a slip
        number = None
    if not unit or number is None or is_half_a_day:
        return None
    return float(f"{(number + 0.5 * any(halves)) * _UNITS_S[unit]:.15g}")


def _number(said: str) -> float | None:
    if said in _NUMBERS:
        return _NUMBERS[said]
    if said[:1].isdecimal():
        return float(said)
    if len(said) == 1:
        return _HAN.get(said)
    tens, _, ones = said.partition("十")
    known = len(tens) <= 1 and len(ones) <= 1 and "十" in said and "半" not in said
    return _HAN.get(tens, 1) * 10 + _HAN.get(ones, 0) if known else None


def _problem(seconds: float | None, lead: str | None) -> float | str:
    if seconds is None or lead == "within":  # a month has no length; "within the next hour" may be a deadline
        return "ambiguous_time"
    if seconds == 0:
        return "zero_length"
    return seconds if isfinite(seconds) and seconds <= LONGEST_S else "ambiguous_time"
