"""Lengths of requests, what they cost a server, and one with so many in it. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from selector.models import WorkloadError
from selector.performance.perf import Step
from selector.performance.simulator import ServerModel

Values = np.ndarray[Any, np.dtype[np.float64]]

LONGEST = 2**20
"""Tokens in or out of the longest request that is taken seriously."""
_BRIEF = 0.05
"""Steps for which an answer of one token is taken to decode, so that a rate belongs to every number of sequences."""


@dataclass(frozen=True, slots=True)
class Atoms:
    """Values that stand for all, each with the share that it stands for."""

    values: Values
    weights: Values

    @classmethod
    def of(cls, values: Values, count: int, powers: tuple[int, ...]) -> Self:
        """At most ``count`` of them, cut so that the sums of these powers together are even.

        High powers keep what is rare and large apart.
        """
        ordered = np.sort(values)
        if ordered[0] == ordered[-1]:
            return cls(ordered[:1], np.ones(1))
        even = np.mean([np.cumsum(ordered**power) / (ordered**power).sum() for power in powers], axis=0)
        part = np.minimum((even * count).astype(int), count - 1)
        sizes = np.bincount(part, minlength=count)
        taken = sizes > 0
        sums = np.bincount(part, weights=ordered, minlength=count)
        return cls(sums[taken] / sizes[taken], sizes[taken] / len(ordered))


@dataclass(frozen=True, slots=True)
class Lengths:
    """The requests of a load by their tokens: means, and what their spread does to the work."""

    input_tokens: float
    output_tokens: float
    context_tokens: float
    """KV tokens of a sequence that decodes, over time."""
    held_tokens: float
    """KV tokens that are reserved for a sequence that decodes, over time."""
    lump_tokens: float
    """Their mean square by their mean: lumps of this size fill KV as unevenly as the true lengths."""
    pairs: tuple[tuple[int, int], ...]
    """Input and output tokens, each pair as likely as the next."""
    few_prompts: Atoms = field(repr=False, compare=False)
    """Input tokens, for means."""
    prompts: Atoms = field(repr=False, compare=False)
    """Input tokens, for queues: long ones stand for themselves."""
    answers: Atoms = field(repr=False, compare=False)
    """Steps that requests decode: short ones stand for themselves."""

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> Self:
        """The lengths of these requests.

        Raises:
            WorkloadError: there are none, or one is not positive.
        """
        if not pairs or min(map(min, pairs)) < 1 or max(map(max, pairs)) > LONGEST:
            raise WorkloadError(f"a load needs requests of 1 to {LONGEST:,} tokens, in and out")
        inputs, outputs = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
        held = inputs + outputs
        return cls(
            input_tokens=float(inputs.mean()),
            output_tokens=float(outputs.mean()),
            context_tokens=float(outputs @ (inputs + outputs / 2) / outputs.sum()),
            held_tokens=float(outputs @ held / outputs.sum()),
            lump_tokens=float(outputs @ held**2 / (outputs @ held)),
            pairs=tuple(pairs),
            few_prompts=Atoms.of(inputs, 16, (0, 1, 2)),
            prompts=Atoms.of(inputs, 80, (0, 1, 2)),
            answers=Atoms.of(np.maximum(outputs - 1, _BRIEF), 24, (-1, 0, 1)),
        )

    @classmethod
    def fixed(cls, input_tokens: int, output_tokens: int) -> Self:
        """Every request alike."""
        return cls.of([(input_tokens, output_tokens)])

    @property
    def total(self) -> float:
        """KV tokens of a finished request."""
        return self.input_tokens + self.output_tokens

    @property
    def steps(self) -> float:
        """Steps that a request decodes, mean."""
        return max(self.output_tokens - 1, _BRIEF)


_CLOSE = 1e-4
"""By how much a share of steps may be off."""


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds at a number of decoding sequences; the arrays have one entry a prompt length."""

    stages: int
    plain_s: float
    """A period without prompts: every decoding sequence gets a token."""
    weights: Values
    """Share of each length among the prompts."""
    packed_s: Values
    """A prompt's part of full steps: of the slowest stage's time what its tokens take up."""
    alone_s: Values
    """The slowest stage's time for a prompt whose steps carry no other."""
    first_s: Values
    """From the start of its first chunk to its first token, alone in its steps."""
    parts: Values
    """Full steps that its tokens fill."""
    chunks: Values
    """Steps that it needs alone."""

    mean: "Means"

    @property
    def full_s(self) -> float:
        """A period in which every micro-batch carries a full chunk."""
        return self.stages * self.mean.packed_s / self.mean.parts


