"""What a follow-up says: cues, what it is about, answers to a question, parts of a goal. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import cache
from typing import Any

from intent.fold import fold
from intent.messages import Language
from intent.models import (
    LATENCIES,
    Catalogue,
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    Question,
    ReconfigRule,
    Relative,
    TenantException,
)
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.lexicon import split
from intent.rules.phrasing import tokenize
from intent.rules.tokens import TextToken
from intent.tables import table
from intent.translate import translate


class Way(StrEnum):
    """What a follow-up does to the goals before it."""

    SAY = "say"
    """Says a goal like any text; what it does not say may be taken from the goal it is about."""
    ALSO = "also"
    SAME = "same"
    EDIT = "edit"
    """Names a goal that is there and what becomes of it: ``change the TTFT goal to 1.5 s``."""
    CHANGE = "change"
    """Points back without naming the goal: ``make that 1.5 s``."""
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class ParsedFollowUp:
    """A follow-up without its cues."""

    way: Way
    text: str
    old: str | None = None
    """What ``instead of`` names."""
    replaces: bool = False
    """Whether what was said before no longer counts."""


def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = table(__package__, "cues")
    return found


@cache
def _cues(name: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern) for pattern in _data()["cues"][name])


def say(language: Language, key: str, **facts: object) -> str:
    """What is said about a follow-up."""
    return str(_data()["messages"][key][language]).format(**facts)


def follow_up(text: str) -> ParsedFollowUp:
    """The cues of a text; a text without any says a goal."""
    text = text.strip()
    text, old = _without_old(text)
    text, replaces = without(text, "replace")
    for way in (Way.DROP, Way.SAME, Way.ALSO, Way.CHANGE, Way.EDIT):
        rest, found = without(text, way)
        if found:
            return ParsedFollowUp(way, without(rest, "also")[0] if way is Way.SAME else rest, old, replaces)
    return ParsedFollowUp(Way.SAY, text, old, replaces)


def without(text: str, name: str) -> tuple[str, bool]:
    """The text without the cues of a name, and whether there were any."""
    found = False
    for pattern in _cues(name):
        folded = fold(text)
        if (match := pattern.search(folded.text)) and (match[0] or name == "drop"):
            start, end = folded.span(match.start(), match.end()) if match[0] else (0, 0)
            text = f"{text[:start]} {text[end:]}".strip()
            found = True
    return text, found


def cue(text: str, name: str) -> re.Match[str] | None:
    """The first cue of a name in a text."""
    folded = fold(text.strip()).text
    return next((match for pattern in _cues(name) if (match := pattern.search(folded))), None)


def _without_old(text: str) -> tuple[str, str | None]:
    match = cue(text, "instead_of")
    if match is None or not match.start():  # "instead of that, ..." replaces everything
        return text, None
    start, _ = fold(text).span(match.start(), match.end())
    return text[:start], match["old"]


_SIDES = {"<=": "upper", ">=": "lower", "minimize": "best", "maximize": "best"}
"""A bound from above, one from below and an optimisation may stand side by side; ``==`` takes the place of each."""


def same_subject(goal: Goal, other: Goal) -> bool:
    """Whether one of them takes the other's place."""
    sides = {_SIDES.get(getattr(goal, "op", "=="), "any") for goal in (goal, other)}
    return subject(goal) == subject(other) and (len(sides) == 1 or "any" in sides)


def subject(goal: Goal) -> tuple[Any, ...]:
    """What a goal is about, without the side of its bound."""
    match goal:
        case Objective() | Relative():
            about: tuple[Any, ...] = (goal.metric, goal.stat, goal.tenant, goal.model)
        case TenantException():
            about = (goal.tenant, goal.metric)
        case PrecisionRule():
            about = (goal.value if goal.rule in {"forbid", "allow"} else None, goal.tenant, goal.model, goal.layers)
        case Placement():
            about = (goal.workload, goal.selector if goal.rule in {"forbid", "freeze"} else None)
        case Priority():
            about = (frozenset({goal.higher, goal.lower}) if goal.lower else None,)
        case Config():
            about = (goal.key, goal.model)
        case ReconfigRule():
            about = ()
    return (goal.type, goal.window, *about)


def is_alike(goal: Goal, other: Goal) -> bool:
    """Whether one goal could have become the other: the same kind of wish about the same thing."""
    slots = ("type", "metric", "key", "selector", "higher")
    return all(getattr(goal, slot, None) == getattr(other, slot, None) for slot in slots)


