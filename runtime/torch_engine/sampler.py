"""From logits to tokens: greedy, or seeded sampling whose noise is a function of (seed, output index).

There is no generator state, so nothing about sampling has to move in a switch.
"""

import numpy as np
import torch

from runtime.torch_engine.models import Sampled
from runtime.torch_engine.wishes import Integers, Wish

_KEYS = 1 << 128
"""Philox takes 128-bit keys."""


def sample(logits: torch.Tensor, wishes: list[Wish]) -> list[Sampled]:
    """Choose a token per row of ``logits`` ``[rows, vocabulary]`` in float32, on any device.

    Logprobs are those of the logits as they come.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    if any(wish.changes_logits for wish in wishes):
        logits = _changed(logits, wishes)
    greedy = logits.argmax(dim=-1).tolist()
    chosen = [
        greedy[row] if wish.params.temperature == 0 else _draw(logits[row], wish)
        for row, wish in enumerate(wishes)
    ]
    own = logprobs[torch.arange(len(chosen)), torch.tensor(chosen)].tolist()
    return [
        Sampled(token, own[row], _alternatives(logprobs[row], wishes[row].params.num_logprobs))
        for row, token in enumerate(chosen)
    ]


def _alternatives(logprobs: torch.Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    best = logprobs.topk(min(count, len(logprobs)))
    return tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def _changed(logits: torch.Tensor, wishes: list[Wish]) -> torch.Tensor:
    """Masks, biases and penalties applied, in vLLM's order; the rows that ask for none stay as they are."""
    changed = logits.clone()
    for row, wish in zip(changed, wishes, strict=True):
        params = wish.params
        if wish.mask is not None:
            row[~_bits(wish.mask, row)] = -torch.inf
        if params.logit_bias:
            biased, biases = zip(*params.logit_bias, strict=True)
            row[list(biased)] += torch.tensor(biases, device=row.device)
        if wish.known is not None:
            tokens = _indices(wish.known, row)
            known = row[tokens]
            row[tokens] = torch.where(
                known > 0, known / params.repetition_penalty, known * params.repetition_penalty
            )
        if wish.said is not None:
            counts = _indices(wish.said[1], row)
            row[_indices(wish.said[0], row)] -= params.frequency_penalty * counts + params.presence_penalty
    return changed


def _indices(numbers: Integers, row: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numbers).long().to(row.device)


def _bits(mask: Integers, row: torch.Tensor) -> torch.Tensor:
    """One boolean per token."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(row)]
    return torch.from_numpy(bits.astype(bool)).to(row.device)


def _draw(logits: torch.Tensor, wish: Wish) -> int:
    """The Gumbel-max trick over what temperature, min-p, top-k and top-p leave."""
    params = wish.params
    wide = logits.double().cpu().numpy()
    scaled = (wide - wide.max()) / params.temperature  # 0 at the top: no temperature makes it overflow
    order = np.argsort(-scaled, kind="stable")
    if params.min_p:
        order = order[scaled[order] >= np.log(params.min_p)]
    if params.top_k:
        order = order[: params.top_k]
    if params.top_p < 1:
        weights = np.exp(scaled[order] - scaled[order[0]])
        before = np.cumsum(weights) - weights
        order = order[before < params.top_p * weights.sum()]
    assert params.seed is not None, "the scheduler refuses sampled requests without one"
    chance = np.random.Generator(np.random.Philox(key=params.seed % _KEYS, counter=wish.output_index))
    return int(order[np.argmax(scaled[order] + chance.gumbel(size=len(scaled))[order])])
