"""A number that an LLM copied, with its unit and its period, as the text has them; read by the rules' own parsers. Pure."""

from dataclasses import replace
from itertools import pairwise

from intent.llm.quotes import Place, Source, distance, overlaps
from intent.rules.kinds import Kind
from intent.rules.lexicon import split
from intent.rules.phrasing import tokenize
from intent.rules.quantities import Quantity
from intent.rules.tokens import Token

_NO_AMOUNT = frozenset({Kind.STAT, Kind.METRIC, Kind.WINDOW, Kind.TENANT, Kind.MODEL})
"""What a digit may belong to without being a number that bounds anything."""
_BETWEEN = frozenset(
    {Kind.QUANTITY, Kind.NUMBER, Kind.LIST, Kind.JOIN, Kind.TO, Kind.BETWEEN, Kind.STAT, Kind.COMPARISON, Kind.FILLER,
     Kind.RESPECTIVELY, Kind.THING}
)  # fmt: skip
"""What may stand between two numbers of which only the second has its unit: ``1 and 2 s``."""
_BESIDE = 3
"""Characters by which a unit may stand apart from its number."""


def number_place(source: Source, number: str, evidence: Place) -> Place | None:
    """Where the evidence has this number as one of its own."""
    for place in source.places(number):
        token = source.covering(place)
        inside = evidence[0] <= place[0] and place[1] <= evidence[1]
        if inside and (token is None or token.kind not in _NO_AMOUNT):
            return place
    return None


def amount(source: Source, place: Place, unit: str | None, period: str | None) -> Token | None:
    """The amount at a number's place as one token; None if the unit is another one, or nobody's.

    ``unit`` and ``period`` are words of the text: around the number, or said once for it and another one.
    """
    number = source.text[slice(*place)]
    told = _told(source, place, number)
    if told is not None and told.value.unit not in {None, "USD", "money"}:
        words = [one for one in (unit, period) if one]
        return told if all(_agrees(source, told, word) for word in words) else None
    places = [one for word in (unit, period) if word and (one := source.place(word, place))]
    if unit and not any(_belongs(source, place, one) for one in source.places(unit)):
        return None
    composed = _composed(source, _unsigned(source, place), unit or _currency(told, source), period)
    found = composed if composed is not None else told
    if found is None:
        return None
    start, end = min(place[0], found.start), max(place[1], found.end)
    near = [one for one in places if distance(one, (start, end)) <= _BESIDE]
    return replace(
        found, start=min([start, *(one[0] for one in near)]), end=max([end, *(one[1] for one in near)])
    )


def _told(source: Source, place: Place, number: str) -> Token | None:
    """The amount that the rules read at this place: of a range, the end that has the number."""
    token = source.covering(place) or next((one for one in source.within(place) if one.kind is Kind.QUANTITY), None)
    if token is None or token.kind not in {Kind.QUANTITY, Kind.RANGE}:
        return _alone(source, number, place)
    if token.kind is Kind.QUANTITY:
        return token
    wanted = _alone(source, number, place)
    ends = [one for one in token.value if wanted is not None and one.number == wanted.value.number]
    return replace(token, kind=Kind.QUANTITY, value=ends[0]) if ends else None


def _alone(source: Source, words: str, place: Place) -> Token | None:
    """The one amount that some words are by themselves."""
    found = [one for one in tokenize(words, source.catalogue) if one.kind is Kind.QUANTITY]
    return replace(found[0], start=place[0], end=place[1]) if len(found) == 1 else None


def _unsigned(source: Source, place: Place) -> Place:
    """The number's own place: of a quantity that holds it, all that is no unit of its own."""
    token = source.covering(place)
    bare = token is not None and token.kind is Kind.QUANTITY and token.value.unit is None
    return (token.start, token.end) if token is not None and bare else place


def _currency(told: Token | None, source: Source) -> str | None:
    """The currency that stands at the number already."""
    if told is None or told.value.unit is None:
        return None
    held = (one for one in tokenize(source.text[told.start : told.end].replace(",", ""), source.catalogue))
    return "$" if told.value.unit == "USD" else next((source.text[told.start : told.end] for _ in held), None)


def _composed(source: Source, place: Place, unit: str | None, period: str | None) -> Token | None:
    """Number, unit and period in an order that the rules read as one amount."""
    if not unit and not period:
        return None
    number = source.text[slice(*place)]
    parts = [part for part in (number, unit, period) if part]
    orders = [parts, [unit or "", number, period or ""], [period or "", number, unit or ""]]
    for order in orders:
        tokens = tokenize(" ".join(filter(None, order)), source.catalogue)
        found = [one for one in tokens if one.kind is Kind.QUANTITY]
        spare = [one for one in tokens if one.kind not in {Kind.QUANTITY, Kind.FILLER}]
        if len(found) == 1 and found[0].value.unit is not None and (not spare or _is_foreign(found[0].value)):
            return replace(found[0], start=place[0], end=place[1])
    return None


def _is_foreign(amount_said: Quantity) -> bool:
    """Of a currency for which nobody has a rate: a period changes nothing."""
    return amount_said.unit == "money"


def _agrees(source: Source, told: Token, words: str) -> bool:
    """Whether unit words are those of the amount, or of the same dimension (``每秒`` of ``500 tok/s``)."""
    start, end = told.start, told.end
    if any(overlaps(place, (start - _BESIDE, end + _BESIDE)) for place in source.places(words)):
        inside = [word for word, _, _ in split(source.text[start:end].lower())]
        wanted = [word for word, _, _ in split(words.lower())]
        return bool(wanted) and (all(word in inside for word in wanted) or not _is_unit(source, words))
    return False


def _is_unit(source: Source, words: str) -> bool:
    kinds = {one.kind for one in tokenize(f"7 {words}", source.catalogue) if one.kind is Kind.QUANTITY and one.value.unit}
    return bool(kinds)


def _belongs(source: Source, number: Place, unit: Place) -> bool:
    """Whether a unit stands at a number, or behind one that comes next in a list with it."""
    if distance(number, unit) <= _BESIDE:
        return True
    if unit[0] < number[0]:
        between = [one for one in source.tokens if unit[1] <= one.start and one.end <= number[0]]
        return not any(one.kind in {Kind.STOP, Kind.QUANTITY, Kind.RANGE, Kind.METRIC} for one in between)
    between = [one for one in source.tokens if number[1] <= one.start and one.end <= unit[1]]
    return all(one.kind in _BETWEEN for one in between) and not any(
        one.kind is Kind.JOIN and other.kind is Kind.METRIC for one, other in pairwise(between)
    )
