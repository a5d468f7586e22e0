"""Numbers with their units.

``a hundred and eighty``, ``$40 an hour``, ``两秒半``, ``between 60% and 80%``. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from intent.rules.kinds import Kind
from intent.rules.lexicon import MINUS
from intent.rules.quantities import PER_USER, Quantity
from intent.rules.rewriting import Rewrite, joined, kinds, skip, spanning
from intent.rules.tokens import TextToken

_PERIOD_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def spans(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``under a second``: a time, not a rate."""
    if not (kinds(tokens, Kind.COMPARISON, Kind.PERIOD) and tokens[1].value in _PERIOD_SECONDS):
        return None
    compares, period = (text[token.start : token.end].lower() for token in tokens[:2])
    if compares.startswith("or ") or not period.startswith(("a ", "an ", "one ", "一")):
        return None
    return [
        tokens[0],
        replace(tokens[1], kind=Kind.QUANTITY, value=Quantity(1.0, "s", _PERIOD_SECONDS[tokens[1].value])),
    ], 2


def numbers(tokens: Sequence[TextToken]) -> Rewrite | None:
    """Numbers: digits, ``twenty five``, ``p97``, ``a second`` (1 s), ``three nines``.

    Digits come with their sign and multiplier.
    """
    first = tokens[0]
    rest = tokens[1:]
    if first.kind is Kind.QUANTITY:
        return None if isinstance(first.value, Quantity) else _share(first)
    if first.value == MINUS and kinds(rest, Kind.CURRENCY, Kind.NUMBER):
        return [rest[0], spanning([first, rest[1]], Kind.NUMBER, -rest[1].value)], 3
    if first.value in {MINUS, "p", "point"} and kinds(rest, Kind.NUMBER):
        return _marked(tokens)
    if first.value in {"a", "an"}:
        return _article(tokens)
    if _is_article(tokens) or (first.kind is Kind.UNIT and first.value == ("ratio", 0.1)):
        return [replace(first, kind=Kind.FILLER)], 1  # 成 is a tenth only behind a number
    return _number(tokens) if first.kind is Kind.NUMBER else None


def _marked(tokens: Sequence[TextToken]) -> Rewrite | None:
    """A number behind a minus, a ``p`` (``p ninety nine point nine``) or a ``point``."""
    if tokens[0].value == MINUS:
        return joined(tokens[:2], Kind.NUMBER, -tokens[1].value)
    if tokens[0].value == "point":
        value, used = _decimals(0, tokens[1:])
        return _with_rest(tokens, 1 + used, value) if tokens[0].kind is Kind.UNKNOWN else None
    value, used = _spelt(tokens[1:])
    return joined(tokens[: 1 + used], Kind.STAT, f"p{value:g}")


def _share(token: TextToken) -> Rewrite:
    """``three nines`` (a whole number in the lexicon) or ``百分之四十`` (a fraction) as a percentage."""
    share = 100 * (1 - 10.0**-token.value if isinstance(token.value, int) else token.value)
    return [replace(token, value=Quantity(float(f"{share:.12g}"), "ratio", 0.01))], 1


def _is_article(tokens: Sequence[TextToken]) -> bool:
    """Whether 一个 stands where English has ``a``: in front of anything but a counted thing."""
    if len(tokens) < 3 or tokens[0].kind is not Kind.NUMBER or tokens[0].value != 1.0:
        return False
    nouns = {Kind.METRIC, Kind.UNKNOWN, Kind.TENANT, Kind.AUDIENCE, Kind.FILLER}
    return tokens[1].value == "个" and tokens[1].start == tokens[0].end and tokens[2].kind in nouns


def _article(tokens: Sequence[TextToken]) -> Rewrite | None:
    first = tokens[0]
    rest = tokens[1:]
    if kinds(rest, Kind.UNIT) and rest[0].value[0] == "s":
        return [replace(first, kind=Kind.NUMBER, value=1.0)], 1
    if kinds(rest, Kind.CURRENCY) and first.end < rest[0].start:
        return [replace(first, kind=Kind.NUMBER, value=1.0)], 1
    return _with_rest(tokens, 2, rest[0].value) if kinds(rest, Kind.MULTIPLIER) else None


