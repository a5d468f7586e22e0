"""Words of both languages, and the clauses of a read-back. Pure."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from intent.messages import Language, say
from intent.models import (
    HIGHER_IS_BETTER,
    LOSSES,
    NAMED_WINDOWS,
    Assumption,
    Config,
    FromNowWindow,
    Goal,
    Intent,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    Relative,
    TenantException,
    Window,
)
from intent.times import spoken
from intent.times.periods import spoken_period

OPS = {
    "<=": "op.at_most",
    ">=": "op.at_least",
    "==": "op.exactly",
    "minimize": "op.minimise",
    "maximize": "op.maximise",
}
_UNITS = {
    "s": (("s", 1), ("ms", 1000), ("min", 1 / 60), ("h", 1 / 3600)),
    "tokens/s": (("tokens/s", 1), ("tokens/min", 60), ("tokens/h", 3600)),
    "requests/s": (("requests/s", 1), ("requests/min", 60), ("requests/h", 3600)),
    "ratio": (("%", 100),),
}
"""Normalised unit to the units people say, with what the value is multiplied by."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?")
_ONE_WORD = re.compile(r"[\w./:@+-]+")


@dataclass(frozen=True, slots=True)
class Words:
    """Words of one language."""

    language: Language

    def say(self, key: str, **facts: object) -> str:
        """A part of the read-back."""
        return say("intent.readback", self.language, key, **facts)

    def metric(self, metric: str) -> str:
        """What people are shown for a metric."""
        return self.say(f"metric.{metric}")

    def op(self, op: str) -> str:
        """A comparison or an optimisation."""
        return self.say(OPS[op])

    def amount(self, value: float, unit: str | None, evidence: str = "") -> str:
        """A value in the unit in which the operator's own number appears, else in one that reads well."""
        numbers = {plain(float(number.replace(",", ""))) for number in _NUMBER.findall(evidence)}
        units = _UNITS.get(unit or "", ((unit or "", 1),))
        usual = units[1] if unit == "s" and abs(value) < 1 else units[0]
        name, factor = next((unit for unit in units if plain(value * unit[1]) in numbers), usual)
        number = plain(value * factor)
        return f"{number} {name}" if name not in {"gpus", ""} else number

    def window(self, window: Window) -> str:
        """When."""
        if isinstance(window, FromNowWindow) and not math.isfinite(window.duration_s):
            return f"{window.duration_s} s"  # another rule's finding; it has no words
        if not isinstance(window, str):
            return spoken(window, self.language)
        return self.say(f"window.{window}") if window in NAMED_WINDOWS else self.say("window.other", name=name(window))

    def side(self, side: str) -> str:
        """What a priority is about."""
        kind, _, tenant = side.partition(":")
        return self.say("tenant", name=name(tenant)) if tenant else self.say(f"side.{kind}")

    def setting(self, key: str) -> str:
        """TP, PP, replicas, or what may be lost."""
        return key.upper() if key in {"tp", "pp"} else self.say(key)

    def place(self, selector: str) -> str:
        """Devices: a kind, one device or a node."""
        kind, _, device = selector.partition(":")
        as_said = {"gpu_type": name(device) == device and not is_device(device), "gpu": is_device(device)}
        return device if as_said.get(kind) else self.say(f"place.{kind}", name=name(device))


def is_device(text: str) -> bool:
    """Whether this is how one device is called: ``gpu-3``."""
    return re.fullmatch(r"gpu-\d+", text) is not None


def name(text: str) -> str:
    """A name as it is, in quotation marks where it is more than one word."""
    return text if _ONE_WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def plain(value: float) -> str:
    """Twelve digits, without exponent or the sign of a zero."""
    return f"{Decimal(f'{value + 0.0:.12g}'):f}"


def render(intent: Intent) -> str:
    """The read-back of goals that have the form of the schema, and what was set aside.

    Empty without goals.
    """
    sentence = in_words(intent.goals, intent.language, intent.assumptions)
    aside = ", ".join(json.dumps(ignored.words, ensure_ascii=False) for ignored in intent.set_aside)
    return sentence + Words(intent.language).say("set_aside", words=aside) if sentence and aside else sentence


