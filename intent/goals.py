"""Readings to goals: the one place that decides what words mean and which defaults hold.

A slot that a documented default covers is assumed and said so; one that could mean two things becomes a question.
"""

from dataclasses import replace
from typing import Any

from intent.draft import Draft
from intent.lexicon import ANY_LATENCY, ANY_THROUGHPUT, STATS, Kind
from intent.models import (
    DEFAULT_STAT,
    HIGHER_IS_BETTER,
    LATENCIES,
    LOWER_IS_BETTER,
    METRIC_LABELS,
    Config,
    Goal,
    Objective,
)
from intent.quantities import PER_USER, Quantity, normalise
from intent.questions import (
    AT,
    SETTING_LABELS,
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
    ask_window,
)
from intent.readings import Reading
from intent.tokens import Token


def add_goal(draft: Draft, reading: Reading) -> None:
    """Append the goal of one reading with its assumptions, or the question that keeps it from being one."""
    mark = len(draft.assumptions)
    for slot, words in reading.notes:
        draft.assume(slot, words)
    goal = _goal(draft, reading)
    if goal is None or any(_same(goal, one) for one in draft.goals):
        del draft.assumptions[mark:]
    else:
        draft.goals.append(goal)


def _same(a: Goal, b: Goal) -> bool:
    """Whether two goals mean the same, whatever the words."""
    return replace(a, evidence="") == replace(b, evidence="")


def _goal(draft: Draft, reading: Reading) -> Goal | None:
    if reading.head is not None and reading.head.value in SETTING_LABELS:
        return _config(draft, reading, reading.head)
    metric = _metric(draft, reading)
    if metric is None:
        return None
    if reading.comparison is not None and reading.comparison.kind is Kind.OPTIMISE:
        return _optimisation(draft, reading, metric, reading.comparison)
    return _bound(draft, reading, metric)


# -- the metric ------------------------------------------------------------------------------------


def _metric(draft: Draft, reading: Reading) -> str | None:
    head, unit = reading.head, _unit(reading)
    if head is None or head.kind is Kind.UNKNOWN:
        ask_metric(draft, reading)
        return None
    latency, throughput = head.value == ANY_LATENCY, head.value in {ANY_THROUGHPUT, "throughput_tok"}
    if (unit == PER_USER and (latency or throughput)) or (unit == "s/token" and latency):
        return "tpot"
    if latency:
        ask_latency(draft, head)
        return None
    if head.value == ANY_THROUGHPUT:
        return _throughput(draft, reading)
    return str(head.value)


def _throughput(draft: Draft, reading: Reading) -> str | None:
    """Tokens or requests, as the unit says."""
    unit = _unit(reading)
    if unit is not None:
        return "throughput_req" if unit == "requests/s" else "throughput_tok"
    if reading.quantity is not None:
        ask_unit(draft, reading.quantity, ANY_THROUGHPUT)
        return None
    draft.assume("metric", "throughput counted in tokens")
    return "throughput_tok"


def _unit(reading: Reading) -> str | None:
    return reading.quantity.value.unit if reading.quantity else None


# -- objectives ------------------------------------------------------------------------------------


def _optimisation(draft: Draft, reading: Reading, metric: str, said: Token) -> Goal | None:
    if metric in (LOWER_IS_BETTER if said.value == "maximize" else HIGHER_IS_BETTER):
        ask_optimum(draft, metric, said)
        return None
    if reading.quantity is not None:
        ask_bound_or_optimum(draft, metric, said, reading.quantity)
        return None
    return _objective(draft, reading, metric, {"op": said.value})


def _bound(draft: Draft, reading: Reading, metric: str) -> Goal | None:
    amount = reading.quantity
    if amount is None:
        ask_bound(draft, reading, metric)
        return None
    quantity = _normalised(draft, reading, metric, amount)
    op = _operator(draft, reading, metric, amount) if quantity else None
    if quantity is None or op is None:
        return None
    if metric == "gpu_count" and quantity.value != int(quantity.value):
        ask_whole(draft, amount, METRIC_LABELS[metric])
        return None
    return _objective(draft, reading, metric, {"op": op, "value": quantity.value, "unit": quantity.unit})


