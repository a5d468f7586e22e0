"""The part of a model that one rank computes: its layers, its heads, its slice of the MLP.

Megatron-style tensor parallelism (Shoeybi et al., arXiv 1909.08053): q, k, v, gate and up are split by output rows,
o and down by input columns, so each layer needs two all-reduces. The embedding is whole on each rank of the first
stage; the output head is split over the ranks of the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.models import LayerRange
from runtime.torch_engine.attention import Attention
from runtime.torch_engine.checkpoint import Checkpoint
from runtime.torch_engine.group import Group, SoloGroup
from runtime.torch_engine.linear import Linear


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Which part."""

    layers: LayerRange
    tp_rank: int
    tp_size: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer's slices; ``qkv`` and ``gate_up`` are fused by output rows."""

    input_norm: torch.Tensor
    qkv: Linear
    qk_norm: torch.Tensor | None
    """``[query and KV heads, dim]``: of q and k together."""
    o: Linear
    post_norm: torch.Tensor
    gate_up: Linear
    down: Linear


class Shard:
    """Weights of one rank and its forward pass."""

    def __init__(self, checkpoint: Checkpoint, spec: ShardSpec, dtype: torch.dtype) -> None:
        """Load the slices this rank needs, as ``dtype``."""
        self._model, self._spec, self._dtype = checkpoint.spec, spec, dtype
        self._eps = checkpoint.norm_eps
        self._num_q = self._model.num_heads // spec.tp_size
        self._num_kv = self._model.num_kv_heads // spec.tp_size
        self._layers = {layer: _load_layer(checkpoint, layer, spec, dtype) for layer in spec.layers}
        self._embedding = checkpoint.tensor("model.embed_tokens.weight").to(dtype) if spec.is_first else None
        self._norm = checkpoint.tensor("model.norm.weight").to(dtype) if spec.is_last else None
        self._head = Linear(_load_head(checkpoint, spec).to(dtype)) if spec.is_last else None
        self._rope = _rope_table(checkpoint)

    def forward(self, tokens: torch.Tensor, attention: Attention, group: Group | SoloGroup) -> torch.Tensor:
        """One step of this stage.

        ``tokens`` is ``[tokens]`` int64. Returns the hidden state ``[tokens, hidden]``, already handed
        to the next stage where there is one.
        """
        if self._embedding is not None:
            hidden = F.embedding(tokens, self._embedding)
        else:
            hidden = group.receive((len(tokens), self._model.hidden_size), self._dtype)
        cos, sin = (table[attention.positions].unsqueeze(1).to(self._dtype) for table in self._rope)
        for layer, weights in self._layers.items():
            hidden = hidden + group.all_reduce(self._attend(hidden, layer, weights, (cos, sin), attention))
            hidden = hidden + group.all_reduce(self._mlp(hidden, weights))
        if not self._spec.is_last:
            group.send(hidden)
        return hidden

    def logits(self, hidden: torch.Tensor, rows: Sequence[int], group: Group | SoloGroup) -> torch.Tensor:
        """Logits ``[rows, vocabulary]`` float32 at the given rows of the last stage's hidden state."""
        assert self._norm is not None and self._head is not None, "only the last stage has the head"  # noqa: PT018
        picked = F.rms_norm(hidden[list(rows)], (self._model.hidden_size,), self._norm, self._eps)
        return group.gather(self._head(picked).float())[:, : self._model.vocab_size]

    def _attend(
        self,
        hidden: torch.Tensor,
        layer: int,
        weights: LayerWeights,
        rope: tuple[torch.Tensor, torch.Tensor],
        attention: Attention,
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
    """Rotary embedding in the half-split form of Hugging Face checkpoints; ``x`` is ``[tokens, heads, dim]``."""
    cos, sin = rope
    first, second = x.chunk(2, dim=-1)
    return torch.addcmul(x * cos, torch.cat((second, first), dim=-1), sin)


def _rope_table(checkpoint: Checkpoint) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines, and sines with the sign of what they are multiplied by: each ``[positions, head_dim]`` float32."""
    inverse = checkpoint.rope.inverse_frequencies(checkpoint.spec.head_dim)
    angles = torch.outer(torch.arange(checkpoint.spec.max_position_embeddings).float(), inverse)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _share(total: int, spec: ShardSpec) -> slice:
    each = total // spec.tp_size
    return slice(spec.tp_rank * each, (spec.tp_rank + 1) * each)


def _load_layer(checkpoint: Checkpoint, layer: int, spec: ShardSpec, dtype: torch.dtype) -> LayerWeights:
    model, prefix = checkpoint.spec, f"model.layers.{layer}."
    q_rows = _share(model.num_heads * model.head_dim, spec)
    kv_rows = _share(model.num_kv_heads * model.head_dim, spec)
    mlp = _share(model.intermediate_size, spec)

    def load(name: str, rows: slice = slice(None), columns: slice = slice(None)) -> torch.Tensor:
        return checkpoint.tensor(prefix + name, rows, columns).to(dtype)

    parts = (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
    bias = qk_norm = None
    if model.attention_bias:
        bias = torch.cat([load(f"self_attn.{name}_proj.bias", rows) for name, rows in parts])
    if model.qk_norm:
        heads = {"q": model.num_heads // spec.tp_size, "k": model.num_kv_heads // spec.tp_size}
        norms = [load(f"self_attn.{name}_norm.weight").expand(count, -1) for name, count in heads.items()]
        qk_norm = torch.cat(norms)
    return LayerWeights(
        input_norm=load("input_layernorm.weight"),
        qkv=Linear(torch.cat([load(f"self_attn.{name}_proj.weight", rows) for name, rows in parts]), bias),
        qk_norm=qk_norm,
        o=Linear(load("self_attn.o_proj.weight", columns=q_rows).contiguous()),
        post_norm=load("post_attention_layernorm.weight"),
        gate_up=Linear(torch.cat([load("mlp.gate_proj.weight", mlp), load("mlp.up_proj.weight", mlp)])),
        down=Linear(load("mlp.down_proj.weight", columns=mlp).contiguous()),
    )


def _load_head(checkpoint: Checkpoint, spec: ShardSpec) -> torch.Tensor:
    """This rank's rows of the output head, padded with zeros so that every rank has as many."""
    model = checkpoint.spec
    name = "model.embed_tokens.weight" if model.tie_word_embeddings else "lm_head.weight"
    each = -(-model.vocab_size // spec.tp_size)
    rows = checkpoint.tensor(
        name, slice(spec.tp_rank * each, min((spec.tp_rank + 1) * each, model.vocab_size))
    )
    return F.pad(rows, (0, 0, 0, each - len(rows)))
