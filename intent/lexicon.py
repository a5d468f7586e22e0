"""The words the rules know: phrases as people write them, to what they mean; and the one splitter for data and text.

A phrase is split by the same ``split`` as the text, so ``off-peak``, ``off peak`` and ``Off Peak`` are one entry,
``p99.9`` is the two words ``p`` and ``99.9``, and every Han character is a word.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from typing import Any

from intent import chinese, english
from intent.fold import fold
from intent.kinds import Kind

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(
    rf"""(?P<sign>(?<![a-z0-9.)%])-(?=\.?\d))
      | (?:\d+(?:[.,]\d+)*|\.\d+)(?:e[+-]?\d+)?
      | [{_HAN}]
      | [^\W\d_{_HAN}]+(?:'[^\W\d_{_HAN}]+)?
      | \n
      | <=|>=|=<|=>|==|!=|->
      | [^\s_]""",
    re.VERBOSE,
)

LONGEST = 14
"""Words in the longest phrase that is looked for; a test holds the data to it."""
NAMED_ELSEWHERE = frozenset({"always", "peak", "off_peak", "overnight", "business_hours"})
"""Windows whose phrases are data of the languages."""
MINUS = "−"
"""The sign of a number; folding leaves no other of its kind in a text."""


def split(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of folded text with their half-open spans.

    Hyphens that only bind letters are left out, and one that is the sign of a number becomes ``MINUS``.
    """
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match["sign"]:
            yield MINUS, start, end
            continue
        before, after = text[start - 1 : start], text[end : end + 1]
        if match[0] == "-" and (before.isalpha() or after.isalpha()) and before.strip() and after.strip():
            continue
        yield match[0], start, end


def words(phrase: str) -> tuple[str, ...]:
    """The words of a phrase, folded like a text."""
    return tuple(word for word, _, _ in split(fold(phrase).text))


@cache
def phrases() -> Mapping[tuple[str, ...], tuple[Kind, Any]]:
    """Every known phrase, as its words, to its kind and meaning."""
    return {words(phrase): (kind, value) for phrase, kind, value in chain(english.entries(), chinese.entries())}


@cache
def vocabulary() -> frozenset[str]:
    """Every single word that stands in some phrase."""
    return frozenset(word for phrase in phrases() for word in phrase)


_FUZZY_KINDS = frozenset(
    {
        Kind.METRIC, Kind.STAT, Kind.COMPARISON, Kind.UNIT, Kind.WINDOW, Kind.SETTING, Kind.COUNTED, Kind.CHANGE, Kind.PRIORITY,
        Kind.RECONFIG, Kind.OPTIMISE, Kind.PRECISION, Kind.WORKLOAD, Kind.AUDIENCE, Kind.QUANTISE, Kind.EXCEPT,
    }
)  # fmt: skip


@cache
def correctable() -> tuple[str, ...]:
    """Words worth a spelling correction: in phrases that carry meaning, and long enough not to be met by chance."""
    found = {word for phrase, (kind, _) in phrases().items() if kind in _FUZZY_KINDS for word in phrase}
    return tuple(sorted(word for word in found if len(word) >= 5 or word in {"ttft", "tpot"}))
