"""Tokens to clauses: one for each goal, or for goals that share a bound.

What was said once is handed on to the clauses that share it.

Conventions: a window, tenant or model that leads a sentence covers it; one behind a goal belongs to that goal alone, but to
TP and PP said together, which are one topology; ``at peak and overnight`` is the goal twice; ``TTFT and TPOT under 2s`` is
one clause with two metrics.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from intent.rules.kinds import ANY_THROUGHPUT, Kind
from intent.rules.tokens import TextToken

HEADS = frozenset({Kind.METRIC, Kind.SETTING, Kind.COUNTED})
AMOUNTS = frozenset({Kind.QUANTITY, Kind.RANGE})
SCOPES = (Kind.WINDOW, Kind.TENANT, Kind.MODEL, Kind.OVER)
_SILENT = frozenset({Kind.FILLER, Kind.ORDER, Kind.TURNED})
_HARMLESS = frozenset({Kind.AUDIENCE, Kind.ONLY, Kind.LIST, Kind.SOFT, Kind.MAY, Kind.TO, Kind.SAME})
_CASUAL = _HARMLESS | {Kind.ALLOW, Kind.NOW}
"""Kinds that may stand before the scope of a sentence: ``okay, so now for peak``."""
_LONGEST = 60
"""More words that matter are no clause that anybody says; it keeps the time to read a text linear in its length."""
_ASIDE = 1
"""Words without a meaning that a clause of nothing but a window or a tenant may have: ``mostly at peak``."""
_REFUSALS = frozenset({Kind.NEGATION, Kind.AVOID, Kind.FREEZE})
_ARTICLE = 8
"""Characters before a word that still leads its sentence: a space, ``the``, ``please``."""
_BULLETS = frozenset({"-", "*", "•", "·"})
_OPENERS = frozenset(
    {Kind.METRIC, Kind.SETTING, Kind.VAGUE, Kind.OPTIMISE, Kind.CHEAPEST, Kind.PRECISION, Kind.SELECTOR, Kind.RECONFIG,
     Kind.NEGATION, Kind.AVOID, Kind.FREEZE, Kind.EXCEPT, *AMOUNTS}
)  # fmt: skip

Scope = Mapping[Kind, tuple[TextToken, ...]]


@dataclass(frozen=True, slots=True)
class Clause:
    """Tokens that belong together; fillers are gone."""

    tokens: tuple[TextToken, ...]
    opens_sentence: bool = False
    joint: str | None = None
    """What stands before it: ``and``, ``,``, ``:``, ``;`` or ``.``; None where nothing separates it from the one before."""
    start: int = 0
    """Where its words begin in the text, fillers included."""
    repeats: bool = False
    """Only windows or tenants, for the goals of the clause before."""
    scope: Scope = field(default_factory=dict)
    """What covers the clause unless it names its own."""
    plain: tuple[TextToken, ...] = ()
    """Its words without a meaning."""

    def of(self, *kinds: Kind) -> list[TextToken]:
        """The tokens of these kinds, in order."""
        return [token for token in self.tokens if token.kind in kinds]

    def first(self, *kinds: Kind) -> TextToken | None:
        """The first token of these kinds."""
        return next((token for token in self.tokens if token.kind in kinds), None)

    def has(self, *kinds: Kind) -> bool:
        """Whether a token of these kinds stands in it."""
        return self.first(*kinds) is not None

    def is_only(self, *kinds: Kind) -> bool:
        """Whether it consists of such tokens alone."""
        return all(token.kind in kinds or token.kind is Kind.LIST for token in self.tokens)

    def refuses_other(self, kind: Kind) -> bool:
        """Whether a refusal behind what is named is about something else: ``int8 may go there, I don't mind``."""
        named = self.of(kind)
        refused = self.of(Kind.NEGATION, Kind.AVOID)
        if not (named and refused) or refused[0].start < named[-1].end:
            return False
        wished = any(item.start < named[0].start for item in self.of(Kind.MAY, Kind.ALLOW))
        return wished or any(item.start > refused[0].start for item in self.of(Kind.VAGUE, Kind.CHANGE))

    def covered_by(self, kind: Kind) -> tuple[TextToken, ...]:
        """Its own windows, tenants or models, else those that cover it."""
        return tuple(self.of(kind)) or tuple(self.scope.get(kind, ()))

    def unlisted(self, kind: Kind) -> list[TextToken]:
        """Tokens of a kind beyond the first that nothing joins to it: ``at peak during business hours``."""
        tokens = self.of(kind)
        return [
            later
            for earlier, later in pairwise(tokens)
            if not any(earlier.end <= token.start < later.start for token in self.of(Kind.LIST))
        ]

    @property
    def is_bare_scope(self) -> bool:
        """Whether it says only when or for whom."""
        return self.has(*SCOPES) and self.is_only(*SCOPES, *_HARMLESS) and len(self.plain) <= _ASIDE


