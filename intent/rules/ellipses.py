"""What a clause leaves out and the one before lends it.

``it``, ``that day``, ``none at peak``, ``4 s for free users``. Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from intent.models import UNITS, Objective
from intent.rules.clauses import SCOPES, Clause
from intent.rules.kinds import Kind
from intent.rules.tokens import TextToken

_RULING = (
    Kind.TENANT, Kind.LAYERS, Kind.MAY, Kind.ALLOW, Kind.NEGATION, Kind.AVOID, Kind.EXCEPT, Kind.AUDIENCE, Kind.ONLY,
)  # fmt: skip
_NONE = re.compile(r"\bnone\b|\bnot at all\b|一次(?:都|也)不")
PRONOUN = re.compile(r"\b(?:it|them|that|this one|those)\b|它|这张卡|这块卡|这台|这个节点|那张卡|这俩|它们")
ON_THEM = re.compile(r"\bon (?:it|them|those)\b|[在到](?:它|那|这)")
USE = re.compile(r"\buse\b|用")
"""In ``don't use it``; ``don't keep it idle`` refuses something else."""
THAT_DAY = re.compile(r"\b(?:that|the same) (?:day|night|evening|morning|afternoon)\b|那天|当天|那晚")
JOINED = re.compile(r"\band\b|\bor\b|[,&+/、和及与或，]")
_CLASSIFIERS = frozenset("张块个台次份")
_BREAK = re.compile(r"[,.;:!?，。；：！？]")
_BEHIND = 12
"""Characters behind the last word with a meaning where a pronoun may stand: ``free users can have it``."""
_FEW = 3
"""Words without a meaning beside a number whose unit gives its metric away."""


def bounds_again(clause: Clause, before: TextToken | None, wishes: bool, has_goals: bool) -> bool:
    """Whether a number without a metric bounds the metric ``before``, or the one that its unit gives away.

    ``wishes``: the clause has a word that wishes. ``has_goals``: something was wished before.
    """
    rated = clause.has(Kind.UNIT) or (clause.has(Kind.THING) and clause.has(Kind.PERIOD))
    measured = rated or has_unit(clause)
    compared = clause.has(Kind.COMPARISON)
    covered = clause.has(*SCOPES) or clause.covered_by(Kind.TENANT) or clause.covered_by(Kind.WINDOW)
    if not (measured or compared or covered) or _counts_something(clause):
        return False  # "I owe them one", "40 people"
    units = {str(token.value.unit) for token in clause.of(Kind.QUANTITY)}
    priced = any("/" in unit for unit in units) and len(clause.plain) <= _FEW
    is_stated = (
        compared or len(clause.plain) <= 1 or clause.has(Kind.STAT, Kind.TO, Kind.SOFT, Kind.ALLOW) or wishes or priced
    )
    known = measured or before is not None or (compared and not has_goals)
    return is_stated and known and _fits(clause, before)


def _fits(clause: Clause, before: TextToken | None) -> bool:
    """Whether a number's unit is one that the metric before may have, or gives a metric away by itself."""
    unit = next((token.value.unit for token in clause.of(Kind.QUANTITY)), None)
    allowed = UNITS.get(str(before.value)) if before is not None else None
    changes = clause.has(Kind.BY, Kind.CHANGE, Kind.MORE)
    return allowed is None or unit not in {"s", "ratio"} or unit in allowed or changes


def spoken(clause: Clause, text: str) -> str:
    """The words of a clause, with those behind it where a pronoun may stand."""
    return _BREAK.split(text[clause.start : clause.tokens[-1].end + _BEHIND].lower().strip(",.;: ，。；："))[0]


def excludes(objective: Objective, other: Objective) -> bool:
    """Whether no value lies in both bounds, one from below and one from above."""
    if objective.value is None or other.value is None or {objective.op, other.op} != {"<=", ">="}:
        return False
    low, high = (objective, other) if objective.op == ">=" else (other, objective)
    return bool(low.value is not None and high.value is not None and low.value > high.value)


def extended(clause: Clause, tokens: Sequence[TextToken], place: int) -> Clause:
    """The clause with tokens of an earlier one, as if they were said in this place."""
    again = [replace(token, start=place, end=place) for token in tokens]
    ahead = place == clause.tokens[0].start
    return replace(clause, tokens=(*again, *clause.tokens) if ahead else (*clause.tokens, *again))


def exceeds(clause: Clause) -> bool:
    """``enterprise by up to 30%``, behind what others may exceed."""
    return clause.has(Kind.TENANT) and clause.has(Kind.BY, Kind.MORE) and clause.has(Kind.QUANTITY, Kind.FACTOR)


def rules_again(clause: Clause, text: str) -> bool:
    """``free users can have it``, ``but not for enterprise``.

    The format that was said before, for somebody else.
    """
    short = not clause.plain and clause.is_only(*_RULING)
    ruled = clause.has(Kind.FREEZE, Kind.AVOID, Kind.NEGATION, Kind.ALLOW, Kind.MAY, Kind.EXCEPT)
    return clause.has(Kind.TENANT, Kind.LAYERS) and ruled and (short or PRONOUN.search(text) is not None)


def is_none(clause: Clause, text: str) -> bool:
    """``and none at peak``: no reconfiguration, of which the clause before told."""
    banned = clause.has(Kind.AVOID) and clause.is_only(Kind.WINDOW, Kind.AVOID) and clause.has(Kind.WINDOW)
    return banned or (clause.has(Kind.NEGATION) and _NONE.search(text) is not None)


def limits(clause: Clause) -> bool:
    """``其他时间一天最多三次``: so many in a period, of what the clause before was about."""
    period = clause.first(Kind.PERIOD)
    counted = clause.has(Kind.QUANTITY, Kind.TIMES_SAID) and not has_unit(clause)
    return period is not None and period.value not in {"s", "min"} and counted and len(clause.plain) <= 1


def _counts_something(clause: Clause) -> bool:
    """``40 people``: a number with no unit, right before a word without a meaning."""
    plain = [token for token in clause.of(Kind.QUANTITY) if token.value.unit is None]
    behind = [*clause.plain, *clause.of(Kind.AUDIENCE)]
    return any(
        0 <= word.start - token.end <= 1 and str(word.value or "x").isalpha()
        for token in plain
        for word in behind
        if word.value not in _CLASSIFIERS
    )


def has_unit(clause: Clause) -> bool:
    """Whether a number says what it counts."""
    return clause.has(Kind.RANGE) or any(token.value.unit for token in clause.of(Kind.QUANTITY))
