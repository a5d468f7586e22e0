"""Text to tokens: known phrases, numbers joined with their units, negated comparisons turned round.

Every token remembers where it stands in the original text. Nothing is dropped: a word without a meaning is ``UNKNOWN``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rapidfuzz import fuzz, process

from intent import lexicon
from intent.fold import fold
from intent.lexicon import Kind
from intent.models import Catalogue
from intent.quantities import PER_USER, Quantity, parse_number

SIMILAR_ENOUGH = 85
"""Similarity (0-100) from which a misspelt word is taken for a known one; two swapped letters of seven score 86."""

Names = Mapping[tuple[str, ...], tuple[Kind, Any]]


@dataclass(frozen=True, slots=True)
class Token:
    """A word or phrase with its meaning and its half-open place in the original text."""

    kind: Kind
    value: Any
    start: int
    end: int
    misspelt: tuple[str, str] | None = None
    """The word as written and what it was taken for."""


def tokenize(text: str, catalogue: Catalogue) -> list[Token]:
    """The tokens of a text, in order."""
    tokens = _read_phrases(text, _names(catalogue))
    for assemble in (_numbers, _shares, _quantities, _ranges, _relatives, _negations):
        tokens = list(_rewritten(tokens, assemble))
    return tokens


def _names(catalogue: Catalogue) -> Names:
    names = [(name, Kind.TENANT, name) for name in catalogue.tenants]
    names += [(name, Kind.MODEL, name) for name in catalogue.models]
    names += [(name, Kind.WINDOW, name) for name in catalogue.windows]
    for alias, name in catalogue.aliases.items():
        names.append((alias, Kind.TENANT if name in catalogue.tenants else Kind.MODEL, name))
    return {
        tuple(word for word, _, _ in lexicon.split(fold(said).text)): (kind, name)
        for said, kind, name in names
    }


def _read_phrases(text: str, names: Names) -> list[Token]:
    folded = fold(text)
    found = list(lexicon.split(folded.text))
    known = {**names, **lexicon.phrases()}
    vocabulary = lexicon.vocabulary().union(*names)
    words = [_corrected(word, vocabulary) for word, _, _ in found]
    longest = max(map(len, known))
    tokens, place = [], 0
    while place < len(words):
        most = min(longest, len(words) - place)
        length = next((n for n in range(most, 0, -1) if tuple(words[place : place + n]) in known), 1)
        part = tuple(words[place : place + length])
        kind, value = known.get(part, (Kind.UNKNOWN, part[0]))
        start, end = folded.span(found[place][1], found[place + length - 1][2])
        fixes = [(was, now) for (was, _, _), now in zip(found[place:], part, strict=False) if was != now]
        tokens.append(Token(kind, value, start, end, fixes[0] if fixes else None))
        place += length
    return tokens


def _corrected(word: str, vocabulary: frozenset[str]) -> str:
    if len(word) < 4 or not word.isalpha() or word in vocabulary:
        return word
    match = process.extractOne(word, lexicon.correctable(), scorer=fuzz.ratio, score_cutoff=SIMILAR_ENOUGH)
    return match[0] if match else word


Rewrite = tuple[list[Token], int]
"""Tokens that stand for the first ``n``."""
Assembler = Callable[[Sequence[Token]], Rewrite | None]
"""Looks at the front of the tokens; None leaves the first as it is."""


def _rewritten(tokens: list[Token], assemble: Assembler) -> Iterator[Token]:
    place = 0
    while place < len(tokens):
        rewritten, used = assemble(tokens[place:]) or (tokens[place : place + 1], 1)
        yield from rewritten
        place += used


def _kinds(tokens: Sequence[Token], *kinds: Kind) -> bool:
    return len(tokens) >= len(kinds) and all(
        token.kind is kind for token, kind in zip(tokens, kinds, strict=False)
    )


def _spanning(tokens: Sequence[Token], kind: Kind, value: object) -> Token:
    fixes = [token.misspelt for token in tokens if token.misspelt]
    return Token(kind, value, tokens[0].start, tokens[-1].end, fixes[0] if fixes else None)


def _joined(tokens: Sequence[Token], kind: Kind, value: object) -> Rewrite:
    return [_spanning(tokens, kind, value)], len(tokens)


def _numbers(tokens: Sequence[Token]) -> Rewrite | None:
    """Digits with their sign and multiplier, a percentile outside the table (``p97``), and ``a second`` as 1 s."""
    first, rest = tokens[0], tokens[1:]
    following = _digits(rest[0]) if rest else None
    if first.value == lexicon.MINUS and following is not None:
        return _joined(tokens[:2], Kind.NUMBER, -following)
    if first.value == "p" and following is not None:
        return _joined(tokens[:2], Kind.STAT, f"p{following:g}")
    if first.value in {"a", "an"} and _kinds(rest, Kind.UNIT) and rest[0].value[0] == "s":
        return [replace(first, kind=Kind.NUMBER, value=1.0)], 1
    number = _digits(first)
    if number is None:
        return None
    if _kinds(rest, Kind.MULTIPLIER):
        return _joined(tokens[:2], Kind.NUMBER, number * rest[0].value)
    return [replace(first, kind=Kind.NUMBER, value=number)], 1


def _digits(token: Token) -> float | None:
    if token.kind is Kind.NUMBER:
        return float(token.value)
    return parse_number(token.value) if token.kind is Kind.UNKNOWN else None


def _shares(tokens: Sequence[Token]) -> Rewrite | None:
    """``99% of requests`` is the percentile 99."""
    if not _kinds(tokens, Kind.NUMBER, Kind.UNIT) or tokens[1].value[0] != "ratio":
        return None
    rest = [token.value for token in tokens[2:6]]
    for filler in (["of"], ["of", "the"], ["of", "all"], ["of", "our"], ["of", "all", "the"]):
        noun = rest[len(filler) : len(filler) + 1]
        if rest[: len(filler)] == filler and noun and noun[0] in _SHARED:
            return _joined(tokens[: 3 + len(filler)], Kind.STAT, f"p{tokens[0].value:g}")
    return None


_SHARED = frozenset({"requests", "request", "responses", "calls", "queries", "users", "prompts", "them"})


def _quantities(tokens: Sequence[Token]) -> Rewrite | None:
    """A number with what stands before it (a currency) and after it (a unit, or a currency, and a period)."""
    leading = 1 if _kinds(tokens, Kind.CURRENCY, Kind.NUMBER) else 0
    if not _kinds(tokens[leading:], Kind.NUMBER):
        return None
    number, after = tokens[leading].value, tokens[leading + 1 :]
    if leading or _kinds(after, Kind.CURRENCY):
        used = leading + 1 + (not leading)
        period = tokens[used : used + 1] if _kinds(tokens[used:], Kind.PERIOD) else []
        return _joined(
            tokens[: used + len(period)],
            Kind.QUANTITY,
            Quantity(number, period[0].value if period else "USD"),
        )
    if _kinds(after, Kind.UNIT, Kind.PER_USER) and after[0].value[0] == "tokens/s":
        return _joined(tokens[:3], Kind.QUANTITY, Quantity(number, PER_USER, after[0].value[1]))
    if _kinds(after, Kind.UNIT):
        return _joined(tokens[:2], Kind.QUANTITY, Quantity(number, *after[0].value))
    if _kinds(after, Kind.COMPARISON) and _is_minutes(after):
        return _joined(tokens[:2], Kind.QUANTITY, Quantity(number, "s", 60.0))
    return _joined(tokens[:1], Kind.QUANTITY, Quantity(number))


def _is_minutes(tokens: Sequence[Token]) -> bool:
    """Whether this comparison is the word ``min`` behind a number: minutes, unless another number follows it."""
    return (
        tokens[0].value == ">="
        and tokens[0].end - tokens[0].start == 3
        and not _kinds(tokens[1:], Kind.NUMBER)
    )


def _ranges(tokens: Sequence[Token]) -> Rewrite | None:
    """``between 60% and 80%`` and ``60-80%``; a unit said once holds for both."""
    between = _kinds(tokens, Kind.BETWEEN, Kind.QUANTITY, Kind.JOIN, Kind.QUANTITY)
    dashed = _kinds(tokens, Kind.QUANTITY, Kind.UNKNOWN, Kind.QUANTITY) and tokens[1].value == "-"
    if not (between or dashed):
        return None
    used = tokens[: 4 if between else 3]
    low, high = (token.value for token in used if token.kind is Kind.QUANTITY)
    if low.unit is None:
        low = low.in_unit(high.unit, high.factor)
    return _joined(used, Kind.RANGE, (low, high))


def _relatives(tokens: Sequence[Token]) -> Rewrite | None:
    """``by 20%`` is a change; ``by Friday`` is not, and not understood."""
    if tokens[0].value != "by" or _kinds(tokens[1:], Kind.QUANTITY):
        return None
    return [replace(tokens[0], kind=Kind.UNKNOWN)], 1


def _negations(tokens: Sequence[Token]) -> Rewrite | None:
    """``not above``, ``must never let TTFT exceed``: the comparison turns round and the negation is used up."""
    if tokens[0].kind is not Kind.NEGATION:
        return None
    between: list[Token] = []
    for token in tokens[1:]:
        if token.kind is Kind.COMPARISON and token.value in _OPPOSITE:
            turned = _spanning([tokens[0], token], Kind.COMPARISON, _OPPOSITE[token.value])
            return [turned, *between], len(between) + 2
        if token.kind not in {Kind.FILLER, Kind.METRIC, Kind.STAT}:
            return None
        between.append(token)
    return None


_OPPOSITE = {"<=": ">=", ">=": "<=", "better": "worse", "worse": "better"}
