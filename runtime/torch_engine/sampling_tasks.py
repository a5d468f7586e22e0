"""What rows ask of the sampler, and what it chose."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.engine import SamplingParams

Integers = NDArray[np.int32]


class SamplingTask(NamedTuple):
    """What one row asks of the sampler."""

    params: SamplingParams
    output_index: int
    """Of the token that is chosen."""
    said: Integers | None = None
    """``[2, distinct]``: tokens of the output and how often each was said; only where a penalty asks."""
    known: Integers | None = None
    """Tokens of prompt and output; only where a penalty asks."""
    mask: Integers | None = None
    """A bit for each token that may be chosen, the first in the lowest bit; None: any."""

    @property
    def changes_logits(self) -> bool:
        """It chooses from other logits than the model's."""
        return bool(self.params.logit_bias) or not self.said is self.known is self.mask is None


class Sampled(NamedTuple):
    """One chosen token."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...]
