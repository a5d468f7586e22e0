"""What weight formats cost a checkpoint in quality, measured on a text.

``measure`` starts ``python -m runtime.torch_engine.quality CHECKPOINT``, which is like a worker: one thread. The layers are the
engine's own, each run by itself, with activations in float32.
"""

import json
import math
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.errors import CheckpointError, RuntimeFault
from runtime.footprint import groups, recipe
from runtime.kv.store import KvShape
from runtime.models import LayerRange
from runtime.tokenizer import Tokenizer
from runtime.torch_engine.models import Span
from runtime.torch_engine.worker.attention import Attention
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.group import SOLO, Peers, Solo
from runtime.torch_engine.worker.shard import Shard, ShardSpec
from runtime.torch_engine.worker.weights import Weights

CHUNK_TOKENS = 128
"""Of the text: each chunk is read without what came before it."""
CHUNKS = range(4, 17)
"""How many are read; further text is left out."""
SCORED_CHUNKS = 2
"""What the scores are taken on; losses are taken on all."""
SIZES = 16
"""Of sets of the order that are measured, at most."""


def measure(checkpoint: Path, text: str) -> dict[str, object]:
    """Each layer's scores, and what sets of layers lose, by format; takes minutes.

    Raises:
        CheckpointError: the folder cannot be served, or the text is too short for it.
    """
    command = [sys.executable, "-P", "-m", "runtime.torch_engine.quality", str(checkpoint)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise CheckpointError(f"no quality was measured: {done.stderr.strip().splitlines()[-1]}")
    return dict(json.loads(done.stdout))


def single_layers(weights: Weights, name: str | None = None) -> list[Shard]:
    """The layers of a checkpoint in a format, each by itself; the last one has the head."""
    ranges = [LayerRange(layer, layer + 1) for layer in range(weights.checkpoint.spec.num_layers)]
    last = ranges[-1]
    return [Shard(weights, ShardSpec(each, 0, 1, False, each == last, (name,)), each) for each in ranges]


class Before(Solo):
    """What stands before a layer that runs by itself."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self._hidden = hidden

    def receive(self, shape: tuple[int, int], dtype: torch.dtype) -> torch.Tensor:  # noqa: ARG002 - a hop's
        """The layer's input."""
        return self._hidden


class HeldText:
    """A text as a model reads it: each layer's input, and the last one's output."""

    def __init__(self, weights: Weights, layers: Sequence[Shard], chunks: torch.Tensor) -> None:
        """``chunks`` is ``[chunks, tokens]``."""
        model = weights.checkpoint.spec
        count, length = chunks.shape
        shape = KvShape(model.num_layers, model.num_kv_heads, count, length, model.head_dim, torch.float32)
        spans = [Span(0, length, (block,)) for block in range(count)]
        self._attention = Attention(torch.zeros(shape.dims), slice(None), spans)
        self._layers = layers
        self._chunks = chunks
        self.states = self.through([F.embedding(chunks.flatten(), weights.embedding())], layers)
        self._full = [*self._predicted(self.states)]

    def through(self, states: Sequence[torch.Tensor], layers: Iterable[Shard]) -> list[torch.Tensor]:
        """The states, and those after further layers."""
        after = [*states]
        for layer in layers:
            after.append(layer.forward(self._chunks.flatten(), self._attention, Peers(SOLO.group, Before(after[-1]))))
        return after

    def changed(
        self, chosen: Collection[int], theirs: Sequence[Shard], states: Sequence[torch.Tensor], first: int
    ) -> list[torch.Tensor]:
        """The states with chosen layers in a format, computed anew from a layer on."""
        layers = [(theirs if layer in chosen else self._layers)[layer] for layer in range(first, len(theirs))]
        return self.through(states[: first + 1], layers)

    def _predicted(self, states: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Log-probabilities after each chunk's tokens but the last."""
        for hidden in states[-1].view(*self._chunks.shape, -1):
            yield self._layers[-1].logits(hidden, range(len(hidden) - 1), SOLO).log_softmax(-1)

    def lost(self, states: Sequence[torch.Tensor]) -> dict[str, float]:
        """What states lose beside those of the model as it is.

        ``loss``: growth of the perplexity, relative, and its standard error over the chunks. ``agreement``: share of positions
        whose likeliest token stays. ``divergence``: mean KL divergence in nats, which chance moves less than the loss.
        """
        rows = []
        for tokens, full, found in zip(self._chunks[:, 1:], self._full, self._predicted(states), strict=True):
            nll = F.nll_loss(found, tokens)
            agreement = (found.argmax(-1) == full.argmax(-1)).float().mean()
            divergence = F.kl_div(found, full, reduction="batchmean", log_target=True)
            rows.append(torch.stack([nll, nll - F.nll_loss(full, tokens), agreement, divergence]))
        each = torch.stack(rows).double()
        nll, growth, agreement, divergence = each.mean(0).tolist()
        return {
            "loss": math.expm1(growth),
            "error": math.exp(growth) * each[:, 1].std().item() / math.sqrt(len(rows)),
            "agreement": agreement,
            "divergence": divergence,
            "perplexity": math.exp(nll),
        }


def ordered(held: HeldText, theirs: Sequence[Shard], norm: torch.Tensor) -> tuple[list[int], list[dict[str, float]]]:
    """The layers in a format, the least sensitive first, and each one's scores.

    All scores are mean cosines over the tokens, and the higher they are the less a layer minds. ``lts``: of the layer's output
    with its input (how little the layer does). ``lrs``: of its output with that in the format (how little that changes).
    ``mds``: of the model's output with the layers so far in the format and that with this one as well (how little the model
    notices). A layer's importance is their sum, each from 0 to 1 over the layers that are left: they spread by very different
    amounts. ``norm`` is of the model's output.
    """
    states = held.states
    alone = [held.through(states[: layer + 1], [shard])[-1] for layer, shard in enumerate(theirs)]
    lts = [cosine(*pair) for pair in zip(states[1:], states, strict=False)]
    lrs = [cosine(*pair) for pair in zip(states[1:], alone, strict=True)]
    scores = torch.tensor([lts, lrs, [1.0] * len(alone)], dtype=torch.float64)
    order = list[int]()
    while left := [layer for layer in range(len(alone)) if layer not in order]:
        for layer in left:
            changed = held.changed({*order, layer}, theirs, states, layer)
            scores[2, layer] = cosine(states[-1] * norm, changed[-1] * norm)
        least, most = scores[:, left].aminmax(dim=1, keepdim=True)
        importance = ((scores[:, left] - least) / (most - least).clamp(min=1e-12)).sum(0)
        best = importance.argsort(descending=True).tolist()
        order += [left[place] for place in best[: -(-len(alone) // SIZES)]]
        states = held.changed(order, theirs, held.states, 0)
    return order, [dict(zip(("lts", "lrs", "mds"), each, strict=True)) for each in scores.T.tolist()]


def cosine(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Mean over the tokens."""
    return F.cosine_similarity(ours.double(), theirs.double(), dim=-1).mean().item()


def chunks_of(folder: Path, text: str, length: int) -> torch.Tensor:
    """The text's beginning in tokens, ``[chunks, length]``.

    Each chunk comes after what the tokenizer puts before a text.

    Raises:
        CheckpointError: there is no tokenizer, or the text is too short.
    """
    tokenizer = Tokenizer.load(folder)
    start = tokenizer.encode("")[:1]
    tokens = tokenizer.encode(text, add_special_tokens=False)
    step = length - len(start)
    count = min(CHUNKS[-1], len(tokens) // step)
    if count not in CHUNKS:
        raise CheckpointError(
            f"the text has {len(tokens)} tokens, and {CHUNKS[0] * step} are the fewest; name a longer --text"
        )
    return torch.tensor([[*start, *tokens[place : place + step]] for place in range(0, count * step, step)])


def measured(folder: Path, text: str) -> dict[str, Any]:
    """As ``measure``, in this process."""
    weights = Weights(Checkpoint(folder), torch.float32)
    model = weights.checkpoint.spec
    layers = single_layers(weights)
    chunks = chunks_of(folder, text, min(CHUNK_TOKENS, model.max_position_embeddings))
    held = HeldText(weights, layers, chunks)
    scored = HeldText(weights, layers, chunks[:SCORED_CHUNKS])
    step = -(-model.num_layers // SIZES)
    formats = {}
    for name in ("int8", "int4") if all(groups(model).values()) else ("int8",):
        theirs = single_layers(weights, name)
        order, scores = ordered(scored, theirs, weights.norm())
        sets = {
            "prefixes": {size: order[:size] for size in (*range(step, model.num_layers, step), model.num_layers)},
            "singles": {layer: [layer] for layer in range(model.num_layers)},
        }
        lost = {
            kind: {key: held.lost(held.changed(some, theirs, held.states, min(some))) for key, some in each.items()}
            for kind, each in sets.items()
        }
        formats[name] = {"order": order, "scores": dict(enumerate(scores)), **lost}
    return {
        "layers": model.num_layers,
        "recipe": recipe(model),
        "tokens": chunks.numel(),
        "perplexity": held.lost(held.states)["perplexity"],
        "formats": formats,
    }


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
