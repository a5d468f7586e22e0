"""What became of the words of a text: a goal used them, they are asked about or set aside. Pure.

Words that turn a meaning are a closed class, ``turning.yaml``: in the clause of a goal none is passed over. What else may change
a wish is in ``risky.yaml``, with its reasons. All other words are harmless: a person sees them in the read-back.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from intent.fold import Place, fold, overlaps
from intent.models import Goal, Objective, Placement, Priority, SetAside, TenantException, Turn
from intent.rules import lexicon
from intent.rules.draft import Draft
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, EVERYONE, Kind
from intent.rules.tokens import TextToken
from intent.tables import table
from intent.times.spans import REST

_CLAUSE_END = re.compile(
    r":(?!\d)|[,;!?()\[\]\n，。；：！？（）【】、…~～]|\.(?=\s|$|\.)|\s[-–—]+\s|——|[\u2600-\u27bf\U0001f000-\U0001faff]\ufe0f?"
)
"""Punctuation and emoji."""
_BARE = frozenset({Kind.METRIC, Kind.COMPARISON})
_STAMP = lexicon.pattern("chat stamp")
"""When somebody said a line of a chat that was pasted."""
_ARTICLE = 5
"""Characters between a preposition and the goal that it leads to: ``with the``."""
_BEFORE = 10
"""Characters between a word that turns a goal round and the goal behind it."""
_AFTER = 2
"""Characters between a goal and such a word behind it."""
_NEVER_TOLD = frozenset({"limiters", "conditions", "frequency and phase", "condition", "exception", "share"})
"""Parts of the class that wish something, even where they were taken for what only tells."""
_LATENCIES = frozenset({"ttft", "tpot", "e2e", ANY_LATENCY})
_THROUGHPUTS = frozenset({"throughput_tok", "throughput_req", ANY_THROUGHPUT, "tpot"})


@dataclass(frozen=True, slots=True)
class Coverage:
    """What became of the parts of a text."""

    goals: tuple[Place, ...]
    """The evidence of each goal."""
    held: tuple[Place, ...]
    """Words that goals account for: their evidence, or what of it was read."""
    slots: tuple[Place, ...]
    """Words that fill a slot, in the evidence of a goal or elsewhere."""
    told: tuple[Place, ...] = ()
    """What tells and wishes nothing."""
    orders: tuple[Place, ...] = ()
    """What gives the system orders, or was said and dealt with before."""


def risky(text: str, tokens: Sequence[TextToken], goals: Sequence[Goal], taken: Coverage) -> list[TextToken]:
    """The words that no goal took up and that may change a wish, in order."""
    found: dict[Place, TextToken] = {}
    for start, end in clauses_of(text):
        here = [place for place in taken.goals if overlaps((start, end), place)]
        inside = [token for token in tokens if start <= token.start < end]
        near = _is_beside(text, (start, end), taken.goals)
        for token in chain(_meaning(text, inside, goals, here, near), _marks(text, (start, end), here)):
            idle = token.value == "releases" and not any(token.kind in _RELEASED for token in inside)
            if not idle and not _is_held(text, token, taken):
                found.setdefault((token.start, token.end), token)
    return [found[place] for place in sorted(found)]


def unclear_scopes(text: str, taken: Coverage) -> list[TextToken]:
    """Words around the goals that may be a scope or a condition.

    A reader without a model cannot tell which.
    """
    marks = chain.from_iterable(_around(text, clause, taken.goals) for clause in clauses_of(text))
    return [token for token in marks if not _is_held(text, token, taken)]


def _is_held(text: str, token: TextToken, taken: Coverage) -> bool:
    """Whether a goal takes up these words, or they stand where nothing is wished."""
    place = token.start, token.end
    taken_up = [*(taken.slots if token.kind in _HELD_BY_SLOTS else taken.held), *taken.slots]
    reported = () if token.value in _NEVER_TOLD else taken.told
    stamps = [match.span() for match in _STAMP.finditer(text)]
    if any(overlaps(place, other) for other in (*reported, *taken.orders, *stamps)):
        return True
    covers = _within if token.kind is Kind.LIMITING and token.value != "scopes" else overlaps
    return any(covers(place, other) for other in taken_up)


def ignored(
    text: str, taken: Coverage, tokens: Sequence[TextToken], say: Callable[[str], str] = str
) -> tuple[SetAside, ...]:
    """Whole clauses that no goal took up and no question is about.

    With their places and why.
    """
    held = [
        *taken.goals,
        *taken.held,
        *taken.slots,
        *taken.orders,
        *((token.start, token.end) for token in tokens),
    ]
    found = []
    for start, end in clauses_of(text):
        words = text[start:end].strip()
        if not any(overlaps((start, end), place) for place in held) and _says_something(words):
            first = text.index(words, start)
            reported = any(overlaps((start, end), place) for place in taken.told)
            why = "aside_tells" if reported else "aside_counts" if re.search(r"\d", words) else "aside_empty"
            found.append(SetAside(words, first, first + len(words), say(why)))
    return tuple(found)


def places(tokens: Sequence[TextToken]) -> list[Place]:
    """Where some words stand."""
    return [(token.start, token.end) for token in tokens]


def taken_back(text: str) -> list[TextToken]:
    """The words of a text that withdraw something."""
    return list(_found(text, (0, len(text)), "taking back", _class()["anywhere"]["taking back"]))


def takes_back(text: str) -> bool:
    """Whether words withdraw or release something: what they say is no mere telling."""
    return any(_class()["anywhere"][name].search(fold(text).text) for name in ("taking back", "releases"))


def _says_something(text: str) -> bool:
    """More than a word between two goals: ``please``, ``and``."""
    folded = fold(text).text
    return len(re.findall(r"[\u3400-\u9fff]", folded)) >= 4 or len(re.findall(r"[a-z0-9']+", folded)) >= 2


def clauses_of(text: str) -> Iterator[Place]:
    """Where its clauses stand, by punctuation alone."""
    start = 0
    for match in _CLAUSE_END.finditer(text):
        if text[start : match.start()].strip():
            yield start, match.start()
        start = match.end()
    if text[start:].strip():
        yield start, len(text)


def _within(inner: Place, other: Place) -> bool:
    return other[0] <= inner[0] and inner[1] <= other[1]


def _meaning(
    text: str, tokens: Sequence[TextToken], goals: Sequence[Goal], here: Sequence[Place], near: bool
) -> Iterator[TextToken]:
    """Amounts, metrics, names, times and, right at a goal, negations: those that no goal says.

    In another sentence than any goal (not ``near``) a time or a name among other words is part of a story; everywhere a
    number counts that does not count a thing without a meaning: ``nine languages``, ``INC-47``.
    """
    strange = sum(token.kind is Kind.UNKNOWN and str(token.value)[:1].isalpha() for token in tokens)
    complains = any(
        token.value in {"slow", "dear"} or lexicon.pattern("participle").fullmatch(str(token.value))
        for token in tokens
        if token.kind in {Kind.VAGUE, Kind.UNKNOWN}
    )
    story = not here and (complains or strange > (_STORY if near else 0))
    idle = not here and (strange > _STORY or not any(token.kind in _BOUNDING for token in tokens))
    for place, token in enumerate(tokens):
        before = tokens[place - 1] if place else None
        after = next((word for word in tokens[place + 1 :] if word.value not in _ARTICLES), None)
        if token.kind is Kind.NEGATION:
            gaps = [(span[0] - token.end, token.start - span[1]) for span in here]
            counts = any(-_AFTER <= ahead <= _BEFORE or 0 <= behind <= _AFTER for ahead, behind in gaps)
        elif token.kind is Kind.QUANTITY and token.value.unit is None:
            again = text[token.start - 1 : token.start] in {"(", "（"} and _is_said(token, goals)  # "six (6)"
            is_reported = not here and not near and strange > _STORY
            counts = not (is_reported or again or _counts_a_thing(text, before, token, after))
        else:
            words = text[token.start : token.end]
            mute = (
                (token.value in {REST, "always"} and token.kind is Kind.WINDOW and not here)
                or (story and (_is_time(token) or token.kind in _NAMES))
                or (idle and token.kind in {Kind.METRIC, Kind.FACTOR})
                or (token.kind is Kind.COMPARISON and (here or words[0].isalpha() or not _bounds(before, after)))
                or (token.kind is Kind.STAT and not here and re.search(r"\d", words) is None)
            )
            counts = not mute and (
                (token.kind in _MEANT and not _is_said(token, goals))
                or (token.kind is Kind.PER_USER and not here)
                or _is_misspelt(token)
            )
        if counts:
            yield token


def _bounds(before: TextToken | None, after: TextToken | None) -> bool:
    """Whether a sign stands beside a metric or a number: no line of an e-mail."""
    return any(token is not None and token.kind in {Kind.METRIC, Kind.QUANTITY} for token in (before, after))


def _is_misspelt(token: TextToken) -> bool:
    """A slip for a limit or a time, or one that may stand for several things."""
    doubtful = token.kind in {Kind.UNKNOWN, Kind.LIMITING}
    return token.misspelt is not None and (doubtful or token.misspelt[1] in lexicon.times())


def _counts_a_thing(text: str, before: TextToken | None, number: TextToken, after: TextToken | None) -> bool:
    """``nine languages``, ``Q4``, ``one of them``, ``the two``, 一会儿.

    A number of nothing that a goal may have.
    """
    word = text[number.start : number.end].lower()
    if any(token is not None and token.kind in _BARE for token in (before, after)):
        return False
    named = before is None or before.kind in {Kind.UNKNOWN, Kind.FILLER}
    if re.match(r"[、)）]", text[number.end :]) or (named and _LABEL.search(text[: number.start])):
        return True
    noun = (
        after is not None
        and (
            after.kind in {Kind.UNKNOWN, Kind.AUDIENCE, Kind.TIMES, Kind.LAYERS}
            or text[after.start : after.end].lower() == "them"
        )
        and str(after.value or "x")[:1].isalpha()
        and (word >= "\u3400" or 0 < after.start - number.end <= _ARTICLE)
        and (word.isascii() or len(word) == 1)
    )
    pronoun = word in {"one", "zero", "一"} or (before is not None and before.value in _DETERMINERS)
    return noun or pronoun


_LABEL = re.compile(r"[a-z\u4e00-\u9fff][-.:]?$|[A-Z][-.:]?$|\d[.:]$|\b[A-Z][a-z]+ $")
"""Before a number that names something: ``INC-47``, ``1:1``, ``Clause 4``."""
_ARTICLES = frozenset({"the", "of", "our", "my", "a", "个", "名", "位", "家"})
_DETERMINERS = frozenset({"the", "these", "those", "both", "all"})
_STORY = 2
"""More words without a meaning, in a clause beside a goal, tell a story around a time or a name."""


_RELEASED = frozenset(
    {Kind.METRIC, Kind.PRECISION, Kind.SELECTOR, Kind.TENANT, Kind.MODEL, Kind.SETTING, Kind.COUNTED, Kind.RECONFIG, Kind.AVOID,
     Kind.FREEZE, Kind.EXCEPT, Kind.QUALITY, Kind.MORE}
)  # fmt: skip
"""One of which a clause has to have in which something is released."""


def _is_time(token: TextToken) -> bool:
    return token.kind in {Kind.WINDOW, Kind.BAD_TIME} or (token.kind is Kind.QUANTITY and token.value.unit == "s")


_BOUNDING = frozenset(
    {Kind.QUANTITY, Kind.RANGE, Kind.COMPARISON, Kind.OPTIMISE, Kind.CHEAPEST, Kind.VAGUE, Kind.CHANGE, Kind.FACTOR, Kind.SAME,
     Kind.EXCEPT, Kind.ONLY}
)  # fmt: skip
"""One of which a clause about a metric has to have, to wish anything."""
_NAMES = frozenset({Kind.TENANT, Kind.MODEL, Kind.SELECTOR})
_MEANT = frozenset(
    {Kind.QUANTITY, Kind.RANGE, Kind.METRIC, Kind.STAT, Kind.TENANT, Kind.MODEL, Kind.SELECTOR, Kind.WINDOW, Kind.BAD_TIME,
     Kind.PRECISION, Kind.LAYERS, Kind.SETTING, Kind.FACTOR, Kind.COMPARISON, Kind.OVER}
)  # fmt: skip


_HELD_BY_SLOTS = frozenset({Kind.QUANTITY, Kind.RANGE, Kind.TENANT, Kind.MODEL, Kind.WINDOW, Kind.BAD_TIME, Kind.OVER})
"""What counts even inside the evidence of a goal, if none of its slots has it."""


def _is_said(token: TextToken, goals: Sequence[Goal]) -> bool:
    """Whether some goal says the same."""
    stated = set(chain.from_iterable(_sayings(goal) for goal in goals))
    if token.kind is Kind.QUANTITY:
        return any(getattr(goal, "value", None) == token.value.value for goal in goals)
    if token.kind is Kind.RANGE:
        return False
    if token.kind is Kind.OVER:
        return any(getattr(goal, "over_s", None) == token.value for goal in goals)
    if token.kind is Kind.WINDOW:
        return any(goal.window == token.value for goal in goals)
    if token.kind is Kind.METRIC:
        return bool(stated & _alike(str(token.value)))
    return token.value == EVERYONE or token.value in stated


def _alike(metric: str) -> frozenset[str]:
    for family, anyone in ((_LATENCIES, ANY_LATENCY), (_THROUGHPUTS, ANY_THROUGHPUT)):
        if metric == anyone:
            return family
    return frozenset({metric})


def _sayings(goal: Goal) -> Iterator[object]:
    for slot in ("metric", "stat", "tenant", "model", "selector", "value", "key"):
        yield getattr(goal, slot, None)
    for side in _named_sides(goal):
        yield (side or "").removeprefix("tenant:")
        yield {"quality": "quality_loss", "latency": ANY_LATENCY, "throughput": ANY_THROUGHPUT}.get(side or "", side)
    if isinstance(goal, Objective) and goal.metric in _LATENCIES:
        yield ANY_LATENCY


def _named_sides(goal: Goal) -> tuple[str | None, ...]:
    if isinstance(goal, Priority):
        return goal.higher, goal.lower
    return (goal.workload,) if isinstance(goal, Placement) else ()


@cache
def _class() -> Mapping[str, Mapping[str, re.Pattern[str]]]:
    """Where a word counts to the patterns of each part of the class."""
    return {
        where: {name: re.compile("|".join(part["words"]), re.ASCII) for name, part in parts.items()}
        for where, parts in table(__package__, "risky").items()
    }


def _marks(text: str, clause: Place, here: Sequence[Place]) -> Iterator[TextToken]:
    """The words of the class in a clause; some count only where a goal stands in it."""
    for name, pattern in [
        *_class()["anywhere"].items(),
        *(_class()["beside a goal"] if here else {}).items(),
    ]:
        yield from _found(text, clause, name, pattern)


def _around(text: str, clause: Place, goals: Sequence[Place]) -> Iterator[TextToken]:
    """Risky words right before a goal, or alone in a clause of the same sentence."""
    here = [place for place in goals if overlaps(clause, place)]
    for start, _ in here:
        for name, pattern in _class()["right before a goal"].items():
            yield from _found(text, (clause[0], max(clause[0], start)), name, pattern)
    if not here and _is_beside(text, clause, goals):
        first = clause[0] + len(text[slice(*clause)]) - len(text[slice(*clause)].lstrip())
        for name, pattern in _class()["alone"].items():
            yield from _found(text, (first, clause[1]), name, pattern)


def _found(text: str, place: Place, name: str, pattern: re.Pattern[str]) -> Iterator[TextToken]:
    folded = fold(text[slice(*place)])
    for match in pattern.finditer(folded.text):
        first, last = folded.span(*match.span())
        yield TextToken(Kind.LIMITING, name, place[0] + first, place[0] + last)


def _is_beside(text: str, clause: Place, goals: Sequence[Place]) -> bool:
    """Whether a goal stands in the same sentence as a clause."""
    gaps = (sorted((clause, goal)) for goal in goals)
    return any(_are_beside(text, first[1], second[0]) for first, second in gaps)


def _are_beside(text: str, end: int, start: int) -> bool:
    sentence_end = _SENTENCE_END.search(text, end)
    return sentence_end is None or sentence_end.start() >= start


_SENTENCE_END = re.compile(r"[!?。！？\u2600-\u27bf\U0001f000-\U0001faff]|(?<![:：])\n(?!\s*[-*•])|\.(?!\d)")


# -- words that turn a meaning ------------------------------------------------------------------------


UNHELD = "unheld"
"""The class of ``all at p99``, which no goal holds."""
LIMIT = "limit"
"""The class of ``limit`` and ``cap``: any bound from above in the clause uses them."""
_TO_ANY = frozenset({"scope", "share", "direction", "limiter"})
"""Classes whose words may lead to what is used: ``for the enterprise tenant``."""
_TO_NAMES = frozenset({"condition", "time"})
"""Those that may lead to when or for whom: ``whenever we are at peak``."""
_BY_SLOTS_ALONE = frozenset({"condition", "hedge", "share", UNHELD})
"""What no goal holds as a whole, though its evidence may quote it: only a slot that is filled by these words does."""
_BETWEEN = re.compile(
    r"[ \t限针对]*(?:模型|租户)?\s*"
    r"(?:(?:the|our|all|any|every|each|of|a|an|it's|it|is|we|we're|are|at|in|on|during|tenants?|users?|models?|window) ?)*"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """Words that a goal used, with what they mean there."""

    goal: int
    place: Place
    sign: str
    names: bool = False
    """Whether they say when or for whom."""
    turns: Collection[str] = ()
    """The classes of words of the place that are used so; empty: all."""


def account(
    draft: Draft,
    tokens: Sequence[TextToken],
    readings: Iterable[Reading],
    taken: Coverage,
    open_words: Sequence[TextToken],
) -> list[TextToken]:
    """Enter each turning word with what became of it; gives back those that nothing used."""
    goal_clauses = [
        clause for clause in clauses_of(draft.text) if any(overlaps(clause, place) for place in draft.places)
    ]
    clauses, wide = (
        [part for part in clauses_of(draft.text) if part in goal_clauses or _continues(draft, part, tokens, kinds)]
        for kinds in (_BELONGING, _ECHOING)
    )
    others = {
        "question": places(open_words),
        "repeats": draft.repeated,
        "order": taken.orders,
        "told": (*taken.told, *_reasons(draft.text, tokens)),
        "idiom": places([token for token in tokens if token.kind is Kind.FILLER]),
        "joins": [
            *_neither(draft.text, goal_clauses, tokens),
            *places([token for token in tokens if token.kind in {Kind.JOIN, Kind.STOP, Kind.LIST}]),
        ],
    }
    used = [*readings, *_ceilings(draft, goal_clauses)]
    found = []
    for name, place in turning(draft.text):
        reading = _read_as(draft.text, name, place, used)
        became = (
            f"/goals/{reading.goal}"
            if reading
            else _became(name, place, others, wide if name in _EXCEPTING else clauses)
        )
        found.append(Turn(draft.text[slice(*place)], *place, name, became, reading.sign if reading else ""))
    draft.ledger = tuple(replace(turn, became=turn.became or "question") for turn in found)
    stopping = (
        *(use.place for use in used if not use.turns),
        *others["question"],
        *((turn.start, turn.end) for turn in found),
    )
    stops = [start for start, _ in stopping]
    return [
        TextToken(Kind.LIMITING, turn.turns, turn.start, _phrase_end(draft.text, turn, stops))
        for turn in found
        if not turn.became
    ]


def _phrase_end(text: str, turn: Turn, stops: Sequence[int]) -> int:
    """Where the words end that a turning word begins: ``for tedious prompts``."""
    ends = [end for start, end in clauses_of(text) if start <= turn.start < end]
    end = min([*ends, *(stop for stop in stops if stop >= turn.end)], default=turn.end)
    return turn.start + len(text[turn.start : end].rstrip())


def _continues(draft: Draft, clause: Place, tokens: Sequence[TextToken], kinds: Collection[Kind]) -> bool:
    """Whether a clause beside a goal begins as a goal may: ``, at all times with adapters loaded``."""
    inside = [token.kind for token in tokens if clause[0] <= token.start < clause[1]]
    first = next((kind for kind in inside if kind not in {Kind.FILLER, Kind.JOIN}), None)
    begins = first in kinds or Kind.OVER in inside or (first is Kind.NEGATION and not _HELD_BY_SLOTS.isdisjoint(inside))
    return begins and _is_beside(draft.text, clause, draft.places)


_BELONGING = _HELD_BY_SLOTS | {Kind.FACTOR, Kind.STAT, Kind.BY, Kind.SOFT}
_ECHOING = _BELONGING | {Kind.COMPARISON, Kind.METRIC}
"""The same of a clause that may only say a goal once more, ``no more``: what makes an exception of it still counts."""
_EXCEPTING = frozenset({"condition", "exception", "limiter", "scope"})


def turning(text: str) -> Iterator[tuple[str, Place]]:
    """The class and place of each turning word; of two that overlap the longer."""
    folded = fold(text)
    found = [(name, match.span()) for name, words in _turning().items() for match in words.finditer(folded.text)]
    after = 0
    for name, (start, end) in sorted(found, key=lambda match: (match[1][0], -match[1][1])):
        if start >= after:
            yield name, folded.span(start, end)
            after = end


def _read_as(text: str, name: str, place: Place, readings: Sequence[Reading]) -> Reading | None:
    """Who used a word, or what it leads to: ``for`` in ``for enterprise``."""
    if name == UNHELD:
        return None
    here = (use for use in readings if (not use.turns or name in use.turns) and overlaps(place, use.place))
    if found := next(here, None):
        return found
    behind = [use for use in readings if use.place[0] >= place[1] and not use.turns]
    led = min(behind, key=lambda use: use.place, default=None)
    if led is None or not _BETWEEN.fullmatch(fold(text[place[1] : led.place[0]]).text):
        return None
    return led if name in _TO_ANY or (led.names and name in _TO_NAMES) else None


def _became(name: str, place: Place, others: Mapping[str, Sequence[Place]], clauses: Sequence[Place]) -> str:
    """What became of a word that no goal used; empty: nothing accounts for it in a goal's clause."""
    is_beside = any(overlaps(place, clause) for clause in clauses)
    for what, spans in others.items():
        if is_beside and (name == UNHELD or (what == "told" and name in _NEVER_TOLD)):
            continue
        holds = _is_longer if what == "idiom" else overlaps
        if any(holds(span, place) for span in spans):
            return what
    return "" if is_beside else "set_aside"


