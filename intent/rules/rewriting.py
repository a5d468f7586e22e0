"""How tokens are rewritten.

A rule looks at the front of a list and says what stands for how many of them. Pure.
"""

from collections.abc import Callable, Iterator, Sequence

from intent.rules.kinds import Kind
from intent.rules.tokens import TextToken

Rewrite = tuple[list[TextToken], int]
"""Tokens that stand for the first ``n``."""
Rule = Callable[[Sequence[TextToken]], Rewrite | None]
"""Looks at the front of the tokens; None leaves the first as it is."""

REACH = 16
"""How many tokens a rule may look ahead."""


def rewritten(tokens: Sequence[TextToken], rule: Rule) -> Iterator[TextToken]:
    """The tokens after one pass of a rule, from left to right."""
    place = 0
    while place < len(tokens):
        rewritten, used = rule(tokens[place : place + REACH]) or (tokens[place : place + 1], 1)
        yield from rewritten
        place += used


def kinds(tokens: Sequence[TextToken], *kinds: Kind) -> bool:
    """Whether the tokens begin with these kinds."""
    if tokens and kinds and tokens[0].kind is not kinds[0]:  # most rules end here
        return False
    return len(tokens) >= len(kinds) and all(token.kind is kind for token, kind in zip(tokens, kinds, strict=False))


def spanning(tokens: Sequence[TextToken], kind: Kind, value: object) -> TextToken:
    """One token for several, with the first spelling correction among them."""
    fix = next((token.misspelt for token in tokens if token.misspelt), None)
    return TextToken(kind, value, tokens[0].start, tokens[-1].end, fix)


def joined(tokens: Sequence[TextToken], kind: Kind, value: object) -> Rewrite:
    """A rewrite of these tokens to one."""
    return [spanning(tokens, kind, value)], len(tokens)


def skip(tokens: Sequence[TextToken], start: int, *kinds: Kind) -> int:
    """The place of the first token from ``start`` that is none of these kinds."""
    while start < len(tokens) and tokens[start].kind in kinds:
        start += 1
    return start
