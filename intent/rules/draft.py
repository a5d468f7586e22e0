"""What a translator has found so far, and how it says what it did not understand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from intent.fold import is_chinese
from intent.messages import Language, say
from intent.models import Assumption, Catalogue, Finding, Goal, Question, SetAside
from intent.rules.kinds import Kind
from intent.rules.tokens import Token

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
    here: Token | None = None
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

    def add(self, goal: Goal) -> None:
        """Append a goal, unless it is there already."""
        if any(replace(goal, evidence="") == replace(one, evidence="") for one in self.goals):
            pointer = f"/goals/{len(self.goals)}/"
            self.assumptions = [one for one in self.assumptions if not one.pointer.startswith(pointer)]
        else:
            self.goals.append(goal)

    def ask(self, code: str, token: Token | None, words: str, options: Sequence[str]) -> None:
        """Note what is unclear, and the question that settles it; the first option is the default."""
        said = (self.said(token) or None) if token else None
        distinct = tuple(option for option in dict.fromkeys(options) if option)
        fallbacks = (self.say("nothing"), _EXAMPLE[self.language])
        offered = distinct if len(distinct) > 1 else tuple(dict.fromkeys((*distinct, *fallbacks)))[:2]
        offered = offered[:4]
        self.findings.append(Finding(code, "/text", words, said, offered[0]))
        self.questions.append(Question(words, offered, offered[0]))

    def said(self, token: Token) -> str:
        """The words of the text in this place."""
        return self.text[token.start : token.end]

    def quoted(self, token: Token) -> str:
        """The same in quotation marks."""
        return repr(self.said(token)) if self.language == "en" else f"“{self.said(token)}”"

    def instead(self, token: Token, words: str) -> str:
        """The text with other words in this place; in front of it, if the place is empty."""
        before, after = self.text[: token.start], self.text[token.end :]
        left = " " if before[-1:].isalnum() else ""
        right = " " if after[:1].isalnum() else ""
        return " ".join(f"{before}{left}{words}{right}{after}".split())

    def rephrased(self, words: str) -> str:
        """The text with other words for the clause that is being read; when and for whom stay."""
        said = (words, *self.kept) if self.language == "en" else (*self.kept, words)
        return self.instead(self.here, " ".join(said)) if self.here else words

    def without(self, tokens: Sequence[Token]) -> str:
        """The text with these places left out, and a preposition that is left hanging at the end."""
        left = list(self.text)
        for token in tokens:
            left[token.start : token.end] = " " * (token.end - token.start)
        words = "".join(left).split()
        while words and words[-1].lower() in _PREPOSITIONS:
            words.pop()
        return " ".join(words).strip(" ,;，；、")

    def before(self, token: Token, words: str) -> str:
        """The text with words put in before this place."""
        return self.instead(replace(token, end=token.start), words)

    def ask_about(self, leftovers: Sequence[Token]) -> None:
        """Words without a place: beside goals they are asked about, alone they are out of scope."""
        if not self.goals and not self.questions:
            said = " ".join(self.text.split())
            shown = repr(said if len(said) <= 60 else f"{said[:57]}...")
            examples, metrics = self.say("examples"), self.say("metrics")
            words = self.say("not_understood", said=shown, examples=examples, metrics=metrics)
            self.findings.append(Finding("not_understood", "/text", words))
        elif leftovers and self.goals:
            said = ", ".join(dict.fromkeys(self.quoted(token) for token in _contiguous(leftovers)))
            words = self.say("words_not_understood", said=said)
            self.ask("words_not_understood", leftovers[0], words, self._instead_of(leftovers))

    def _instead_of(self, leftovers: Sequence[Token]) -> tuple[str, ...]:
        nothing = self.say("nothing")
        if any(token.value in {"or", "或", "或者", "还是"} for token in leftovers):
            return (*self._alternatives(leftovers), nothing)
        if any(
            token.kind is Kind.NEGATION for token in leftovers
        ):  # without its "not" a text says the opposite
            return nothing, self.without(leftovers)
        return self.without(leftovers), nothing

    def _alternatives(self, leftovers: Sequence[Token]) -> tuple[str, ...]:
        """``tp=2 or tp=4``: the text with the one, and with the other."""
        joint = next(token for token in leftovers if token.value in {"or", "或", "或者", "还是"})
        ends = [self.text.find(goal.evidence) + len(goal.evidence) for goal in self.goals]
        before = max((n for n, end in enumerate(ends) if end <= joint.start), default=None)
        after = min((n for n, end in enumerate(ends) if end > joint.end), default=None)
        if before is None or after is None:
            return (self.without(leftovers),)
        one, other = ends[before] - len(self.goals[before].evidence), ends[after]
        return self.without([replace(joint, end=other)]), self.without([replace(joint, start=one)])


_EXAMPLE = {"en": "keep P99 TTFT < 2s at peak", "zh": "高峰期 P99 TTFT 不超过 2 秒"}


def _contiguous(tokens: Sequence[Token]) -> list[Token]:
    """Neighbours as one: unknown Han characters come one by one."""
    joined: list[Token] = []
    for token in sorted(tokens, key=lambda one: one.start):
        if joined and joined[-1].end >= token.start:
            joined[-1] = replace(joined[-1], end=max(joined[-1].end, token.end))
        else:
            joined.append(token)
    return joined
