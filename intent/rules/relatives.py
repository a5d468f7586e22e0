"""Bounds relative to what is measured now: ``cut TTFT by 20%``, ``double the throughput``, ``降到现在的 80%``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intent.models import HIGHER_IS_BETTER, LOWER_IS_BETTER, UNITS, Relative
from intent.rules.bounds import metric_of, normalised, scoped, stat_of
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.questions import ask_degree, label
from intent.rules.readings import Reading
from intent.rules.tokens import Token


@dataclass(frozen=True, slots=True)
class Change:
    """A change as it was said: what the present value is multiplied by, or an amount with the side it goes to."""

    side: str | None = None
    """``<=``, ``>=``, ``better``, ``worse`` or None."""
    factor: float | None = None
    amount: Token | None = None


_LONG = 9
"""Characters of a change that names what it is compared with: ``higher than now``."""
USED = frozenset(
    {
        Kind.CHANGE,
        Kind.FACTOR,
        Kind.BY,
        Kind.NOW,
        Kind.TIMES,
        Kind.TIMES_SAID,
        Kind.TO,
        Kind.COMPARISON,
        Kind.MORE,
        Kind.BETWEEN,
    }
)


def change_in(clause: Clause) -> Change | None:
    """The change a clause asks for; None if it asks for none, but perhaps for a bound."""
    if not clause.has(Kind.METRIC, Kind.VAGUE) or clause.has(Kind.EXCEPT):
        return None
    if said := clause.first(Kind.FACTOR):
        raised = said.value < 1 and any(
            one.value == ">=" for one in clause.of(Kind.CHANGE)
        )  # "raise it by half"
        return Change(factor=float(said.value) + raised)
    amount = clause.first(Kind.QUANTITY)
    return _without_amount(clause) if amount is None else _with_amount(clause, as_share(amount))


def _without_amount(clause: Clause) -> Change | None:
    """``twice the throughput``, ``no worse than now``."""
    if (said := clause.first(Kind.TIMES_SAID)) and not clause.has(Kind.PERIOD):
        return Change(factor=float(said.value))
    compared = any(token.end - token.start > _LONG for token in clause.of(Kind.CHANGE))
    if clause.has(Kind.NEGATION) and compared:
        return Change(factor=1.0)  # "no higher than it is now"
    kept = clause.has(Kind.NOW) and clause.has(Kind.COMPARISON) and not clause.has(Kind.OPTIMISE)
    return Change(factor=1.0) if kept else None


def _with_amount(clause: Clause, amount: Token) -> Change | None:
    """``1.5 times``, ``to 80% of today``, ``by 20%``, ``20% lower``, ``降低 200ms``."""
    side, share = _side(clause), amount.value.unit == "ratio"
    if clause.has(Kind.TIMES) and amount.value.unit is None:
        return Change(side, factor=amount.value.number)
    if share and clause.has(Kind.NOW) and _is_level(clause):
        return Change(side, factor=amount.value.value)
    return Change(side, amount=amount) if side is not None and _is_step(clause, amount) else None


def as_share(amount: Token) -> Token:
    """``by half``, ``by a third``: a number below 1 without a unit is a share."""
    if amount.value.unit is None and 0 < amount.value.number < 1:
        return replace(amount, value=replace(amount.value, unit="ratio"))
    return amount


def _is_level(clause: Clause) -> bool:
    """Whether a share of the present value is where to go, not how far."""
    changes = clause.has(Kind.CHANGE, Kind.VAGUE)
    return not clause.has(Kind.BY) and (clause.has(Kind.TO) or not changes)


def _is_step(clause: Clause, amount: Token) -> bool:
    """Whether an amount is how far to go, not where."""
    change = clause.first(Kind.CHANGE)
    if change is None and not clause.has(Kind.VAGUE):
        return False
    if clause.has(Kind.BY) or any(token.value == "off" for token in clause.of(Kind.AVOID)):
        return True
    if clause.has(Kind.TO):
        return False
    share = amount.value.unit == "ratio" and not _is_ratio(clause)
    behind = (
        change is not None and 0 <= amount.start - change.end <= 1 and change.end - change.start <= 4
    )  # 降低 200ms
    before = change is not None and 0 <= change.start - amount.end <= 1  # "200 ms less"
    within = change is not None and amount.start < change.start < amount.end  # 每天的花费减少 40 美元
    adjoining = behind or before or within
    return share or clause.has(Kind.NOW) or (adjoining and not clause.has(Kind.COMPARISON))


def add_relative(draft: Draft, reading: Reading, change: Change) -> None:
    """Append the relative goal of one reading, or the question that keeps it from being one."""
    mark = len(draft.assumptions)
    goal = _relative(draft, reading, change)
    if goal is None:
        del draft.assumptions[mark:]
    else:
        draft.add(goal, (reading.start, reading.end))


def _relative(draft: Draft, reading: Reading, change: Change) -> Relative | None:
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
    common, stat = scoped(draft, reading), stat_of(draft, reading, metric)
    if op is None or op != good or (factor is not None and factor <= 0):
        _ask(draft, reading, metric)
        return None
    if common is None or stat is False:
        return None
    return Relative(metric=metric, op=op, stat=stat, factor=factor, delta=delta, unit=unit, **common)  # type: ignore[arg-type] # closed tables


Terms = tuple[str | None, float | None, float | None, str | None]


def _terms(draft: Draft, reading: Reading, metric: str, change: Change) -> Terms | None:
    """Side, factor, delta and unit; None if the amount was asked about."""
    side = _resolved(change.side, metric)
    if change.factor is not None:
        if change.factor == 1.0:
            return (">=" if metric in HIGHER_IS_BETTER else "<="), 1.0, None, None
        return ("<=" if change.factor < 1 else ">="), float(f"{change.factor:.12g}"), None, None
    if change.amount is None or side is None:
        return side, None, None, None
    said, sign = change.amount.value, -1.0 if side == "<=" else 1.0
    if said.unit == "ratio":
        return side, float(f"{1 + sign * said.value:.12g}"), None, None
    if said.unit == "points" and UNITS[metric] == ("ratio",):
        return side, None, sign * said.value, "ratio"
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
    return "better" if clause.has(Kind.VAGUE) else None


def _is_ratio(clause: Clause) -> bool:
    """Whether the metric is itself a percentage, so that ``raise utilisation 80%`` could be a bound."""
    return any(UNITS.get(str(token.value)) == ("ratio",) for token in clause.of(Kind.METRIC))


def _ask(draft: Draft, reading: Reading, metric: str) -> None:
    name = label(draft, metric)
    wish = draft.say("maximize" if metric in HIGHER_IS_BETTER else "minimize")
    words = draft.say("change_unclear", said=repr(draft.text[reading.start : reading.end]), label=name)
    draft.ask(
        "change_unclear", reading.head, words, [draft.rephrased(f"{wish} {name}"), draft.say("nothing")]
    )


def leftovers(tokens: Sequence[Token]) -> list[Token]:
    """What of a bound's unplaced words a change does not use either."""
    return [
        token
        for token in tokens
        if token.kind not in USED and token.kind is not Kind.VAGUE and token.value != "off"
    ]
