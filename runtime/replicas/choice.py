"""Which replica serves a request: the one that is predicted to end it first, within bounds. Pure.

The simulator of the selector has the same rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.forms import DESCRIBED

BAND = 0.01
"""Forecasts this near to the best count as alike: among them the plan's shares decide."""

PROMPT = 0.5
"""Share of a bound on the first token that a forecast may take: what comes later delays prompts."""
AVOIDED = 1.5
"""By which a replica that is about to change has to be faster than another to be taken."""


@dataclass(frozen=True, slots=True)
class ReplicaSpeed:
    """How fast a replica is, as a plan predicts it.

    The usual one is nobody's word; measurements correct both.
    """

    __get_pydantic_json_schema__ = DESCRIBED

    step_s: float = 0.01
    """Of a step without sequences."""
    sequence_s: float = 0.0003
    """That each running sequence adds to it."""
    token_s: float = 0.0001
    """To compute one token of a prompt."""
    slots: int = 256
    """Sequences that run at once, at most."""

    def step_of(self, sequences: float) -> float:
        """Seconds of a step in which so many sequences run."""
        return self.step_s + sequences * self.sequence_s


USUAL_SPEED = ReplicaSpeed()


@dataclass(slots=True)
class Measured:
    """What was measured of a replica, by what its speed says."""

    decoding: float = 1.0
    """Time of steps."""
    prefilling: float = 1.0
    """Time in which prompts are computed."""


@dataclass(slots=True)
class Work:
    """What a replica has to do."""

    running: int = 0
    """Requests that have their first token."""
    waiting: int = 0
    """Those that have none."""
    prompt_tokens: int = 0
    """Of these, to be computed yet."""


@dataclass(slots=True)  # one is made for each replica and request, and a frozen one takes three times as long
class Forecast:
    """What a request is predicted to meet on a replica, in seconds."""

    ttft_s: float
    tpot_s: float
    finish_s: float
    """To its last token."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a request may meet at most, in seconds."""

    ttft_s: float = float("inf")
    tpot_s: float = float("inf")

    def held(self, forecast: Forecast) -> bool:
        """Whether a replica is predicted to keep them."""
        return forecast.ttft_s <= PROMPT * self.ttft_s and forecast.tpot_s <= self.tpot_s


UNBOUND = Bounds()


def forecast(speed: ReplicaSpeed, measured: Measured, work: Work, prompt_tokens: int, output_tokens: float) -> Forecast:
    """Of a request with so many tokens to compute and to answer, behind what the replica has to do."""
    together = work.running + work.waiting + 1
    tpot_s = speed.step_of(min(together, speed.slots)) * measured.decoding
    over = max(0, together - speed.slots)  # so many end before it may begin, one after each share of an answer
    queue_s = over * output_tokens * tpot_s / speed.slots
    ttft_s = queue_s + (work.prompt_tokens + prompt_tokens) * speed.token_s * measured.prefilling + tpot_s
    return Forecast(ttft_s, tpot_s, ttft_s + output_tokens * tpot_s)


def choose(forecasts: Sequence[Forecast], bounds: Bounds, behind: Sequence[float], avoided: Sequence[bool]) -> int:
    """The place of the replica to take; ``behind`` says how much of its planned share each still lacks.

    One that misses a bound is taken only where no other is left, one that is about to change (``avoided``) where it pays.
    """
    every = range(len(forecasts))
    within = [place for place in every if bounds.held(forecasts[place])] or every
    costs_s = [each.finish_s * (AVOIDED if avoided[place] else 1) for place, each in enumerate(forecasts)]
    best_s = min([costs_s[place] for place in within])
    near = [place for place in within if costs_s[place] <= best_s * (1 + BAND)]
    return max(near, key=lambda place: (behind[place], -costs_s[place]))
