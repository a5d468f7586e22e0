"""Tokens joined to what they say together: numbers with units, shares of requests, ranges, negated comparisons, lists.

Each rule looks at the front of a list of tokens and says what stands for how many of them; a pass applies one rule from left
to right. Pure.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from intent.models import Catalogue
from intent.rules.kinds import Kind
from intent.rules.lexicon import MINUS
from intent.rules.quantities import PER_USER, Quantity
from intent.rules.tokens import Token, scan

Rewrite = tuple[list[Token], int]
"""Tokens that stand for the first ``n``."""
Rule = Callable[[Sequence[Token]], Rewrite | None]
"""Looks at the front of the tokens; None leaves the first as it is."""

FALL = "fall below"
"""The value of an ``EXCEPT`` that goes below a bound."""
REACH = 16
"""How many tokens a rule may look ahead."""


def tokenize(text: str, catalogue: Catalogue) -> list[Token]:
    """The tokens of a text, in order, joined to quantities, statistics, comparisons and lists."""
    tokens = scan(text, catalogue)
    for rule in (
        _glosses,
        partial(_hours, text),
        partial(_spans, text),
        _numbers,
        _gpus,
        _quantities,
        _half_more,
        _ratios,
        _complements,
        _shares,
        _ranges,
        _negations,
        _permissions,
    ):
        tokens = list(_rewritten(tokens, rule))
    tokens = list(_rewritten(tokens, partial(_strangers, text)))
    return _listed(tokens)


def _rewritten(tokens: Sequence[Token], rule: Rule) -> Iterator[Token]:
    place = 0
    while place < len(tokens):
        rewritten, used = rule(tokens[place : place + REACH]) or (tokens[place : place + 1], 1)
        yield from rewritten
        place += used


def _kinds(tokens: Sequence[Token], *kinds: Kind) -> bool:
    return len(tokens) >= len(kinds) and all(
        token.kind is kind for token, kind in zip(tokens, kinds, strict=False)
    )


def _spanning(tokens: Sequence[Token], kind: Kind, value: object) -> Token:
    fix = next((token.misspelt for token in tokens if token.misspelt), None)
    return Token(kind, value, tokens[0].start, tokens[-1].end, fix)


def _joined(tokens: Sequence[Token], kind: Kind, value: object) -> Rewrite:
    return [_spanning(tokens, kind, value)], len(tokens)


def _skip(tokens: Sequence[Token], start: int, *kinds: Kind) -> int:
    """The place of the first token from ``start`` that is none of these kinds."""
    while start < len(tokens) and tokens[start].kind in kinds:
        start += 1
    return start


def _glosses(tokens: Sequence[Token]) -> Rewrite | None:
    """``首字延迟（TTFT）``, ``latency (TTFT)``: one metric, said twice or more exactly."""
    if tokens[0].kind is not Kind.METRIC or len(tokens) < 4:
        return None
    opens, inner, closes = tokens[1:4]
    if (opens.value, closes.value) != ("(", ")") or inner.kind is not Kind.METRIC:
        return None
    return _joined(tokens[:4], Kind.METRIC, inner.value)


_PERIOD_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def _spans(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``under a second``: a time, not a rate."""
    if not (_kinds(tokens, Kind.COMPARISON, Kind.PERIOD) and tokens[1].value in _PERIOD_SECONDS):
        return None
    compares, period = (text[token.start : token.end].lower() for token in tokens[:2])
    if compares.startswith("or ") or not period.startswith(("a ", "an ", "one ", "一")):
        return None
    return [
        tokens[0],
        replace(tokens[1], kind=Kind.QUANTITY, value=Quantity(1.0, "s", _PERIOD_SECONDS[tokens[1].value])),
    ], 2


# -- numbers and quantities ------------------------------------------------------------------------


