"""Readings to goals: the one place that decides what a bound means and which defaults hold.

A slot that a documented default covers is assumed and said so; one that could mean two things becomes a question.
"""

import re
from dataclasses import replace
from typing import Any, get_args

from intent.models import (
    DEFAULT_STAT,
    HIGHER_IS_BETTER,
    LATENCIES,
    LOSSES,
    LOWER_IS_BETTER,
    PHRASED,
    SETTINGS,
    THROUGHPUTS,
    Config,
    Goal,
    Objective,
    Stat,
)
from intent.rules import scopes
from intent.rules.draft import Draft
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, EVERYONE, Kind
from intent.rules.quantities import PER_USER, Quantity, normalise
from intent.rules.questions import (
    SIDES,
    ask_bound,
    ask_bound_or_optimum,
    ask_comparison,
    ask_degree,
    ask_direction,
    ask_fixed_or_most,
    ask_impossible_unit,
    ask_latency,
    ask_metric,
    ask_optimum,
    ask_stat,
    ask_unit,
    ask_whole,
)
from intent.rules.readings import BoundReading
from intent.rules.tokens import TextToken


def add_goal(draft: Draft, reading: BoundReading) -> None:
    """Append the goal of one reading with its assumptions, or the question that keeps it from being one."""
    mark = len(draft.assumptions)
    goal = _goal(draft, reading)
    if goal is None:
        del draft.assumptions[mark:]
    else:
        draft.add(goal, (reading.start, reading.end))


def _goal(draft: Draft, reading: BoundReading) -> Goal | None:
    if reading.head is not None and reading.head.value in SETTINGS:
        return _config(draft, reading, reading.head)
    metric = metric_of(draft, reading)
    if metric is None:
        return None
    if reading.comparison is not None and reading.comparison.kind in {Kind.OPTIMISE, Kind.CHEAPEST}:
        return _optimisation(draft, reading, metric, reading.comparison)
    return _bound(draft, reading, metric)


# -- the metric ------------------------------------------------------------------------------------


def metric_of(draft: Draft, reading: BoundReading) -> str | None:
    """The metric of a reading, or None if it could be two or none and was asked about."""
    head = reading.head
    unit = _unit(reading)
    if head is None or head.kind is Kind.UNKNOWN:
        ask_metric(draft, reading)
        return None
    latency = head.value == ANY_LATENCY
    throughput = head.value in {ANY_THROUGHPUT, "throughput_tok"}
    if (unit == PER_USER and (latency or throughput)) or (unit == "s/token" and latency):
        return "tpot"
    if latency:
        ask_latency(draft, head)
        return None
    if head.value == ANY_THROUGHPUT:
        return _throughput(draft, reading)
    return str(head.value)


def _throughput(draft: Draft, reading: BoundReading) -> str | None:
    """Tokens or requests, as the unit says."""
    unit = _unit(reading)
    if unit is not None and unit != "ratio":
        return "throughput_req" if unit == "requests/s" else "throughput_tok"
    if reading.quantity is not None and unit is None:
        ask_unit(draft, reading.quantity, ANY_THROUGHPUT)
        return None
    draft.assume("metric", "assumed_tokens")
    return "throughput_tok"


def _unit(reading: BoundReading) -> str | None:
    return reading.quantity.value.unit if reading.quantity else None


# -- objectives ------------------------------------------------------------------------------------


def _optimisation(draft: Draft, reading: BoundReading, metric: str, token: TextToken) -> Goal | None:
    wish = "minimize" if token.kind is Kind.CHEAPEST else str(token.value)
    if metric in (LOWER_IS_BETTER if wish == "maximize" else HIGHER_IS_BETTER):
        ask_optimum(draft, metric, token)
        return None
    if reading.quantity is not None:
        ask_bound_or_optimum(draft, metric, token, reading.quantity)
        return None
    return _objective(draft, reading, metric, {"op": wish})


def _bound(draft: Draft, reading: BoundReading, metric: str) -> Goal | None:
    amount = reading.quantity
    if amount is None:
        ask_bound(draft, reading, metric)
        return None
    quantity = normalised(draft, reading, metric, amount)
    capped = _is_rationed(draft, reading, metric)
    caps = reading.comparison is None and capped
    limits = metric in THROUGHPUTS and (_RATE_LIMIT.search(draft.text.lower()) or _follows_a_cap(draft, reading))
    if reading.comparison is None and reading.tenant and limits and not capped:
        ask_comparison(draft, None, amount)  # a limit of somebody else's is said: is this one too?
        return None
    op = ("<=" if caps else _operator(draft, reading, metric, amount)) if quantity else None
    if quantity is None or op is None:
        return None
    if metric == "gpu_count" and quantity.value != int(quantity.value):
        ask_whole(draft, amount, metric)
        return None
    bound = {"op": op, "value": quantity.value, "unit": quantity.unit}
    if reading.comparison is None or reading.opposed or (op == "<=" and capped) or not _is_unusual(metric, op):
        return _objective(draft, reading, metric, bound)
    return _unusual(draft, reading, metric, bound)


