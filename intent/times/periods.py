"""Over how long something is measured: ``over 28 days``, ``in a rolling week``, ``28 天内可用性``. Pure."""

import re
from collections.abc import Iterator

from intent.messages import Language
from intent.tables import expanded, table
from intent.times.pieces import ENGLISH_NUMBER, LONGEST_S, number_of

Period = tuple[int, int, int]
"""A half-open place in a folded text, and the seconds said there."""
_TABLE = table("intent.times", "words")["measured over"]
_SECONDS: dict[str, int] = _TABLE["seconds"]
_PARTS: dict[str, str] = {"number": ENGLISH_NUMBER, **_TABLE["parts"]}
_ANYWHERE = re.compile(expanded(_TABLE["anywhere"], _PARTS), re.VERBOSE | re.ASCII)
_BESIDE_A_SHARE = re.compile(expanded(_TABLE["beside a share"], _PARTS), re.VERBOSE | re.ASCII)
_SHARE = re.compile(_TABLE["share"])
_NO_SHARE = re.compile(_TABLE["no share"])
_CLAUSE = re.compile(r"[^;\n。；]+")
_LENGTH = re.compile(
    rf"(\d+(?:\.\d+)?|\b(?:{ENGLISH_NUMBER})|[一二两三四五六七八九十]+)[\s-]?个?(?:{'|'.join(_SECONDS)})"
)
_UNIT = re.compile(rf"(?<![a-z])(?:{'|'.join(_SECONDS)})")


def find_periods(text: str) -> Iterator[Period]:
    """Every such period of a folded text, in order.

    ``Per month`` and the like count beside what is a share of requests or of time alone: of a price they are the unit.
    """
    for clause in _CLAUSE.finditer(text):
        is_share = _SHARE.search(clause[0]) and not _NO_SHARE.search(clause[0])
        found = [*_ANYWHERE.finditer(text, *clause.span())]
        found += _BESIDE_A_SHARE.finditer(text, *clause.span()) if is_share else ()
        after = clause.start()
        for match in sorted(found, key=lambda match: (match.start(), -match.end())):
            seconds = _seconds(match[0])
            if match.start() >= after and 0 < seconds <= LONGEST_S and seconds % 60 == 0:
                yield *match.span(), int(seconds)
                after = match.end()


def _seconds(words: str) -> float:
    length = _LENGTH.search(words)
    unit = _UNIT.search(words, length.end(1) if length else 0)
    number = number_of(length[1]) if length else 1.0
    return (number or 0.0) * _SECONDS[unit[0]] if unit else 0.0


def spoken_period(seconds: int, language: Language) -> str:
    """The canonical phrase of a period, which ``find_periods`` reads as exactly this one."""
    english, chinese, size = next(unit for unit in _UNITS if seconds % unit[2] == 0)
    return f"over a {seconds // size}-{english} window" if language == "en" else f"按 {seconds // size} {chinese}窗口"


_UNITS = (("day", "天", 86400), ("hour", "小时", 3600), ("minute", "分钟", 60))
