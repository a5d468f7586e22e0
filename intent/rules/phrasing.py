"""Tokens joined to what they say together: numbers with units, shares of requests, negated comparisons, lists. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from intent.models import Catalogue
from intent.rules.amounts import both_sides, half_more, no_units, numbers, quantities, ranges, spans
from intent.rules.kinds import Kind
from intent.rules.lexicon import MINUS
from intent.rules.lists import listed
from intent.rules.quantities import Quantity
from intent.rules.respectively import dealt
from intent.rules.rewriting import Rewrite, joined, kinds, rewritten, skip, spanning
from intent.rules.shares import complements, percentiles, ratios, shares
from intent.rules.tokens import Token, scan

UNACCEPTABLE = "unacceptable"
"""The value of an ``AVOID`` behind what nobody may reach."""
FALL = "fall below"
"""The value of an ``EXCEPT`` that goes below a bound."""


def tokenize(text: str, catalogue: Catalogue) -> list[Token]:
    """The tokens of a text, in order, joined to quantities, statistics, comparisons and lists."""
    tokens = _signed(scan(text, catalogue))
    for rule in (
        _glosses, partial(_hours, text), partial(_inside, text), partial(_each, text), partial(spans, text), numbers,
        _gpus, no_units, quantities, partial(half_more, text), _cards, ratios, complements, shares, ranges,
        _unacceptable, _negations, _permissions, both_sides, partial(_strangers, text), _beneficiary, _mapped,
        partial(_finishing, text),
    ):  # fmt: skip
        tokens = list(rewritten(tokens, rule))
    return dealt(listed(percentiles(tokens)))


def _signed(tokens: Sequence[Token]) -> list[Token]:
    """A dash between a comparison and a number is its sign: ``below - $5``."""
    result = list(tokens)
    for place in range(1, len(tokens) - 1):
        dash, after = tokens[place], tokens[place + 1]
        if (
            dash.value == "-"
            and tokens[place - 1].kind in {Kind.COMPARISON, Kind.TO}
            and after.kind in {Kind.NUMBER, Kind.CURRENCY}
        ):
            result[place] = replace(dash, value=MINUS)
    return result


def _glosses(tokens: Sequence[Token]) -> Rewrite | None:
    """``首字延迟（TTFT）``, ``latency (TTFT)``: one metric, said twice or more exactly."""
    if tokens[0].kind is not Kind.METRIC or len(tokens) < 4:
        return None
    opens, inner, closes = tokens[1:4]
    if (opens.value, closes.value) != ("(", ")") or inner.kind is not Kind.METRIC:
        return None
    return joined(tokens[:4], Kind.METRIC, inner.value)


def _gpus(tokens: Sequence[Token]) -> Rewrite | None:
    """``gpu-1``, ``GPU 1``, ``1 号卡``: one device; ``gpu 70%`` is none."""
    first, rest = tokens[0], tokens[1:]
    if first.kind is Kind.COUNTED and first.value == "gpu_count" and rest:
        second = rest[1:2] if rest[0].value in {"#", "-"} else rest[:1]
        used = 1 + (len(rest) - len(rest[1:]) if rest[0].value in {"#", "-"} else 0) + 1
        close = bool(second) and second[0].start - first.end <= 1
        units = (Kind.UNIT, Kind.CURRENCY, Kind.PERIOD, Kind.COUNTED, Kind.TIMES)
        free = not any(kinds(tokens[used:], kind) for kind in units)
        if kinds(second, Kind.NUMBER) and close and free and _is_index(second[0].value):
            return joined(tokens[:used], Kind.SELECTOR, f"gpu:gpu-{second[0].value:g}")
    if first.kind is Kind.NUMBER and kinds(rest[1:], Kind.COUNTED) and rest[0].value in {"号", "#"}:
        return joined(tokens[:3], Kind.SELECTOR, f"gpu:gpu-{first.value:g}")
    return None


def _is_index(value: float) -> bool:
    return value == int(value) and 0 <= value < 1000


_OPPOSITE = {"<=": ">=", ">=": "<=", "better": "worse", "worse": "better"}
_PASSED_OVER = frozenset(
    {Kind.FILLER, Kind.METRIC, Kind.STAT, Kind.CHANGE, Kind.MAY, Kind.TENANT, Kind.MODEL, Kind.THING, Kind.PERIOD, Kind.COUNTED,
     Kind.QUANTITY, Kind.RECONFIG, Kind.QUANTISE, Kind.AUDIENCE, Kind.WINDOW, Kind.TO, Kind.UNKNOWN}
)  # fmt: skip


def _negations(tokens: Sequence[Token]) -> Rewrite | None:
    """``not above``, ``never let TTFT exceed``, ``别掉到 2 以下``: the comparison turns round, the negation is used up."""
    if tokens[0].kind is not Kind.NEGATION:
        return None
    between: list[Token] = []
    for token in tokens[1:]:
        if token.kind is Kind.COMPARISON and token.value in _OPPOSITE:
            turned = replace(token, value=_OPPOSITE[token.value])
            if not any(one.kind is Kind.QUANTITY for one in between):
                turned = replace(turned, start=tokens[0].start)
                return [turned, *between], len(between) + 2
            return [*between, turned], len(between) + 2
        if between and between[-1].kind is Kind.QUANTITY:
            return None
        if token.kind not in _PASSED_OVER:
            return None
        between.append(token)
    return None


def _unacceptable(tokens: Sequence[Token]) -> Rewrite | None:
    """``anything below 280 tok/s is unacceptable``, ``掉到 700 以下是不可接受的``: the comparison turns round."""
    if tokens[0].kind is not Kind.COMPARISON or tokens[0].value not in _OPPOSITE:
        return None
    for place, token in enumerate(tokens[1:], 1):
        if token.value == UNACCEPTABLE:
            return [replace(tokens[0], value=_OPPOSITE[tokens[0].value]), *tokens[1:place]], place + 1
        if token.kind not in _PASSED_OVER:
            return None
    return None


def _mapped(tokens: Sequence[Token]) -> Rewrite | None:
    """``batch → L40S``, ``gpu-1: hands off``, ``replicas: 2``: one thing that is said, no heading."""
    if not kinds(tokens[1:], Kind.JOIN) or tokens[1].value != ":" or len(tokens) < 3:
        return None
    placed = tokens[0].kind in {Kind.TENANT, Kind.WORKLOAD} and tokens[2].kind is Kind.SELECTOR
    ruled = tokens[0].kind in {Kind.SELECTOR, Kind.PRECISION} and tokens[2].kind in _RULINGS
    counted = tokens[0].kind is Kind.COUNTED and tokens[2].kind is Kind.QUANTITY
    if placed or ruled or counted:
        return [tokens[0], replace(tokens[1], kind=Kind.FILLER)], 2
    return None


_RULINGS = frozenset({Kind.FREEZE, Kind.AVOID, Kind.ALLOW, Kind.NEGATION})


def _finishing(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``requests must finish within 20 s``: the whole answer; of a switch it would be something else."""
    said = text[tokens[0].start : tokens[0].end].lower()
    asked = tokens[0].kind is Kind.STAT and ("request" in said or "请求" in said)
    if not (asked or (tokens[0].kind is Kind.THING and tokens[0].value == "requests")):
        return None
    ends = next((n for n, token in enumerate(tokens) if token.kind in {Kind.JOIN, Kind.STOP}), len(tokens))
    place = next((n for n, token in enumerate(tokens[:ends]) if token.value in _FINISH), None)
    if place is None or any(token.kind in _MEASURED for token in tokens[:ends]):
        return None
    return [*tokens[:place], replace(tokens[place], kind=Kind.METRIC, value="e2e")], place + 1


