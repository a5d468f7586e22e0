"""The part of a model that one rank computes: its layers, its heads, its slice of the MLP.

Megatron-style tensor parallelism (Shoeybi et al., arXiv 1909.08053): q, k, v, gate and up are split by output rows,
o and down by input columns, so each layer needs two all-reduces. The embedding is whole on each rank of the first
stage; the output head is split over the ranks of the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.models import LayerRange, rank_part
from runtime.torch_engine.worker.attention import StepAttention
from runtime.torch_engine.worker.group import Peers
from runtime.torch_engine.worker.weights import LayerShare, LayerWeights, Linear, Weights


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Which part."""

    layers: LayerRange
    tp_rank: int
    tp_size: int
    is_first: bool
    is_last: bool
    formats: tuple[str | None, ...] = ()
    """Of the weights of each layer; None, or none at all: as the engine computes."""

    def format_of(self, layer: int) -> str | None:
        """Of one layer's weights."""
        return self.formats[layer - self.layers.start] if self.formats else None

    @property
    def share(self) -> LayerShare:
        """Its part of each layer."""
        return LayerShare(self.tp_rank, self.tp_size)


Aside = dict[int, tuple[str | None, LayerWeights]]
"""Layers that a shard could compute with: the format and the weights of each."""


class IncompleteRoleError(RuntimeError):
    """A rank was to run without all weights of its role."""


class Shard:
    """Weights of one rank and its forward pass."""

    def __init__(self, weights: Weights, spec: ShardSpec, layers: LayerRange) -> None:
        """Take the weights of ``layers``; it computes once it has all of its own."""
        self._weights = weights
        self._model = weights.checkpoint.spec
        self._spec = spec
        self._dtype = weights.dtype
        self._eps = weights.checkpoint.norm_eps
        self._num_kv = len(rank_part(self._model.num_kv_heads, spec.tp_size, spec.tp_rank))
        self._num_q = self._num_kv * (self._model.num_heads // self._model.num_kv_heads)
        self._rope = weights.rope
        self._layers: dict[int, LayerWeights] = {}
        self._formats = {layer: spec.format_of(layer) for layer in spec.layers}
        self._embedding: torch.Tensor | None = None
        self._norm: torch.Tensor | None = None
        self._head: Linear | None = None
        self.take(layers)

    @property
    def is_complete(self) -> bool:
        """It has the weights of all its layers, and the embedding and the head if they are its own."""
        has_ends = not (self._spec.is_first and self._embedding is None) and not (
            self._spec.is_last and self._head is None
        )
        return has_ends and len(self._layers) == len(self._spec.layers)

    def take(self, layers: LayerRange) -> None:
        """Have the slices this rank needs of these layers.

        Those that no other shard of this process holds are loaded.

        The embedding comes with the first layer, the head with the last.
        """
        spec = self._spec
        weights = self._weights
        own = [layer for layer in layers if layer in spec.layers]
        held = self._layers | {layer: weights.layer(layer, spec.share, self._formats[layer]) for layer in own}
        self._layers = dict(sorted(held.items()))
        if spec.is_first and spec.layers.start in own:
            self._embedding = weights.embedding()
        if spec.is_last and spec.layers.end - 1 in own:
            self._norm, self._head = weights.norm(), weights.head(spec.share)

    def fetched(self, layer: int, name: str | None) -> tuple[str | None, LayerWeights]:
        """Weights of a layer in another format, to ``exchange``; nothing changes yet."""
        return name, self._weights.layer(layer, self._spec.share, name)

    def exchange(self, aside: Aside) -> Aside:
        """Compute with these weights from now on; returns those before them, so that it can be undone."""
        before = {layer: (self._formats[layer], self._layers[layer]) for layer in aside}
        self._formats |= {layer: name for layer, (name, _) in aside.items()}
        self._layers |= {layer: weights for layer, (_, weights) in aside.items()}
        return before

    def shed(self, layers: LayerRange) -> None:
        """Let go of these layers."""
        self._layers = {layer: held for layer, held in self._layers.items() if layer not in layers}
        if self._spec.layers.start in layers:
            self._embedding = None
        if self._spec.layers.end - 1 in layers:
            self._norm = self._head = None

    def forward(self, tokens: torch.Tensor, attention: StepAttention, ranks: Peers) -> torch.Tensor:
        """One step of this stage.

        ``tokens`` is ``[tokens]`` int64. Returns the hidden state ``[tokens, hidden]``, already handed
        to the next stage where there is one.

        Raises:
            IncompleteRoleError: it lacks weights; what it computed would be wrong.
        """
        if not self.is_complete:
            raise IncompleteRoleError(f"layers {self._spec.layers}: weights of {[*self._layers]} are there")
        group = ranks.group
        hop = ranks.hop
        if self._embedding is not None:
            hidden = F.embedding(tokens, self._embedding)
        else:
            shape = len(tokens), self._model.hidden_size
            hidden = hop.receive(shape, self._dtype).to(self._weights.device)
        cos, sin = (table[attention.positions].unsqueeze(1).to(self._dtype) for table in self._rope)
        for layer, weights in self._layers.items():
            hidden = hidden + group.all_reduce(self._attend(hidden, layer, weights, (cos, sin), attention))
            hidden = hidden + group.all_reduce(self._mlp(hidden, weights))
        if not self._spec.is_last:
            hop.send(hidden)
        return hidden

    def logits(self, hidden: torch.Tensor, rows: Sequence[int], ranks: Peers) -> torch.Tensor:
        """Logits ``[rows, vocabulary]`` float32 at the given rows of the last stage's hidden state."""
        assert self._norm is not None and self._head is not None, "only the last stage has the head"  # noqa: PT018
        picked = F.rms_norm(hidden[list(rows)], (self._model.hidden_size,), self._norm, self._eps)
        return ranks.group.gather(self._head(picked).float())[:, : self._model.vocab_size]

    def _attend(
        self,
        hidden: torch.Tensor,
        layer: int,
        weights: LayerWeights,
        rope: tuple[torch.Tensor, torch.Tensor],
        attention: StepAttention,
    ) -> torch.Tensor:
        dim = self._model.head_dim
        normed = F.rms_norm(hidden, (self._model.hidden_size,), weights.input_norm, self._eps)
        heads = weights.qkv(normed).view(len(hidden), -1, dim)
        qk, v = torch.split(heads, [self._num_q + self._num_kv, self._num_kv], dim=1)
        if weights.qk_norm is not None:
            qk = F.rms_norm(qk, (dim,), eps=self._eps) * weights.qk_norm
        q, k = torch.split(_rotate(qk, rope), [self._num_q, self._num_kv], dim=1)
        return weights.o(attention(layer, q, k, v))

    def _mlp(self, hidden: torch.Tensor, weights: LayerWeights) -> torch.Tensor:
        normed = F.rms_norm(hidden, (self._model.hidden_size,), weights.post_norm, self._eps)
        gate, up = weights.gate_up(normed).chunk(2, dim=-1)
        return weights.down(F.silu(gate) * up)


def _rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding in the half-split form of Hugging Face checkpoints.

    ``x`` is ``[tokens, heads, dim]``.
    """
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)