def in_words(goals: Sequence[Goal], language: Language, assumptions: Sequence[Assumption] = ()) -> str:
    """The same of goals that are no intent yet; ``assumptions`` point into a document with these goals."""
    words = Words(language)
    clauses = [_Clause(words, goal, _assumed(assumptions, number)).text() for number, goal in enumerate(goals)]
    sentence = words.say("clauses.separator").join(clauses)
    return f"{sentence[0].upper()}{sentence[1:]}{words.say('clauses.end')}" if sentence else ""


def _assumed(assumptions: Sequence[Assumption], number: int) -> dict[str, str]:
    """Slot to the words of its assumption."""
    prefix = f"/goals/{number}/"
    return {
        assumption.pointer.removeprefix(prefix): assumption.text
        for assumption in assumptions
        if assumption.pointer.startswith(prefix)
    }


@dataclass(slots=True)
class _Clause:
    """One goal in words; remembers which of its assumptions were marked in place."""

    words: Words
    goal: Goal
    assumed: dict[str, str]
    marked: set[str] = field(default_factory=set)

    def text(self) -> str:
        """Body, scope, window and what is left to note."""
        window = self.mark(self.words.window(self.goal.window), "window")
        facts = {"body": _BODIES[type(self.goal)](self.goal, self), "scope": self._scope(), "window": window}
        note = "; ".join(text for slot, text in self.assumed.items() if slot not in self.marked)
        return self.words.say("clause", **facts) + (f" [{note}]" if note else "")

    def mark(self, words: str, *slots: str) -> str:
        """Words with the mark of a default, where what they say is one."""
        self.marked.update(slots)
        return words + self.words.say("assumed") if not self.assumed.keys().isdisjoint(slots) else words

    def _scope(self) -> str:
        """For whom; an exception names its tenant itself."""
        parts = []
        for slot, key in (("tenant", "scope.tenant"), ("model", "scope.model")):
            if slot not in self.marked and (scope := getattr(self.goal, slot, None)):
                parts.append(self.mark(self.words.say(key, name=name(scope)), slot))
        return "".join(parts)


# -- bounds ----------------------------------------------------------------------------------------


def _measured(goal: Objective | Relative, clause: _Clause) -> dict[str, str]:
    """Statistic and metric."""
    stat = ""
    if goal.stat:
        statistic = clause.words.say("mean") if goal.stat == "mean" else goal.stat.upper()
        stat = f"{clause.mark(statistic, 'stat')} "
    return {"stat": stat, "metric": clause.mark(clause.words.metric(goal.metric), "metric")}


def _objective(goal: Objective, clause: _Clause) -> str:
    words = clause.words
    facts = _measured(goal, clause)
    facts["soft"] = words.say("soft") if goal.soft else ""
    facts["op"] = clause.mark(words.op(goal.op), "op")
    if goal.value is None:
        return words.say("clause.optimum", **facts)
    amount = clause.mark(words.amount(goal.value, goal.unit, goal.evidence), "value", "unit")
    over = words.say("over", period=spoken_period(goal.over_s, words.language)) if goal.over_s else ""
    return words.say("clause.bound", amount=amount, over=over, **facts)


def _relative(goal: Relative, clause: _Clause) -> str:
    words = clause.words
    facts = _measured(goal, clause)
    way = {"<=": "clause.reduce", ">=": "clause.raise"}.get(goal.op)
    if goal.factor is not None:
        if way and (percent := _percent(goal.factor, goal.op)):
            return words.say(way, amount=f"{percent} %", **facts)
        facts["op"] = clause.mark(words.op(goal.op), "op")
        return words.say("clause.times_now", factor=plain(goal.factor), **facts)
    delta = goal.delta or 0.0
    amount = clause.mark(_difference(abs(delta), goal, words), "delta", "unit")
    if way and (delta < 0 if goal.op == "<=" else delta > 0):
        return words.say(way, amount=amount, **facts)
    facts["op"] = clause.mark(words.op(goal.op), "op")
    return words.say("clause.below_now" if delta < 0 else "clause.above_now", amount=amount, **facts)


def _percent(factor: float, op: str) -> str | None:
    """By how much per cent the value changes; None where that is the wrong way, or no number to read."""
    right_way = 0.01 <= factor < 1 if op == "<=" else 1 < factor <= 100
    percent = plain(abs(factor - 1) * 100)
    back = 1 - float(percent) / 100 if op == "<=" else 1 + float(percent) / 100
    return percent if right_way and plain(back) == plain(factor) else None


