"""From logits to tokens: greedy, or a draw that is a function of (logits, seed, output index).

A draw is one uniform number, hashed from seed and index, put through the inverse of the cumulative distribution. There
is no generator state: nothing about sampling moves in a switch, and every rank and topology draws the same.
"""

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.torch_engine.sampling_tasks import Integers, Sampled, SamplingTask

_VALUES_AT_ONCE = 1 << 22
"""Logits that are worked on together: temporaries stay small enough for malloc to use them again."""
_BLOCK = 256
"""Ids whose weights are summed first: one float64 for each block is made of the vocabulary, not one for each id."""
_MOST_PROBABLE = 4096
"""Ids that are sorted first where top-p asks; all are, where these do not hold its mass."""
_COLDEST = 1e-30
"""The lowest temperature that float32 divides by."""


def sample(logits: torch.Tensor, tasks: list[SamplingTask]) -> list[Sampled]:
    """Choose a token per row of ``logits`` ``[rows, vocabulary]`` in float32, on any device.

    Logprobs are those of the logits as they come.
    """
    rows = max(1, _VALUES_AT_ONCE // logits.shape[-1])
    return [
        sampled
        for first in range(0, len(tasks), rows)
        for sampled in _sample(logits[first : first + rows], tasks[first : first + rows])
    ]


def _sample(logits: torch.Tensor, tasks: list[SamplingTask]) -> list[Sampled]:
    is_changed = any(task.changes_logits for task in tasks)
    chosen = _choose(_changed(logits, tasks) if is_changed else logits, tasks)
    totals = logits.logsumexp(dim=-1)
    logprobs = logits.gather(1, chosen.unsqueeze(1)).squeeze(1) - totals
    return [
        Sampled(token, logprob, _alternatives(logits[row], totals[row], tasks[row].params.num_logprobs))
        for row, (token, logprob) in enumerate(zip(chosen.tolist(), logprobs.tolist(), strict=True))
    ]


def _alternatives(logits: torch.Tensor, total: torch.Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    best = logits.topk(min(count, len(logits)))
    return tuple(zip(best.indices.tolist(), (best.values - total).tolist(), strict=True))


def _changed(logits: torch.Tensor, tasks: list[SamplingTask]) -> torch.Tensor:
    """Masks, biases and penalties applied, in vLLM's order; the rows that ask for none stay as they are."""
    changed = logits.clone()
    for row, task in zip(changed, tasks, strict=True):
        params = task.params
        if task.mask is not None:
            row[~_bits(task.mask, row)] = -torch.inf
        if params.logit_bias:
            biased, biases = zip(*params.logit_bias, strict=True)
            row[list(biased)] += torch.tensor(biases, device=row.device)
        if task.known is not None:
            tokens = _indices(task.known, row)
            known = row[tokens]
            row[tokens] = torch.where(known > 0, known / params.repetition_penalty, known * params.repetition_penalty)
        if task.said is not None:
            counts = _indices(task.said[1], row)
            row[_indices(task.said[0], row)] -= params.frequency_penalty * counts + params.presence_penalty
    return changed


def _indices(numbers: Integers, row: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numbers).long().to(row.device)


def _bits(mask: Integers, row: torch.Tensor) -> torch.Tensor:
    """One boolean per token."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(row)]
    return torch.from_numpy(bits.astype(bool)).to(row.device)


def _choose(logits: torch.Tensor, tasks: list[SamplingTask]) -> torch.Tensor:
    """Token ids ``[rows]``. Rows that are chosen in the same way are chosen together."""
    chosen = torch.empty(len(tasks), dtype=torch.int64, device=logits.device)
    greedy, whole, filtered = _rows_by_way(tasks)
    if greedy:
        chosen[greedy] = _of(logits, greedy).argmax(dim=-1)
    if whole:
        whole_tasks = [tasks[row] for row in whole]
        chosen[whole] = _draw(_weights(_of(logits, whole), whole_tasks), _uniform(whole_tasks, logits.device))
    if filtered:
        filtered_tasks = [tasks[row] for row in filtered]
        chosen[filtered] = _draw_filtered(_weights(_of(logits, filtered), filtered_tasks), filtered_tasks)
    return chosen


def _of(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """These rows; no copy where they are all."""
    return logits if len(rows) == len(logits) else logits[rows]


def _rows_by_way(tasks: list[SamplingTask]) -> tuple[list[int], list[int], list[int]]:
    """Rows that take the most probable token, that draw from all tokens, and that draw from the best ones."""
    greedy = list[int]()
    whole = list[int]()
    filtered = list[int]()
    for row, task in enumerate(tasks):
        if task.params.temperature == 0:
            greedy.append(row)
        elif task.params.top_k or task.params.top_p < 1:
            filtered.append(row)
        else:
            whole.append(row)
    return greedy, whole, filtered


def _weights(logits: torch.Tensor, tasks: list[SamplingTask]) -> torch.Tensor:
    """``[rows, vocabulary]`` float32, in proportion to probabilities.

    1 for the best token, 0 for those below min-p.
    """
    temperatures = _column([max(task.params.temperature, _COLDEST) for task in tasks], logits.device).float()
    weights = (logits - logits.amax(dim=-1, keepdim=True)).div_(temperatures).exp_()
    if any(task.params.min_p for task in tasks):
        weights[weights < _column([task.params.min_p for task in tasks], logits.device).float()] = 0
    return weights


def _draw_filtered(weights: torch.Tensor, tasks: list[SamplingTask]) -> torch.Tensor:
    """Ids ``[rows]``, drawn from what top-k and top-p leave of the best ones."""
    vocabulary = weights.shape[-1]
    top_ks = [min(task.params.top_k, vocabulary) for task in tasks]
    best = weights.topk(min(vocabulary, max(_MOST_PROBABLE, *top_ks)))
    masses = weights.sum(dim=-1, dtype=torch.float64)
    top_ps = _column([task.params.top_p for task in tasks], weights.device)
    is_held = best.values.sum(dim=-1, dtype=torch.float64) >= top_ps[:, 0] * masses
    chosen = _draw_best(best.values, best.indices, masses, tasks)
    for row, (held, top_k) in enumerate(zip(is_held.tolist(), top_ks, strict=True)):
        if not held and not top_k:
            ordered = weights[row : row + 1].sort(dim=-1, descending=True)
            only = slice(row, row + 1)
            chosen[only] = _draw_best(ordered.values, ordered.indices, masses[only], tasks[only])
    return chosen


def _draw_best(
    values: torch.Tensor, ids: torch.Tensor, masses: torch.Tensor, tasks: list[SamplingTask]
) -> torch.Tensor:
    """Draw ids ``[rows]`` from the best tokens.

    ``values`` and ``ids`` ``[rows, best]`` come best first, ``masses`` are of all tokens.
    """
    device = values.device
    count = values.shape[-1]
    top_ks = _column([task.params.top_k or count for task in tasks], device)
    values = torch.where(torch.arange(count, device=device) < top_ks, values, 0)
    upto = values.cumsum(dim=-1, dtype=torch.float64)
    is_cut = torch.tensor([bool(task.params.top_k) for task in tasks], device=device)
    allowed = torch.where(is_cut, upto[:, -1], masses).unsqueeze(1)
    before = upto - values
    top_ps = _column([task.params.top_p for task in tasks], device)
    values = torch.where((before < top_ps * allowed) | (before == 0), values, 0)
    return ids.gather(1, _draw(values, _uniform(tasks, device)).unsqueeze(1)).squeeze(1)


def _uniform(tasks: list[SamplingTask], device: torch.device) -> torch.Tensor:
    """One number of [0, 1) for each row, of 52 bits: times a total in float64, it stays below the total."""
    return torch.tensor([_hashed(task) for task in tasks], dtype=torch.float64, device=device)


def _hashed(task: SamplingTask) -> float:
    assert task.params.seed is not None, "the scheduler refuses sampled requests without one"
    digest = blake2b(f"{task.params.seed} {task.output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 12) * 2.0**-52


def _draw(weights: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """Indices ``[rows]`` into ``weights`` ``[rows, any]``.

    The inverse of the cumulative distribution, block by block.
    """
    if lacking := -weights.shape[-1] % _BLOCK:
        weights = F.pad(weights, (0, lacking))
    blocks = weights.reshape(len(weights), -1, _BLOCK)
    sums = blocks.sum(dim=-1, dtype=torch.float64)
    upto = sums.cumsum(dim=-1)
    target = uniform * upto[:, -1]
    block = _first_above(upto, target)
    rows = torch.arange(len(weights), device=weights.device)
    within = blocks[rows, block].cumsum(dim=-1, dtype=torch.float64)
    return block * _BLOCK + _first_above(within, target - (upto - sums)[rows, block])


def _first_above(upto: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Where cumulative weights ``[rows, any]`` first exceed ``target`` ``[rows]``.

    Never where there is no weight.
    """
    last = (upto < upto[:, -1:]).sum(dim=-1)  # rounding may put a target at the total
    return torch.searchsorted(upto, target.clamp(min=0).unsqueeze(1), right=True).squeeze(1).minimum(last)


def _column(values: Sequence[float], device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device).unsqueeze(1)
