"""Words that no goal took up.

Which of them may change a wish and are asked about, and which are set aside. Pure.

What may change a wish is a closed class, kept in ``risky.yaml`` with its reasons. All other words are harmless: a person
sees them in the read-back.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, takewhile, zip_longest

from intent.fold import Place, fold, overlaps
from intent.models import Goal, Objective, Placement, Priority, SetAside
from intent.rules import lexicon
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, EVERYONE, Kind
from intent.rules.spelling import is_foreign
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
_PHRASE = 5
"""Words between a scope and its goal: ``for long prompts keep``."""
_COURTESY = lexicon.pattern("courtesy")
"""Before an ``if`` that asks nicely."""
_TURN = re.compile(r"\b(?:not|never|no|without|neither|nor|nobody|nothing|stop)\b|n't\b|不|别|没|勿|莫|禁")
"""Words that turn a comparison round."""
_BEFORE = 10
"""Characters between a word that turns a goal round and the goal behind it."""
_AFTER = 2
"""Characters between a goal and such a word behind it."""
_NEVER_TOLD = frozenset({"limiters", "conditions", "frequency and phase"})
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
    for start, end in _clauses(text):
        here = [place for place in taken.goals if overlaps((start, end), place)]
        inside = [token for token in tokens if start <= token.start < end]
        near = _is_beside(text, (start, end), taken.goals)
        for token in chain(_meaning(text, inside, goals, here, near), _marks(text, (start, end), here)):
            idle = token.value == "releases" and not any(token.kind in _RELEASED for token in inside)
            if not idle and not _is_held(text, token, tokens, taken):
                found.setdefault((token.start, token.end), token)
    for token in (*_within_goals(text, taken), *_turned(text, tokens, taken)):
        found.setdefault((token.start, token.end), token)
    return [found[place] for place in sorted(found)]


def unclear_scopes(text: str, tokens: Sequence[TextToken], taken: Coverage) -> list[TextToken]:
    """Words around the goals that may be a scope or a condition.

    A reader without a model cannot tell which.
    """
    marks = chain.from_iterable(
        (
            *_around(text, clause, taken.goals),
            *_trailing(text, clause, tokens, taken.goals),
            *_strange(text, clause, tokens, taken.goals),
        )
        for clause in _clauses(text)
    )
    return [token for token in marks if not _is_held(text, token, tokens, taken)]


def _is_held(text: str, token: TextToken, tokens: Sequence[TextToken], taken: Coverage) -> bool:
    """Whether a goal takes up these words, or they stand where nothing is wished."""
    place = token.start, token.end
    taken_up = [*(taken.slots if token.kind in _HELD_BY_SLOTS else taken.held), *taken.slots]
    reported = () if token.value in _NEVER_TOLD else taken.told
    stamps = [match.span() for match in _STAMP.finditer(text)]
    if any(overlaps(place, other) for other in (*reported, *taken.orders, *stamps)):
        return True
    if token.kind is Kind.LIMITING and _leads_to_held(text, token, tokens, taken_up):
        return True
    covers = _within if token.kind is Kind.LIMITING else overlaps
    return any(covers(place, other) for other in taken_up)


def _turned(text: str, tokens: Sequence[TextToken], taken: Coverage) -> Iterator[TextToken]:
    """A negation before a goal's evidence that turns the comparison in it round.

    ``don't keep TTFT under``.
    """
    for token in tokens:
        for start, _ in taken.goals:
            across = token.kind is Kind.COMPARISON and token.start < start < token.end
            turns = across and _TURN.search(fold(text[token.start : start]).text)
            if turns and not _CLAUSE_END.search(text, token.start, start):
                yield TextToken(Kind.NEGATION, None, token.start, start)


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
    for start, end in _clauses(text):
        words = text[start:end].strip()
        if not any(overlaps((start, end), place) for place in held) and _says_something(words):
            first = text.index(words, start)
            reported = any(overlaps((start, end), place) for place in taken.told)
            why = "aside_tells" if reported else "aside_counts" if re.search(r"\d", words) else "aside_empty"
            found.append(SetAside(words, first, first + len(words), say(why)))
    return tuple(found)


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


def _clauses(text: str) -> Iterator[Place]:
    start = 0
    for match in _CLAUSE_END.finditer(text):
        if text[start : match.start()].strip():
            yield start, match.start()
        start = match.end()
    if text[start:].strip():
        yield start, len(text)


def _leads_to_held(text: str, token: TextToken, tokens: Sequence[TextToken], held: Sequence[Place]) -> bool:
    """A preposition to something that a goal holds: ``for enterprise``, ``during the evening peak``."""
    place = token.start, token.end
    around = [token for token in tokens if token.kind in _JOINTS and _within(place, (token.start, token.end))]
    if any(token.kind is Kind.LIST or (token.start, token.end) != place for token in around):
        return True
    if token.value not in _LEADING:
        return False
    after = [
        other_token
        for other_token in tokens
        if other_token.start >= token.start and other_token.kind not in {Kind.FILLER, Kind.AUDIENCE}
    ]
    while (
        after
        and after[0].start < token.end
        and (after[0].kind in {Kind.ONLY, Kind.JOIN} or after[0].value in _PREPOSITIONS)
    ):
        after.pop(0)
    if token.value == "conditions" and not (after and after[0].kind is Kind.WINDOW):
        return False
    if not after or after[0].kind not in _NAMING or _CLAUSE_END.search(text, token.end, after[0].start):
        return False
    return any(overlaps((after[0].start, after[0].end), place) for place in held)


_NAMING = frozenset(
    {Kind.WINDOW, Kind.TENANT, Kind.MODEL, Kind.SELECTOR, Kind.WORKLOAD, Kind.PRECISION, Kind.QUANTITY, Kind.RANGE,
     Kind.METRIC, Kind.STAT, Kind.SETTING, Kind.COUNTED, Kind.COMPARISON}
)  # fmt: skip
_PREPOSITIONS = frozenset(
    ["during", "after", "before", "until", "while", "if", "when", "whenever", "once", "within", "across", "仅", "限"]
)  # fmt: skip
_JOINTS = frozenset({Kind.LIST, Kind.FILLER, Kind.PERIOD, Kind.UNIT})
"""Kinds of what only joins, or says nothing: ``gpu-1 or gpu-2``, ``it suffices if``."""
_LEADING = frozenset({"scopes", "frequency and phase", "conditions"})
"""Parts of the class whose words may lead to a name or a time that a goal holds."""


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


def _strange(text: str, clause: Place, tokens: Sequence[TextToken], goals: Sequence[Place]) -> Iterator[TextToken]:
    """Beside a goal: no English (``durng``), a time without a window, ``lose`` in ``lose two GPUs``."""
    here = [place for place in goals if overlaps(clause, place)]
    inside = [token for token in tokens if here and clause[0] <= token.start < clause[1]]
    for word, after in zip_longest(inside, inside[1:]):
        given = text[word.start : word.end]
        held = after is not None and any(overlaps((word.end, after.end), place) for place in here)
        bare = held and after.kind is Kind.QUANTITY and after.value.unit is None
        leads = (bare and given.isascii() and given.isalpha()) or (
            held and after.kind is Kind.WINDOW and is_foreign(given.lower())
        )
        if word.kind is Kind.UNKNOWN and (leads or is_foreign(given) or word.value in lexicon.times()):
            yield word


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
        and (after.kind in {Kind.UNKNOWN, Kind.AUDIENCE, Kind.TIMES} or text[after.start : after.end].lower() == "them")
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
     Kind.PRECISION, Kind.SETTING, Kind.FACTOR, Kind.COMPARISON}
)  # fmt: skip


_HELD_BY_SLOTS = frozenset({Kind.QUANTITY, Kind.RANGE, Kind.TENANT, Kind.MODEL, Kind.WINDOW, Kind.BAD_TIME})
"""What counts even inside the evidence of a goal, if none of its slots has it."""


def _is_said(token: TextToken, goals: Sequence[Goal]) -> bool:
    """Whether some goal says the same."""
    stated = set(chain.from_iterable(_sayings(goal) for goal in goals))
    if token.kind is Kind.QUANTITY:
        return any(getattr(goal, "value", None) == token.value.value for goal in goals)
    if token.kind is Kind.RANGE:
        return False
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
        for token in _found(text, clause, name, pattern):
            if _counts(text, token, clause, here):
                yield token


def _trailing(text: str, clause: Place, tokens: Sequence[TextToken], goals: Sequence[Place]) -> Iterator[TextToken]:
    """The meaning that a clause behind a goal begins with, and the risky words right behind it.

    Such a clause belongs to the goal: ``..., 8pm to 8am once it is done``, ``..., minimum for gold users``.
    """
    inside = [token for token in tokens if clause[0] <= token.start < clause[1]]
    here = any(overlaps(clause, place) for place in goals)
    if here or not inside or not _is_beside(text, clause, goals):
        return
    yield from (token for token in inside if token.kind is Kind.MODEL and token.value is None)
    behind = [place for place in goals if place[1] <= clause[0]]
    begin = [
        token
        for token in takewhile(lambda token: token.kind is not Kind.UNKNOWN, inside)
        if token.kind not in {Kind.FILLER, Kind.JOIN}
    ]
    if begin and begin[0].kind is Kind.RECONFIG:
        yield begin[0]
    if begin and begin[0].value != REST and behind:
        yield from _belonging(text, clause, begin)


def _belonging(text: str, clause: Place, begin: Sequence[TextToken]) -> Iterator[TextToken]:
    """Of a clause that begins with words that have a meaning."""
    first = begin[0]
    if first.kind in _SCOPING and first.value != "always":
        yield first
    if first.kind in _BELONGING:
        read = [(clause[0], token.end) for token in begin if token.kind in _BELONGING]
        yield from (mark for mark in _marks(text, clause, read) if mark.start >= first.end)


_SCOPING = frozenset({Kind.WINDOW, Kind.TENANT, Kind.MODEL})
_BELONGING = _SCOPING | frozenset(
    {Kind.QUANTITY, Kind.RANGE, Kind.COMPARISON, Kind.FACTOR, Kind.STAT, Kind.EXCEPT, Kind.PRIORITY, Kind.BY, Kind.SOFT,
     Kind.NEGATION, Kind.METRIC, Kind.QUALITY}
)  # fmt: skip


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


def _counts(text: str, token: TextToken, clause: Place, here: Sequence[Place]) -> bool:
    """Whether a scope belongs to a goal: it follows it, or opens its clause in a few words.

    And no courtesy's ``if``.
    """
    if token.value == "conditions":
        wished = any(place[0] < token.start for place in here)  # "int8 is fine if traffic doubles"
        return wished or _COURTESY.search(fold(text[clause[0] : token.start]).text) is None
    if token.value != "scopes":
        return True
    follows = any(token.end > place[1] and token.start - place[1] <= _AFTER for place in here)
    preposition = text[token.start : token.end].isascii()
    if preposition and any(0 <= place[0] - token.end <= _ARTICLE for place in here):
        return False  # "with TP 4": what it is about is a goal
    between = [text[token.end : place[0]] for place in here if place[0] >= token.end]
    opens = not text[clause[0] : token.start].strip() and any(len(phrase.split()) <= _PHRASE for phrase in between)
    return follows or opens


def _within_goals(text: str, taken: Coverage) -> Iterable[TextToken]:
    """Words that no slot of a goal can hold, inside its own evidence."""
    for start, end in taken.goals:
        folded = fold(text[start:end])
        for name, pattern in _class()["within a goal"].items():
            for match in pattern.finditer(folded.text):
                first, last = folded.span(*match.span())
                place = start + first, start + last
                if not any(overlaps(place, slot) for slot in taken.slots):
                    yield TextToken(Kind.LIMITING, name, *place)
