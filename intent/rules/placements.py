"""Clauses about where work runs.

``latency-critical on A100, the rest on L40S``, ``leave gpu-1 alone``.
"""

import re
from collections.abc import Sequence
from itertools import product

from intent.models import Placement
from intent.rules import scopes
from intent.rules.clauses import Clause
from intent.rules.draft import Draft
from intent.rules.kinds import EVERYONE, Kind
from intent.rules.lexicon import pattern
from intent.rules.readings import extent, is_idle
from intent.rules.tokens import TextToken

_OTHERS = re.compile("else|other|rest|remain|其他|其它|其余|别的|剩下")
_USED = frozenset(
    {Kind.SELECTOR, Kind.WORKLOAD, Kind.TENANT, Kind.WINDOW, Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.SOFT, Kind.ONLY,
     Kind.ALLOW, Kind.MAY, Kind.COUNTED}
)  # fmt: skip


def add_placements(draft: Draft, clause: Clause) -> list[TextToken]:
    """Append a placement for each device, workload and window; gives back the words without a place."""
    before = draft.goals[-1] if draft.goals else None
    earlier = before if isinstance(before, Placement) and not clause.opens_sentence else None
    rule = _rule(clause)
    if rule == "require" and not _places(clause, draft.text):
        return []
    selectors = clause.of(Kind.SELECTOR)
    refused = rule not in {None, "require"}  # "keep off gpu-2 until it is back in service"
    end = max(token.end for token in (selectors if refused else (*clause.tokens, *clause.plain)))
    if pattern("device back").search(draft.text[clause.start : end].lower()):
        return selectors  # "put gpu-2 back in rotation": it may serve, and need not
    if _empties(draft.text, clause):
        return selectors  # another command does it
    counted = clause.joint is None and getattr(before, "metric", None) == "gpu_count"
    if rule is None or (refused and counted):  # "keep two L40S out of it"
        words = draft.say("placement_unclear", said=draft.quoted(selectors[0]))
        name = draft.said(selectors[0])
        draft.ask(
            "placement_unclear",
            selectors[0],
            words,
            [draft.rephrased(f"{draft.say(way)} {name}") for way in ("require", "forbid")],
        )
        return []
    strict = pattern("strict").search(draft.text[clause.start : selectors[-1].end].lower())
    if rule == "require" and earlier and earlier.rule == "prefer" and clause.joint == "and" and not strict:
        rule = "prefer"  # "ideally chat on A100 and batch on L40S"
    place = extent([token for token in clause.tokens if token.kind in _USED])
    evidence = draft.text[slice(*place)]
    named = clause.of(Kind.WORKLOAD, Kind.TENANT)
    emptied = any(token.value in {"drain", "evict"} for token in clause.of(Kind.AVOID))  # "for maintenance"
    workloads: list[TextToken | None] = [
        *(named or ([] if rule == "freeze" or emptied else _unnamed(draft.text, clause)))
    ] or [None]
    for token, workload, window in product(selectors, workloads, clause.covered_by(Kind.WINDOW) or (None,)):
        when = scopes.window(draft, window)
        who = _workload(draft, workload)
        if workload is None and earlier and rule in {"require", "forbid"}:
            who = earlier.workload  # "on the L40S, not on the A100"
        if when is not None and who is not False:
            draft.add(Placement(rule, token.value, evidence, workload=who, window=when), place)  # type: ignore[arg-type] # closed tables
    one_model = len(draft.catalogue.models) == 1
    placed = _USED | ({Kind.MODEL} if one_model else set())
    return [token for token in clause.tokens if token.kind not in placed and not is_idle(token)]


def _empties(text: str, clause: Clause) -> bool:
    """Whether a clause empties a device; with hours, from one to another, that is a rule of these hours."""
    windows = clause.covered_by(Kind.WINDOW)
    lasting = any(isinstance(token.value, str) or _HOURS.search(text[token.start : token.end]) for token in windows)
    words = text[clause.start : max(token.end for token in (*clause.tokens, *clause.plain))].lower()
    return not lasting and pattern("draining").search(words) is not None


