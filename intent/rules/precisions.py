"""Clauses about numeric formats: ``no INT4 at peak``, ``full precision off-peak``, ``at least fp8``."""

import re
from itertools import pairwise, product
from typing import Any, Literal

from intent.models import PrecisionRule
from intent.rules import scopes
from intent.rules.clauses import SCOPES, Clause
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import TextToken

_USED = frozenset(
    {Kind.PRECISION, Kind.LAYERS, Kind.QUANTISE, Kind.NEGATION, Kind.AVOID, Kind.ALLOW, Kind.COMPARISON, Kind.MAY, Kind.ONLY,
     Kind.QUALITY, *SCOPES}
)  # fmt: skip


_PARTS = frozenset({Kind.WORKLOAD, Kind.PRIORITY, "outer", "inner", "ends", "end", "edges", "edge", "头", "尾", "端"})
"""What may name other layers behind a format of some: ``the rest``, ``first and last``, ``the outer ones``."""


def add_precisions(draft: Draft, clause: Clause) -> list[TextToken]:
    """Append a rule for each format of the clause, window and tenant.

    Gives back the words without a place.
    """
    rule = _again(draft, clause) or _rule(clause)
    asks = _ASKING.search(draft.text[max(0, clause.start) : clause.tokens[0].start].lower()) is not None
    rule = "require" if rule == "allow" and asks else rule
    if rule in {"require", None} and _is_story(clause, draft.text):
        return []
    formats = clause.of(Kind.PRECISION) or clause.of(Kind.QUANTISE)
    if rule is None:
        words = draft.say("precision_unclear", said=draft.quoted(formats[0]))
        name = draft.said(formats[0]) if clause.has(Kind.PRECISION) else "int8"
        options = [draft.rephrased(f"{draft.say(way)} {name}") for way in ("require", "allow", "forbid")]
        draft.ask("precision_unclear", formats[0], words, options)
        return []
    led = any(getattr(goal, "layers", None) for goal in draft.goals) and not clause.has(Kind.LAYERS)
    if unclear := [
        token
        for token in (*clause.tokens, *clause.plain)
        if (token.kind, token.value) == (Kind.LAYERS, "") or (led and not _PARTS.isdisjoint({token.kind, token.value}))
    ]:
        draft.ask(
            "layers_unclear",
            unclear[0],
            draft.say("layers_unclear", said=draft.quoted(unclear[0])),
            [draft.instead(unclear[0], draft.say(way)) for way in ("layers.first", "layers.middle")],
        )
        return []
    place = extent([token for token in clause.tokens if token.kind in _USED])
    evidence = draft.text[slice(*place)]
    windows, tenants, models = (clause.covered_by(kind) or (None,) for kind in (Kind.WINDOW, Kind.TENANT, Kind.MODEL))
    for token, (window, tenant, model), layers in product(
        formats,
        [*product(windows, tenants, models)],
        [name for named in clause.of(Kind.LAYERS) for name in named.value] or [None],
    ):
        when = scopes.window(draft, window)
        who = scopes.tenant(draft, tenant)
        if when is None or who is False:
            continue
        value: Any = token.value if token.kind is Kind.PRECISION else "full"
        served = model.value if model else None
        draft.add(PrecisionRule(rule, value, evidence, when, who, served, layers), place)
    return [
        token
        for token in clause.tokens
        if token.kind not in _USED and not is_idle(token) and token.kind is not Kind.COUNTED
    ]


def _again(draft: Draft, clause: Clause) -> Literal["require", "forbid", "allow", "min"] | None:
    """``..., and so is int8``: the rule of the goal before."""
    before = draft.goals[-1] if draft.goals else None
    is_again = _SO.match(draft.text, clause.start) is not None
    return before.rule if is_again and isinstance(before, PrecisionRule) else None


def _is_story(clause: Clause, text: str) -> bool:
    """``the vendor swears int8 is fine``.

    A format, several words without a meaning, and none that uses it.
    """
    words = text[clause.start : clause.tokens[-1].end + 12].lower()
    return (
        len(clause.plain) > 2
        and not clause.has(Kind.ONLY, Kind.WINDOW, Kind.TENANT, Kind.MODEL)
        and pattern("with format").search(words) is None
    )


_ASKING = re.compile(r"\b(?:grateful|appreciate\w*|glad|nice|great|lovely|happy|good) (?:it )?if\b")
_SO = re.compile(r"\W*(?:and )?(?:so|neither|nor) (?:is|are|does|do)\b", re.IGNORECASE)


def _rule(clause: Clause) -> Literal["require", "forbid", "allow", "min"] | None:
    """What is said of the formats; None if it could be two things."""
    comparison = clause.first(Kind.COMPARISON)
    refusals = clause.of(Kind.NEGATION, Kind.AVOID)
    if not clause.has(Kind.PRECISION):  # "don't quantise"
        return "require" if len(refusals) == 1 and comparison is None else None
    if comparison is not None and comparison.value == "<=" and clause.has(Kind.ALLOW) and not refusals:
        return "allow"  # "going down to fp8 is fine"
    if comparison is not None:
        least = comparison.value in {">=", "better"}
        return "min" if least and not refusals and len(clause.of(Kind.PRECISION)) == 1 else None
    if refusals:
        unclear = clause.has(Kind.ALLOW) or clause.refuses_other(Kind.PRECISION)
        return "forbid" if len(refusals) == 1 and not unclear else None
    if clause.has(Kind.ONLY):  # "int8 only at night": only int8, or only then?
        return None if _is_about_time(clause) else "require"
    return "allow" if clause.has(Kind.ALLOW, Kind.MAY) else "require"


def _is_about_time(clause: Clause) -> bool:
    """Whether the word only stands in front of the window, or of layers."""
    return any(
        token.kind is Kind.ONLY and other.kind in {Kind.WINDOW, Kind.LAYERS} and other.value != "always"
        for token, other in pairwise(clause.tokens)
    )
