"""Misspelt words to the known ones that were meant.

Slips of the keyboard in English, homophones in Chinese. Pure.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from rapidfuzz import fuzz, process
from rapidfuzz.distance import DamerauLevenshtein

from intent.rules import lexicon
from intent.rules.kinds import Kind

if TYPE_CHECKING:
    from spellchecker import SpellChecker

SIMILAR_ENOUGH = 85
"""Similarity (0-100) from which a misspelt word is taken for a known one; two swapped letters of seven score 86."""
GAP = ""
"""Stands for the character that is wrong."""


def corrected(words: Sequence[str], names: frozenset[str], whole: frozenset[str] = frozenset()) -> list[str]:
    """The words as they were meant; known ones and the words of the deployment's names are never changed.

    One that is a letter away from a ``whole`` name is that name, even if it is English: ``lama``.
    """
    known = lexicon.vocabulary() | names
    return [word if word in known else _by_letters(word, names, whole) for word in words]


def heard(words: Sequence[str], places: Sequence[int]) -> dict[int, str]:
    """The Chinese characters that were meant at some places, where it is not the one that stands there."""
    meant = list(words)
    for place in places:
        if len(words[place]) == 1 and "\u4e00" <= words[place] <= "\u9fff":
            meant[place] = _by_sound(meant, place)
    return {place: meant[place] for place in places if meant[place] != words[place]}


def doubtful(word: str, names: frozenset[str]) -> str | None:
    """What a word without a meaning may stand for.

    The short form of a name, a time that is misspelt or glued to a word.
    """
    if not (word.isascii() and word.isalpha()):
        return None
    starts = (name for name in names if len(word) >= _SHORT and len(name) >= len(word) + 2 and name.startswith(word))
    held = (phrase for phrase in lexicon.times() if _holds(word, phrase))
    short = (item for item in lexicon.short() if len(word) == _SHORT and item[0] == word[0])
    near = next(chain(starts, held, (item for item in short if DamerauLevenshtein.distance(word, item) == 1)), None)
    return near if near and not _is_english(word) else None


def _holds(word: str, time: str) -> bool:
    glued = len(word) > len(time) and (word.startswith(time) or word.endswith(time))
    return glued or (abs(len(word) - len(time)) <= 1 and DamerauLevenshtein.distance(word, time) == 1)


def parted(word: str, names: frozenset[str]) -> int:
    """Where a word is two known ones that nothing parts, ``atpeak``; 0 if it is not."""
    known = word in lexicon.vocabulary() or word in names
    if known or len(word) <= _GLUED or not (word.isascii() and word.isalpha()):
        return 0
    slip = _by_letters(word, names, frozenset())
    if slip != word and DamerauLevenshtein.distance(slip, word) == 1 and word[1:] != slip:
        return 0
    first = 1 if word[0] in "ak" else 2  # "ahundred", "1.2ktokens"
    place = next(
        (
            n
            for n in range(first, len(word) - 1)
            if all(part in lexicon.parts() or part in names for part in (word[:n], word[n:]))
        ),
        0,
    )
    phrase = (word[:place], word[place:]) in lexicon.phrases()
    return place if place and (phrase or not _is_english(word)) else 0


_SHORT = 3
"""Letters of the shortest short form of a name: ``ent``."""
_GLUED = 3


def _by_letters(word: str, names: frozenset[str], whole: frozenset[str]) -> str:
    if len(word) < 4 or len(word) > 20 or not word.isascii() or not word.isalpha():
        return word
    known = (*lexicon.correctable(), *(name for name in names if len(name) >= 4))
    match = process.extractOne(word, known, scorer=fuzz.ratio, score_cutoff=SIMILAR_ENOUGH)
    alike = tuple(item for item in known if item[0] == word[0]) if match is None else ()
    near = process.extractOne(word, alike, scorer=DamerauLevenshtein.distance, score_cutoff=1)
    meant = str(match[0]) if match else str(near[0]) if near else word  # a slip of one letter: "leest", "paek"
    if word == f"un{meant}":  # "uncordon" is no slip for "cordon"
        return word
    slip = len(meant) > 4 and meant in whole and DamerauLevenshtein.distance(word, meant) == 1
    return meant if meant == word or slip or not _is_english(word) else word


def _is_english(word: str) -> bool:
    """Whether it is a word of its own: ``pending`` is no slip for ``spending``."""
    return word in _dictionary()


@cache
def _dictionary() -> "SpellChecker":
    """English words; 0.1 s to load, and only a word that is nearly a known one needs it."""
    from spellchecker import SpellChecker

    return SpellChecker(language="en")


def _by_sound(words: Sequence[str], place: int) -> str:
    """``高锋期`` is 高峰期: characters that sound alike and make a known phrase, the longest first."""
    for start, end in _spans(place, len(words)):
        gapped = (*words[start:place], GAP, *words[place + 1 : end])
        meant = {phrase for phrase in _phrases_with_a_gap().get(gapped, ()) if _sounds(phrase) & _sounds(words[place])}
        if len(meant) == 1:
            return meant.pop()
    return words[place]


def _spans(place: int, count: int) -> Iterator[tuple[int, int]]:
    """Half-open stretches of two words and more that hold a place."""
    for length in range(lexicon.LONGEST, 1, -1):
        for start in range(max(0, place - length + 1), min(place, count - length) + 1):
            yield start, start + length


@cache
def _phrases_with_a_gap() -> Mapping[tuple[str, ...], set[str]]:
    """Chinese phrases that carry meaning, each character left out in turn, to the characters left out.

    Two characters are enough to know a metric (城本); elsewhere they would be met by chance (高风险 is no 高峰).
    """
    gaps = defaultdict(set)
    for phrase, (kind, _) in lexicon.phrases().items():
        long = len(phrase) >= 3 or (len(phrase) == 2 and kind is Kind.METRIC)
        if long and kind in lexicon.TELLING and all(word >= "\u3400" for word in phrase):
            for place, left_out in enumerate(phrase):
                gaps[*phrase[:place], GAP, *phrase[place + 1 :]].add(left_out)
    return gaps


@cache
def _sounds(character: str) -> frozenset[str]:
    """The syllables that a character may be read as, without tones."""
    from pypinyin import Style, pinyin

    return frozenset(*pinyin(character, style=Style.NORMAL, heteronym=True))
