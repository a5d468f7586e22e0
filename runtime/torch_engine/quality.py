"""What weight formats cost a checkpoint in quality, measured on a text.

``measure`` starts ``python -m runtime.torch_engine.quality CHECKPOINT``, so that the caller loads no torch; one thread computes.
The layers are the engine's own, with weights that stand for what a format makes of them, and activations in float32.
"""

import json
import math
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.errors import CheckpointError, RuntimeFault
from runtime.kv.store import KvShape, KvStore
from runtime.models import LayerRange
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO, Peers, Solo
from runtime.torch_engine.worker.quantised import quantise
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights
from runtime.weight_formats import groups

CHUNK_TOKENS = 128
"""Of the text: each chunk is read without what came before it."""
FEWEST_CHUNKS = 4
MOST_CHUNKS = 16
SCORED_CHUNKS = 2
"""What the scores are taken on; losses are taken on all."""
SIZES = 16
"""Of sets of the order that are measured, at most."""
IMPORTANCE = {"lts": 1.0, "lrs": 1.0, "mds": 1.0}
"""What counts of each score, see ``ordered``."""
WIDTHS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), "hidden"),
    "o_proj": "attention",
    "down_proj": "mlp",
}
"""A layer's weight to what it multiplies (``weight_formats.groups``)."""


