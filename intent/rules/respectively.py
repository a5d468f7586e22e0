"""``TTFT and TPOT under 2 s and 60 ms respectively``, ``TTFT 和 TPOT 分别不超过 2 秒和 60 毫秒``: each its own amount."""

from collections.abc import Sequence
from dataclasses import replace

from intent.rules.kinds import Kind
from intent.rules.tokens import Token

_LISTED = (Kind.METRIC, Kind.SETTING, Kind.TENANT, Kind.WINDOW, Kind.MODEL, Kind.STAT)
"""What amounts can be handed out to, the first that are as many."""
_SEPARATORS = frozenset({Kind.JOIN, Kind.LIST})
_DEALT = frozenset({*_SEPARATORS, Kind.COMPARISON, Kind.QUANTITY, Kind.RESPECTIVELY, Kind.FILLER})


def dealt(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with every such sentence said one amount at a time; one that cannot be is left as it is, and asked about."""
    result: list[Token] = []
    start = 0
    for end in (*(n for n, token in enumerate(tokens) if token.kind is Kind.STOP), len(tokens)):
        sentence = tokens[start:end]
        said = any(token.kind is Kind.RESPECTIVELY for token in sentence)
        result += (_sentence(sentence) if said else None) or sentence
        result += tokens[end : end + 1]
        start = end + 1
    return result


def _sentence(tokens: Sequence[Token]) -> list[Token] | None:
    amounts = [n for n, token in enumerate(tokens) if token.kind is Kind.QUANTITY]
    listed = next((kind for kind in _LISTED if len(_of(tokens, kind)) == len(amounts)), None)
    if listed is None or len(amounts) < 2:
        return None
    shared = [token for token in tokens if token.kind not in _DEALT and token.kind is not listed]
    first = _comparison(tokens, amounts[0])
    parts: list[list[Token]] = []
    for place, head in zip(amounts, _of(tokens, listed), strict=True):
        comparison = _comparison(tokens, place) or first
        bound = [comparison] if comparison else []
        parts.append([head, *shared, *bound, tokens[place]])
    joint = next(token for token in tokens if token.kind in _SEPARATORS)
    return [token for n, part in enumerate(parts) for token in (*(() if n == 0 else (_comma(joint),)), *part)]


def _of(tokens: Sequence[Token], kind: Kind) -> list[Token]:
    return [token for token in tokens if token.kind is kind]


def _comparison(tokens: Sequence[Token], place: int) -> Token | None:
    """The comparison on either side of an amount, up to the next word that separates."""
    for way in (-1, 1):
        near = place + way
        while 0 <= near < len(tokens) and tokens[near].kind in {Kind.FILLER, Kind.RESPECTIVELY}:
            near += way
        if 0 <= near < len(tokens) and tokens[near].kind is Kind.COMPARISON:
            return tokens[near]
    return None


def _comma(joint: Token) -> Token:
    return replace(joint, kind=Kind.JOIN, value=",")
