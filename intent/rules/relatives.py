"""Bounds relative to what is measured now.

``cut TTFT by 20%``, ``double the throughput``, ``降到现在的 80%``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intent.models import HIGHER_IS_BETTER, LOWER_IS_BETTER, UNITS, Relative
from intent.rules.bounds import metric_of, normalised, scoped, stat_of
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.heads import heads_of
from intent.rules.kinds import Kind
from intent.rules.questions import ask_by_or_to, ask_degree, label
from intent.rules.readings import BoundReading
from intent.rules.tokens import TextToken


@dataclass(frozen=True, slots=True)
class RelativeChange:
    """A change as it was said.

    What the present value is multiplied by, or an amount with the side it goes to.
    """

    side: str | None = None
    """``<=``, ``>=``, ``better``, ``worse`` or None."""
    factor: float | None = None
    amount: TextToken | None = None
    is_open: bool = False
    """Whether the amount may as well be where to go: ``drop TPOT 10 ms``."""


_WORSE = frozenset({"slow", "dear"})
_OF = 8
"""Characters between a part and what it is of: ``of the``."""
_LONG = 9
"""Characters of a change that names what it is compared with: ``higher than now``."""
USED = frozenset(
    {Kind.CHANGE, Kind.FACTOR, Kind.BY, Kind.NOW, Kind.TIMES, Kind.TIMES_SAID, Kind.TO, Kind.COMPARISON, Kind.MORE,
     Kind.BETWEEN}
)  # fmt: skip


def change_in(clause: Clause) -> RelativeChange | None:
    """The change a clause asks for; None if it asks for none, but perhaps for a bound."""
    paid = any(item.value in {"cost", "gpu_count"} for item in heads_of(clause))
    about = clause.has(Kind.METRIC, Kind.VAGUE) or (clause.has(Kind.CHANGE) and paid)
    if not about or clause.has(Kind.EXCEPT):
        return None
    if token := clause.first(Kind.FACTOR):
        raised = token.value < 1 and any(token.value == ">=" for token in clause.of(Kind.CHANGE))  # "raise it by half"
        return RelativeChange(factor=float(token.value) + raised)
    amount = clause.first(Kind.QUANTITY)
    return _without_amount(clause) if amount is None else _with_amount(clause, amount)


def _without_amount(clause: Clause) -> RelativeChange | None:
    """``twice the throughput``, ``no worse than now``."""
    if (token := clause.first(Kind.TIMES_SAID)) and not clause.has(Kind.PERIOD):
        return RelativeChange(factor=float(token.value))
    compared = any(token.end - token.start > _LONG for token in clause.of(Kind.CHANGE))
    if clause.has(Kind.NEGATION) and compared:
        return RelativeChange(factor=1.0)  # "no higher than it is now"
    kept = clause.has(Kind.NOW) and clause.has(Kind.COMPARISON) and not clause.has(Kind.OPTIMISE)
    if kept and (clause.has(Kind.NEGATION) or any(token.value == "worse" for token in clause.of(Kind.COMPARISON))):
        return RelativeChange("worse")  # "let it get worse than it is", "don't keep it no worse"
    return RelativeChange(factor=1.0) if kept else None


def _with_amount(clause: Clause, amount: TextToken) -> RelativeChange | None:
    """``1.5 times``, ``to 80% of today``, ``by 20%``, ``20% lower``, ``降低 200ms``."""
    side = _side(clause)
    share = amount.value.unit == "ratio"
    if clause.has(Kind.TIMES) and amount.value.unit is None:
        return RelativeChange(side, factor=amount.value.number)
    if share and clause.has(Kind.NOW) and _is_level(clause):
        return RelativeChange(side, factor=amount.value.value)
    moved = clause.has(Kind.CHANGE, Kind.VAGUE, Kind.BY, Kind.TO, Kind.COMPARISON)
    if share and not moved and _is_part_of(clause, amount):
        return RelativeChange(factor=amount.value.value)  # "a quarter of the price"
    if side is None or not _is_step(clause, amount):
        return RelativeChange(side, amount=amount, is_open=True) if _is_open(clause) else None
    return RelativeChange(side, amount=amount)


def as_share(amount: TextToken) -> TextToken:
    """``by half``, ``by a third``: a number below 1 without a unit is a share."""
    if amount.value.unit is None and 0 < amount.value.number < 1:
        return replace(amount, value=replace(amount.value, unit="ratio"))
    return amount


def with_shares(clause: Clause) -> Clause:
    """The clause with the shares of what changes, or of a metric, as shares: ``up a quarter``."""
    amount = clause.first(Kind.QUANTITY)
    changed = clause.has(Kind.CHANGE, Kind.VAGUE, Kind.BY)
    if amount is None or not (changed or _is_part_of(clause, amount)):
        return clause
    return replace(clause, tokens=tuple(as_share(part) if part is amount else part for part in clause.tokens))


def _is_part_of(clause: Clause, amount: TextToken) -> bool:
    """``half the cost``, 成本的一半: a part of what is measured, and no price."""
    heads = [token for token in clause.of(Kind.METRIC) if UNITS.get(str(token.value)) != ("ratio",)]
    spelt = amount.value.unit in {None, "ratio"} and amount.value.factor == 1.0
    return spelt and any(0 < head.start - amount.end <= _OF for head in heads) and not clause.has(Kind.STAT)


def _is_open(clause: Clause) -> bool:
    """A verb of change with an amount that is neither how far nor where: ``bump throughput 900 tok/s``."""
    verb = clause.first(Kind.CHANGE)
    firm = clause.has(Kind.TO, Kind.COMPARISON, Kind.NOW, Kind.SOFT)
    return verb is not None and verb is clause.tokens[0] and not firm and not clause.has(Kind.UNIT)


def _is_level(clause: Clause) -> bool:
    """Whether a share of the present value is where to go, not how far."""
    changes = clause.has(Kind.CHANGE, Kind.VAGUE)
    return not clause.has(Kind.BY) and (clause.has(Kind.TO) or not changes)


def _is_step(clause: Clause, amount: TextToken) -> bool:
    """Whether an amount is how far to go, not where."""
    change = clause.first(Kind.CHANGE)
    if change is None and not clause.has(Kind.VAGUE):
        return False
    if clause.has(Kind.BY) or any(token.value == "off" for token in clause.of(Kind.AVOID)):
        return True
    if clause.has(Kind.TO):
        return False
    share = amount.value.unit == "ratio" and not _is_ratio(clause)
    movers = clause.of(Kind.CHANGE, Kind.VAGUE)
    adjoining = any(
        0 <= amount.start - mover.end <= 1 >= (mover.end - mover.start) // 5  # 降低 200ms
        or 0 <= mover.start - amount.end <= 1  # "200 ms less", "$3 an hour cheaper"
        or (mover.end - mover.start > _LONG and amount.start < mover.start)  # "two GPUs fewer than now"
        or amount.start < mover.start < amount.end  # 每天的花费减少 40 美元
        for mover in movers
    )
    return share or clause.has(Kind.NOW) or (adjoining and not clause.has(Kind.COMPARISON))


def add_relative(draft: Draft, reading: BoundReading, change: RelativeChange) -> None:
    """Append the relative goal of one reading, or the question that keeps it from being one."""
    if change.is_open and change.amount is not None:
        ask_by_or_to(draft, change.amount)
        return
    mark = len(draft.assumptions)
    goal = _relative(draft, reading, change)
    if goal is None:
        del draft.assumptions[mark:]
    else:
        draft.add(goal, (reading.start, reading.end))


def _relative(draft: Draft, reading: BoundReading, change: RelativeChange) -> Relative | None:
    metric = metric_of(draft, replace(reading, quantity=None))
    if metric is None:
        return None
    if metric not in UNITS and reading.head is not None:
        ask_degree(draft, reading.head, metric)
        return None
    terms = _terms(draft, reading, metric, change)
    if terms is None:
        return None
    op, factor, delta, unit = terms
    good = ">=" if metric in HIGHER_IS_BETTER else "<=" if metric in LOWER_IS_BETTER else op
    common = scoped(draft, reading)
    stat = stat_of(draft, reading, metric)
    if op is None or op != good or (factor is not None and factor <= 0):
        _ask(draft, reading, metric)
        return None
    if common is None or stat is False:
        return None
    return Relative(metric=metric, op=op, stat=stat, factor=factor, delta=delta, unit=unit, **common)  # type: ignore[arg-type] # closed tables


Terms = tuple[str | None, float | None, float | None, str | None]


def _terms(draft: Draft, reading: BoundReading, metric: str, change: RelativeChange) -> Terms | None:
    """Side, factor, delta and unit; None if the amount was asked about."""
    side = _resolved(change.side, metric)
    if change.factor is not None:
        if change.factor == 1.0:
            return (">=" if metric in HIGHER_IS_BETTER else "<="), 1.0, None, None
        return ("<=" if change.factor < 1 else ">="), float(f"{change.factor:.12g}"), None, None
    if change.amount is None or side is None:
        return side, None, None, None
    amount = change.amount.value
    sign = -1.0 if side == "<=" else 1.0
    if amount.unit == "ratio":
        return side, float(f"{1 + sign * amount.value:.12g}"), None, None
    if amount.unit == "points" and UNITS[metric] == ("ratio",):
        return side, None, sign * amount.value, "ratio"
    quantity = normalised(draft, reading, metric, change.amount)
    return (side, None, sign * quantity.value, quantity.unit) if quantity else None


def _resolved(side: str | None, metric: str) -> str | None:
    higher = metric in HIGHER_IS_BETTER or metric == "gpu_util"
    if side == "better":
        return ">=" if higher else "<="
    return None if side == "worse" else side


def _side(clause: Clause) -> str | None:
    change = clause.first(Kind.CHANGE)
    to = clause.first(Kind.TO)
    if to is not None and to.value:
        return str(to.value)
    if change is not None:
        return str(change.value)
    vague = clause.first(Kind.VAGUE)
    return None if vague is None else "worse" if vague.value in _WORSE else "better"


def _is_ratio(clause: Clause) -> bool:
    """Whether the metric is itself a percentage, so that ``raise utilisation 80%`` could be a bound."""
    return any(UNITS.get(str(token.value)) == ("ratio",) for token in clause.of(Kind.METRIC))


def _ask(draft: Draft, reading: BoundReading, metric: str) -> None:
    name = label(draft, metric)
    wish = draft.say("maximize" if metric in HIGHER_IS_BETTER else "minimize")
    words = draft.say("change_unclear", said=repr(draft.text[reading.start : reading.end]), label=name)
    draft.ask("change_unclear", reading.head, words, [draft.rephrased(f"{wish} {name}"), draft.say("nothing")])


def leftovers(tokens: Sequence[TextToken]) -> list[TextToken]:
    """What of a bound's unplaced words a change does not use either."""
    return [
        token for token in tokens if token.kind not in USED and token.kind is not Kind.VAGUE and token.value != "off"
    ]
