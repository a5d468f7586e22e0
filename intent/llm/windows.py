"""When a goal holds, from the words that an LLM copied; read by the rules' own parsers of times and names. Pure."""

import re
from collections.abc import Sequence

from intent.fold import fold
from intent.llm.quotes import Place, Source
from intent.models import RecurringWindow, Window
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token
from intent.times.clock import PARTS, spelled
from intent.times.dates import DAY_NAMES
from intent.times.words import NUMBERS

_REST = re.compile(
    r"otherwise|else|(?:the )?(?:rest|remainder)(?: of (?:the|that) (?:time|day|week))?"
    r"|(?:(?:at|on|in|during) )?(?:all |the )*(?:other|remaining) (?:times?|hours|days)"
    r"|outside (?:of )?(?:that|those|these|them)(?: hours| times| window)?|平时|平常"
    r"|(?:其他|其它|其余|剩下的?|剩余的?|别的|另外的?|非上述)(?:时间|时段|时候|时刻|日子|几天)?"
)
"""Words for what the windows said before leave over."""
_HALF = re.compile(r"\b([a-z]+|\d{1,2}) ([ap])\.? ?m\b\.?")
"""``nine a m``, as it is dictated."""
_DIGIT = re.compile(r"\d")
_OTHERS = {"peak": "off_peak", "off_peak": "peak"}
_PART_HOURS = frozenset((spelled(start), spelled(end)) for start, end in PARTS.values())
_PARTS = frozenset({"overnight"})
"""Named windows that are also parts of the day."""


def is_rest(words: str) -> bool:
    """Whether these words mean what the windows said before leave over."""
    return _REST.fullmatch(fold(words).text.strip(" ,.，。的")) is not None


def window(source: Source, words: str, near: Place, earlier: Sequence[Window]) -> Token:
    """The window as one token: of kind ``BAD_TIME`` where it cannot be one, its value the problem's code.

    ``earlier`` are the windows said before, for words that mean the rest of the time.
    """
    place = source.place(words, near) or near
    if whole := longer_name(source, place):
        apart = [one for one in source.places(words) if longer_name(source, one) is None]
        if not apart:
            return whole
        place = apart[0]
    if is_rest(words):
        rest = _rest(earlier)
        return Token(Kind.WINDOW if rest else Kind.BAD_TIME, rest or "ambiguous_time", *place)
    said = _times(source, words, place)
    if bad := next((one for one in said if one.kind is Kind.BAD_TIME), None):
        return Token(Kind.BAD_TIME, bad.value, *place)
    if not said:
        return Token(Kind.WINDOW, words, *place)  # by a name that nobody defined
    joined = _joined([one.value for one in said])
    return Token(Kind.WINDOW if joined else Kind.BAD_TIME, joined or "ambiguous_time", *place)


def longer_name(source: Source, place: Place) -> Token | None:
    """The named window of which these words are a part: ``peak`` of ``off-peak``."""
    found = (one for one in source.tokens if one.kind is Kind.WINDOW and isinstance(one.value, str))
    around = (one for one in found if one.start <= place[0] and place[1] <= one.end)
    return next((one for one in around if (one.start, one.end) != place), None)


def _times(source: Source, words: str, place: Place) -> list[Token]:
    """The times of the words, read in the way that leaves no number over; one that cannot be, if there is no such way."""
    plain = _HALF.sub(lambda match: f"{NUMBERS.get(match[1], match[1])} {match[2]}m", fold(words).text)
    for way in (words, f"on {words}", plain):
        tokens = tokenize(way, source.catalogue)
        said = [one for one in tokens if one.kind in {Kind.WINDOW, Kind.BAD_TIME}]
        if said and not any(one.kind in {Kind.QUANTITY, Kind.NUMBER, Kind.RANGE} for one in tokens):
            return said
    if said := [one for one in source.within(place) if one.kind in {Kind.WINDOW, Kind.BAD_TIME}]:
        return said if not _DIGIT.search(words) else [Token(Kind.BAD_TIME, "ambiguous_time", *place)]
    return [Token(Kind.BAD_TIME, "ambiguous_time", *place)] if _DIGIT.search(words) else []


def _joined(windows: Sequence[Window]) -> Window | None:
    """The one window that several words say: a named one beside a part of the day, hours beside days; None if it could be two."""
    distinct = list(dict.fromkeys(windows))
    if len(distinct) == 1:
        return distinct[0]
    named = [one for one in distinct if isinstance(one, str) and one not in _PARTS]
    rest = [one for one in distinct if one not in named]
    if len(named) == 1 and all(_is_part_of_day(one) for one in rest):
        return named[0]
    days = [
        one for one in rest if isinstance(one, RecurringWindow) and (one.start, one.end) == ("00:00", "24:00")
    ]
    hours = [one for one in rest if isinstance(one, RecurringWindow) and len(one.days) == len(DAY_NAMES)]
    if not named and len(rest) == len(days) + len(hours) == 2 and len(days) == 1:
        return RecurringWindow(days[0].days, hours[0].start, hours[0].end, hours[0].tz)
    return None


def _is_part_of_day(one: Window) -> bool:
    if not isinstance(one, RecurringWindow):
        return one in _PARTS
    return len(one.days) == len(DAY_NAMES) and (one.start, one.end) in _PART_HOURS


def _rest(earlier: Sequence[Window]) -> Window | None:
    """What the windows said before leave over; None if that is no one window."""
    distinct = list(dict.fromkeys(one for one in earlier if one != "always"))
    if len(distinct) != 1:
        return None
    (one,) = distinct
    if isinstance(one, str):
        return _OTHERS.get(one)
    if not isinstance(one, RecurringWindow):
        return None
    if len(one.days) == len(DAY_NAMES):
        whole = (one.start, one.end) == ("00:00", "24:00")
        return (
            None
            if whole
            else RecurringWindow(one.days, _midnight(one.end, "00:00"), _midnight(one.start, "24:00"), one.tz)
        )
    others = tuple(day for day in DAY_NAMES if day not in one.days)
    return (
        RecurringWindow(others, one.start, one.end, one.tz)
        if (one.start, one.end) == ("00:00", "24:00")
        else None
    )


def _midnight(said: str, spelling: str) -> str:
    return spelling if said in {"00:00", "24:00"} else said
