"""Names that this deployment does not have, and the question which one is meant. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from intent.models import NAMED_WINDOWS, Finding, Goal, Intent, Placement, Priority, Question
from intent.readback import in_words
from validator.models import Site
from validator.words import Words

MOST_NAMES = 3
"""Offered in a question; the last option is to leave everything as it is."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A name nobody has: where it stands in the goals, and the names of its kind, the nearest first."""

    number: int
    slot: str
    code: str
    said: str
    prefix: str
    """What stands before the name in its slot: ``tenant:``, ``node:``."""
    known: tuple[str, ...]


def unknown(goals: Sequence[Goal], site: Site) -> Iterator[Unknown]:
    """Every such name, in order."""
    for number, goal in enumerate(goals):
        for slot, code, prefix, said in _names(goal):
            known = _known(code, site)
            if said not in known and not (prefix and site.cluster.named(prefix + said)):
                yield Unknown(number, slot, code, said, prefix, _nearest(said, known))


def findings(missing: Sequence[Unknown], goals: Sequence[Goal], words: Words) -> Iterator[Finding]:
    """One for each unknown name; it names the known ones."""
    for one in missing:
        facts = {"name": one.said, "known": words.listed(one.known) or words.message("none")}
        hint, nearest = ("nearest", one.known[0]) if one.known else (None, "")
        place = f"/goals/{one.number}/{one.slot}"
        yield words.finding(one.code, place, goals[one.number], hint, nearest=nearest, **facts)


def question(intent: Intent, missing: Sequence[Unknown], words: Words) -> Question | None:
    """Which name is meant: each option is the text with another name, the nearest first; None if there is none to offer."""
    asked = next((one for one in missing if one.known), None)
    if asked is None:
        return None
    nothing = words.message("leave_everything")
    texts = {_instead(intent, asked, name): name for name in asked.known[:MOST_NAMES]} | {nothing: nothing}
    options = tuple(texts.values())
    text = words.message("which_name", name=asked.said, known=words.listed(asked.known))
    return Question(text, options, options[0], tuple(texts))


def _names(goal: Goal) -> Iterator[tuple[str, str, str, str]]:
    """Slot, code, prefix and name of everything a goal calls by name."""
    if isinstance(goal.window, str):
        yield "window", "unknown_window", "", goal.window
    for slot in ("tenant", "model"):
        if said := getattr(goal, slot, None):
            yield slot, f"unknown_{slot}", "", said
    sides = {"higher": goal.higher, "lower": goal.lower} if isinstance(goal, Priority) else {}
    if isinstance(goal, Placement):
        sides = {"workload": goal.workload}
        kind, _, said = goal.selector.partition(":")
        yield "selector", f"unknown_{kind}", f"{kind}:", said
    for slot, side in sides.items():
        if side and side.startswith("tenant:"):
            yield slot, "unknown_tenant", "tenant:", side.removeprefix("tenant:")


def _known(code: str, site: Site) -> tuple[str, ...]:
    match code:
        case "unknown_tenant":
            return site.tenants
        case "unknown_model":
            return tuple(site.models)
        case "unknown_gpu_type":
            return site.cluster.kinds
        case "unknown_gpu":
            return tuple(f"gpu-{gpu.index}" for gpu in site.cluster.gpus)
        case "unknown_node":
            return tuple(node.name for node in site.cluster.nodes)
    return tuple(dict.fromkeys((*NAMED_WINDOWS, *site.windows)))


def _nearest(said: str, known: Sequence[str]) -> tuple[str, ...]:
    """The known names, those most like what was said first."""
    by_fold = {name.lower(): name for name in known}
    near = get_close_matches(said.lower(), list(by_fold), n=MOST_NAMES, cutoff=0.4)
    return tuple(dict.fromkeys((*(by_fold[name] for name in near), *known)))


def _instead(intent: Intent, one: Unknown, name: str) -> str:
    """The text with another name in its place; where the name was said in other words, the read-back with it."""
    pattern = rf"(?<![A-Za-z0-9_]){re.escape(one.said)}(?![A-Za-z0-9_])"
    text, count = re.subn(pattern, lambda _: name, intent.text, flags=re.IGNORECASE)
    if count:
        return text
    goals, changed = list(intent.goals), {one.slot: one.prefix + name}
    goals[one.number] = replace(goals[one.number], **changed)  # type: ignore[arg-type] # the slot is of this goal
    return in_words(goals, intent.language)
