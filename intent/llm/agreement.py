"""An LLM's reading beside the rules': what both say holds, what they say differently is asked.

What an LLM's goals mean is read by the rules, from one sentence each: units, windows, defaults and directions have one
meaning. An LLM adds words that the rules do not know; it never settles what the text itself leaves open.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intent.injection import orders
from intent.llm.evidence import Claim, Claims, Place
from intent.llm.sentences import join
from intent.messages import say
from intent.models import Assumption, Catalogue, Goal
from intent.readback import in_words
from intent.rules import read
from intent.rules.draft import Draft
from intent.rules.kinds import Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import Token

NOT_UNDERSTOOD = frozenset({"words_not_understood", "unknown_metric", "number_unreadable"})
"""What the rules ask where words are strange to them; any other question of theirs is about what was said."""

_SILENT = frozenset({Kind.FILLER, Kind.JOIN, Kind.LIST, Kind.STOP, Kind.UNKNOWN, Kind.ORDER, Kind.REPORT})
"""Words that change no wish by themselves."""
_SLOTS = {
    Kind.METRIC: "metric",
    Kind.STAT: "stat",
    Kind.COMPARISON: "op",
    Kind.OPTIMISE: "op",
    Kind.SETTING: "key",
    Kind.PRECISION: "value",
}
"""Words whose meaning an LLM may know where the rules do not, and the key of a goal they fill."""
_WEIGHTY = frozenset(
    {
        *_SLOTS, Kind.QUANTITY, Kind.RANGE, Kind.FACTOR, Kind.WINDOW, Kind.TENANT, Kind.MODEL, Kind.SELECTOR, Kind.NEGATION,
        Kind.LIMITING, Kind.EXCEPT,
    }
)  # fmt: skip
"""Words that a goal must say as the text says them."""


_Weight = tuple[Kind, Any]
"""A word's kind and meaning."""


def settle(claims: Claims, catalogue: Catalogue) -> Draft:
    """The goals both readings come to, or the one question that is open."""
    rules = read(claims.text, catalogue)
    open_point = _asked_first(rules)
    if open_point is not None and open_point not in NOT_UNDERSTOOD:
        return rules
    readings = [_Reading(claim, read(claim.sentence, catalogue)) for claim in claims.goals]
    asking = next((one for one in readings if one.draft.questions), None)
    if asking is not None:
        same = open_point == _asked_first(asking.draft)
        return rules if same else _asked(claims, catalogue, readings, asking)
    draft = _told(claims, readings, catalogue)
    if rules.questions and not draft.goals:
        return rules
    strange = [Token(Kind.UNKNOWN, "", *one.claim.place) for one in readings if one.goal is None]
    if rules.questions or not rules.goals:
        strange += _passed_over(claims, readings, catalogue)
    elif _meanings(draft.goals) == _meanings(rules.goals):
        draft = rules
    else:
        _ask_which(claims, draft, rules)
    if not draft.questions:
        draft.ask_about([*strange, *_unplaced(claims)])
    return draft


def _asked_first(draft: Draft) -> str | None:
    """The code of the question that the operator would get."""
    if not draft.questions:
        return None
    words = draft.questions[0].text
    return next((finding.code for finding in draft.findings if finding.message == words), "")


@dataclass(frozen=True, slots=True)
class _Reading:
    """One claim, and what the rules make of its sentence."""

    claim: Claim
    draft: Draft

    @property
    def goal(self) -> Goal | None:
        """The goal, if the sentence says one and no more, of the kind the LLM claimed."""
        goals = self.draft.goals
        return goals[0] if len(goals) == 1 and not self._denied(goals[0]) else None

    def _denied(self, goal: Goal) -> bool:
        slots = self.claim.slots
        if slots["subject"] == "unknown":
            return False
        claimed = slots["comparison"]
        meant: Any = getattr(goal, "op", "<=")
        return goal.type != slots["type"] or claimed not in {None, meant}


def _told(claims: Claims, readings: Sequence[_Reading], catalogue: Catalogue) -> Draft:
    """The LLM's goals with their own evidence; assumptions and findings of their sentences come along."""
    draft = Draft(claims.text, catalogue)
    own = _weights(claims.tokens)
    for reading in readings:
        number, goal = len(draft.goals), reading.goal
        if goal is None or _meanings([goal]) <= _meanings(draft.goals):
            continue
        start, end = reading.claim.place
        quote = draft.text[start:end]
        draft.goals.append(replace(goal, evidence=quote))
        for one in (*reading.draft.assumptions, *_additions(claims, reading, own, catalogue)):
            draft.assumptions.append(replace(one, pointer=_renumbered(one.pointer, number)))
        for finding in reading.draft.findings:
            pointer = _renumbered(finding.pointer, number)
            draft.findings.append(replace(finding, pointer=pointer, evidence=quote))
    return draft


