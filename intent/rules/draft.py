"""What a translator has found so far, and how it says what it did not understand."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from intent.fold import is_chinese
from intent.messages import Language, say
from intent.models import (
    Assumption,
    Catalogue,
    Finding,
    Goal,
    Objective,
    Placement,
    Question,
    ReconfigRule,
    SetAside,
    Turn,
    Window,
)
from intent.rules.expectations import is_expectation
from intent.rules.kinds import Kind
from intent.rules.lexicon import pattern
from intent.rules.phrasing import tokenize
from intent.rules.tokens import TextToken
from intent.times.spans import until_today


@dataclass(frozen=True)
class Option:
    """An answer that a question offers: what a person would say, and the whole text that it makes."""

    say: str
    text: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text or self.say)

    def __bool__(self) -> bool:
        return bool(self.say)


_KEEPING = frozenset(
    {Kind.NEGATION, Kind.WINDOW, Kind.BAD_TIME, Kind.OVER, Kind.LIMITING, Kind.QUANTITY, Kind.RANGE, Kind.ONLY, Kind.EXCEPT}
)  # fmt: skip
"""Without these a text asks for more than it says."""
_WHOLE_CLAUSE = frozenset(
    {"precision_unclear", "placement_unclear", "reconfig_unclear", "exception_unclear", "change_unclear"}
)
"""Codes of questions that leave the whole clause open."""
_HARMLESS = frozenset({"words_not_understood", "direction_unusual"})
"""Codes of questions whose first option is no riskier than the text."""
_EITHER = frozenset({"or", "或", "或者", "还是"})
_HELD = re.compile(
    r"\b(?:not|no|never|none|nobody|without|don't|dont|can't|only|unless|until|till|except|before|after)\b|n't\b|不|别|没|勿|禁|只|除|直到|之前|之后"
)
"""A negation, a time or a limit."""


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """How much of each a draft had."""

    added: int
    goals: int
    assumptions: int
    findings: int
    questions: int


_PREPOSITIONS = frozenset({"for", "to", "of", "in", "on", "at", "with", "and", "from", "but"})


@dataclass
class Draft:
    """What a translator has found so far; grows while a text is read."""

    text: str
    catalogue: Catalogue
    goals: list[Goal] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    set_aside: tuple[SetAside, ...] = ()
    ledger: tuple[Turn, ...] = ()
    places: list[tuple[int, int]] = field(default_factory=list)
    """Half-open, where the evidence of each goal stands in the text."""
    repeated: list[tuple[int, int]] = field(default_factory=list)
    """Where a goal is said that is there already."""
    rest: dict[int, Window] = field(default_factory=dict)
    """What words for the rest of the time mean, by where they stand."""
    unusual: list[tuple[Objective, tuple[int, int], Question]] = field(default_factory=list)
    """Bounds on the side that nobody needs, which were asked about."""
    vague: list[tuple[Question, str, int]] = field(default_factory=list)
    """Questions about a vague wish, with the metric that settles it in a goal from a number on."""
    added: int = 0
    """How many goals were ever appended."""
    here: TextToken | None = None
    """The clause that is being read, as one place."""
    kept: tuple[str, ...] = ()
    """What it says of when and for whom."""

    @cached_property
    def language(self) -> Language:
        """The language the operator is answered in."""
        return "zh" if is_chinese(self.text) else "en"

    def say(self, key: str, **facts: object) -> str:
        """A message in the operator's language."""
        return say("intent", self.language, key, **facts)

    def assume(self, slot: str, key: str, **facts: object) -> None:
        """Note a default of the goal that comes next."""
        self.assumptions.append(Assumption(f"/goals/{len(self.goals)}/{slot}", self.say(key, **facts)))

    def add(self, goal: Goal, place: tuple[int, int]) -> None:
        """Append a goal, unless it is there already, with the place of its evidence."""
        ban = isinstance(goal, ReconfigRule | Placement) and goal.rule in {"forbid", "freeze"}
        goal = replace(goal, window=until_today(goal.window, self.text, self.catalogue.now, ban))
        self.added += 1
        if any(replace(goal, evidence="") == replace(other_goal, evidence="") for other_goal in self.goals):
            pointer = f"/goals/{len(self.goals)}/"
            self.assumptions = [
                assumption for assumption in self.assumptions if not assumption.pointer.startswith(pointer)
            ]
            self.repeated.append(place)
        else:
            self.goals.append(goal)
            self.places.append(place)

    def mark(self) -> "DraftCounts":
        """How much there is by now."""
        return DraftCounts(self.added, len(self.goals), len(self.assumptions), len(self.findings), len(self.questions))

    def since(self, mark: "DraftCounts") -> tuple[bool, bool]:
        """Whether goals, and whether questions were found since a mark."""
        return self.added > mark.added, len(self.questions) > mark.questions

    def take_back(self, mark: "DraftCounts") -> list[tuple[Finding, Question]]:
        """Forget what was found since a mark; gives back the questions."""
        open_questions = list(zip(self.findings[mark.findings :], self.questions[mark.questions :], strict=False))
        del self.goals[mark.goals :], self.places[mark.goals :], self.assumptions[mark.assumptions :]
        del self.findings[mark.findings :], self.questions[mark.questions :]
        return open_questions

    def take_back_goals(self, first: int) -> None:
        """Forget the goals from a number on, with what they assume."""
        del self.goals[first:], self.places[first:]
        kept = {f"/goals/{n}/" for n in range(first)}
        self.assumptions = [
            assumption for assumption in self.assumptions if any(assumption.pointer.startswith(k) for k in kept)
        ]

    def ask(self, code: str, token: TextToken | None, words: str, options: "Sequence[Option | str]") -> None:
        """Note what is unclear, and the question that settles it; the first option is the default.

        That is to leave everything as it is, but where words without a negation, a time or a limit can be left out, and
        where a bound lies on the side that nobody needs.
        """
        quoted = (self.said(token) or None) if token else None
        nothing = Option(self.say("nothing"))
        example = Option(_EXAMPLE[self.language])
        given = [option if isinstance(option, Option) else Option(option) for option in options if option]
        open_words = self.said(self.here) if code in _WHOLE_CLAUSE and self.here else quoted or ""
        if code not in _HARMLESS or _HELD.search(open_words.lower()):
            given = [nothing, *(option for option in given if option != nothing)]
        distinct = list({option.text: option for option in given}.values())
        offered = (
            distinct
            if len(distinct) > 1
            else [*distinct, *(option for option in (nothing, example) if option not in distinct)][:2]
        )
        sayings = tuple(option.say for option in offered[:4])
        texts = tuple(choice.text for choice in offered[:4])
        self.findings.append(Finding(code, "/text", words, quoted, sayings[0]))
        self.questions.append(Question(words, sayings, sayings[0], texts))

    def note_spelling(self, tokens: Sequence[TextToken]) -> None:
        """Say which words were taken for others, at the goal they stand in or in front of."""
        ends = [end for _, end in self.places]
        for token in tokens:
            place = next((n for n, end in enumerate(ends) if token.start < end), len(ends) - 1)
            if token.misspelt and ends:
                words = self.say("assumed_spelling", was=token.misspelt[0], taken=token.misspelt[1])
                self.assumptions.append(Assumption(f"/goals/{place}/evidence", words))

    def said(self, token: TextToken) -> str:
        """The words of the text in this place."""
        return self.text[token.start : token.end]

    def quoted(self, token: TextToken) -> str:
        """The same in quotation marks."""
        return repr(self.said(token)) if self.language == "en" else f"“{self.said(token)}”"

    def instead(self, token: TextToken, words: str) -> "Option":
        """The text with other words in this place; in front of it, if the place is empty."""
        before = self.text[: token.start]
        after = self.text[token.end :]
        left = " " if before[-1:].isalnum() else ""
        right = " " if after[:1].isalnum() else ""
        return Option(words, " ".join(f"{before}{left}{words}{right}{after}".split()))

    def rephrased(self, words: str) -> "Option":
        """The text with other words for the clause that is being read; when and for whom stay."""
        parts = (words, *self.kept) if self.language == "en" else (*self.kept, words)
        return Option(words, self.instead(self.here, " ".join(parts)).text) if self.here else Option(words)

    def without(self, tokens: Sequence[TextToken]) -> "Option":
        """The text with these places left out, and a preposition that is left hanging at the end."""
        left = list(self.text)
        for token in tokens:
            left[token.start : token.end] = " " * (token.end - token.start)
        words = "".join(left).split()
        while words and words[-1].lower() in _PREPOSITIONS:
            words.pop()
        quoted = ", ".join(dict.fromkeys(self.quoted(token) for token in _contiguous(tokens)))
        return Option(self.say("go_on_without", said=quoted), " ".join(words).strip(" ,;，；、"))

    def before(self, token: TextToken, words: str) -> "Option":
        """The text with words put in before this place."""
        return Option(f"{words} {self.said(token)}", self.instead(replace(token, end=token.start), words).text)

    def ask_about(self, leftovers: Sequence[TextToken]) -> None:
        """Words without a place: beside goals they are asked about, alone they are out of scope."""
        if not self.goals and not self.questions:
            quoted = " ".join(self.text.split())
            shown = repr(quoted if len(quoted) <= 60 else f"{quoted[:57]}...")
            examples = self.say("examples")
            metrics = self.say("metrics")
            answered = (name.replace(" ", "_") for name in _ANSWERS if pattern(name).search(self.text.lower()))
            code = next(answered, "expectation" if is_expectation(self.text) else "not_understood")
            words = self.say(
                code,
                said=shown,
                examples=examples,
                metrics=metrics,
                **{act: _command(self.text, self.catalogue, act) for act in ("drain", "undrain")},
            )
            self.findings.append(Finding(code, "/text", words))
        elif leftovers and self.goals:
            quoted = ", ".join(dict.fromkeys(self.quoted(token) for token in _contiguous(leftovers)))
            drains = pattern("draining").search(self.text.lower()) and any(
                token.kind is Kind.SELECTOR for token in leftovers
            )
            code = "draining" if drains else "words_not_understood"
            words = self.say(code, said=quoted, drain=_command(self.text, self.catalogue, "drain"))
            self.ask(code, _contiguous(leftovers)[0], words, self._instead_of(leftovers))

    def _instead_of(self, leftovers: Sequence[TextToken]) -> "tuple[Option | str, ...]":
        nothing = self.say("nothing")
        if any(self.said(token).lower() in _EITHER for token in leftovers):
            return (*self._alternatives(leftovers), nothing)
        if any(token.kind in _KEEPING for token in leftovers):  # without its "not" a text says the opposite
            return nothing, self.without(leftovers)
        return self.without(leftovers), nothing

    def _alternatives(self, leftovers: Sequence[TextToken]) -> "tuple[Option, ...]":
        """``tp=2 or tp=4``: the text with the one, and with the other."""
        joint = next(token for token in leftovers if self.said(token).lower() in _EITHER)
        ends = [self.text.find(goal.evidence) + len(goal.evidence) for goal in self.goals]
        before = max((n for n, end in enumerate(ends) if end <= joint.start), default=None)
        after = min((n for n, end in enumerate(ends) if end > joint.end), default=None)
        if before is None or after is None:
            return (self.without(leftovers),)
        gap = ends[before] - len(self.goals[before].evidence)
        other = ends[after]
        first = self.without([replace(joint, end=other)])
        second = self.without([replace(joint, start=gap)])
        return replace(first, say=self.goals[before].evidence), replace(second, say=self.goals[after].evidence)