@dataclass(frozen=True, slots=True)
class Means:
    """Of the arrays, over the prompts."""

    packed_s: float
    alone_s: float
    first_s: float
    parts: float
    chunks: float


@dataclass(frozen=True, slots=True)
class PromptMeans:
    """Means over prompts where some of the steps that carry them are full, and the others carry one."""

    service_s: float
    """Of the slowest stage's time, for a prompt."""
    period_s: float
    """A period that carries prompts."""
    late_s: float
    """What a prompt waits for the other stages."""

    packed: float
    """Share of the steps with prompts that are full."""

    @classmethod
    def of(cls, work: Work, packed: float) -> "PromptMeans":
        """At that share of full steps."""
        mean = work.mean
        return cls(
            service_s=packed * mean.packed_s + (1 - packed) * mean.alone_s,
            period_s=packed * work.full_s + (1 - packed) * mean.first_s / mean.chunks,
            late_s=(1 - packed) * (mean.first_s - mean.alone_s),
            packed=packed,
        )

    @classmethod
    def at(cls, work: Work, rate_rps: float) -> "PromptMeans":
        """At so many prompts a second.

        Steps are full while prompts queue, and prompts that come during a step share the next.
        """
        queued = min(1.0, rate_rps * work.mean.packed_s)
        spare = max(0.5, work.mean.chunks - work.mean.parts)  # of nearly full chunks little can be saved
        pace = cls.of(work, 1.0)
        before = math.inf
        while abs(pace.packed - before) > _CLOSE:
            came = max(1e-9, rate_rps * pace.period_s / work.stages)
            saved = 1 + math.expm1(-came) / came
            before = pace.packed
            pace = cls.of(work, max(queued, min(1.0, saved / spare)))
        return pace

    def mixed(self, packed: Values, alone: Values) -> Values:
        """For each prompt, between what holds in full steps and what holds alone."""
        return self.packed * packed + (1 - self.packed) * alone


def work_of(server: ServerModel, decoding: float, context_tokens: float, prompts: Atoms) -> Work:
    """The work of prompts of so many tokens beside sequences that decode.

    Each of those decodes behind ``context_tokens``.

    Attention is taken at the middle of a prompt, its cost being linear in how many tokens stand before.
    """
    stages = len(server.stages)
    share = decoding / min(float(stages), max(1.0, decoding))
    chunk = max(1.0, server.chunk_tokens - decoding / stages)

    def carrying(tokens: float, done: float) -> list[float]:
        beside = Step(share, share * context_tokens, share * context_tokens, share)
        return times(server, beside + Step(tokens, tokens * (done + tokens / 2), done + tokens, 1))

    plain = carrying(0.0, 0.0)
    plain_s = max(sum(plain), min(stages, decoding) * max(plain))

    def costs(tokens: float) -> tuple[float, float, float, float]:
        whole = math.ceil(tokens / chunk) - 1
        full = carrying(chunk, (tokens - chunk) / 2)
        inner = carrying(chunk, (whole - 1) * chunk / 2) if whole else plain
        last = carrying(tokens - whole * chunk, whole * chunk)
        # a micro-batch passes all stages before its next step, and the others stay in step with it
        passing = [max(sum(times), plain_s + max(times) - max(plain)) for times in (inner, last)]
        alone_s = whole * max(inner) + max(last)
        return tokens / chunk * max(full), alone_s, whole * passing[0] + passing[1], whole + 1

    packed_s, alone_s, first_s, chunks = np.array([costs(tokens) for tokens in prompts.values.tolist()]).T
    parts = prompts.values / chunk

    def mean(values: Values) -> float:
        return float(prompts.weights @ values)

    return Work(
        stages=stages,
        plain_s=plain_s,
        weights=prompts.weights,
        packed_s=packed_s,
        alone_s=alone_s,
        first_s=first_s,
        parts=parts,
        chunks=chunks,
        mean=Means(
            packed_s=mean(packed_s),
            alone_s=mean(alone_s),
            first_s=mean(first_s),
            parts=mean(parts),
            chunks=mean(chunks),
        ),
    )