_FINISH = frozenset({"finish", "finished", "complete", "completed", "be done"})
_MEASURED = frozenset({Kind.METRIC, Kind.RECONFIG, Kind.SETTING, Kind.COUNTED})


def _cards(tokens: Sequence[Token]) -> Rewrite | None:
    """``2 A100s``, ``2 块 A100``: so many devices, and which."""
    if not kinds(tokens, Kind.QUANTITY):
        return None
    selector = tokens[1] if len(tokens) > 1 else None
    plain = tokens[0].value.unit is None or tokens[0].value.unit == "money"
    if (
        selector is None
        or selector.kind is not Kind.SELECTOR
        or not plain
        or not selector.value.startswith("gpu_type")
    ):
        return None
    amount = replace(tokens[0], value=Quantity(tokens[0].value.number))
    return [amount, Token(Kind.COUNTED, "gpu_count", amount.end, amount.end), selector], 2


def _permissions(tokens: Sequence[Token]) -> Rewrite | None:
    """``may exceed``: an exception."""
    if tokens[0].kind is not Kind.MAY:
        return None
    place = skip(tokens, 1, Kind.FILLER, Kind.MAY)
    if (
        kinds(tokens[place:], Kind.QUANTITY, Kind.COMPARISON) and tokens[place + 1].value == ">="
    ):  # "may go 30% over"
        return [
            replace(spanning(tokens[: place + 2], Kind.EXCEPT, "exceed"), end=tokens[place].start),
            tokens[place],
        ], place + 2
    if kinds(tokens[place:], Kind.COMPARISON) and tokens[place].value == ">=":
        return joined(tokens[: place + 1], Kind.EXCEPT, "exceed")
    if kinds(tokens[place:], Kind.CHANGE, Kind.COMPARISON) and tokens[place + 1].value == "<=":
        return joined(tokens[: place + 2], Kind.EXCEPT, FALL)
    return None


