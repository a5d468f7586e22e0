"""One spelling for many.

NFKC, lower case, plain quotes, no invisible characters, each place traced to the original.
"""

import unicodedata
from dataclasses import dataclass
from functools import lru_cache

_PLAIN = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "−": "-", "–": "-", "—": "-"})

Place = tuple[int, int]
"""Half-open, in a text."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Folded text; ``origin[i]`` is where its character ``i`` stands in the original."""

    text: str
    origin: tuple[int, ...]

    def span(self, start: int, end: int) -> Place:
        """The half-open span of the original that folded ``start`` to ``end`` came from."""
        return self.origin[start], self.origin[end - 1] + 1


@lru_cache(maxsize=256)  # parts of a text are looked at again and again
def fold(text: str) -> Folded:
    """Fold character by character, so that every result has one place it came from."""
    if text.isascii() and text.isprintable():
        return Folded(text.lower(), tuple(range(len(text))))
    characters: list[str] = []
    origin: list[int] = []
    for place, character in enumerate(text):
        category = unicodedata.category(character)
        if category == "Cf":  # zero-width and bidirectional marks hide words
            continue
        letter = " " if category == "Cc" and character not in "\n\t" else character  # controls part words, no more
        for folded in unicodedata.normalize("NFKC", letter.translate(_PLAIN)).lower():
            characters.append(folded)
            origin.append(place)
    return Folded("".join(characters), tuple(origin))


def overlaps(first: Place, other: Place) -> bool:
    """Whether two places share a character."""
    return first[0] < other[1] and other[0] < first[1]


def is_chinese(text: str) -> bool:
    """Whether at least a fifth of the letters are Han characters."""
    letters = [character for character in text if character.isalpha()]
    han = sum("\u4e00" <= character <= "\u9fff" for character in letters)
    return bool(letters) and han * 5 >= len(letters)
