"""What the validator says, in the operator's language: messages, findings, lists. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from intent import readback
from intent.messages import say
from intent.models import Finding, Goal


@dataclass(frozen=True, slots=True)
class Words(readback.Words):
    """Words of one language: those of the read-back, and the validator's own."""

    def message(self, key: str, **facts: object) -> str:
        """A message of this package."""
        return say("validator", self.language, key, **facts)

    def finding(
        self, code: str, pointer: str, goal: Goal, hint: str | None = None, **facts: object
    ) -> Finding:
        """A finding about a goal: ``code`` is the key of its message, ``hint`` that of its suggestion."""
        facts = {"said": goal.evidence, **facts}
        suggestion = self.message(hint, **facts) if hint else None
        return Finding(code, pointer, self.message(code, **facts), goal.evidence, suggestion)

    def clash(self, code: str, first: tuple[int, Goal], second: tuple[int, Goal], **facts: object) -> Finding:
        """A finding about two goals, with the number of each, at the later one."""
        (earlier, one), (later, other) = first, second
        both = {"other": one.evidence, "goals": self.listed([f'"{one.evidence}"', f'"{other.evidence}"'])}
        both["places"] = self.listed([f"/goals/{earlier}", f"/goals/{later}"])
        return self.finding(code, f"/goals/{later}", other, "drop_one", **both, **facts)

    def listed(self, values: Iterable[object]) -> str:
        """One after the other."""
        return self.message("comma").join(map(str, values))