_HOURS = re.compile(r"\d.{0,4}(?:-|–|to|and|until|till|到|至).{0,3}\d")


def _unnamed(text: str, clause: Clause) -> list[TextToken]:
    """A workload in words that nobody defined.

    ``embedding jobs on node b``, ``prefer gpu-7 for voice traffic``.
    """
    selectors = clause.of(Kind.SELECTOR)
    for run in _runs(text, clause.plain):
        before = text[clause.start : run[0].start].lower()
        between = text[run[-1].end : selectors[0].start].lower()
        behind = text[selectors[-1].end : run[0].start].lower()
        leads = (
            pattern("before work").fullmatch(before)
            and run[-1].end <= selectors[0].start
            and pattern("to a device").fullmatch(between)
        )
        if leads or _FOR.fullmatch(behind):
            words = (word for token in run for word in re.findall(r"[a-z0-9]+", text[token.start : token.end].lower()))
            name = "_".join(word for word in words if word not in _WORK)
            return [TextToken(Kind.WORKLOAD, name, run[0].start, run[-1].end)] if name else []
    return []


def _runs(text: str, plain: Sequence[TextToken]) -> list[list[TextToken]]:
    """Words without a meaning that stand together, three at most."""
    found: list[list[TextToken]] = []
    for token in plain:
        if found and text[found[-1][-1].end : token.start] in {" ", "-"}:
            found[-1].append(token)
        elif token.value.isascii() and token.value.isalpha():
            found.append([token])
    return [run for run in found if len(run) <= 3]


_WORK = frozenset(
    ["job", "jobs", "work", "stuff", "traffic", "workload", "workloads", "calls", "queries", "tasks", "requests", "everything",
     "anything", "all", "it", "them", "this", "that", "these", "those"]
)  # fmt: skip
_FOR = re.compile(r" for (?:the |our )?")


def _places(clause: Clause, text: str) -> bool:
    """Whether a clause puts something somewhere: it says what, or has a word for it."""
    first = min(token.start for token in clause.tokens)
    last = max(token.end for token in clause.tokens)
    words = text[min(clause.start, first) : last].lower()
    counted = clause.joint is None and not clause.plain and not clause.opens_sentence  # "at most 2 A100 GPUs"
    named = clause.has(Kind.WORKLOAD, Kind.TENANT, Kind.MODEL, Kind.ONLY)
    return counted or named or pattern("placing").search(words) is not None


def _workload(draft: Draft, token: TextToken | None) -> str | bool | None:
    if token is None or token.kind is Kind.WORKLOAD:
        return token.value if token else None
    if token.value == EVERYONE:
        return "rest" if _OTHERS.search(draft.said(token).lower()) else None
    name = scopes.tenant(draft, token)
    return f"tenant:{name}" if name else False


def _rule(clause: Clause) -> str | None:
    """What is said of the devices; None if it could be two things."""
    selectors = clause.of(Kind.SELECTOR)
    near = [
        token
        for token in clause.of(Kind.AVOID)
        if token.value != "off" or any(0 <= to.start - token.end <= 6 for to in selectors)
    ]
    refusals = [*clause.of(Kind.NEGATION), *near]
    if clause.has(Kind.FREEZE):
        return "freeze" if not refusals else None
    if clause.has(Kind.COMPARISON, Kind.QUANTITY):
        return None
    if refusals:
        unclear = clause.has(Kind.SOFT) or clause.refuses_other(Kind.SELECTOR)
        return "forbid" if len(refusals) == 1 and not unclear else None
    favoured = any(token.value == "first" for token in clause.of(Kind.PRIORITY))
    allowed = favoured or (clause.has(Kind.MAY) and not clause.has(Kind.ONLY))
    return "prefer" if clause.has(Kind.SOFT, Kind.ALLOW) or allowed else "require"
