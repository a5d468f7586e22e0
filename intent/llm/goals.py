"""Goals straight from an LLM's slots: every slot held against the text, its value read by the rules' own parsers.

A slot that the text does not bear is a ``Problem``, which the model is asked to put right. What stays open, because the text
itself leaves it open, becomes the draft's question. Conventions and defaults are those of ``rules.bounds`` and its neighbours.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from intent import names
from intent.errors import Problem
from intent.fold import fold
from intent.llm.amounts import amount, number_place
from intent.llm.quotes import Place, Source, overlaps
from intent.llm.support import claims_of, differing_bound, differing_metric, differing_rule, differing_side, missing_format, missing_stat
from intent.llm.windows import window
from intent.llm.wire import Slots
from intent.models import (
    LATENCIES,
    UNITS,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    ReconfigRule,
    TenantException,
    Window,
)
from intent.rules import scopes
from intent.rules.bounds import add_goal, normalised
from intent.rules.draft import Draft
from intent.rules.kinds import ANY_LATENCY, Kind
from intent.rules.phrasing import tokenize
from intent.rules.quantities import Quantity
from intent.rules.questions import ask_time
from intent.rules.readings import Reading
from intent.rules.reconfigs import per
from intent.rules.relatives import Change, add_relative
from intent.rules.tokens import Token

_COPIED = ("evidence", "number", "unit", "period", "window", "tenant", "model", "place", "workload", "soft")
_REST = "workload", "the rest"
"""What the prompt calls everything else."""
_COUNTED = frozenset({"gpu_count", "tp", "pp", "replicas"})
"""Subjects whose numbers count things, whatever these are called."""
_RULED = frozenset({"precision", "placement", "priority", "reconfig"})
"""Goals whose rule or order the evidence has to say."""
_SIDES = frozenset({"latency", "throughput", "cost", "quality"})
_WORK = re.compile(
    r"\b(?:jobs?|requests?|traffic|stuff|work|workloads?|calls?|things?|the|our|all|any)\b|的|任务|请求|流量|业务|工作|类"
)
"""Words of a workload that say only that it is one."""


@dataclass
class Builder:
    """Builds the goals of one answer, in order; a goal with a problem is left out."""

    source: Source
    draft: Draft
    problems: list[Problem] = field(default_factory=list)
    taken: list[Place] = field(default_factory=list)
    """Words that goals took from beside their evidence."""
    places: list[Place] = field(default_factory=list)
    """The evidence of each goal, built or not."""
    unread: list[Place] = field(default_factory=list)
    """The evidence of each goal that the text does not bear."""
    windows: list[Window] = field(default_factory=list)
    """Of the goals so far."""
    amounts: dict[str, Token] = field(default_factory=dict)
    """Subject to the last amount of it that was said with its unit."""

    def add(self, slots: Slots, pointer: str, opposed: bool) -> None:
        """The goal of some slots; ``opposed`` if another goal bounds the same from the other side."""
        found = list(self._unheld(slots, pointer))
        place = next(iter(self.source.places(slots["evidence"] or "")), None)
        if found or place is None:
            self.problems += found
            return
        self.places.append(place)
        self.draft.here = Token(Kind.UNKNOWN, None, *place)
        for slot in _COPIED[1:]:
            if (words := slots[slot]) and (near := self.source.place(words, place)):
                self.taken.append(near)
        one = _Slots(self, slots, place, pointer, opposed)
        mark = len(self.draft.goals), len(self.draft.assumptions)
        if slots["type"] in _RULED and (problem := differing_rule(self.source, slots, place)):
            one.refuse("rule" if slots["rule"] else "higher", problem)
        else:
            _BUILDERS[slots["type"] or ""](one)
        self.windows += [goal.window for goal in self.draft.goals[mark[0] :]]
        if one.wrong:
            self.problems += one.wrong
            self.unread.append(place)
            del self.draft.goals[mark[0] :], self.draft.assumptions[mark[1] :]

    def _unheld(self, slots: Slots, pointer: str) -> Iterator[Problem]:
        """Slots that this type of goal does not have, and words that do not stand in the text."""
        for slot in sorted(slots.keys() - claims_of(slots)):
            if slots[slot] is not None:
                yield Problem(f"{pointer}/{slot}", f"a goal of type {slots['type']} does not have it; say null")
        for slot in _COPIED:
            words = slots[slot]
            if words is not None and not self.source.places(words) and (slot, words) != _REST:
                yield Problem(f"{pointer}/{slot}", f"{words[:60]!r} is not in the text; copy its words")


@dataclass
class _Slots:
    """One goal's slots on their way to values."""

    builder: Builder
    slots: Slots
    place: Place
    pointer: str
    opposed: bool
    wrong: list[Problem] = field(default_factory=list)

    @property
    def source(self) -> Source:
        return self.builder.source

    @property
    def draft(self) -> Draft:
        return self.builder.draft

    @property
    def evidence(self) -> str:
        return self.source.text[slice(*self.place)]

    def refuse(self, slot: str, words: str) -> None:
        """Note what the model has to put right."""
        self.wrong.append(Problem(f"{self.pointer}/{slot}", words))

    def token(self, kind: Kind, value: Any, words: str | None = None) -> Token:
        """A slot as the rules have it, at its words or in front of the evidence."""
        near = self.source.place(words, self.place) if words else None
        return Token(kind, value, *(near or (self.place[0], self.place[0])))

    def amount(self) -> Token | None:
        """Number, unit and period as one amount; None if none was said, or if the text has it otherwise."""
        number = self.slots["number"]
        if number is None:
            return None
        place = number_place(self.source, number, self.place)
        if place is None:
            self.refuse("number", f"{number[:60]!r} is no number of the evidence; copy it")
            return None
        unit = None if self.slots["subject"] in _COUNTED else self.slots["unit"]
        found = amount(self.source, place, unit, self.slots["period"]) or self._as_before(place)
        if found is None:
            self.refuse("unit", f"number, unit and period are not said so at {number[:60]!r}; copy them")
        elif found.value.unit is not None:
            self.builder.amounts[self.slots["subject"] or ""] = found
        return found

    def _as_before(self, place: Place) -> Token | None:
        """A bare number in the unit of the goal before, whose metric it repeats: ``enterprise 1 s; free 4``."""
        before = self.builder.amounts.get(self.slots["subject"] or "")
        bare = amount(self.source, place, None, None)
        words = self.slots["unit"]
        if before is None or bare is None or bare.value.unit is not None:
            return None
        said = [one for one in self.source.places(words)] if words else [(before.start, before.end)]
        if not any(overlaps(one, (before.start, before.end)) for one in said):
            return None
        return replace(bare, value=bare.value.in_unit(before.value.unit, before.value.factor))

    def when(self) -> Token | None:
        """The window's token; None if none was said."""
        words = self.slots["window"]
        return None if words is None else window(self.source, words, self.place, self.builder.windows)

    def window(self) -> Window | None:
        """When the goal holds; None if it was asked about."""
        said = self.when()
        if said is not None and said.kind is Kind.BAD_TIME:
            ask_time(self.draft, said)
            return None
        return scopes.window(self.draft, said)

    def tenant_token(self) -> Token | None:
        """The tenant's token, its value None if nobody has the name; None if none was said."""
        words = self.slots["tenant"]
        if words is None:
            return None
        named = names.tenant(words, self.source.catalogue) or self.heard(Kind.TENANT, words)
        return self.token(Kind.TENANT, named, words)

    def heard(self, kind: Kind, words: str) -> str | None:
        """A name behind a slip of the keyboard or a homophone."""
        place = self.source.place(words, self.place)
        said = [*tokenize(words, self.source.catalogue), *(self.source.within(place) if place else ())]
        return next((str(one.value) for one in said if one.kind is kind and one.value), None)

    def tenant(self) -> str | bool | None:
        """A tenant's name, None for everybody, False if nobody has the name and it was asked about."""
        return scopes.tenant(self.draft, self.tenant_token())

    def model(self) -> str | None:
        """A model's name; as it was said, if no model has it: the validator asks."""
        words = self.slots["model"]
        if words is None:
            return None
        return names.model(words, self.source.catalogue) or self.heard(Kind.MODEL, words) or words

    def reading(self, found: Token | None) -> Reading | None:
        """The slots of a bound as the rules have them; None if the text does not bear one of them."""
        slots = self.slots
        for slot, problem in (
            ("subject", differing_metric(self.source, slots, self.place)),
            ("comparison", differing_side(self.source, slots, self.place)),
            ("stat", missing_stat(self.source, slots["stat"], self.place)),
        ):
            if problem:
                self.refuse(slot, problem)
        if self.wrong:
            return None
        when = self.when()
        if when is not None and when.kind is Kind.BAD_TIME:
            ask_time(self.draft, when)
            return None
        return Reading(
            *self.place,
            head=self._head(),
            stat=self.token(Kind.STAT, slots["stat"]) if slots["stat"] else None,
            comparison=self._comparison(),
            quantity=found,
            window=when,
            tenant=self.tenant_token(),
            model=self.token(Kind.MODEL, model, slots["model"]) if (model := self.model()) else None,
            soft=slots["soft"] is not None,
            opposed=self.opposed,
        )

    def _head(self) -> Token:
        subject = self.slots["subject"]
        if subject in {None, "unknown"}:
            return Token(Kind.UNKNOWN, subject, *self.place)
        kind = Kind.SETTING if subject in {"tp", "pp", "replicas"} else Kind.METRIC
        at = next((one for one in self.source.within(self.place) if one.kind in {kind, Kind.COUNTED}), None)
        return replace(at, kind=kind, value=subject) if at else self.token(kind, subject)

    def _comparison(self) -> Token | None:
        said = self.slots["comparison"]
        if said is None:
            return None
        kind = Kind.OPTIMISE if said in {"minimize", "maximize"} else Kind.COMPARISON
        at = next((one for one in self.source.within(self.place) if one.kind is kind), None)
        return replace(at, value=said) if at else self.token(kind, said)

    def keep(self, build: Callable[[Window], Any]) -> None:
        """Append a goal, unless its window was asked about."""
        if (when := self.window()) is not None:
            self.draft.add(build(when))


