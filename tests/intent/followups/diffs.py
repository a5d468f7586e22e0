"""What a diff says, done: the other way from goals to goals."""

from collections.abc import Iterable, Sequence

from intent.followups.versions import Change
from intent.models import Goal


def applied(diff: Iterable[Change], goals: Sequence[Goal]) -> tuple[Goal, ...]:
    """The goals after a diff."""
    diff = tuple(diff)
    removed = {int(one.pointer.rsplit("/", 1)[1]) for one in diff if one.change == "removed"}
    left = [goal for place, goal in enumerate(goals) if place not in removed]
    for one in diff:
        place = int(one.pointer.rsplit("/", 1)[1])
        if one.after is not None:
            left[place : place + (one.change == "changed")] = [one.after]
    return tuple(left)