def _number(tokens: Sequence[TextToken]) -> Rewrite:
    value, used = _spelt(tokens)
    if kinds(tokens[used:], Kind.UNIT) and tokens[used].value == ("ratio", 0.1):
        return joined(tokens[: used + 1], Kind.QUANTITY, Quantity(value * 10, "ratio", 0.01))
    for _ in range(
        2 if kinds(tokens[used:], Kind.MULTIPLIER) and tokens[used].value == 100 else 1
    ):  # two hundred thousand
        if kinds(tokens[used:], Kind.MULTIPLIER):
            value *= tokens[used].value
            used += 1
    return _with_rest(tokens, used, value)


def _spelt(tokens: Sequence[TextToken]) -> tuple[float, int]:
    """A number and how many tokens say it: ``twenty five``, ``one point five``."""
    value = float(tokens[0].value)
    used = 1
    if kinds(tokens, Kind.NUMBER, Kind.NUMBER) and _is_compound(tokens[0], tokens[1]):
        value += tokens[1].value
        used = 2
    if len(tokens) > used + 1 and tokens[used].value == "point" and kinds(tokens[used + 1 :], Kind.NUMBER):
        value, digits = _decimals(value, tokens[used + 1 :])
        used += 1 + digits
    return value, used


def _decimals(whole: float, tokens: Sequence[TextToken]) -> tuple[float, int]:
    """The digits behind ``point``: ``nine nine``."""
    used = 1
    while kinds(tokens[used:], Kind.NUMBER) and 0 <= tokens[used].value < 10 and tokens[0].value < 10:
        used += 1
    return float(f"{whole:g}." + "".join(f"{token.value:g}" for token in tokens[:used])), used


def _with_rest(tokens: Sequence[TextToken], used: int, value: float) -> Rewrite:
    """``a hundred and eighty``, ``two hundred fifty``."""
    place = used + 1 if len(tokens) > used and tokens[used].value == "and" else used
    spelt = tokens[used - 1].kind is Kind.MULTIPLIER and tokens[used - 1].end - tokens[used - 1].start > 1
    if (
        spelt
        and kinds(tokens[place:], Kind.NUMBER)
        and tokens[place].end - tokens[place].start >= 3
        and tokens[place].value < 100 <= value
    ):
        rest = _number(tokens[place:])
        return joined(tokens[: place + rest[1]], Kind.NUMBER, value + rest[0][0].value)
    return joined(tokens[:used], Kind.NUMBER, value)


def _is_compound(tens: TextToken, ones: TextToken) -> bool:
    """``twenty five``, but not ``20 5``."""
    spelt = all(token.end - token.start >= 3 for token in (tens, ones)) and tens.end - tens.start >= 5
    return spelt and tens.value in {20, 30, 40, 50, 60, 70, 80, 90} and ones.value in range(1, 10)