# -- the goals -------------------------------------------------------------------------------------


def _objective(one: _Slots) -> None:
    reading = one.reading(one.amount())
    if reading is None:
        return
    before = len(one.draft.goals)
    add_goal(one.draft, reading)
    for goal in one.draft.goals[before:]:
        if isinstance(goal, Objective) and (problem := differing_bound(one.source, goal, one.place)):
            one.refuse("comparison", problem)


def _relative(one: _Slots) -> None:
    slots, side = one.slots, one.slots["comparison"]
    found = None if slots["change"] == "times" else one.amount()
    if one.wrong:
        return
    if slots["change"] == "times":
        factor = _factor(one)
        change = Change(side, factor=factor) if factor is not None else None
    elif slots["change"] == "to" and found is None:
        change = Change(factor=1.0)
    elif slots["change"] == "to" and found is not None and found.value.unit in {"ratio", None}:
        change = Change(side, factor=found.value.value)
    elif slots["change"] == "to":
        _objective(one)
        return
    else:
        change = Change(side, amount=_as_share(found)) if found else Change(side)
    reading = one.reading(found)
    if change is None:
        one.refuse("number", "no factor is said there; copy the words that say it")
    elif reading is not None:
        add_relative(one.draft, replace(reading, comparison=None), change)


def _as_share(found: Token) -> Token:
    """``by half``, ``by a third``."""
    if found.value.unit is None and 0 < found.value.number < 1:
        return replace(found, value=replace(found.value, unit="ratio"))
    return found