def measure(checkpoint: Path, text: str) -> dict[str, Any]:
    """Each layer's scores, and what sets of layers lose, by format; takes minutes.

    Raises:
        CheckpointError: the folder cannot be served, or the text is too short for it.
    """
    command = [sys.executable, "-P", "-m", "runtime.torch_engine.quality", str(checkpoint)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise CheckpointError(f"no quality was measured: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class RoundedCheckpoint(Checkpoint):
    """A checkpoint whose layers have what a format makes of their weights, whole before they are sliced."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder)
        self._format = name

    def tensor(self, name: str, rows: slice = slice(None), columns: slice = slice(None)) -> torch.Tensor:
        """A slice of a tensor as a checkpoint has it, or of what was made of it."""
        weight, _, end = name.rpartition(".")
        width = WIDTHS.get(weight.rpartition(".")[2])
        if end != "weight" or width is None:
            return super().tensor(name, rows, columns)
        group = groups(self.spec)[width] if self._format == "int4" else None
        return quantise(super().tensor(name), self._format, group).dequantised()[rows, columns]


def single_layers(weights: Weights) -> list[Shard]:
    """The layers of a checkpoint, each by itself."""
    ranges = [LayerRange(layer, layer + 1) for layer in range(weights.checkpoint.spec.num_layers)]
    return [Shard(weights, ShardSpec(each, 0, 1, is_first=False, is_last=False), each) for each in ranges]


class Before(Solo):
    """What stands before a layer that runs by itself."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self._hidden = hidden

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG002 - a hop's
        """The layer's input."""
        return self._hidden


class Reading:
    """A text as a model reads it: each layer's input, and the last one's output."""

    def __init__(self, weights: Weights, layers: Sequence[Shard], chunks: torch.Tensor) -> None:
        """``chunks`` is ``[chunks, tokens]``."""
        model = weights.checkpoint.spec
        count, length = chunks.shape
        shape = KvShape(model.num_layers, model.num_kv_heads, count, length, model.head_dim, torch.float32)
        self._store = KvStore(shape)
        self._attention = Attention(self._store.cache, slice(None), [Span(0, length, (each,)) for each in range(count)])
        self._weights = weights
        self._layers = layers
        self.chunks = chunks
        self.states = self.through([F.embedding(chunks.flatten(), weights.embedding())], layers)

    def through(self, states: Sequence[torch.Tensor], layers: Iterable[Shard]) -> list[torch.Tensor]:
        """The states, and those after further layers."""
        states = [*states]
        for layer in layers:
            ranks = Peers(SOLO.group, Before(states[-1]))
            states.append(layer.forward(self.chunks.flatten(), self._attention, ranks))
        return states

    def changed(
        self, chosen: Collection[int], rounded: Sequence[Shard], states: Sequence[torch.Tensor], first: int
    ) -> list[torch.Tensor]:
        """The states with chosen layers in a format, computed anew from a layer on."""
        layers = [(rounded if layer in chosen else self._layers)[layer] for layer in range(first, len(rounded))]
        return self.through(states[: first + 1], layers)

    def with_format(self, chosen: Collection[int], rounded: Sequence[Shard]) -> list[torch.Tensor]:
        """The states with chosen layers in a format and the others as they are."""
        return self.changed(chosen, rounded, self.states, min(chosen))

    def output(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """What the head multiplies, ``[tokens, hidden]``."""
        return F.rms_norm(states[-1], states[-1].shape[1:], self._weights.norm(), self._weights.checkpoint.norm_eps)


def ordered(reading: Reading, rounded: Sequence[Shard]) -> tuple[list[int], list[dict[str, float]]]:
    """The layers in a format, the least sensitive first, and each one's scores.

    All are mean cosines over the tokens, and the higher they are the less a layer minds. ``lts``: of the layer's output with its
    input (how little the layer does). ``lrs``: of its output with that in the format (how little that changes). ``mds``: of the
    model's output with the layers so far in the format and that with this one as well (how little the model notices). A layer's
    importance is their sum, each from 0 to 1 over the layers that are left: they spread by very different amounts.
    """
    states = reading.states
    found = list[dict[str, float]]()
    for layer, shard in enumerate(rounded):
        output = reading.through(states[: layer + 1], [shard])[-1]
        full = states[layer + 1]
        found.append({"lts": cosine(full, states[layer]), "lrs": cosine(full, output)})
    order = list[int]()
    while left := [layer for layer in range(len(rounded)) if layer not in order]:
        for layer in left:
            changed = reading.changed({*order, layer}, rounded, states, layer)
            found[layer]["mds"] = cosine(reading.output(states), reading.output(changed))
        by = importance([found[layer] for layer in left])
        best = sorted(zip(by, left, strict=True), reverse=True)
        order += [layer for _, layer in best[: -(-len(rounded) // SIZES)]]
        states = reading.with_format(order, rounded)
    return order, found


def importance(scores: Sequence[Mapping[str, float]]) -> list[float]:
    """Of each layer by its scores, beside the others: the higher, the earlier it is its turn."""
    sums = [0.0] * len(scores)
    for name, weight in IMPORTANCE.items():
        figures = [score[name] for score in scores]
        width = max(figures) - min(figures) or 1.0
        sums = [total + weight * (figure - min(figures)) / width for total, figure in zip(sums, figures, strict=True)]
    return sums


def cosine(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Mean over the tokens."""
    return F.cosine_similarity(ours.double(), theirs.double(), dim=-1).mean().item()


class Losses:
    """What a text loses, beside what the model predicts of it as it is."""

    def __init__(self, weights: Weights, reading: Reading) -> None:
        count = weights.checkpoint.spec.num_layers
        last = LayerRange(count - 1, count)
        self._head = Shard(weights, ShardSpec(last, 0, 1, is_first=False, is_last=True), last)
        self._chunks = reading.chunks
        self._full = [*self._predicted(reading.states)]
        pairs = zip(self._full, self._chunks, strict=True)
        self.perplexity = math.exp(sum(F.nll_loss(full, tokens[1:]).item() for full, tokens in pairs) / len(self._full))

    def _predicted(self, states: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Log-probabilities of each chunk's tokens but the first."""
        count, length = self._chunks.shape
        for hidden in states[-1].view(count, length, -1):
            yield self._head.logits(hidden, range(length - 1), SOLO).log_softmax(-1)

    def of(self, states: Sequence[torch.Tensor]) -> dict[str, float]:
        """Growth of the perplexity with its standard error over the chunks; agreement of the likeliest tokens; divergence."""
        rows = []
        for full, found, tokens in zip(self._full, self._predicted(states), self._chunks, strict=True):
            growth = F.nll_loss(found, tokens[1:]) - F.nll_loss(full, tokens[1:])
            agreement = (found.argmax(-1) == full.argmax(-1)).float().mean()
            rows.append(torch.stack([growth, agreement, F.kl_div(found, full, reduction="batchmean", log_target=True)]))
        each = torch.stack(rows).double()
        growth, agreement, divergence = each.mean(0).tolist()
        error = each[:, 0].std().item() / math.sqrt(len(rows))
        return {
            "loss": math.expm1(growth),
            "error": math.exp(growth) * error,
            "agreement": agreement,
            "divergence": divergence,
        }


def chunks_of(folder: Path, text: str, length: int) -> torch.Tensor:
    """The text's beginning in tokens, ``[chunks, length]``, each chunk after what the tokenizer puts before a text.

    Raises:
        CheckpointError: there is no tokenizer, or the text is too short.
    """
    tokenizer = Tokenizer.load(folder)
    start = tokenizer.encode("")[:1]
    tokens = tokenizer.encode(text, add_special_tokens=False)
    step = length - len(start)
    count = min(MOST_CHUNKS, len(tokens) // step)
    if count < FEWEST_CHUNKS:
        raise CheckpointError(f"the text has {len(tokens)} tokens; {FEWEST_CHUNKS * step} are needed, better more")
    return torch.tensor([[*start, *tokens[at : at + step]] for at in range(0, count * step, step)])


def measured(folder: Path, text: str) -> dict[str, Any]:
    """All of ``measure``, in this process."""
    weights = Weights(Checkpoint(folder), torch.float32)
    model = weights.checkpoint.spec
    layers = single_layers(weights)
    chunks = chunks_of(folder, text, min(CHUNK_TOKENS, model.max_position_embeddings))
    reading = Reading(weights, layers, chunks)
    scored = Reading(weights, layers, chunks[:SCORED_CHUNKS])
    losses = Losses(weights, reading)
    formats = {}
    for name in ("int8", "int4") if all(groups(model).values()) else ("int8",):
        rounded = single_layers(Weights(RoundedCheckpoint(folder, name), torch.float32))
        order, scores = ordered(scored, rounded)
        step = -(-model.num_layers // SIZES)
        sets = {size: order[:size] for size in (*range(step, model.num_layers, step), model.num_layers)}
        formats[name] = {
            "order": order,
            "scores": dict(enumerate(scores)),
            "prefixes": {size: losses.of(reading.with_format(some, rounded)) for size, some in sets.items()},
            "singles": {layer: losses.of(reading.with_format([layer], rounded)) for layer in order},
        }
    return {"tokens": chunks.numel(), "perplexity": losses.perplexity, "formats": formats}


def main() -> None:
    """Print what the checkpoint folder that is the only argument loses on the text on standard input."""
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            print(json.dumps(measured(Path(sys.argv[1]), sys.stdin.read())))  # noqa: T201 - the parent reads it
    except RuntimeFault as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
