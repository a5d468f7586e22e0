"""What one goal says, by itself: names, bounds of values, windows. Pure."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from intent.models import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    NAMED_WINDOWS,
    UNITS,
    Config,
    DatedWindow,
    Finding,
    FromNowWindow,
    Goal,
    Intent,
    Objective,
    Placement,
    Priority,
    Question,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
)
from intent.readback import in_words, plain
from validator.intervals import once
from validator.models import MessageWords, Site

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
        for slot, code, prefix, name in _names(goal):
            known = _known(code, site)
            if name not in known and not (prefix and site.cluster.named(prefix + name)):
                yield Unknown(number, slot, code, name, prefix, _nearest(name, known))


def findings(missing: Sequence[Unknown], goals: Sequence[Goal], words: MessageWords) -> Iterator[Finding]:
    """One for each unknown name; it names the known ones."""
    for unknown in missing:
        facts = {"name": unknown.said, "known": words.listed(unknown.known) or words.message("none")}
        hint, nearest = ("nearest", unknown.known[0]) if unknown.known else (None, "")
        place = f"/goals/{unknown.number}/{unknown.slot}"
        yield words.finding(unknown.code, place, goals[unknown.number], hint, nearest=nearest, **facts)


def question(intent: Intent, missing: Sequence[Unknown], words: MessageWords) -> Question | None:
    """Which name is meant: each option is the text with another name, the nearest first.

    None if there is none to offer.
    """
    known_name = next((unknown for unknown in missing if unknown.known), None)
    if known_name is None:
        return None
    nothing = words.message("leave_everything")
    texts = {_instead(intent, known_name, name): name for name in known_name.known[:MOST_NAMES]} | {nothing: nothing}
    options = tuple(texts.values())
    text = words.message("which_name", name=known_name.said, known=words.listed(known_name.known))
    return Question(text, options, options[0], tuple(texts))


def _names(goal: Goal) -> Iterator[tuple[str, str, str, str]]:
    """Slot, code, prefix and name of everything a goal calls by name."""
    if isinstance(goal.window, str):
        yield "window", "unknown_window", "", goal.window
    for slot in ("tenant", "model"):
        if value := getattr(goal, slot, None):
            yield slot, f"unknown_{slot}", "", value
    sides = {"higher": goal.higher, "lower": goal.lower} if isinstance(goal, Priority) else {}
    if isinstance(goal, Placement):
        sides = {"workload": goal.workload}
        kind, _, value = goal.selector.partition(":")
        yield "selector", f"unknown_{kind}", f"{kind}:", value
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


def _nearest(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The known names, those most like what was said first."""
    by_fold = {name.lower(): name for name in known}
    near = get_close_matches(text.lower(), list(by_fold), n=MOST_NAMES, cutoff=0.4)
    return tuple(dict.fromkeys((*(by_fold[name] for name in near), *known)))


def _instead(intent: Intent, unknown: Unknown, name: str) -> str:
    """The text with another name in its place.

    Where the name was said in other words, the read-back with it.
    """
    pattern = rf"(?<![A-Za-z0-9_]){re.escape(unknown.said)}(?![A-Za-z0-9_])"
    text, count = re.subn(pattern, lambda _: name, intent.text, flags=re.IGNORECASE)
    if count:
        return text
    goals = list(intent.goals)
    changed = {unknown.slot: unknown.prefix + name}
    goals[unknown.number] = replace(goals[unknown.number], **changed)  # type: ignore[arg-type] # the slot is of this goal
    return in_words(goals, intent.language)


FLOORS_S = {"ttft": 1e-3, "tpot": 1e-4, "e2e": 1e-3, "reconfig_pause": 1e-4}
"""Shortest times worth asking for, in seconds: a request crosses a network and a forward pass before its first token
(1 ms), and a token reads the weights once (0.1 ms for 300 MB at 3 TB/s)."""

FEWEST_FOLD = 1e-3
"""No service comes down to less than a thousandth."""
MOST_FOLD = 1e3
"""No service goes up to more than a thousand times."""

_MAY_BE_ZERO = frozenset({"availability", "error_rate", "quality_loss"})


def check_bounds(goals: Sequence[Goal], words: MessageWords) -> Iterator[Finding]:
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


