"""What a translator has found so far, and how it says what it did not understand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from intent.lexicon import Kind
from intent.models import Assumption, Catalogue, Finding, Goal, Question
from intent.tokens import Token

KNOWN_METRICS = (
    "TTFT, TPOT (ITL), E2E latency, token or request throughput, GPU utilisation, GPU count, cost and "
    "reconfiguration pause"
)
EXAMPLES = 'Say for example "keep P99 TTFT < 2s at peak", "GPU utilisation above 70%" or "run it with tp=2".'
NOTHING = "leave everything as it is"
"""What to say to withdraw a wish."""
_PREPOSITIONS = frozenset({"for", "to", "of", "in", "on", "at", "with", "and", "from"})


@dataclass(slots=True)
class Draft:
    """What a translator has found so far; grows while a text is read."""

    text: str
    catalogue: Catalogue
    goals: list[Goal] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)

    def assume(self, slot: str, words: str) -> None:
        """Note a default of the goal that comes next."""
        self.assumptions.append(Assumption(f"/goals/{len(self.goals)}/{slot}", words))

    def ask(self, code: str, token: Token | None, words: str, options: tuple[str, ...]) -> None:
        """Note what is unclear, and the question that settles it; the first option is the default."""
        said = (self.said(token) or None) if token else None
        distinct = tuple(dict.fromkeys(options))
        offered = (distinct if len(distinct) > 1 else (*distinct, NOTHING))[:4]
        self.findings.append(Finding(code, "/text", words, said, offered[0]))
        self.questions.append(Question(words, offered, offered[0]))

    def said(self, token: Token) -> str:
        """The words of the text in this place."""
        return self.text[token.start : token.end]

    def instead(self, token: Token, words: str) -> str:
        """The text with other words in this place; in front of it, if the place is empty."""
        before, after = self.text[: token.start], self.text[token.end :]
        left = " " if before[-1:].isalnum() else ""
        right = " " if after[:1].isalnum() else ""
        return " ".join(f"{before}{left}{words}{right}{after}".split())

    def without(self, tokens: Sequence[Token]) -> str:
        """The text with these places left out, and a preposition that is left hanging at the end."""
        left = list(self.text)
        for token in tokens:
            left[token.start : token.end] = " " * (token.end - token.start)
        words = "".join(left).split()
        while words and words[-1].lower() in _PREPOSITIONS:
            words.pop()
        return " ".join(words).strip(" ,;")

    def before(self, token: Token, words: str) -> str:
        """The text with words put in before this place."""
        return self.instead(replace(token, end=token.start), words)

    def ask_about(self, leftovers: Sequence[Token]) -> None:
        """Words without a place: beside goals they are asked about, alone they are out of scope."""
        if not self.goals and not self.questions:
            said = self.text.strip()
            shown = said if len(said) <= 60 else f"{said[:57]}..."
            words = f"{shown!r} names no goal that I understand. {EXAMPLES} The metrics are {KNOWN_METRICS}."
            self.findings.append(Finding("not_understood", "/text", words))
        elif leftovers and self.goals:
            said = ", ".join(dict.fromkeys(repr(self.said(token)) for token in leftovers))
            words = f"I do not know what to do with {said}. Is the rest what you want?"
            self.ask("words_not_understood", leftovers[0], words, self._instead_of(leftovers))

    def _instead_of(self, leftovers: Sequence[Token]) -> tuple[str, ...]:
        if any(token.value == "or" for token in leftovers):
            return (*(goal.evidence for goal in self.goals), NOTHING)
        if any(
            token.kind is Kind.NEGATION for token in leftovers
        ):  # without its "not" a text says the opposite
            return NOTHING, self.without(leftovers)
        return self.without(leftovers), NOTHING
