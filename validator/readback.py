"""The sentence an operator confirms: rendered from the checked goals by code, in the units that were said.

The rules translator reads it back to the same goals; ``(assumed)`` stands behind every default.
"""

import re
from collections.abc import Sequence

from intent.models import (
    METRIC_LABELS,
    Config,
    DatedWindow,
    FromNowWindow,
    Goal,
    Intent,
    Objective,
    RecurringWindow,
    Window,
)

_OPS = {"<=": "at most", ">=": "at least", "==": "exactly"}
_WINDOWS = {
    "always": "at all times",
    "peak": "at peak",
    "off_peak": "off-peak",
    "overnight": "overnight",
    "business_hours": "during business hours",
}
_SPOKEN = {
    "s": (("s", 1.0), ("ms", 1e3), ("min", 1 / 60), ("h", 1 / 3600)),
    "tokens/s": (("tokens/s", 1.0), ("tokens/min", 60.0), ("tokens/h", 3600.0)),
    "requests/s": (("requests/s", 1.0), ("requests/min", 60.0), ("requests/h", 3600.0)),
    "ratio": (("%", 100.0),),
}
"""Normalised unit to the units people say, with what the value is multiplied by."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")


def render(intent: Intent) -> str:
    """One clause per goal, joined to a text; empty without goals."""
    clauses = [_goal(goal, _assumed(intent, number)) for number, goal in enumerate(intent.goals)]
    sentence = "; ".join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""


def _assumed(intent: Intent, number: int) -> dict[str, str]:
    """Slot to the words of its assumption."""
    prefix = f"/goals/{number}/"
    return {
        one.pointer.removeprefix(prefix): one.text
        for one in intent.assumptions
        if one.pointer.startswith(prefix)
    }


def _goal(goal: Goal, assumed: dict[str, str]) -> str:
    if isinstance(goal, Objective):
        words = _objective(goal, assumed)
    elif isinstance(goal, Config):
        label = goal.key if goal.key == "replicas" else goal.key.upper()
        words = ["run with", label, *([_OPS[goal.op]] if goal.op != "==" else []), str(goal.value)]
    else:
        return f"{goal.type}: {goal.evidence!r}"
    words += [f"for {kind} {name}" for kind in ("tenant", "model") if (name := getattr(goal, kind, None))]
    words.append(_marked(_window(goal.window), "window", assumed))
    if "evidence" in assumed:
        words.append(f"[{assumed['evidence']}]")
    return " ".join(words)


def _marked(words: str, slot: str, assumed: dict[str, str]) -> str:
    return f"{words} (assumed)" if slot in assumed else words


def _objective(goal: Objective, assumed: dict[str, str]) -> list[str]:
    label = _marked(METRIC_LABELS[goal.metric], "metric", assumed)
    stat = (
        [_marked(goal.stat if goal.stat == "mean" else goal.stat.upper(), "stat", assumed)]
        if goal.stat
        else []
    )
    if goal.value is None:
        return [_marked(goal.op.replace("mize", "mise"), "op", assumed), *stat, label]
    amount = _marked(_amount(goal.value, goal.unit or "", goal.evidence), "unit", assumed)
    return [*stat, label, _marked(_OPS[goal.op], "op", assumed), amount]


def _amount(value: float, unit: str, evidence: str) -> str:
    """The value in the unit in which the operator's own number appears, else in one that reads well."""
    said = {_plain(float(number.replace(",", ""))) for number in _NUMBER.findall(evidence)}
    units = _SPOKEN.get(unit, ((unit, 1.0),))
    for name, factor in units:
        if _plain(value * factor) in said:
            return _with_unit(_plain(value * factor), name)
    name, factor = units[1] if unit == "s" and abs(value) < 1 else units[0]
    return _with_unit(_plain(value * factor), name)


def _plain(value: float) -> str:
    text = f"{value:.12g}"
    return text if "e" not in text else f"{value:.15f}".rstrip("0").rstrip(".")


def _with_unit(number: str, unit: str) -> str:
    return number if unit == "gpus" else f"{number} {unit}"


def _window(window: Window) -> str:
    match window:
        case str():
            return _WINDOWS.get(window, f"in window {window}")
        case RecurringWindow(days, start, end, tz):
            return f"{_listed(days)} {start} to {end} ({tz})"
        case DatedWindow(date, start, end, tz):
            return f"on {date} {start} to {end} ({tz})"
        case FromNowWindow(duration_s):
            return f"for the next {_amount(duration_s, 's', '')}"


def _listed(days: Sequence[str]) -> str:
    return "every day" if len(days) == 7 else ", ".join(days)