def _objective(draft: Draft, reading: Reading, metric: str, bound: dict[str, Any]) -> Goal | None:
    window, stat = _window(draft, reading), _stat(draft, reading, metric)
    if window is None or stat is False:
        return None
    common = _common(draft, reading)
    return Objective(metric=metric, stat=stat, window=window, **common, **bound)  # type: ignore[arg-type] # closed tables


def _common(draft: Draft, reading: Reading) -> dict[str, Any]:
    """Evidence and names, which every goal has; spelling corrections are noted on the way."""
    for token in (reading.head, reading.stat, reading.comparison, reading.quantity, reading.window):
        if token is not None and token.misspelt:
            was, taken = token.misspelt
            draft.assume("evidence", f"understood {was!r} as {taken!r}")
    return {
        "evidence": draft.text[reading.start : reading.end],
        "tenant": reading.tenant.value if reading.tenant else None,
        "model": reading.model.value if reading.model else None,
    }


def _normalised(draft: Draft, reading: Reading, metric: str, amount: Token) -> Quantity | None:
    said: Quantity = amount.value
    quantity = normalise(metric, said)
    if quantity is None and said.unit in {None, "USD"}:
        ask_unit(draft, amount, metric)
    elif quantity is None:
        ask_impossible_unit(draft, reading, metric, amount)
    elif said.unit is None and metric == "gpu_util":
        draft.assume("unit", f"{said.number:g} read as {quantity.value * 100:g} %")
    return quantity


def _operator(draft: Draft, reading: Reading, metric: str, amount: Token) -> str | None:
    """``<=`` or ``>=`` by what was said, or by the metric's good direction where that leaves no doubt."""
    said, per_user = reading.comparison, _unit(reading) == PER_USER
    if metric == "gpu_count":
        return _counted_operator(said)
    good = ">=" if metric in HIGHER_IS_BETTER else "<=" if metric in LOWER_IS_BETTER else None
    if said is None or said.value == "==":
        if good is None:
            ask_comparison(draft, said, amount)
        else:
            draft.assume("op", f"{AT[_turned(good) if per_user else good]} {draft.said(amount)}")
        return good
    op = {"better": good or ">=", "worse": _turned(good or ">=")}.get(said.value, said.value)
    op = _turned(op) if per_user else op  # a rate per user bounds its inverse
    if good is not None and op != good:
        ask_direction(draft, metric, said, amount)
        return None
    return str(op)


def _counted_operator(said: Token | None) -> str:
    if said is None:
        return "=="
    return {"better": "<=", "worse": ">="}.get(said.value, str(said.value))


def _turned(op: str) -> str:
    return {"<=": ">=", ">=": "<="}[op]


def _stat(draft: Draft, reading: Reading, metric: str) -> Any:
    """The statistic, None for one reading of the whole service, False if it is not measured and was asked about."""
    if reading.stat is not None:
        if reading.stat.value in STATS:
            return reading.stat.value
        ask_stat(draft, reading.stat)
        return False
    if metric not in LATENCIES:
        return None
    draft.assume("stat", f"{DEFAULT_STAT.upper()}, as no percentile was said")
    return DEFAULT_STAT


# -- windows and settings --------------------------------------------------------------------------


def _window(draft: Draft, reading: Reading) -> str | None:
    """The window's name; None if the deployment file does not define it and it was asked about."""
    if reading.window is None:
        draft.assume("window", "at all times, as no window was said")
        return "always"
    name = str(reading.window.value)
    if name == "always" or name in draft.catalogue.windows:
        return name
    ask_window(draft, reading.window)
    return None


def _config(draft: Draft, reading: Reading, head: Token) -> Goal | None:
    amount, said, label = reading.quantity, reading.comparison, SETTING_LABELS[head.value]
    if amount is None:
        ask_degree(draft, head, label)
        return None
    quantity: Quantity = amount.value
    if quantity.unit is not None or quantity.number != int(quantity.number):
        ask_whole(draft, amount, label)
        return None
    if said is not None and said.value not in {"<=", ">=", "=="}:
        ask_fixed_or_most(draft, said, amount, label)
        return None
    window = _window(draft, reading)
    if window is None:
        return None
    common = _common(draft, reading)
    del common["tenant"]  # a topology serves every tenant of its model
    op = said.value if said else "=="
    return Config(key=head.value, op=op, value=int(quantity.number), window=window, **common)  # type: ignore[arg-type] # checked above