def _numbers(tokens: Sequence[Token]) -> Rewrite | None:
    """Digits with their sign and multiplier, ``twenty five``, ``p97``, ``a second`` as 1 s, and ``three nines``."""
    first, rest = tokens[0], tokens[1:]
    if first.kind is Kind.QUANTITY:
        return None if isinstance(first.value, Quantity) else _share(first)
    if first.value in {MINUS, "p"} and _kinds(rest, Kind.NUMBER):
        negative = first.value == MINUS
        value = -rest[0].value if negative else f"p{rest[0].value:g}"
        return _joined(tokens[:2], Kind.NUMBER if negative else Kind.STAT, value)
    if first.value in {"a", "an"}:
        return _article(tokens)
    if _is_article(tokens) or (first.kind is Kind.UNIT and first.value == ("ratio", 0.1)):
        return [replace(first, kind=Kind.FILLER)], 1  # 成 is a tenth only behind a number
    return _number(tokens) if first.kind is Kind.NUMBER else None


def _share(token: Token) -> Rewrite:
    """``three nines`` (a whole number in the lexicon) or ``百分之四十`` (a fraction) as a percentage."""
    share = 100 * (1 - 10.0**-token.value if isinstance(token.value, int) else token.value)
    return [replace(token, value=Quantity(float(f"{share:.12g}"), "ratio", 0.01))], 1


def _is_article(tokens: Sequence[Token]) -> bool:
    """Whether 一个 stands where English has ``a``: in front of anything but a counted thing."""
    if len(tokens) < 3 or tokens[0].kind is not Kind.NUMBER or tokens[0].value != 1.0:
        return False
    nouns = {Kind.METRIC, Kind.UNKNOWN, Kind.TENANT, Kind.AUDIENCE, Kind.FILLER}
    return tokens[1].value == "个" and tokens[1].start == tokens[0].end and tokens[2].kind in nouns


def _article(tokens: Sequence[Token]) -> Rewrite | None:
    first, rest = tokens[0], tokens[1:]
    if _kinds(rest, Kind.UNIT) and rest[0].value[0] == "s":
        return [replace(first, kind=Kind.NUMBER, value=1.0)], 1
    return _with_rest(tokens, 2, rest[0].value) if _kinds(rest, Kind.MULTIPLIER) else None


def _number(tokens: Sequence[Token]) -> Rewrite:
    value, used = float(tokens[0].value), 1
    if _kinds(tokens, Kind.NUMBER, Kind.NUMBER) and _is_compound(tokens[0], tokens[1]):
        value, used = value + tokens[1].value, 2
    elif len(tokens) > 2 and tokens[1].value == "point" and tokens[2].kind is Kind.NUMBER:
        value, used = float(f"{value:g}.{tokens[2].value:g}"), 3
    if _kinds(tokens[used:], Kind.UNIT) and tokens[used].value == ("ratio", 0.1):
        return _joined(tokens[: used + 1], Kind.QUANTITY, Quantity(value * 10, "ratio", 0.01))
    while _kinds(tokens[used:], Kind.MULTIPLIER):
        value, used = value * tokens[used].value, used + 1
    return _with_rest(tokens, used, value)


def _with_rest(tokens: Sequence[Token], used: int, value: float) -> Rewrite:
    """``a hundred and eighty``, ``two hundred fifty``."""
    place = used + 1 if len(tokens) > used and tokens[used].value == "and" else used
    spelt = tokens[used - 1].kind is Kind.MULTIPLIER and tokens[used - 1].end - tokens[used - 1].start > 1
    if (
        spelt
        and _kinds(tokens[place:], Kind.NUMBER)
        and tokens[place].end - tokens[place].start >= 3
        and tokens[place].value < 100 <= value
    ):
        rest = _number(tokens[place:])
        return _joined(tokens[: place + rest[1]], Kind.NUMBER, value + rest[0][0].value)
    return _joined(tokens[:used], Kind.NUMBER, value)


def _is_compound(tens: Token, ones: Token) -> bool:
    """``twenty five``, but not ``20 5``."""
    spelt = all(token.end - token.start >= 3 for token in (tens, ones)) and tens.end - tens.start >= 5
    return spelt and tens.value in {20, 30, 40, 50, 60, 70, 80, 90} and ones.value in range(1, 10)


