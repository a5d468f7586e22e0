"""Times that other words give a meaning: bare hours, the other hours, several windows, until. Pure."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from intent.fold import fold
from intent.models import DAYS, DatedWindow, RecurringWindow, Window
from intent.tables import table
from intent.times.clock import PARTS, spelled

_UNIT, _FOLLOWER, _BOUND, _COUNTED, _MEASURED, _CHANGE = (
    re.compile(pattern, re.VERBOSE | re.ASCII) for pattern in table("intent.times", "words")["beside numbers"].values()
)
_CLAUSE = re.compile(r"[,.;!?\n。；、]\s|[;!?\n。；、,]|\b(?:and|but|while|then)\b", re.ASCII)
_QUANTITY = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?!\d)", re.ASCII)


def follows_a_bound(text: str, place: int) -> bool:
    """Whether a number here is the value of something: ``< 9``, ``at most 9``, ``tp 9``."""
    return _BOUND.search(text, max(0, place - 16), place) is not None


def is_counted(text: str, place: int) -> bool:
    """Whether the number that ends here counts or measures something: ``9 %``, ``9 gpus``."""
    return _UNIT.match(text, place) is not None


def are_hours(text: str, start: int, end: int, is_marked: bool) -> bool:
    """Whether bare numbers mean hours.

    What is said before ``start`` waits for no number, what follows ``end`` is no noun.

    ``is_marked``: a day, a zone or the like stands with them; else a preposition has to.
    """
    clause = _CLAUSE.split(text[max(0, start - 80) : start])[-1]
    quantities = list(_QUANTITY.finditer(clause))
    if _CHANGE.search(clause, quantities[-1].end() if quantities else 0):
        return False
    if not quantities and _COUNTED.search(clause):
        return False
    return is_marked or bool((quantities or not _MEASURED.search(clause)) and _FOLLOWER.match(text, end))


REST = "the rest"
"""The value of a token that means it; no deployment may name a window so."""
_SAID, _HAN = table("intent.times", "words")["rest"]
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
    distinct = list(dict.fromkeys(window for window in earlier if window != "always"))
    if len(distinct) != 1:
        return None
    (window,) = distinct
    if isinstance(window, str):
        return _OTHERS.get(window)
    if not isinstance(window, RecurringWindow):
        return None
    if len(window.days) == len(DAYS):
        whole = (window.start, window.end) == ("00:00", "24:00")
        return (
            None
            if whole
            else RecurringWindow(
                window.days, _midnight(window.end, "00:00"), _midnight(window.start, "24:00"), window.tz
            )
        )
    others = tuple(day for day in DAYS if day not in window.days)
    return (
        RecurringWindow(others, window.start, window.end, window.tz)
        if (window.start, window.end) == ("00:00", "24:00")
        else None
    )


def _midnight(text: str, spelling: str) -> str:
    return spelling if text in {"00:00", "24:00"} else text


_PART_HOURS = frozenset((spelled(start), spelled(end)) for start, end in PARTS.values())
_PARTS = frozenset({"overnight"})
"""Named windows that are also parts of the day."""


def together(windows: Sequence[Window]) -> Window | None:
    """The one window that several words say: a named one beside a part of the day, hours beside days.

    None if it could be two.
    """
    distinct = list(dict.fromkeys(windows))
    if len(distinct) == 1:
        return distinct[0]
    named = [window for window in distinct if isinstance(window, str) and window not in _PARTS]
    rest = [window for window in distinct if window not in named]
    if len(named) == 1 and all(_is_part_of_day(window) for window in rest):
        return named[0]
    days = [
        window
        for window in rest
        if isinstance(window, RecurringWindow) and (window.start, window.end) == ("00:00", "24:00")
    ]
    hours = [window for window in rest if isinstance(window, RecurringWindow) and len(window.days) == len(DAYS)]
    if not named and len(rest) == len(days) + len(hours) == 2 and len(days) == 1:
        return RecurringWindow(days[0].days, hours[0].start, hours[0].end, hours[0].tz)
    return None


def _is_part_of_day(window: Window) -> bool:
    if not isinstance(window, RecurringWindow):
        return window in _PARTS
    return len(window.days) == len(DAYS) and (window.start, window.end) in _PART_HOURS


_UNTIL = re.compile(r"\b(?:until|till|til|'til)\b|之前|以前|为止|直到|前(?:请|别|不|谁|一律|都|任何)", re.IGNORECASE)
_TODAY = re.compile(
    r"\b(?:today|tonight|right now|this (?:morning|afternoon|evening)|incident|outage|inc-?\d+|sev-?\s?\d)\b"
    r"|今天|今晚|今早|今日|今儿|现在|故障|事故",
    re.IGNORECASE,
)
"""Words for today, or for an incident."""


def until_today(window: Window, text: str, now: datetime, is_ban: bool) -> Window:
    """The window itself, or today from the present minute where ``text`` says until when and means today.

    ``is_ban``: it is that of a freeze or of a ban on reconfiguration, which is about today by itself.
    """
    daily = isinstance(window, RecurringWindow) and len(window.days) == len(DAYS)
    if not daily or not isinstance(window, RecurringWindow) or window.start != "00:00" or window.end == "24:00":
        return window
    if not _UNTIL.search(text) or not (is_ban or _TODAY.search(text)):
        return window
    here = now.astimezone(ZoneInfo(window.tz))
    start = here.strftime("%H:%M")
    return DatedWindow(here.date().isoformat(), start, window.end, window.tz) if start < window.end else window
