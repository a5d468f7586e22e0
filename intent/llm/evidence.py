"""What an LLM extracted, held against the text: every word it copied must stand there, and code reads the numbers.

Each goal that passes becomes a ``Claim``: its place in the text and one sentence that the rules read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from intent.errors import Failure, Problem
from intent.fold import Folded, fold, is_chinese
from intent.llm.sentences import Slots, fill, needed, possible, template
from intent.llm.wire import unusable
from intent.messages import Language
from intent.models import Catalogue
from intent.rules.kinds import Kind
from intent.rules.lexicon import split
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token

COPIED = ("soft", "window", "tenant", "model", "place", "workload", "higher", "lower")
"""Slots that hold words of the text."""
_CLAIMED = frozenset({"evidence", "type", "comparison", "change", "rule", "number", "unit"})
"""Slots that need not stand in a sentence as they are."""
_NO_AMOUNT = frozenset({Kind.STAT, Kind.METRIC, Kind.WINDOW, Kind.TENANT, Kind.MODEL})
"""What a digit may belong to without being a number that bounds anything."""

_HAN_DIGITS = frozenset("零〇一二两三四五六七八九十百千万亿点")

Place = tuple[int, int]
"""Half-open, in the original text."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One goal as an LLM says it stands in the text."""

    slots: Slots
    sentence: str
    place: Place
    """Of its evidence."""
    copied: tuple[Place, ...]
    """Of the words it took from elsewhere."""


@dataclass(frozen=True, slots=True)
class Claims:
    """A whole answer, every quote of it found in the text."""

    text: str
    tokens: tuple[Token, ...]
    language: Language
    goals: tuple[Claim, ...]
    unplaced: tuple[Place, ...]


def hold_against(answer: Mapping[str, Any], text: str, catalogue: Catalogue) -> Claims:
    """The goals of a wire answer with their places in the text.

    Raises:
        ExtractionError: it quotes what is not in the text, or a goal of it lacks or has too many slots; names each place.
    """
    source = _Source(text, fold(text), tuple(tokenize(text, catalogue)))
    language: Language = "zh" if is_chinese(text) else "en"
    schema, quotes = [], []
    for number, goal in enumerate(answer["goals"]):
        schema += list(_misfits(goal, f"/goals/{number}"))
        quotes += list(_misquotes(source, goal, f"/goals/{number}"))
    for number, words in enumerate(answer["unplaced"]):
        if not source.places(words):
            quotes.append(_absent(words, f"/unplaced/{number}"))
    if schema or quotes:
        raise unusable(Failure.NOT_IN_SCHEMA if schema else Failure.NOT_IN_TEXT, [*schema, *quotes])
    claims = tuple(_claim(source, goal, language) for goal in answer["goals"])
    unplaced = tuple(source.places(words)[0] for words in answer["unplaced"])
    return Claims(text, source.tokens, language, claims, unplaced)


@dataclass(frozen=True, slots=True)
class _Source:
    """The text in the forms that quotes are looked for in."""

    text: str
    folded: Folded
    tokens: tuple[Token, ...]

    def places(self, quote: str, within: Place | None = None) -> list[Place]:
        """Where whole words of a quote stand, whatever their case and width."""
        wanted = fold(quote).text.strip()
        found = list(_occurrences(self.folded.text, wanted)) if wanted else []
        spans = [self.folded.span(start, start + len(wanted)) for start in found]
        return [one for one in spans if within is None or (within[0] <= one[0] and one[1] <= within[1])]

    def covering(self, place: Place) -> Token | None:
        """The token that holds this place."""
        return next((one for one in self.tokens if one.start <= place[0] and place[1] <= one.end), None)


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


def _absent(words: str, pointer: str) -> Problem:
    return Problem(pointer, f"{words[:60]!r} is not in the text; copy its words")


# -- slots -----------------------------------------------------------------------------------------


def _misfits(goal: Slots, pointer: str) -> Iterator[Problem]:
    """Slots that this type of goal lacks, and words in slots that it does not have."""
    if goal["subject"] == "unknown":
        return
    sentence = template(goal, "en")
    if sentence is None:
        yield Problem(pointer, f"there is no goal of type {goal['type']} with this choice of slots")
        return
    slots = {_source_of(slot) for slot in possible(sentence)}
    for slot in sorted({_source_of(slot) for slot in needed(sentence)}):
        if goal[slot] is None:
            yield Problem(f"{pointer}/{slot}", f"a goal of type {goal['type']} needs it")
    for slot in sorted(goal.keys() - _CLAIMED - slots):
        if goal[slot] is not None:
            yield Problem(f"{pointer}/{slot}", f"a goal of type {goal['type']} does not have it; say null")
    if goal["number"] is not None and "number" not in slots:
        yield Problem(f"{pointer}/number", f"a goal of type {goal['type']} does not have it; say null")


