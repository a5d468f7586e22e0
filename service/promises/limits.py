"""Promised limits on reconfiguration: "no changes until noon", "at most 2 a day". Pure."""

from collections.abc import Sequence
from datetime import datetime

from intent.models import ReconfigRule
from intent.windows import in_words
from service.promises.agenda import ActiveGoal

SECONDS = {"1/h": 3600.0, "1/day": 86_400.0}


def barred(in_force: Sequence[ActiveGoal], switched_s: Sequence[float], now: datetime) -> str:
    """Why no switch may be made now, by the goals that hold; empty: one may.

    ``switched_s`` are the unix seconds at which switches were made.
    """
    found = list[str]()
    for goal in in_force:
        if isinstance(goal.goal, ReconfigRule) and (why := _why(goal.goal, switched_s, now.timestamp())):
            found.append(f"{why} ({goal.goal.evidence!r}, {goal.intent_id})")
    return "; ".join(found)


def _why(rule: ReconfigRule, switched_s: Sequence[float], now_s: float) -> str:
    if rule.rule == "forbid":
        return f"a promise forbids switches {in_words(rule.window)}".removesuffix(" always")
    span_s = SECONDS[rule.unit or "1/h"]
    made = sum(now_s - span_s < at_s <= now_s for at_s in switched_s)
    if made < (rule.value or 0):
        return ""
    return f"{made} switches were made in the last {'hour' if span_s == 3600 else 'day'}, and {rule.value:g} are promised at most"
