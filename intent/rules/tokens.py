"""Text to tokens, each with its place in the original text.

Times, known phrases, names, numbers and misspelt words.

Nothing is dropped: a word without a meaning is ``UNKNOWN``. ``intent.rules.phrasing`` joins tokens to quantities and more.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, product
from typing import Any

from intent.fold import Folded, fold
from intent.models import Catalogue, RecurringWindow
from intent.rules import lexicon
from intent.rules.kinds import Kind
from intent.rules.numbers import han_number
from intent.rules.quantities import parse_number
from intent.rules.spelling import corrected, doubtful, heard, parted
from intent.tables import expanded, table
from intent.times import TimeMatch, find
from intent.times.periods import find_periods
from intent.times.pieces import number_of
from intent.times.spans import REST, find_rest

_NAMES = table("intent.rules", "names")
KNOWN_GPUS: tuple[str, ...] = tuple(_NAMES["gpus"])
_MODELS = re.compile(_NAMES["models"])
_NODE = re.compile(r"\b(?:node|host)\s+\w\b")
_NO_WINDOW = re.compile(_NAMES["no window"])
_LETTER = 2
"""Characters of a node's name that is too short to stand by itself: ``a`` is an article."""
_BAN = re.compile(_NAMES["ban"])
_SENTENCE = re.compile(r"(?:[^.;!?\n。；]|\.(?=\S))+")
_REFERENCE = "reference"
_MEASURED = "measured over"
_MENTION = re.compile(_NAMES["mention"])
_SLASHED = re.compile(r"(?<![\d/.])\d{1,2}/\d{1,2}(?=\s*(?:当天|那天|当日|号))")
Names = Mapping[tuple[str, ...], tuple[Kind, Any]]


@dataclass(frozen=True, slots=True)
class TextToken:
    """A word or phrase with its meaning and its half-open place in the original text."""

    kind: Kind
    value: Any
    start: int
    end: int
    misspelt: tuple[str, str] | None = None
    """The word as written and what it was taken for."""


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of a deployment, as words, with what is looked for in every text."""

    phrases: Names
    single: frozenset[str]
    """Every word of them."""
    whole: frozenset[str]
    """Those that are one word."""
    coded: tuple[str, ...]
    """Those with a number, which may be glued to a word before: ``onA100``."""


@dataclass(frozen=True, slots=True)
class _Word:
    said: str
    taken: str
    start: int
    end: int
    stands_alone: bool
    """A small letter with a blank behind it: ``a 100`` is no A100."""


def scan(text: str, catalogue: Catalogue) -> list[TextToken]:
    """The tokens of a text, in order, before any are joined."""
    folded = fold(text)
    names = _names(_Key(catalogue))
    tokens: list[TextToken] = []
    after = 0
    phrases = [
        *((start, end, (Kind.OVER, seconds)) for start, end, seconds in find_periods(folded.text)),
        *_layers(folded.text),
    ]
    meant = {start: meaning for start, _, meaning in phrases}
    for match in sorted(
        [
            *(TimeMatch(start, end, None, _MEASURED) for start, end, _ in phrases),
            *find(_masked(folded.text, phrases), catalogue),
            *_references(folded.text, names.phrases),
            *_dates(folded.text),
            *_rests(folded.text),
        ],
        key=lambda match: match.start,
    ):
        if match.start < after:
            continue
        tokens += _said(_words(text, folded, after, match.start, names), names)
        after = match.end - _daily(folded.text, match)
        kind, value = meant[match.start] if match.problem == _MEASURED else _meaning(match, folded.text)
        tokens.append(TextToken(kind, value, *folded.span(match.start, after)))
    return tokens + _said(_words(text, folded, after, len(folded.text), names), names)


def _layers(text: str) -> Iterator[tuple[int, int, tuple[Kind, Any]]]:
    """Words for layers in a folded text with what they name; "" where that is open."""
    for match in _LAYERS.finditer(text):
        words = map(number_of, re.findall(r"\d+|[a-z]+|[一二两三四五六七八九十]+", match[0].partition("(")[0]))
        counts = [f"{number:g}" for number in words if number is not None] or ["1"]
        named = {
            "both": (f"first {counts[0]}", f"last {counts[-1]}"),
            "first": (f"first {counts[0]}",),
            "last": (f"last {counts[0]}",),
            "middle": ("middle",),
            "range": tuple(f"{first}-{last}" for first, last in zip(counts[::2], counts[1::2], strict=False)),
            "one": tuple(f"{count}-{count}" for count in counts),
        }
        yield *match.span(), (Kind.LAYERS, named.get(match.lastgroup or "", ""))


_LAYERS = re.compile(
    expanded(
        "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in table("intent.rules", "layers")["named"].items()),
        table("intent.rules", "layers")["parts"],
    ),
    re.ASCII,
)


def _daily(text: str, match: TimeMatch) -> int:
    """Characters of a 每天 at the end of named days: ``周末每天 200 美元`` is a price per day."""
    words = text[match.start : match.end]
    whole_days = (
        isinstance(match.window, RecurringWindow) and match.window.start == "00:00" and match.window.end == "24:00"
    )
    return 2 if whole_days and words.endswith(("每天", "每日")) and len(words) > 2 else 0


def _masked(text: str, periods: Iterable[tuple[int, int, object]]) -> str:
    """The text without what only looks like a time: ``node a every day``, ``no worse than today``."""
    for start, end, _ in periods:
        text = text[:start] + "#" * (end - start) + text[end:]
    return _NO_WINDOW.sub(_blank, _NODE.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    return "#" * len(match[0])


def _references(text: str, names: Names) -> list[TimeMatch]:
    """Tickets, addresses and people that are mentioned.

    They say nothing of a goal, unless somebody is a tenant.
    """
    found = (match for match in _MENTION.finditer(text) if lexicon.words(match[0].strip(" \t@#")) not in names)
    return [TimeMatch(match.start(), match.end(), None, _REFERENCE) for match in found]


def _dates(text: str) -> list[TimeMatch]:
    """``03/04当天``: a date that could be two."""
    return [TimeMatch(match.start(), match.end(), None, "ambiguous_time") for match in _SLASHED.finditer(text)]


def _rests(text: str) -> list[TimeMatch]:
    return [TimeMatch(start, end, REST, None) for start, end in find_rest(text)]


def _meaning(match: TimeMatch, text: str) -> tuple[Kind, Any]:
    parts = (part[0] for part in _SENTENCE.finditer(text) if part.start() <= match.start < part.end())
    once = match.problem == "ambiguous_time" and match.window and any(map(_BAN.search, parts))
    if match.problem is None or once:
        return Kind.WINDOW, match.window
    kinds = {
        _REFERENCE: Kind.FILLER,
        "past_date": Kind.BAD_TIME if _is_dated(text[match.start : match.end]) else Kind.REPORT,
    }
    return kinds.get(match.problem, Kind.BAD_TIME), match.problem


def _is_dated(text: str) -> bool:
    """Whether a past day was said by its date: a slip; ``yesterday`` tells what was."""
    return any(character.isdigit() for character in text)


class _Key:
    """A catalogue by its names, so that phrases are made once for each deployment."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._parts = (
            catalogue.tenants, catalogue.models, catalogue.windows, tuple(catalogue.aliases.items()), catalogue.gpu_kinds,
            catalogue.nodes,
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._parts == other._parts


