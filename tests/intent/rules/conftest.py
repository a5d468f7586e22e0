"""A deployment with names of every sort, and goals written short, so that tables of phrases stay readable."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from intent.models import (
    NAMED_WINDOWS,
    Catalogue,
    Config,
    DatedWindow,
    DatesWindow,
    FromNowWindow,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    Relative,
    TenantException,
    Window,
)
from intent.rules import read


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue(
        models=("counting",),
        windows=(*NAMED_WINDOWS, "month_end"),
        now=datetime(2026, 11, 20, 10, tzinfo=UTC),
        tz="UTC",
        tenants=("acme", "free", "paid"),
        aliases={"the counter": "counting", "acme corp": "acme", "付费": "paid", "免费": "free"},
        devices={"A100": 4, "L40S": 4},
        nodes=("a", "b"),
    )


@pytest.fixture(scope="session")
def goals(catalogue) -> Callable[[str], list[str]]:
    """What a text says, each goal in short, and a question as its code; the evidence of goals stands in the text."""

    def told(text: str) -> list[str]:
        draft = read(text, catalogue)
        assert all(goal.evidence and goal.evidence in text for goal in draft.goals)
        codes = [finding.code for finding in draft.findings] if draft.questions else []
        return [short(goal) for goal in draft.goals] + [f"? {code}" for code in codes]

    return told


def short(goal: Goal) -> str:
    """``ttft p99 <= 2 s peak``; a window that is always, and what was not said, is left out."""
    match goal:
        case Objective(metric=metric, stat=stat, op=op, value=value, unit=unit):
            parts = [metric, stat, op, _number(value), unit, "soft" if goal.soft else None]
            parts.append(f"over {goal.over_s}s" if goal.over_s else None)
        case Relative(metric=metric, stat=stat, op=op, factor=factor, delta=delta, unit=unit):
            parts = [metric, stat, op, _number(factor, "x"), _number(delta, "+"), unit]
        case TenantException(metric=metric, limit=limit, unit=unit, factor=factor):
            parts = ["not", metric, _number(limit), unit, _number(factor, "x")]
        case PrecisionRule(rule=rule, value=value, layers=layers):
            parts = [rule, value, layers and f"[{layers}]"]
        case Placement(rule=rule, selector=selector, workload=workload):
            parts = [workload, rule, selector]
        case Priority(higher=higher, lower=lower):
            parts = [higher, ">", lower or "all"]
        case Config(key=key, op=op, value=value):
            parts = [key, op, str(value)]
        case ReconfigRule(rule=rule, value=value, unit=unit):
            parts = [rule, _number(value), unit]
    names = [getattr(goal, "tenant", None), getattr(goal, "model", None)]
    return " ".join(part for part in [*parts, _window(goal.window), *names] if part)


def _number(value: float | None, sign: str = "") -> str | None:
    return None if value is None else f"{sign}{value:g}"


def _window(window: Window) -> str | None:
    if isinstance(window, str):
        return None if window == "always" else window
    if isinstance(window, FromNowWindow):
        return f"{window.duration_s:g}s"
    if isinstance(window, DatesWindow):
        return f"{window.date} {window.start}-{window.last} {window.end} {window.tz}"
    days = window.date if isinstance(window, DatedWindow) else ",".join(window.days)
    return f"{days} {window.start}-{window.end} {window.tz}"
