"""Clauses to readings: which words of a clause fill which slot of a bound, still as they were said.

``intent.goals`` alone decides what a reading means.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from intent.models import LATENCIES
from intent.rules.clauses import AMOUNTS, SCOPES, Clause
from intent.rules.heads import heads_of, unknown_head
from intent.rules.kinds import ANY_LATENCY, Kind
from intent.rules.quantities import PER_USER, Quantity
from intent.rules.tokens import TextToken

_IDLE = frozenset(
    {Kind.AUDIENCE, Kind.LIST, Kind.THING, Kind.TO, Kind.CHANGE, Kind.MAY, Kind.NOW, Kind.BETWEEN, Kind.SAME, Kind.ONLY,
     Kind.ALLOW, Kind.SOFT, Kind.MORE}
)  # fmt: skip
"""Words that add nothing to a bound that is complete without them."""
_AROUND = frozenset({Kind.AUDIENCE, Kind.THING})
"""Words that are no evidence of a bound."""
_MARKS = frozenset("-*•·@/…\\'\"$&")


@dataclass(frozen=True, slots=True)
class BoundReading:
    """One bound as it was said: each slot a token of the text, None where nothing was said."""

    start: int
    end: int
    """The half-open place of the evidence in the text."""
    head: TextToken | None = None
    """A ``METRIC``, ``SETTING`` or ``COUNTED``."""
    stat: TextToken | None = None
    comparison: TextToken | None = None
    """A ``COMPARISON`` or ``OPTIMISE``."""
    quantity: TextToken | None = None
    direction: str | None = None
    """``<=`` or ``>=`` where the verb says one: cut it to, raise it to."""
    window: TextToken | None = None
    tenant: TextToken | None = None
    model: TextToken | None = None
    over: TextToken | None = None
    """The period over which it is measured."""
    inherited: frozenset[Kind] = frozenset()
    """Slots that the clause itself does not say."""
    soft: bool = False
    opposed: bool = False
    """Another bound stands on its other side: whether the two exclude each other is the validator's to say."""


@dataclass(frozen=True, slots=True)
class ClauseReading:
    """What a clause gave: readings, and tokens that found no slot."""

    readings: tuple[BoundReading, ...]
    leftovers: tuple[TextToken, ...]


def bind(clause: Clause, previous: Sequence[BoundReading], text: str) -> ClauseReading:
    """Give every token of the clause its slot; readings before it lend what it leaves out."""
    if clause.repeats:
        return _repeated(clause, previous)
    clause = _same_period(united(clause), previous)
    clause = _per_user(clause, previous)
    heads = heads_of(clause) or unknown_head(clause)
    quantity = _amount(clause)
    comparison = _comparison(clause)
    used = {
        *heads,
        quantity,
        clause.first(*AMOUNTS),
        comparison,
        *clause.of(Kind.STAT, *SCOPES),
        *_echoes(clause, comparison),
        *(token for token in clause.of(Kind.METRIC) if _is_named_again(token, heads)),
    }
    leftovers = tuple(token for token in clause.tokens if token not in used and not is_idle(token, heads))
    tokens = [token for token in clause.tokens if token not in leftovers or token.kind is Kind.FACTOR]
    if not tokens:
        return ClauseReading((), clause.tokens)
    reading = BoundReading(
        *extent([token for token in tokens if token.kind not in _AROUND] or tokens),
        comparison=comparison,
        quantity=quantity,
        direction=_direction(clause) or _limited(clause, text),
        soft=clause.has(Kind.SOFT),
    )
    if not heads and clause.joint is None and not comparison and not clause.has(Kind.STAT, Kind.SOFT, *SCOPES):
        return ClauseReading((), clause.tokens)  # "2s for 2 hours": a number that nothing joins to the goal
    stats = clause.of(Kind.STAT)
    if not heads and previous:
        counts = clause.has(Kind.THING, Kind.COUNTED)
        reading = replace(reading, quantity=quantity if counts else _with_unit(quantity, previous[-1].quantity))
        elsewhere = clause.has(*SCOPES)
        complete = [
            _completed(reading, stats[0] if stats else None, base, elsewhere=elsewhere)
            for base in _antecedents(previous)
        ]
        return ClauseReading(tuple(_spread(complete, clause, previous)), (*leftovers, *stats[1:]))
    pairs, unpaired = _paired(heads, stats)
    readings = [_facing(replace(reading, head=head, stat=stat), text) for head, stat in pairs]
    bound = clause.first(Kind.COMPARISON)
    measured = quantity is not None and (quantity.kind is Kind.RANGE or quantity.value.unit is not None)
    if comparison is not None and comparison.kind is Kind.OPTIMISE and bound is not None and measured:
        least = [replace(reading, quantity=None) for reading in readings]  # "minimise cost under $5/h" is both
        readings = [*least, *(replace(reading, comparison=bound) for reading in readings)]
        leftovers = tuple(token for token in leftovers if token is not bound)
    wish = previous[-1].comparison if previous else None
    alone = clause.is_only(Kind.METRIC, Kind.STAT, Kind.THING, *SCOPES) and clause.joint in {"and", ","}
    if wish and wish.kind is Kind.OPTIMISE and alone:
        readings = [replace(reading, comparison=wish) for reading in readings]  # "minimise cost and TTFT"
    return ClauseReading(tuple(_spread(readings, clause, ())), leftovers + unpaired)