def _is_longer(idiom: Place, place: Place) -> bool:
    return _within(place, idiom) and idiom != place


def _ceilings(draft: Draft, clauses: Sequence[Place]) -> Iterator[Reading]:
    """Bounds from above, and what may go past one, with the clauses that say them."""
    for number, (goal, place) in enumerate(zip(draft.goals, draft.places, strict=True)):
        if isinstance(goal, TenantException) or getattr(goal, "op", "") == "<=" or getattr(goal, "rule", "") == LIMIT:
            yield from (Reading(number, clause, "<=", turns={LIMIT}) for clause in clauses if overlaps(clause, place))


def _neither(text: str, clauses: Iterable[Place], tokens: Sequence[TextToken]) -> Iterator[Place]:
    """Each "or" before a name that a negation makes an "and": ``don't touch gpu-2 or gpu-3``."""
    named = [token.start for token in tokens if token.kind in _NAMES or token.kind is Kind.PRECISION]
    for start, end in clauses:
        words = text[start:end].lower()
        if denied := _DENIES.search(words):
            places = [(start + match.start(), start + match.end()) for match in _OR.finditer(words, denied.end())]
            yield from (place for place in places if any(0 <= at - place[1] <= _ARTICLE for at in named))


_DENIES = re.compile(r"\b(?:not|no|never|neither|nor|without)\b|n't\b|[不别禁]")
_OR = re.compile(r"\bor\b|或")


def _reasons(text: str, tokens: Sequence[TextToken]) -> Iterator[Place]:
    """From each ``because`` to the end of its clause."""
    for token in tokens:
        if token.kind is Kind.BECAUSE:
            yield from ((token.start, end) for start, end in clauses_of(text) if start <= token.start < end)


def nearest(draft: Draft, place: Place) -> int:
    """The number of the goal that is said nearest to some words."""
    return min(range(len(draft.places)), key=lambda number: abs(draft.places[number][0] - place[0]))


def held_by_evidence() -> frozenset[str]:
    """The classes whose words a goal uses that quotes them."""
    return frozenset(_turning()) - _BY_SLOTS_ALONE


@cache
def _turning() -> Mapping[str, re.Pattern[str]]:
    return {name: re.compile("|".join(part["words"]), re.ASCII) for name, part in table(__package__, "turning").items()}