def _gpus(tokens: Sequence[Token]) -> Rewrite | None:
    """``gpu-1``, ``GPU 1``, ``1 号卡``: one device; ``gpu 70%`` is none."""
    first, rest = tokens[0], tokens[1:]
    if first.kind is Kind.COUNTED and first.value == "gpu_count" and rest:
        second = rest[1:2] if rest[0].value in {"#", "-"} else rest[:1]
        used = 1 + (len(rest) - len(rest[1:]) if rest[0].value in {"#", "-"} else 0) + 1
        close = bool(second) and second[0].start - first.end <= 1
        units = (Kind.UNIT, Kind.CURRENCY, Kind.PERIOD, Kind.COUNTED, Kind.TIMES)
        free = not any(_kinds(tokens[used:], kind) for kind in units)
        if _kinds(second, Kind.NUMBER) and close and free and _is_index(second[0].value):
            return _joined(tokens[:used], Kind.SELECTOR, f"gpu:gpu-{second[0].value:g}")
    if first.kind is Kind.NUMBER and _kinds(rest[1:], Kind.COUNTED) and rest[0].value in {"号", "#"}:
        return _joined(tokens[:3], Kind.SELECTOR, f"gpu:gpu-{first.value:g}")
    return None


def _is_index(value: float) -> bool:
    return value == int(value) and 0 <= value < 1000


def _quantities(tokens: Sequence[Token]) -> Rewrite | None:
    """A number with what stands before it (a currency) and after it (a unit, or a currency, and a period)."""
    leading = 1 if _kinds(tokens, Kind.CURRENCY, Kind.NUMBER) else 0
    if not _kinds(tokens[leading:], Kind.NUMBER):
        return None
    number, after = tokens[leading].value, tokens[leading + 1 :]
    if leading or _kinds(after, Kind.CURRENCY) or _kinds(after, Kind.CENT):
        return _money(tokens, leading, number)
    used, factor_unit = 1, None
    if _kinds(after, Kind.UNIT):
        used, factor_unit = 2, after[0].value
    elif _kinds(after, Kind.COMPARISON) and _is_minutes(after):
        used, factor_unit = 2, ("s", 60.0)
    if factor_unit is None:
        return _joined(tokens[:1], Kind.QUANTITY, Quantity(number))
    if factor_unit[0] == "tokens/s" and _kinds(tokens[used:], Kind.PER_USER):
        return _joined(tokens[: used + 1], Kind.QUANTITY, Quantity(number, PER_USER, factor_unit[1]))
    return _joined(tokens[:used], Kind.QUANTITY, Quantity(number, *factor_unit))


def _money(tokens: Sequence[Token], leading: int, number: float) -> Rewrite:
    used = leading + 1 + (not leading)
    if leading and _kinds(tokens[used:], Kind.CURRENCY):  # "$40 USD"
        used += 1
    sign = tokens[0] if leading else tokens[1]
    factor = sign.value if sign.kind is Kind.CENT else 1.0
    if sign.value == "other":
        return _joined(tokens[:used], Kind.QUANTITY, Quantity(number, "money"))
    place = _skip(tokens, used, Kind.FILLER)
    if _kinds(tokens[place:], Kind.PERIOD):
        return _joined(
            tokens[: place + 1], Kind.QUANTITY, Quantity(number, f"USD/{tokens[place].value}", factor)
        )
    return _joined(tokens[:used], Kind.QUANTITY, Quantity(number, "USD", factor))


def _is_minutes(tokens: Sequence[Token]) -> bool:
    """Whether this comparison is the word ``min`` behind a number: minutes, unless another number follows it."""
    return (
        tokens[0].value == ">="
        and tokens[0].end - tokens[0].start == 3
        and not _kinds(tokens[1:], Kind.NUMBER)
    )


def _half_more(tokens: Sequence[Token]) -> Rewrite | None:
    """``两秒半``: a quantity and half of its unit."""
    if _kinds(tokens, Kind.QUANTITY, Kind.QUANTITY) and tokens[1].value.unit is None:
        said, half = tokens[0].value, tokens[1]
        if said.unit == "s" and half.value.number == 0.5 and half.start == tokens[0].end and said.number >= 1:
            return _joined(tokens[:2], Kind.QUANTITY, replace(said, number=said.number + 0.5))
    return None


