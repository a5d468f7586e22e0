"""The requests of a load by their tokens, and a few weighted values that stand for all of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from selector.errors import WorkloadError

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
