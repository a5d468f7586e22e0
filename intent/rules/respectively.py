"""``TTFT and TPOT under 2 s and 60 ms respectively``, ``TTFT 和 TPOT 分别不超过 2 秒和 60 毫秒``.

Each its own amount.
"""

from collections.abc import Sequence
from dataclasses import replace

from intent.rules.kinds import Kind
from intent.rules.tokens import TextToken

_LISTED = (Kind.METRIC, Kind.SETTING, Kind.TENANT, Kind.WINDOW, Kind.MODEL, Kind.STAT)
"""What amounts can be handed out to, the first that are as many."""
_SEPARATORS = frozenset({Kind.JOIN, Kind.LIST})
_DEALT = frozenset({*_SEPARATORS, Kind.COMPARISON, Kind.QUANTITY, Kind.RESPECTIVELY, Kind.FILLER})


def dealt(tokens: Sequence[TextToken]) -> list[TextToken]:
    """The tokens with every such sentence said one amount at a time.

    One that cannot be is left as it is, and asked about.
    """
    result: list[TextToken] = []
    start = 0
    for end in (*(n for n, token in enumerate(tokens) if token.kind is Kind.STOP), len(tokens)):
        word = next((n for n in range(start, end) if tokens[n].kind is Kind.RESPECTIVELY), None)
        is_respective = word is not None
        behind = (n for n in range(word or start, end) if tokens[n].kind is Kind.JOIN and tokens[n].value == ",")
        cut = end if not is_respective or _amounts_behind(tokens[word:end]) else next(behind, end)
        sentence = tokens[start:cut]
        result += (_sentence(sentence) if is_respective else None) or sentence
        result += tokens[cut : end + 1]
        start = end + 1
    return result


def in_rows(tokens: Sequence[TextToken]) -> list[TextToken]:
    """The same of amounts in a row without the word, up to each full stop."""
    result: list[TextToken] = []
    start = 0
    for end in (*(n for n, token in enumerate(tokens) if token.kind is Kind.STOP), len(tokens)):
        sentence = tokens[start:end]
        result += (_sentence(sentence) if _is_dealt(sentence) else None) or sentence
        result += tokens[end : end + 1]
        start = end + 1
    return result


def _is_dealt(tokens: Sequence[TextToken]) -> bool:
    """``p50, p90 and p99 under 40, 60 and 90 ms``.

    Amounts in a row, as many as statistics or metrics before them.
    """
    amounts = [n for n, token in enumerate(tokens) if token.kind is Kind.QUANTITY]
    if len(amounts) < 2 or any(
        token.kind not in _SEPARATORS for token in tokens[amounts[0] : amounts[-1]] if token.kind is not Kind.QUANTITY
    ):
        return False
    named = [token.kind for token in tokens[: amounts[0]]]
    units = {tokens[n].value.unit is None for n in amounts[:-1]}
    return (
        len(units) == 1
        and tokens[amounts[-1]].value.unit is not None
        and len(amounts) in {named.count(Kind.STAT), named.count(Kind.METRIC)}
    )


def _amounts_behind(tokens: Sequence[TextToken]) -> bool:
    return any(token.kind is Kind.QUANTITY for token in tokens)


def _sentence(tokens: Sequence[TextToken]) -> list[TextToken] | None:
    amounts = [n for n, token in enumerate(tokens) if token.kind is Kind.QUANTITY]
    listed = next((kind for kind in _LISTED if len(_of(tokens, kind)) == len(amounts)), None)
    if listed is None or len(amounts) < 2:
        return None
    shared = [token for token in tokens if token.kind not in _DEALT and token.kind is not listed]
    first = _comparison(tokens, amounts[0])
    parts: list[list[TextToken]] = []
    for place, head in zip(amounts, _of(tokens, listed), strict=True):
        comparison = _comparison(tokens, place) or first
        bound = [comparison] if comparison else []
        parts.append([head, *shared, *bound, _with_unit(tokens[place], tokens[amounts[-1]])])
    joint = next((token for token in tokens if token.kind in _SEPARATORS), None)
    if joint is None:
        return None
    return [token for n, part in enumerate(parts) for token in (*(() if n == 0 else (_comma(joint),)), *part)]


def _with_unit(amount: TextToken, last: TextToken) -> TextToken:
    """A unit said once, behind the last amount, is that of all."""
    if amount.value.unit is not None:
        return amount
    return replace(amount, value=amount.value.in_unit(last.value.unit, last.value.factor))


def _of(tokens: Sequence[TextToken], kind: Kind) -> list[TextToken]:
    return [token for token in tokens if token.kind is kind]


def _comparison(tokens: Sequence[TextToken], place: int) -> TextToken | None:
    """The comparison on either side of an amount, up to the next word that separates."""
    for way in (-1, 1):
        near = place + way
        while 0 <= near < len(tokens) and tokens[near].kind in {Kind.FILLER, Kind.RESPECTIVELY}:
            near += way
        if 0 <= near < len(tokens) and tokens[near].kind is Kind.COMPARISON:
            return tokens[near]
    return None


def _comma(joint: TextToken) -> TextToken:
    return replace(joint, kind=Kind.JOIN, value=",")
