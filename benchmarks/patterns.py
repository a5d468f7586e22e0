"""A load whose pattern shifts, and the score by which choices are compared under it. Pure."""

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from selector.performance.simulator import RequestArrival

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pattern:
    """What the requests of a time are like."""

    name: str
    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"{self.name}: {self.input_tokens} in, {self.output_tokens} out"


PREFILL = Pattern("prefill-heavy", 512, 16)
DECODE = Pattern("decode-heavy", 128, 512)
BALANCED = Pattern("balanced", (512 + 128) // 2, (16 + 512) // 2)
"""The mean of the two, which take turns with as many requests each."""


def alternating(phases: int, num_requests: int) -> Iterator[tuple[int, Pattern]]:
    """Every request of a load that begins prefill-heavy and shifts after each ``num_requests``: its phase and its pattern."""
    for phase in range(phases):
        for _ in range(num_requests):
            yield phase, pattern_of(phase)


def pattern_of(phase: int) -> Pattern:
    """The two take turns."""
    return DECODE if phase % 2 else PREFILL


def poisson(load: Sequence[tuple[int, Pattern]], rates_rps: Mapping[Pattern, float], seed: int) -> list[RequestArrival]:
    """The requests as Poisson arrivals, each pattern at its rate; one seed draws the same at every rate, only closer."""
    draw, now, arrivals = random.Random(seed), 0.0, list[RequestArrival]()
    for _, pattern in load:
        now += draw.expovariate(1.0) / rates_rps[pattern]
        arrivals.append(RequestArrival(now, pattern.input_tokens, pattern.output_tokens))
    return arrivals


@dataclass(frozen=True, slots=True)
class Answered:
    """One request that was served, in seconds from any one moment."""

    asked_s: float
    first_s: float
    """When its first token came."""
    last_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a choice did with a load."""

    ttft_s: float
    """The mean over requests, as the next."""
    tpot_s: float
    throughput_tok_s: float
    """Output tokens from the first request to the last token."""


def outcome(answers: Sequence[Answered]) -> Outcome:
    """Of requests with two tokens or more, one at least."""
    span_s = max(one.last_s for one in answers) - min(one.asked_s for one in answers)
    return Outcome(
        ttft_s=statistics.fmean(one.first_s - one.asked_s for one in answers),
        tpot_s=statistics.fmean((one.last_s - one.first_s) / (one.num_tokens - 1) for one in answers),
        throughput_tok_s=sum(one.num_tokens for one in answers) / span_s,
    )


def middle(outcomes: Sequence[Outcome]) -> Outcome:
    """The median of each figure over several rounds."""
    return Outcome(*(statistics.median(getattr(one, field.name) for one in outcomes) for field in fields(Outcome)))


def composite(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    """PipeLive's score: the mean of TTFT, TPOT and throughput, each from 0 for the worst of those compared to 1 for the best."""
    names = list(outcomes)
    parts = [
        _normalised([-outcomes[name].ttft_s for name in names]),
        _normalised([-outcomes[name].tpot_s for name in names]),
        _normalised([outcomes[name].throughput_tok_s for name in names]),
    ]
    return {name: statistics.fmean(scores) for name, *scores in zip(names, *parts, strict=True)}


def _normalised(values: Sequence[float]) -> list[float]:
    """0 for the least to 1 for the most; 1 for all where they are equal, for none is worse."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 1.0 for value in values]


def compared(static: Mapping[str, Outcome], shifting: Mapping[str, Outcome]) -> Document:
    """Every choice with its score, and what each that shifts gains on those that do not, each compared with these alone.

    The static choices are scored beside the first that shifts.
    """
    rows, gains = [], {}
    for number, (name, found) in enumerate(shifting.items()):
        scores = composite({**static, name: found})
        own = scores[name]
        if not number:
            rows += [_row(other, static[other], scores[other]) for other in static]
        rows.append(_row(name, found, own))
        theirs = [scores[other] for other in static]
        gains[name] = {
            "over_best_static": _gain(own, max(theirs)),
            "over_mean_static": _gain(own, statistics.fmean(theirs)),
        }
    return {"rows": rows, "gains": gains}


def _row(name: str, found: Outcome, score: float) -> Document:
    return {"choice": name, **asdict(found), "composite": round(score, 4)}


def _gain(own: float, other: float) -> float | None:
    return round(own / other - 1, 4) if other > 0 else None


def table(found: Document) -> list[str]:
    """The choices, and what switching gains."""
    lines = [f"{'choice':38}{'TTFT s':>10}{'TPOT ms':>10}{'tokens/s':>10}{'score':>8}"]
    lines += [
        f"{row['choice']:38}{row['ttft_s']:>10.3f}{row['tpot_s'] * 1000:>10.2f}{row['throughput_tok_s']:>10,.0f}"
        f"{row['composite']:>8.3f}"
        for row in found["rows"]
    ]
    for name, gain in found["gains"].items():
        best, mean = (
            "no score to compare with" if one is None else f"{one:+.1%}"
            for one in (gain["over_best_static"], gain["over_mean_static"])
        )
        lines.append(f"{name}: {best} over the best static choice, {mean} over their mean")
    return lines