def no_units(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``us``, the people, where no number stands before it; the s of ``Llama 3's``."""
    if kinds(tokens, Kind.NUMBER, Kind.UNIT):
        return list(tokens[:2]), 2
    if kinds(tokens, Kind.UNIT) and tokens[0].value == ("s", 1e-6):
        return [replace(tokens[0], kind=Kind.FILLER)], 1
    if tokens[0].value == "'" and kinds(tokens[1:], Kind.UNIT) and tokens[1].value == ("s", 1.0):
        return [tokens[0], replace(tokens[1], kind=Kind.FILLER)], 2
    return None


def quantities(tokens: Sequence[TextToken]) -> Rewrite | None:
    """A number with what stands before it (a currency) and after it (a unit, or a currency, and a period)."""
    leading = 1 if kinds(tokens, Kind.CURRENCY, Kind.NUMBER) else 0
    if not kinds(tokens[leading:], Kind.NUMBER):
        return None
    number = tokens[leading].value
    after = tokens[leading + 1 :]
    if leading or kinds(after, Kind.CURRENCY) or kinds(after, Kind.CENT):
        return _money(tokens, leading, number)
    used = 1
    factor_unit = None
    if kinds(after, Kind.UNIT):
        used = 2
        factor_unit = after[0].value
    elif kinds(after, Kind.COMPARISON) and _is_minutes(after):
        used = 2
        factor_unit = ("s", 60.0)
    if factor_unit is None:
        return joined(tokens[:1], Kind.QUANTITY, Quantity(number))
    unit, factor = factor_unit
    each = kinds(tokens[used:], Kind.PER_USER) or (len(tokens) > used and tokens[used].value in {"each", "apiece"})
    if unit == "tokens/s" and each:
        return joined(tokens[: used + 1], Kind.QUANTITY, Quantity(number, unit=PER_USER, factor=factor))
    return joined(tokens[:used], Kind.QUANTITY, Quantity(number, unit=unit, factor=factor))


def _money(tokens: Sequence[TextToken], leading: int, number: float) -> Rewrite:
    used = leading + 1 + (not leading)
    if leading and kinds(tokens[used:], Kind.CURRENCY):  # "$40 USD"
        used += 1
    sign = tokens[0] if leading else tokens[1]
    factor = sign.value if sign.kind is Kind.CENT else 1.0
    if sign.value == "other":
        end = used + 1 if kinds(tokens[used:], Kind.PERIOD) else used
        return joined(tokens[:end], Kind.QUANTITY, Quantity(number, "money"))
    place = skip(tokens, used, Kind.FILLER)
    if kinds(tokens[place:], Kind.PERIOD):
        return joined(tokens[: place + 1], Kind.QUANTITY, Quantity(number, f"USD/{tokens[place].value}", factor))
    return joined(tokens[:used], Kind.QUANTITY, Quantity(number, "USD", factor))


def _is_minutes(tokens: Sequence[TextToken]) -> bool:
    """Whether this comparison is the word ``min`` behind a number.

    Minutes, unless another number follows it.
    """
    return tokens[0].value == ">=" and tokens[0].end - tokens[0].start == 3 and not kinds(tokens[1:], Kind.NUMBER)


def half_more(text: str, tokens: Sequence[TextToken]) -> Rewrite | None:
    """``两秒半``, ``一秒二``: a quantity and half of its unit, or tenths."""
    if not kinds(tokens, Kind.QUANTITY, Kind.QUANTITY) or tokens[1].value.unit is not None:
        return None
    half = tokens[0].value
    more = tokens[1]
    if half.unit != "s" or half.number < 1 or more.start != tokens[0].end:
        return None
    tenths = text[more.start : more.end] in _TENTHS and half.number < 10
    part = 0.5 if more.value.number == 0.5 else more.value.number / 10 if tenths else None
    return None if part is None else joined(tokens[:2], Kind.QUANTITY, replace(half, number=half.number + part))


_TENTHS = frozenset("一二三四五六七八九")


def both_sides(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``no fewer than 4 and no more than 6``: a range whose unit comes last."""
    pattern = (Kind.COMPARISON, Kind.QUANTITY, Kind.JOIN, Kind.COMPARISON, Kind.QUANTITY)
    if not kinds(tokens, *pattern) or {tokens[0].value, tokens[3].value} != {"<=", ">="}:
        return None
    low, high = (tokens[1], tokens[4]) if tokens[0].value == ">=" else (tokens[4], tokens[1])
    if tokens[1].value.unit is not None or not low.value.number < high.value.number:
        return None
    unit = tokens[4].value.unit
    factor = tokens[4].value.factor
    return joined(tokens[:5], Kind.RANGE, tuple(token.value.in_unit(unit, factor) for token in (low, high)))


def ranges(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``between 60% and 80%`` and ``60-80%``; a unit said once holds for both."""
    start = 1 if tokens[0].kind is Kind.BETWEEN else 0
    if not kinds(tokens[start:], Kind.QUANTITY) or not kinds(tokens[start + 2 :], Kind.QUANTITY):
        return None
    middle = tokens[start + 1]
    if start and (middle.kind is Kind.COMPARISON or (middle.kind is Kind.TO and middle.value)):
        return [middle, tokens[start + 2]], start + 3  # "from 3s down to 2s": where it ends is what is wished
    if not (
        middle.value in {"-", "~"}
        or (middle.kind is Kind.TO and not middle.value)
        or (start and middle.kind is Kind.JOIN)
    ):
        return None
    used = tokens[: start + 3]
    low, high = (token.value for token in used if token.kind is Kind.QUANTITY)
    if low.unit is None:
        low = low.in_unit(high.unit, high.factor)
    if low.unit != high.unit:
        return None
    return joined(used, Kind.RANGE, (low, high))
