"""Clauses about how often the service may reshape itself.

``at most 2 reconfigurations per hour``, ``高峰期禁止切换``.
"""

import re
from collections.abc import Sequence

from intent.models import ReconfigRule, Window
from intent.rules import scopes
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.quantities import Quantity
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import TextToken

_USED = frozenset(
    {Kind.RECONFIG, Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.PERIOD, Kind.COMPARISON, Kind.QUANTITY, Kind.TIMES_SAID,
     Kind.TIMES, Kind.WINDOW, Kind.ONLY, Kind.COUNTED, Kind.MAY, Kind.ALLOW}
)  # fmt: skip
_RATES = {
    "h": (1.0, "1/h"),
    "min": (60.0, "1/h"),
    "day": (1.0, "1/day"),
    "week": (1 / 7, "1/day"),
    "month": (1 / 30, "1/day"),
}
_STORY = 2
"""Words without a meaning behind a ban that may be about something else: 这次变更不要写进日志."""
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？\n]")
_ELSEWHERE = {"off_peak": "peak", "peak": "off_peak"}
"""Only then: never in the rest of the day."""


def is_reconfig(clause: Clause) -> bool:
    """Whether a clause limits reconfigurations, rather than bounding how long one takes."""
    if not clause.has(Kind.RECONFIG) or clause.has(Kind.SELECTOR, Kind.PRECISION, Kind.SETTING):
        return False
    if _is_freeze(clause):
        return True
    limited = clause.has(Kind.CHANGE) and not clause.has(
        Kind.SETTING, Kind.COUNTED
    )  # "reconfigure less often": how often?
    limited = (
        limited
        or _count(clause) == 0
        or clause.has(Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.PERIOD, Kind.TIMES_SAID, Kind.ONLY, Kind.COMPARISON)
    )
    return limited and not clause.has(Kind.METRIC)


def _is_freeze(clause: Clause) -> bool:
    """``change freeze``: a ban by itself."""
    return any(token.value == "freeze" for token in clause.of(Kind.RECONFIG))


def add_reconfigs(draft: Draft, clause: Clause) -> list[TextToken]:
    """Append the rule of the clause for each of its windows; gives back the words without a place."""
    place = extent([token for token in clause.tokens if token.kind in _USED])
    evidence = draft.text[slice(*place)]
    rule = _rule(clause)
    behind = [word for word in clause.plain if word.start > clause.tokens[-1].start]
    if rule is None or (rule[0] == "forbid" and len(behind) > _STORY):
        head = clause.of(Kind.RECONFIG)[0]
        options = [draft.rephrased(draft.say(name)) for name in ("no_reconfig", "few_reconfigs")]
        draft.ask("reconfig_unclear", head, draft.say("reconfig_unclear", said=draft.quoted(head)), options)
        return []
    windows = clause.covered_by(Kind.WINDOW) or (None,)
    if rule[0] == "forbid" and _names_the_same(draft, clause, place, windows[0]):
        return []
    for window in windows:
        when = scopes.window(draft, window)
        if when is not None and (held := _window(when, clause)) is not None:
            draft.add(ReconfigRule(rule[0], evidence, value=rule[1], unit=rule[2], window=held), place)  # type: ignore[arg-type] # closed tables
    unread = clause.of(Kind.QUANTITY) if rule[0] == "forbid" and _count(clause) is None else ()
    return [
        *unread,
        *(
            token
            for token in clause.tokens
            if token.kind not in _USED and not is_idle(token) and not _is_every(clause, token)
        ),
    ]


def _window(when: Window, clause: Clause) -> Window | None:
    """``only off-peak`` forbids the peak."""
    elsewhere = clause.has(Kind.ONLY) and _count(clause) is None and isinstance(when, str)
    return _ELSEWHERE.get(str(when)) if elsewhere else when


def _is_every(clause: Clause, token: TextToken) -> bool:
    return token.kind is Kind.UNIT and clause.has(Kind.TIMES_SAID)


Rule = tuple[str, float | None, str | None]


def _names_the_same(draft: Draft, clause: Clause, place: tuple[int, int], token: TextToken | None) -> bool:
    """Whether a bare ``change freeze`` names the ban of hours before it.

    One named before these hours goes.
    """
    if not draft.goals or not isinstance(last := draft.goals[-1], ReconfigRule) or last.rule != "forbid":
        return False
    if _SENTENCE_END.search(draft.text[draft.places[-1][1] : place[0]]):
        return False
    if token is None and _is_freeze(clause) and last.window != "always":
        draft.repeated.append(place)
        return True
    assumed = any(item.pointer == f"/goals/{len(draft.goals) - 1}/window" for item in draft.assumptions)
    if token is not None and assumed:
        draft.repeated.append(draft.places[-1])
        draft.take_back_goals(len(draft.goals) - 1)
    return False


def _rule(clause: Clause) -> Rule | None:
    """Forbid, or a limit with its unit; None if it could be two things."""
    if _is_freeze(clause):
        return None if clause.has(Kind.NEGATION, Kind.AVOID) else ("forbid", None, None)
    count = _count(clause)
    period = clause.first(Kind.PERIOD)
    comparison = clause.first(Kind.COMPARISON)
    refusals = clause.of(Kind.NEGATION, Kind.AVOID, Kind.FREEZE)
    if clause.has(Kind.ONLY) and count is None:
        windows = clause.of(Kind.WINDOW)
        fits = (
            len(windows) == 1 and isinstance(windows[0].value, str) and windows[0].value in _ELSEWHERE and not refusals
        )
        return ("forbid", None, None) if fits else None
    if count is None or (count == 1 and refusals and comparison is None):  # "not a single reconfiguration"
        return ("forbid", None, None) if len(refusals) == 1 and comparison is None and period is None else None
    if refusals or any(token.value != "<=" for token in clause.of(Kind.COMPARISON)):
        return None
    if count == 0:
        return "forbid", None, None
    return _rate(clause, count, period)


def _rate(clause: Clause, count: float, period: TextToken | None) -> Rule | None:
    found = per(count, period, [token.value for token in clause.of(Kind.QUANTITY)])
    return ("limit", *found) if found else None


def per(count: float, period: TextToken | None, amounts: Sequence[Quantity]) -> tuple[float, str] | None:
    """So many per hour or day, of a period's word or of a stretch of time: ``once every 4 hours``.

    None if neither is said.
    """
    if period is not None and period.value in _RATES:
        factor, unit = _RATES[period.value]
        return count * factor, unit
    stretches = [amount.value for amount in amounts if amount.unit == "s"]
    if len(stretches) != 1 or stretches[0] < 60:
        return None
    days = stretches[0] / 86400
    return (count / days, "1/day") if days >= 1 else (count * 3600 / stretches[0], "1/h")


def _count(clause: Clause) -> float | None:
    numbers = [token.value.number for token in clause.of(Kind.QUANTITY) if token.value.unit is None]
    numbers += [token.value for token in clause.of(Kind.TIMES_SAID)]
    return numbers[0] if len(numbers) == 1 else None
