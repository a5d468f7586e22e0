"""Lists: joints between two of a kind that do not part them. Pure.

``TTFT and TPOT``, ``at peak and overnight``.
"""

from collections.abc import Sequence
from dataclasses import replace

from intent.rules.kinds import Kind
from intent.rules.tokens import TextToken

_LISTABLE = frozenset(
    {Kind.TENANT, Kind.WINDOW, Kind.MODEL, Kind.METRIC, Kind.STAT, Kind.PRECISION, Kind.SELECTOR, Kind.WORKLOAD, Kind.SETTING,
     Kind.LAYERS}
)  # fmt: skip
_SCOPES = frozenset({Kind.TENANT, Kind.WINDOW, Kind.MODEL})
_IDLE = frozenset({Kind.FILLER, Kind.AUDIENCE})
_ENDS = frozenset({Kind.JOIN, Kind.STOP, Kind.LIST})
_REFUSALS = frozenset({Kind.NEGATION, Kind.AVOID})


def listed(tokens: list[TextToken]) -> list[TextToken]:
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


def _neighbour(tokens: Sequence[TextToken], place: int, step: int) -> int | None:
    place += step
    while 0 <= place < len(tokens):
        if tokens[place].kind not in _IDLE:
            return place
        place += step
    return None


def _is_list(tokens: Sequence[TextToken], before: int, place: int, after: int) -> bool:
    kind = tokens[before].kind
    joint = tokens[place]
    sentence = _sentence_before(tokens, before)
    if joint.kind is not Kind.JOIN:
        return joint.value == "/" or any(token.kind in _REFUSALS for token in sentence)
    if kind is Kind.SELECTOR or kind is Kind.WORKLOAD:
        ends = next((n for n in range(after, len(tokens)) if tokens[n].kind in {Kind.STOP, Kind.JOIN}), len(tokens))
        frozen = any(token.kind is Kind.FREEZE for token in tokens[after:ends])
        apart = frozen and any(token.kind in {Kind.WORKLOAD, Kind.TENANT} for token in sentence)
        return (joint.value == "and" and not apart) or after == len(tokens) - 1
    following = _neighbour(tokens, after, 1)
    ends = following is None or tokens[following].kind in _ENDS | _SCOPES - {kind}
    if kind in _SCOPES:
        return (ends and joint.value == "and") or all(token.kind in {*_IDLE, *_SCOPES, Kind.LIST} for token in sentence)
    if kind is Kind.METRIC:
        if before and tokens[before - 1].kind is Kind.QUANTITY and following is not None and not ends:
            return False  # "99.95% uptime and error rate < 0.1%"
        optimised = any(token.kind is Kind.OPTIMISE for token in sentence)
        bound = following is not None and tokens[following].kind in {
            Kind.COMPARISON,
            Kind.QUANTITY,
            Kind.STAT,
        }
        ranked = any(token.kind in {Kind.COMPARISON, Kind.PRIORITY} for token in sentence)
        return not ((optimised or ranked) and bound)
    return True


def _sentence_before(tokens: Sequence[TextToken], place: int) -> list[TextToken]:
    start = place
    while start and tokens[start - 1].kind not in {Kind.STOP, Kind.JOIN}:
        start -= 1
    return list(tokens[start:place])
