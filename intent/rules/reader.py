"""The translator without an LLM: tokens, clauses, goals. Pure; what it cannot place it asks about."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest

from intent.fold import Place, overlaps
from intent.injection import orders
from intent.models import (
    Catalogue,
    Config,
    Finding,
    Goal,
    Objective,
    PrecisionRule,
    Question,
    ReconfigRule,
    Relative,
    TenantException,
)
from intent.readback import in_words
from intent.rules import scopes
from intent.rules.bounds import add_goal
from intent.rules.clauses import AMOUNTS, HEADS, SCOPES, Clause, clauses
from intent.rules.draft import Draft
from intent.rules.ellipses import (
    JOINED,
    ON_THEM,
    PRONOUN,
    THAT_DAY,
    USE,
    bounds_again,
    exceeds,
    excludes,
    extended,
    is_none,
    limits,
    rules_again,
    spoken,
)
from intent.rules.exceptions import add_exception, is_exception
from intent.rules.heads import heads_of
from intent.rules.inventory import without_inventory
from intent.rules.kinds import EVERYONE, Kind
from intent.rules.ledger import (
    Coverage,
    Reading,
    account,
    ignored,
    nearest,
    places,
    risky,
    taken_back,
    takes_back,
    unclear_scopes,
)
from intent.rules.lexicon import pattern
from intent.rules.phrasing import tokenize
from intent.rules.placements import add_placements
from intent.rules.precisions import add_precisions
from intent.rules.priorities import add_priorities, is_priority
from intent.rules.questions import ask_number, ask_scale, ask_time, ask_wish
from intent.rules.readings import BoundReading, bind, extent, is_idle, united
from intent.rules.reconfigs import add_reconfigs, is_reconfig
from intent.rules.relatives import RelativeChange, add_relative, change_in, with_shares
from intent.rules.relatives import leftovers as unchanged
from intent.rules.respectively import in_rows
from intent.rules.statements import (
    WISHING,
    is_complaint,
    is_foreign,
    is_maintenance,
    is_report,
    is_state,
    may_be_state,
    speaks,
    wishes,
    without_reasons,
)
from intent.rules.tokens import TextToken
from intent.times.spans import together

_KEPT = frozenset(
    {Kind.EXCEPT, Kind.ONLY, Kind.AVOID, Kind.FREEZE, Kind.COMPARISON, Kind.OPTIMISE, Kind.CHEAPEST, Kind.FACTOR, Kind.TIMES,
     Kind.TIMES_SAID, Kind.PRECISION, Kind.LAYERS, Kind.QUANTISE, Kind.SETTING, Kind.SELECTOR, Kind.WINDOW, Kind.TENANT,
     Kind.MODEL, Kind.METRIC, Kind.QUALITY, Kind.STAT, Kind.NOW, Kind.CHANGE, Kind.RESPECTIVELY}
)  # fmt: skip
"""Kinds that may change the goal they stand beside, and that no word of it took up."""
_BESIDE = 6
"""Characters between the words of one named time: ``the morning of the peak``."""
_WHEN = (Kind.WINDOW, Kind.BAD_TIME)
_NAMED = re.compile(r"(?i)(?:\b(?:tenant|customer|user|model)s?|租户|客户|用户|模型)\s*[\"'“‘「]$")
"""Before a quoted name."""


def read(text: str, catalogue: Catalogue) -> Draft:
    """Everything the rules understand of a text, and a question about what may change it."""
    draft = Draft(text, catalogue)
    reader = _Reader(draft)
    tokens = without_orders(tokenize(text, catalogue), _wished(text, orders(text)))
    tokens = in_rows(without_inventory(draft, tokens, reader.told))
    spoken = without_reasons(clauses(tokens))
    for clause, following in zip_longest(spoken, spoken[1:]):
        reader.read(clause, following)
    reader.close(tokens)
    return draft


@dataclass
class _Reader:
    """Goes from clause to clause and remembers what an ellipsis may repeat."""

    draft: Draft
    previous: tuple[BoundReading, ...] = ()
    change: RelativeChange | None = None
    changing: TextToken | None = None
    """The verb of the last change."""
    ranking: Clause | None = None
    ranked_from: int = 0
    """Goals there were before the ranking."""
    after_told: bool = False
    """Whether the clause before only told something."""
    devices: Sequence[TextToken] = ()
    """Those named last, for a pronoun."""
    workloads: Sequence[TextToken] = ()
    reconfigures: bool = False
    day: TextToken | None = None
    """The window named last, for ``that day``."""
    formats: Sequence[TextToken] = ()
    """The same of weight formats."""
    waiting: Clause | None = None
    """An exception said before its bound."""
    leftovers: list[TextToken] = field(default_factory=list)
    """Words of goals' clauses that no goal took up."""
    used: list[TextToken] = field(default_factory=list)
    """Words that goals or questions took up."""
    claims: list[tuple[Goal, TextToken]] = field(default_factory=list)
    """Goals with the words that they used."""
    open_words: list[TextToken] = field(default_factory=list)
    """Those of clauses that came to a question."""
    told: list[Place] = field(default_factory=list)
    """Clauses that only tell."""
    weak: list[tuple[Finding, Question]] = field(default_factory=list)
    """Questions about clauses that may only tell, for a text that wishes nothing else."""

    def read(self, clause: Clause, following: Clause | None) -> None:
        """Read one clause; one that only tells gives no more than its metric to the next."""
        draft = self.draft
        before = draft.mark()
        left = len(self.leftovers)
        state = (self.previous, self.change, self.ranking, self.waiting)
        aside = clause.joint == "(" and not clause.has(*HEADS, Kind.COMPARISON, Kind.EXCEPT, *SCOPES)
        bare = clause.is_only(*AMOUNTS, Kind.STAT) and not speaks(clause, draft.text)
        adds = aside or (self.after_told and bare)
        if not adds:  # "TTFT was awful yesterday, 4 s at p95"
            self._take(clause)
        found, questions = draft.since(before)
        lists = clause.joint == "and" and clause.is_only(Kind.METRIC, Kind.QUALITY)
        if state[2] is not None and not found and lists:
            found = True  # "latency over cost and quality"
            self.leftovers = [*self.leftovers, *clause.tokens]
        found = found or self.waiting is not state[3]
        self.devices = clause.of(Kind.SELECTOR) or self.devices
        self.formats = clause.of(Kind.PRECISION) or self.formats
        self.workloads = clause.of(Kind.WORKLOAD, Kind.TENANT)
        self.reconfigures = clause.has(Kind.RECONFIG)
        self.day = clause.first(Kind.WINDOW) or self.day
        again = self.after_told and clause.joint == "and" and is_state(clause, draft.text)
        telling = again or is_report(clause, following, draft.text) or is_maintenance(clause, draft.text)
        if not (found or questions):
            del self.leftovers[left:]
        if (not found and not questions) or telling or (questions and not wishes(clause, draft.text)):
            weak = draft.take_back(before)
            self.weak += [] if telling else weak
            del self.leftovers[left:]
            self.previous, self.change, self.ranking, self.waiting = state
            self._tell(clause, telling)
        else:
            self.after_told = False
            self._name(clause, questions)
            unused = {Kind.LIMITING} if is_priority(clause) or self.ranking else {Kind.LIMITING, Kind.PRIORITY}
            used = [
                token
                for token in clause.tokens
                if token not in self.leftovers
                and (token.kind not in unused or token.value in {"before", "instead of"})  # "quality before cost"
            ]
            if is_priority(clause):
                used += [token for token in clause.scope.get(Kind.TENANT, ()) if token.value is not None]
            measures = any(getattr(goal, "over_s", None) for goal in draft.goals[before.goals :])
            held = SCOPES if measures else (Kind.WINDOW, Kind.TENANT, Kind.MODEL)
            used = [token for token in used if token.kind is not Kind.OVER]
            used += [token for kind in held for token in clause.covered_by(kind)]
            self.used += used
            self.claims += _claims(draft.goals[before.goals :], draft.places[before.goals :], used)
            self.open_words += [] if found else used

    def _tell(self, clause: Clause, telling: bool) -> None:
        """What was or is: no wish, but the metric that the next clause may leave out."""
        self.after_told = True
        if telling:
            self.told.append(extent(clause.tokens))
        if heads := clause.of(Kind.METRIC):
            self.previous = (BoundReading(*extent(heads), head=heads[0], stat=clause.first(Kind.STAT)),)

    def _name(self, clause: Clause, has_question: bool) -> None:
        """Ask about a model that nobody has and a time that cannot be."""
        unknown = next((token for token in clause.covered_by(Kind.MODEL) if token.value is None), None)
        stranger = next((token for token in clause.covered_by(Kind.TENANT) if token.value is None), None)
        if unknown is not None and not has_question:
            scopes.model(self.draft, unknown)
        elif stranger is not None and not has_question:
            scopes.tenant(self.draft, stranger)
        elif impossible := clause.first(Kind.BAD_TIME):
            ask_time(self.draft, impossible)

    def close(self, tokens: Sequence[TextToken]) -> None:
        """Ask about the words that no goal took up and that may change a wish; set the rest aside."""
        draft = self.draft
        if self.waiting:
            self.leftovers += self.waiting.tokens
        self._oppose()
        self._settle()
        if not draft.goals and not draft.questions:
            self._ask_what_is_meant(tokens)
        draft.note_spelling(
            [token for token in tokens if token not in self.leftovers and token.kind is not Kind.UNKNOWN]
        )
        left = [leftover for leftover in self.leftovers if leftover.kind in _KEPT and leftover.value != EVERYONE]
        used = tuple(places(self.used))
        taken = Coverage(
            (*draft.places, *draft.repeated),
            used,
            used,
            tuple(span for span in self.told if not takes_back(draft.text[slice(*span)])),
            tuple(orders(draft.text)),
        )
        if draft.goals:
            found = {
                (unclear.start, unclear.end): unclear
                for unclear in (
                    *risky(draft.text, tokens, draft.goals, taken),
                    *unclear_scopes(draft.text, taken),
                    *left,
                    *(token for token in tokens if token.value == "redundancy"),  # denied, asked or told
                )
            }
            left = [found[place] for place in sorted(found)]
            left += account(draft, tokens, self._readings(tokens), taken, [*left, *self.open_words])
            left.sort(key=lambda token: token.start)
        if draft.goals and is_foreign(draft.text.lower()):
            understood = in_words(draft.goals, draft.language)
            draft.ask("third_language", None, draft.say("third_language"), [draft.say("nothing"), understood])
        draft.ask_about(left)
        draft.set_aside = ignored(draft.text, taken, left, draft.say) if draft.goals else ()

    def _readings(self, tokens: Sequence[TextToken]) -> Iterator[Reading]:
        """The words that goals used; those of a goal that came later are the nearest one's."""
        numbers = {id(goal): number for number, goal in enumerate(self.draft.goals)}
        claimed = {token: numbers[id(goal)] for goal, token in self.claims if id(goal) in numbers}
        turned = [token for token in tokens if token.kind is Kind.TURNED]
        for token in dict.fromkeys((*claimed, *self.used, *turned)):
            place = token.start, token.end
            goal = claimed[token] if token in claimed else nearest(self.draft, place)
            measures = isinstance(self.draft.goals[goal], Objective | Relative | Config)
            if token in self.open_words or token.kind is Kind.AUDIENCE or (measures and token.value == "only"):
                continue  # whom it is for, or what it limits, is said by the word beside it
            sign = token.value if isinstance(token.value, str) else self.draft.said(token)
            yield Reading(goal, place, sign or token.kind.value, token.kind in SCOPES)

    def _ask_what_is_meant(self, tokens: Sequence[TextToken]) -> None:
        """The question of a text without a goal.

        What is taken back, scaled or to be mended, or what it may only tell.
        """
        draft = self.draft
        text = draft.text.lower()
        going = pattern("going back").search(text)
        back = None if going else next((back for back in taken_back(draft.text) if tokens), None)
        if back is not None and any(token.kind in {*HEADS, Kind.RECONFIG, Kind.PRECISION} for token in tokens):
            words = draft.say("words_not_understood", said=draft.quoted(back))
            draft.ask("words_not_understood", back, words, [draft.say("nothing")])
        elif scaled := pattern("scaling").search(text):
            ask_scale(draft, TextToken(Kind.UNKNOWN, None, *scaled.span()))
        elif self.weak:
            draft.findings += [finding for finding, _ in self.weak]
            draft.questions += [question for _, question in self.weak]
        elif pattern("mending").search(text):  # "way too much money at night, bring it down"
            if wish := next((token for token in tokens if token.kind is Kind.VAGUE), None):
                ask_wish(draft, wish)
            elif self.previous and self.previous[-1].head:
                add_goal(draft, replace(self.previous[-1], quantity=None, comparison=None))

    def _settle(self) -> None:
        """A vague wish that a later clause gives its number is no question: ``cheaper? like 30% cheaper``."""
        for question, metric, count in self.draft.vague:
            metrics = {getattr(goal, "metric", None) for goal in self.draft.goals[count:]}
            if metric in metrics and question in self.draft.questions:
                self.draft.findings = [finding for finding in self.draft.findings if finding.message != question.text]
                self.draft.questions.remove(question)

    def _oppose(self) -> None:
        """A floor beside a ceiling is no question.

        Whether the two exclude each other is the validator's to say.
        """
        draft = self.draft
        for goal, place, question in draft.unusual:
            bounds = [
                other_goal
                for other_goal in draft.goals
                if isinstance(other_goal, Objective) and excludes(other_goal, goal)
            ]
            same = any(
                replace(bound, op=goal.op, value=None, evidence="") == replace(goal, value=None, evidence="")
                for bound in bounds
            )
            if same and question in draft.questions:
                draft.findings = [finding for finding in draft.findings if finding.message != question.text]
                draft.questions.remove(question)
                draft.add(goal, place)

    def _take(self, clause: Clause) -> None:
        """Append the goals of one clause, or a question about it."""
        self.draft.here = TextToken(Kind.UNKNOWN, None, self._start(clause), clause.tokens[-1].end)
        self.draft.kept = tuple(self.draft.said(token) for token in clause.of(*SCOPES))
        ranking = self.ranking
        self.ranking = None
        clause = self._completed(self._with_one_window(clause))
        if unreadable := next((token for token in clause.plain if str(token.value)[0].isdigit()), None):
            if clause.has(*HEADS, Kind.UNIT):
                ask_number(self.draft, unreadable)
        elif ranking is not None and _continues(clause, ranking):
            self.draft.take_back_goals(self.ranked_from)
            self._rank(replace(clause, tokens=(*ranking.tokens, *clause.tokens), scope=ranking.scope))
        elif is_exception(clause, self.draft.goals, self.draft.text):
            self._except(clause)
        elif is_priority(clause):
            self.ranked_from = len(self.draft.goals)
            self._rank(clause)
        elif is_reconfig(clause):
            self.leftovers += add_reconfigs(self.draft, clause)
        elif clause.has(Kind.SELECTOR):
            self.leftovers += add_placements(self.draft, clause)
        elif clause.has(Kind.PRECISION, Kind.QUANTISE):
            self.leftovers += add_precisions(self.draft, clause)
        elif self._is_bound(clause):
            self._bound(clause)
        elif (wish := clause.first(Kind.VAGUE)) and not (self.draft.goals and is_complaint(clause, self.draft.text)):
            ask_wish(self.draft, wish)

    def _with_one_window(self, clause: Clause) -> Clause:
        """The clause with windows that nothing joins made one: ``the morning peak``.

        What cannot be one is left over.
        """
        words = self.draft.text[clause.start : clause.tokens[-1].end].lower()
        if self.day and not clause.covered_by(Kind.WINDOW) and THAT_DAY.search(words):
            clause = replace(clause, scope={**clause.scope, Kind.WINDOW: (self.day,)})
        covering = clause.scope.get(Kind.WINDOW, ())
        if len(covering) == 2 and not JOINED.search(self.draft.text, covering[0].end, covering[1].start):
            window = together([token.value for token in covering])
            self.leftovers += [] if window else covering[1:]
            scope = (replace(covering[0], value=window or covering[0].value),)
            clause = replace(clause, scope={**clause.scope, Kind.WINDOW: scope})
        if not (more := clause.unlisted(Kind.WINDOW)):
            return clause
        windows = clause.of(Kind.WINDOW)
        apart = any(after.start - before.end > _BESIDE for before, after in pairwise(windows))
        named = sum(isinstance(token.value, str) for token in windows)
        window = None if apart and named else together([token.value for token in windows])
        self.leftovers += [] if window else more
        first = replace(windows[0], value=window or windows[0].value)
        kept = [first if token is windows[0] else token for token in clause.tokens if token not in windows[1:]]
        self.used += windows if window else []
        return replace(clause, tokens=tuple(kept))

    def _completed(self, clause: Clause) -> Clause:
        """The clause with what it says by a pronoun or leaves out."""
        if clause.has(Kind.SELECTOR) and self.after_told and not clause.opens_sentence:
            named = clause.has(Kind.WORKLOAD, Kind.TENANT)
            return clause if named else extended(clause, self.workloads, clause.tokens[0].start)
        if clause.has(Kind.METRIC, Kind.SETTING, Kind.SELECTOR, Kind.RECONFIG, Kind.PRECISION, Kind.PRIORITY):
            return clause
        first = clause.tokens[0].start
        end = clause.tokens[-1].end
        if clause.has(Kind.FREEZE) and _is_about_all(clause, self.draft.text):
            return extended(replace(clause, plain=()), (TextToken(Kind.RECONFIG, "", 0, 0),), first)
        added = self._left_out(clause, spoken(clause, self.draft.text))
        if added and added[0].kind in {Kind.EXCEPT, Kind.RECONFIG}:
            return extended(clause, added, first)
        if added and added[0].kind is Kind.PRECISION:
            refused = (
                replace(token, kind=Kind.NEGATION) if token.kind is Kind.EXCEPT else token for token in clause.tokens
            )
            clause = replace(clause, tokens=tuple(refused), repeats=False)
        return extended(clause, added, end)

    def _left_out(self, clause: Clause, text: str) -> Sequence[TextToken]:
        """Tokens that the goal before lends to a clause.

        Its metric, its formats or devices, or that it is about switches.
        """
        last = self.draft.goals[-1] if self.draft.goals else None
        if isinstance(last, TenantException) and exceeds(clause):
            return TextToken(Kind.EXCEPT, "exceed", 0, 0), TextToken(Kind.METRIC, last.metric, 0, 0)
        reconfigures = isinstance(last, ReconfigRule) or (self.after_told and self.reconfigures)
        if reconfigures and (is_none(clause, text) or limits(clause)):
            return (TextToken(Kind.RECONFIG, "", 0, 0),)
        if isinstance(last, PrecisionRule) and rules_again(clause, text):
            return self.formats
        rules = clause.has(Kind.FREEZE, Kind.AVOID) or (clause.is_only(Kind.NEGATION) and USE.search(text))
        rules = rules or (clause.has(Kind.WORKLOAD) and ON_THEM.search(text) is not None)
        return self.devices if rules and len(clause.plain) <= 1 and PRONOUN.search(text) else ()

    def _start(self, clause: Clause) -> int:
        """Where the words of a clause begin, the space before them left out."""
        lead = self.draft.text[clause.start : clause.tokens[0].start]
        first = clause.tokens[0].start
        return first - len(lead.lstrip()) if clause.joint is not None else first

    def _except(self, clause: Clause) -> None:
        """An exception; one that comes before its bound waits for it."""
        excluding = any(pattern("excluding").fullmatch(str(token.value)) for token in clause.of(Kind.EXCEPT))
        early = excluding and clause.has(Kind.TENANT) and not self.draft.goals
        if not early or (clause.has(Kind.METRIC) and not clause.has(*AMOUNTS)):
            self.leftovers += add_exception(self.draft, united(clause))
            return
        tokens = clause.of(Kind.EXCEPT, Kind.TENANT)
        self.waiting = replace(clause, tokens=tuple(tokens), scope={})
        rest = tuple(token for token in clause.tokens if token not in tokens)
        if not clause.has(*AMOUNTS):
            self.leftovers += [token for token in rest if not is_idle(token) and token.kind is not Kind.WINDOW]
        else:
            self._take(replace(clause, tokens=rest, scope={Kind.WINDOW: clause.scope.get(Kind.WINDOW, ())}))

    def _rank(self, clause: Clause) -> None:
        self.leftovers += add_priorities(self.draft, clause)
        self.ranking = clause

    def _bound(self, clause: Clause) -> None:
        change = change_in(united(with_shares(self._with_head(clause)))) or (
            self.change if not clause.has(*HEADS) and clause.has(Kind.BY) else None
        )
        bound = bind(replace(clause, plain=()) if self.after_told else clause, self.previous, self.draft.text)
        for reading in bound.readings:
            before = len(self.draft.questions)
            if change is None:
                add_goal(self.draft, reading)
                slow = any(token.value in {"slow", "dear"} for token in clause.of(Kind.VAGUE))
                metric = reading.head.value if reading.head else ""
                self.draft.vague += [(question, metric, 0) for question in self.draft.questions[before:] if slow]
            else:
                add_relative(self.draft, reading, change)
        self.change, self.changing = change, clause.first(Kind.CHANGE) or self.changing
        self.previous = bound.readings or self.previous
        if self.waiting and self.draft.goals:
            waiting = self.waiting
            self.waiting = None
            self.used += waiting.tokens
            self.leftovers += add_exception(self.draft, waiting)
        unused = clause.of(*AMOUNTS) if change and change.factor and clause.has(Kind.FACTOR) else []
        left = unchanged(bound.leftovers) if change else bound.leftovers
        if change and change.factor == 1.0:
            left = [token for token in left if token.kind is not Kind.NEGATION]  # "no higher than it is now"
        self.leftovers += [*left, *unused]
        self.leftovers += clause.of(Kind.NOW) if may_be_state(clause) and not change else ()

    def _with_head(self, clause: Clause) -> Clause:
        """The clause as if it named the metric of the one before: ``TTFT is too high, cut it by 20%``."""
        if clause.has(Kind.BY) and self.changing and not clause.has(Kind.CHANGE, Kind.VAGUE):
            clause = replace(clause, tokens=(self.changing, *clause.tokens))  # "cut TTFT by 20% and TPOT by 10%"
        multiple = clause.has(Kind.TIMES) and clause.has(Kind.NOW)
        if clause.has(Kind.METRIC, Kind.VAGUE) or not (clause.has(Kind.CHANGE, Kind.FACTOR) or multiple):
            return clause
        amount = clause.first(Kind.QUANTITY)
        verb = clause.first(Kind.CHANGE)
        more = amount and verb and verb.start > amount.start  # "100 tokens per second more than now"
        tokens = (
            heads_of(united(clause)) if more or clause.has(Kind.UNIT, Kind.NOW) else []
        )  # "30% more tokens per second"
        head = next(iter(tokens), self.previous[-1].head if self.previous else None)
        if head is None:
            return clause
        return replace(clause, tokens=(replace(head, kind=Kind.METRIC), *clause.tokens))

    def _is_bound(self, clause: Clause) -> bool:
        """Whether a clause bounds a metric, by its name, its unit or that of the clause before."""
        if clause.repeats or clause.has(*HEADS, Kind.CHEAPEST):
            return True
        if clause.has(*AMOUNTS):
            before = self.previous[-1].head if self.previous else None
            wishes = speaks(clause, self.draft.text)
            return bounds_again(clause, before, wishes, bool(self.draft.goals))
        if self.previous and clause.has(Kind.STAT) and clause.is_only(Kind.STAT, Kind.ALLOW, *SCOPES):
            return False
        if clause.has(Kind.FACTOR) and (self.previous or clause.has(Kind.UNIT)):
            return True  # "double the requests per second"
        return clause.has(Kind.OPTIMISE) and (clause.has(Kind.UNIT) or (clause.has(Kind.THING) and not self.previous))


