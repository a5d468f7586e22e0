"""What the windows said before leave over: ``otherwise``, ``the rest of the time``, 其他时间. Pure."""

import re
from collections.abc import Iterator, Sequence

from intent.fold import fold
from intent.models import DAYS, RecurringWindow, Window

REST = "the rest"
"""The value of a token that means it; no deployment may name a window so."""
_SAID = (
    r"otherwise|(?:the )?(?:rest|remainder) of (?:the|that) (?:time|day|week)"
    r"|(?:(?:at|on|in|during) )?(?:all |the )*(?:other|remaining) (?:times?|hours|days)"
    r"|outside (?:of )?(?:that|those|these|them)(?: hours| times| window)?"
)
_HAN = r"(?:其他|其它|其余|剩下的?|剩余的?|别的|另外的?|非上述)(?:时间|时段|时候|时刻|日子|几天)"
_WITHIN = re.compile(rf"\b(?:{_SAID})\b|{_HAN}")
_WHOLE = re.compile(rf"{_SAID}|{_HAN}|else|(?:the )?(?:rest|remainder)|平时|平常|其他|其它|其余|剩下的?|别的")
_OTHERS = {"peak": "off_peak", "off_peak": "peak"}


def is_rest(words: str) -> bool:
    """Whether these words, behind a window, mean what it leaves over."""
    return _WHOLE.fullmatch(fold(words).text.strip(" ,.，。的")) is not None


def find_rest(text: str) -> Iterator[tuple[int, int]]:
    """Where a folded text says so, half-open."""
    return (match.span() for match in _WITHIN.finditer(text))


def rest_of(earlier: Sequence[Window]) -> Window | None:
    """What the windows said before leave over; None if that is no one window."""
    distinct = list(dict.fromkeys(one for one in earlier if one != "always"))
    if len(distinct) != 1:
        return None
    (one,) = distinct
    if isinstance(one, str):
        return _OTHERS.get(one)
    if not isinstance(one, RecurringWindow):
        return None
    if len(one.days) == len(DAYS):
        whole = (one.start, one.end) == ("00:00", "24:00")
        return (
            None
            if whole
            else RecurringWindow(one.days, _midnight(one.end, "00:00"), _midnight(one.start, "24:00"), one.tz)
        )
    others = tuple(day for day in DAYS if day not in one.days)
    return (
        RecurringWindow(others, one.start, one.end, one.tz)
        if (one.start, one.end) == ("00:00", "24:00")
        else None
    )


def _midnight(said: str, spelling: str) -> str:
    return spelling if said in {"00:00", "24:00"} else said