def _unusual(draft: Draft, reading: BoundReading, metric: str, bound: dict[str, Any]) -> Objective | None:
    """A bound on the side that nobody needs is asked about, unless a verb says where it goes."""
    comparison = reading.comparison
    amount = reading.quantity
    before = draft.text[: reading.end].lower()
    if comparison is None or amount is None:
        return None
    if draft.said(comparison).lower() == "up to" and _RISING.search(before):  # "bring availability up to 99.9%"
        draft.assume("op", "assumed_op", side=draft.say(SIDES[_turned(bound["op"])]), said=draft.said(amount))
        return _objective(draft, reading, metric, bound | {"op": _turned(bound["op"])})
    goal = _objective(draft, reading, metric, bound)
    if goal is not None:
        ask_direction(draft, metric, comparison, amount)
        draft.unusual.append((goal, (reading.start, reading.end), draft.questions[-1]))
    return None


_RISING = re.compile(r"\b(?:bring|get|raise|push|take|lift)\b[^.;]*$")


def _is_unusual(metric: str, op: str) -> bool:
    """Whether a bound lies on the side that nobody needs."""
    if metric == "gpu_count":
        return False
    return op == ("<=" if metric in HIGHER_IS_BETTER else ">=" if metric in LOWER_IS_BETTER else None)


def _objective(draft: Draft, reading: BoundReading, metric: str, bound: dict[str, Any]) -> Objective | None:
    common = scoped(draft, reading)
    stat = stat_of(draft, reading, metric)
    if common is None or stat is False:
        return None
    over_s = reading.over.value if reading.over and "value" in bound else None
    return Objective(metric=metric, stat=stat, soft=reading.soft, over_s=over_s, **common, **bound)  # type: ignore[arg-type] # closed tables


def scoped(draft: Draft, reading: BoundReading) -> dict[str, Any] | None:
    """Evidence, window and names, which every goal has; None if a name was asked about."""
    window = scopes.window(draft, reading.window)
    tenant = scopes.tenant(draft, reading.tenant)
    if window is None or tenant is False:
        return None
    return {
        "evidence": draft.text[reading.start : reading.end],
        "window": window,
        "tenant": tenant,
        "model": reading.model.value if reading.model else None,
    }


def normalised(draft: Draft, reading: BoundReading, metric: str, amount: TextToken) -> Quantity | None:
    """The quantity in the metric's unit; None if it cannot be and was asked about."""
    stated: Quantity = amount.value
    quantity = normalise(metric, stated)
    if quantity is None and stated.unit in {None, "USD"}:
        ask_unit(draft, amount, metric)
    elif quantity is None:
        ask_impossible_unit(draft, reading, metric, amount)
    elif stated.unit is None and metric != "gpu_count":
        draft.assume("unit", "assumed_percent", number=f"{stated.number:g}", percent=f"{quantity.value * 100:g}")
    return quantity


def _operator(draft: Draft, reading: BoundReading, metric: str, amount: TextToken) -> str | None:
    """``<=`` or ``>=`` by what was said, or by the metric's good direction where that leaves no doubt."""
    comparison = reading.comparison
    per_user = _unit(reading) == PER_USER
    if metric == "gpu_count":
        return _counted_operator(comparison, reading.direction)
    good = ">=" if metric in HIGHER_IS_BETTER else "<=" if metric in LOWER_IS_BETTER else None
    if comparison is None or comparison.value == "==":
        if good is None and reading.direction is None:
            ask_comparison(draft, comparison, amount)
            return None
        if reading.direction is None or (good is not None and reading.direction != good):
            side = _turned(good or ">=") if per_user else good or ">="
            draft.assume("op", "assumed_op", side=draft.say(SIDES[side]), said=draft.said(amount))
        return good or reading.direction
    if good is None and draft.said(comparison).lower() == "up to":  # "GPU utilisation up to 70%"
        if not _RISING.search(draft.text[: comparison.start].lower()):
            ask_comparison(draft, comparison, amount)
            return None
        return ">="
    op = {"better": good or ">=", "worse": _turned(good or ">=")}.get(comparison.value, comparison.value)
    op = _turned(op) if per_user and comparison.value in {"<=", ">="} else op  # a rate per user bounds its inverse
    return str(op)