def times(server: ServerModel, step: Step) -> list[float]:
    """Seconds of a step on each stage."""
    return [stage.seconds(step) / server.share for stage in server.stages]


_ROUNDS = 60
"""In which shares and rates agree at the latest."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """What so many requests at a time get."""

    rate_rps: float
    decoding: float
    """Sequences that decode, mean."""
    tpot_s: float


def slots_for(server: ServerModel, lengths: Lengths) -> float:
    """Sequences that fit at once, KV reserved for their whole length."""
    return min(float(server.slots), server.kv_tokens / lengths.total)


def saturation(server: ServerModel, lengths: Lengths, clients: float) -> Saturation:
    """The steady state with so many requests, or as many as fit.

    What a step takes belongs to how many decode on the mean.
    """

    def at(decoding: float) -> Saturation:
        work = work_of(server, decoding, lengths.context_tokens, lengths.few_prompts)
        return _repaired(server, lengths, clients, work)

    most = min(float(clients), slots_for(server, lengths))
    return at(_crossing(lambda decoding: at(decoding).decoding - decoding, most))


def _crossing(excess: Callable[[float], float], high: float) -> float:
    """Where a falling function of 0 to ``high`` is zero.

    Regula falsi, an end that stays put counting half (Illinois).
    """
    low = 0.0
    close = high * _CLOSE
    above = excess(low)
    below = excess(high)
    if below >= 0:
        return high
    for _ in range(_ROUNDS):
        middle = (low * below - high * above) / (below - above)
        value = excess(middle)
        if abs(value) < close / 10:
            return middle
        if value > 0:
            low = middle
            above = value
            below /= 2
        else:
            high = middle
            below = value
            above /= 2
    return (low + high) / 2


def _repaired(server: ServerModel, lengths: Lengths, clients: float, work: Work) -> Saturation:
    """So many requests that alternate between the prompt in front and decoding, at these step times."""
    lumps = lengths.lump_tokens / lengths.held_tokens
    bounds = [(min(float(clients), server.slots), 1.0), (server.kv_tokens / lengths.lump_tokens, lumps)]
    places = bounds if lumps > 1 + 1e-9 else [min(bounds)]
    others = max(0.0, 1 - 1 / min(bounds)[0])  # a request alone comes at the end of its own last step
    pace = PromptMeans.of(work, 1.0)
    starved = 0.0
    for _ in range(_ROUNDS):
        running_s = starved * work.plain_s + (1 - starved) * pace.period_s
        late_s = pace.late_s + others * running_s / 2
        away_s = lengths.steps * pace.period_s + late_s
        shorter = (lengths.steps * work.plain_s + late_s) / away_s
        starved, away = max(_all_away(many, away_s / pace.service_s / lump, shorter, lump) for many, lump in places)
        rate_rps = (1 - starved) / pace.service_s
        decoding = away - rate_rps * late_s  # by Little's law so many wait for a step to end, or for other stages
        packed = pace.packed
        pace = PromptMeans.at(work, rate_rps)
        if abs(packed - pace.packed) < _CLOSE:
            break
    return Saturation(rate_rps, decoding, decoding / (rate_rps * lengths.steps))


def _all_away(places: float, offered: float, shorter: float, lump: float) -> tuple[float, float]:
    """Erlang's loss formula for any number of places.

    Share of the time in which all are away, and how many are on the mean.

    That state's steps carry no prompt, so it ends ``1 / shorter`` times as fast as decoding beside prompts would end it.
    """
    if places > offered + 10 * math.sqrt(offered) + 20:  # never
        return 0.0, lump * offered
    states = math.ceil(places)
    ratios = np.log((places - np.arange(states)) / offered)
    exponents = np.concatenate([[math.log(shorter)], np.cumsum(ratios)])
    chances = np.exp(exponents - exponents.max())
    chances /= chances.sum()
    away = np.maximum(0.0, places - np.arange(states + 1))
    return float(chances[0]), lump * float(chances @ away)
