"""Goals that cannot hold together: disjoint bounds, crossed percentiles, opposite wishes. Pure.

What is only preferred never clashes: it yields. A bound for one tenant, model or window stands beside a general one;
they clash when no value lies in both, or when everything but the value is the same.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from intent.models import (
    HIGHER_IS_BETTER,
    HOURS_OF_COST,
    Config,
    Finding,
    Goal,
    Objective,
    ReconfigRule,
    Relative,
    TenantException,
)
from validator.devices import asked_for
from validator.intervals import Interval, bounded, hard, interval, together
from validator.models import Site
from validator.words import Words

_PERCENTILES = ("p50", "p90", "p95", "p99", "p99.9")


def check(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """One finding for each pair that clashes, at the later of the two."""
    firm = [(number, goal) for number, goal in enumerate(goals) if hard(goal)]
    for (first, a), (second, b) in combinations(firm, 2):
        if (code := _clash(a, b)) and together(a, b, site):
            yield words.clash(code, (first, a), (second, b), **_facts(a, b, words))
    yield from _too_many_devices(goals, site, words)


def _facts(a: Goal, b: Goal, words: Words) -> dict[str, str]:
    """What the messages about a pair may name."""
    facts = {}
    if isinstance(a, Config):
        facts["setting"] = words.setting(a.key)
    if isinstance(a, Objective) and isinstance(b, Objective) and a.stat and b.stat:
        lower, higher = sorted((a.stat, b.stat), key=(*_PERCENTILES, "mean").index)
        facts |= {"lower": lower.upper(), "higher": higher.upper()}
    return facts


def _clash(a: Goal, b: Goal) -> str | None:
    """The code of what is wrong with two goals, their times and tenants left aside."""
    rule = _RULES.get((type(a), type(b)))
    if rule is None or getattr(a, "metric", None) != getattr(b, "metric", None):
        return None
    return rule(a, b)


# -- bounds ----------------------------------------------------------------------------------------


def _objectives(a: Objective, b: Objective) -> str | None:
    if {a.op, b.op} == {"minimize", "maximize"}:
        return "opposite_wishes"
    if a.value is None or b.value is None or not _comparable(a.unit, b.unit):
        return None
    if a.stat == b.stat:
        return _same_statistic(a, b)
    if a.stat in _PERCENTILES and b.stat in _PERCENTILES:
        lower, higher = sorted((a, b), key=lambda goal: _PERCENTILES.index(goal.stat or ""))
        return _percentiles(lower, higher)
    return None


def _comparable(a: str | None, b: str | None) -> bool:
    """A price per token and one per hour compare only at a known load."""
    return a == b or "USD/Mtok" not in {a, b}


def _same_statistic(a: Objective, b: Objective) -> str | None:
    if interval(a).disjoint(interval(b)):
        return "disjoint_bounds"
    same = replace(a, value=b.value, unit=b.unit, evidence=b.evidence) == b
    return "bounded_twice" if same and interval(a) != interval(b) else None


def _percentiles(lower: Objective, higher: Objective) -> str | None:
    """A lower percentile is never above a higher one, so its bound should not be either."""
    low, high = interval(lower), interval(higher)
    looser = low.high > high.high and low.high != math.inf and lower.metric not in HIGHER_IS_BETTER
    return "percentiles_crossed" if looser or low.low > high.high else None


def _changes(a: Relative, b: Relative) -> str | None:
    """Two changes relative to now: shares with shares, amounts with amounts, else only their directions."""
    if a.stat != b.stat:
        return None
    one, other = _change(a), _change(b)
    if (a.factor is None) == (b.factor is None):
        if one.disjoint(other):
            return "disjoint_bounds"
        same = replace(a, factor=b.factor, delta=b.delta, evidence=b.evidence) == b
        return "bounded_twice" if same and one != other else None
    apart = max(one.low, other.low) >= 0 >= min(one.high, other.high)
    return "disjoint_bounds" if apart and max(one.low, other.low) > min(one.high, other.high) else None


def _change(goal: Relative) -> Interval:
    return bounded(goal.op, goal.factor - 1 if goal.factor is not None else goal.delta or 0.0)


# -- exceptions ------------------------------------------------------------------------------------


def _exceptions(a: TenantException, b: TenantException) -> str | None:
    return None if _grants(a) == _grants(b) else "excepted_twice"


def _grants(goal: TenantException) -> tuple[float | None, ...]:
    return _per_hour(goal.limit, goal.unit), goal.factor


def _excepted(exception: TenantException, bound: Objective) -> str | None:
    """An exception beside a bound of its own tenant, or one that grants less than the bound it is made from."""
    if bound.value is None or not _comparable(exception.unit or bound.unit, bound.unit):
        return None
    limit, value = _per_hour(exception.limit, exception.unit), _per_hour(bound.value, bound.unit)
    if bound.tenant is not None:
        return None if limit == value else "bound_and_exception"
    if limit is None or value is None:
        return None
    tighter = (bound.op == "<=" and limit < value) or (bound.op == ">=" and limit > value)
    return "exception_tighter" if tighter else None


def _per_hour(value: float | None, unit: str | None) -> float | None:
    return None if value is None else value / HOURS_OF_COST.get(unit or "", 1.0)


# -- settings --------------------------------------------------------------------------------------


def _settings(a: Config, b: Config) -> str | None:
    return "different_settings" if a.key == b.key and interval(a).disjoint(interval(b)) else None


def _reconfigurations(a: ReconfigRule, b: ReconfigRule) -> str | None:
    """Different limits on the very same hours; a limit per hour stands beside one per day, as a peak's beside the day's."""
    if a.window != b.window or (a.rule == b.rule and a.unit != b.unit):
        return None
    rates = [0.0 if one.rule == "forbid" else one.value for one in (a, b)]
    return "reconfigured_twice" if rates[0] != rates[1] else None


def _too_many_devices(goals: Sequence[Goal], site: Site, words: Words) -> Iterator[Finding]:
    """A topology that needs more devices than a goal of the same text allows, wherever in the text either stands."""
    for n, count in enumerate(goals):
        if not (isinstance(count, Objective) and count.metric == "gpu_count" and hard(count)):
            continue
        beside = {
            number: goal
            for number, goal in enumerate(goals)
            if isinstance(goal, Config) and together(goal, count, site)
        }
        for number, asked in asked_for(beside, site):
            if asked > interval(count).high:
                first, second = sorted((n, number))
                pair = (first, goals[first]), (second, goals[second])
                yield words.clash("too_many_for_both", *pair, devices=asked)


_RULES: Mapping[tuple[type[Goal], type[Goal]], Callable[[Any, Any], str | None]] = {
    (Config, Config): _settings,
    (Objective, Objective): _objectives,
    (Relative, Relative): _changes,
    (TenantException, TenantException): _exceptions,
    (TenantException, Objective): _excepted,
    (Objective, TenantException): lambda bound, exception: _excepted(exception, bound),
    (ReconfigRule, ReconfigRule): _reconfigurations,
}
