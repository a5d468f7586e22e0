"""What an LLM answers, where its words stand in the text, and its numbers with their units. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from intent.document import pointer_to
from intent.errors import AnswerProblem, ExtractionError, Failure
from intent.fold import Folded, Place, fold, overlaps
from intent.models import Catalogue
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.quantities import PER_USER, Quantity
from intent.rules.tokens import TextToken

Slots = Mapping[str, str | None]
"""A goal of the wire schema."""

MOST_PROBLEMS = 8
"""How many things that are wrong are said of one answer."""


@cache
def wire_schema() -> dict[str, Any]:
    """The flat schema an LLM is held to: every field required and nullable, no bounds."""
    loaded: dict[str, Any] = json.loads(files(__package__).joinpath("schema", "wire.json").read_text(encoding="utf-8"))
    return loaded


def schema_of(title: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of an object that has all of these properties and no other."""
    required = list(properties)
    return {
        "title": title, "type": "object", "additionalProperties": False, "required": required, "properties": properties,
    }  # fmt: skip


def parse_answer(content: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The answer's JSON, one code fence allowed around it.

    Raises:
        ExtractionError: it is not one complete JSON object in the schema; names what and where.
    """
    try:
        answer = json.loads(_unfenced(content), object_pairs_hook=_unique, parse_constant=_refused_constant)
    except (ValueError, RecursionError) as error:
        raise unusable(Failure.NOT_JSON, [AnswerProblem("", f"not one complete JSON object ({error})")]) from error
    found = sorted(
        Draft202012Validator(schema).iter_errors(answer),
        key=lambda error: list(map(str, error.absolute_path)),
    )
    if problems := [AnswerProblem(pointer_to(error.absolute_path), error.message[:200]) for error in found]:
        raise unusable(Failure.NOT_IN_SCHEMA, problems)
    return dict(answer)


def filled(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of which only what is said was written, in the whole form of the schema."""
    properties = schema["properties"]
    slots = properties["goals"]["items"]["required"]
    goals = [{slot: goal.get(slot) for slot in slots} for goal in answer.get("goals", ())]
    return {name: list(answer.get(name, ())) for name in properties} | {"goals": goals}


def unusable(failure: Failure, problems: list[AnswerProblem]) -> ExtractionError:
    """The error of an answer with these problems, which a second try may put right."""
    listed = "; ".join(map(str, problems[:MOST_PROBLEMS]))
    return ExtractionError(failure, f"the model's answer is unusable at {listed}", tuple(problems[:MOST_PROBLEMS]))


def _unfenced(content: str) -> str:
    stripped = content.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[:-3].split("\n", 1)[1]
    return stripped


def _unique(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"it says {twice[:60]!r} twice")
    return dict(pairs)


def _refused_constant(name: str) -> None:
    raise ValueError(f"it holds {name}, which is no JSON number")


_HAN_DIGITS = frozenset("零〇一二两三四五六七八九十百千万亿点")


@dataclass(frozen=True, slots=True)
class Source:
    """The text in the forms that quotes are looked for in."""

    text: str
    folded: Folded
    tokens: tuple[TextToken, ...]
    catalogue: Catalogue

    @classmethod
    def of(cls, text: str, catalogue: Catalogue) -> "Source":
        """Of a text that names things of a catalogue."""
        tokens = (token for token in tokenize(text, catalogue) if not _is_chance_node(token, catalogue))
        return cls(text, fold(text), tuple(tokens), catalogue)

    def places(self, quote: str) -> list[Place]:
        """Where a quote stands."""
        wanted = fold(quote).text.strip()
        found = _occurrences(self.folded.text, wanted) if wanted else ()
        return [self.folded.span(start, start + len(wanted)) for start in found]

    def place(self, quote: str, near: Place) -> Place | None:
        """Where a quote stands: within ``near``, or else where it is nearest to it."""
        return min(self.places(quote), key=lambda place: distance(place, near), default=None)

    def within(self, place: Place) -> list[TextToken]:
        """The tokens that stand in a place, or reach into it."""
        return [token for token in self.tokens if overlaps((token.start, token.end), place)]

    def covering(self, place: Place) -> TextToken | None:
        """The token that holds this place."""
        return next((token for token in self.tokens if token.start <= place[0] and place[1] <= token.end), None)


def _is_chance_node(token: TextToken, catalogue: Catalogue) -> bool:
    """Whether a word only looks like a node's name, behind "host".

    A model that knows the names would have copied it.
    """
    known = {f"node:{name}" for name in catalogue.nodes}
    return token.kind is Kind.SELECTOR and str(token.value).startswith("node:") and token.value not in known


def distance(first: Place, other: Place) -> int:
    """Characters between two places; 0 if they touch or overlap."""
    return max(0, first[0] - other[1], other[0] - first[1])


def _occurrences(text: str, wanted: str) -> Iterator[int]:
    """Where the wanted words stand without being a piece of a longer word or number."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        before = text[start - 1 : start]
        after = text[end : end + 1]
        if not (
            _continues(before, wanted[0], text[start - 2 : start - 1])
            or _continues(wanted[-1], after, text[end + 1 : end + 2])
        ):
            yield start
        start = text.find(wanted, start + 1)


def _continues(left: str, right: str, beyond: str) -> bool:
    """Whether two neighbours belong to one word (``at`` in ``rate``) or number (``2`` in ``2.5``).

    ``2s`` is two words.
    """
    pair = left + right
    if len(pair) < 2:
        return False
    if not pair.isascii():
        return all(character in _HAN_DIGITS for character in pair)
    if pair.isalpha() or pair.isdigit():
        return True
    digit_beside_point = any(character.isdigit() for character in pair) and any(character in ".," for character in pair)
    return digit_beside_point and beyond.isdigit()


_NO_AMOUNT = frozenset({Kind.STAT, Kind.METRIC, Kind.WINDOW, Kind.TENANT, Kind.MODEL})
"""What a digit may belong to without being a number that bounds anything."""
_BETWEEN = frozenset(
    {Kind.QUANTITY, Kind.NUMBER, Kind.LIST, Kind.JOIN, Kind.TO, Kind.BETWEEN, Kind.STAT, Kind.COMPARISON, Kind.FILLER,
     Kind.RESPECTIVELY, Kind.THING}
)  # fmt: skip
"""What may stand between two numbers of which only the second has its unit: ``1 and 2 s``."""
_COUNTED = frozenset(
    {
        Kind.QUANTITY,
        Kind.METRIC,
        Kind.THING,
        Kind.FILLER,
        Kind.TIMES,
        Kind.AUDIENCE,
        Kind.COUNTED,
        Kind.UNKNOWN,
    }
)
"""Words of a part and a whole."""
_BESIDE = 3
"""Characters by which a unit may stand apart from its number."""
_USER = re.compile(
    r"\beach\b|(?:\b(?:per|a|an|each|every|for)\s+)*(?:each|every)?\s*(?:\w+\s+)?"
    r"\b(?:users?|streams?|sessions?|clients?|customers?|person|head|seat)\b"
    r"|每?(?:个|位|名|路)?[\u4e00-\u9fff]{0,4}?(?:用户|客户|会话)|每人|每位|人均|每路"
)
"""For each of those who are served."""
_LONGER = {"日": "每日", "天": "每天", "周": "每周", "月": "每月", "年": "每年", "时": "每小时"}
"""A period in a character, 日预算, as the rules know it."""
_MONEY = frozenset({"USD", "money"})


def number_place(source: Source, number: str, evidence: Place) -> Place | None:
    """Where the evidence has this number as one of its own."""
    for place in source.places(number):
        token = source.covering(place)
        inside = evidence[0] <= place[0] and place[1] <= evidence[1]
        if inside and (token is None or token.kind not in _NO_AMOUNT):
            return place
    return None


def amount(source: Source, place: Place, unit: str | None, period: str | None) -> TextToken | None:
    """The amount at a number's place as one token.

    None if the text has another unit or period there, or none of them.

    ``unit`` and ``period`` are words of the text: around the number, or said once for it and another one.
    """
    of_each_user = period is not None and _USER.search(fold(period).text) is not None
    if period is not None:
        period = _USER.sub("", fold(period).text).strip() or None
    found = _found(source, place, unit, _LONGER.get(period or "", period))
    if found is None or not of_each_user:
        return found
    quantity: Quantity = found.value
    if quantity.unit == PER_USER:
        return found
    return replace(found, value=quantity.in_unit(PER_USER, quantity.factor)) if quantity.unit == "tokens/s" else None


def _found(source: Source, place: Place, unit: str | None, period: str | None) -> TextToken | None:
    token = _told(source, place)
    if token is not None and token.value.unit is not None and (token.value.unit not in _MONEY or period is None):
        return token if all(_agrees(source, token, words) for words in (unit, period) if words) else None
    if unit and not any(_belongs(source, place, other_place) for other_place in source.places(unit)):
        return None
    if not unit and not period:
        return _with_neighbour(source, token) if token is not None else None
    start, end = (token.start, token.end) if token is not None else place
    number = source.text[start:end] if token is not None else source.text[slice(*place)]
    for words in _orders(number, unit, period or _neighbour(source, (start, end))):
        value = _one_amount(source, words)
        if value is not None and value.unit is not None and (period is None or value.unit != "USD"):
            return TextToken(Kind.QUANTITY, value, *_around(source, (start, end), (unit, period)))
    return None


def _told(source: Source, place: Place) -> TextToken | None:
    """The amount that the rules read at this place: of a range, the end that has the number."""
    alone = _one_amount(source, source.text[slice(*place)])
    token = source.covering(place)
    if token is not None and token.kind is Kind.QUANTITY:
        return token
    if token is not None and token.kind is Kind.RANGE:
        ends = [end for end in token.value if alone is not None and end.number == alone.number]
        return replace(token, kind=Kind.QUANTITY, value=ends[0]) if ends else None
    return TextToken(Kind.QUANTITY, alone, *place) if alone is not None else None


def _one_amount(source: Source, words: str) -> Quantity | None:
    """The one amount that some words are, with nothing over."""
    tokens = tokenize(words, source.catalogue)
    found = [token.value for token in tokens if token.kind is Kind.QUANTITY]
    spare = [token for token in tokens if token.kind not in {Kind.QUANTITY, Kind.FILLER}]
    if len(found) == 2 and (share := _share(tokens, found)):
        return share
    foreign = len(found) == 1 and found[0].unit == "money"  # nobody has a rate: its period changes nothing
    return found[0] if len(found) == 1 and (foreign or not spare) else None


def _share(tokens: Sequence[TextToken], ends: Sequence[Quantity]) -> Quantity | None:
    """``3 failed requests in a thousand``: a part of a whole, whatever is counted."""
    part, whole = ends
    counted = all(token.kind in _COUNTED for token in tokens) and part.unit is whole.unit is None
    if not counted or not 0 < part.number < whole.number:
        return None
    return Quantity(float(f"{100 * part.number / whole.number:.12g}"), "ratio", 0.01)


def _orders(number: str, unit: str | None, period: str | None) -> Iterator[str]:
    """Number, unit and period in every order in which people say them."""
    for order in (
        (number, unit, period),
        (unit, number, period),
        (period, number, unit),
        (unit, period, number),
    ):
        yield " ".join(part for part in order if part)


def _neighbour(source: Source, place: Place) -> str | None:
    """A period that stands right at a number: ``每秒 25 个 token``."""
    for token in source.tokens:
        if token.kind is Kind.PERIOD and distance((token.start, token.end), place) <= 1:
            return source.text[token.start : token.end]
    return None


def _with_neighbour(source: Source, token: TextToken) -> TextToken:
    """The amount, with a period that stands right at it."""
    period = _neighbour(source, (token.start, token.end))
    value = _one_amount(source, f"{source.text[token.start : token.end]} {period}") if period else None
    return replace(token, value=value) if value is not None and value.unit is not None else token


def _around(source: Source, place: Place, words: tuple[str | None, ...]) -> Place:
    """A place with the words that stand right beside it."""
    near = [
        anchor
        for word in words
        if word and (anchor := source.place(word, place)) and distance(anchor, place) <= _BESIDE
    ]
    return min([place[0], *(span[0] for span in near)]), max([place[1], *(span[1] for span in near)])


def _agrees(source: Source, token: TextToken, words: str) -> bool:
    """Whether unit words are part of the amount, or say nothing else beside it."""
    place = token.start, token.end
    if not any(distance(other_place, place) <= _BESIDE for other_place in source.places(words)):
        return False
    inside = fold(source.text[token.start : token.end]).text
    wanted = fold(words).text.strip()
    if wanted in inside:
        return True
    value = _one_amount(source, f"{token.value.number:g} {words}")
    return value is not None and value.unit in {token.value.unit, None} and value.factor == token.value.factor


def _belongs(source: Source, number: Place, unit: Place) -> bool:
    """Whether a unit stands at a number, or behind one that comes next in a list with it."""
    if distance(number, unit) <= _BESIDE:
        return True
    start = min(number[1], unit[1])
    end = max(number[0], unit[0])
    token = source.covering(unit)
    if unit[0] < number[0] and (token is None or token.kind is not Kind.UNIT):  # it is another number's
        return False
    between = [token for token in source.tokens if start <= token.start and token.end <= max(end, unit[1])]
    return all(token.kind in {*_BETWEEN, Kind.UNIT, Kind.SOFT, Kind.UNKNOWN} for token in between)
