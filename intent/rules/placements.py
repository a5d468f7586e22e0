"""Clauses about where work runs: ``latency-critical on A100, the rest on L40S``, ``leave gpu-1 alone``."""

from itertools import product

from intent.models import Placement
from intent.rules import scopes
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import Token

_USED = frozenset(
    {Kind.SELECTOR, Kind.WORKLOAD, Kind.TENANT, Kind.WINDOW, Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.SOFT, Kind.ONLY,
     Kind.ALLOW, Kind.MAY, Kind.COUNTED}
)  # fmt: skip


def add_placements(draft: Draft, clause: Clause) -> list[Token]:
    """Append a placement for each device, workload and window; gives back the words without a place."""
    before = draft.goals[-1] if draft.goals else None
    earlier = before if isinstance(before, Placement) and not clause.opens_sentence else None
    rule = _rule(clause)
    selectors = clause.of(Kind.SELECTOR)
    if rule is None:
        words = draft.say("placement_unclear", said=draft.quoted(selectors[0]))
        name = draft.said(selectors[0])
        draft.ask(
            "placement_unclear",
            selectors[0],
            words,
            [draft.rephrased(f"{draft.say(way)} {name}") for way in ("require", "forbid")],
        )
        return []
    if rule == "require" and earlier and earlier.rule == "prefer" and not clause.has(Kind.ONLY):
        rule = "prefer"  # "ideally chat on A100 and batch on L40S"
    evidence = draft.text[slice(*extent([token for token in clause.tokens if token.kind in _USED]))]
    workloads: list[Token | None] = [*clause.of(Kind.WORKLOAD, Kind.TENANT)] or [None]
    for said, workload, window in product(selectors, workloads, clause.covered_by(Kind.WINDOW) or (None,)):
        when, who = scopes.window(draft, window), _workload(draft, workload)
        if workload is None and earlier and rule in {"require", "forbid"}:
            who = earlier.workload  # "on the L40S, not on the A100"
        if when is not None and who is not False:
            draft.add(Placement(rule, said.value, evidence, workload=who, window=when))  # type: ignore[arg-type] # closed tables
    one_model = len(draft.catalogue.models) == 1
    placed = _USED | ({Kind.MODEL} if one_model else set())
    return [token for token in clause.tokens if token.kind not in placed and not is_idle(token)]


def _workload(draft: Draft, said: Token | None) -> str | bool | None:
    if said is None or said.kind is Kind.WORKLOAD:
        return said.value if said else None
    name = scopes.tenant(draft, said)
    return f"tenant:{name}" if name else False


def _rule(clause: Clause) -> str | None:
    """What is said of the devices; None if it could be two things."""
    refusals = clause.of(Kind.NEGATION, Kind.AVOID)
    if clause.has(Kind.FREEZE):
        return "freeze" if not refusals else None
    if clause.has(Kind.COMPARISON, Kind.QUANTITY):
        return None
    if refusals:
        return "forbid" if len(refusals) == 1 and not clause.has(Kind.SOFT) else None
    return "prefer" if clause.has(Kind.SOFT, Kind.ALLOW) else "require"
