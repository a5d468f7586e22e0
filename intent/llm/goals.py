"""Goals straight from an LLM's slots, one function for each type. Pure.

Conventions and defaults are those of ``rules.bounds`` and its neighbours, so that both translators have the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from intent import names
from intent.llm.amounts import number_place
from intent.llm.slots import GoalSlots
from intent.llm.support import differing_bound, differing_rule, missing_format
from intent.llm.wire import Slots
from intent.models import (
    LATENCIES,
    SETTINGS,
    UNITS,
    Goal,
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
from intent.rules.kinds import ANY_LATENCY, Kind
from intent.rules.phrasing import FALL, tokenize
from intent.rules.readings import Reading
from intent.rules.reconfigs import per
from intent.rules.relatives import Change, add_relative, as_share
from intent.rules.tokens import Token

_SIDES = frozenset({"latency", "throughput", "cost", "quality"})
_RULES = {
    "precision": ("require", "forbid", "allow", "min"),
    "placement": ("require", "prefer", "forbid", "freeze"),
    "reconfig": ("forbid", "limit"),
}
"""Goal type to the rules it may have."""


def add_goal_of(one: GoalSlots, opposed: bool) -> None:
    """Append the goal of some slots to the draft, or what keeps it from being one: problems or a question.

    ``opposed`` says that another goal bounds the same from the other side.
    """
    kind = one.slots["type"] or ""
    if kind in _RULES and one.slots["rule"] not in _RULES[kind]:
        one.refuse("rule", f"a goal of type {kind} needs {', '.join(_RULES[kind])}")
    elif kind in {*_RULES, "priority"} and (problem := differing_rule(one.source, one.slots, one.place)):
        one.refuse("rule" if one.slots["rule"] else "higher", problem)
    elif kind == "objective":
        _objective(one, opposed)
    else:
        _BUILDERS[kind](one)


def are_opposed(goals: Sequence[Slots]) -> list[bool]:
    """Of each goal whether another one bounds the same from the other side."""
    turned = {"<=": ">=", ">=": "<="}

    def subject(slots: Slots) -> tuple[str | None, ...]:
        return tuple(slots[name] for name in ("type", "subject", "tenant", "model", "stat"))

    bounds = {(subject(one), one["comparison"]) for one in goals}
    return [(subject(one), turned.get(one["comparison"] or "")) in bounds for one in goals]


def _keep(one: GoalSlots, build: Callable[[Window], Goal]) -> None:
    """Append a goal, unless its window was asked about."""
    if (when := one.window()) is not None:
        one.draft.add(build(when), one.place)


# -- what is measured ------------------------------------------------------------------------------


def _objective(one: GoalSlots, opposed: bool = False) -> None:
    reading = one.reading(one.amount(), opposed)
    if reading is None:
        return
    before = len(one.draft.goals)
    add_goal(one.draft, reading)
    _compare(one, before)


def _compare(one: GoalSlots, before: int) -> None:
    """Hold the goals from ``before`` on against what the rules read in their evidence."""
    for goal in one.draft.goals[before:]:
        if problem := differing_bound(one.source, goal, one.place):
            one.refuse("comparison", problem)


def _relative(one: GoalSlots) -> None:
    change, side = one.slots["change"], one.slots["comparison"]
    found = None if change == "times" else one.amount()
    if one.problems:
        return
    if change == "to" and found is not None and found.value.unit not in {"ratio", None}:
        _objective(one)  # "cut TTFT to 2 s"
        return
    if change == "times":
        wanted = Change(side, factor=one.factor())
    elif change == "to":
        wanted = Change(factor=1.0) if found is None else Change(side, factor=found.value.value)
    else:
        wanted = Change(side, amount=as_share(found)) if found else Change(side)
    reading = one.reading(found)
    if change == "times" and wanted.factor is None:
        one.refuse("number", "no factor is said there; copy the words that say it")
    elif reading is not None:
        before = len(one.draft.goals)
        add_relative(one.draft, replace(reading, comparison=None), wanted)
        _compare(one, before)


def _config(one: GoalSlots) -> None:
    if one.slots["subject"] not in SETTINGS:
        one.refuse("subject", f"a goal of type config needs {', '.join(sorted(SETTINGS))}")
        return
    reading = one.reading(one.amount())
    if reading is not None:
        add_goal(one.draft, replace(reading, tenant=None))


# -- exceptions ------------------------------------------------------------------------------------


def _exception(one: GoalSlots) -> None:
    slots, draft = one.slots, one.draft
    found = None if slots["change"] == "times" else one.amount()
    if one.problems:
        return
    if slots["tenant"] is None:
        words = draft.say("exception_without_tenant", known=", ".join(draft.catalogue.tenants) or "-")
        draft.ask("exception_without_tenant", draft.here, words, [draft.say("nothing")])
        return
    tenant, bound = one.tenant(), _bounded(one)
    metric = slots["subject"] if slots["subject"] in UNITS else bound.metric if bound else None
    if isinstance(tenant, str) and metric is None:
        exempt = [draft.say("exempt", label=label, tenant=tenant) for label in ("TTFT", "E2E")]
        words = draft.say("exception_unclear", tenant=tenant)
        draft.ask("exception_unclear", draft.here, words, [draft.rephrased(option) for option in exempt])
    elif isinstance(tenant, str) and metric is not None and (extra := _extra(one, metric, found)) is not None:
        limit, unit, factor = extra
        goal = TenantException(tenant, metric, one.evidence, limit, unit, factor)  # type: ignore[arg-type] # a closed table
        if slots["window"] is None and bound is not None:
            draft.add(replace(goal, window=bound.window), one.place)
        else:
            _keep(one, lambda when: replace(goal, window=when))


def _bounded(one: GoalSlots) -> Objective | None:
    """The bound said for all that an exception is from."""
    subject = one.slots["subject"]
    bounds = [goal for goal in one.draft.goals if isinstance(goal, Objective) and goal.tenant is None]
    bounds = [goal for goal in bounds if goal.value is not None]
    if subject in UNITS:
        bounds = [goal for goal in bounds if goal.metric == subject]
    elif subject == ANY_LATENCY:
        bounds = [goal for goal in bounds if goal.metric in LATENCIES]
    return bounds[-1] if len({goal.metric for goal in bounds}) == 1 else None


def _extra(
    one: GoalSlots, metric: str, found: Token | None
) -> tuple[float | None, str | None, float | None] | None:
    """Limit, unit and factor; None if the amount was asked about or refused."""
    change = one.slots["change"]
    if change == "times":
        factor = one.factor()
        if factor is None:
            one.refuse("number", "no factor is said there; copy the words that say it")
        return None if factor is None else (None, None, factor)
    if found is None:
        return None, None, None
    said = as_share(found).value
    if said.unit == "ratio" and (change == "by" or UNITS[metric] != ("ratio",)):
        falls = any(token.value == FALL for token in one.source.within(one.place))
        return None, None, float(f"{1 - said.value if falls else 1 + said.value:.12g}")
    reading = Reading(*one.place, quantity=found, head=Token(Kind.METRIC, metric, *one.place))
    quantity = normalised(one.draft, reading, metric, found)
    return (quantity.value, quantity.unit, None) if quantity else None


# -- rules -----------------------------------------------------------------------------------------


def _precision(one: GoalSlots) -> None:
    slots, tenant = one.slots, one.tenant()
    if slots["precision"] is None or missing_format(one.source, slots, one.place):
        one.refuse("precision", f"the text does not say {slots['precision']}")
    elif tenant is not False:
        rule, value, model = slots["rule"], slots["precision"], one.model()
        _keep(one, lambda when: PrecisionRule(rule, value, one.evidence, when, tenant, model))  # type: ignore[arg-type] # closed tables


def _placement(one: GoalSlots) -> None:
    slots, place, draft = one.slots, one.slots["place"], one.draft
    if place is None:
        one.refuse("place", "a goal of type placement needs it")
        return
    rule = "prefer" if slots["soft"] and slots["rule"] == "require" else slots["rule"]
    where, work = one.selector(place), one.workload()
    if where is None:
        known = [*draft.catalogue.gpu_kinds, *(f"node {name}" for name in draft.catalogue.nodes)]
        said = one.token(Kind.SELECTOR, None, place)
        words = draft.say("unknown_place", said=draft.quoted(said), known=", ".join(known))
        options = [draft.instead(said, name) for name in known[:3]]
        draft.ask("unknown_place", said, words, [*options, draft.say("nothing")])
    elif work is not False:
        _keep(one, lambda when: Placement(rule, where, one.evidence, work, when))  # type: ignore[arg-type] # a closed table


def _priority(one: GoalSlots) -> None:
    higher, lower = (_side(one, slot) for slot in ("higher", "lower"))
    if higher is None:
        one.refuse("higher", "a goal of type priority needs it")
    if not one.problems and higher and lower is not False:
        _keep(one, lambda when: Priority(str(higher), one.evidence, str(lower) if lower else None, when))


def _side(one: GoalSlots, slot: str) -> str | bool | None:
    """A side of a priority; None if none was said, False if nobody has the name and it was asked about."""
    words = one.slots[slot]
    if words is None or words in _SIDES:
        return words
    named = names.tenant(words, one.source.catalogue)
    if named is None and not one.source.places(words):
        one.refuse(slot, f"say {', '.join(sorted(_SIDES))} or a tenant of the text, not {words[:60]!r}")
        return False
    who = scopes.tenant(one.draft, one.token(Kind.TENANT, named, words))
    return f"tenant:{who}" if who else False


def _reconfig(one: GoalSlots) -> None:
    slots = one.slots
    if slots["rule"] == "forbid" and slots["number"] is not None:
        one.refuse("number", "a rule that forbids has no number; say null, or limit")
        return
    if slots["rule"] == "forbid":
        _keep(one, lambda when: ReconfigRule("forbid", one.evidence, window=when))
        return
    number = slots["number"]
    place = number_place(one.source, number, one.place) if number else None
    counts = one.counts(one.source.text[slice(*place)]) if place else []
    said = slots["period"] or slots["unit"] or ""
    period = next(
        (token for token in tokenize(said, one.source.catalogue) if token.kind is Kind.PERIOD), None
    )
    limit = per(counts[0].number, period, one.counts(said)) if counts else None
    if limit is None:
        one.refuse("number", "how many and per what is not said there; copy number and period")
    else:
        value, unit = limit
        _keep(one, lambda when: ReconfigRule("limit", one.evidence, value, unit, when))  # type: ignore[arg-type] # a closed table


_BUILDERS: Mapping[str, Callable[[GoalSlots], None]] = {
    "relative": _relative,
    "exception": _exception,
    "precision": _precision,
    "placement": _placement,
    "priority": _priority,
    "config": _config,
    "reconfig": _reconfig,
}
