"""When a goal holds, from the words that an LLM copied; read by the rules' own parsers of times and names. Pure."""

import re
from collections.abc import Sequence

from intent.fold import Place, fold
from intent.llm.quotes import Source
from intent.models import Window
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token
from intent.times.rest import is_rest, rest_of
from intent.times.together import together
from intent.times.words import NUMBERS

_HALF = re.compile(r"\b([a-z]+|\d{1,2}) ([ap])\.? ?m\b\.?")
"""``nine a m``, as it is dictated."""
_DIGIT = re.compile(r"\d")


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
        rest = rest_of(earlier)
        return Token(Kind.WINDOW if rest else Kind.BAD_TIME, rest or "ambiguous_time", *place)
    said = _times(source, words, place)
    if bad := next((one for one in said if one.kind is Kind.BAD_TIME), None):
        return Token(Kind.BAD_TIME, bad.value, *place)
    if not said:
        return Token(Kind.WINDOW, words, *place)  # by a name that nobody defined
    joined = together([one.value for one in said])
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
