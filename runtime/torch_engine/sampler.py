"""From logits to tokens: greedy, or seeded sampling whose noise is a function of (seed, output index).

There is no generator state, so nothing about sampling has to move in a switch.
"""

import numpy as np
import torch

from runtime.engine import SamplingParams
from runtime.torch_engine.models import Sampled

_KEYS = 1 << 128
"""Philox takes 128-bit keys."""


def sample(logits: torch.Tensor, wishes: list[tuple[SamplingParams, int]]) -> list[Sampled]:
    """Choose a token per row of ``logits`` ``[rows, vocabulary]``, on any device; a wish is (parameters, output index)."""
    logprobs = torch.log_softmax(logits, dim=-1)
    greedy = logits.argmax(dim=-1).tolist()
    chosen = [
        greedy[row] if params.temperature == 0 else _draw(logits[row], params, index)
        for row, (params, index) in enumerate(wishes)
    ]
    own = logprobs[torch.arange(len(chosen)), torch.tensor(chosen)].tolist()
    return [
        Sampled(token, own[row], _alternatives(logprobs[row], wishes[row][0].num_logprobs))
        for row, token in enumerate(chosen)
    ]


def _alternatives(logprobs: torch.Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    best = logprobs.topk(min(count, len(logprobs)))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _draw(logits: torch.Tensor, params: SamplingParams, index: int) -> int:
    """The Gumbel-max trick over what temperature, top-k and top-p leave."""
    wide = logits.double().cpu().numpy()
    scaled = (wide - wide.max()) / params.temperature  # 0 at the top: no temperature makes it overflow
    order = np.argsort(-scaled, kind="stable")
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        weights = np.exp(scaled[order] - scaled[order[0]])
        before = np.cumsum(weights) - weights
        order = order[before < params.top_p * weights.sum()]
    assert params.seed is not None, "the engine wants one with every sampled request"
    noise = np.random.Generator(np.random.Philox(key=params.seed % _KEYS, counter=index)).gumbel(
        size=len(scaled)
    )
    return int(order[np.argmax(scaled[order] + noise[order])])
