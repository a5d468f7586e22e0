"""Clauses about numeric formats: ``no INT4 at peak``, ``full precision off-peak``, ``at least fp8``."""

from itertools import pairwise, product
from typing import Any, Literal

from intent.models import PrecisionRule
from intent.rules import scopes
from intent.rules.clauses import SCOPES, Clause
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import Token

_USED = frozenset(
    {
        Kind.PRECISION,
        Kind.QUANTISE,
        Kind.NEGATION,
        Kind.AVOID,
        Kind.ALLOW,
        Kind.COMPARISON,
        Kind.MAY,
        Kind.ONLY,
        Kind.QUALITY,
        *SCOPES,
    }
)


def add_precisions(draft: Draft, clause: Clause) -> list[Token]:
    """Append a rule for each format of the clause, window and tenant; gives back the words without a place."""
    rule = _rule(clause)
    formats = clause.of(Kind.PRECISION) or clause.of(Kind.QUANTISE)
    if rule is None:
        words = draft.say("precision_unclear", said=draft.quoted(formats[0]))
        name = draft.said(formats[0]) if clause.has(Kind.PRECISION) else "int8"
        draft.ask(
            "precision_unclear",
            formats[0],
            words,
            [draft.rephrased(f"{draft.say(way)} {name}") for way in ("require", "allow", "forbid")],
        )
        return []
    evidence = draft.text[slice(*extent([token for token in clause.tokens if token.kind in _USED]))]
    windows, tenants, models = (clause.covered_by(kind) or (None,) for kind in SCOPES)
    for said, (window, tenant, model) in product(formats, product(windows, tenants, models)):
        when, who = scopes.window(draft, window), scopes.tenant(draft, tenant)
        if when is None or who is False:
            continue
        value: Any = said.value if said.kind is Kind.PRECISION else "full"
        served = model.value if model else None
        draft.add(PrecisionRule(rule, value, evidence, when, who, served))
    return [
        token
        for token in clause.tokens
        if token.kind not in _USED and not is_idle(token) and token.kind is not Kind.COUNTED
    ]


def _rule(clause: Clause) -> Literal["require", "forbid", "allow", "min"] | None:
    """What is said of the formats; None if it could be two things."""
    comparison, refusals = clause.first(Kind.COMPARISON), clause.of(Kind.NEGATION, Kind.AVOID)
    if not clause.has(Kind.PRECISION):  # "don't quantise"
        return "require" if len(refusals) == 1 and comparison is None else None
    if comparison is not None:
        least = comparison.value in {">=", "better"}
        return "min" if least and not refusals and len(clause.of(Kind.PRECISION)) == 1 else None
    if refusals:
        return "forbid" if len(refusals) == 1 and not clause.has(Kind.ALLOW) else None
    if clause.has(Kind.ONLY):  # "int8 only at night": only int8, or only then?
        return None if _is_about_time(clause) else "require"
    return "allow" if clause.has(Kind.ALLOW, Kind.MAY) else "require"


def _is_about_time(clause: Clause) -> bool:
    """Whether the word only stands in front of the window."""
    return any(
        one.kind is Kind.ONLY and other.kind is Kind.WINDOW and other.value != "always"
        for one, other in pairwise(clause.tokens)
    )
