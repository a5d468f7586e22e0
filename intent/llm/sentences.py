"""A goal in one sentence that the rules read: so that an LLM's words mean what the rules say they mean.

Which slots a goal needs, may have and has not follows from its sentence in ``sentences.yaml``.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from intent.messages import Language
from intent.models import (
    Config,
    DatedWindow,
    FromNowWindow,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    RecurringWindow,
    Relative,
    TenantException,
    Window,
)

Slots = Mapping[str, str | None]
"""A goal of the wire schema, and ``amount``."""

VARIES_BY = {
    "relative": "change",
    "exception": "change",
    "precision": "rule",
    "placement": "rule",
    "reconfig": "rule",
}
"""Goal type to the slot that picks its sentence."""

_CHOICES = ("subject", "stat", "comparison", "precision")
_PART = re.compile(r"\[([^\]]*)\]|\{(\w+)\}")
_SLOT = re.compile(r"\{(\w+)\}")


@cache
def _wording(language: Language) -> Mapping[str, Any]:
    loaded = yaml.safe_load(files(__package__).joinpath("sentences.yaml").read_text(encoding="utf-8"))
    wording: Mapping[str, Any] = loaded[language]
    return wording


def join(sentences: Iterable[str], language: Language) -> str:
    """One text of several wishes."""
    return str(_wording(language)["join"]).join(sentences)


def sentences(language: Language) -> Mapping[str, str]:
    """Every sentence, its slots open, by type or ``type.variant``."""
    found: Mapping[str, str] = _wording(language)["goals"]
    return found


def template(slots: Slots, language: Language) -> str | None:
    """The sentence of such a goal, its slots open; None if there is no such goal."""
    kind = slots["type"]
    variant = slots[VARIES_BY[kind]] if kind in VARIES_BY else None
    if kind == "objective" and slots["comparison"] in {"minimize", "maximize"}:
        variant = slots["comparison"]
    if kind == "priority" and slots["lower"] is None:
        variant = "first"
    return sentences(language).get(f"{kind}.{variant}" if variant else str(kind))


def needed(sentence: str) -> set[str]:
    """The slots a sentence cannot do without."""
    return set(_SLOT.findall(re.sub(r"\[[^\]]*\]", "", sentence)))


def possible(sentence: str) -> set[str]:
    """The slots a sentence has."""
    return set(_SLOT.findall(sentence))


def fill(sentence: str, slots: Slots, language: Language) -> str:
    """The sentence with its slots filled, parts left out whose slot was not said."""
    words = {name: _said(name, value, language) for name, value in slots.items() if value is not None}
    words["direction"] = _wording(language)["direction"].get(slots["comparison"], "")

    def put(match: re.Match[str]) -> str:
        part, slot = match.groups()
        if slot is not None:
            return words[slot]
        filled = all(words.get(name) for name in _SLOT.findall(part))
        return _SLOT.sub(lambda inner: words[inner[1]], part) if filled else ""

    return _PART.sub(put, sentence).strip()


def _said(slot: str, value: str, language: Language) -> str:
    """The word for a choice; what was copied from the text stays as it stands there."""
    choices = _wording(language)[slot] if slot in _CHOICES else {}
    return str(choices.get(value, value))


# -- from goals ------------------------------------------------------------------------------------


def spoken(goal: Goal, language: Language) -> str:
    """The sentence of a goal, for people and for the rules to read."""
    slots = {"lower": None, "comparison": None, **_slots(goal, language), "type": goal.type}
    if goal.window != "always":
        slots["window"] = _window(goal.window, language)
    sentence = template(slots, language)
    assert sentence is not None, f"no sentence for {goal}"
    return fill(sentence, slots, language)


def _slots(goal: Goal, language: Language) -> dict[str, str | None]:
    names = {slot: getattr(goal, slot, None) for slot in ("tenant", "model")}
    if isinstance(goal, Objective | Relative | TenantException | Config):
        return names | _bound(goal, language)
    return names | _rule(goal, language)


def _bound(
    goal: Objective | Relative | TenantException | Config, language: Language
) -> dict[str, str | None]:
    match goal:
        case Objective():
            soft = str(_wording(language)["soft"]) if goal.soft else None
            bound = {"subject": goal.metric, "stat": goal.stat, "comparison": goal.op, "soft": soft}
            return {**bound, "amount": _amount(goal.value, goal.unit, language)}
        case Relative():
            bound = {"subject": goal.metric, "stat": goal.stat, "comparison": goal.op, "change": "by"}
            return {**bound, "amount": _change(goal, language)}
        case TenantException():
            return {"subject": goal.metric, **_exceeding(goal, language)}
        case Config():
            comparison = None if goal.op == "==" else goal.op
            return {"subject": goal.key, "comparison": comparison, "amount": str(goal.value)}


def _rule(
    goal: PrecisionRule | Placement | Priority | ReconfigRule, language: Language
) -> dict[str, str | None]:
    match goal:
        case PrecisionRule():
            return {"rule": goal.rule, "precision": goal.value}
        case Placement():
            return {
                "rule": goal.rule,
                "place": _place(goal.selector),
                "workload": _workload(goal.workload, language),
            }
        case Priority():
            return {"higher": _side(goal.higher, language), "lower": _side(goal.lower, language)}
        case ReconfigRule():
            number = None if goal.value is None else _plain(goal.value)
            return {"rule": goal.rule, "number": number, "unit": _unit(goal.unit, language)}


def _amount(value: float | None, unit: str | None, language: Language) -> str | None:
    if value is None:
        return None
    number = _plain(value * 100 if unit == "ratio" else value)
    return number if unit in {None, "gpus"} else f"{number} {_unit(unit, language)}"


def _unit(unit: str | None, language: Language) -> str | None:
    return None if unit is None else str(_wording(language)["unit"].get(unit, unit))


def _change(goal: Relative, language: Language) -> str | None:
    if goal.factor is not None:
        return f"{_plain(abs(goal.factor - 1) * 100)} %"
    delta = abs(goal.delta or 0.0)
    if goal.unit == "ratio":  # 10 % more of 50 % would be 55 %
        return f"{_plain(delta * 100)} {_wording(language)['points']}"
    return _amount(delta, goal.unit, language)


def _exceeding(goal: TenantException, language: Language) -> dict[str, str | None]:
    if goal.limit is not None:
        return {"change": "to", "amount": _amount(goal.limit, goal.unit, language)}
    if goal.factor is not None:
        return {"change": "times", "amount": _plain(goal.factor)}
    return {"change": None}


def _place(selector: str) -> str:
    kind, _, name = selector.partition(":")
    return f"node {name}" if kind == "node" else name


def _workload(workload: str | None, language: Language) -> str | None:
    if workload is None or workload.startswith("tenant:"):
        return _side(workload, language)
    return str(_wording(language)["rest"]) if workload == "rest" else workload.replace("_", " ")


def _side(side: str | None, language: Language) -> str | None:
    if side is None:
        return None
    kind, _, name = side.partition(":")
    wording = _wording(language)
    return (
        str(wording["tenant"]).format(name=name) if kind == "tenant" else str(wording["side"].get(side, side))
    )


def _window(window: Window, language: Language) -> str:
    words = _wording(language)["window"]
    match window:
        case RecurringWindow():
            days = words["every_day"] if len(window.days) == 7 else ", ".join(window.days)
            return str(words["recurring"]).format(**{**asdict(window), "days": days})
        case DatedWindow():
            return str(words["dated"]).format(**asdict(window))
        case FromNowWindow():
            return str(words["from_now"]).format(duration_s=_plain(window.duration_s))
        case _:
            return str(words.get(window, window))


def _plain(value: float) -> str:
    return f"{Decimal(f'{value + 0.0:.12g}'):f}"
