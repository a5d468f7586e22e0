"""What a cutover benchmark runs, and what it refuses before anything starts."""

from dataclasses import dataclass
from typing import Literal, get_args

from benchmarks.engines import OWN_PATHS, Demand, OwnPath, Subject
from intentctl.arguments import EngineName

SHAM_TOKENS = 110
"""Tokens per stream before a switch with a sham cut: that needs 101 gaps in a row."""
SHAM_EVERY = 4
"""Switches for one with a sham cut before it."""
SIDE_TOKENS = 60
"""Tokens per stream before and after any switch: a stop needs 50 gaps on each side."""
MORE_TOKENS = 10
"""By which a switch may outlast the one before it, per stream: those that end sooner are replaced before it."""
SEEDED = 3
SHORTEST_CONTEXT = len("count by 99 from 999:")

Mode = Literal[OwnPath, "replay", "restart", "drain"]
ANY_ENGINE: tuple[Mode, ...] = ("replay", "restart", "drain")
"""Baselines that any engine can do."""
MODES: tuple[Mode, ...] = (*get_args(OwnPath), *ANY_ENGINE)


class UsageError(Exception):
    """What was asked cannot be run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What is run."""

    engine: EngineName
    modes: tuple[Mode, ...]
    pairs: tuple[tuple[str, str], ...]
    """Topologies in text form."""
    active: tuple[int, ...] = (12,)
    """Streams that run at any time, one case for each."""
    switches: tuple[int, ...] = (5,)
    """There and back, per mode and pair: one number for all of ``active``, or one for each."""
    context: tuple[int, ...] = (300,)
    """Prompt tokens of the longest stream, one case for each."""
    output: int = 600
    """Tokens each stream generates."""
    temperature: float = 0.0
    """Above 0 every ``SEEDED``-th stream has a seed."""

    def check(self, subject: Subject) -> None:
        """Refuse what cannot be run.

        Raises:
            UsageError, TopologyError: naming the value.
        """
        self._check_modes()
        if min(*self.active, *self.switches) < 1:
            raise UsageError("--active and --switches must be at least 1")
        if len(self.switches) not in {1, len(self.active)}:
            raise UsageError(f"--switches has {len(self.switches)} numbers, --active {len(self.active)}")
        if (shortest := min(self.context)) < SHORTEST_CONTEXT:
            raise UsageError(f"--context {shortest}: the shortest prompt has {SHORTEST_CONTEXT} tokens")
        if not 0 <= self.temperature <= 2:
            raise UsageError(f"--temperature {self.temperature}: from 0 to 2")
        if self.output < SHAM_TOKENS + SIDE_TOKENS:
            raise UsageError(
                f"--output {self.output}: a switch is measured over at least {SHAM_TOKENS + SIDE_TOKENS} tokens"
            )
        if self.total_tokens > subject.spec.max_position_embeddings:
            raise UsageError(
                f"--context {max(self.context)} and --output {self.output} make {self.total_tokens} tokens, over the "
                f"model's {subject.spec.max_position_embeddings}; ask for fewer"
            )
        for text in {text for pair in self.pairs for text in pair}:
            subject.topology(text)

    def _check_modes(self) -> None:
        for mode in self.modes:
            if mode not in MODES:
                raise UsageError(f"--mode {mode}: there are {', '.join(MODES)} and all")
            if mode not in ANY_ENGINE and mode not in OWN_PATHS[self.engine]:
                have = ", ".join(OWN_PATHS[self.engine])
                raise UsageError(f"--mode {mode}: the {self.engine} engine switches by {have} only")

    @property
    def total_tokens(self) -> int:
        """Prompt and output of the longest stream."""
        return max(self.context) + self.output

    def switches_at(self, active: int) -> int:
        """There and back, when so many streams run."""
        return self.switches[self.active.index(active) if len(self.switches) > 1 else 0]

    def demand(self, active: int) -> Demand:
        """What an engine needs room for when so many streams run."""
        return Demand(active, self.total_tokens)


def tokens_before(number: int) -> int:
    """Tokens per stream before the switch of that number."""
    return SIDE_TOKENS if number % SHAM_EVERY else SHAM_TOKENS


def parse_numbers(option: str, text: str) -> tuple[int, ...]:
    """Whole numbers joined by commas.

    Raises:
        UsageError: it is not that.
    """
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{option} {text!r}: write whole numbers joined by commas, as in 10,50,200") from None


def parse_pair(text: str) -> tuple[str, str]:
    """Two topologies joined by a dash, with spaces round it where they have dashes of their own.

    Raises:
        UsageError: it is not that.
    """
    parts = tuple(part.strip() for part in text.split(" - " if " - " in text else "-"))
    if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
        raise UsageError(f"--pairs {text!r}: write two different topologies joined by one dash, as in 1x1-tp2")
    return parts[0], parts[1]
