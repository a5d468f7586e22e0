"""Devices that goals ask for together: more than there are, or than the deployment allows. Pure."""

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, product

from intent.models import Config, Finding, Goal, Objective, Window
from validator.intervals import hard, together
from validator.models import Site
from validator.words import Words

_SETTINGS = ("tp", "pp", "replicas")


def check(goals: Mapping[int, Goal], site: Site, words: Words) -> Iterator[Finding]:
    """``goals`` by number, without those that cannot be by themselves: what is made of these proves nothing."""
    have, most = len(site.cluster.gpus), site.limits.max_gpus
    for number, asked in sorted(set(asked_for(goals, site))):
        place, goal = f"/goals/{number}/value", goals[number]
        if asked > have:
            yield words.finding("too_few_devices", place, goal, "devices_there", devices=asked, have=have)
        elif most is not None and asked > most:
            yield words.finding("over_device_limit", place, goal, "devices_allowed", devices=asked, most=most)


def asked_for(goals: Mapping[int, Goal], site: Site) -> Iterator[tuple[int, int]]:
    """Goal number and the least number of devices that it asks for, with others or as a count.

    Wishes for TP, PP and replicas that hold together multiply. The number is that of the last of them; otherwise the
    order changes nothing.
    """
    for wishes in _together(goals, site):
        yield max(wishes), math.prod(wishes.values())
    for number, goal in goals.items():
        if (count := _count(goal)) is not None:
            yield number, count


def _count(goal: Goal) -> int | None:
    """The least number of GPUs, where a goal is about that."""
    if not isinstance(goal, Objective) or goal.metric != "gpu_count" or goal.op == "<=" or not hard(goal):
        return None
    return None if goal.value is None or not math.isfinite(goal.value) else math.ceil(goal.value)


def _together(goals: Mapping[int, Goal], site: Site) -> Iterator[dict[int, int]]:
    """Goal number to value, at most one wish for each setting: every set that holds together and could not have more."""
    wishes = _largest(goals)
    choices = ((None, *(n for n, wish in wishes.items() if wish.key == key)) for key in _SETTINGS)
    sets = {frozenset(n for n in choice if n is not None) for choice in product(*choices)}
    whole = {
        one
        for one in sets
        if one and all(together(wishes[a], wishes[b], site) for a, b in combinations(one, 2))
    }
    for one in whole:
        if not any(one < one | {n} in whole for n in wishes):
            yield {number: wishes[number].value for number in one}


def _largest(goals: Mapping[int, Goal]) -> dict[int, Config]:
    """The wishes for settings; of several for one setting, time and model the largest."""
    found: dict[tuple[str, Window, str | None], tuple[int, Config]] = {}
    for number, goal in goals.items():
        if isinstance(goal, Config) and goal.op != "<=":
            same = goal.key, goal.window, goal.model
            if same not in found or goal.value >= found[same][1].value:
                found[same] = number, goal
    return dict(found.values())