@lru_cache(maxsize=64)
def _names(key: _Key) -> _Names:
    catalogue = key.catalogue
    names: dict[tuple[str, ...], tuple[Kind, Any]] = {}
    for kind in (*KNOWN_GPUS, *catalogue.gpu_kinds):
        for phrase in (kind, f"{kind}s", f"{kind}卡", f"{kind}上"):
            names[lexicon.words(phrase)] = (Kind.SELECTOR, f"gpu_type:{kind}")
    for kind, form in product(("4090", "3090"), ("{}卡", "{}显卡", "{}上", "{} 上", "{} gpu", "{} gpus", "{}s")):
        names[lexicon.words(form.format(kind))] = (Kind.SELECTOR, f"gpu_type:RTX{kind}")
    for node in catalogue.nodes:
        for form in (
            "node {}",
            "node{}",
            "{}节点",
            "节点{}",
            "host {}",
            "{}机",
            *(("{} node",) if node != "a" else ()),
        ):
            names[lexicon.words(form.format(node))] = (Kind.SELECTOR, f"node:{node}")
        if len(node) > _LETTER:
            names[lexicon.words(node)] = (Kind.SELECTOR, f"node:{node}")
    for name in _NAMES["chinese models"]:
        names[lexicon.words(name)] = (Kind.MODEL, None)
    known = [(name, Kind.WINDOW, name) for name in catalogue.windows if name not in lexicon.NAMED_ELSEWHERE]
    known += [(name, Kind.MODEL, name) for name in catalogue.models]
    known += [(name, Kind.TENANT, name) for name in catalogue.tenants]
    for alias, name in catalogue.aliases.items():
        known.append((alias, Kind.TENANT if name in catalogue.tenants else Kind.MODEL, name))
    known += [(f"{phrase}'s", kind, name) for phrase, kind, name in known if phrase.isascii()]
    phrases = names | {lexicon.words(phrase): (kind, name) for phrase, kind, name in known}
    coded = tuple(name for name in map("".join, phrases) if name.isascii() and re.search(r"[a-z]\d", name))
    whole = frozenset(name[0] for name in phrases if len(name) == 1)
    return _Names(phrases, frozenset(word for name in phrases for word in name), whole, coded)