def _hours(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``every day 14:30 to 19:00``: the hours say the days as well."""
    every = text[tokens[0].start : tokens[0].end].lower().startswith(("every", "each", "daily"))
    if (
        kinds(tokens, Kind.PERIOD, Kind.WINDOW)
        and tokens[0].value == "day"
        and every
        and not isinstance(tokens[1].value, str)
    ):
        return joined(tokens[:2], Kind.WINDOW, tokens[1].value)
    return None


def _inside(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``工作时间内``, ``business hours 内``: within the window, no bound."""
    if kinds(tokens, Kind.WINDOW, Kind.COMPARISON) and text[tokens[1].start : tokens[1].end] in _WITHIN:
        return joined(tokens[:2], Kind.WINDOW, tokens[0].value)
    return None


def _each(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``每位付费用户``, ``every paid user``: a rate is for each of them."""
    place = next((n for n, token in enumerate(tokens[:4]) if token.kind is not Kind.FILLER), 0)
    said = text[tokens[0].start : tokens[place].start].strip().lower()
    if said in _EACH and tokens[place].kind is Kind.TENANT:
        return [replace(tokens[0], kind=Kind.PER_USER)], place
    return None


_EACH = frozenset({"each", "every", "per", "每个", "每位", "每名", "每一位", "每一个"})
_WITHIN = frozenset({"内", "之内", "以内", "里"})


def _strangers(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``gold customers``, ``tenant zeta``: a tenant by a name that nobody has."""
    first = tokens[0]
    if first.kind is Kind.AUDIENCE and text[first.start : first.end].lower() in {"tenant", "租户"}:
        if kinds(tokens[1:], Kind.UNKNOWN) and str(tokens[1].value)[:1].isalnum():
            end = skip(tokens, 1, Kind.UNKNOWN)
            return [replace(spanning(tokens[1:end], Kind.TENANT, None))], end
        return None
    if text[first.start : first.end].lower() in {"node", "节点", "host"} and _is_name(tokens[1:2]):
        return joined(tokens[:2], Kind.SELECTOR, f"node:{tokens[1].value}")
    if first.kind is not Kind.UNKNOWN or not str(first.value)[:1].isalpha():
        return None
    end = skip(tokens, 0, Kind.UNKNOWN)
    if end <= 4 and kinds(tokens[end:], Kind.AUDIENCE):
        return joined(tokens[:end], Kind.TENANT, None)[0] + [tokens[end]], end + 1
    return None


def _beneficiary(tokens: Sequence[Token]) -> Rewrite | None:
    """``... for acme.``: a tenant nobody has, not a word to leave out."""
    ends = len(tokens) < 3 or tokens[2].kind in {Kind.JOIN, Kind.STOP}
    if (
        tokens[0].value != "for"
        or not kinds(tokens[1:], Kind.UNKNOWN)
        or not ends
        or not str(tokens[1].value).isalpha()
    ):
        return None
    return [tokens[0], replace(tokens[1], kind=Kind.TENANT, value=None)], 2


def _is_name(tokens: Sequence[Token]) -> bool:
    return kinds(tokens, Kind.UNKNOWN) or (kinds(tokens, Kind.FILLER) and len(str(tokens[0].value)) == 1)