def _factor(one: _Slots) -> float | None:
    """The factor that the number says: ``double``, ``3x``, ``一半``."""
    words = one.slots["number"] or ""
    place = one.source.place(words, one.place)
    said = [*tokenize(words, one.source.catalogue), *(one.source.within(place) if place else ())]
    for token in said:
        if token.kind in {Kind.FACTOR, Kind.TIMES_SAID}:
            return float(token.value)
    amounts = [token for token in said if token.kind is Kind.QUANTITY]
    return float(amounts[0].value.value) if amounts and amounts[0].value.unit in {None, "ratio"} else None


def _exception(one: _Slots) -> None:
    slots, draft = one.slots, one.draft
    found = None if slots["change"] == "times" else one.amount()
    if one.wrong:
        return
    if slots["tenant"] is None:
        known = draft.say("exception_without_tenant", known=", ".join(draft.catalogue.tenants) or "-")
        draft.ask("exception_without_tenant", draft.here, known, [draft.say("nothing")])
        return
    tenant, bound = one.tenant(), _bounded(one)
    metric = slots["subject"] if slots["subject"] in UNITS else bound.metric if bound else None
    if not isinstance(tenant, str):
        return
    if metric is None:
        options = [draft.rephrased(draft.say("exempt", label=label, tenant=tenant)) for label in ("TTFT", "E2E")]
        draft.ask("exception_unclear", draft.here, draft.say("exception_unclear", tenant=tenant), options)
        return
    extra = _extra(one, metric, found)
    if extra is None:
        return
    limit, unit, factor = extra

    def build(when: Window) -> TenantException:
        return TenantException(tenant, metric, one.evidence, limit=limit, unit=unit, factor=factor, window=when)  # type: ignore[arg-type] # closed tables

    if slots["window"] is None and bound is not None:
        draft.add(build(bound.window))
    else:
        one.keep(build)


