"""Weights of one process: slices of a checkpoint, each loaded once, whichever shards use it.

The checkpoint's pages are the host copy that all workers share (see ``checkpoint``). A shard holds slices of them as the
engine computes with them; two shards of one worker that need the same slice share it, so a switch in place loads only
what its rank lacks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F  # noqa: N812 - the name everyone knows

from runtime.models import rank_part
from runtime.torch_engine.worker.checkpoint import Checkpoint
from runtime.torch_engine.worker.quantised import Product, QuantisedLinear
from runtime.torch_engine.worker.quantised_files import QuantisedFiles

# torch has no public name for these, though what it compiles calls them
_pack = torch.ops.mkldnn._reorder_linear_weight  # noqa: SLF001
_times_packed = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001

_PACKED_FROM = 1 << 18  # values of a weight: below, calling the packed product costs more than it saves
_ROWS = 16  # of the product that the packing is chosen for: a batch of decodes


class Linear:
    """``x`` times a transposed weight ``[out, in]``, plus a bias ``[out]``.

    oneDNN computes a batch of decodes twice as fast when it need not reorder a large float32 weight at each call.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """The weight is copied if it is packed; nobody else need keep it."""
        self._bias = bias
        self._is_packed = (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and weight.numel() >= _PACKED_FROM
            and torch.backends.mkldnn.enabled
            and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        )
        self._weight = _pack(weight, _ROWS) if self._is_packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` is ``[rows, in]``; returns ``[rows, out]``."""
        if not self._is_packed:
            return F.linear(x, self._weight, self._bias)
        product: torch.Tensor = _times_packed(x, self._weight, self._bias, "none", [], None)
        return product


_Held = TypeVar("_Held")


class LayerShare(NamedTuple):
    """One rank's part of a layer that is split over ``tp_size`` ranks."""

    tp_rank: int
    tp_size: int

    def of(self, total: int, width: int = 1) -> slice:
        """Its part of ``total`` things, as rows or columns of which each thing has ``width``."""
        part = rank_part(total, self.tp_size, self.tp_rank)
        return slice(part.start * width, part.stop * width)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class LayerWeights:
    """One decoder layer's slices; ``qkv`` and ``gate_up`` are fused by output rows."""

    input_norm: torch.Tensor
    qkv: Product
    qk_norm: torch.Tensor | None
    """``[query and KV heads, dim]``: of q and k together."""
    o: Product
    post_norm: torch.Tensor
    gate_up: Product
    down: Product


class Weights:
    """What the shards of this process hold; what none holds any more is gone."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device | None = None,
        files: QuantisedFiles | None = None,
    ) -> None:
        """On the CPU unless a device is given; without ``files`` what is quantised is made each time."""
        self.checkpoint, self.dtype, self.device = checkpoint, dtype, device or torch.device("cpu")
        self._files = files or QuantisedFiles(checkpoint, None)
        cos, sin = _rope_table(checkpoint)
        self.rope = cos.to(self.device), sin.to(self.device)
        """Cosines and sines, see ``_rope_table``."""
        self._held: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()

    def layer(self, layer: int, share: LayerShare, name: str | None = None) -> LayerWeights:
        """One rank's slices of a decoder layer, in a format of ``quantised``; None: as the engine computes."""
        return self._take((layer, share, name), lambda: self._load_layer(layer, share, name))

    def embedding(self) -> torch.Tensor:
        """``[vocabulary, hidden]``, whole."""
        return self._take(("embedding",), lambda: self._tensor("model.embed_tokens.weight"))

    def norm(self) -> torch.Tensor:
        """Of the last hidden state, ``[hidden]``."""
        return self._take(("norm",), lambda: self._tensor("model.norm.weight"))

    def head(self, share: LayerShare) -> Linear:
        """One rank's rows of the output head."""
        return self._take(("head", share), lambda: Linear(self._put(_load_head(self.checkpoint, share))))

    def _load_layer(self, layer: int, share: LayerShare, quantised: str | None) -> LayerWeights:
        model = self.checkpoint.spec
        prefix = f"model.layers.{layer}."
        queries = model.num_heads // model.num_kv_heads
        q_rows = share.of(model.num_kv_heads, queries * model.head_dim)
        kv_rows = share.of(model.num_kv_heads, model.head_dim)
        mlp = share.of(model.intermediate_size)

        def load(name: str, rows: slice = slice(None)) -> torch.Tensor:
            return self._put(self.checkpoint.tensor(prefix + name, rows))

        matrices = self._files.layer(layer, quantised) if quantised else {}

        def product(names: Sequence[str], rows: Sequence[slice], columns: slice, bias: torch.Tensor | None) -> Product:
            if quantised is None:
                full = [
                    self._put(self.checkpoint.tensor(f"{prefix}{name}.weight", some, columns))
                    for name, some in zip(names, rows, strict=True)
                ]
                return Linear(torch.cat(full), bias)
            found = [matrices[name].part(some, columns) for name, some in zip(names, rows, strict=True)]
            return QuantisedLinear(found, bias, self.dtype, self.device)

        parts = (("q", q_rows), ("k", kv_rows), ("v", kv_rows))
        bias = qk_norm = None
        if model.attention_bias:
            bias = torch.cat([load(f"self_attn.{name}_proj.bias", rows) for name, rows in parts])
        if model.qk_norm:
            heads = {
                "q": (q_rows.stop - q_rows.start) // model.head_dim,
                "k": (kv_rows.stop - kv_rows.start) // model.head_dim,
            }
            norms = [load(f"self_attn.{name}_norm.weight").expand(count, -1) for name, count in heads.items()]
            qk_norm = torch.cat(norms)
        every = slice(None)
        return LayerWeights(
            input_norm=load("input_layernorm.weight"),
            qkv=product([f"self_attn.{name}_proj" for name, _ in parts], [rows for _, rows in parts], every, bias),
            qk_norm=qk_norm,
            o=product(["self_attn.o_proj"], [every], q_rows, None),
            post_norm=load("post_attention_layernorm.weight"),
            gate_up=product(["mlp.gate_proj", "mlp.up_proj"], [mlp, mlp], every, None),
            down=product(["mlp.down_proj"], [every], mlp, None),
        )

    def _tensor(self, name: str) -> torch.Tensor:
        return self._put(self.checkpoint.tensor(name))

    def _put(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.device, self.dtype)

    def _take(self, key: tuple[object, ...], load: Callable[[], _Held]) -> _Held:
        found: _Held | None = self._held.get(key)
        if found is None:
            found = self._held[key] = load()
        return found


def _rope_table(checkpoint: Checkpoint) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines, and sines with the sign of what they are multiplied by.

    Each ``[positions, head_dim]`` float32.
    """
    inverse = checkpoint.rope.inverse_frequencies(checkpoint.spec.head_dim)
    angles = torch.outer(torch.arange(checkpoint.spec.max_position_embeddings).float(), inverse)
    cos = angles.cos()
    sin = angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _load_head(checkpoint: Checkpoint, share: LayerShare) -> torch.Tensor:
    """This rank's rows of the output head, padded with zeros so that every rank has as many."""
    model = checkpoint.spec
    name = "model.embed_tokens.weight" if model.tie_word_embeddings else "lm_head.weight"
    each = -(-model.vocab_size // share.tp_size)
    rows = checkpoint.tensor(name, slice(share.tp_rank * each, min((share.tp_rank + 1) * each, model.vocab_size)))
    return F.pad(rows, (0, 0, 0, each - len(rows)))