# -- shares of requests ----------------------------------------------------------------------------


def _ratios(tokens: Sequence[Token]) -> Rewrite | None:
    """``19 out of 20``, ``one request in two hundred``, ``十个请求里至少九个``: a share of requests."""
    first = tokens[0]
    if not (first.kind is Kind.QUANTITY and first.value.unit is None):
        return None
    place = next((n for n in range(1, min(8, len(tokens))) if tokens[n].kind is Kind.QUANTITY), 0)
    if not place or tokens[place].value.unit is not None:
        return None
    between = tokens[1:place]
    things = [token for token in between if token.kind is Kind.THING and token.value == "requests"]
    words = [token.value for token in between if token not in things]
    if words in _OUT_OF:
        share = _part(first, tokens[place])
    elif things and words and words[0] in {"里", "中", "里面", "当中", "里有"} and _only_bounds(between):
        share = _part(tokens[place], first)
    else:
        return None
    return _told_share(tokens, place + 1, share, bool(things)) if share else None


_OUT_OF = (["out", "of"], ["in"], ["of", "every"], ["out", "of", "every"], ["in", "every"], ["/"])


def _part(part: Token, whole: Token) -> Quantity | None:
    if not 0 < part.value.number < whole.value.number:
        return None
    return Quantity(float(f"{100 * part.value.number / whole.value.number:.12g}"), "ratio", 0.01)


def _only_bounds(tokens: Sequence[Token]) -> bool:
    metrics = [token for token in tokens if token.kind is Kind.METRIC]
    return all(token.value in {"error_rate", "availability"} for token in metrics) and all(
        token.kind in {Kind.FILLER, Kind.THING, Kind.COMPARISON, Kind.METRIC} for token in tokens
    )


def _told_share(tokens: Sequence[Token], used: int, share: Quantity, of_requests: bool) -> Rewrite | None:
    """The share as a percentile; as an amount where it is about failures, or where ``of requests`` still follows."""
    inner = [token for token in tokens[1 : used - 1] if token.kind in {Kind.METRIC, Kind.COMPARISON}]
    told = _spanning(tokens[:used], Kind.QUANTITY, share)
    if any(token.kind is Kind.METRIC for token in inner) or _about_failures(tokens[used:]):
        return [*inner, replace(told, start=max([told.start, *(token.end for token in inner)]))], used
    if _of_requests(tokens[used:]):
        return [told], used
    if any(token.value == "/" for token in tokens[1:used]) and not of_requests:
        return None
    return [_spanning(tokens[:used], Kind.STAT, _percentile(share))], used


def _is_share(token: Token) -> bool:
    return token.kind is Kind.QUANTITY and token.value.unit == "ratio"


def _percentile(share: Quantity) -> str:
    return f"p{share.value * 100:.6g}"


_OF = frozenset(["of", "the", "all", "our", "any", "every", "each", "的", "all"])


def _of_requests(tokens: Sequence[Token]) -> int:
    """How many tokens say ``of all requests``; 0 if they do not."""
    place = 0
    while place < len(tokens) and tokens[place].value in _OF:
        place += 1
    if place < min(5, len(tokens)) and (
        (tokens[place].kind is Kind.THING and tokens[place].value == "requests")
        or tokens[place].kind is Kind.AUDIENCE
    ):
        return place + 1
    return 0


def _shares(tokens: Sequence[Token]) -> Rewrite | None:
    """``99% of requests``, ``at least 99% of requests``: the percentile 99; not where it is about failures."""
    start = 1 if tokens[0].kind is Kind.COMPARISON and tokens[0].value == ">=" else 0
    if len(tokens) <= start or not _is_share(tokens[start]):
        return None
    used = _of_requests(tokens[start + 1 :])
    if not used or _about_failures(tokens[start + 1 + used :]):
        return None
    return _joined(tokens[: start + 1 + used], Kind.STAT, _percentile(tokens[start].value))


def _about_failures(tokens: Sequence[Token]) -> bool:
    return any(
        token.kind is Kind.METRIC and token.value in {"error_rate", "availability"} for token in tokens[:3]
    )


