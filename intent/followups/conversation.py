"""Versions of an intent, and what is said about them. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from intent.followups.fragments import ParsedFollowUp, is_called, same_wish, say
from intent.messages import Language
from intent.messages import say as say_in
from intent.models import (
    Assumption,
    Catalogue,
    Finding,
    Goal,
    Intent,
    LlmSettings,
    Outcome,
    Question,
    TranslatorInfo,
)
from intent.rules.kinds import ANY_LATENCY, ANY_THROUGHPUT, Kind
from intent.rules.phrasing import tokenize
from intent.rules.tokens import TextToken
from intent.translate import translate

Mode = Literal["merge", "replace", "answer"]
"""Beside the goals before, in place of all that was said, or an option of the open question."""


@dataclass(frozen=True, slots=True)
class GoalChange:
    """What became of one goal.

    The pointer is into the new version, for a removed goal into the one before.
    """

    change: Literal["added", "changed", "removed"]
    pointer: str
    before: Goal | None
    after: Goal | None


@dataclass(frozen=True, slots=True)
class Amendment:
    """A new version of an intent and what is different.

    Without a difference its findings or its question say why.
    """

    intent: Intent
    diff: tuple[GoalChange, ...]
    mode: Mode


@dataclass(frozen=True, slots=True)
class GoalEntry:
    """A goal with its assumptions (slot, words), and its place in the version before."""

    goal: Goal
    notes: tuple[tuple[str, str], ...] = ()
    origin: int | None = None


def entries_of(intent: Intent) -> tuple[GoalEntry, ...]:
    """The goals of an intent, each at its place."""
    notes: list[list[tuple[str, str]]] = [[] for _ in intent.goals]
    for assumption in intent.assumptions:
        _, root, place, slot = (*assumption.pointer.split("/", 3), "", "", "")[:4]
        if root == "goals" and place.isdigit() and int(place) < len(notes):
            notes[int(place)].append((slot, assumption.text))
    return tuple(GoalEntry(goal, tuple(notes[n]), n) for n, goal in enumerate(intent.goals))


def version(previous: Intent, entries: Sequence[GoalEntry], base: Intent, mode: Mode) -> Amendment:
    """The intent of these goals, those of the version before first, and what is different."""
    ordered = sorted(entries, key=lambda entry: len(previous.goals) if entry.origin is None else entry.origin)
    notes = [
        Assumption(f"/goals/{place}/{slot}", words)
        for place, entry in enumerate(ordered)
        for slot, words in entry.notes
    ]
    goals = tuple(entry.goal for entry in ordered)
    intent = replace(base, goals=goals, assumptions=tuple(notes), set_aside=(), readback="")
    return Amendment(replace(intent, outcome=intent.understood), _difference(previous.goals, ordered), mode)


def _difference(before: Sequence[Goal], entries: Sequence[GoalEntry]) -> tuple[GoalChange, ...]:
    kept = {entry.origin for entry in entries}
    removed = [GoalChange("removed", f"/goals/{n}", goal, None) for n, goal in enumerate(before) if n not in kept]
    others = []
    for place, entry in enumerate(entries):
        if entry.origin is None:
            others.append(GoalChange("added", f"/goals/{place}", None, entry.goal))
        elif not same_wish(before[entry.origin], entry.goal):
            others.append(GoalChange("changed", f"/goals/{place}", before[entry.origin], entry.goal))
    return (*removed, *others)


AMBIGUOUS = "follow_up_ambiguous"
NOT_UNDERSTOOD = "follow_up_not_understood"
NO_CHANGE = "follow_up_changes_nothing"
_ORDERS = "injection_suspected"

ReadBack = Callable[[Intent], str]
"""An intent's goals as a text that the rules read to the same goals."""
Entries = Sequence[GoalEntry]


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said before and what is said now."""

    previous: Intent
    said: str
    follow: ParsedFollowUp
    catalogue: Catalogue
    read_back: ReadBack
    entries: tuple[GoalEntry, ...] = field(default=())
    llm: LlmSettings | None = None
    """What reads whole texts, and says what a follow-up changes."""

    @property
    def opens_anew(self) -> bool:
        """Whether its first words replace everything: ``instead: …``; a last "instead" may mean one goal."""
        return self.follow.replaces and not self.said.startswith(self.follow.text)

    def phrase(self, goal: Goal) -> str:
        """One goal as a clause."""
        alone = replace(self.previous, goals=(goal,), assumptions=(), set_aside=())
        return self.read_back(alone).rstrip(".。 ")

    def meanings(self, goal: Goal) -> set[tuple[Kind, str]]:
        """What a goal can be called by: the words it came from, and those of its clause."""
        words = (goal.evidence, self.phrase(goal))
        tokens = [token for text in words for token in tokenize(text, self.catalogue)]
        common = [name for name in (ANY_LATENCY, ANY_THROUGHPUT) if is_called(goal, name)]
        return {(token.kind, _meaning(token)) for token in tokens} | {(Kind.METRIC, repr(name)) for name in common}

    def names(self, goal: Goal, words: str) -> bool:
        """Whether all of these words say something of a goal; a bare number is one in any unit."""
        tokens = [token for token in tokenize(words, self.catalogue) if token.kind not in _SILENT]
        own = self.meanings(goal)
        own |= {(kind, value.partition(" ")[0]) for kind, value in own if kind is Kind.QUANTITY}
        return all((token.kind, _meaning(token)) in own for token in tokens)

    def kinds(self, words: str) -> set[Kind]:
        """What words say, without those that say nothing."""
        return {token.kind for token in tokenize(words, self.catalogue)} - _SILENT

    def has_old(self, goal: Goal) -> bool:
        """Whether a goal has the value that ``instead of`` names."""
        return self.follow.old is None or self.names(goal, self.follow.old)

    # -- how it can end --------------------------------------------------------------------------------

    def refused(self, code: str, key: str, **facts: object) -> Amendment:
        """Nothing changes, and why."""
        words = say(self.previous.language, key, said=self.said, **facts)
        found = orders_in(translate(self.said, self.catalogue))
        unchanged = replace(
            self.previous,
            findings=(*found, Finding(code, "/text", words, self.said)),
            questions=(),
            outcome=Outcome.OUT_OF_SCOPE,
        )
        return Amendment(unchanged, (), "merge")

    def lost(self) -> Amendment:
        """Nothing changes: the words cannot be tied to a goal."""
        return self.refused(NOT_UNDERSTOOD, "not_understood" if self.entries else "no_goal")

    def next(self, entries: Entries, found: tuple[Finding, ...] = (), language: Language | None = None) -> Amendment:
        """The version with these goals.

        A question that is open stays so, unless it was about a follow-up or all there was.
        """
        previous = self.previous
        waits = self.waits and bool(entries)
        kept = [finding for finding in previous.findings if finding.pointer == "/text"] if waits else []
        if not entries:
            found = (*found, Finding("withdrawn", "/text", say(previous.language, "withdrawn")))
        base = replace(
            previous,
            text=f"{previous.text}\n{self.said}",
            language=previous.language if previous.goals or language is None else language,
            questions=previous.questions if waits else (),
            findings=tuple(dict.fromkeys((*orders_in(previous), *kept, *found))),
            translator=translator(previous),
        )
        amendment = version(previous, _evident(entries, base.text, self.said), base, "merge")
        return amendment if amendment.diff else self.refused(NO_CHANGE, "no_change")

    @property
    def waits(self) -> bool:
        """Whether a question about the words before, not about a follow-up, waits beside goals."""
        about_follow_up = any(finding.code == AMBIGUOUS for finding in self.previous.findings)
        return bool(self.previous.questions and self.previous.goals) and not about_follow_up

    def asked(self, alternatives: Iterable[Entries], found: tuple[Finding, ...], key: str = "which_goal") -> Amendment:
        """The goals as they are, and the question which of these versions was meant."""
        return self.question(alternatives, say(self.previous.language, key, said=self.said), found)

    def question(self, alternatives: Iterable[Entries], words: str, found: tuple[Finding, ...]) -> Amendment:
        """The goals as they are, and a question; each option is the complete text of one version."""
        if self.waits:
            return self.refused(NOT_UNDERSTOOD, "answer_first", question=self.previous.questions[0].text)
        texts = {
            text: self._difference(entries) or text
            for entries in alternatives
            if (text := self._complete(entries)) is not None
        }
        if len(texts) == 1 and (as_before := self._complete(self.entries)) is not None:
            texts.setdefault(as_before, say_in("intent", self.previous.language, "nothing"))
        offered = list(texts)[:4]
        sayings = tuple(texts[option] for option in offered)
        if len(offered) < 2:
            return self.lost()
        finding = Finding(AMBIGUOUS, "/text", words, self.said, sayings[0])
        intent = replace(
            self.previous,
            text=f"{self.previous.text}\n{self.said}",
            questions=(Question(words, sayings, sayings[0], tuple(offered)),),
            findings=tuple(dict.fromkeys((*orders_in(self.previous), *found, finding))),
            outcome=Outcome.CLARIFY,
        )
        return Amendment(intent, (), "merge")

    def _difference(self, entries: Entries) -> str | None:
        """What these goals have that the intent has not, in words; None where nothing is new."""
        known = [entry.goal for entry in self.entries]
        new = tuple(entry.goal for entry in entries if not any(same_wish(entry.goal, goal) for goal in known))
        return self.read_back(replace(self.previous, goals=new, assumptions=(), set_aside=())) if new else None

    def _complete(self, entries: Entries) -> str | None:
        """The text of these goals, if the rules read it so."""
        goals = tuple(entry.goal for entry in entries)
        text = self.read_back(replace(self.previous, goals=goals, assumptions=(), set_aside=()))
        read = translate(text, self.catalogue)
        same = len(read.goals) == len(goals) and all(map(same_wish, read.goals, goals))
        return text if same and not read.questions else None


_SILENT = frozenset({Kind.FILLER, Kind.STOP, Kind.JOIN, Kind.LIST, Kind.AUDIENCE, Kind.TO})


def _meaning(token: TextToken) -> str:
    """A token's value in one spelling; a quantity's number comes first."""
    if token.kind is Kind.QUANTITY:
        meaning = token.value
        return f"{meaning.number:g} {meaning.unit} {meaning.factor:g}" if meaning.unit else f"{meaning.number:g}"
    return repr(token.value)


def translator(previous: Intent) -> TranslatorInfo:
    """Follow-ups are read by the rules, whoever read the first text."""
    first = previous.translator
    if first.name == "rules":
        return first
    return TranslatorInfo("rules", reason=say(previous.language, "as_before", name=first.model or first.name))


def orders_in(*intents: Intent) -> tuple[Finding, ...]:
    """Findings that need a person; they stay with the intent."""
    return tuple(dict.fromkeys(finding for intent in intents for finding in intent.findings if finding.code == _ORDERS))


def _evident(entries: Entries, text: str, words: str) -> list[GoalEntry]:
    """Evidence stands in the text, word for word."""
    return [
        entry if entry.goal.evidence in text else replace(entry, goal=replace(entry.goal, evidence=words))
        for entry in entries
    ]
