"""What a switch takes: bytes, seconds, and when it has paid for itself. Pure."""

import math
from collections.abc import Mapping
from functools import lru_cache

from runtime.footprint import owned, transfer
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Topology
from selector.models import Candidate, CrossingPrediction, SearchInput, SwitchPrediction
from selector.space import crowded, streamed

LOAD_BYTES_S = {"nvlink": 20e9, "pcie": 20e9, "network": 10e9, "shared-memory": 2e9}
"""Link of a node to how fast a device there takes weights from the host: PCIe 4.0 x16 as reached, memory copies on a CPU."""
BUILD_S = 1.0
"""To build communication groups and run a probe step, beside the loading."""


def bytes_to_move(now: Topology | None, target: Topology, model: ModelSpec) -> dict[str, int]:
    """``weights``: bytes the target devices lack.

    ``kv_per_token``: KV bytes copied per token in the cache.

    Weights of a layer are counted by KV heads, as TP cuts them; embedding and head (a few percent) are left
    out.
    """
    return {"weights": _weights(now, target, model), "kv_per_token": _kv_per_token(now, target, model)}


def _weights(now: Topology | None, target: Topology, model: ModelSpec) -> int:
    return round(sum(_lacking(now, target, model).values()))


@lru_cache(maxsize=8)
def _lacking(now: Topology | None, target: Topology, model: ModelSpec) -> Mapping[int, float]:
    """Bytes of weights that each device of the target has to load."""
    held = owned(now, model) if now else {}
    sizes = dict.fromkeys(target.devices, 0.0)
    for device, pieces in owned(target, model).items():
        for piece in pieces:
            width = BYTES_PER_VALUE[target.stage_of(piece.layer).precision_of(piece.layer).weights]
            same = (
                now
                and piece in held.get(device, ())
                and _weights_of(now, piece.layer) == _weights_of(target, piece.layer)
            )
            sizes[device] += 0 if same else width * model.layer_parameters / model.num_kv_heads
    return sizes


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


def switch(
    today: Candidate, target: Candidate, problem: SearchInput, over: CrossingPrediction | None = None
) -> SwitchPrediction:
    """From what runs to another topology.

    How long to prepare, how long streams stand still, when it has paid for itself.

    Preparing is loading what the slowest device lacks; a stop drains one pass of today's pipeline and waits for the first of the
    target's. Where the target cannot come up beside what runs the stop has the loading too. Both sets of devices are occupied
    while it is prepared, which the devices (or the money) saved have to win back. ``over`` is what another host takes besides.
    """
    if today.topology == target.topology:
        return SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)
    passes_s = today.prediction.tpot_s["mean"], target.prediction.tpot_s["mean"]
    stop_s = sum(passes_s)
    pause_s = min(passes_s)
    prices = _prices(problem.cluster)
    if crowded(target.topology, problem):
        loading_s = _loading_s(streamed(target.topology, problem).load_bytes, problem.cluster)
        payback_s = _payback_s(today, target, prices, BUILD_S)
        return SwitchPrediction("stream", BUILD_S, stop_s + loading_s, pause_s + loading_s, payback_s)
    lacking = _lacking(today.topology, target.topology, problem.model)
    prepare_s = BUILD_S + _loading_s(lacking, problem.cluster)
    if over is not None:
        prepare_s += over.sync_s if math.isfinite(over.sync_s) else 0.0
        stop_s += over.cut_s
        pause_s += over.cut_s
    return SwitchPrediction("shadow", prepare_s, stop_s, pause_s, _payback_s(today, target, prices, prepare_s), over)


def _loading_s(sizes: Mapping[int, float], cluster: Cluster) -> float:
    """Until the slowest device has its bytes."""
    links = {gpu.index: node.link.kind for node in cluster.nodes for gpu in node.gpus}
    return max((size / LOAD_BYTES_S.get(links.get(device, ""), 10e9) for device, size in sizes.items()), default=0.0)


def _payback_s(today: Candidate, target: Candidate, prices: Mapping[int, float], prepare_s: float) -> float | None:
    """None where the target occupies no less than today."""
    now, then = (sum(prices[device] for device in candidate.topology.devices) for candidate in (today, target))
    both = sum(prices[device] for device in {*today.topology.devices, *target.topology.devices})
    return prepare_s * (both - now) / (now - then) if then < now else None


def _prices(cluster: Cluster) -> dict[int, float]:
    """By device; all alike where the inventory states none."""
    priced = any(gpu.usd_per_hour for gpu in cluster.gpus)
    return {gpu.index: gpu.usd_per_hour if priced else 1.0 for gpu in cluster.gpus}
