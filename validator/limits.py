"""Wishes beyond what the deployment file allows. Pure; no text can move a limit."""

from collections.abc import Iterator, Sequence

from intent.models import Config, Finding, Goal
from runtime.models import Limits
from validator.intervals import devices_asked, satisfies


def check(goals: Sequence[Goal], limits: Limits) -> Iterator[Finding]:
    """One finding for each goal that no allowed topology can meet."""
    allowed = {"tp": limits.allowed_tp, "pp": limits.allowed_pp}
    for number, goal in enumerate(goals):
        if isinstance(goal, Config):
            degrees = allowed.get(goal.key)
            if degrees is not None and not any(satisfies(degree, goal) for degree in degrees):
                yield _finding(
                    number,
                    goal,
                    f"{goal.key.upper()} {goal.value} is not allowed; allowed are {_listed(degrees)}",
                )
    if limits.max_gpus is not None:
        for number, asked in devices_asked(goals):
            if asked > limits.max_gpus:
                yield _finding(
                    number, goals[number], f"{asked} devices are asked for; the limit is {limits.max_gpus}"
                )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(str, values))


def _finding(number: int, goal: Goal, message: str) -> Finding:
    return Finding(
        "over_limit", f"/goals/{number}/value", f"{message} (limits of the deployment file)", goal.evidence
    )
