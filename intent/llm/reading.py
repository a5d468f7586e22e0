"""From an LLM's answer to what is meant: its typed goals are the goals, what they leave over is weighed. Pure.

``docs/intents.md`` has the conventions; ``docs/decisions/0019`` says why no second reading of the text stands beside this one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intent.errors import ExtractionError, Failure, Problem
from intent.fold import fold
from intent.injection import orders
from intent.llm.goals import Builder, opposed
from intent.llm.quotes import Place, Source, overlaps
from intent.llm.wire import unusable
from intent.models import Catalogue, Config, Finding
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token
from intent.weighing import Taken, set_aside, weighty

_BOUNDING = frozenset({Kind.COMPARISON, Kind.OPTIMISE})
_TOGETHER = re.compile(r"\s*(?:,|and|&|\+|、|，|和|/)?\s*(?:and|和)?\s*")
_WISHING = re.compile(r"\b(?:must|should|shall|keep|needs?|have to|ensure|make sure|limit|cap|hold|want)\b|必须|保证|保持|控制|不要|不得|务必|别|压到|确保|希望")
"""Words of a wish, which what only tells does not have."""
_KEEPING = frozenset({Kind.NEGATION, Kind.WINDOW, Kind.BAD_TIME, Kind.LIMITING, Kind.QUANTITY, Kind.RANGE})
"""Without these a text asks for more than it says: a question about them does not offer that first."""


@dataclass(frozen=True, slots=True)
class Read:
    """What an answer comes to, and what of it the text does not bear."""

    draft: Draft
    problems: tuple[Problem, ...]
    unread: tuple[Place, ...] = ()
    """The evidence of goals that have a problem."""


def read_answer(answer: Mapping[str, Any], text: str, catalogue: Catalogue) -> Read:
    """The goals of a wire answer with all that was assumed, found, set aside or left open."""
    source = Source.of(text, catalogue)
    builder = Builder(source, Draft(text, catalogue))
    for number, (slots, is_opposed) in enumerate(zip(answer["goals"], opposed(answer["goals"]), strict=True)):
        builder.add(slots, f"/goals/{number}", is_opposed)
    _share_windows(builder)
    problems = [*builder.problems, *_absent(answer, source)]
    _weigh(builder, answer)
    return Read(builder.draft, tuple(problems), tuple(builder.unread))


def settle(read: Read) -> Draft:
    """The draft, what the model could not put right asked of the person.

    Raises:
        ExtractionError: nothing of the answer stands in the text.
    """
    if not read.problems:
        return read.draft
    draft = read.draft
    if not read.unread or (not draft.goals and not draft.questions):
        raise refusal(read.problems)
    said = [Token(Kind.UNKNOWN, None, *place) for place in read.unread]
    words = draft.say("slots_not_in_text", said=", ".join(map(draft.quoted, said)))
    draft.questions.clear()
    draft.ask("slots_not_in_text", said[0], words, [draft.say("nothing"), draft.without(said)])
    return draft


def refusal(problems: Sequence[Problem]) -> ExtractionError:
    """The failure of an answer with these problems."""
    schema = any("does not have it" in one.words or "needs" in one.words for one in problems)
    return unusable(Failure.NOT_IN_SCHEMA if schema else Failure.NOT_IN_TEXT, list(problems))


def _absent(answer: Mapping[str, Any], source: Source) -> Iterator[Problem]:
    """Quotes beside the goals that do not stand in the text."""
    quotes = [(f"/{name}/{n}", words) for name in ("told", "unplaced") for n, words in enumerate(answer[name])]
    quotes += [(f"/inventory/{n}/evidence", one["evidence"]) for n, one in enumerate(answer["inventory"])]
    for pointer, words in quotes:
        if words.strip() and not source.places(words):
            yield Problem(pointer, f"{words[:60]!r} is not in the text; copy its words")


def _share_windows(builder: Builder) -> None:
    """TP, PP and replicas said together are one topology: the window of the last is that of all."""
    goals, places = builder.draft.goals, builder.places
    for number in range(len(goals) - 1, 0, -1):
        here, before = goals[number], goals[number - 1]
        if isinstance(here, Config) and isinstance(before, Config) and before.window == "always" != here.window:
            between = builder.source.text[places[number - 1][1] : places[number][0]] if len(places) == len(goals) else ";"
            if _TOGETHER.fullmatch(between):
                goals[number - 1] = replace(before, window=here.window)
                pointer = f"/goals/{number - 1}/window"
                builder.draft.assumptions = [one for one in builder.draft.assumptions if one.pointer != pointer]


# -- what is left over -----------------------------------------------------------------------------


def _weigh(builder: Builder, answer: Mapping[str, Any]) -> None:
    """Ask about what may change a wish, set the rest aside."""
    draft, source = builder.draft, builder.source
    told = [place for words in answer["told"] for place in source.places(words)[:1] if not _bounds(source, place)]
    held = [place for one in answer["inventory"] for place in _compared(draft, source, one)]
    taken = Taken(tuple(builder.places), tuple(builder.taken), (*told, *held, *orders(source.text)))
    limiting = [
        Token(Kind.LIMITING, "unplaced", *place)
        for words in answer["unplaced"]
        for place in source.places(words)[:1]
        if not any(overlaps(place, one) for one in orders(source.text))
    ]
    left = weighty(source.text, source.tokens, draft.goals, taken)
    left = [one for one in left if not any(overlaps((one.start, one.end), (other.start, other.end)) for other in limiting)]
    open_words = sorted([*limiting, *(one for one in left if not _introduces(builder, one))], key=lambda one: one.start)
    if not draft.goals and not draft.questions and not open_words:
        _say_nothing_understood(draft)
    elif not draft.questions and open_words and (draft.goals or limiting):
        _ask_about(draft, open_words)
    elif not draft.goals and not draft.questions:
        _say_nothing_understood(draft)
    draft.set_aside = set_aside(source.text, taken, open_words)


def _say_nothing_understood(draft: Draft) -> None:
    draft.ask_about([])


def _ask_about(draft: Draft, left: Sequence[Token]) -> None:
    """One question about the words that are left; its default drops no negation, time or limit."""
    said = ", ".join(dict.fromkeys(draft.quoted(one) for one in left))
    words, nothing, without = draft.say("words_not_understood", said=said), draft.say("nothing"), draft.without(left)
    keeps = any(one.kind in _KEEPING for one in left)
    draft.ask("words_not_understood", left[0], words, (nothing, without) if keeps else (without, nothing))


def _bounds(source: Source, place: Place) -> bool:
    """Whether what is said to tell something reads like a wish: a metric, a bound and a number, and no word of a report."""
    kinds = {one.kind for one in source.within(place)}
    bounds = Kind.METRIC in kinds and Kind.QUANTITY in kinds and not kinds.isdisjoint(_BOUNDING)
    return bounds and Kind.REPORT not in kinds and _WISHING.search(fold(source.text[slice(*place)]).text) is not None


def _introduces(builder: Builder, token: Token) -> bool:
    """Whether a condition only leads to a name that a goal holds: ``if it's a paid user``, 如果是付费用户."""
    if token.value not in {"conditions", "scopes"}:
        return False
    return any(0 <= place[0] - token.end <= 12 for place in builder.taken)


def _compared(draft: Draft, source: Source, said: Mapping[str, str]) -> Iterator[Place]:
    """The place of what the text says of the inventory; a finding where the deployment has it otherwise."""
    place = next(iter(source.places(said["evidence"])), None)
    if place is None:
        return
    yield place
    kind = next((one for one in draft.catalogue.devices if one.lower() == said["kind"].strip().lower()), None)
    counts = [one.value.number for one in tokenize(said["count"], draft.catalogue) if one.kind is Kind.QUANTITY]
    have = draft.catalogue.devices[kind] if kind else 0
    if counts and counts[0] != have:
        words = draft.say("inventory_differs", said=repr(said["evidence"]), kind=kind or said["kind"], have=have)
        draft.findings.append(Finding("inventory_differs", "/text", words, said["evidence"]))
