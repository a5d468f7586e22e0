"""The translator without an LLM: tokens, clauses, goals. Pure; what it cannot place it asks about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from intent.injection import orders
from intent.models import HIGHER_IS_BETTER, LOWER_IS_BETTER, Assumption, Catalogue
from intent.rules.bounds import add_goal
from intent.rules.clauses import AMOUNTS, HEADS, SCOPES, Clause, clauses
from intent.rules.draft import Draft
from intent.rules.exceptions import add_exception, is_exception
from intent.rules.heads import heads_of
from intent.rules.kinds import ANY_LATENCY, EVERYONE, Kind
from intent.rules.phrasing import tokenize
from intent.rules.placements import add_placements
from intent.rules.precisions import add_precisions
from intent.rules.priorities import add_priorities, is_priority
from intent.rules.questions import ask_number, ask_time, ask_wish
from intent.rules.readings import Reading, bind, extent, is_idle, united
from intent.rules.reconfigs import add_reconfigs, is_reconfig
from intent.rules.relatives import Change, add_relative, change_in
from intent.rules.relatives import leftovers as unchanged
from intent.rules.tokens import Token

_TELLING = frozenset(
    {
        *HEADS,
        *AMOUNTS,
        Kind.PRECISION,
        Kind.SELECTOR,
        Kind.OPTIMISE,
        Kind.CHEAPEST,
        Kind.RECONFIG,
        Kind.EXCEPT,
    }
)
"""Kinds that a clause without a wish does not have."""


_INTERROGATIVES = frozenset("is are does did was were has have will am should".split())  # noqa: SIM905 - reads as words
_TYING = frozenset(
    ["for", "of", "in", "on", "at", "with", "to", "during", "from", "by", "every", "each", "run", "use", "serve",
     "deploy", "host", "without", "under", "over", "after", "before", "per", "对", "针对", "在", "给", "为"]
)  # fmt: skip
"""Words that tie what they stand beside to a wish."""
_RULING = frozenset(
    {Kind.COMPARISON, Kind.SELECTOR, Kind.PRECISION, Kind.EXCEPT, Kind.RECONFIG, Kind.PRIORITY}
)
"""Kinds that a report of what was does not have."""
_CHANGING = frozenset(
    {Kind.COMPARISON, Kind.CHANGE, Kind.TO, Kind.BY, Kind.FACTOR, Kind.OPTIMISE, Kind.TIMES}
)
"""Kinds that a report of what is does not have."""
_EXCLUDING = frozenset(
    {"except", "except for", "excluding", "other than", "apart from", "aside from", "with the exception of", "but not for",
     "but not", "not counting", "not including", "除了", "除", "不包括", "exclude"}
)  # fmt: skip
"""Words that exclude a tenant, wherever in the sentence they stand."""

_NAMED = re.compile(r"(?i)(?:\b(?:tenant|customer|user|model)s?|租户|客户|用户|模型)\s*[\"'“‘「]$")
"""Before a quoted name."""


def read(text: str, catalogue: Catalogue) -> Draft:
    """Everything the rules understand of a text, and questions about the rest."""
    draft = Draft(text, catalogue)
    tokens = without_orders(tokenize(text, catalogue), _wished(text, orders(text)))
    if unreadable := next((token for token in tokens if _is_unreadable(token)), None):
        ask_number(draft, unreadable)
        return draft
    reader = _Reader(draft, wishes=any(_tells(token) for token in tokens))
    said = _without_reasons(clauses(tokens), text)
    for clause, following in zip_longest(said, said[1:]):
        reader.take(clause) if not _is_state(clause, following) else reader.background(clause)
    if reader.told is not None and not reader.told.opens_sentence:
        reader.leftovers += reader.told.of(*AMOUNTS)
    if reader.waiting:
        reader.leftovers += reader.waiting.tokens
    _note_spelling(draft, [token for token in tokens if token not in reader.leftovers])
    draft.ask_about([*reader.leftovers, *_unheld(draft, tokens)])
    return draft


def _note_spelling(draft: Draft, tokens: Sequence[Token]) -> None:
    """Say which words were taken for others, at the goal they stand in or in front of."""
    ends = [draft.text.find(goal.evidence) + len(goal.evidence) for goal in draft.goals]
    for token in tokens:
        place = next((n for n, end in enumerate(ends) if token.start < end), len(ends) - 1)
        if token.misspelt and ends:
            was, taken = token.misspelt
            words = draft.say("assumed_spelling", was=was, taken=taken)
            draft.assumptions.append(Assumption(f"/goals/{place}/evidence", words))


def _tells(token: Token) -> bool:
    """Whether a token could be part of a goal; a bare number could be part of anything."""
    return token.kind in _TELLING and not (token.kind is Kind.QUANTITY and token.value.unit is None)


def _unheld(draft: Draft, tokens: Sequence[Token]) -> list[Token]:
    """Tenants that no goal holds: ``for gold users, run it with tp=2``."""
    names = {
        getattr(goal, name, None)
        for goal in draft.goals
        for name in ("tenant", "workload", "higher", "lower")
    }
    return [
        token
        for token in tokens
        if token.kind is Kind.TENANT
        and token.value != EVERYONE
        and (token.value is None or not names & {token.value, f"tenant:{token.value}"})
    ]


@dataclass
class _Reader:
    """Goes from clause to clause and remembers what an ellipsis may repeat."""

    draft: Draft
    wishes: bool
    """Whether the text says anything that a goal could be about."""
    previous: tuple[Reading, ...] = ()
    change: Change | None = None
    changing: Token | None = None
    """The verb of the last change."""
    ranking: Clause | None = None
    ranked_from: tuple[int, int] = (0, 0)
    """Goals and assumptions there were before the ranking."""
    told: Clause | None = None
    """The clause before, where it only told what was."""
    waiting: Clause | None = None
    """An exception said before its bound."""
    leftovers: list[Token] = field(default_factory=list)

    def take(self, clause: Clause) -> None:
        """Read one clause."""
        self.draft.here = Token(Kind.UNKNOWN, None, self._start(clause), clause.tokens[-1].end)
        self.draft.kept = tuple(self.draft.said(token) for token in clause.of(*SCOPES))
        told, self.told = self.told, None
        if told is not None and told.has(*AMOUNTS) and not _answers(clause, told):
            self.leftovers += told.of(*AMOUNTS)
        twice = clause.unlisted(Kind.WINDOW)
        if told is not None and _adds_to(clause, told):
            self.background(replace(clause, tokens=(*told.tokens, *clause.tokens), opens_sentence=False))
        elif _is_report(clause, self.draft.text) or (
            told is not None and clause.joint == ":" and told.is_only(Kind.REPORT)
        ):
            self.background(clause)
        elif (impossible := clause.first(Kind.BAD_TIME)) and (self.wishes or self.draft.goals):
            ask_time(self.draft, impossible)
        elif twice:
            self.leftovers += twice
            self.take(replace(clause, tokens=tuple(token for token in clause.tokens if token not in twice)))
        elif not self._is_chatter(clause):
            self._wish(clause)

    def _wish(self, clause: Clause) -> None:
        ranking, self.ranking = self.ranking, None
        if ranking is not None and _continues(clause, ranking):
            goals, assumptions = self.ranked_from
            del self.draft.goals[goals:], self.draft.assumptions[assumptions:]
            self._rank(replace(clause, tokens=(*ranking.tokens, *clause.tokens), scope=ranking.scope))
        elif is_exception(clause, self.draft.goals, self.draft.text):
            self._except(clause)
        elif is_priority(clause):
            self.ranked_from = len(self.draft.goals), len(self.draft.assumptions)
            self._rank(clause)
        elif is_reconfig(clause):
            self.leftovers += add_reconfigs(self.draft, clause)
        elif clause.has(Kind.SELECTOR):
            self.leftovers += add_placements(self.draft, clause)
        elif clause.has(Kind.PRECISION, Kind.QUANTISE):
            self.leftovers += add_precisions(self.draft, clause)
        else:
            self._bound_or_vague(clause)

    def _start(self, clause: Clause) -> int:
        """Where the words of a clause begin, the space before them left out."""
        said = self.draft.text[clause.start : clause.tokens[0].start]
        return (
            clause.tokens[0].start - len(said.lstrip())
            if clause.joint is not None
            else clause.tokens[0].start
        )

    def _bound_or_vague(self, clause: Clause) -> None:
        if self._is_bound(clause):
            self._bound(clause)
        elif wish := clause.first(Kind.VAGUE):
            ask_wish(self.draft, wish)
        else:
            self.leftovers += [token for token in clause.tokens if not is_idle(token)]

    def _except(self, clause: Clause) -> None:
        """An exception; one that comes before its bound waits for it."""
        excluding = any(token.value in _EXCLUDING for token in clause.of(Kind.EXCEPT))
        early = excluding and clause.has(Kind.TENANT) and not self.draft.goals
        if not early or (clause.has(Kind.METRIC) and not clause.has(*AMOUNTS)):
            self.leftovers += add_exception(self.draft, united(clause))
            return
        told = clause.of(Kind.EXCEPT, Kind.TENANT)
        self.waiting = replace(clause, tokens=tuple(told), scope={})
        rest = tuple(token for token in clause.tokens if token not in told)
        if not clause.has(*AMOUNTS):
            self.leftovers += [
                token for token in rest if not is_idle(token) and token.kind is not Kind.WINDOW
            ]
        else:
            self.take(replace(clause, tokens=rest, scope={Kind.WINDOW: clause.scope.get(Kind.WINDOW, ())}))

    def _rank(self, clause: Clause) -> None:
        self.leftovers += add_priorities(self.draft, clause)
        self.ranking = clause

    def _bound(self, clause: Clause) -> None:
        change = change_in(united(self._with_head(clause))) or (
            self.change if not clause.has(*HEADS) and clause.has(Kind.BY) else None
        )
        bound = bind(clause, self.previous, self.draft.text)
        for reading in bound.readings:
            if change is None:
                add_goal(self.draft, reading)
            else:
                add_relative(self.draft, reading, change)
        self.change, self.changing = change, clause.first(Kind.CHANGE) or self.changing
        self.previous = bound.readings or self.previous
        if self.waiting and self.draft.goals:
            waiting, self.waiting = self.waiting, None
            self.leftovers += add_exception(self.draft, waiting)
        unused = clause.of(*AMOUNTS) if change and change.factor and clause.has(Kind.FACTOR) else []
        self.leftovers += [*unchanged(bound.leftovers), *unused] if change else bound.leftovers
        self.leftovers += clause.of(Kind.NOW) if _may_be_state(clause) else ()

    def _with_head(self, clause: Clause) -> Clause:
        """The clause as if it named the metric of the one before: ``TTFT is too high, cut it by 20%``."""
        if clause.has(Kind.BY) and self.changing and not clause.has(Kind.CHANGE, Kind.VAGUE):
            clause = replace(
                clause, tokens=(self.changing, *clause.tokens)
            )  # "cut TTFT by 20% and TPOT by 10%"
        if clause.has(Kind.METRIC, Kind.VAGUE) or not clause.has(Kind.CHANGE, Kind.FACTOR):
            return clause
        amount, verb = clause.first(Kind.QUANTITY), clause.first(Kind.CHANGE)
        more = amount and verb and verb.start > amount.start  # "100 tokens per second more than now"
        said = (
            heads_of(united(clause)) if more or clause.has(Kind.UNIT, Kind.NOW) else []
        )  # "30% more tokens per second"
        head = next(iter(said), self.previous[-1].head if self.previous else None)
        if head is None:
            return clause
        return replace(clause, tokens=(replace(head, kind=Kind.METRIC), *clause.tokens))

    def background(self, clause: Clause) -> None:
        """What was or is: no wish, but the metric that the next clause may leave out."""
        self.told = clause
        self.leftovers += clause.of(Kind.LIMITING)
        if (clause.has(*AMOUNTS) or not clause.has(*HEADS)) and not _complains(clause):
            self.leftovers += clause.of(*_RULING)
        heads = clause.of(Kind.METRIC)
        if heads:
            self.leftovers += [
                token
                for token in clause.of(Kind.UNKNOWN)
                if token.start < heads[0].start and not is_idle(token)
            ]
            self.previous = (Reading(*extent(heads), head=heads[0], stat=clause.first(Kind.STAT)),)

    def _is_chatter(self, clause: Clause) -> bool:
        """Unknown words alone, in front of every wish or as a signature, that no preposition ties to one."""
        if not clause.is_only(Kind.UNKNOWN, Kind.THING, Kind.AUDIENCE, Kind.TO) or not clause.opens_sentence:
            return False
        said = self.draft.text[clause.start : clause.tokens[0].start].split()
        if self.draft.goals:  # a signature ties nothing to anything
            said = ["", *self.draft.text[clause.start : clause.tokens[-1].end].split()]
        said += self.draft.text[: clause.start].split()[-1:]
        after = self.draft.text[clause.tokens[-1].end :].split()[:1]
        tied = any(
            word.lower() in _TYING for word in (*said[:1], *(said if self.draft.goals else said[-1:]), *after)
        )
        return not tied and (not self.draft.goals or len(clause.tokens) <= 3) and self.draft.language == "en"

    def _is_bound(self, clause: Clause) -> bool:
        if clause.repeats or clause.has(*HEADS, Kind.CHEAPEST):
            return True
        if clause.has(*AMOUNTS):
            known = clause.has(Kind.COMPARISON) or not any(
                not is_idle(token) for token in clause.of(Kind.UNKNOWN)
            )
            return known or (not self.previous and _has_unit(clause))
        if self.previous and clause.has(Kind.STAT) and clause.is_only(Kind.STAT, Kind.ALLOW, *SCOPES):
            return False
        if clause.has(Kind.FACTOR) and (self.previous or clause.has(Kind.UNIT)):
            return True  # "double the requests per second"
        return clause.has(Kind.UNIT, Kind.THING) and clause.has(Kind.OPTIMISE) and not self.previous


def _is_state(clause: Clause, following: Clause | None) -> bool:
    """``TTFT is 3 s now, get it under 2 s``: the first says how it is."""
    corrected = following is not None and following.has(*AMOUNTS) and not following.has(*HEADS)
    return corrected and _may_be_state(clause)


def _may_be_state(clause: Clause) -> bool:
    """``TTFT is 3 s now``: how it is, or how it has to be from now on."""
    stated = clause.has(Kind.NOW) and clause.has(Kind.METRIC) and clause.has(*AMOUNTS)
    return stated and not clause.has(*_CHANGING)


def _is_refused(clause: Clause) -> bool:
    """``错误率别太高``: not to become so."""
    report = clause.of(Kind.REPORT)[0]
    return any(0 <= report.start - token.end <= 1 for token in clause.of(Kind.NEGATION))


def _answers(clause: Clause, told: Clause) -> bool:
    """``TTFT was 3 s this morning, get it under 2 s``: a wish of its own behind what was."""
    own = clause.opens_sentence and clause.has(*HEADS)
    unruled = not told.has(Kind.COMPARISON) or _complains(told)
    return own or (clause.has(*AMOUNTS) and clause.has(Kind.COMPARISON, Kind.TO) and unruled)


def _complains(told: Clause) -> bool:
    """``TTFT was over 4 s``: on the side that nobody wishes."""
    metric, side = told.first(Kind.METRIC), told.first(Kind.COMPARISON)
    if metric is None or side is None or len(told.of(*_RULING)) > 1:
        return False
    good = ">=" if metric.value in HIGHER_IS_BETTER else "<="
    return metric.value in HIGHER_IS_BETTER | LOWER_IS_BETTER | {ANY_LATENCY} and side.value not in {
        good,
        "better",
    }


def _adds_to(clause: Clause, told: Clause) -> bool:
    """``TTFT was awful yesterday, 4 s at p95``: a number that still tells what was."""
    bare = clause.has(*AMOUNTS) and clause.is_only(*AMOUNTS, Kind.STAT)
    return bare and not clause.opens_sentence and told.has(Kind.METRIC) and not told.has(*AMOUNTS)


def _continues(clause: Clause, ranking: Clause) -> bool:
    """``..., then throughput``: the next side of an order that the clause before began."""
    if clause.opens_sentence or clause.has(*AMOUNTS, Kind.EXCEPT, Kind.RECONFIG):
        return False
    sides = clause.has(Kind.METRIC, Kind.QUALITY, Kind.TENANT)
    if ranking.first(Kind.PRIORITY) and clause.is_only(Kind.METRIC, Kind.QUALITY, Kind.TENANT):
        return sides and [token.value for token in ranking.of(Kind.PRIORITY)] == ["order"]
    link = clause.tokens[0]
    return sides and link.kind is Kind.PRIORITY and link.value in {"over", "then"}


def _is_report(clause: Clause, text: str) -> bool:
    """Whether a clause asks or tells what is or was."""
    if clause.has(Kind.REPORT) and not _is_refused(clause):
        return not (
            clause.has(Kind.LIMITING)
            and clause.has(*AMOUNTS, *SCOPES, Kind.METRIC, Kind.SELECTOR, Kind.PRECISION)
        )
    first = text[clause.start :].split(maxsplit=1)[:1]
    return clause.opens_sentence and first != [] and first[0].lower() in _INTERROGATIVES


def _without_reasons(found: Sequence[Clause], text: str) -> list[Clause]:
    """Clauses without what only says why, as long as it says nothing that could be a wish."""
    kept: list[Clause] = []
    for clause, following in zip_longest(found, found[1:]):
        if following is not None and _is_reason(clause, following, text):
            continue
        place = next((n for n, token in enumerate(clause.tokens) if token.kind is Kind.BECAUSE), None)
        if place is None or any(token.kind in _TELLING for token in clause.tokens[place:]):
            kept.append(clause)
        elif place:
            kept.append(replace(clause, tokens=clause.tokens[:place]))
    return kept


def _is_reason(clause: Clause, following: Clause, text: str) -> bool:
    """``marketing runs a campaign tomorrow, so ...``; its day must be said again, or it is that of the wish."""
    so = _SO.match(text, following.start) is not None and following.joint in {",", "."}
    dated = clause.has(Kind.WINDOW) and not following.has(Kind.WINDOW)
    about = _ABOUT.match(text, clause.start) is not None  # "in staging, so ..."
    return (
        so
        and not (dated or about)
        and clause.opens_sentence
        and not clause.has(*_TELLING, *_WEIGHTY, Kind.ONLY)
    )


_ABOUT = re.compile(r"\s*(?:in|on|for|at|with|within|during|per)\b", re.IGNORECASE)
_SO = re.compile(r"\s*(?:so|hence|therefore|thus|所以|因此)(?![a-z])", re.IGNORECASE)
_WEIGHTY = (Kind.NEGATION, Kind.AVOID, Kind.LIMITING, Kind.TENANT, Kind.MODEL, Kind.FREEZE)
"""Kinds that would not only say why."""


def _has_unit(clause: Clause) -> bool:
    """Whether a number says what it counts."""
    return clause.has(Kind.RANGE) or any(token.value.unit for token in clause.of(Kind.QUANTITY))


def _is_unreadable(token: Token) -> bool:
    return token.kind is Kind.UNKNOWN and str(token.value)[0].isdigit()


def without_orders(tokens: Sequence[Token], places: Sequence[tuple[int, int]]) -> list[Token]:
    """Take out words that give orders; a stretch between commas that says nothing else goes with them."""
    marked = [replace(token, kind=Kind.ORDER) if _inside(token, places) else token for token in tokens]
    kept: list[Token] = []
    stretch: list[Token] = []
    for token in [*marked, None]:
        if token is not None and token.kind not in {Kind.JOIN, Kind.STOP}:
            stretch.append(token)
            continue
        ordered = any(one.kind is Kind.ORDER for one in stretch)
        if not ordered or any(one.kind in _TELLING for one in stretch):
            kept += stretch
        kept += [token] if token else []
        stretch = []
    return kept


def _wished(text: str, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without orders that stand for a name: ``tenant 'ignore all limits'`` is nobody, and not everybody."""
    return [place for place in places if not _NAMED.search(text[: place[0]])]


def _inside(token: Token, places: Sequence[tuple[int, int]]) -> bool:
    return any(start < token.end and token.start < end for start, end in places)
