"""Clauses to readings: which words of a clause fill which slot of a goal, still as they were said.

Both translators end in a ``Reading``; ``intent.goals`` alone decides what it means.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intent.clauses import HEADS, Clause
from intent.lexicon import Kind
from intent.quantities import PER_USER, Quantity
from intent.tokens import Token

_IMPLIED = {
    "tokens/s": "throughput_tok",
    "requests/s": "throughput_req",
    "s/token": "tpot",
    PER_USER: "tpot",
    "USD": "cost",
    "USD/h": "cost",
    "USD/day": "cost",
    "USD/month": "cost",
    "USD/Mtok": "cost",
}
"""Units that belong to one metric, so that the metric need not be said."""

_SLOTS = frozenset(
    {
        Kind.STAT,
        Kind.COMPARISON,
        Kind.QUANTITY,
        Kind.RANGE,
        Kind.WINDOW,
        Kind.OPTIMISE,
        Kind.TENANT,
        Kind.MODEL,
    }
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One goal as it was said: each slot a token of the text, None where nothing was said."""

    start: int
    end: int
    """The half-open place of the evidence in the text."""
    head: Token | None = None
    """A ``METRIC``, ``SETTING`` or ``COUNTED``."""
    stat: Token | None = None
    comparison: Token | None = None
    """A ``COMPARISON`` or ``OPTIMISE``."""
    quantity: Token | None = None
    window: Token | None = None
    tenant: Token | None = None
    model: Token | None = None
    notes: tuple[tuple[str, str], ...] = ()
    """Slots filled without a word that says so, and how; they become assumptions."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a clause gave: readings, and tokens that found no slot."""

    readings: tuple[Reading, ...]
    leftovers: tuple[Token, ...]


def bind(clause: Clause, previous: Sequence[Reading]) -> Bound:
    """Give every token of the clause its slot; what the clause leaves out is taken from the readings before it."""
    if clause.repeats:
        window = clause.tokens[-1]
        again = [replace(reading, window=window, start=window.start, end=window.end) for reading in previous]
        return Bound(tuple(again), clause.tokens[:-1])
    heads = _heads(clause) or _unknown_head(clause)
    first = {kind: next(iter(clause.of(kind)), None) for kind in _SLOTS}
    comparison = first[Kind.OPTIMISE] or first[Kind.COMPARISON]
    used = {*heads, *first.values(), *clause.of(Kind.STAT)}
    leftovers = tuple(token for token in clause.tokens if token not in used and not _is_idle(token, heads))
    said = [token for token in clause.tokens if token not in leftovers]
    relative = clause.has(Kind.RELATIVE)
    reading = Reading(
        start=min(token.start for token in said),
        end=max(token.end for token in said),
        comparison=None if relative else comparison,
        quantity=None if relative else first[Kind.QUANTITY] or first[Kind.RANGE],
        window=first[Kind.WINDOW] or clause.scope,
        tenant=first[Kind.TENANT],
        model=first[Kind.MODEL],
    )
    if (
        not heads and clause.runs_on and not comparison
    ):  # "2s for 2 hours": a number that nothing joins to the goal
        return Bound((), clause.tokens)
    if not heads and not leftovers and previous and reading.quantity:
        return Bound(tuple(_completed(reading, first[Kind.STAT], previous[-1])), leftovers)
    pairs, unpaired = _paired(heads, clause.of(Kind.STAT))
    readings = [_facing(replace(reading, head=head, stat=stat)) for head, stat in pairs]
    wish = previous[-1].comparison if previous else None
    if wish and wish.kind is Kind.OPTIMISE and not (comparison or reading.quantity or relative):
        readings = [replace(one, comparison=wish) for one in readings]  # "minimise cost and TTFT"
    return Bound(tuple(bounded for one in readings for bounded in _ranged(one)), leftovers + unpaired)