def _is_rationed(draft: Draft, reading: BoundReading, metric: str) -> bool:
    """``limit free to 2 rps``: a cap on what one tenant may send, and no floor of the service."""
    words = draft.said(draft.here).lower() if draft.here else ""
    noun = _RATE_LIMIT.search(draft.text.lower())
    is_next = noun is not None and not re.search(r"\d", draft.text[noun.end() : reading.start])
    goes_on = _follows_a_cap(draft, reading) and not _ENTITLED.search(draft.text, draft.places[-1][1], reading.end)
    is_said = is_next or goes_on or _RATIONED.search(words) is not None
    return reading.tenant is not None and metric in THROUGHPUTS and is_said


def _follows_a_cap(draft: Draft, reading: BoundReading) -> bool:
    """``limit free to 2 rps and paid to 5 rps``: the goal before caps a tenant in the same sentence."""
    before = draft.goals[-1] if draft.goals else None
    if (
        not isinstance(before, Objective)
        or before.tenant is None
        or before.op != "<="
        or before.metric not in THROUGHPUTS
    ):
        return False
    return re.search(r"[.!?;\n。！？；]", draft.text[draft.places[-1][1] : reading.start]) is None


_ENTITLED = re.compile(
    r"\b(?:(?:get|need|want|deserve|require|reserve|promise|deliver|provide|support|handle|sustain|leave|allow|keep|give|serve)"
    r"(?:s|d)?|has|have|guarantee\w*|must|should|can|make sure|ensure|let|hold)\b|需要|保证|要有|留|给",
    re.IGNORECASE,
)
"""Verbs of what a tenant is to have, which no cap is."""


_RATIONED = re.compile(
    r"\b(?:limit|cap|restrict|confine|throttle)\w*\b|\bat (?:the )?most\b|\bno more than\b|\bmax\b|限[制速流]|最多|上限"
)


_RATE_LIMIT = re.compile(r"\brate[- ]limit|\bthrottl|\bquota|限流|限速")
"""Nouns that speak of nothing else, wherever they stand: ``Rate limit, free tier: 3 requests per second``."""


def _counted_operator(token: TextToken | None, limited: str | None) -> str:
    if token is None:
        return limited or "=="
    return {"better": "<=", "worse": ">="}.get(token.value, str(token.value))


def _turned(op: str) -> str:
    return {"<=": ">=", ">=": "<="}[op]


def stat_of(draft: Draft, reading: BoundReading, metric: str) -> Any:
    """The statistic of a reading; None where one reading covers the whole service.

    False if it is not measured and a question was asked.
    """
    if reading.stat is not None:
        if reading.stat.value in get_args(Stat):
            return reading.stat.value
        ask_stat(draft, reading.stat)
        return False
    if metric not in LATENCIES:
        return None
    draft.assume("stat", "assumed_stat", stat=DEFAULT_STAT.upper())
    return DEFAULT_STAT


# -- settings --------------------------------------------------------------------------------------


_CAPPED = re.compile(r"\b(?:limit|cap|restrict|confine)\w*\b|限制")


def _config(draft: Draft, reading: BoundReading, head: TextToken) -> Goal | None:
    amount = reading.quantity
    comparison = reading.comparison
    key = str(head.value)
    if amount is None and key not in PHRASED:
        ask_degree(draft, head, key)
        return None
    quantity: Quantity = amount.value if amount else Quantity(1.0)
    if amount is not None and (quantity.unit is not None or quantity.number != int(quantity.number)):
        ask_whole(draft, amount, key)
        return None
    if amount is not None and comparison is not None and comparison.value not in {"<=", ">=", "=="}:
        ask_fixed_or_most(draft, comparison, amount, key)
        return None
    tenant = reading.tenant if Kind.TENANT not in reading.inherited else None
    if tenant is not None and tenant.value != EVERYONE:  # a topology serves every tenant of its model
        words = draft.say("words_not_understood", said=draft.quoted(tenant))
        draft.ask("words_not_understood", tenant, words, [draft.without([tenant]), draft.say("nothing")])
        return None
    common = scoped(draft, replace(reading, tenant=None))
    if common is None:
        return None
    del common["tenant"]
    capped = reading.direction == "<=" and _CAPPED.search(draft.text[max(0, reading.start - 20) : reading.end].lower())
    op = ">=" if key in LOSSES else comparison.value if comparison else "<=" if capped else "=="
    return Config(key=key, op=op, value=int(quantity.number), **common)  # type: ignore[arg-type] # checked above