def clauses(tokens: Sequence[TextToken]) -> list[Clause]:
    """The clauses of a text."""
    return _scoped(_merged(_segments(tokens)))


def _segments(tokens: Sequence[TextToken]) -> list[Clause]:
    """Cut at commas, ``and`` and full stops, and where a second goal begins without any of them."""
    found: list[Clause] = []
    current = Clause((), opens_sentence=True, joint=".")
    for place, spoken in enumerate(tokens):
        token = _break(spoken) if _parts(spoken, current) else spoken
        if token.kind in {Kind.JOIN, Kind.STOP}:
            found.append(current)
            stop = token.kind is Kind.STOP or (current.opens_sentence and not current.tokens)
            kept = not current.tokens and ((token.kind is Kind.JOIN and stop) or current.joint == ":")
            joint = current.joint if kept else token.value
            current = Clause((), opens_sentence=stop, joint=joint, start=token.end)
        elif token.kind is Kind.UNKNOWN:
            current = replace(current, plain=(*current.plain, token))
        elif token.kind not in _SILENT and token.value not in _BULLETS:
            if _begins_another(current, token, tokens[place + 1 : place + 8]):
                found.append(current)
                current = Clause((), start=token.start)
            current = replace(current, tokens=(*current.tokens, token))
    return [clause for clause in [*found, current] if clause.tokens and not _is_bullet(clause)]


def _parts(token: TextToken, current: Clause) -> bool:
    """A dash, a bracket or a picture between two clauses."""
    mark = str(token.value)
    if token.kind not in {Kind.UNKNOWN, Kind.FILLER} or len(mark) != 1:
        return False
    picture = ord(mark) > 0x1F000 or 0x2600 <= ord(mark) <= 0x27BF
    return bool(
        picture
        or mark in "()[]{}…~"
        or (mark == "/" and _is_complete(current))
        or (mark in _BULLETS and (current.tokens or current.plain))
    )


def _break(token: TextToken) -> TextToken:
    """A picture ends a sentence; a bracket opens an aside, or ends it like a comma."""
    mark = str(token.value)
    if ord(mark) >= 0x2600 and mark not in _BULLETS:
        return replace(token, kind=Kind.STOP, value=";")
    return replace(token, kind=Kind.JOIN, value="(" if mark in "([{" else ",")


def _is_bullet(clause: Clause) -> bool:
    """``1.`` in front of an item."""
    only = clause.tokens[0]
    number = only.kind is Kind.QUANTITY and only.value.unit is None and only.value.number < 20
    return clause.opens_sentence and len(clause.tokens) == 1 and number


def _begins_another(clause: Clause, token: TextToken, following: Sequence[TextToken]) -> bool:
    if not _is_complete(clause) or clause.tokens[-1].kind is Kind.LIST:
        return len(clause.tokens) >= _LONGEST
    ahead = _ahead(following)
    if token.kind in {Kind.STAT, *SCOPES}:
        return _leads_another(clause, token, ahead)
    if token.kind in {Kind.COMPARISON, Kind.SOFT}:
        return _bounds_another(clause, token, following)
    if token.kind in _REFUSALS:  # "int4 is off the table"
        return any(later.kind in _RULED for later in ahead)
    if _belongs(clause, token, ahead):
        return False
    continued = clause.has(Kind.EXCEPT, Kind.PRIORITY) and token.kind in {Kind.METRIC, Kind.QUANTITY}
    bounded = clause.has(Kind.COMPARISON) and not clause.has(*AMOUNTS)  # "minimise cost under $5/h"
    changed = (bounded or clause.has(Kind.FACTOR, Kind.NOW, Kind.BY)) and token.kind is Kind.QUANTITY
    return (token.kind is Kind.LAYERS and clause.has(Kind.LAYERS)) or (
        token.kind in _OPENERS and not (continued or changed)
    )


_RULED = frozenset({*HEADS, Kind.PRECISION, Kind.SELECTOR, Kind.RECONFIG, Kind.OPTIMISE})
"""Kinds that a refusal may be about."""