def _heads(clause: Clause) -> list[Token]:
    """The metrics or settings of the clause; a unit that only one metric has stands in for it."""
    heads = clause.of(*HEADS)
    without_number = [
        head for head in heads if head.kind is Kind.COUNTED and not clause.has(Kind.QUANTITY, Kind.RANGE)
    ]
    if len(heads) > 1:
        heads = [head for head in heads if head not in without_number] or heads
    if heads:
        return heads
    amounts = clause.of(Kind.QUANTITY, Kind.RANGE)
    for token in amounts:
        quantity = token.value if token.kind is Kind.QUANTITY else token.value[0]
        if quantity.unit in _IMPLIED:
            return [replace(token, kind=Kind.METRIC, value=_IMPLIED[quantity.unit])]
    return [
        replace(unit, kind=Kind.METRIC, value=_IMPLIED[unit.value[0]])
        for unit in clause.of(Kind.UNIT)
        if unit.value[0] in _IMPLIED
    ][:1]


def _unknown_head(clause: Clause) -> list[Token]:
    """Unknown words in front of a bound stand where a metric should: ``the vibes under 2s``."""
    bound = min((token.start for token in clause.of(Kind.COMPARISON, Kind.QUANTITY, Kind.RANGE)), default=0)
    unknown = [token for token in clause.of(Kind.UNKNOWN) if token.end <= bound]
    return [replace(unknown[0], end=unknown[-1].end)] if unknown else []


def _is_idle(token: Token, heads: Sequence[Token]) -> bool:
    """Whether a token adds nothing: ``GPU`` beside another head, a unit that became the head."""
    if token.kind is Kind.COUNTED:
        return bool(token.value == "gpu_count")
    return token.kind is Kind.RELATIVE or any(head.start <= token.start < head.end for head in heads)


def _paired(
    heads: Sequence[Token], stats: Sequence[Token]
) -> tuple[list[tuple[Token | None, Token | None]], tuple[Token, ...]]:
    """Metrics with their statistics: one statistic for all, one each, or several for one metric."""
    if not heads:
        return [(None, stats[0] if stats else None)], tuple(stats[1:])
    if len(stats) == len(heads):
        return list(zip(heads, stats, strict=True)), ()
    if len(heads) == 1 and len(stats) > 1:
        return [(heads[0], stat) for stat in stats], ()
    return [(head, stats[0] if stats else None) for head in heads], tuple(stats[1:])


def _completed(reading: Reading, stat: Token | None, previous: Reading) -> list[Reading]:
    """An ellipsis, ``... and 5s overnight``: head, statistic and comparison come from the goal before."""
    complete = replace(
        reading,
        head=previous.head,
        stat=stat or previous.stat,
        comparison=reading.comparison or previous.comparison,
        tenant=reading.tenant or previous.tenant,
        model=reading.model or previous.model,
    )
    return _ranged(complete)


def _facing(reading: Reading) -> Reading:
    """``2s > TTFT`` is ``TTFT < 2s``: a sign between number and metric is read from the metric's side."""
    head, sign, amount = reading.head, reading.comparison, reading.quantity
    if head is None or sign is None or amount is None or sign.end - sign.start > 2:
        return reading
    if amount.end <= sign.start and sign.end <= head.start and sign.value in _FACING:
        return replace(reading, comparison=replace(sign, value=_FACING[sign.value]))
    return reading


_FACING = {"<=": ">=", ">=": "<="}


def _ranged(reading: Reading) -> list[Reading]:
    """A range is two bounds."""
    token = reading.quantity
    if token is None or token.kind is not Kind.RANGE:
        return [reading]
    low, high = token.value
    return [_bounded(reading, token, ">=", low), _bounded(reading, token, "<=", high)]


def _bounded(reading: Reading, token: Token, op: str, quantity: Quantity) -> Reading:
    return replace(
        reading,
        comparison=replace(token, kind=Kind.COMPARISON, value=op),
        quantity=replace(token, kind=Kind.QUANTITY, value=quantity),
    )