def filled(goal: Goal, slots: Collection[str], source: Goal) -> Goal:
    """A goal with these slots taken from another one, where both have them."""
    common = {field.name for field in fields(goal)} & {field.name for field in fields(source)} & set(slots)
    return replace(goal, **{slot: getattr(source, slot) for slot in common})


def same_wish(goal: Goal, other: Goal) -> bool:
    """Whether two goals say the same, in whatever words."""
    return replace(goal, evidence="") == replace(other, evidence="")


def is_called(goal: Goal, metric: str) -> bool:
    """Whether a goal is about a metric, or one of those that go by a common name."""
    own = getattr(goal, "metric", None)
    return {ANY_LATENCY: own in LATENCIES, ANY_THROUGHPUT: str(own).startswith("throughput")}.get(metric, own == metric)


_NUMBERS = {"一": 1, "二": 2, "三": 3, "四": 4, "first": 1, "second": 2, "third": 3, "fourth": 4}
_SILENT_ANSWERS = frozenset({Kind.FILLER, Kind.JOIN, Kind.STOP})


def answered(text: str, question: Question, catalogue: Catalogue) -> int | None:
    """The place of the option that an answer means.

    The default for yes, else by what it says or makes of the text.
    """
    if _YES.fullmatch(fold(text).text.strip(" .!,，。！")):
        return question.options.index(question.default)
    found = option_said(text, question.options, catalogue)
    return option_said(text, question.texts, catalogue) if found is None and question.texts else found


_YES = re.compile(r"y|yes|yep|yeah|sure|ok(?:ay)?|fine|correct|right|是的?|对的?|好的?|行|可以|没错")


def number_said(text: str, count: int) -> int | None:
    """The number of an option, from 1; it may be one that the question does not have."""
    match = cue(text, "number")
    if match is None:
        return None
    (word,) = (word for word in match.groupdict().values() if word)
    return count if word == "last" else _NUMBERS.get(word) or int(word)


def option_said(text: str, options: Sequence[str], catalogue: Catalogue) -> int | None:
    """The place of the one option that holds all the answer says, in its words or others.

    None if none does, or several.
    """
    words = _words(text)
    matching = _said(text, catalogue)
    same = [n for n, option in enumerate(options) if _words(option) == words]
    meant = [n for n, option in enumerate(options) if matching and matching <= _meanings(option, catalogue)]
    worded = [n for n, option in enumerate(options) if words and set(words) <= set(_words(option))]
    return next((found[0] for found in (same, meant, worded) if len(found) == 1), None)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word, _, _ in split(fold(text).text) if word.isalnum() or not word.isascii())


def _said(text: str, catalogue: Catalogue) -> set[tuple[Kind, str]]:
    tokens = tokenize(text, catalogue)
    return {(token.kind, repr(token.value)) for token in tokens if token.kind not in _SILENT_ANSWERS}


def _meanings(text: str, catalogue: Catalogue) -> set[tuple[Kind, str]]:
    """What the words mean, whatever language they are in; a number also means its unit."""
    tokens = [token for token in tokenize(text, catalogue) if token.kind not in _SILENT_ANSWERS]
    units = {
        (Kind.UNIT, repr((token.value.unit, token.value.factor))) for token in tokens if token.kind is Kind.QUANTITY
    }
    return {(token.kind, repr(token.value)) for token in tokens} | units


Phrase = Callable[[Goal], str]
"""A goal as one clause that the rules read to the same goal."""

