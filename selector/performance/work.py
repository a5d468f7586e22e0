"""What prompts cost a server in which other sequences decode: alone in their steps, and packed into full ones. Pure."""

import math
from dataclasses import dataclass

import numpy as np

from selector.performance.lengths import Atoms, Values
from selector.performance.perf import Step
from selector.performance.simulator import Server

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
class Pace:
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
    def of(cls, work: Work, packed: float) -> "Pace":
        """At that share of full steps."""
        mean = work.mean
        return cls(
            service_s=packed * mean.packed_s + (1 - packed) * mean.alone_s,
            period_s=packed * work.full_s + (1 - packed) * mean.first_s / mean.chunks,
            late_s=(1 - packed) * (mean.first_s - mean.alone_s),
            packed=packed,
        )

    @classmethod
    def at(cls, work: Work, rate_rps: float) -> "Pace":
        """At so many prompts a second: steps are full while prompts queue, and prompts that come during a step share the next."""
        queued = min(1.0, rate_rps * work.mean.packed_s)
        spare = max(0.5, work.mean.chunks - work.mean.parts)  # of nearly full chunks little can be saved
        pace, before = cls.of(work, 1.0), math.inf
        while abs(pace.packed - before) > _CLOSE:
            came = max(1e-9, rate_rps * pace.period_s / work.stages)
            saved = 1 + math.expm1(-came) / came
            before, pace = pace.packed, cls.of(work, max(queued, min(1.0, saved / spare)))
        return pace

    def mixed(self, packed: Values, alone: Values) -> Values:
        """For each prompt, between what holds in full steps and what holds alone."""
        return self.packed * packed + (1 - self.packed) * alone


def work_of(server: Server, decoding: float, context_tokens: float, prompts: Atoms) -> Work:
    """The work of prompts of so many tokens, beside so many sequences that decode behind ``context_tokens`` each.

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
        passing = [max(sum(one), plain_s + max(one) - max(plain)) for one in (inner, last)]
        alone_s = whole * max(inner) + max(last)
        return tokens / chunk * max(full), alone_s, whole * passing[0] + passing[1], whole + 1

    packed_s, alone_s, first_s, chunks = np.array([costs(tokens) for tokens in prompts.values.tolist()]).T
    arrays = packed_s, alone_s, first_s, prompts.values / chunk, chunks
    means = Means(*(float(prompts.weights @ array) for array in arrays))
    return Work(stages, plain_s, prompts.weights, *arrays, means)


def times(server: Server, step: Step) -> list[float]:
    """Seconds of a step on each stage."""
    return [stage.seconds(step) / server.share for stage in server.stages]
