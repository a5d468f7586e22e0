"""What a text expects of the load: ``we expect three times the traffic tomorrow``.

Kept for plans, no bound. Pure.
"""

import re
from collections.abc import Iterator

from intent.fold import fold
from intent.models import Catalogue, Expectation
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern
from intent.rules.phrasing import tokenize
from intent.rules.tokens import TextToken

_CLAUSE = re.compile(r"[^.!?;\n。！？；]+")


def expectations(text: str, catalogue: Catalogue) -> tuple[Expectation, ...]:
    """Every expectation of a text, with its factor and its window where they are said."""
    return tuple(_expected(text, catalogue))


def is_expectation(text: str) -> bool:
    """Whether words say what load is expected."""
    return (
        pattern("expecting").match(fold(text).text) is not None and pattern("load").search(fold(text).text) is not None
    )


def _expected(text: str, catalogue: Catalogue) -> Iterator[Expectation]:
    for clause in _CLAUSE.finditer(text):
        if is_expectation(clause[0]):
            words = clause[0].strip()
            tokens = tokenize(words, catalogue)
            window = next((token.value for token in tokens if token.kind is Kind.WINDOW), "always")
            start = text.index(words, clause.start())
            yield Expectation(words, _factor(tokens), window, start, start + len(words))


def _factor(tokens: list[TextToken]) -> float | None:
    """What the present load is multiplied by; None if the words do not say it."""
    for place, token in enumerate(tokens):
        if token.kind in {Kind.FACTOR, Kind.TIMES_SAID}:
            return float(token.value)
        behind = tokens[place + 1].kind if place + 1 < len(tokens) else None
        if token.kind is Kind.QUANTITY and token.value.unit is None and behind is Kind.TIMES:
            return float(token.value.number)
        if token.kind is Kind.QUANTITY and token.value.unit == "ratio":
            return float(f"{1 + token.value.value:.12g}")
    return None
