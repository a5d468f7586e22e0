"""What a switch has to move. Pure; the arithmetic of pieces is the runtime's."""

from runtime.footprint import owned, transfer
from runtime.models import BYTES_PER_VALUE, ModelSpec, Topology


def bytes_to_move(now: Topology | None, target: Topology, model: ModelSpec) -> dict[str, int]:
    """``weights``: bytes the target devices lack; ``kv_per_token``: KV bytes copied per token in the cache.

    Weights of a layer are counted by KV heads, as TP cuts them; embedding and head (a few percent) are left
    out.
    """
    return {"weights": _weights(now, target, model), "kv_per_token": _kv_per_token(now, target, model)}


def _weights(now: Topology | None, target: Topology, model: ModelSpec) -> int:
    held = owned(now, model) if now else {}
    size = 0.0
    for device, pieces in owned(target, model).items():
        for piece in pieces:
            width = BYTES_PER_VALUE[target.stage_of(piece.layer).precision_of(piece.layer).weights]
            same = (
                now
                and piece in held.get(device, ())
                and _weights_of(now, piece.layer) == _weights_of(target, piece.layer)
            )
            size += 0 if same else width * model.layer_parameters / model.num_kv_heads
    return round(size)


def _weights_of(topology: Topology, layer: int) -> str:
    return topology.stage_of(layer).precision_of(layer).weights


def _kv_per_token(now: Topology | None, target: Topology, model: ModelSpec) -> int:
    if now is None:
        return 0
    size = 0.0
    for box in transfer(now, target, model):
        for layer in range(*box.layers):
            width = BYTES_PER_VALUE[now.stage_of(layer).precision_of(layer).kv]
            size += 2 * model.head_dim * width * (box.heads[1] - box.heads[0])
    return round(size)
