"""Clauses about what goes before what.

``latency over cost``, ``latency > throughput > cost``, ``企业用户优先于免费用户``.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from intent.models import Priority
from intent.rules import scopes
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import EVERYONE, Kind
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import TextToken

_METRIC_SIDES = {
    "ttft": "latency", "tpot": "latency", "e2e": "latency", "latency": "latency", "throughput": "throughput",
    "throughput_tok": "throughput", "throughput_req": "throughput", "cost": "cost", "quality_loss": "quality",
}  # fmt: skip
_SIDES = frozenset({Kind.METRIC, Kind.QUALITY, Kind.TENANT, Kind.VAGUE})
_BOUNDING = frozenset(
    {Kind.NOW, Kind.CHANGE, Kind.FACTOR, Kind.QUANTITY, Kind.RANGE, Kind.EXCEPT, Kind.SETTING, Kind.SELECTOR, Kind.PRECISION}
)  # fmt: skip
"""Kinds that order nothing."""
_TURNED = frozenset({"under", "sacrifice"})
_SIGN = 2
"""Characters of ``<``, which orders; ``may not exceed`` does not."""
_LINKS = frozenset({Kind.PRIORITY, Kind.COMPARISON})
_ORDERING = frozenset({"before", "instead of"})


def is_priority(clause: Clause) -> bool:
    """Whether a clause orders sides: a word of priority, or sides with ``>`` between, and no amount."""
    if clause.has(*_BOUNDING):
        return False
    sides = [token for token in clause.of(*_SIDES) if token.kind is Kind.TENANT or side(token)]
    first = any(token.value == "first" for token in clause.of(Kind.PRIORITY))
    if all(token.kind is Kind.VAGUE and not (first and token.value == "cheap") for token in sides):
        return False
    if clause.has(Kind.PRIORITY):
        orders = any(token.value not in {"then", "than", "begin"} for token in clause.of(Kind.PRIORITY))
        metrics = len(clause.of(Kind.METRIC)) == 1 and not clause.has(Kind.QUALITY)
        if len(sides) == 2 and clause.has(Kind.VAGUE) and not first and metrics:
            return False
        return len(sides) > 1 or (bool(sides) and orders)
    before = [token for token in clause.of(Kind.LIMITING) if token.value in _ORDERING]
    signs = [token for token in clause.of(Kind.COMPARISON) if token.value == ">=" or token.end - token.start <= _SIGN]
    return len(sides) >= 2 and len(signs) + len(before) == len(sides) - 1


def add_priorities(draft: Draft, clause: Clause) -> list[TextToken]:
    """Append a priority for each pair of neighbours; gives back the words without a place."""
    for count, token in enumerate(clause.tokens):
        halves = [replace(clause, tokens=part) for part in (clause.tokens[:count], clause.tokens[count + 1 :])]
        if token.kind is Kind.LIST and all(
            half.has(Kind.PRIORITY) and len(half.of(*_SIDES)) > 1 and is_priority(half) for half in halves
        ):
            return [*add_priorities(draft, halves[0]), *add_priorities(draft, halves[1])]
    sides = _ordered(draft, clause)
    if sides is None:
        return []
    window = clause.first(Kind.WINDOW) or next(iter(clause.scope.get(Kind.WINDOW, ())), None)
    used = [
        token
        for token in clause.tokens
        if token.kind in {*_SIDES, *_LINKS} or token.value in _ORDERING or token is window
    ]
    place = extent(used)
    evidence = draft.text[slice(*place)]
    pairs = list(pairwise(sides)) if len(sides) > 1 else [(sides[0], None)]
    for higher, lower in pairs:
        when = scopes.window(draft, window)
        if when is not None:
            draft.add(Priority(higher, evidence, lower=lower, window=when), place)
    return [
        token for token in clause.tokens if token not in used and not is_idle(token) and token.kind is not Kind.WORKLOAD
    ]


def side(token: TextToken) -> str | None:
    """The side of a priority that a word names; None if it names none."""
    if token.kind is Kind.QUALITY:
        return "quality"
    if token.kind is Kind.VAGUE:
        return {"fast": "latency", "cheap": "cost"}.get(token.value)
    return _METRIC_SIDES.get(str(token.value)) if token.kind is Kind.METRIC else None


def _ordered(draft: Draft, clause: Clause) -> list[str] | None:
    """The sides, highest first; None if the order was asked about."""
    names: list[str] = []
    for token in [token for token in clause.of(*_SIDES) if token.value != EVERYONE]:
        name = scopes.tenant(draft, token) if token.kind is Kind.TENANT else side(token)
        if name is False:
            return None
        subject = f"tenant:{name}" if token.kind is Kind.TENANT else name
        if isinstance(subject, str) and subject not in names:
            names.append(subject)
    words = [token.value for token in clause.of(Kind.PRIORITY)]
    covering = clause.scope.get(Kind.TENANT, ())
    if len(names) == 1 and words[:1] in (["over"], ["under"]) and clause.tokens[0].kind is Kind.PRIORITY:
        names = [f"tenant:{covering[0].value}", *names] if len(covering) == 1 and covering[0].value else []
    turned = sum(word in _TURNED for word in words) + sum(token.value == "<=" for token in clause.of(Kind.COMPARISON))
    refused = clause.of(Kind.NEGATION)
    last = next((token.start for token in clause.of(Kind.PRIORITY) if "last" in draft.said(token).lower()), None)
    is_early = last is not None and (len(names) < 2 or any(token.start > last for token in clause.of(*_SIDES)))
    if not names or refused or is_early or (turned and len(names) != 2) or _is_unordered(clause, names, words):
        options = [draft.rephrased(draft.say(name)) for name in ("latency_first", "cost_first")]
        draft.ask("priority_unclear", clause.tokens[0], draft.say("priority_unclear"), options)
        return None
    return names[::-1] if turned else names


def _is_unordered(clause: Clause, names: Sequence[str], words: Sequence[str]) -> bool:
    """Two sides said to be first, with nothing between them that orders them."""
    if len(names) < 2:
        return False
    return not (any(word not in {"first", "begin"} for word in words) or clause.has(Kind.COMPARISON, Kind.LIMITING))
