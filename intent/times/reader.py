"""Windows that are said with clock times, days, dates or durations, in folded text of both languages.

Named windows (peak, overnight) are the lexicon's. Whatever cannot be one window, or could be two, has a problem instead of
a guess. The conventions are in docs/intents.md.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from intent.messages import Language
from intent.models import DAYS, Catalogue, DatedWindow, FromNowWindow, RecurringWindow, Window
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

    With a problem the window is None, unless it can be told all the same: that of a date that is over.
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

_UNITS_S = (("d", "天", 86400), ("h", "小时", 3600), ("min", "分钟", 60), ("s", "秒", 1))


def spoken(window: Window, language: Language) -> str:
    """The canonical phrase of a window, which ``find`` reads as exactly this window; a name stays a name."""
    match window:
        case RecurringWindow():
            return _spoken_days(window, language) + _spoken_hours(window, language)
        case DatedWindow():
            return (f"on {window.date} " if language == "en" else f"{window.date} ") + _spoken_hours(window, language)
        case FromNowWindow():
            return _spoken_duration(window.duration_s, language)
        case _:
            return window.replace("_", " ")


def _spoken_days(window: RecurringWindow, language: Language) -> str:
    if len(window.days) == len(DAYS):
        return "every day " if language == "en" else "每天 "
    if language == "en":
        return f"every {', '.join(window.days)} "
    return "每" + "、".join(f"周{'一二三四五六日'[DAYS.index(day)]}" for day in window.days) + " "


def _spoken_hours(window: RecurringWindow | DatedWindow, language: Language) -> str:
    to, opened, closed = (" to ", " (", ")") if language == "en" else (" 到 ", "（", "）")
    return f"{window.start}{to}{window.end}{opened}{window.tz}{closed}"


def _spoken_duration(seconds: float, language: Language) -> str:
    english, chinese, size = next(unit for unit in _UNITS_S if seconds % unit[2] == 0 or unit[2] == 1)
    number = seconds / size
    amount = str(int(number)) if number == int(number) else repr(number)
    return f"for the next {amount} {english}" if language == "en" else f"接下来 {amount} {chinese}"