def _extra(one: _Slots, metric: str, found: Token | None) -> tuple[float | None, str | None, float | None] | None:
    """Limit, unit and factor; None if the amount was asked about or refused."""
    change = one.slots["change"]
    if change == "times":
        factor = _factor(one)
        if factor is None:
            one.refuse("number", "no factor is said there; copy the words that say it")
        return None if factor is None else (None, None, factor)
    if found is None:
        return None, None, None
    said = _as_share(found).value
    if said.unit == "ratio" and (change == "by" or UNITS[metric] != ("ratio",)):
        falling = any(token.value == "fall below" for token in one.source.within(one.place))
        return None, None, float(f"{1 + (-1 if falling else 1) * said.value:.12g}")
    head = Token(Kind.METRIC, metric, *one.place)
    quantity = normalised(one.draft, Reading(*one.place, quantity=found, head=head), metric, found)
    return (quantity.value, quantity.unit, None) if quantity else None


def _bounded(one: _Slots) -> Objective | None:
    """The bound said for all that an exception is from."""
    subject = one.slots["subject"]
    bounds = [goal for goal in one.draft.goals if isinstance(goal, Objective) and goal.tenant is None and goal.op in {"<=", ">="}]
    if subject in UNITS:
        bounds = [goal for goal in bounds if goal.metric == subject]
    elif subject == ANY_LATENCY:
        bounds = [goal for goal in bounds if goal.metric in LATENCIES]
    return bounds[-1] if len({goal.metric for goal in bounds}) == 1 else None


def _precision(one: _Slots) -> None:
    slots, tenant = one.slots, one.tenant()
    if slots["rule"] not in {"require", "forbid", "allow", "min"}:
        one.refuse("rule", "a goal of type precision needs require, forbid, allow or min")
    if slots["precision"] is None or missing_format(one.source, slots, one.place):
        one.refuse("precision", f"the text does not say {slots['precision']}")
    if one.wrong or tenant is False:
        return
    one.keep(
        lambda when: PrecisionRule(slots["rule"], slots["precision"], one.evidence, when, tenant, one.model())  # type: ignore[arg-type] # checked above
    )


def _placement(one: _Slots) -> None:
    slots, place = one.slots, one.slots["place"]
    if slots["rule"] not in {"require", "prefer", "forbid", "freeze"}:
        one.refuse("rule", "a goal of type placement needs require, prefer, forbid or freeze")
    if place is None:
        one.refuse("place", "a goal of type placement needs it")
        return
    if one.wrong:
        return
    rule = "prefer" if slots["soft"] and slots["rule"] == "require" else slots["rule"]
    work, where = _workload(one), _selector(one, place)
    if where is None:
        known = [*one.source.catalogue.gpu_kinds, *(f"node {name}" for name in one.source.catalogue.nodes)]
        words = one.draft.say("unknown_place", said=repr(place), known=", ".join(known))
        said = one.token(Kind.SELECTOR, None, place)
        one.draft.ask("unknown_place", said, words, [*(one.draft.instead(said, name) for name in known[:3]), one.draft.say("nothing")])
    elif work is not False:
        one.keep(lambda when: Placement(rule, where, one.evidence, workload=work, window=when))  # type: ignore[arg-type] # checked above


