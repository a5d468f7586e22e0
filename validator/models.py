"""What a deployment is to an intent, and what the validator says of one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from intent import readback
from intent.messages import say
from intent.models import Finding, Goal, Window
from runtime.capabilities import Limits
from runtime.models import Cluster, ModelSpec


@dataclass(frozen=True, slots=True)
class Speed:
    """The most that one device of a kind can do, whatever runs on it."""

    memory_bytes_s: float
    """Peak memory bandwidth."""
    flops_s: float
    """Peak FLOP/s in its fastest format."""


@dataclass(frozen=True, slots=True)
class Site:
    """The deployment that an intent is checked against, at one moment."""

    cluster: Cluster
    models: Mapping[str, ModelSpec]
    now: datetime
    """Aware."""
    limits: Limits = field(default_factory=Limits)
    tenants: tuple[str, ...] = ()
    windows: Mapping[str, Window] = field(default_factory=dict)
    """Named windows to when they are; a name without an entry is known, its hours are not."""
    speeds: Mapping[str, Speed] = field(default_factory=dict)
    """Device kind to its speed; nothing is said about what kinds without one cannot do."""


@dataclass(frozen=True, slots=True)
class MessageWords(readback.Words):
    """Words of one language: those of the read-back, and the validator's own."""

    def message(self, key: str, **facts: object) -> str:
        """A message of this package."""
        return say("validator", self.language, key, **facts)

    def finding(self, code: str, pointer: str, goal: Goal, hint: str | None = None, **facts: object) -> Finding:
        """A finding about a goal: ``code`` is the key of its message, ``hint`` that of its suggestion."""
        facts = {"said": goal.evidence, **facts}
        suggestion = self.message(hint, **facts) if hint else None
        return Finding(code, pointer, self.message(code, **facts), goal.evidence, suggestion)

    def clash(self, code: str, first: tuple[int, Goal], second: tuple[int, Goal], **facts: object) -> Finding:
        """A finding about two goals, with the number of each, at the later one."""
        (earlier, goal), (later, other) = first, second
        both = {"other": goal.evidence, "goals": self.listed([f'"{goal.evidence}"', f'"{other.evidence}"'])}
        both["places"] = self.listed([f"/goals/{earlier}", f"/goals/{later}"])
        return self.finding(code, f"/goals/{later}", other, "drop_one", **both, **facts)

    def listed(self, values: Iterable[object]) -> str:
        """One after the other."""
        return self.message("comma").join(map(str, values))