VALUES = ("value", "unit", "factor", "delta", "limit")
SLOTS = {
    Kind.QUANTITY: VALUES,
    Kind.COMPARISON: ("op",),
    Kind.STAT: ("stat",),
    Kind.WINDOW: ("window",),
    Kind.TENANT: ("tenant",),
    Kind.MODEL: ("model",),
    Kind.PERIOD: ("unit",),
    Kind.OVER: ("over_s",),
    Kind.METRIC: ("metric", "unit"),
}
"""What a token of this kind says of a goal."""
_UNSAID: Mapping[Kind, tuple[tuple[str, Any], ...]] = {
    Kind.WINDOW: (("window", "always"),),
    Kind.TENANT: (("tenant", None),),
    Kind.MODEL: (("model", None),),
    Kind.OVER: (("over_s", None),),
}
_IN_PLACE = (Kind.STAT, Kind.COMPARISON, Kind.QUANTITY, Kind.PERIOD)
_SILENT = (Kind.FILLER, Kind.AUDIENCE, Kind.ONLY, Kind.TO, Kind.JOIN, Kind.LIST, Kind.STOP)
_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Words that say some slots of a goal."""

    text: str
    tokens: tuple[TextToken, ...]

    @classmethod
    def of(cls, text: str, catalogue: Catalogue) -> "Fragment":
        """The fragment of a text."""
        return cls(text, tuple(tokenize(text, catalogue)))

    def first(self, kind: Kind) -> str | None:
        """The words of its first token of a kind."""
        return next((self.text[token.start : token.end] for token in self.tokens if token.kind is kind), None)

    def says(self, kind: Kind) -> bool:
        """Whether it has a token of a kind."""
        return any(token.kind is kind for token in self.tokens)

    @property
    def is_one(self) -> bool:
        """Whether it says nothing but slots of a goal, each once."""
        slots = [token.kind for token in self.tokens if token.kind in SLOTS]
        rest = {token.kind for token in self.tokens} - set(SLOTS)
        return bool(slots) and len(set(slots)) == len(slots) and rest <= set(_SILENT)

    @property
    def has_bare_number(self) -> bool:
        """Whether its number has no unit of its own."""
        return not self.says(Kind.PERIOD) and bool(_NUMBER.fullmatch(self.first(Kind.QUANTITY) or ""))

    def without(self, *kinds: Kind) -> str:
        """Its words without those of these kinds."""
        return _cut(self.text, (token for token in self.tokens if token.kind in kinds))


def put_into(
    goal: Goal, fragment: Fragment, catalogue: Catalogue, phrase: Phrase, *, copied: bool = False
) -> Goal | None:
    """The goal with what the fragment says, its evidence unchanged; None if the fragment does not fit it.

    A metric in the fragment names the goal that is meant, or in a copy the metric of the copy.
    """
    kinds = [kind for kind in SLOTS if fragment.says(kind) and (copied or kind is not Kind.METRIC)]
    named = copied or all(is_called(goal, token.value) for token in fragment.tokens if token.kind is Kind.METRIC)
    if not (kinds and named and fragment.is_one):
        return None
    clause = Fragment.of(phrase(_open(goal, kinds)), catalogue)
    edited = _edited(clause, fragment, (*_IN_PLACE, Kind.METRIC) if copied else _IN_PLACE)
    rest = fragment.without(Kind.METRIC, *_IN_PLACE).strip(" ,，、;")
    slots = {slot for kind in kinds for slot in SLOTS[kind]}
    texts = (f"{edited} {rest}", f"{rest} {edited}") if rest else (edited,)
    found = (_read(text, goal, slots, catalogue) for text in texts)
    return next((goal for goal in found if goal is not None), None)


def _open(goal: Goal, kinds: Sequence[Kind]) -> Goal:
    """A goal that does not say for whom and when, where the fragment does."""
    unsaid = {slot: value for kind in kinds for slot, value in _UNSAID.get(kind, ()) if hasattr(goal, slot)}
    return replace(goal, **unsaid)


def _edited(clause: Fragment, fragment: Fragment, kinds: Sequence[Kind]) -> str:
    """The clause with the fragment's words in the places of its own; a window it says anew is cut out."""
    text = clause.text
    for token in reversed(clause.tokens):
        value = fragment.first(token.kind)
        if value is None:
            continue
        if token.kind in kinds and token is next(
            other_token for other_token in clause.tokens if other_token.kind is token.kind
        ):
            own = text[token.start : token.end]
            text = text[: token.start] + _with_unit(value, own) + text[token.end :]
        elif token.kind is Kind.WINDOW:
            text = text[: token.start] + text[token.end :]
    missing = None if clause.says(Kind.STAT) else fragment.first(Kind.STAT)
    return f"{missing or ''} {text}".strip(" ,，、")


def _with_unit(text: str, own: str) -> str:
    """A bare number takes the unit of the one in whose place it comes."""
    return _NUMBER.sub(text, own, count=1) if _NUMBER.fullmatch(text) else text


def _cut(text: str, tokens: Iterable[TextToken]) -> str:
    for token in sorted(tokens, key=lambda token: -token.start):
        text = f"{text[: token.start]} {text[token.end :]}"
    return text


def _read(text: str, goal: Goal, slots: set[str], catalogue: Catalogue) -> Goal | None:
    """The goal with these slots as the text has them, if the text says nothing else of it."""
    intent = translate(text, catalogue)
    if intent.questions or len(intent.goals) != 1 or intent.goals[0].type != goal.type:
        return None
    read = intent.goals[0]
    result = filled(goal, slots, read)
    left = [slot for slot in VALUES if slot not in slots]  # a read-back has twelve digits
    return result if same_wish(result, filled(read, left, goal)) else None
