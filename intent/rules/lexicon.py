"""The words the rules know: phrases as people write them, to what they mean.

And the one splitter for data and text.

The phrases are data, ``english.yaml`` and ``chinese.yaml``. A phrase is split by the same ``split`` as the text, so ``off-peak``,
``off peak`` and ``Off Peak`` are one entry, ``p99.9`` is the two words ``p`` and ``99.9``, and every Han character is a word.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, permutations, product
from typing import Any

from intent.fold import fold
from intent.rules.kinds import Kind
from intent.rules.quantities import Quantity
from intent.tables import table
from intent.times.clock import PLACES
from intent.times.scanner import MONTHS, WORDS

_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(
    rf"""(?P<sign>(?<![a-z0-9.)%])-(?=\.?\d))
      | (?:\d+(?:[.,]\d+)*|\.\d+)(?:e[+-]?\d+)?
      | [{_HAN}]
      | \b(?:max|min|avg|approx|incl|ca|vs)\.
      | [^\W\d_{_HAN}]+(?:'[^\W\d_{_HAN}]+)?
      | \n
      | <=|>=|=<|=>|==|!=|->
      | [^\s_]""",
    re.VERBOSE,
)

LONGEST = 14
"""Words in the longest phrase that is looked for."""
NAMED_ELSEWHERE = frozenset({"always", "peak", "off_peak", "overnight", "business_hours"})
"""Windows whose phrases are data of the languages."""
MINUS = "−"
"""The sign of a number; folding leaves no other of its kind in a text."""

Entry = tuple[str, Kind, Any]
"""Phrase, kind and meaning."""


def split(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of folded text with their half-open spans.

    Hyphens that only bind letters are left out, and one that is the sign of a number becomes ``MINUS``.
    """
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match["sign"]:
            yield MINUS, start, end
            continue
        before = text[start - 1 : start]
        after = text[end : end + 1]
        if match[0] == "-" and (before.isalpha() or after.isalpha()) and before.strip() and after.strip():
            continue
        yield match[0].removesuffix(".") if match[0][:1].isalpha() else match[0], start, end


def words(phrase: str) -> tuple[str, ...]:
    """The words of a phrase, folded like a text."""
    return tuple(word for word, _, _ in split(fold(phrase).text))


@cache
def phrases() -> Mapping[tuple[str, ...], tuple[Kind, Any]]:
    """Every known phrase, as its words, to its kind and meaning.

    A later entry of a phrase replaces an earlier one.
    """
    english = _data("english")
    chinese = _data("chinese")
    entries = chain(_fillers(english), _english_rates(english), _said(english), _english_compounds(english),
                    _fillers(chinese), _chinese_rates(chinese), _said(chinese))  # fmt: skip
    return {words(phrase): (kind, value) for phrase, kind, value in entries}


@cache
def vocabulary() -> frozenset[str]:
    """Every single word that stands in some phrase."""
    return frozenset(word for phrase in phrases() for word in phrase)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """The words of a class of ``statements.yaml``, as one pattern of folded text."""
    part = _data("statements")[name]
    english = [rf"\b(?:{'|'.join(part['english'])})\b"] if "english" in part else []
    return re.compile("|".join([*english, *part.get("chinese", ()), *part.get("whole", ())]), re.ASCII)


TELLING = frozenset(
    {Kind.METRIC, Kind.STAT, Kind.COMPARISON, Kind.UNIT, Kind.WINDOW, Kind.SETTING, Kind.COUNTED, Kind.CHANGE, Kind.PRIORITY,
     Kind.RECONFIG, Kind.OPTIMISE, Kind.PRECISION, Kind.WORKLOAD, Kind.AUDIENCE, Kind.QUANTISE, Kind.EXCEPT,
     Kind.AVOID, Kind.FREEZE}
)  # fmt: skip
"""Kinds of phrases that are worth a spelling correction."""


@cache
def correctable() -> tuple[str, ...]:
    """Words worth a spelling correction.

    In phrases that carry meaning, and long enough not to be met by chance.
    """
    found = {word for phrase, (kind, _) in phrases().items() if kind in TELLING | _SAYING for word in phrase}
    return tuple(sorted({word for word in found if len(word) >= 5} | short()))


@cache
def short() -> frozenset[str]:
    """Words of four letters that are a metric, a window or whom a goal is for."""
    kinds = {Kind.METRIC, Kind.WINDOW, Kind.AUDIENCE}
    words = (phrase[0] for phrase, (kind, _) in phrases().items() if kind in kinds and len(phrase) == 1)
    return frozenset(word for word in words if len(word) == 4 and word.isascii())


_SAYING = frozenset(
    {Kind.CHEAPEST, Kind.VAGUE, Kind.FACTOR, Kind.NUMBER, Kind.MULTIPLIER, Kind.PERIOD, Kind.LIMITING, Kind.NEGATION, Kind.ONLY}
)  # fmt: skip
"""More kinds of English phrases whose loss would change a wish."""


@cache
def parts() -> frozenset[str]:
    """Words that may be glued to another one.

    No time, and no unit or "or", too short to be looked for in a word.
    """
    text = ((phrase[0], kind) for phrase, (kind, _) in phrases().items() if len(phrase) == 1)
    tiny = {word for word, kind in text if len(word) < _TINY.get(kind, 0)}
    return vocabulary() - tiny - {*times()}


_TINY = {Kind.UNIT: 4, Kind.LIMITING: 3}


@cache
def times() -> tuple[str, ...]:
    """English words for times that are long enough not to be met by chance in another word."""
    text = (*WORDS, *MONTHS, *PLACES, "europe", "america")
    return tuple(word for word in text if word.isascii() and word.isalpha() and len(word) > 4)


# -- from the data to entries ----------------------------------------------------------------------


def _data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = table(__package__, name)
    return found


def _fillers(data: Mapping[str, Any]) -> Iterator[Entry]:
    yield from ((word, Kind.FILLER, word) for word in (*data["fillers"], *data["idioms"]))


def _said(data: Mapping[str, Any]) -> Iterator[Entry]:
    """The sections named like a kind."""
    for name, section in data.items():
        if name in set(Kind):
            kind = Kind(name)
            keeps = kind in {Kind.TO, Kind.TENANT}  # their empty meaning is a meaning
            for meaning, wordings in section.items():
                yield from (
                    (phrase, kind, phrase if meaning == "" and not keeps else meaning)
                    for wording in wordings
                    for phrase in _variants(wording)
                )
    for name in ("nines", "parts"):  # whole numbers and fractions: see amounts
        yield from ((phrase, Kind.QUANTITY, value) for value, phrases in data[name].items() for phrase in phrases)
    spans = ((phrase, Quantity(seconds, "s")) for seconds, phrases in data["spans"].items() for phrase in phrases)
    yield from ((phrase, Kind.QUANTITY, span) for phrase, span in spans)
    yield from ((phrase, Kind.UNIT, ("ratio", 0.001)) for phrase in data.get("per_mille", ()))
    yield from ((phrase, Kind.UNIT, (unit, 0.01)) for unit, phrases in data["ratios"].items() for phrase in phrases)


def _variants(phrase: str) -> set[str]:
    """A phrase with each of the three words for latency, which stand for one another."""
    words_for_it = ("延迟", "时延", "延时")
    return {phrase, *(phrase.replace(order, other) for order, other in permutations(words_for_it, 2))}


def _english_rates(data: Mapping[str, Any]) -> Iterator[Entry]:
    """``ms``, ``ms per token``, ``tokens per second``, ``rpm``."""
    per = data["per"]
    for factor, names in data["seconds"].items():
        yield from ((name, Kind.UNIT, ("s", factor)) for name in names)
        yield from (
            (f"{name} {per_word} {token}", Kind.UNIT, ("s/token", factor))
            for name, per_word, token in product(names, per, data["token_units"])
        )
        if factor >= 1.0:
            seconds = [*names, "min"] if factor == 60.0 else names  # alone, min is a minimum
            for unit, nouns in data["things"].items():
                yield from (
                    (f"{noun} {per_word} {name}", Kind.UNIT, (unit, 1 / factor))
                    for noun, per_word, name in product(nouns, per, seconds)
                )
    yield from ((name, Kind.UNIT, (unit, 1 / seconds)) for name, (unit, seconds) in data["rates"].items())


def _english_compounds(data: Mapping[str, Any]) -> Iterator[Entry]:
    """``per hour``, ``per user``, ``during peak``, ``lower than now``, ``four fifths``."""
    for part, parts in data["fractions"].items():
        counts = [(1, word) for word in ("a", "an", "one")]
        counts += [(count, name) for count, names in data["number"].items() if 1 < count < part for name in names]
        for (count, name), form, of in product(counts, parts, ("", " of a")):
            yield f"{name} {form}{'s' if count > 1 else ''}{of}", Kind.NUMBER, count / part
    for period, names in data["periods"].items():
        yield from ((f"{per_word} {name}", Kind.PERIOD, period) for per_word, name in product(data["per"], names))
    yield from ((word, Kind.PERIOD, period) for period, phrases in data["period_words"].items() for word in phrases)
    yield from ((f"{each} {user}", Kind.PER_USER, "") for each, user in product(data["each"], data["users"]))
    for side, counts in data["than"].items():
        yield from ((f"{word} than {now}", Kind.CHANGE, side) for word, now in product(counts, data["nows"]))
    for window, counts in data["window"].items():
        if window != "always":
            yield from (
                (f"{during} {phrase}", Kind.WINDOW, window) for during, phrase in product(data["during"], counts)
            )


def _chinese_rates(data: Mapping[str, Any]) -> Iterator[Entry]:
    """``毫秒``, ``毫秒每token``, ``请求每秒``, ``每小时``."""
    for factor, names in data["seconds"].items():
        yield from ((name, Kind.UNIT, ("s", factor)) for name in names)
        yield from (
            (f"{name}{each}", Kind.UNIT, ("s/token", factor)) for name, each in product(names, data["each_token"])
        )
        if factor >= 1.0:
            for unit, nouns in data["things"].items():
                yield from (
                    (f"{noun}{per}{name}", Kind.UNIT, (unit, 1 / factor))
                    for noun, per, name in product(nouns, data["per"], names)
                )
    latin = product((("ms", 1e-3), ("s", 1.0)), data["each_token"])
    yield from ((f"{name}{each}", Kind.UNIT, ("s/token", factor)) for (name, factor), each in latin)
    yield from ((name, Kind.UNIT, ("ratio", 0.1)) for name in data["tenths"])
    kept = product(data["not_than"], data["nows"], data["worse"])
    yield from ((f"{no}{now}{worse}", Kind.FACTOR, 1.0) for no, now, worse in kept)
    yield from (
        (phrase, Kind.PERIOD, period) for period, phrases in data["period_phrases"].items() for phrase in phrases
    )