def _per_user(clause: Clause, previous: Sequence[BoundReading]) -> Clause:
    """``20 tokens/s per user, 28 for paid ones``: a rate behind one per user is per user as well."""
    before = previous[-1].quantity if previous else None
    amount = clause.first(Kind.QUANTITY)
    rate = (
        amount is not None
        and amount.value.unit == "tokens/s"
        and clause.has(Kind.TENANT)
        and not clause.has(Kind.METRIC)
    )
    if (
        amount is None
        or not rate
        or before is None
        or before.kind is not Kind.QUANTITY
        or before.value.unit != PER_USER
    ):
        return clause
    token = replace(amount, value=amount.value.in_unit(PER_USER, amount.value.factor))
    return replace(clause, tokens=tuple(token if part is amount else part for part in clause.tokens))


def _with_unit(amount: TextToken | None, before: TextToken | None) -> TextToken | None:
    """``under 2 s at peak, 4 overnight``: a number without a unit has that of the bound before."""
    if amount is None or amount.kind is not Kind.QUANTITY or amount.value.unit is not None:
        return amount
    if before is None or before.kind is not Kind.QUANTITY or before.value.unit is None:
        return amount
    return replace(amount, value=amount.value.in_unit(before.value.unit, before.value.factor))


def _is_named_again(metric: TextToken, heads: Sequence[TextToken]) -> bool:
    """``端到端平均耗时``: the metric of a head, or the latency that it is."""
    named = {head.value for head in heads}
    return metric.value in named or (metric.value == ANY_LATENCY and bool(named & LATENCIES))


def united(clause: Clause) -> Clause:
    """Numbers with units that stand apart from them.

    ``QPS at least 50``, ``每秒 1000 个 token``, ``每小时 40 美元``.
    """
    amounts = clause.of(Kind.QUANTITY)
    if len(amounts) != 1:
        return clause
    amount = amounts[0]
    unit = clause.first(Kind.UNIT)
    period = clause.first(Kind.PERIOD)
    quantity: Quantity = amount.value
    used: list[TextToken] = []
    if quantity.unit is None and unit is not None and not clause.has(Kind.OPTIMISE):
        quantity = quantity.in_unit(*unit.value)
        used = [unit]
    elif period is not None and quantity.unit == f"USD/{period.value}":
        used = [period]  # said twice
    elif period is not None and (with_period := _per_period(quantity, period, clause)):
        quantity = with_period
        used = [period]
    per_user = clause.first(Kind.PER_USER)
    if per_user is not None and quantity.unit == "tokens/s":
        quantity = quantity.in_unit(PER_USER, quantity.factor)
        used = [*used, per_user]
    if not used:
        return clause
    joined = TextToken(Kind.QUANTITY, quantity, *extent([amount, *used]))
    kept = [joined if token is amount else token for token in clause.tokens if token not in used]
    return replace(clause, tokens=tuple(kept))


def _same_period(clause: Clause, previous: Sequence[BoundReading]) -> Clause:
    """``$40/h at peak, $20 off-peak``: money without a period has that of the goal before."""
    amount = clause.first(Kind.QUANTITY)
    before = previous[-1].quantity if previous else None
    if amount is None or before is None or amount.value.unit != "USD" or not str(before.value.unit).startswith("USD/"):
        return clause
    converted = replace(amount, value=amount.value.in_unit(before.value.unit, amount.value.factor))
    return replace(clause, tokens=tuple(converted if token is amount else token for token in clause.tokens))