_ANSWERS = (
    "retiring", "device back", "draining", "broken device", "redundancy",
    "asking what runs", "asking about promises", "asking why", "going back",
)  # fmt: skip
"""Classes of ``statements.yaml`` that another command answers; the messages have the same names."""
_EXAMPLE = {"en": "keep P99 TTFT < 2s at peak", "zh": "高峰期 P99 TTFT 不超过 2 秒"}


def _command(text: str, catalogue: Catalogue, act: str) -> str:
    """What to type for it, for each device or node that the text names.

    A time of another day is left to the person.
    """
    tokens = tokenize(_BY.sub("before", text), catalogue)
    named = {f"node:{name}" for name in catalogue.nodes}
    places = (str(token.value) if token.kind is Kind.SELECTOR else f"node:{token.value}" for token in tokens)
    names = dict.fromkeys(place.partition(":")[2] for place in places if place in named or place.startswith("gpu:"))
    times = [getattr(token.value, "end", "24:00") for token in tokens if token.kind is Kind.WINDOW]
    by = f" --by {times[0]}" if times and times[0] != "24:00" and act == "drain" else ""
    return ", ".join(f"`intentctl {act} {name}{by}`" for name in names or ["ID"])


_BY = re.compile(r"\bby\b(?=[^,.;]*\d)", re.IGNORECASE)


def _contiguous(tokens: Sequence[TextToken]) -> list[TextToken]:
    """Neighbours as one: unknown Han characters come one by one."""
    joined: list[TextToken] = []
    for token in sorted(tokens, key=lambda token: token.start):
        if joined and joined[-1].end >= token.start:
            joined[-1] = replace(joined[-1], end=max(joined[-1].end, token.end))
        else:
            joined.append(token)
    return joined
