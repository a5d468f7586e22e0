"""Values that no service can have: percentages over 100, durations of nothing, latencies below what hardware allows. Pure."""

import math
from collections.abc import Iterator, Sequence

from intent.models import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    UNITS,
    Config,
    Finding,
    FromNowWindow,
    Goal,
    Objective,
    ReconfigRule,
    Relative,
    TenantException,
)
from intent.readback import plain
from validator.words import Words

FLOORS_S = {"ttft": 1e-3, "tpot": 1e-4, "e2e": 1e-3, "reconfig_pause": 1e-4}
"""Shortest times worth asking for, in seconds: a request crosses a network and a forward pass before its first token
(1 ms), and a token reads the weights once (0.1 ms for 300 MB at 3 TB/s)."""

FEWEST_FOLD, MOST_FOLD = 1e-3, 1e3
"""No service changes by more than a thousand times."""

_MAY_BE_ZERO = frozenset({"availability", "error_rate", "quality_loss"})


def check(goals: Sequence[Goal], words: Words) -> Iterator[Finding]:
    """One finding for each goal whose value is impossible by itself."""
    for number, goal in enumerate(goals):
        if slot := _non_finite(goal):
            yield words.finding("non_finite", f"/goals/{number}/{slot}", goal)
        elif isinstance(goal, Config) and goal.value < 1:
            setting = words.setting(goal.key)
            yield words.finding(
                "setting_not_positive",
                f"/goals/{number}/value",
                goal,
                "at_least_one",
                setting=setting,
                value=goal.value,
            )
        elif isinstance(goal, Objective) and goal.value is not None:
            yield from _value(number, goal, goal.value, words)
        elif isinstance(goal, Relative):
            yield from _change(number, goal, words)
        elif isinstance(goal, TenantException):
            yield from _exception(number, goal, words)
        elif isinstance(goal, ReconfigRule) and (goal.value or 0) < 0:
            metric = words.say("reconfigurations")
            yield words.finding("negative", f"/goals/{number}/value", goal, metric=metric)


def _non_finite(goal: Goal) -> str | None:
    """The slot of a number that is none, or without end."""
    if isinstance(goal.window, FromNowWindow) and not math.isfinite(goal.window.duration_s):
        return "window/duration_s"
    slots: tuple[str, ...] = ()
    match goal:
        case Objective() | ReconfigRule():
            slots = ("value",)
        case Relative():
            slots = ("factor", "delta")
        case TenantException():
            slots = ("limit", "factor")
    numbers = ((slot, getattr(goal, slot)) for slot in slots)
    return next((slot for slot, number in numbers if number is not None and not math.isfinite(number)), None)


def _value(number: int, goal: Objective, value: float, words: Words) -> Iterator[Finding]:
    place, facts = f"/goals/{number}/value", {"metric": words.metric(goal.metric)}
    if value < 0 or (value == 0 and goal.metric not in _MAY_BE_ZERO):
        yield words.finding("not_positive", place, goal, **facts)
    elif UNITS[goal.metric] == ("ratio",) and value > 1:
        yield words.finding(
            "over_100_percent", place, goal, "at_most_100", percent=plain(value * 100), **facts
        )
    elif goal.metric == "gpu_count" and goal.op == "==" and value != int(value):
        yield words.finding("not_whole", place, goal, "whole", low=int(value), high=int(value) + 1, **facts)
    elif goal.op != ">=":
        yield from _floor(place, goal, value, words)


def _floor(place: str, goal: Objective | TenantException, value: float, words: Words) -> Iterator[Finding]:
    floor_s = FLOORS_S.get(goal.metric, 0.0)
    if value < floor_s:
        floor = words.amount(floor_s, "s")
        yield words.finding("below_physical_floor", place, goal, "at_least", floor=floor, least=floor)


def _change(number: int, goal: Relative, words: Words) -> Iterator[Finding]:
    """A change by nothing, by more than there is, or by more than any service changes."""
    facts = {"metric": words.metric(goal.metric)}
    if goal.factor is not None and not FEWEST_FOLD <= goal.factor <= MOST_FOLD:
        code = "change_to_nothing" if goal.factor <= 0 else "change_implausible"
        yield words.finding(code, f"/goals/{number}/factor", goal, factor=plain(goal.factor), **facts)
    elif goal.delta is not None and goal.unit == "ratio" and abs(goal.delta) > 1:
        percent = plain(abs(goal.delta) * 100)
        yield words.finding(
            "over_100_percent", f"/goals/{number}/delta", goal, "at_most_100", percent=percent, **facts
        )


def _exception(number: int, goal: TenantException, words: Words) -> Iterator[Finding]:
    """An exception loosens a bound; its limit lies where the metric can lie."""
    place, facts = f"/goals/{number}", {"metric": words.metric(goal.metric), "tenant": goal.tenant}
    slot, granted = ("limit", goal.limit) if goal.limit is not None else ("factor", goal.factor)
    if granted is not None and granted <= 0:
        yield words.finding("not_positive", f"{place}/{slot}", goal, **facts)
    elif goal.limit is not None and UNITS[goal.metric] == ("ratio",) and goal.limit > 1:
        percent = plain(goal.limit * 100)
        yield words.finding(
            "over_100_percent", f"{place}/limit", goal, "at_most_100", percent=percent, **facts
        )
    elif goal.limit is not None and goal.metric not in HIGHER_IS_BETTER:
        yield from _floor(f"{place}/limit", goal, goal.limit, words)
    elif goal.factor is not None and _tightens(goal.metric, goal.factor):
        yield words.finding("exception_loosens_nothing", f"{place}/factor", goal, "loosen", **facts)


def _tightens(metric: str, factor: float) -> bool:
    """Whether a bound times this factor is no looser than the bound."""
    looser = factor > 1 if metric in LOWER_IS_BETTER else factor < 1
    return factor == 1 or (metric in LOWER_IS_BETTER | HIGHER_IS_BETTER and not looser)