def _ahead(following: Sequence[TextToken]) -> Sequence[TextToken]:
    """The tokens up to the next joint."""
    ends = (n for n, later in enumerate(following) if later.kind in {Kind.JOIN, Kind.STOP})
    return following[: next(ends, len(following))]


def _bounds_another(clause: Clause, token: TextToken, following: Sequence[TextToken]) -> bool:
    """``2s or less`` closes the clause, ``2s at most 4 GPUs`` opens another."""
    bounds = any(later.kind in AMOUNTS for later in following[:2])
    counted = any(later.kind is Kind.COUNTED for later in following[:4])
    counts = token.kind is Kind.COMPARISON and clause.has(Kind.BY) and counted  # "by 10% without more than six GPUs"
    return bounds and (token.kind is Kind.SOFT or clause.has(Kind.COMPARISON) or counts)


def _belongs(clause: Clause, token: TextToken, ahead: Sequence[TextToken]) -> bool:
    """Whether a metric or a switch only says again what the clause is about."""
    again = token.kind is Kind.METRIC and token.value in {token.value for token in clause.of(Kind.METRIC)}
    if again and not any(later.kind in AMOUNTS for later in ahead):
        return True  # "a full answer within 30 s end to end"
    named = token.kind is Kind.METRIC and _names_amount(clause, token)
    last = clause.tokens[-1]
    step = token.kind is Kind.VAGUE and last.kind is Kind.QUANTITY and token.start - last.end <= 1
    return named or step or (token.kind is Kind.RECONFIG and _is_pause(clause))


def _is_complete(clause: Clause) -> bool:
    """Whether a clause says a whole goal, so that what follows may begin another."""
    if clause.has(Kind.METRIC, Kind.SETTING):
        return clause.has(Kind.OPTIMISE, *AMOUNTS)
    if clause.has(Kind.COUNTED):
        return clause.has(Kind.OPTIMISE) or any(token.value.unit is None for token in clause.of(Kind.QUANTITY))
    return clause.has(Kind.PRECISION, Kind.CHEAPEST) or any(
        token.value.unit not in {None, "ratio", "s", "points"} for token in clause.of(Kind.QUANTITY)
    )


def _names_amount(clause: Clause, metric: TextToken) -> bool:
    """``1.2k tokens/s throughput``: the metric of a number whose unit said it already."""
    units = [token.value.unit for token in clause.of(Kind.QUANTITY)]
    measured = {
        "tokens/s": {ANY_THROUGHPUT, "throughput_tok"},
        "requests/s": {ANY_THROUGHPUT, "throughput_req"},
    }
    named = any(metric.value in measured.get(unit, {"cost"} if str(unit).startswith("USD") else ()) for unit in units)
    return named and not clause.has(*HEADS)


def _is_pause(clause: Clause) -> bool:
    return any(token.value == "reconfig_pause" for token in clause.of(Kind.METRIC))


def _leads_another(clause: Clause, token: TextToken, ahead: Sequence[TextToken]) -> bool:
    """Whether a statistic, window or tenant behind a whole goal belongs to the goal that follows."""
    tokens = [later for later in ahead if later.kind not in {*_SILENT, Kind.AUDIENCE, Kind.UNKNOWN}][:2]
    if token.kind is Kind.STAT:
        return any(later.kind in {Kind.METRIC, *AMOUNTS} for later in tokens)
    return clause.has(token.kind) and any(later.kind in {Kind.METRIC, Kind.STAT, *AMOUNTS} for later in tokens[:1])


def _merged(segments: Iterable[Clause]) -> list[Clause]:
    """Join ``TTFT`` and ``P50`` with the bound that follows them."""
    merged: list[Clause] = []
    for segment in segments:
        last = merged[-1] if merged else None
        if last is not None and segment.is_only(Kind.SOFT) and not segment.opens_sentence:
            merged[-1] = _together(last, segment)
        elif last is not None and last.is_only(Kind.SOFT) and not segment.opens_sentence:
            merged[-1] = replace(_together(last, segment), opens_sentence=True)
        elif (
            last is not None
            and (_is_late_stat(last, segment) or _is_late_side(last, segment) or _is_switch(last, segment))
        ) or (last is not None and _waits(last, segment) and not segment.has(Kind.OPTIMISE)):
            merged[-1] = _together(last, segment)
        else:
            merged.append(segment)
    return merged


def _together(last: Clause, segment: Clause) -> Clause:
    return replace(last, tokens=last.tokens + segment.tokens, plain=last.plain + segment.plain)


