"""Shares of requests: ``99% of requests``, ``19 out of 20``, ``no more than 1% of requests above 2s``.

Pure rewriting rules.
"""

from collections.abc import Sequence
from dataclasses import replace

from intent.models import LATENCIES
from intent.rules.kinds import ANY_LATENCY, Kind
from intent.rules.quantities import Quantity
from intent.rules.rewriting import Rewrite, joined, kinds, skip, spanning
from intent.rules.tokens import TextToken


def ratios(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``19 out of 20``, ``one request in two hundred``, ``十个请求里至少九个``: a share of requests."""
    first = tokens[0]
    if not (first.kind is Kind.QUANTITY and first.value.unit is None):
        return None
    if len(tokens) > 2 and tokens[1].value == "per" and tokens[2].kind is Kind.MULTIPLIER:  # "5 per thousand"
        return joined(tokens[:3], Kind.QUANTITY, _percent(first.value.number / tokens[2].value))
    if _is_per_many(tokens):  # "3 errors per thousand"
        rare = spanning(tokens[:4], Kind.QUANTITY, _percent(first.value.number / tokens[3].value))
        return [tokens[1], replace(rare, start=tokens[1].end)], 4
    place = next((n for n in range(1, min(9, len(tokens))) if tokens[n].kind is Kind.QUANTITY), 0)
    if not place or tokens[place].value.unit is not None:
        return None
    between = tokens[1:place]
    things = [token for token in between if token.kind is Kind.THING and token.value == "requests"]
    idle = {"a", "an", "the", "every", "each"}
    words = [
        token.value
        for token in between
        if token not in things and token.kind is not Kind.TIMES and token.value not in idle
    ]
    share: Quantity | None
    failures = [token.value for token in between if token.kind is Kind.METRIC] == ["error_rate"]
    if words in _OUT_OF or (
        failures and words in (["error_rate", "per"], ["error_rate", "in"], ["error_rate", "out", "of"])
    ):
        share = _part(first, tokens[place])
    elif things and words and (words[0] in _AMONG or failures) and _only_bounds(between):
        share = _part(tokens[place], first)
    else:
        return None
    counted = kinds(tokens[place + 1 :], Kind.TIMES)  # 两次
    return _told_share(tokens, place + 1 + counted, share, bool(things)) if share else None


_AMONG = frozenset({"里", "中", "里面", "当中", "里有"})
_OUT_OF = (["out", "of"], ["of"], ["in"], ["/"])


def _is_per_many(tokens: Sequence[TextToken]) -> bool:
    failing = len(tokens) > 3 and tokens[1].kind is Kind.METRIC and tokens[1].value == "error_rate"
    return failing and tokens[2].value == "per" and tokens[3].kind is Kind.MULTIPLIER


def _part(part: TextToken, whole: TextToken) -> Quantity | None:
    if not 0 < part.value.number < whole.value.number:
        return None
    return _percent(part.value.number / whole.value.number)


def _percent(share: float) -> Quantity:
    return Quantity(float(f"{100 * share:.12g}"), "ratio", 0.01)


def _only_bounds(tokens: Sequence[TextToken]) -> bool:
    metrics = [token for token in tokens if token.kind is Kind.METRIC]
    return all(token.value in {"error_rate", "availability"} for token in metrics) and all(
        token.kind in {Kind.FILLER, Kind.THING, Kind.COMPARISON, Kind.METRIC, Kind.MAY, Kind.JOIN} for token in tokens
    )


def _told_share(tokens: Sequence[TextToken], used: int, share: Quantity, of_requests: bool) -> Rewrite | None:
    """The share as a percentile.

    As an amount where it is about failures, or where ``of requests`` still follows.
    """
    inner = [token for token in tokens[1 : used - 1] if token.kind in {Kind.METRIC, Kind.COMPARISON}]
    token = spanning(tokens[:used], Kind.QUANTITY, share)
    rare = share.value < _COMMON
    if rare or any(token.kind is Kind.METRIC for token in inner) or _about_failures(tokens[used:]):
        return [*inner, replace(token, start=max([token.start, *(token.end for token in inner)]))], used
    if _of_requests(tokens[used:]):
        return [token], used
    if any(token.value == "/" for token in tokens[1:used]) and not of_requests:
        return None
    return [spanning(tokens[:used], Kind.STAT, _percentile(share))], used


def _is_share(token: TextToken) -> bool:
    return token.kind is Kind.QUANTITY and token.value.unit == "ratio"


def _percentile(share: Quantity) -> str:
    return f"p{share.value * 100:.6g}"


_OF = frozenset(["of", "the", "all", "our", "any", "every", "each", "的", "all"])


def _of_requests(tokens: Sequence[TextToken]) -> int:
    """How many tokens say ``of all requests``; 0 if they do not."""
    place = 0
    while place < len(tokens) and tokens[place].value in _OF:
        place += 1
    if place < min(5, len(tokens)) and (
        (tokens[place].kind is Kind.THING and tokens[place].value == "requests") or tokens[place].kind is Kind.AUDIENCE
    ):
        return place + 1
    return 0


_COMMON = 0.5
"""A smaller share of requests is no percentile: ``one in a thousand``."""


def shares(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``99% of requests``, ``at least 99% of requests``: the percentile 99.

    Not where it is about failures.
    """
    start = 1 if tokens[0].kind is Kind.COMPARISON and tokens[0].value == ">=" else 0
    if len(tokens) <= start or not _is_share(tokens[start]) or tokens[start].value.value < _COMMON:
        return None
    used = _of_requests(tokens[start + 1 :])
    if not used or _about_failures(tokens[start + 1 + used :]):
        return None
    return joined(tokens[: start + 1 + used], Kind.STAT, _percentile(tokens[start].value))


def percentiles(tokens: Sequence[TextToken]) -> list[TextToken]:
    """Shares by what else a clause says.

    Beside a latency and its bound the percentile (``95% 的首字延迟在 2 秒内``), of a service that is up the bound
    itself (``available 99.8% of the time``).
    """
    result = list(tokens)
    start = 0
    for end in (*(n for n, token in enumerate(tokens) if token.kind in {Kind.JOIN, Kind.STOP}), len(tokens)):
        clause = tokens[start:end]
        if (place := _percentile_in(clause)) is not None:
            share = clause[place]
            result[start + place] = replace(share, kind=Kind.STAT, value=_percentile(share.value))
        elif (place := _share_in(clause)) is not None:
            number = float(clause[place].value[1:])
            result[start + place] = replace(clause[place], kind=Kind.QUANTITY, value=Quantity(number, "ratio", 0.01))
        start = end + 1
    return result


def _share_in(tokens: Sequence[TextToken]) -> int | None:
    """The place of the one percentile in a clause about availability that has no amount."""
    metrics = {token.value for token in tokens if token.kind is Kind.METRIC}
    stats = [n for n, token in enumerate(tokens) if token.kind is Kind.STAT and token.value[:1] == "p"]
    amounts = any(token.kind is Kind.QUANTITY for token in tokens)
    return stats[0] if metrics == {"availability"} and len(stats) == 1 and not amounts else None


_BOUND = frozenset({Kind.METRIC, Kind.QUANTITY, Kind.COMPARISON, Kind.FILLER, Kind.THING, Kind.AUDIENCE, Kind.WINDOW, Kind.TENANT,
     Kind.MODEL, Kind.TO, Kind.MAY, Kind.LIST, Kind.SOFT, Kind.ONLY, Kind.UNKNOWN})  # fmt: skip
"""Kinds of a clause that says no more than a bound."""


def _percentile_in(tokens: Sequence[TextToken]) -> int | None:
    """The place of the one share in a clause that bounds a latency by a time."""
    metrics = {token.value for token in tokens if token.kind is Kind.METRIC}
    amounts = [(n, token.value) for n, token in enumerate(tokens) if token.kind is Kind.QUANTITY]
    shares = [n for n, quantity in amounts if quantity.unit == "ratio" and _COMMON <= quantity.value < 1]
    times = [amount for _, amount in amounts if amount.unit == "s"]
    latency = bool(metrics) and metrics <= {*LATENCIES, ANY_LATENCY}
    plain = all(token.kind in _BOUND for token in tokens)
    return shares[0] if latency and plain and len(amounts) == 2 and len(shares) == len(times) == 1 else None


def _about_failures(tokens: Sequence[TextToken]) -> bool:
    return any(token.kind is Kind.METRIC and token.value in {"error_rate", "availability"} for token in tokens[:3])


def complements(tokens: Sequence[TextToken]) -> Rewrite | None:
    """``no more than 1% of requests above 2s``: 99 % of them at most 2 s."""
    place = skip(tokens, 0, Kind.NEGATION)
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
    between = skip(tokens, end, Kind.FILLER, Kind.MAY, Kind.METRIC)
    if not kinds(tokens[between:], Kind.COMPARISON) or tokens[between].value not in {">=", "worse"}:
        return None
    share = tokens[place].value
    stat = spanning(tokens[:end], Kind.STAT, _percentile(replace(share, number=100 - share.number)))
    return [stat, *tokens[end:between], replace(tokens[between], value="<=")], between + 1
