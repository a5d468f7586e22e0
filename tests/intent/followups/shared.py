"""A deployment with names to follow up on, and what a diff says, done: the other way from goals to goals."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from intent.followups.conversation import GoalChange
from intent.models import NAMED_WINDOWS, Catalogue, Goal, Objective

CATALOGUE = Catalogue(
    models=("llama-70b",),
    windows=NAMED_WINDOWS,
    now=datetime(2026, 1, 5, 12, tzinfo=UTC),
    tz="UTC",
    tenants=("free", "enterprise"),
    devices={"A100": 4, "L40S": 4},
    nodes=("a", "b"),
)
TTFT = Objective("ttft", "<=", "words", stat="p99", value=2.0, unit="s", window="peak")


def applied(diff: Iterable[GoalChange], goals: Sequence[Goal]) -> tuple[Goal, ...]:
    """The goals after a diff."""
    diff = tuple(diff)
    removed = {int(one.pointer.rsplit("/", 1)[1]) for one in diff if one.change == "removed"}
    left = [goal for place, goal in enumerate(goals) if place not in removed]
    for one in diff:
        place = int(one.pointer.rsplit("/", 1)[1])
        if one.after is not None:
            left[place : place + (one.change == "changed")] = [one.after]
    return tuple(left)