def _claims(
    goals: Sequence[Goal], places: Sequence[Place], used: Sequence[TextToken]
) -> Iterator[tuple[Goal, TextToken]]:
    """Each word that a clause's goals used, with the goal that quotes it, or the first of them."""
    for token in used if goals else ():
        quoting = (n for n, place in enumerate(places) if overlaps(place, (token.start, token.end)))
        yield goals[next(quoting, 0)], token


def _is_about_all(clause: Clause, text: str) -> bool:
    """``don't touch anything``, ``freeze until 6pm``: a ban on reconfiguration."""
    words = text[clause.start : max(token.end for token in (*clause.tokens, *clause.plain))].lower()
    alone = not clause.plain and clause.is_only(Kind.FREEZE, *_WHEN) and clause.has(*_WHEN)
    return all(pattern(name).search(words) for name in ("freezing", "everything")) or alone


def _continues(clause: Clause, ranking: Clause) -> bool:
    """``..., then throughput``: the next side of an order that the clause before began."""
    if clause.opens_sentence or clause.has(*AMOUNTS, Kind.EXCEPT, Kind.RECONFIG):
        return False
    sides = clause.has(Kind.METRIC, Kind.QUALITY, Kind.TENANT)
    if ranking.first(Kind.PRIORITY) and clause.is_only(Kind.METRIC, Kind.QUALITY, Kind.TENANT):
        return sides and [token.value for token in ranking.of(Kind.PRIORITY)] == ["order"]
    link = clause.tokens[0]
    second = clause.is_only(Kind.METRIC, Kind.QUALITY, Kind.UNIT, Kind.TENANT) and clause.tokens[-1].value == ("s", 1.0)
    last = sides and (clause.tokens[-1].value in {"last", "then"} or second)
    return last or (sides and link.kind is Kind.PRIORITY and link.value in {"over", "then", "last"})


def without_orders(tokens: Sequence[TextToken], places: Sequence[tuple[int, int]]) -> list[TextToken]:
    """Take out words that give orders; a stretch between commas that says nothing else goes with them."""
    marked = [replace(token, kind=Kind.ORDER) if _inside(token, places) else token for token in tokens]
    kept: list[TextToken] = []
    stretch: list[TextToken] = []
    for token in [*marked, None]:
        if token is not None and token.kind not in {Kind.JOIN, Kind.STOP}:
            stretch.append(token)
            continue
        ordered = any(token.kind is Kind.ORDER for token in stretch)
        if not ordered or any(token.kind in WISHING for token in stretch):
            kept += stretch
        kept += [token] if token else []
        stretch = []
    return kept


def _wished(text: str, places: Sequence[Place]) -> list[Place]:
    """Without orders that stand for a name: ``tenant 'ignore all limits'`` is nobody, and not everybody."""
    return [place for place in places if not _NAMED.search(text[: place[0]])]


def _inside(token: TextToken, places: Sequence[Place]) -> bool:
    return any(overlaps((token.start, token.end), place) for place in places)