def _is_late_side(last: Clause, segment: Clause) -> bool:
    """``three requests per second, minimum``."""
    alone = segment.is_only(Kind.COMPARISON) and not segment.opens_sentence
    return alone and last.has(*AMOUNTS) and (not last.has(Kind.COMPARISON) or segment.tokens[0].value == "better")


def _is_switch(last: Clause, segment: Clause) -> bool:
    """``when reconfiguring, a pause of 50 ms at most``."""
    return last.is_only(Kind.RECONFIG) and _is_pause(segment) and not segment.opens_sentence


def _is_late_stat(last: Clause, segment: Clause) -> bool:
    """``TTFT under 2s, p95``."""
    alone = segment.is_only(Kind.STAT) and not segment.opens_sentence
    return alone and last.has(Kind.METRIC) and last.has(*AMOUNTS) and not last.has(Kind.STAT)


_EXTENT = (
    *AMOUNTS, Kind.COMPARISON, Kind.MORE, Kind.CHANGE, Kind.BY, Kind.FACTOR, Kind.TIMES, Kind.TIMES_SAID, Kind.ONLY, Kind.TO,
    Kind.MAY, Kind.PERIOD,
)  # fmt: skip
"""Kinds that say how far an exception goes."""


def _waits(last: Clause, segment: Clause) -> bool:
    """Whether a clause is a metric whose bound comes next, or an exception whose extent does."""
    headed = segment.joint == ":"
    ranks = last.is_only(Kind.PRIORITY, Kind.WINDOW) and last.has(Kind.PRIORITY) and headed
    least = last.is_only(Kind.COMPARISON, Kind.QUALITY) and headed and segment.has(Kind.PRECISION)
    each = last.is_only(Kind.PER_USER) and not segment.opens_sentence and segment.has(*AMOUNTS)
    if ranks or least or each:
        return True
    if last.has(Kind.EXCEPT) and not last.has(*AMOUNTS) and not segment.opens_sentence:
        return segment.is_only(*_EXTENT)
    return len(last.plain) <= _HEADING and _awaits_bound(last, segment, headed)


_HEADING = 2
"""Words without a meaning that the head of a bound may have; more tell a story."""


def _awaits_bound(last: Clause, segment: Clause, headed: bool) -> bool:
    sides = (Kind.COMPARISON,) if headed else ()  # "minimum throughput: 700 tok/s"
    waiting = last.has(Kind.METRIC, Kind.STAT, Kind.SETTING) and last.is_only(
        Kind.METRIC, Kind.STAT, Kind.SETTING, *SCOPES, Kind.SOFT, Kind.AUDIENCE, Kind.PERIOD, *sides
    )
    if not waiting or (segment.opens_sentence and not headed):
        return False
    if last.has(*SCOPES):
        return segment.has(*AMOUNTS) and not segment.has(Kind.METRIC, Kind.SETTING, *SCOPES)
    if segment.is_only(*SCOPES):
        return segment.joint != "and"
    return segment.has(Kind.METRIC, Kind.STAT, *AMOUNTS)


def _scoped(segments: Sequence[Clause]) -> list[Clause]:
    """Hand what stands alone or leads to the clauses it covers."""
    result: list[Clause] = []
    scope: dict[Kind, tuple[TextToken, ...]] = {}
    led: list[Clause] = []
    listing = False
    for place, segment in enumerate(segments):
        following = segments[place + 1] if place + 1 < len(segments) else None
        if segment.opens_sentence and segment.joint in _ENDS and not listing:
            scope = {}
        if segment.opens_sentence and segment.joint == ";" and not listing and not _is_shared(led):
            scope.pop(Kind.TENANT, None)
        if segment.has(Kind.SELECTOR) and segment.has(Kind.TENANT) and not segment.opens_sentence:
            scope.pop(Kind.TENANT, None)  # "free on L40S, enterprise on A100, availability 99.5%"
        if not segment.is_bare_scope and not _is_heading(segment, following):
            own = _leading(segment, following)
            led += [segment] if Kind.TENANT in own else []
            scope |= own
            result.append(replace(segment, scope=dict(scope)))
        elif _is_heading(segment, following) or _leads(segment, following):
            scope |= {kind: tuple(segment.of(kind)) for kind in SCOPES if segment.has(kind)}
            led = [segment] if segment.has(Kind.TENANT) else led
            listing = following is not None and following.joint in {":", *_ENDS}
        elif segment.opens_sentence and segment.plain:
            continue  # "Have a lovely weekend"
        elif (
            result and segment.opens_sentence and segment.is_only(Kind.OVER)
        ):  # a line of its own is about all before it
            result = [replace(clause, scope={Kind.OVER: tuple(segment.tokens), **clause.scope}) for clause in result]
        elif result and not any(result[-1].has(kind) for kind in SCOPES if segment.has(kind)):
            result[-1] = replace(result[-1], tokens=(*result[-1].tokens, *segment.of(*SCOPES)))
        else:
            result.append(replace(segment, repeats=bool(result)))
    return _shared_by_topologies(result)