_PERIOD_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}


def _per_period(quantity: Quantity, period: TextToken, clause: Clause) -> Quantity | None:
    metrics = {token.value for token in clause.of(Kind.METRIC)}
    if quantity.unit == "USD" or (quantity.unit is None and "cost" in metrics):
        return quantity.in_unit(f"USD/{period.value}", quantity.factor)
    things = {token.value for token in clause.of(Kind.THING)}
    seconds = _PERIOD_SECONDS.get(period.value)
    if quantity.unit is not None or seconds is None:
        return None
    if "tokens" in things or "throughput_tok" in metrics:
        return quantity.in_unit("tokens/s", 1 / seconds)
    if "requests" in things or "throughput_req" in metrics:
        return quantity.in_unit("requests/s", 1 / seconds)
    return None


def extent(tokens: Sequence[TextToken]) -> tuple[int, int]:
    """The half-open place that holds all of these tokens."""
    return min(token.start for token in tokens), max(token.end for token in tokens)


def is_idle(token: TextToken, heads: Sequence[TextToken] = ()) -> bool:
    """Whether a token adds nothing: ``GPU`` beside another head, a unit that became the head, a mark."""
    match token.kind:
        case Kind.COUNTED:
            return bool(token.value == "gpu_count")
        case Kind.PRIORITY:  # adverbs where no sides are ordered
            return token.value in {"begin", "then", "than"}
        case Kind.UNKNOWN if not str(token.value).isalnum():
            return _is_mark(str(token.value))
        case Kind.PERIOD:
            return bool(token.value == "day")  # "every day p99 ttft < 2s"
        case Kind.RECONFIG | Kind.PER_USER:  # "TTFT < 2s for every user"
            mute = LATENCIES if token.kind is Kind.PER_USER else {"reconfig_pause"}
            return any(head.value in mute for head in heads)
    return token.kind in _IDLE or any(head.start <= token.start < head.end for head in heads)


def _is_mark(character: str) -> bool:
    """Whether a character is punctuation or a picture; those that negate or bound are not."""
    return character in _MARKS or (len(character) == 1 and ord(character) > 0x2190 and character not in "≠±")


def _repeated(clause: Clause, previous: Sequence[BoundReading]) -> ClauseReading:
    """Only a window or tenant: the goals of the clause before, for it."""
    again = [
        replace(antecedent, start=clause.tokens[0].start, end=clause.tokens[-1].end)
        for antecedent in _antecedents(previous)
    ]
    return ClauseReading(tuple(_spread(again, clause, previous)), ())


def _antecedents(previous: Sequence[BoundReading]) -> list[BoundReading]:
    """The readings an ellipsis repeats: each metric of the last clause once."""
    return list({(reading.head, reading.stat, _end_of_range(reading)): reading for reading in previous}.values())


def _end_of_range(reading: BoundReading) -> str | None:
    return reading.comparison.value if reading.comparison else None


def _amount(clause: Clause) -> TextToken | None:
    """The number; where it goes from one to another, the other."""
    amount = clause.first(*AMOUNTS)
    if amount is not None and amount.kind is Kind.RANGE and clause.has(Kind.CHANGE) and not clause.has(Kind.COMPARISON):
        return replace(amount, kind=Kind.QUANTITY, value=amount.value[1])
    return amount


def _comparison(clause: Clause) -> TextToken | None:
    """An optimisation; else the comparison behind the number, which closes the phrase.

    Else the one before it.
    """
    if wish := clause.first(Kind.OPTIMISE, Kind.CHEAPEST):
        return wish
    tokens = clause.of(Kind.COMPARISON)
    amount = clause.first(*AMOUNTS)
    behind = [token for token in tokens if amount is not None and token.start >= amount.end]
    return next(iter(behind or tokens), None)


def _echoes(clause: Clause, comparison: TextToken | None) -> list[TextToken]:
    """Comparisons that say the same once more: ``不超过 2 秒以内``."""
    tokens = clause.of(Kind.COMPARISON) if comparison is not None else []
    again = {comparison.value if comparison else "", "better", *(("==",) if clause.has(Kind.SETTING) else ())}
    return [token for token in tokens if token.value in again]


