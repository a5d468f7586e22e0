"""Windows that are said with clock times, days, dates or durations, in folded text of both languages.

Named windows (peak, overnight) are the lexicon's. Whatever cannot be one window, or could be two, has a problem instead of
a guess. The conventions are in docs/intents.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from intent.messages import Language
from intent.models import DAYS, Catalogue, DatedWindow, DatesWindow, FromNowWindow, RecurringWindow, Window
from intent.times.grammar import TimeReader
from intent.times.pieces import Duration, find_durations, window_of
from intent.times.scanner import may_speak_of_time

PROBLEMS = (
    "impossible_time",
    "impossible_date",
    "past_date",
    "unknown_zone",
    "ambiguous_time",
    "zero_length",
)
"""Every code that ``TimeMatch.problem`` may have.

Ambiguous is also what needs more than one window, or has no end that anybody means.
"""


_ZONE_TIME = re.compile(r"(/[a-z_]+)\s?时间")
"""``Europe/Berlin 时间``: the word says nothing more."""
_COUNT_AT_NIGHT = re.compile(r"(?!.*[周期拜])[一-鿿]{2,4}\s?[\d.零一二两三四五六七八九十]+")
"""``夜间 5 秒``: a part of the day and a number that nothing makes an hour."""


@dataclass(frozen=True, slots=True)
class TimeMatch:
    """A window with its half-open place in the folded text.

    With a problem the window is None, unless it can be told all the same: that of a date that is over, and the next one of
    what may come again (from Friday 18:00 to Monday 9:00).
    """

    start: int
    end: int
    window: Window | None
    problem: str | None


def find(text: str, catalogue: Catalogue) -> list[TimeMatch]:
    """Every constructed window of a folded text, in order, none over another."""
    stretches = list(find_durations(text))
    rest = _ZONE_TIME.sub(lambda match: match[1].ljust(len(match[0])), text)
    for stretch in stretches:
        rest = rest[: stretch.start] + ";" * (stretch.end - stretch.start) + rest[stretch.end :]
    found = [_from_now(stretch) for stretch in stretches]
    for start, end, pieces in TimeReader(rest).windows() if may_speak_of_time(rest) else ():
        found.append(TimeMatch(start, end, *window_of(pieces, catalogue)))
    if not found:
        return []
    named = list(_mentions(text, catalogue))
    return sorted(
        (
            match
            for match in found
            if not any(start < match.end and match.start < end for start, end in named)
            and not (match.problem == "ambiguous_time" and _COUNT_AT_NIGHT.fullmatch(text, match.start, match.end))
        ),
        key=lambda match: match.start,
    )


def _from_now(stretch: Duration) -> TimeMatch:
    if isinstance(stretch.seconds, str):
        return TimeMatch(stretch.start, stretch.end, None, stretch.seconds)
    return TimeMatch(stretch.start, stretch.end, FromNowWindow(stretch.seconds), None)


def _mentions(text: str, catalogue: Catalogue) -> Iterator[tuple[int, int]]:
    """Where the deployment's own names stand: they keep their meaning even if they sound like a time."""
    for name in (*catalogue.tenants, *catalogue.models, *catalogue.windows, *catalogue.aliases):
        spoken = name.lower().replace("_", " ")
        if spoken in text:
            for match in re.finditer(rf"(?<![^\W_]){re.escape(spoken)}(?![^\W_])", text):
                yield match.span()


# -- the way back -------------------------------------------------------------------------------------

_UNITS_S = (("day", "天", 86400), ("hour", "小时", 3600), ("minute", "分钟", 60), ("second", "秒", 1))
_MARKS = {"en": (" to ", " (", ")"), "zh": (" 到 ", "（", "）")}
"""Between two times, and around a zone."""
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_GROUPS = {
    "en": {DAYS: "every day", DAYS[:5]: "on weekdays", DAYS[5:]: "on weekends"},
    "zh": {DAYS: "每天", DAYS[:5]: "工作日", DAYS[5:]: "周末"},
}


def spoken(window: Window, language: Language) -> str:
    """The canonical phrase of a window, which ``find`` reads as exactly this window; a name stays a name."""
    match window:
        case str():
            return window.replace("_", " ")
        case FromNowWindow():
            return _spoken_duration(window.duration_s, language)
        case DatesWindow():
            return _spoken_dates(window, language)
        case RecurringWindow():
            days = _GROUPS[language].get(window.days) or _spoken_days(window, language)
            if len(window.days) == len(DAYS) and _is_whole_day(window):
                days += f" 00:00{_MARKS[language][0]}24:00"  # "every day" alone is a period
        case _:
            days = ("on " if language == "en" else "") + _spoken_date(window.date, language)
    _, opened, closed = _MARKS[language]
    return f"{days}{_spoken_hours(window, language)}{opened}{window.tz}{closed}"


def _spoken_dates(window: DatesWindow, language: Language) -> str:
    first, last = (_spoken_date(day, language) for day in (window.date, window.last))
    to, opened, closed = _MARKS[language]
    lead = "from " if language == "en" else ""
    zone = f"{opened}{window.tz}{closed}"
    if _is_whole_day(window):
        return f"{lead}{first}{to}{last}{zone}"
    return f"{lead}{first} {window.start}{to}{last} {window.end}{zone}"


def _spoken_date(day: str, language: Language) -> str:
    """``24 Dec 2026``, ``2026年12月24日``; as it stands where it is no date, which another rule finds."""
    try:
        there = date.fromisoformat(day)
    except ValueError:
        return day
    if language == "en":
        return f"{there.day} {_MONTHS[there.month - 1]} {there.year}"
    return f"{there.year}年{there.month}月{there.day}日"


def _spoken_days(window: RecurringWindow, language: Language) -> str:
    if language == "en":
        return f"every {', '.join(day.capitalize() for day in window.days)}"
    return "每" + "、".join(f"周{'一二三四五六日'[DAYS.index(day)]}" for day in window.days)


def _is_whole_day(window: RecurringWindow | DatedWindow) -> bool:
    return (window.start, window.end) == ("00:00", "24:00")


def _spoken_hours(window: RecurringWindow | DatedWindow, language: Language) -> str:
    """The hours, if they are not all of the day."""
    return "" if _is_whole_day(window) else f" {window.start}{_MARKS[language][0]}{window.end}"


def _spoken_duration(seconds: float, language: Language) -> str:
    english, chinese, size = next(unit for unit in _UNITS_S if seconds % unit[2] == 0 or unit[2] == 1)
    number = seconds / size
    amount = str(int(number)) if number == int(number) else repr(number)
    if language == "zh":
        return f"接下来 {amount} {chinese}"
    return f"for the next {amount} {english}{'' if number == 1 else 's'}"