_ENDS = frozenset({".", "\n"})
"""What ends a sentence with what leads it."""


def _is_shared(led: Sequence[Clause]) -> bool:
    """Whether a tenant that leads covers more than one wish.

    Not in ``acme 1 s; free 4 s; 4 GPUs`` and ``acme on A100; no int4``.
    """
    names = {token.value for clause in led for token in clause.of(Kind.TENANT)}
    return len(names) == 1 and not any(clause.has(Kind.SELECTOR) for clause in led)


def _is_heading(segment: Clause, following: Clause | None) -> bool:
    """``The latency objectives for enterprise are:``, above lines."""
    lists = following is not None and following.joint == ":" and following.opens_sentence and segment.opens_sentence
    return lists and segment.has(*SCOPES) and segment.is_only(*SCOPES, *_HARMLESS, Kind.METRIC)


def _leading(segment: Clause, following: Clause | None) -> Scope:
    """The windows, tenants and models at the front of a clause."""
    found: dict[Kind, tuple[TextToken, ...]] = {}
    if len(segment.plain) > 1 and not segment.opens_sentence:
        return {}  # "review due 14 Jan" is part of a story
    if len(segment.plain) > 2 and not segment.has(*HEADS, *AMOUNTS, Kind.PRECISION, Kind.SELECTOR, Kind.RECONFIG):
        tokens = [token for token in segment.tokens if token.kind is Kind.WINDOW and token.value == "overnight"]
        if tokens and tokens[0] is segment.tokens[0]:
            return {}  # "the nightly evals came back"
    leads = segment.opens_sentence and segment.tokens[0].start - segment.start <= _ARTICLE
    placed = segment.has(Kind.SELECTOR) and (not leads or segment.has(Kind.AVOID))
    if segment.has(Kind.EXCEPT, Kind.PRIORITY) or placed:  # "put free users on L40S" is about them alone
        return {Kind.WINDOW: tuple(segment.of(Kind.WINDOW))} if segment.tokens[0].kind is Kind.WINDOW else found
    heads = following is not None and following.joint == ":"
    rationed = segment.has(Kind.TO) and not segment.has(*HEADS)  # "limit free to 2 rps, TTFT under 1s": not of free
    first = min((token.start for token in segment.plain), default=segment.tokens[-1].end)
    for token in segment.tokens:
        if token.kind is Kind.WINDOW and token.start > first and len(segment.plain) > 1 and not heads:
            break  # "the committee met on Monday"
        if token.kind in SCOPES:
            found |= {} if rationed and token.kind is Kind.TENANT else {token.kind: (*found.get(token.kind, ()), token)}
        elif token.kind not in _CASUAL:
            break
    return found


def _leads(segment: Clause, following: Clause | None) -> bool:
    if following is None or (following.opens_sentence and segment.joint != ":" and following.joint == "."):
        return False
    if following.opens_sentence and following.joint == "\n":  # a heading
        return segment.opens_sentence and segment.joint != ","
    if following.opens_sentence and not segment.opens_sentence and following.joint == ";":
        return False
    if segment.opens_sentence or following.joint == ":":
        return True
    kinds = [kind for kind in SCOPES if segment.has(kind)]
    return segment.joint != "and" and following.has(*HEADS) and not following.has(*kinds)


def _shared_by_topologies(result: list[Clause]) -> list[Clause]:
    """``tp 2 pp 2 at peak`` is one topology: a window said with the second was said of both."""
    for place in range(len(result) - 2, -1, -1):
        clause = result[place]
        after = result[place + 1]
        kinds = (Kind.WINDOW, Kind.MODEL) if _is_one_topology(clause, after) else ()
        shared = {
            kind: after.covered_by(kind) for kind in kinds if not clause.covered_by(kind) and after.covered_by(kind)
        }
        result[place] = replace(clause, scope={**clause.scope, **shared})
    return result


def _is_one_topology(clause: Clause, after: Clause) -> bool:
    settings = all(clause.has(Kind.SETTING, Kind.COUNTED) and not clause.has(Kind.METRIC) for clause in (clause, after))
    return (after.joint is None or settings) and not after.opens_sentence
