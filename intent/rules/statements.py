"""Clauses that tell and wish nothing: what was, what is, what the cluster has, why somebody asks.

Pure.
"""

from collections.abc import Sequence
from dataclasses import replace

from intent.fold import fold
from intent.rules.clauses import AMOUNTS, HEADS, Clause
from intent.rules.expectations import is_expectation
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern

WISHING = frozenset(
    {*HEADS, *AMOUNTS, Kind.PRECISION, Kind.SELECTOR, Kind.OPTIMISE, Kind.CHEAPEST, Kind.RECONFIG, Kind.EXCEPT}
)  # fmt: skip
"""Kinds that a clause without a wish does not have."""
_CHANGING = frozenset(
    {Kind.COMPARISON, Kind.CHANGE, Kind.TO, Kind.BY, Kind.FACTOR, Kind.OPTIMISE, Kind.TIMES, Kind.VAGUE}
)
"""Kinds that a report of what is does not have."""
_INTERROGATIVES = frozenset("is are does did was were has have will am should".split())  # noqa: SIM905 - reads as words
_STORY = 3
"""More words without a meaning tell a story around a metric."""


def is_maintenance(clause: Clause, text: str) -> bool:
    """``restart the pod on node b``, ``add two GPUs to the order``: no wish about how the service serves."""
    measured = clause.has(Kind.METRIC) or (clause.has(Kind.COMPARISON) and not clause.has(Kind.COUNTED))
    return not measured and pattern("chore").match(_words(clause, text)) is not None


def is_report(clause: Clause, following: Clause | None, text: str) -> bool:
    """Whether a clause asks or tells what is or was, and holds no word that wishes."""
    words = _words(clause, text)
    if pattern("other").match(text[clause.start :].lower()):
        return False
    retires = clause.has(Kind.METRIC) and not clause.has(*AMOUNTS) and pattern("retiring").search(words)
    if retires or is_expectation(words) or pattern("irrelevant").search(words):
        return True
    if _is_report(clause, text, words) or _is_state(clause, following, words):
        return True
    ruled = clause.has(Kind.PRECISION, Kind.SELECTOR) and clause.has(Kind.ALLOW, Kind.AVOID, Kind.NEGATION, Kind.FREEZE)
    ruled = ruled or (clause.has(Kind.OVER) and not clause.has(Kind.METRIC, *AMOUNTS))  # "mesured over 7 days"
    return _is_past(clause, text, words) and not ruled and pattern("wishing").search(words) is None


def _is_past(clause: Clause, text: str, words: str) -> bool:
    placed = clause.first(Kind.SELECTOR) if clause.has(Kind.WORKLOAD, Kind.TENANT) else None
    scoped = clause.first(Kind.PRECISION) if clause.has(Kind.WINDOW, Kind.TENANT, Kind.ONLY) else None
    ranked = clause.first(Kind.PRIORITY, Kind.COMPARISON) if len(clause.of(Kind.METRIC, Kind.QUALITY)) > 1 else None
    bound = clause.first(*AMOUNTS) or placed or scoped or ranked or clause.first(Kind.EXCEPT)
    wish = clause.first(Kind.RECONFIG, Kind.PRECISION, Kind.SELECTOR, Kind.WINDOW, Kind.FACTOR)
    least = wish.end - _first(clause) if wish else len(words)
    later = pattern("circumstance").search(words, min(least, len(words)))
    ends = [start - _first(clause) for start in ([bound.start] if bound else [])] + ([later.start()] if later else [])
    last = max(0, min(ends, default=len(words)))  # "within 40 s until the migration is finished" is no past
    verbs = (
        token
        for token in clause.plain
        if token.start < _first(clause) + last and pattern("participle").fullmatch(str(token.value))
    )
    words = words[:last]
    for token in clause.tokens:  # "to be left alone" is no past
        words = words.replace(text[token.start : token.end].lower(), " ")
    return pattern("past").search(words) is not None or next(verbs, None) is not None


def _is_report(clause: Clause, text: str, words: str) -> bool:
    """``how is TTFT``, ``TTFT spiked to 6 s``; but 错误率别太高: not to become so."""
    report = clause.first(Kind.REPORT)
    if report is not None and pattern("order").match(words):
        return False
    if report is not None:
        return not any(0 <= report.start - token.end <= 1 for token in clause.of(Kind.NEGATION))
    first = text[clause.start :].split(maxsplit=1)[:1]
    return clause.opens_sentence and first != [] and first[0].lower() in _INTERROGATIVES