def _complements(tokens: Sequence[Token]) -> Rewrite | None:
    """``no more than 1% of requests above 2s``: 99 % of them at most 2 s."""
    place = _skip(tokens, 0, Kind.NEGATION)
    limiting = (
        place < len(tokens)
        and tokens[place].kind is Kind.COMPARISON
        and (tokens[place].value == (">=" if place else "<="))
    )
    place = place + 1 if limiting else 1 if tokens[0].kind is Kind.ONLY else 0
    if not place or place >= len(tokens) or not _is_share(tokens[place]):
        return None
    used = _of_requests(tokens[place + 1 :])
    if not used or _about_failures(tokens[place + 1 + used :]):
        return None
    end = place + 1 + used
    between = _skip(tokens, end, Kind.FILLER, Kind.MAY, Kind.METRIC)
    if not _kinds(tokens[between:], Kind.COMPARISON) or tokens[between].value not in {">=", "worse"}:
        return None
    share = tokens[place].value
    stat = _spanning(tokens[:end], Kind.STAT, _percentile(replace(share, number=100 - share.number)))
    return [stat, *tokens[end:between], replace(tokens[between], value="<=")], between + 1


def _ranges(tokens: Sequence[Token]) -> Rewrite | None:
    """``between 60% and 80%`` and ``60-80%``; a unit said once holds for both."""
    start = 1 if tokens[0].kind is Kind.BETWEEN else 0
    if not _kinds(tokens[start:], Kind.QUANTITY) or not _kinds(tokens[start + 2 :], Kind.QUANTITY):
        return None
    middle = tokens[start + 1]
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
    return _joined(used, Kind.RANGE, (low, high))


# -- negations, permissions, names -----------------------------------------------------------------

_OPPOSITE = {"<=": ">=", ">=": "<=", "better": "worse", "worse": "better"}
_PASSED_OVER = frozenset(
    {Kind.FILLER, Kind.METRIC, Kind.STAT, Kind.CHANGE, Kind.MAY, Kind.TENANT, Kind.MODEL, Kind.THING, Kind.PERIOD, Kind.COUNTED,
     Kind.QUANTITY, Kind.RECONFIG, Kind.QUANTISE, Kind.AUDIENCE, Kind.WINDOW, Kind.TO}
)  # fmt: skip


def _negations(tokens: Sequence[Token]) -> Rewrite | None:
    """``not above``, ``must never let TTFT exceed``, ``别掉到 2 以下``: the comparison turns round and the negation is used up."""
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


def _permissions(tokens: Sequence[Token]) -> Rewrite | None:
    """``may exceed``: an exception."""
    if tokens[0].kind is not Kind.MAY:
        return None
    place = _skip(tokens, 1, Kind.FILLER, Kind.MAY)
    if (
        _kinds(tokens[place:], Kind.QUANTITY, Kind.COMPARISON) and tokens[place + 1].value == ">="
    ):  # "may go 30% over"
        return [
            replace(_spanning(tokens[: place + 2], Kind.EXCEPT, "exceed"), end=tokens[place].start),
            tokens[place],
        ], place + 2
    if _kinds(tokens[place:], Kind.COMPARISON) and tokens[place].value == ">=":
        return _joined(tokens[: place + 1], Kind.EXCEPT, "exceed")
    if _kinds(tokens[place:], Kind.CHANGE, Kind.COMPARISON) and tokens[place + 1].value == "<=":
        return _joined(tokens[: place + 2], Kind.EXCEPT, FALL)
    return None