def _source_of(slot: str) -> str:
    return {"amount": "number", "direction": "comparison"}.get(slot, slot)


def _misquotes(source: _Source, goal: Slots, pointer: str) -> Iterator[Problem]:
    """Slots whose words do not stand where they must."""
    for slot in ("evidence", *COPIED):
        words = goal[slot]
        if words is not None and not source.places(words):
            yield _absent(words, f"{pointer}/{slot}")
    if goal["stat"] is not None and not _says_stat(source, goal["stat"]):
        yield Problem(f"{pointer}/stat", f"the text does not say {goal['stat']}; say null")
    places = source.places(goal["evidence"] or "")
    if goal["number"] is None or not places:
        return
    if not (found := _number(source, goal["number"], places[0])):
        yield Problem(f"{pointer}/number", f"{goal['number'][:60]!r} is no number of the evidence; copy it")
    elif goal["unit"] is not None and _amount(source, found, goal["unit"]) is None:
        yield Problem(f"{pointer}/unit", f"{goal['unit'][:60]!r} is not the unit of that number; copy it")


def _says_stat(source: _Source, stat: str) -> bool:
    """Whether the text has this statistic, or its digits in words that the lexicon misses (``99 out of 100``)."""
    if any(token.kind is Kind.STAT and token.value == stat for token in source.tokens):
        return True
    holding = [source.covering(place) for place in source.places(stat.removeprefix("p"))]
    return any(token is None or not _has_unit(token) for token in holding)


def _has_unit(token: Token) -> bool:
    return token.kind is Kind.QUANTITY and token.value.unit is not None


def _number(source: _Source, number: str, evidence: Place) -> Place | None:
    """Where the evidence has this number as one of its own."""
    for place in source.places(number, evidence):
        token = source.covering(place)
        if token is None or token.kind not in _NO_AMOUNT:
            return place
    return None


def _amount(source: _Source, place: Place, unit: str | None) -> str | None:
    """The number with its unit as they stand in the text; None if the unit is another one or nowhere."""
    token = source.covering(place)
    whole = token is not None and token.kind is Kind.QUANTITY
    start, end = (token.start, token.end) if token is not None and whole else place
    said = source.text[start:end]
    if unit is None or _is_part(unit, said):
        return said
    if token is not None and _has_unit(token):
        return None
    return f"{said} {unit.strip()}" if source.places(unit) else None


def _is_part(unit: str, said: str) -> bool:
    words = [word for word, _, _ in split(fold(said).text)]
    wanted = [word for word, _, _ in split(fold(unit).text)]
    return bool(wanted) and all(word in words for word in wanted)


# -- claims ----------------------------------------------------------------------------------------


def _claim(source: _Source, goal: Slots, language: Language) -> Claim:
    place = source.places(goal["evidence"] or "")[0]
    copied = tuple(source.places(words)[0] for slot in COPIED if (words := goal[slot]) is not None)
    sentence = template(goal, language)
    if sentence is None or goal["subject"] == "unknown":
        return Claim(goal, source.text[place[0] : place[1]], place, copied)
    slots = {**goal, "amount": _said_amount(source, goal, place)}
    for slot, kind in (("tenant", Kind.TENANT), ("model", Kind.MODEL)):
        slots[slot] = _name(source, goal[slot], kind)
    return Claim(goal, fill(sentence, slots, language), place, copied)


def _said_amount(source: _Source, goal: Slots, evidence: Place) -> str | None:
    if goal["number"] is None:
        return None
    place = _number(source, goal["number"], evidence)
    return _amount(source, place, goal["unit"]) if place else None


def _name(source: _Source, words: str | None, kind: Kind) -> str | None:
    """The catalogue's name for the words, or the words as they stand."""
    if words is None:
        return None
    start, end = source.places(words)[0]
    inside = (one for one in source.tokens if start <= one.start and one.end <= end and one.kind is kind)
    return next((str(one.value) for one in inside), words)
