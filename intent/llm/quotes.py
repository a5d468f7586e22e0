"""Where the words that an LLM copied stand in the text: whole words, whatever their case and width. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from intent.fold import Folded, Place, fold, overlaps
from intent.models import Catalogue
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token

_HAN_DIGITS = frozenset("零〇一二两三四五六七八九十百千万亿点")


@dataclass(frozen=True, slots=True)
class Source:
    """The text in the forms that quotes are looked for in."""

    text: str
    folded: Folded
    tokens: tuple[Token, ...]
    catalogue: Catalogue

    @classmethod
    def of(cls, text: str, catalogue: Catalogue) -> "Source":
        """Of a text that names things of a catalogue."""
        tokens = (one for one in tokenize(text, catalogue) if not _is_chance_node(one, catalogue))
        return cls(text, fold(text), tuple(tokens), catalogue)

    def places(self, quote: str) -> list[Place]:
        """Where a quote stands."""
        wanted = fold(quote).text.strip()
        found = _occurrences(self.folded.text, wanted) if wanted else ()
        return [self.folded.span(start, start + len(wanted)) for start in found]

    def place(self, quote: str, near: Place) -> Place | None:
        """Where a quote stands: within ``near``, or else where it is nearest to it."""
        return min(self.places(quote), key=lambda one: distance(one, near), default=None)

    def within(self, place: Place) -> list[Token]:
        """The tokens that stand in a place, or reach into it."""
        return [one for one in self.tokens if overlaps((one.start, one.end), place)]

    def covering(self, place: Place) -> Token | None:
        """The token that holds this place."""
        return next((one for one in self.tokens if one.start <= place[0] and place[1] <= one.end), None)


def _is_chance_node(token: Token, catalogue: Catalogue) -> bool:
    """Whether a word only looks like a node's name, behind "host": a model that knows the names would have copied it."""
    known = {f"node:{name}" for name in catalogue.nodes}
    return token.kind is Kind.SELECTOR and str(token.value).startswith("node:") and token.value not in known


def distance(one: Place, other: Place) -> int:
    """Characters between two places; 0 if they touch or overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    """Where the wanted words stand without being a piece of a longer word or number."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (
            _continues(before, wanted[0], text[start - 2 : start - 1])
            or _continues(wanted[-1], after, text[end + 1 : end + 2])
        ):
            yield start
        start = text.find(wanted, start + 1)


def _continues(left: str, right: str, beyond: str) -> bool:
    """Whether two neighbours belong to one word (``at`` in ``rate``) or number (``2`` in ``2.5``); ``2s`` is two words."""
    pair = left + right
    if len(pair) < 2:
        return False
    if not pair.isascii():
        return all(one in _HAN_DIGITS for one in pair)
    if pair.isalpha() or pair.isdigit():
        return True
    digit_beside_point = any(one.isdigit() for one in pair) and any(one in ".," for one in pair)
    return digit_beside_point and beyond.isdigit()