def _direction(clause: Clause) -> str | None:
    """The side that a verb says: ``cut TTFT to 2s``."""
    if (to := clause.first(Kind.TO)) is None:
        return None
    if to.value:
        return str(to.value)
    change = clause.first(Kind.CHANGE)
    return change.value if change is not None and change.value in {"<=", ">="} else None


def _limited(clause: Clause, text: str) -> str | None:
    """``limit llama to four GPUs``: at most."""
    to = clause.first(Kind.TO)
    verb = to is not None and _LIMIT.search(text[clause.start : to.start].lower())
    return "<=" if verb else None


_LIMIT = re.compile(r"\b(?:limit|cap|restrict|confine|constrain)(?:s|ing|ted|ped|ed)?\b|限制|控制")


def _paired(
    heads: Sequence[TextToken], stats: Sequence[TextToken]
) -> tuple[list[tuple[TextToken | None, TextToken | None]], tuple[TextToken, ...]]:
    """Metrics with their statistics: one statistic for all, one each, or several for one metric."""
    stats = list({token.value: token for token in stats}.values())
    if not heads:
        return [(None, stats[0] if stats else None)], tuple(stats[1:])
    if len(stats) == len(heads):
        return list(zip(heads, stats, strict=True)), ()
    if len(heads) == 1 and len(stats) > 1:
        return [(heads[0], stat) for stat in stats], ()
    return [(head, stats[0] if stats else None) for head in heads], tuple(stats[1:])


def _completed(
    reading: BoundReading, stat: TextToken | None, previous: BoundReading, *, elsewhere: bool
) -> BoundReading:
    """An ellipsis, ``... and 5s overnight``: head, statistic and comparison come from the goal before.

    What is wished softly is wished so ``elsewhere``, too; a second bound on the same is hard: ``ideally 1s, never over 2s``.
    """
    return replace(
        reading,
        head=previous.head,
        stat=stat or previous.stat,
        comparison=reading.comparison or (previous.comparison if reading.quantity else None) or previous.comparison,
        quantity=reading.quantity or previous.quantity,
        direction=reading.direction or previous.direction,
        soft=reading.soft or (previous.soft and (elsewhere or stat is not None or reading.quantity is None)),
    )


def _spread(readings: Sequence[BoundReading], clause: Clause, previous: Sequence[BoundReading]) -> list[BoundReading]:
    """One reading for each window, tenant and model, and for each end of a range."""
    last = previous[-1] if previous else BoundReading(0, 0)
    slots = [
        clause.covered_by(kind) or (inherited,)
        for kind, inherited in zip(SCOPES, (last.window, last.tenant, last.model, last.over), strict=True)
    ]
    taken = frozenset(kind for kind in SCOPES if not clause.of(kind))
    result: list[BoundReading] = []
    for reading, (window, tenant, model, over) in product(readings, product(*slots)):
        result += _ranged(replace(reading, window=window, tenant=tenant, model=model, over=over, inherited=taken))
    return result


def _facing(reading: BoundReading, text: str) -> BoundReading:
    """``2s > TTFT`` is ``TTFT < 2s``: a sign between number and metric is read from the metric's side."""
    head = reading.head
    sign = reading.comparison
    amount = reading.quantity
    if head is None or sign is None or amount is None or text[sign.start : sign.end][:1] not in _SIGNS:
        return reading
    if amount.end <= sign.start and sign.end <= head.start and sign.value in FACING:
        return replace(reading, comparison=replace(sign, value=FACING[sign.value]))
    return reading


_SIGNS = frozenset("<>≤≥＜＞=⩽⩾")
FACING = {"<=": ">=", ">=": "<="}
"""A comparison read from the other side."""


def _ranged(reading: BoundReading) -> list[BoundReading]:
    """A range is two bounds."""
    token = reading.quantity
    if token is None or token.kind is not Kind.RANGE:
        return [reading]
    low, high = token.value
    return [_bounded(reading, token, ">=", low), _bounded(reading, token, "<=", high)]


def _bounded(reading: BoundReading, token: TextToken, op: str, quantity: Quantity) -> BoundReading:
    return replace(
        reading,
        comparison=replace(token, kind=Kind.COMPARISON, value=op),
        quantity=replace(token, kind=Kind.QUANTITY, value=quantity),
    )