def _is_state(clause: Clause, following: Clause | None, text: str) -> bool:
    """``TTFT is 3 s now, get it under 2 s``: the first says how it is."""
    level = "level again" if clause.has(*_CHANGING) else "at a level"
    if clause.has(*AMOUNTS) and pattern(level).search(text) and not pattern("wishing").search(text):
        return True
    stands = (
        clause.has(Kind.METRIC)
        and clause.has(*AMOUNTS)
        and not clause.has(*_CHANGING)
        and pattern("stands").search(text)
    )
    joined = following is not None and following.joint == "and" and may_be_state(following)
    if stands and (clause.has(Kind.NOW) or joined or pattern("lately").search(text)):
        return True
    corrected = following is not None and following.has(*AMOUNTS) and not following.has(*HEADS)
    return corrected and may_be_state(clause)


def may_be_state(clause: Clause) -> bool:
    """``TTFT is 3 s now``: how it is, or how it has to be from now on."""
    stated = clause.has(Kind.NOW) and clause.has(Kind.METRIC) and clause.has(*AMOUNTS)
    return stated and not clause.has(*_CHANGING)


def is_complaint(clause: Clause, text: str) -> bool:
    """``the app is slow``, ``best``: a vague word, and nothing that wishes."""
    vague = [text[token.start : token.end].lower() for token in clause.of(Kind.VAGUE)]
    return all(pattern("complaint").fullmatch(word) for word in vague) or len(clause.plain) > _STORY


def is_state(clause: Clause, text: str) -> bool:
    """``TTFT is 3 s``: how it is, where the clause before said that as well."""
    bound = clause.has(Kind.METRIC) and clause.has(*AMOUNTS) and not clause.has(*_CHANGING)
    return bound and pattern("stands").search(_words(clause, text)) is not None


def is_foreign(text: str) -> bool:
    """Whether a text has three function words of another language, or a word in another script."""
    words = set(pattern("third language").findall(text))
    return len(words) > 2 or not all(map(str.isascii, words))


def speaks(clause: Clause, text: str) -> bool:
    """Whether a clause has a word that wishes."""
    return pattern("wishing").search(_words(clause, text)) is not None


def wishes(clause: Clause, text: str) -> bool:
    """Whether a clause with something unclear in it is worth a question.

    It says a wish, or hardly anything else.
    """
    amounts = clause.of(*AMOUNTS)
    if clause.has(*HEADS) and amounts and clause.has(Kind.COMPARISON):
        return True
    words = _words(clause, text)
    if _is_past(clause, text, words) or (_counts_devices(clause) and not amounts):
        return False
    if clause.has(Kind.VAGUE) and not clause.has(*HEADS):
        return not is_complaint(clause, text)
    excepted = clause.has(Kind.EXCEPT) and not clause.opens_sentence
    if clause.has(*HEADS) and not excepted:
        return _wishes_about(clause, words)
    about = clause.has(Kind.PRECISION, Kind.SELECTOR, Kind.RECONFIG, Kind.EXCEPT, Kind.PRIORITY, Kind.TENANT)
    return excepted or len(clause.plain) <= 1 or (about and pattern("wishing").search(words) is not None)


def _wishes_about(clause: Clause, text: str) -> bool:
    """The same of a clause that names a metric or a setting."""
    wishing = pattern("wishing").search(text) is not None
    if clause.has(Kind.SETTING, Kind.COUNTED) and not clause.has(Kind.METRIC):
        return len(clause.plain) <= 1
    if not clause.has(*AMOUNTS):
        return not clause.plain or (
            (wishing or clause.has(Kind.OPTIMISE, Kind.CHANGE, Kind.VAGUE)) and len(clause.plain) <= _STORY
        )
    measured = any(token.kind is Kind.RANGE or token.value.unit is not None for token in clause.of(*AMOUNTS))
    if not measured and clause.plain and not clause.has(Kind.COMPARISON, Kind.SETTING, Kind.CHANGE):
        return False  # "cost centre 7731"
    return len(clause.plain) <= 1 or wishing


def _counts_devices(clause: Clause) -> bool:
    return any(token.value == "gpu_count" for token in clause.of(Kind.COUNTED))


def without_reasons(found: Sequence[Clause]) -> list[Clause]:
    """Clauses without what only says why, as long as it bounds nothing."""
    kept: list[Clause] = []
    for clause in found:
        place = next((n for n, token in enumerate(clause.tokens) if token.kind is Kind.BECAUSE), None)
        reason = clause.tokens[place:] if place is not None else ()
        bounds = any(token.kind in HEADS for token in reason) and any(word.kind in AMOUNTS for word in reason)
        if place is None or bounds:
            kept.append(clause)
        elif place:
            start = clause.tokens[place].start
            plain = tuple(token for token in clause.plain if token.start < start)
            kept.append(replace(clause, tokens=clause.tokens[:place], plain=plain))
    return kept


def _first(clause: Clause) -> int:
    return min(clause.start, *(token.start for token in (*clause.tokens, *clause.plain)))


def _words(clause: Clause, text: str) -> str:
    tokens = (*clause.tokens, *clause.plain)
    return fold(text[_first(clause) : max(token.end for token in tokens)]).text
