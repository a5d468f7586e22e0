"""Clauses that free a tenant from a bound.

``paid users may exceed the budget, up to 20% more``, ``企业用户除外``.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from intent.models import LATENCIES, METRIC_LABELS, UNITS, Goal, Objective, TenantException, Window
from intent.rules import scopes
from intent.rules.bounds import metric_of, normalised
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import ANY_LATENCY, EVERYONE, Kind
from intent.rules.phrasing import FALL
from intent.rules.questions import label
from intent.rules.readings import BoundReading, extent, is_idle
from intent.rules.tokens import TextToken

_USED = frozenset(
    {Kind.EXCEPT, Kind.TENANT, Kind.METRIC, Kind.QUANTITY, Kind.FACTOR, Kind.TIMES, Kind.TIMES_SAID, Kind.COMPARISON, Kind.WINDOW,
     Kind.STAT, Kind.MAY, Kind.ALLOW, Kind.COUNTED, Kind.PERIOD, Kind.BY, Kind.CHANGE, Kind.MORE, Kind.TO}
)  # fmt: skip


_UP_TO = ("up to", "as high as", "as much as")
"""Words that make a permitted bound a looser one: ``free users may go up to 5 s``."""


def is_exception(clause: Clause, goals: Sequence[Goal], text: str) -> bool:
    """Whether a clause frees somebody from a bound.

    By a word that says so, or by a looser bound that is permitted.
    """
    if clause.has(Kind.EXCEPT):
        return True
    if not (clause.has(Kind.TENANT) and clause.has(Kind.QUANTITY, Kind.FACTOR)) or clause.has(
        Kind.NEGATION, Kind.REPORT
    ):
        return False
    words = [text[token.start : token.end].lower() for token in clause.of(Kind.COMPARISON, Kind.TO)]
    bound = _bounded(clause, goals)
    looser = any(words.endswith(_UP_TO) or words.startswith("放") for words in words)
    if _is_share_more(clause):
        return True
    if not clause.has(Kind.MAY):
        return False
    return looser and (bound is not None or clause.has(Kind.METRIC))


def _is_share_more(clause: Clause) -> bool:
    """``may go 10% above it``, ``is allowed up to 30 % over budget``, ``fine to miss the target by 50%``."""
    amount = clause.first(Kind.QUANTITY)
    if not clause.has(Kind.MAY, Kind.ALLOW) or amount is None or amount.value.unit != "ratio":
        return False
    metrics = clause.of(Kind.METRIC)
    over = any(token.value == ">=" for token in clause.of(Kind.COMPARISON)) and bool(metrics)
    measured = any(UNITS.get(str(token.value)) == ("ratio",) for token in metrics)
    return not measured and (over or clause.has(Kind.MORE, Kind.BY)) and not clause.has(Kind.CHANGE)


def add_exception(draft: Draft, clause: Clause) -> list[TextToken]:
    """Append the exception of each tenant of the clause; gives back the words without a place."""
    tenants = [token for token in clause.covered_by(Kind.TENANT) if token.value != EVERYONE]
    if not tenants:
        known = draft.say("exception_without_tenant", known=", ".join(draft.catalogue.tenants) or "-")
        exception = clause.of(Kind.EXCEPT)[0]
        draft.ask("exception_without_tenant", exception, known, [draft.without([exception]), draft.say("nothing")])
        return []
    for tenant in tenants:
        if _is_doubtful(draft, clause):
            _ask(draft, clause, str(tenant.value))
        else:
            _add(draft, clause, tenant)
    spare = clause.of(Kind.QUANTITY)[1:]
    return [*spare, *(token for token in clause.tokens if token.kind not in _USED and not is_idle(token))]


_NOT = 4
"""Characters behind a word of leave that may refuse it: ``may not``."""
_REFUSED = re.compile(r"n't\b|\b(?:not|never|no longer|cannot)\b|[不别](?=让|允许|可以|许|准|能)")


def _is_doubtful(draft: Draft, clause: Clause) -> bool:
    """Whether a leave is refused, has a least extent or an exception: ``waive it except for acme``."""
    amount = clause.first(Kind.QUANTITY)
    sides = clause.of(Kind.COMPARISON)
    least = any("least" in draft.said(token).lower() for token in clause.of(Kind.BY)) or any(
        amount is not None and token.value == ">=" and 0 <= amount.start - token.end <= 1 for token in sides
    )
    capped = any(token.value == "<=" for token in sides)  # 最多超 20%
    leave = clause.first(Kind.EXCEPT, Kind.MAY, Kind.ALLOW)
    ends = clause.start if leave is None else leave.start if leave.kind is Kind.EXCEPT else leave.end + _NOT
    spared = any(draft.said(token).lower().startswith(("except", "除")) for token in clause.of(Kind.EXCEPT)[1:])
    return (least and not capped) or spared or _REFUSED.search(draft.text[clause.start : ends].lower()) is not None


def _add(draft: Draft, clause: Clause, token: TextToken) -> None:
    tenant = scopes.tenant(draft, token)
    if not isinstance(tenant, str):
        return
    bound = _bounded(clause, draft.goals)
    metric = _metric(draft, clause)
    if metric is None and bound is None:
        _ask(draft, clause, tenant)
        return
    metric = metric or (bound.metric if bound else "")
    extra = _extra(draft, clause, metric)
    when = _window(draft, clause, bound)
    if extra is None or when is None:
        return
    limit, unit, factor = extra
    place = extent([token for token in clause.tokens if token.kind in _USED])
    evidence = draft.text[slice(*place)]
    draft.add(
        TenantException(tenant, metric, evidence, limit=limit, unit=unit, factor=factor, window=when),  # type: ignore[arg-type] # closed tables
        place,
    )


def _metric(draft: Draft, clause: Clause) -> str | None:
    """The metric the clause names; a bare latency is the one that was bounded before."""
    head = clause.first(Kind.METRIC)
    if head is None:
        amount = clause.first(Kind.QUANTITY)
        unit = amount.value.unit if amount else None
        words = [draft.said(token) for token in clause.of(Kind.MORE)]
        priced = any("budget" in words or "预算" in words or "花" in words for words in words)
        return "cost" if priced or (unit is not None and unit.startswith("USD")) else None
    if head.value == ANY_LATENCY:
        return None
    return (
        metric_of(draft, BoundReading(head.start, head.end, head=head))
        if head.value not in METRIC_LABELS
        else str(head.value)
    )


def _bounded(clause: Clause, goals: Sequence[Goal]) -> Objective | None:
    """The one bound said before that the clause can mean."""
    head = clause.first(Kind.METRIC)
    amount = clause.first(Kind.QUANTITY)
    bounds = [goal for goal in goals if isinstance(goal, Objective) and goal.value is not None and goal.tenant is None]
    if head is not None and head.value == ANY_LATENCY:
        bounds = [goal for goal in bounds if goal.metric in LATENCIES]
    elif head is not None:
        bounds = [goal for goal in bounds if goal.metric == head.value]
    elif amount is not None and amount.value.unit not in {None, "ratio"}:
        bounds = [
            goal for goal in bounds if goal.unit == amount.value.unit or (goal.unit or "").startswith(amount.value.unit)
        ]
    metrics = {goal.metric for goal in bounds}
    return bounds[-1] if len(metrics) == 1 else None


def _window(draft: Draft, clause: Clause, bound: Objective | None) -> Window | None:
    """Its own window, else that of the bound it is about."""
    token = clause.first(Kind.WINDOW) or next(iter(clause.scope.get(Kind.WINDOW, ())), None)
    return bound.window if token is None and bound is not None else scopes.window(draft, token)


def _extra(draft: Draft, clause: Clause, metric: str) -> tuple[float | None, str | None, float | None] | None:
    """Limit, unit and factor; None if the amount was asked about."""
    if factor := clause.first(Kind.FACTOR, Kind.TIMES_SAID):
        return None, None, float(factor.value)
    amount = clause.first(Kind.QUANTITY)
    if amount is None:
        return None, None, None
    extra = amount.value
    if extra.unit is None and any(
        draft.said(token) != "次" for token in clause.of(Kind.TIMES)
    ):  # 超一倍 is twice the bound
        twice = extra.number == 1 and not clause.has(Kind.TO)
        return None, None, 2.0 if twice else extra.number
    if clause.has(Kind.BY, Kind.MORE) and extra.unit is None and extra.number < 1:  # "by at most a quarter"
        extra = replace(extra, unit="ratio")
    if extra.unit == "ratio" and (UNITS[metric] != ("ratio",) or _is_share(draft, clause)):
        sign = -1 if any(token.value == FALL for token in clause.of(Kind.EXCEPT)) else 1
        return None, None, float(f"{1 + sign * extra.value:.12g}")
    reading = BoundReading(*extent([amount]), quantity=amount, head=replace(amount, kind=Kind.METRIC, value=metric))
    quantity = normalised(draft, reading, metric, amount)
    return (quantity.value, quantity.unit, None) if quantity else None


def _is_share(draft: Draft, clause: Clause) -> bool:
    """Whether a percentage is one of the bound, not the new bound: ``by up to 20%``, ``最多 20%``."""
    return clause.has(Kind.BY, Kind.MORE, Kind.CHANGE) or any(
        token.value == "<=" and draft.said(token)[:1] >= "一" for token in clause.of(Kind.COMPARISON)
    )


def _ask(draft: Draft, clause: Clause, tenant: str) -> None:
    metrics = list(dict.fromkeys(goal.metric for goal in draft.goals if isinstance(goal, Objective))) or [
        "ttft",
        "cost",
    ]
    draft.kept = tuple(draft.said(token) for token in clause.of(Kind.WINDOW))  # the tenant stands in the option
    options = [draft.rephrased(draft.say("exempt", label=label(draft, metric), tenant=tenant)) for metric in metrics]
    draft.ask("exception_unclear", clause.tokens[0], draft.say("exception_unclear", tenant=tenant), options)
