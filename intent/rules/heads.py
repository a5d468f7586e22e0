"""What a clause is about: the metric or setting it names, or the one that its unit gives away."""

from collections.abc import Sequence
from dataclasses import replace

from intent.models import LATENCIES
from intent.rules.clauses import AMOUNTS, HEADS, Clause
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.tokens import TextToken
from intent.tables import table

_IMPLIED: dict[str, str] = table("intent.rules", "offers")["implied"]
"""Units that belong to one metric, so that the metric need not be said."""


def heads_of(clause: Clause) -> list[TextToken]:
    """The metrics or settings of the clause; a unit that only one metric has stands in for it."""
    heads = _named(clause)
    only_counted = len(heads) == 1 and heads[0].kind is Kind.COUNTED
    if heads and not (only_counted and _unit_of(clause) in _IMPLIED):
        return heads
    return _implied(clause)


def _named(clause: Clause) -> list[TextToken]:
    heads = clause.of(*HEADS)
    if len(heads) < 2:
        return heads
    loose = [head for head in heads if head.kind is Kind.COUNTED and not _counts(clause, head)]
    heads = [head for head in heads if head not in loose] or heads[:1]
    values = {head.value for head in heads}
    vague = {ANY_LATENCY} if values & LATENCIES else set()
    vague |= {ANY_THROUGHPUT} if values & {"throughput_tok", "throughput_req"} else set()
    return _distinct([head for head in heads if head.value not in vague])


def _implied(clause: Clause) -> list[TextToken]:
    """The metric that a unit, the word cheapest or a counted thing per second stands for."""
    for token in clause.of(*AMOUNTS):
        quantity = token.value if token.kind is Kind.QUANTITY else token.value[0]
        if quantity.unit in _IMPLIED:
            return [replace(token, kind=Kind.METRIC, value=_IMPLIED[quantity.unit])]
    vague = clause.first(Kind.VAGUE)
    if vague and vague.value == "cheap" and any(token.value.unit == "ratio" for token in clause.of(Kind.QUANTITY)):
        return [replace(vague, kind=Kind.METRIC, value="cost")]  # "15% cheaper"
    if cheapest := clause.first(Kind.CHEAPEST):
        return [replace(cheapest, kind=Kind.METRIC, value="cost")]
    thing = clause.first(Kind.THING)
    period = clause.first(Kind.PERIOD)
    if thing and period and clause.has(Kind.OPTIMISE) and period.value in {"s", "min", "h", "day"}:
        return [replace(thing, kind=Kind.METRIC, value=f"throughput_{thing.value[:3]}")]
    units = [unit for unit in clause.of(Kind.UNIT) if unit.value[0] in _IMPLIED]
    return [replace(unit, kind=Kind.METRIC, value=_IMPLIED[unit.value[0]]) for unit in units[:1]]


def _unit_of(clause: Clause) -> str | None:
    amount = clause.first(Kind.QUANTITY)
    return amount.value.unit if amount else None


def _distinct(heads: Sequence[TextToken]) -> list[TextToken]:
    """One head per meaning: ``首字延迟（TTFT）``."""
    return list({head.value: head for head in reversed(heads)}.values())[::-1]


def _counts(clause: Clause, head: TextToken) -> bool:
    """Whether a plain number stands right before what it counts."""
    before = [token for token in clause.tokens if token.end <= head.start]
    return (
        bool(before) and before[-1].kind in AMOUNTS and head.start - before[-1].end <= 1 and not clause.has(Kind.METRIC)
    )


def unknown_head(clause: Clause) -> list[TextToken]:
    """A word without a meaning right before a bound stands where a metric should: ``the vibes under 2s``."""
    bound = next((token for token in clause.tokens if token.kind is Kind.COMPARISON), None)
    if bound is None:
        return []
    place = bound.start
    found = []
    for token in reversed(clause.plain):
        if token.end <= place <= token.end + 1 and str(token.value)[0].isalpha():
            found.append(token)
            place = token.start
    if not found or (not found[0].value.isascii() and len(found) < 2):
        return []
    return [replace(found[-1], end=found[0].end)]
