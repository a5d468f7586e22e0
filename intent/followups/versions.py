"""Versions of an intent: goals with where they come from, and what is different from the version before. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from intent.followups.subjects import same_wish
from intent.models import Assumption, Goal, Intent

Mode = Literal["merge", "replace", "answer"]
"""Beside the goals before, in place of all that was said, or an option of the open question."""


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one goal; the pointer is into the new version, for a removed goal into the one before."""

    change: Literal["added", "changed", "removed"]
    pointer: str
    before: Goal | None
    after: Goal | None


@dataclass(frozen=True, slots=True)
class Amendment:
    """A new version of an intent and what is different; without a difference its findings or its question say why."""

    intent: Intent
    diff: tuple[Change, ...]
    mode: Mode


@dataclass(frozen=True, slots=True)
class Entry:
    """A goal with its assumptions (slot, words), and its place in the version before."""

    goal: Goal
    notes: tuple[tuple[str, str], ...] = ()
    origin: int | None = None


def entries_of(intent: Intent) -> tuple[Entry, ...]:
    """The goals of an intent, each at its place."""
    notes: list[list[tuple[str, str]]] = [[] for _ in intent.goals]
    for assumption in intent.assumptions:
        _, root, place, slot = (*assumption.pointer.split("/", 3), "", "", "")[:4]
        if root == "goals" and place.isdigit() and int(place) < len(notes):
            notes[int(place)].append((slot, assumption.text))
    return tuple(Entry(goal, tuple(notes[n]), n) for n, goal in enumerate(intent.goals))


def version(previous: Intent, entries: Sequence[Entry], base: Intent, mode: Mode) -> Amendment:
    """The intent of these goals, those of the version before first, and what is different."""
    ordered = sorted(entries, key=lambda entry: len(previous.goals) if entry.origin is None else entry.origin)
    notes = [
        Assumption(f"/goals/{place}/{slot}", words)
        for place, entry in enumerate(ordered)
        for slot, words in entry.notes
    ]
    goals = tuple(entry.goal for entry in ordered)
    intent = replace(base, goals=goals, assumptions=tuple(notes), set_aside=(), readback="")
    return Amendment(replace(intent, outcome=intent.understood), _difference(previous.goals, ordered), mode)


def _difference(before: Sequence[Goal], entries: Sequence[Entry]) -> tuple[Change, ...]:
    kept = {entry.origin for entry in entries}
    removed = [Change("removed", f"/goals/{n}", goal, None) for n, goal in enumerate(before) if n not in kept]
    others = []
    for place, entry in enumerate(entries):
        if entry.origin is None:
            others.append(Change("added", f"/goals/{place}", None, entry.goal))
        elif not same_wish(before[entry.origin], entry.goal):
            others.append(Change("changed", f"/goals/{place}", before[entry.origin], entry.goal))
    return (*removed, *others)
