"""The numbers that a text can be read to hold, found without the translator, and the numbers of a goal that are none of them.

Generous on purpose: a number counts as said if any unit, share or reciprocal that the text speaks of leads to it.
"""

import itertools
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from benchmarks.words.utterances import NOW, GoalDocument

_DIGITS = re.compile(r"\d+(?:,\d{3})+(?:\.\d+)?|(?:\d*\.\d+|\d+)(?:e[+-]?\d+)?")
_TO_TWENTY = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_TENS = ("thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ENGLISH = {word: float(value) for value, word in enumerate(_TO_TWENTY)}
_ENGLISH |= {word: float(value) for value, word in zip(range(30, 100, 10), _TENS, strict=True)}
_POWERS = {"hundred": 100.0, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_SPOKEN = {
    "a": 1.0, "an": 1.0, "once": 1.0, "single": 1.0, "twice": 2.0, "double": 2.0, "triple": 3.0, "thrice": 3.0,
    "half": 0.5, "halve": 0.5, "halved": 0.5, "halving": 0.5, "doubled": 2.0, "dozen": 12.0, "quadruple": 4.0,
    "third": 1 / 3, "thirds": 1 / 3, "quarter": 0.25, "quarters": 0.25, "fifth": 0.2, "fifths": 0.2, "tenth": 0.1,
    "tenfold": 10.0, "tripled": 3.0, "noon": 12.0, "midnight": 0.0, "pair": 2.0, "couple": 2.0, "next": 1.0, "ninetieth": 90.0,
}  # fmt: skip
_CHINESE = dict(zip("零〇一二两三四五六七八九", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
_CHINESE_POWERS = {"十": 10, "百": 100, "千": 1000, "万": 10_000, "亿": 100_000_000}
_CHINESE_RUN = re.compile("[零〇一二两三四五六七八九十百千万亿点]+")
_LONGEST_RUN = 12
_DIGIT = r"[\d零〇一二两三四五六七八九十百]"
_MAGNITUDES = (
    (rf"{_DIGIT} ?k|thousand|千", 1e3), (rf"{_DIGIT} ?m(?![a-z])|million|百万", 1e6), (rf"{_DIGIT} ?b(?![a-z])|billion", 1e9),
    ("百|hundred", 100.0), ("万", 1e4), ("亿", 1e8),
)  # fmt: skip
_TIMES = (
    (r"\ds|\d s|sec|秒", 1.0), ("min|分|/m", 60.0), ("刻", 900.0), ("h|时|钟头", 3600.0), ("day|天|日", 86400.0),
    ("week|周|星期", 604800.0), ("ms|milli|毫|[豪好号耗]秒", 1e-3), ("us|µs|μs|micro|sec|微", 1e-6), ("ns|nano|纳", 1e-9),
)  # fmt: skip
_CENTS = ("cent|美分|¢", 0.01)
_SCALES = {
    "s": _TIMES,
    "tokens/s": tuple((pattern, 1 / scale) for pattern, scale in _TIMES if scale >= 1),
    "requests/s": tuple((pattern, 1 / scale) for pattern, scale in _TIMES if scale >= 1),
    **dict.fromkeys(("USD/h", "USD/Mtok"), (_CENTS,)),
    "USD/day": (_CENTS, ("week|周|星期|礼拜", 1 / 7)),
    "USD/month": (_CENTS, ("year|annual|annum|年", 1 / 12)),
    "ratio": (("", 0.01), ("成|折", 0.1), ("‰|千分|permille", 1e-3)),
}
"""Unit of a goal to the ways to say it, each with what its number is multiplied by."""
_HALF = re.compile("半|half|½")
_SHARES = re.compile(r"分之|次|\bof\b|\bin\b|\bper\b|里|每|⁄|/")
_MEDIAN = re.compile("medi|中位|typical|half|半")
_RELATIVE_DAYS = re.compile("this|today|tonight|tomm?orr?ow|今|明|后天|mon|tue|wed|thu|fri|sat|sun|周|星期|week")
_TENTHS = re.compile("([一二三四五六七八九])成([一二三四五六七八九])")
_FROM_NOW = re.compile("until|till|before|rest of|到|至|前|为止")
"""Of a window that begins now: where it ends is said, its start is the clock's and its length what lies between."""
_ZONE = re.compile(
    r"(?:africa|america|asia|australia|europe|pacific)/|utc|gmt|[a-z] time\b|时间|\b(?:[bcejkmp][sd]t|[cemp]t|cest|eest)\b"
)
_SECONDS = re.compile("([一二两三四五六七八九])秒([一二三四五六七八九])")
_PART_OF_DAY = re.compile("morning|noon|evening|night|[早晚夜晨午]|傍晚")
_NUMERIC = ("value", "limit", "factor", "delta")


def unsaid(goal: GoalDocument, text: str) -> list[str]:
    """The keys of a goal whose numbers the text does not hold."""
    said = Said(text)
    wrong = [key for key in _NUMERIC if isinstance(goal.get(key), int | float) and not said.holds(key, goal)]
    if not said.has_statistic(goal.get("stat")):
        wrong.append("stat")
    selector = goal.get("selector") or ""
    if selector.startswith("gpu:") and not set(map(float, re.findall(r"\d+", selector))) <= said.numbers:
        wrong.append("selector")
    return [
        *wrong,
        *(["window"] if isinstance(goal["window"], dict) and not said.has_window(goal["window"]) else []),
    ]


class Said:
    """What can be read in one text."""

    def __init__(self, text: str) -> None:
        folded = unicodedata.normalize("NFKC", text).casefold()
        self._text = "".join(
            " " if unicodedata.category(one) == "Cc" else one for one in folded if unicodedata.category(one) != "Cf"
        )
        self.numbers = set(numbers(self._text))
        if _HALF.search(self._text):
            self.numbers |= {0.5, *(number + 0.5 for number in tuple(self.numbers))}

    def holds(self, key: str, goal: GoalDocument) -> bool:
        """Some number of the text, in some unit of the text, is this one."""
        amounts = set(self._factors()) if key == "factor" else set(self._amounts(goal.get("unit")))
        if goal.get("metric") == "tpot":
            amounts |= {1 / one for one in self._amounts("tokens/s") if one}
        return _is_among(abs(goal[key]), amounts)

    def _amounts(self, unit: str | None) -> Iterator[float]:
        base = self.numbers | (self._shares() if unit == "ratio" else set())
        magnitudes = [1.0, *self._spoken(_MAGNITUDES)]
        scales = [1.0, *self._spoken(_SCALES.get(unit or "", ()))]
        yield from (number * magnitude * scale for number in base for magnitude in magnitudes for scale in scales)
        if unit == "ratio" and re.search("nine|9|九", self._text):
            yield from (1 - 10**-number for number in self.numbers if number < 10)

    def _factors(self) -> Iterator[float]:
        """What the present value can be multiplied by."""
        for number in self.numbers | self._shares():
            changes = [
                number,
                *(number * scale for scale in self._spoken((("%|percent|precent|pct|百分|点", 0.01), ("成|折", 0.1)))),
            ]
            for change in changes:
                yield from (change, abs(1 - change), 1 + change)
        if re.search("倍|翻|番", self._text):
            yield 2.0

    def _shares(self) -> set[float]:
        if not _SHARES.search(self._text):
            return set()
        return {one / other for one in self.numbers for other in self.numbers if other}

    def _spoken(self, scales: Iterable[tuple[str, float]]) -> Iterator[float]:
        return (scale for pattern, scale in scales if re.search(pattern, self._text))

    def has_statistic(self, stat: str | None) -> bool:
        """It is the default, or said."""
        tenths = _TENTHS.search(self._text)  # 九成九
        if tenths and stat == f"p{_CHINESE[tenths[1]]}{_CHINESE[tenths[2]]}":
            return True
        if stat in {None, "mean", "p95"} or (stat == "p50" and _MEDIAN.search(self._text)):
            return True
        share = float(str(stat)[1:])
        digits = float(str(stat)[1:].replace(".", ""))  # p999 is what some call p99.9
        shares = {*self._shares(), *(number / 10 for number in self.numbers if "成" in self._text)}
        return bool({share, digits} & self.numbers) or _is_among(share / 100, shares)

    def has_window(self, window: dict[str, Any]) -> bool:
        """Its hours, date and length are said."""
        if "duration_s" in window:
            return self._has_length(window["duration_s"])
        if "date" in window and not self._has_day(date.fromisoformat(window["date"])):
            return False
        if _PART_OF_DAY.search(self._text):  # its hours stand in the conventions, not in the text
            return True
        return self._has_time(window["end"]) and (self._begins_now(window) or self._has_time(window["start"]))

    def _has_length(self, seconds: float) -> bool:
        """It is said, or the time to which it leads from now."""
        scales = list(self._spoken(_TIMES))
        if _is_among(seconds, (number * scale for number in self.numbers for scale in scales)):
            return True
        return bool(_FROM_NOW.search(self._text)) and self._has_end(NOW + timedelta(seconds=seconds))

    def _has_end(self, end: datetime) -> bool:
        """Its day and its time; where a zone is named, in some zone."""
        zones = range(-12, 15) if _ZONE.search(self._text) else (0,)
        ends = [end + timedelta(hours=hours) for hours in zones]
        return any(self._has_day(one.date()) and self._has_time(f"{one:%H:%M}") for one in ends)

    def _has_day(self, day: date) -> bool:
        if _RELATIVE_DAYS.search(self._text):
            return True
        return any(number == day.day or f"{day.day:02}" in str(int(number)) for number in self.numbers)

    def _begins_now(self, window: dict[str, Any]) -> bool:
        """It ends at some time of the day of which the clock says the rest."""
        now = NOW.astimezone(ZoneInfo(window["tz"]))
        today = (window.get("date"), window["start"]) == (f"{now:%Y-%m-%d}", f"{now:%H:%M}")
        return today and bool(_FROM_NOW.search(self._text))

    def _has_time(self, time: str) -> bool:
        hour, minute = map(float, time.split(":"))
        if time in {"00:00", "24:00"}:
            return True
        has_hour = bool({hour, hour - 12, hour % 12, hour * 100 + minute} & self.numbers)
        return has_hour and (minute in {0.0, 30.0, 15.0, 45.0} or minute in self.numbers)


def numbers(text: str) -> Iterator[float]:
    """Numbers in digits, in English words and in Chinese ones; of a long run every part as well."""
    for match in _DIGITS.finditer(text):
        yield float(match[0].replace(",", ""))
        yield from (float(part) for part in re.findall(r"\d+", match[0]))
    words = re.findall(r"[a-z]+", text)
    for run in _runs(words):
        yield from filter(None, (_english(part) for part in _parts(run)))
    yield from (_SPOKEN[word] for word in words if word in _SPOKEN)
    for many, part in itertools.pairwise(words):
        if many in _ENGLISH and part in {"quarters", "thirds", "fifths"}:
            yield _ENGLISH[many] * _SPOKEN[part]
    if "zero" in words:
        yield 0.0
    yield from (1.0 for _ in re.findall("单|接下来|未来", text))
    yield from (_CHINESE[whole] + _CHINESE[tenths] / 10 for whole, tenths in _SECONDS.findall(text))
    for match in _CHINESE_RUN.finditer(text):
        yield from (value for part in _parts(match[0]) if (value := _chinese(part)) is not None)


def _runs(words: Iterable[str]) -> Iterator[list[str]]:
    for is_number, run in itertools.groupby(
        (word for word in words if word != "and"),
        lambda word: word in _ENGLISH or word in _POWERS or word == "point",
    ):
        if is_number:
            yield list(run)


def _parts(run: Any) -> Iterator[Any]:
    for start in range(len(run)):
        for end in range(start + 1, min(len(run), start + _LONGEST_RUN) + 1):
            yield run[start:end]


def _english(words: list[str]) -> float | None:
    if "point" in words:
        place = words.index("point")
        whole, digits = (
            _english(words[:place] or ["zero"]),
            [_ENGLISH.get(word) for word in words[place + 1 :]],
        )
        if whole is None or not digits or None in digits:
            return None
        return float(f"{whole:.0f}." + "".join(f"{digit:.0f}" for digit in digits))
    total, section = 0.0, 0.0
    for word in words:
        if word in _ENGLISH:
            section += _ENGLISH[word]
        elif word == "hundred":
            section = (section or 1) * 100
        else:
            total, section = total + (section or 1) * _POWERS[word], 0.0
    return total + section


def _chinese(run: str) -> float | None:
    whole, point, digits = run.partition("点")
    if point:
        value = _chinese(whole) if whole else 0.0
        if value is None or not digits or any(one not in _CHINESE for one in digits):
            return value if not digits else None
        return float(f"{value:.0f}." + "".join(str(_CHINESE[one]) for one in digits))
    if all(one in _CHINESE for one in run):
        return float("".join(str(_CHINESE[one]) for one in run))
    return _sections(run)


def _sections(run: str) -> float:
    total, section, digit = 0.0, 0.0, 0.0
    for one in run:
        if one in _CHINESE:
            digit = _CHINESE[one]
        elif _CHINESE_POWERS[one] < 10_000:
            section, digit = section + (digit or 1) * _CHINESE_POWERS[one], 0.0
        else:
            total, section, digit = (total + (section + digit or 1)) * _CHINESE_POWERS[one], 0.0, 0.0
    short = len(run) > 1 and run[-1] in _CHINESE and run[-2] in "百千万"  # 一千二 is 1200
    return total + section + digit * (_CHINESE_POWERS[run[-2]] / 10 if short else 1)


def _is_among(value: float, candidates: Iterable[float]) -> bool:
    return any(math.isclose(value, one, rel_tol=1e-6, abs_tol=1e-12) for one in candidates)