def _value(number: int, goal: Objective, value: float, words: MessageWords) -> Iterator[Finding]:
    place = f"/goals/{number}/value"
    facts = {"metric": words.metric(goal.metric)}
    if value < 0 or (value == 0 and goal.metric not in _MAY_BE_ZERO):
        yield words.finding("not_positive", place, goal, **facts)
    elif UNITS[goal.metric] == ("ratio",) and value > 1:
        yield words.finding("over_100_percent", place, goal, "at_most_100", percent=plain(value * 100), **facts)
    elif goal.metric == "gpu_count" and goal.op == "==" and value != int(value):
        yield words.finding("not_whole", place, goal, "whole", low=int(value), high=int(value) + 1, **facts)
    elif goal.op != ">=":
        yield from _floor(place, goal, value, words)


def _floor(place: str, goal: Objective | TenantException, value: float, words: MessageWords) -> Iterator[Finding]:
    floor_s = FLOORS_S.get(goal.metric, 0.0)
    if value < floor_s:
        floor = words.amount(floor_s, "s")
        yield words.finding("below_physical_floor", place, goal, "at_least", floor=floor, least=floor)


def _change(number: int, goal: Relative, words: MessageWords) -> Iterator[Finding]:
    """A change by nothing, by more than there is, or by more than any service changes."""
    facts = {"metric": words.metric(goal.metric)}
    if goal.factor is not None and not FEWEST_FOLD <= goal.factor <= MOST_FOLD:
        code = "change_to_nothing" if goal.factor <= 0 else "change_implausible"
        yield words.finding(code, f"/goals/{number}/factor", goal, factor=plain(goal.factor), **facts)
    elif goal.delta is not None and goal.unit == "ratio" and abs(goal.delta) > 1:
        percent = plain(abs(goal.delta) * 100)
        yield words.finding("over_100_percent", f"/goals/{number}/delta", goal, "at_most_100", percent=percent, **facts)


def _exception(number: int, goal: TenantException, words: MessageWords) -> Iterator[Finding]:
    """An exception loosens a bound; its limit lies where the metric can lie."""
    place = f"/goals/{number}"
    facts = {"metric": words.metric(goal.metric), "tenant": goal.tenant}
    slot, granted = ("limit", goal.limit) if goal.limit is not None else ("factor", goal.factor)
    if granted is not None and granted <= 0:
        yield words.finding("not_positive", f"{place}/{slot}", goal, **facts)
    elif goal.limit is not None and UNITS[goal.metric] == ("ratio",) and goal.limit > 1:
        percent = plain(goal.limit * 100)
        yield words.finding("over_100_percent", f"{place}/limit", goal, "at_most_100", percent=percent, **facts)
    elif goal.limit is not None and goal.metric not in HIGHER_IS_BETTER:
        yield from _floor(f"{place}/limit", goal, goal.limit, words)
    elif goal.factor is not None and _tightens(goal.metric, goal.factor):
        yield words.finding("exception_loosens_nothing", f"{place}/factor", goal, "loosen", **facts)


def _tightens(metric: str, factor: float) -> bool:
    """Whether a bound times this factor is no looser than the bound."""
    looser = factor > 1 if metric in LOWER_IS_BETTER else factor < 1
    return factor == 1 or (metric in LOWER_IS_BETTER | HIGHER_IS_BETTER and not looser)


MOST_ZONES = 3
"""Named in a suggestion."""


def check_windows(goals: Sequence[Goal], site: Site, words: MessageWords) -> Iterator[Finding]:
    """One finding for each goal with such a window."""
    for number, goal in enumerate(goals):
        window = goal.window
        place = f"/goals/{number}/window"
        if isinstance(window, RecurringWindow | DatedWindow) and not is_zone(window.tz):
            nearest = words.listed(_nearest_window(window.tz))
            yield words.finding("unknown_zone", f"{place}/tz", goal, "zones", zone=window.tz, nearest=nearest)
        elif isinstance(window, DatedWindow):
            when = once(window)
            if when is None or when[0] >= when[1]:
                yield words.finding("no_such_date", f"{place}/date", goal, date=window.date)
            elif when[1] <= site.now:
                today = f"{site.now.astimezone(ZoneInfo(window.tz)):%Y-%m-%d %H:%M}"
                yield words.finding("window_over", place, goal, window=words.window(window), now=today)


def is_zone(name: str) -> bool:
    """Whether a time zone has this name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return True


def _nearest_window(name: str) -> list[str]:
    """Zones with a part of this name, else those most like it."""
    parts = {part for part in name.lower().replace("/", " ").split() if len(part) > 2}
    zones = sorted(available_timezones())
    named = [zone for zone in zones if zone.lower().rsplit("/", 1)[-1] in parts]
    return named[:MOST_ZONES] or get_close_matches(name, zones, MOST_ZONES, cutoff=0.5) or ["Europe/Berlin"]