def _difference(delta: float, goal: Relative, words: Words) -> str:
    """A difference of two percentages is in points: 10 % more of 50 % would be 55 %."""
    if goal.unit == "ratio":
        return words.say("points", number=plain(delta * 100))
    return words.amount(delta, goal.unit, goal.evidence)


def _exception(goal: TenantException, clause: _Clause) -> str:
    words = clause.words
    facts = {
        "tenant": clause.mark(name(goal.tenant), "tenant"),
        "metric": clause.mark(words.metric(goal.metric), "metric"),
    }
    if goal.limit is not None:
        down = goal.metric in HIGHER_IS_BETTER
        amount = clause.mark(words.amount(goal.limit, goal.unit, goal.evidence), "limit", "unit")
        return words.say("clause.down_to" if down else "clause.up_to", amount=amount, **facts)
    if goal.factor is None:
        return words.say("clause.exempt", **facts)
    for op, key in ((">=", "clause.exceed_by"), ("<=", "clause.fall_by")):
        if percent := _percent(goal.factor, op):
            return words.say(key, amount=f"{percent} %", **facts)
    return words.say("clause.times_bound", factor=plain(goal.factor), **facts)


# -- the other wishes ------------------------------------------------------------------------------


def _precision(goal: PrecisionRule, clause: _Clause) -> str:
    keys = {
        "require": "clause.require",
        "forbid": "clause.forbid",
        "allow": "clause.allow",
        "min": "clause.least",
    }
    words = clause.words
    value = clause.mark(words.say("full") if goal.value == "full" else goal.value, "value")
    first, _, last = (goal.layers or "").replace(" ", "-").partition("-")
    kind = (
        "all"
        if not first
        else "one"
        if first == last
        else f"{first}{last * (last == '1')}"
        if first.isalpha()
        else "range"
    )
    return clause.mark(words.say(keys[goal.rule], value=value), "rule") + words.say(
        f"layers.{kind}", first=first, last=last
    )


def _placement(goal: Placement, clause: _Clause) -> str:
    keys = {"require": "clause.only_on", "prefer": "clause.rather_on", "forbid": "clause.off"}
    words = clause.words
    place = clause.mark(words.place(goal.selector), "selector")
    workload = clause.mark(_workload(goal.workload, words), "workload") if goal.workload else ""
    if goal.rule == "freeze":
        sentence = words.say("clause.frozen_for" if workload else "clause.frozen", place=place, workload=workload)
    else:
        sentence = words.say(keys[goal.rule], place=place, workload=f"{workload} " if workload else "")
    return clause.mark(sentence, "rule")


def _workload(workload: str, words: Words) -> str:
    kind, _, tenant = workload.partition(":")
    if kind == "tenant" and tenant:
        return words.say("tenant", name=name(tenant))
    return words.say("rest") if workload == "rest" else name(workload)


def _priority(goal: Priority, clause: _Clause) -> str:
    words = clause.words
    higher = clause.mark(words.side(goal.higher), "higher")
    lower = clause.mark(words.side(goal.lower) if goal.lower else words.say("everything_else"), "lower")
    return words.say("clause.priority", higher=higher, lower=lower)


def _config(goal: Config, clause: _Clause) -> str:
    words = clause.words
    value = clause.mark(str(goal.value), "value")
    if goal.key in LOSSES:
        return words.say(f"clause.{goal.key}{'' if goal.value == 1 else '.more'}", value=value)
    facts = {"setting": clause.mark(words.setting(goal.key), "key"), "value": value}
    if goal.op == "==" and "op" not in clause.assumed:
        return words.say("clause.setting", **facts)
    return words.say("clause.setting_bound", op=clause.mark(words.op(goal.op), "op"), **facts)


def _reconfig(goal: ReconfigRule, clause: _Clause) -> str:
    words = clause.words
    if goal.rule == "forbid":
        return clause.mark(words.say("clause.no_reconfiguration"), "rule")
    number = plain(goal.value or 0.0)
    key = {"1/h": "clause.per_hour", "1/day": "clause.per_day"}[goal.unit or "1/h"]
    times = words.say("reconfiguration" if number == "1" else "reconfigurations")
    return words.say(key, number=clause.mark(number, "value"), times=times)


_BODIES: Mapping[type[Goal], Callable[[Any, _Clause], str]] = {
    Objective: _objective,
    Relative: _relative,
    TenantException: _exception,
    PrecisionRule: _precision,
    Placement: _placement,
    Priority: _priority,
    Config: _config,
    ReconfigRule: _reconfig,
}