def _hours(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``every day 14:30 to 19:00``: the hours say the days as well."""
    every = text[tokens[0].start : tokens[0].end].lower().startswith(("every", "each", "daily"))
    if (
        _kinds(tokens, Kind.PERIOD, Kind.WINDOW)
        and tokens[0].value == "day"
        and every
        and not isinstance(tokens[1].value, str)
    ):
        return _joined(tokens[:2], Kind.WINDOW, tokens[1].value)
    return None


def _strangers(text: str, tokens: Sequence[Token]) -> Rewrite | None:
    """``gold customers``, ``tenant zeta``: a tenant by a name that nobody has."""
    first = tokens[0]
    if first.kind is Kind.AUDIENCE and text[first.start : first.end].lower() in {"tenant", "租户"}:
        if _kinds(tokens[1:], Kind.UNKNOWN) and str(tokens[1].value)[:1].isalnum():
            end = _skip(tokens, 1, Kind.UNKNOWN)
            return [replace(_spanning(tokens[1:end], Kind.TENANT, None))], end
        return None
    if text[first.start : first.end].lower() in {"node", "节点", "host"} and _is_name(tokens[1:2]):
        return _joined(tokens[:2], Kind.SELECTOR, f"node:{tokens[1].value}")
    if first.kind is not Kind.UNKNOWN or not str(first.value)[:1].isalpha():
        return None
    end = _skip(tokens, 0, Kind.UNKNOWN)
    if end <= 4 and _kinds(tokens[end:], Kind.AUDIENCE):
        return _joined(tokens[:end], Kind.TENANT, None)[0] + [tokens[end]], end + 1
    return None


def _is_name(tokens: Sequence[Token]) -> bool:
    return _kinds(tokens, Kind.UNKNOWN) or (_kinds(tokens, Kind.FILLER) and len(str(tokens[0].value)) == 1)


# -- lists -----------------------------------------------------------------------------------------

_LISTABLE = frozenset(
    {
        Kind.TENANT,
        Kind.WINDOW,
        Kind.MODEL,
        Kind.METRIC,
        Kind.STAT,
        Kind.PRECISION,
        Kind.SELECTOR,
        Kind.WORKLOAD,
        Kind.SETTING,
    }
)
_SCOPES = frozenset({Kind.TENANT, Kind.WINDOW, Kind.MODEL})
_IDLE = frozenset({Kind.FILLER, Kind.AUDIENCE})
_ENDS = frozenset({Kind.JOIN, Kind.STOP, Kind.LIST})
_REFUSALS = frozenset({Kind.NEGATION, Kind.AVOID})


def _listed(tokens: list[Token]) -> list[Token]:
    """Mark the joint between two of a kind, so that it does not part them."""
    result = list(tokens)
    for place, token in enumerate(tokens):
        if (token.kind is Kind.JOIN and token.value in {"and", ","}) or token.value in {
            "or",
            "/",
            "或",
            "或者",
            "nor",
        }:
            before = _neighbour(tokens, place, -1)
            after = _neighbour(tokens, place, 1)
            if before is None or after is None or tokens[before].kind is not tokens[after].kind:
                continue
            if tokens[before].value == tokens[after].value:
                continue
            if tokens[before].kind in _LISTABLE and _is_list(result, before, place, after):
                result[place] = replace(token, kind=Kind.LIST)
    return result


def _neighbour(tokens: Sequence[Token], place: int, step: int) -> int | None:
    place += step
    while 0 <= place < len(tokens):
        if tokens[place].kind not in _IDLE:
            return place
        place += step
    return None


def _is_list(tokens: Sequence[Token], before: int, place: int, after: int) -> bool:
    kind, joint = tokens[before].kind, tokens[place]
    sentence = _sentence_before(tokens, before)
    if joint.kind is not Kind.JOIN:
        return joint.value == "/" or any(token.kind in _REFUSALS for token in sentence)
    if kind is Kind.SELECTOR or kind is Kind.WORKLOAD:
        return joint.value == "and" or after == len(tokens) - 1
    following = _neighbour(tokens, after, 1)
    ends = following is None or tokens[following].kind in _ENDS
    if kind in _SCOPES:
        return (ends and joint.value == "and") or all(
            token.kind in {*_IDLE, *_SCOPES, Kind.LIST} for token in sentence
        )
    if kind is Kind.METRIC:
        optimised = any(token.kind is Kind.OPTIMISE for token in sentence)
        bound = following is not None and tokens[following].kind in {Kind.COMPARISON, Kind.QUANTITY}
        return not (optimised and bound)
    return True


def _sentence_before(tokens: Sequence[Token], place: int) -> list[Token]:
    start = place
    while start and tokens[start - 1].kind not in {Kind.STOP, Kind.JOIN}:
        start -= 1
    return list(tokens[start:place])
