"""A fragment put into a goal: ``1.5 s`` into ``P99 TTFT at most 2 s at peak``. Pure.

The goal's own clause of the read-back is written anew with the fragment's words in the places of its own, and read by the rules:
so a fragment means what it would mean in a whole sentence, and what does not read as this goal with these slots changed is
no change of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intent.followups.subjects import filled, is_called, same_wish
from intent.models import Catalogue, Goal
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token
from intent.translate import translate

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
    Kind.METRIC: ("metric", "unit"),
}
"""What a token of this kind says of a goal."""
_UNSAID: Mapping[Kind, tuple[tuple[str, Any], ...]] = {
    Kind.WINDOW: (("window", "always"),),
    Kind.TENANT: (("tenant", None),),
    Kind.MODEL: (("model", None),),
}
_IN_PLACE = (Kind.STAT, Kind.COMPARISON, Kind.QUANTITY, Kind.PERIOD)
_SILENT = (Kind.FILLER, Kind.AUDIENCE, Kind.ONLY, Kind.TO, Kind.JOIN, Kind.LIST, Kind.STOP)
_NUMBER = re.compile(r"\d[\d,.]*")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Words that say some slots of a goal."""

    text: str
    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, text: str, catalogue: Catalogue) -> "Fragment":
        """The fragment of a text."""
        return cls(text, tuple(tokenize(text, catalogue)))

    def first(self, kind: Kind) -> str | None:
        """The words of its first token of a kind."""
        return next((self.text[one.start : one.end] for one in self.tokens if one.kind is kind), None)

    def says(self, kind: Kind) -> bool:
        """Whether it has a token of a kind."""
        return any(one.kind is kind for one in self.tokens)

    @property
    def is_one(self) -> bool:
        """Whether it says nothing but slots of a goal, each once."""
        slots = [one.kind for one in self.tokens if one.kind in SLOTS]
        rest = {one.kind for one in self.tokens} - set(SLOTS)
        return bool(slots) and len(set(slots)) == len(slots) and rest <= set(_SILENT)

    @property
    def has_bare_number(self) -> bool:
        """Whether its number has no unit of its own."""
        return not self.says(Kind.PERIOD) and bool(_NUMBER.fullmatch(self.first(Kind.QUANTITY) or ""))

    def without(self, *kinds: Kind) -> str:
        """Its words without those of these kinds."""
        return _cut(self.text, (one for one in self.tokens if one.kind in kinds))


def put_into(
    goal: Goal, fragment: Fragment, catalogue: Catalogue, phrase: Phrase, *, copied: bool = False
) -> Goal | None:
    """The goal with what the fragment says, its evidence unchanged; None if the fragment does not fit it.

    A metric in the fragment names the goal that is meant, or in a copy the metric of the copy.
    """
    kinds = [kind for kind in SLOTS if fragment.says(kind) and (copied or kind is not Kind.METRIC)]
    named = copied or all(is_called(goal, one.value) for one in fragment.tokens if one.kind is Kind.METRIC)
    if not (kinds and named and fragment.is_one):
        return None
    clause = Fragment.of(phrase(_open(goal, kinds)), catalogue)
    edited = _edited(clause, fragment, (*_IN_PLACE, Kind.METRIC) if copied else _IN_PLACE)
    rest = fragment.without(Kind.METRIC, *_IN_PLACE).strip(" ,，、;")
    slots = {slot for kind in kinds for slot in SLOTS[kind]}
    texts = (f"{edited} {rest}", f"{rest} {edited}") if rest else (edited,)
    found = (_read(text, goal, slots, catalogue) for text in texts)
    return next((one for one in found if one is not None), None)


def _open(goal: Goal, kinds: Sequence[Kind]) -> Goal:
    """A goal that does not say for whom and when, where the fragment does."""
    unsaid = {slot: value for kind in kinds for slot, value in _UNSAID.get(kind, ()) if hasattr(goal, slot)}
    return replace(goal, **unsaid)


def _edited(clause: Fragment, fragment: Fragment, kinds: Sequence[Kind]) -> str:
    """The clause with the fragment's words in the places of its own; a window it says anew is cut out."""
    text = clause.text
    for token in reversed(clause.tokens):
        said = fragment.first(token.kind)
        if said is None:
            continue
        if token.kind in kinds and token is next(one for one in clause.tokens if one.kind is token.kind):
            own = text[token.start : token.end]
            text = text[: token.start] + _with_unit(said, own) + text[token.end :]
        elif token.kind is Kind.WINDOW:
            text = text[: token.start] + text[token.end :]
    missing = None if clause.says(Kind.STAT) else fragment.first(Kind.STAT)
    return f"{missing or ''} {text}".strip(" ,，、")


def _with_unit(said: str, own: str) -> str:
    """A bare number takes the unit of the one in whose place it comes."""
    return _NUMBER.sub(said, own, count=1) if _NUMBER.fullmatch(said) else said


def _cut(text: str, tokens: Iterable[Token]) -> str:
    for token in sorted(tokens, key=lambda one: -one.start):
        text = f"{text[: token.start]} {text[token.end :]}"
    return text


def _read(text: str, goal: Goal, slots: set[str], catalogue: Catalogue) -> Goal | None:
    """The goal with these slots as the text has them, if the text says nothing else of it."""
    intent = translate(text, catalogue)
    if intent.questions or len(intent.goals) != 1 or intent.goals[0].type != goal.type:
        return None
    read = intent.goals[0]
    result = filled(goal, slots, read)
    left = [one for one in VALUES if one not in slots]  # a read-back has twelve digits
    return result if same_wish(result, filled(read, left, goal)) else None
