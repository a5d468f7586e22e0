"""Bounds relative to what is measured now: ``cut TTFT by 20%``, ``double the throughput``, ``降到现在的 80%``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intent.clauses import Clause
from intent.draft import Draft
from intent.goals import metric_of, normalised, scoped, stat_of
from intent.kinds import Kind
from intent.models import HIGHER_IS_BETTER, LOWER_IS_BETTER, UNITS, Relative
from intent.questions import label
from intent.readings import Reading
from intent.tokens import Token


@dataclass(frozen=True, slots=True)
class Change:
    """A change as it was said: a factor, or an amount with the side it goes to."""

    side: str | None
    """``<=``, ``>=``, ``better``, ``worse`` or None."""
    factor: float | None = None
    amount: Token | None = None
    by: bool = False


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
    change, amount = clause.first(Kind.CHANGE), clause.first(Kind.QUANTITY)
    to, side = clause.first(Kind.TO), _side(clause)
    if said := clause.first(Kind.FACTOR):
        return Change(None, factor=float(said.value))
    if (
        clause.has(Kind.TIMES_SAID)
        and clause.has(Kind.METRIC)
        and amount is None
        and not clause.has(Kind.PERIOD)
    ):
        return Change(None, factor=float(clause.of(Kind.TIMES_SAID)[0].value))
    if amount is None:
        kept = clause.has(Kind.NOW) and clause.has(Kind.COMPARISON) and not clause.has(Kind.OPTIMISE)
        return Change(None, factor=1.0) if kept else None
    if clause.has(Kind.TIMES) and amount.value.unit is None:
        return Change(side, factor=amount.value.number)
    if amount.value.unit is None and 0 < amount.value.number < 1:  # "by a third"
        amount = replace(amount, value=replace(amount.value, unit="ratio"))
    share = amount.value.unit == "ratio"
    if (
        share
        and clause.has(Kind.NOW)
        and not clause.has(Kind.BY)
        and (to is not None or (change is None and not clause.has(Kind.VAGUE)))
    ):
        return Change(side, factor=amount.value.value)
    off = any(token.value == "off" for token in clause.of(Kind.AVOID))
    if (clause.has(Kind.BY) or off) and (change is not None or clause.has(Kind.VAGUE)):
        return Change(side, amount=amount, by=True)
    if share and (change is not None or clause.has(Kind.VAGUE)) and to is None and not _is_ratio(clause):
        return Change(side, amount=amount, by=True)
    if (
        change is not None
        and to is None
        and not clause.has(Kind.COMPARISON)
        and _follows(change, amount)
        and _is_han(clause)
    ):
        return Change(side, amount=amount, by=True)
    if clause.has(Kind.NOW) and change is not None and to is None:
        return Change(side, amount=amount, by=True)
    return None


def add_relative(draft: Draft, reading: Reading, change: Change) -> None:
    """Append the relative goal of one reading, or the question that keeps it from being one."""
    mark = len(draft.assumptions)
    goal = _relative(draft, reading, change)
    if goal is None:
        del draft.assumptions[mark:]
    else:
        draft.add(goal)


def _relative(draft: Draft, reading: Reading, change: Change) -> Relative | None:
    metric = metric_of(draft, replace(reading, quantity=None))
    if metric is None:
        return None
    terms = _terms(draft, reading, metric, change)
    if terms is None:
        return None
    op, factor, delta, unit = terms
    good = ">=" if metric in HIGHER_IS_BETTER else "<=" if metric in LOWER_IS_BETTER else op
    common, stat = scoped(draft, reading, metric), stat_of(draft, reading, metric)
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


def _follows(change: Token, amount: Token) -> bool:
    return 0 <= amount.start - change.end <= 1


def _is_han(clause: Clause) -> bool:
    return any(token.kind is Kind.CHANGE and token.end - token.start <= 4 for token in clause.tokens)


def _ask(draft: Draft, reading: Reading, metric: str) -> None:
    name = label(draft, metric)
    wish = draft.say("maximize" if metric in HIGHER_IS_BETTER else "minimize")
    words = draft.say("change_unclear", said=repr(draft.text[reading.start : reading.end]), label=name)
    draft.ask("change_unclear", reading.head, words, [f"{wish} {name}", draft.say("nothing")])


def leftovers(tokens: Sequence[Token]) -> list[Token]:
    """What of a bound's unplaced words a change does not use either."""
    return [
        token
        for token in tokens
        if token.kind not in USED and token.kind is not Kind.VAGUE and token.value != "off"
    ]
