"""How a follow-up points at what was said before: its cues from ``cues.yaml``, and the words that are left. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from intent.fold import fold
from intent.messages import Language
from intent.tables import table


class Way(StrEnum):
    """What a follow-up does to the goals before it."""

    SAY = "say"
    """Says a goal like any text; what it does not say may be taken from the goal it is about."""
    ALSO = "also"
    SAME = "same"
    EDIT = "edit"
    """Names a goal that is there and what becomes of it: ``change the TTFT goal to 1.5 s``."""
    CHANGE = "change"
    """Points back without naming the goal: ``make that 1.5 s``."""
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A follow-up without its cues."""

    way: Way
    text: str
    old: str | None = None
    """What ``instead of`` names."""
    replaces: bool = False
    """Whether what was said before no longer counts."""


def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = table(__package__, "cues")
    return found


@cache
def _cues(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _data()["cues"][name])


def say(language: Language, key: str, **facts: object) -> str:
    """What is said about a follow-up."""
    return str(_data()["messages"][key][language]).format(**facts)


def follow_up(text: str) -> FollowUp:
    """The cues of a text; a text without any says a goal."""
    text = text.strip()
    text, old = _without_old(text)
    text, replaces = without(text, "replace")
    for way in (Way.DROP, Way.SAME, Way.ALSO, Way.CHANGE, Way.EDIT):
        rest, found = without(text, way)
        if found:
            return FollowUp(way, without(rest, "also")[0] if way is Way.SAME else rest, old, replaces)
    return FollowUp(Way.SAY, text, old, replaces)


def without(text: str, name: str) -> tuple[str, bool]:
    """The text without the cues of a name, and whether there were any."""
    found = False
    for pattern in _cues(name):
        folded = fold(text)
        if (match := pattern.search(folded.text)) and (match[0] or name == "drop"):
            start, end = folded.span(match.start(), match.end()) if match[0] else (0, 0)
            text, found = f"{text[:start]} {text[end:]}".strip(), True
    return text, found


def said(text: str, name: str) -> re.Match[str] | None:
    """The first cue of a name in a text."""
    folded = fold(text.strip()).text
    return next((match for pattern in _cues(name) if (match := pattern.search(folded))), None)


def _without_old(text: str) -> tuple[str, str | None]:
    match = said(text, "instead_of")
    if match is None or not match.start():  # "instead of that, ..." replaces everything
        return text, None
    start, _ = fold(text).span(match.start(), match.end())
    return text[:start], match["old"]
