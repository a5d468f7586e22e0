"""Which option of a question an answer picks: by its number, its words, or the one thing that sets it apart. Pure."""

import re
from collections.abc import Sequence

from intent.fold import fold
from intent.followups.cues import said as cue
from intent.models import Catalogue, Question
from intent.rules.kinds import Kind
from intent.rules.lexicon import split
from intent.rules.phrasing import tokenize

_NUMBERS = {"一": 1, "二": 2, "三": 3, "四": 4, "first": 1, "second": 2, "third": 3, "fourth": 4}
_SILENT = frozenset({Kind.FILLER, Kind.JOIN, Kind.STOP})


def answered(text: str, question: Question, catalogue: Catalogue) -> int | None:
    """The place of the option that an answer means: the default for yes, else by what it says or makes of the text."""
    if _YES.fullmatch(fold(text).text.strip(" .!,，。！")):
        return question.options.index(question.default)
    found = option_said(text, question.options, catalogue)
    return option_said(text, question.texts, catalogue) if found is None and question.texts else found


_YES = re.compile(r"y|yes|yep|yeah|sure|ok(?:ay)?|fine|correct|right|是的?|对的?|好的?|行|可以|没错")


def number_said(text: str, count: int) -> int | None:
    """The number of an option, from 1; it may be one that the question does not have."""
    match = cue(text, "number")
    if match is None:
        return None
    (word,) = (word for word in match.groupdict().values() if word)
    return count if word == "last" else _NUMBERS.get(word) or int(word)


def option_said(text: str, options: Sequence[str], catalogue: Catalogue) -> int | None:
    """The place of the one option that holds all the answer says, in its words or others; None if none does, or several."""
    words, said = _words(text), _said(text, catalogue)
    same = [n for n, option in enumerate(options) if _words(option) == words]
    meant = [n for n, option in enumerate(options) if said and said <= _meanings(option, catalogue)]
    worded = [n for n, option in enumerate(options) if words and set(words) <= set(_words(option))]
    return next((found[0] for found in (same, meant, worded) if len(found) == 1), None)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in split(fold(text).text) if word.isalnum() or not word.isascii())


def _said(text: str, catalogue: Catalogue) -> set[tuple[Kind, str]]:
    tokens = tokenize(text, catalogue)
    return {(token.kind, repr(token.value)) for token in tokens if token.kind not in _SILENT}


def _meanings(text: str, catalogue: Catalogue) -> set[tuple[Kind, str]]:
    """What the words mean, whatever language they are in; a number also means its unit."""
    tokens = [token for token in tokenize(text, catalogue) if token.kind not in _SILENT]
    units = {
        (Kind.UNIT, repr((one.value.unit, one.value.factor))) for one in tokens if one.kind is Kind.QUANTITY
    }
    return {(token.kind, repr(token.value)) for token in tokens} | units
