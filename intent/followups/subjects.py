"""What a goal is about: two goals with one subject cannot stand side by side, the later one takes the other's place. Pure."""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from intent.models import (
    LATENCIES,
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    Relative,
    TenantException,
)
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT

_SIDES = {"<=": "upper", ">=": "lower", "minimize": "best", "maximize": "best"}
"""A bound from above, one from below and an optimisation may stand side by side; ``==`` takes the place of each."""


def same_subject(one: Goal, other: Goal) -> bool:
    """Whether one of them takes the other's place."""
    sides = {_SIDES.get(getattr(goal, "op", "=="), "any") for goal in (one, other)}
    return subject(one) == subject(other) and (len(sides) == 1 or "any" in sides)


def subject(goal: Goal) -> tuple[Any, ...]:
    """What a goal is about, without the side of its bound."""
    match goal:
        case Objective() | Relative():
            about: tuple[Any, ...] = (goal.metric, goal.stat, goal.tenant, goal.model)
        case TenantException():
            about = (goal.tenant, goal.metric)
        case PrecisionRule():
            about = (goal.value if goal.rule in {"forbid", "allow"} else None, goal.tenant, goal.model)
        case Placement():
            about = (goal.workload, goal.selector if goal.rule in {"forbid", "freeze"} else None)
        case Priority():
            about = (frozenset({goal.higher, goal.lower}) if goal.lower else None,)
        case Config():
            about = (goal.key, goal.model)
        case ReconfigRule():
            about = ()
    return (goal.type, goal.window, *about)


def is_alike(one: Goal, other: Goal) -> bool:
    """Whether one goal could have become the other: the same kind of wish about the same thing."""
    slots = ("type", "metric", "key", "selector", "higher")
    return all(getattr(one, slot, None) == getattr(other, slot, None) for slot in slots)


def filled(goal: Goal, slots: Collection[str], source: Goal) -> Goal:
    """A goal with these slots taken from another one, where both have them."""
    common = {one.name for one in fields(goal)} & {one.name for one in fields(source)} & set(slots)
    return replace(goal, **{slot: getattr(source, slot) for slot in common})


def same_wish(one: Goal, other: Goal) -> bool:
    """Whether two goals say the same, in whatever words."""
    return replace(one, evidence="") == replace(other, evidence="")


def is_called(goal: Goal, metric: str) -> bool:
    """Whether a goal is about a metric, or one of those that go by a common name."""
    own = getattr(goal, "metric", None)
    return {
        ANY_LATENCY: own in LATENCIES,
        ANY_THROUGHPUT: str(own).startswith("throughput"),
    }.get(metric, own == metric)