def _selector(one: _Slots, place: str) -> str | None:
    found = names.selector(place, one.source.catalogue)
    if found is not None:
        return found
    said = next((token for token in tokenize(place, one.source.catalogue) if token.kind is Kind.SELECTOR), None)
    return str(said.value) if said else None


def _workload(one: _Slots) -> str | bool | None:
    """The words for what is placed; ``tenant:NAME`` for a tenant, False if nobody has the name."""
    words = one.slots["workload"]
    if words is None:
        return None
    if tenant := names.tenant(words, one.source.catalogue):
        return f"tenant:{tenant}"
    said = [token for token in tokenize(words, one.source.catalogue) if token.kind in {Kind.WORKLOAD, Kind.TENANT}]
    kept = _WORK.sub(" ", fold(words).text.replace("-", " ")).split()
    whole = said and len(" ".join(kept)) <= said[0].end - said[0].start
    if said and said[0].kind is Kind.WORKLOAD and whole:
        return str(said[0].value)
    if said and said[0].kind is Kind.TENANT:
        who = scopes.tenant(one.draft, one.token(Kind.TENANT, said[0].value, words))
        return f"tenant:{who}" if who else who
    return "_".join(kept) or None


def _priority(one: _Slots) -> None:
    sides = []
    for slot in ("higher", "lower"):
        words = one.slots[slot]
        if words is None or words in _SIDES:
            sides.append(words)
            continue
        named = names.tenant(words, one.source.catalogue)
        if named is None and not one.source.places(words):
            one.refuse(slot, f"say latency, throughput, cost, quality or a tenant of the text, not {words[:60]!r}")
            continue
        who = scopes.tenant(one.draft, one.token(Kind.TENANT, named, words))
        if not isinstance(who, str):
            return
        sides.append(f"tenant:{who}")
    if sides[:1] == [None]:
        one.refuse("higher", "a goal of type priority needs it")
    if not one.wrong:
        one.keep(lambda when: Priority(sides[0] or "", one.evidence, lower=sides[1], window=when))


def _config(one: _Slots) -> None:
    if one.slots["subject"] not in {"tp", "pp", "replicas"}:
        one.refuse("subject", "a goal of type config needs tp, pp or replicas")
        return
    reading = one.reading(one.amount())
    if reading is not None:
        add_goal(one.draft, replace(reading, tenant=None))


def _reconfig(one: _Slots) -> None:
    slots = one.slots
    if slots["rule"] == "forbid":
        one.keep(lambda when: ReconfigRule("forbid", one.evidence, window=when))
        return
    number = slots["number"]
    place = number_place(one.source, number, one.place) if number else None
    counts = _amounts(one, one.source.text[slice(*place)] if place else "")
    said = slots["period"] or slots["unit"] or ""
    period = next((token for token in tokenize(said, one.source.catalogue) if token.kind is Kind.PERIOD), None)
    limit = per(counts[0].number, period, _amounts(one, said)) if counts else None
    if limit is None:
        one.refuse("number", "how many and per what is not said there; copy number and period")
        return
    value, unit = limit
    one.keep(lambda when: ReconfigRule("limit", one.evidence, value=value, unit=unit, window=when))  # type: ignore[arg-type] # a closed table


def _amounts(one: _Slots, words: str) -> list[Quantity]:
    tokens = tokenize(words, one.source.catalogue)
    counts = [Quantity(float(token.value)) for token in tokens if token.kind is Kind.TIMES_SAID]
    return [*counts, *(token.value for token in tokens if token.kind is Kind.QUANTITY)]


_BUILDERS: Mapping[str, Callable[[_Slots], None]] = {
    "objective": _objective,
    "relative": _relative,
    "exception": _exception,
    "precision": _precision,
    "placement": _placement,
    "priority": _priority,
    "config": _config,
    "reconfig": _reconfig,
}


def opposed(goals: Iterable[Slots]) -> list[bool]:
    """Of each goal whether another one bounds the same from the other side."""
    listed = list(goals)
    turned = {"<=": ">=", ">=": "<="}

    def subject(slots: Slots) -> tuple[str | None, ...]:
        return tuple(slots[name] for name in ("type", "subject", "tenant", "model", "stat"))

    return [
        any(subject(other) == subject(one) and other["comparison"] == turned.get(one["comparison"] or "") for other in listed)
        for one in listed
    ]