def _words(text: str, folded: Folded, start: int, end: int, names: _Names) -> list[_Word]:
    words = list(chain.from_iterable(_apart(word, names.single) for word in lexicon.split(folded.text[start:end])))
    taken = corrected([word for _, word, _, _ in words], names.single, names.whole)
    found = []
    for (written, _, first, last), meant in zip(words, taken, strict=True):
        place = folded.span(start + first, start + last)
        found.append(_Word(written, meant, *place, _ALONE.fullmatch(text[place[0] : place[1] + 1]) is not None))
    return found


_ALONE = re.compile(r"[a-z]\s")


def _apart(text: tuple[str, int, int], names: frozenset[str]) -> Iterator[tuple[str, str, int, int]]:
    """A word as it is written and as it is read: once, or as the two that it is when a space is put in."""
    word, start, end = text
    if place := parted(word, names):
        yield word, word[:place], start, start + place
    yield word, word[place:], start + place, end


def _said(words: Sequence[_Word], names: _Names) -> list[TextToken]:
    """The phrases of some words.

    A Chinese character that none of them holds may be a homophone of the one that was meant.
    """
    tokens = _phrases(words, names)
    lost = {token.start for token in tokens if token.kind is Kind.UNKNOWN}
    places = [place for place, word in enumerate(words) if word.start in lost]
    meant = heard([word.taken for word in words], places)
    if not meant:
        return tokens
    return _phrases([replace(word, taken=meant.get(n, word.taken)) for n, word in enumerate(words)], names)


def _phrases(words: Sequence[_Word], names: _Names) -> list[TextToken]:
    taken = [word.taken for word in words]
    known = lexicon.phrases()
    tokens = []
    place = 0
    while place < len(words):
        near = min(len(words), place + lexicon.LONGEST)
        close = next((n for n in range(place + 1, near) if words[n].start > words[n - 1].end), near)
        number = han_number(taken[place:close])
        counts = words[place].stands_alone and taken[place + 1 : place + 2] and taken[place + 1][0].isdigit()
        phrases = {} if counts else names.phrases
        kind, value, length = _longest(taken[place : place + lexicon.LONGEST], (phrases, known), number)
        part = words[place : place + length]
        fix = next(((word.said, word.taken) for word in part if word.said != word.taken), None)
        if kind is Kind.UNKNOWN:
            glued = "".join(word.taken for word in words[place : min(close, place + 2)])  # "onA100"
            meant = doubtful(str(value), names.single) or next(
                (name for name in names.coded if glued.isascii() and glued.endswith(name)), None
            )
            fix = (str(value), meant) if meant else fix if fix and fix[1] in lexicon.times() else None
        tokens.append(TextToken(kind, value, part[0].start, part[-1].end, fix))
        place += length
    return tokens


_PARTS = (["half", "a"], ["half", "an"])
"""``by half a percent`` is no ``by half``."""


def _longest(taken: list[str], phrases: tuple[Names, Names], number: tuple[float, int] | None) -> tuple[Kind, Any, int]:
    """Kind, meaning and number of words of what stands at the front.

    A name, a number or the longest known phrase.
    """
    names, known = phrases
    for length in range(len(taken), 0, -1):
        part = tuple(taken[:length])
        found = names.get(part) or known.get(part)
        hedged = (
            found
            and found[0] is Kind.OPTIMISE
            and taken[length : length + 1] in (["于"], ["过"], ["在"], ["到"], ["进"])
        )  # 尽量低于 2 秒
        part_of = found and found[0] is Kind.FACTOR and taken[length - 1 : length + 1] in _PARTS
        if (
            found
            and not hedged
            and not part_of
            and not (number and (number[1] > length or found[0] is Kind.MULTIPLIER))
        ):
            return *found, length
    if number:
        share = bool({"之", "成"} & set(taken[: number[1]]))
        return (Kind.QUANTITY, number[0], number[1]) if share else (Kind.NUMBER, number[0], number[1])
    if _MODELS.fullmatch(taken[0]):
        return Kind.MODEL, None, 1
    value = parse_number(taken[0])
    return (Kind.UNKNOWN, taken[0], 1) if value is None else (Kind.NUMBER, value, 1)