def _additions(
    claims: Claims, reading: _Reading, own: Sequence[_Weight], catalogue: Catalogue
) -> Iterator[Assumption]:
    """What the LLM understood and no word of the lexicon says."""
    quote = claims.text[slice(*reading.claim.place)]
    for token in tokenize(reading.claim.sentence, catalogue):
        if token.kind in _SLOTS and (token.kind, token.value) not in own:
            meaning = reading.claim.sentence[token.start : token.end]
            words = say("intent", claims.language, "taken_to_mean", said=quote, meaning=meaning)
            yield Assumption(f"/goals/0/{_SLOTS[token.kind]}", words)


def _renumbered(pointer: str, number: int) -> str:
    return pointer.replace("/goals/0", f"/goals/{number}", 1)


def _asked(claims: Claims, catalogue: Catalogue, readings: Sequence[_Reading], asking: _Reading) -> Draft:
    """The question about one goal, its options completed to texts that say the other goals too."""
    draft = Draft(claims.text, catalogue)

    def whole(option: str) -> str:
        if option == draft.say("nothing") or len(readings) == 1:
            return option
        return join((option if one is asking else one.claim.sentence for one in readings), claims.language)

    question = asking.draft.questions[0]
    options = tuple(whole(one) for one in question.options)
    draft.questions.append(replace(question, options=options, default=options[0]))
    start, end = asking.claim.place
    for finding in asking.draft.findings:
        suggestion = whole(finding.suggestion) if finding.suggestion else None
        draft.findings.append(replace(finding, evidence=claims.text[start:end], suggestion=suggestion))
    return draft


# -- both could read -------------------------------------------------------------------------------


def _ask_which(claims: Claims, draft: Draft, rules: Draft) -> None:
    """Ask which of the two readings is meant."""
    options = [
        text for goals in (rules.goals, draft.goals) if (text := _reads_back(goals, claims, draft.catalogue))
    ]
    draft.ask("readings_differ", None, draft.say("readings_differ"), (*options, draft.say("nothing")))


def _meanings(goals: Iterable[Goal]) -> set[Goal]:
    return {replace(goal, evidence="") for goal in goals}


def _reads_back(goals: Sequence[Goal], claims: Claims, catalogue: Catalogue) -> str | None:
    """These goals as one text, if the rules read it as them."""
    text = in_words(goals, claims.language)
    return text if goals and _meanings(read(text, catalogue).goals) == _meanings(goals) else None


# -- only the LLM could read -----------------------------------------------------------------------


def _passed_over(claims: Claims, readings: Sequence[_Reading], catalogue: Catalogue) -> list[Token]:
    """Words with a meaning that no goal has its place for, or that the goals say in another way."""
    taken = [place for claim in claims.goals for place in (claim.place, *claim.copied)]
    said = _weights(token for one in readings for token in tokenize(one.claim.sentence, catalogue))
    given = orders(claims.text)
    return [
        token
        for token in claims.tokens
        if token.kind not in _SILENT
        and not _overlaps(token, [*claims.unplaced, *given])
        and not (_overlaps(token, taken) and all(weight in said for weight in _weights([token])))
    ]


def _weights(tokens: Iterable[Token]) -> list[_Weight]:
    """What must be said alike; a range is its two ends."""
    found: list[_Weight] = []
    for token in tokens:
        if token.kind is Kind.RANGE:
            found += [(Kind.QUANTITY, end) for end in token.value]
        elif token.kind in _WEIGHTY and token.value not in {"better", "worse"}:
            found.append((token.kind, token.value))
    return found


def _overlaps(token: Token, places: Iterable[Place]) -> bool:
    return any(start < token.end and token.start < end for start, end in places)


def _unplaced(claims: Claims) -> list[Token]:
    """What the LLM itself found no place for, if it is more than filling."""
    return [
        Token(Kind.UNKNOWN, "", start, end)
        for start, end in claims.unplaced
        if any(token.kind is not Kind.FILLER for token in claims.tokens if _overlaps(token, [(start, end)]))
    ]
