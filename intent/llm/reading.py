"""From an LLM's answer to what is meant: its typed goals are the goals, and what they leave over is weighed. Pure.

``docs/intents.md`` has the conventions; ``docs/decisions/0019`` says why no second reading of the text stands beside this one.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from intent.errors import ExtractionError, Failure, Problem
from intent.fold import Place, fold, overlaps
from intent.injection import orders
from intent.llm.goals import add_goal_of, are_opposed
from intent.llm.quotes import Source
from intent.llm.slots import COPIED, NAMING, GoalSlots, Said, unheld
from intent.llm.windows import longer_name
from intent.llm.wire import Slots, unusable
from intent.models import Catalogue, Config, Goal
from intent.rules.draft import Draft, Option
from intent.rules.inventory import compare
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token
from intent.rules.weighing import Taken, set_aside, weighty
from intent.times.rest import is_rest

_BOUND = frozenset({Kind.METRIC, Kind.QUANTITY, Kind.COMPARISON})
_TELLING = re.compile(
    r"\b(?:was|were|is|are|has|had|have|been|says?|said|promised|went|since|because|ago|last|yesterday|used to)\b"
    r"|了|过|说|昨|曾|目前|现在|因为|写着|答应"
)
"""Words of what only tells, one of which a metric and its bound need to be no wish."""
_TOGETHER = re.compile(r"\s*(?:,|and|&|\+|、|，|和|/)?\s*(?:and|和)?\s*")
"""Between settings of one topology."""
_LEADING = 12
"""Characters from a condition to the name that it leads to."""
_KEEPING = frozenset({Kind.NEGATION, Kind.WINDOW, Kind.BAD_TIME, Kind.LIMITING, Kind.QUANTITY, Kind.RANGE})
"""Without these a text asks for more than it says: a question about them does not offer that first."""


@dataclass
class Read:
    """What an answer comes to, and what of it the text does not bear."""

    source: Source
    draft: Draft
    said_from: int = 0
    problems: list[Problem] = field(default_factory=list)
    evidence: list[Place] = field(default_factory=list)
    """Of each goal, built or not."""
    refused: list[Place] = field(default_factory=list)
    """The evidence of goals that have a problem."""
    slots: list[Place] = field(default_factory=list)
    """Words that goals took, from their evidence or beside it."""
    names: list[Place] = field(default_factory=list)
    """Those of them that name somebody or something."""
    built: list[int] = field(default_factory=list)
    """For each goal of the draft its number in the answer."""

    def settled(self) -> Draft:
        """The draft; what the model could not put right is asked of the person.

        Raises:
            ExtractionError: there is nothing else in the answer.
        """
        draft = self.draft
        if not self.problems:
            return draft
        if not self.refused or not (draft.goals or draft.questions):
            raise refusal(self.problems)
        said = [Token(Kind.UNKNOWN, None, *place) for place in self.refused]
        words = draft.say("slots_not_in_text", said=", ".join(map(draft.quoted, said)))
        draft.questions.clear()
        draft.ask("slots_not_in_text", said[0], words, [draft.say("nothing"), draft.without(said)])
        return draft


def read_answer(
    answer: Mapping[str, Any],
    text: str,
    catalogue: Catalogue,
    said_from: int = 0,
    bases: Sequence[Goal | None] = (),
) -> Read:
    """The goals of a wire answer with all that was assumed, found, set aside or left open.

    Of a follow-up, what stands before ``said_from`` was said before, and ``bases`` are the goals whose places these take.
    """
    read, said = Read(Source.of(text, catalogue), Draft(text, catalogue), said_from), Said()
    opposed = are_opposed(answer["goals"])
    for number, slots in enumerate(answer["goals"]):
        before = len(read.draft.goals)
        _add(read, said, slots, f"/goals/{number}", opposed[number], bases[number] if bases else None)
        read.built += [number] * (len(read.draft.goals) - before)
    _share_windows(read)
    read.problems += _absent(read.source, answer)
    _weigh(read, answer)
    return read


def refusal(problems: Sequence[Problem]) -> ExtractionError:
    """The failure of an answer with these problems."""
    formal = any("does not have it" in one.words or "needs" in one.words for one in problems)
    return unusable(Failure.NOT_IN_SCHEMA if formal else Failure.NOT_IN_TEXT, list(problems))


def _add(read: Read, said: Said, slots: Slots, pointer: str, opposed: bool, base: Goal | None) -> None:
    """The goal of some slots, unless the text does not bear it."""
    draft, source = read.draft, read.source
    problems = list(unheld(source, slots, pointer))
    if problems:
        read.problems += problems
        return
    place = next((one for one in source.places(slots["evidence"] or "") if one[0] >= read.said_from), None)
    if place is None:
        read.problems.append(Problem(f"{pointer}/evidence", "copy it from what is said now"))
        return
    read.evidence.append(place)
    for slot in COPIED[1:]:
        if (words := slots[slot]) and (near := source.place(words, place)):
            whole = longer_name(source, near) if slot == "window" else None
            read.slots += [] if whole else [near]  # what is longer has to be what a goal says
            read.names += [near] if slot in NAMING else []
    draft.here = Token(Kind.UNKNOWN, None, *place)
    goals, assumptions = len(draft.goals), len(draft.assumptions)
    one = GoalSlots(source, draft, said, slots, place, pointer, base)
    add_goal_of(one, opposed)
    if one.problems:
        read.problems += one.problems
        read.refused.append(place)
        del draft.goals[goals:], draft.assumptions[assumptions:]
    if not is_rest(slots["window"] or ""):
        said.windows += [goal.window for goal in draft.goals[goals:]]


def _absent(source: Source, answer: Mapping[str, Any]) -> Iterator[Problem]:
    """Quotes beside the goals that do not stand in the text."""
    quotes = [(f"/{name}/{n}", said) for name in ("told", "unplaced") for n, said in enumerate(answer[name])]
    quotes += [(f"/inventory/{n}/evidence", one["evidence"]) for n, one in enumerate(answer["inventory"])]
    for pointer, words in quotes:
        if words.strip() and not source.places(words):
            yield Problem(pointer, f"{words[:60]!r} is not in the text; copy its words")


def _share_windows(read: Read) -> None:
    """TP, PP and replicas said together are one topology: the window of the last is that of all."""
    goals = read.draft.goals
    if len(goals) != len(read.evidence):
        return
    for number in range(len(goals) - 1, 0, -1):
        before, here = goals[number - 1 : number + 1]
        between = read.source.text[read.evidence[number - 1][1] : read.evidence[number][0]]
        both = isinstance(before, Config) and isinstance(here, Config) and _TOGETHER.fullmatch(between)
        if both and before.window == "always" != here.window:
            goals[number - 1] = replace(before, window=here.window)
            assumed = f"/goals/{number - 1}/window"
            read.draft.assumptions = [one for one in read.draft.assumptions if one.pointer != assumed]


# -- what is left over -----------------------------------------------------------------------------


def _weigh(read: Read, answer: Mapping[str, Any]) -> None:
    """Ask about what may change a wish, and set the rest aside."""
    draft, source, given = read.draft, read.source, orders(read.source.text)
    told = [place for words in answer["told"] for place in source.places(words)[:1]]
    told = [place for place in told if not _wishes(source, place)]
    held = [place for one in answer["inventory"] for place in _compared(draft, source, one)]
    before = [(0, read.said_from)] if read.said_from else []
    evidence = tuple(read.evidence)
    taken = Taken(evidence, evidence, tuple(read.slots), (*told, *held), (*given, *before))
    left = [
        Token(Kind.LIMITING, "unplaced", *place)
        for words in answer["unplaced"]
        for place in source.places(words)[:1]
        if not any(overlaps(place, order) for order in given)
    ]
    limiting = bool(left)
    for token in weighty(source.text, source.tokens, draft.goals, taken):
        known = any(overlaps((token.start, token.end), (one.start, one.end)) for one in left)
        if not known and not _leads(read, token):
            left.append(token)
    left.sort(key=lambda one: one.start)
    if not draft.questions and left and (draft.goals or limiting):
        _ask_about(draft, left)
    else:
        draft.ask_about([])
    draft.set_aside = set_aside(source.text, taken, left) if draft.goals else ()


def _ask_about(draft: Draft, left: Sequence[Token]) -> None:
    """One question about the words that are left; its default drops no negation, time or limit."""
    said = ", ".join(dict.fromkeys(draft.quoted(one) for one in left))
    options: list[Option | str] = [draft.without(left), draft.say("nothing")]
    if any(one.kind in _KEEPING for one in left):
        options.reverse()
    draft.ask("words_not_understood", left[0], draft.say("words_not_understood", said=said), options)


def _wishes(source: Source, place: Place) -> bool:
    """Whether what is said to tell something reads like a wish: a metric and its bound, and no word of telling."""
    kinds = {one.kind for one in source.within(place)}
    telling = _TELLING.search(fold(source.text[slice(*place)]).text)
    return kinds >= _BOUND and Kind.REPORT not in kinds and telling is None


def _leads(read: Read, token: Token) -> bool:
    """Whether a condition only leads to a name that a goal holds: ``if it's a paid user``, 如果是付费用户."""
    named = any(0 <= place[0] - token.end <= _LEADING for place in read.names)
    return named and token.value in {"conditions", "scopes"}


def _compared(draft: Draft, source: Source, said: Mapping[str, str]) -> Iterator[Place]:
    """The place of what the text says of the inventory; a finding where the deployment has it otherwise."""
    place = next(iter(source.places(said["evidence"])), None)
    if place is None:
        return
    yield place
    counts = [
        one.value.number for one in tokenize(said["count"], draft.catalogue) if one.kind is Kind.QUANTITY
    ]
    if counts:
        compare(draft, place, said["kind"].strip(), counts[0])
