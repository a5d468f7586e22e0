"""Tokens to clauses: one clause per goal (or per goals that share their bound), windows said once handed on.

Conventions: a window that leads a sentence covers it; one behind a goal belongs to that goal alone, but to TP and PP
said together, which are one topology; ``at peak and overnight`` is the goal twice; ``TTFT and TPOT under 2s`` is one
clause with two metrics.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from intent.lexicon import Kind
from intent.tokens import Token

HEADS = frozenset({Kind.METRIC, Kind.SETTING, Kind.COUNTED})
_AMOUNTS = frozenset({Kind.QUANTITY, Kind.RANGE})
_SILENT = frozenset({Kind.FILLER, Kind.ORDER})
_OPENERS = frozenset({Kind.METRIC, Kind.SETTING, Kind.VAGUE, Kind.OPTIMISE, Kind.COMPARISON, *_AMOUNTS})


@dataclass(frozen=True, slots=True)
class Clause:
    """Tokens that belong together; fillers are gone."""

    tokens: tuple[Token, ...]
    opens_sentence: bool = False
    joined_by_and: bool = False
    runs_on: bool = False
    """Nothing separates it from the clause before."""
    repeats: bool = False
    """Only a window, for the goals of the clause before."""
    scope: Token | None = field(default=None)
    """The window that covers the clause unless it names its own."""

    def of(self, *kinds: Kind) -> list[Token]:
        """The tokens of these kinds, in order."""
        return [token for token in self.tokens if token.kind in kinds]

    def has(self, *kinds: Kind) -> bool:
        """Whether a token of these kinds stands in it."""
        return bool(self.of(*kinds))

    def is_only(self, *kinds: Kind) -> bool:
        """Whether it consists of such tokens alone."""
        return all(token.kind in kinds for token in self.tokens)


def clauses(tokens: Sequence[Token]) -> list[Clause]:
    """The clauses of a text."""
    return _scoped(_merged(_segments(tokens)))


def _segments(tokens: Sequence[Token]) -> list[Clause]:
    """Cut at commas, ``and`` and full stops, and where a second goal begins without any of them."""
    found: list[Clause] = []
    current = Clause((), opens_sentence=True)
    for place, token in enumerate(tokens):
        if token.kind in {Kind.JOIN, Kind.STOP}:
            found.append(current)
            stop = token.kind is Kind.STOP or (current.opens_sentence and not current.tokens)
            current = Clause((), opens_sentence=stop, joined_by_and=token.value in {"and", "&", "as well as"})
        elif token.kind not in _SILENT:
            if _begins_another(current, token, tokens[place + 1 :]):
                found.append(current)
                current = Clause((), runs_on=True)
            current = replace(current, tokens=(*current.tokens, token))
    return [clause for clause in [*found, current] if clause.tokens]


def _begins_another(clause: Clause, token: Token, following: Sequence[Token]) -> bool:
    complete = clause.has(*HEADS) and clause.has(Kind.OPTIMISE, *_AMOUNTS)
    if not complete:
        return False
    if token.kind is Kind.STAT:
        return any(later.kind is Kind.METRIC for later in following[:2])
    if token.kind is Kind.COMPARISON:  # "2s or less" closes the clause, "2s at most 4 GPUs" opens another
        return clause.has(Kind.COMPARISON) and any(later.kind in _AMOUNTS for later in following[:2])
    return token.kind in _OPENERS


def _merged(segments: Iterable[Clause]) -> list[Clause]:
    """Join ``TTFT`` and ``P50`` with the bound that follows them."""
    merged: list[Clause] = []
    for segment in segments:
        last = merged[-1] if merged else None
        waits = last is not None and last.is_only(Kind.METRIC, Kind.STAT) and not segment.opens_sentence
        if (
            last is not None
            and waits
            and segment.has(Kind.METRIC, Kind.STAT, *_AMOUNTS)
            and not segment.has(Kind.OPTIMISE)
        ):
            merged[-1] = replace(last, tokens=last.tokens + segment.tokens)
        else:
            merged.append(segment)
    return merged


def _scoped(segments: Sequence[Clause]) -> list[Clause]:
    """Hand windows that stand alone to the clauses they cover."""
    result: list[Clause] = []
    scope: Token | None = None
    for place, segment in enumerate(segments):
        if segment.opens_sentence:
            scope = None
        following = segments[place + 1] if place + 1 < len(segments) else None
        if not segment.is_only(Kind.WINDOW):
            if segment.tokens[0].kind is Kind.WINDOW:
                scope = segment.tokens[0]
            result.append(replace(segment, scope=scope))
        elif _leads(segment, following):
            scope = segment.tokens[-1]
        elif result and not result[-1].has(Kind.WINDOW):
            result[-1] = replace(result[-1], tokens=result[-1].tokens + segment.tokens)
        else:
            result.append(replace(segment, repeats=bool(result)))
    for place in range(len(result) - 2, -1, -1):
        clause, after = result[place], result[place + 1]
        if _one_wish(clause, after) and not (clause.scope or clause.has(Kind.WINDOW)):
            result[place] = replace(clause, scope=next(iter(after.of(Kind.WINDOW)), after.scope))
    return result


def _one_wish(clause: Clause, after: Clause) -> bool:
    """Whether a window said with the second was said of both: ``tp 2 pp 2 at peak`` is one topology."""
    settings = all(
        one.has(Kind.SETTING, Kind.COUNTED) and not one.has(Kind.METRIC) for one in (clause, after)
    )
    return (after.runs_on or settings) and not after.opens_sentence


def _leads(segment: Clause, following: Clause | None) -> bool:
    if following is None or following.opens_sentence:
        return False
    if segment.opens_sentence:
        return True
    return not segment.joined_by_and and following.has(*HEADS) and not following.has(Kind.WINDOW)
