"""What a switch takes: how it goes, bytes, seconds, and when it has paid for itself. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import get_args

from runtime.capabilities import BUILT_IN_START, Band, Capabilities, together, vllm_start
from runtime.footprint import (
    Piece,
    blocks,
    kv_bytes_per_token,
    owned,
    transfer,
    usual_kv_bytes,
    value_bytes,
    weight_bytes,
)
from runtime.models import BYTES_PER_VALUE, Cluster, ModelSpec, Topology
from runtime.replicas.steps import Change, changes
from runtime.sync.swap import in_words
from selector import explain
from selector.models import Candidate, CrossingPrediction, Profile, ProfileError, SearchInput, SwitchPrediction, Way
from selector.performance.load import times
from selector.performance.perf import Step
from selector.pipelines.operating import BLOCK_TOKENS, OperatingLoad
from selector.prediction import server_of
from selector.space import crowded, no_room, streamed, swaps

LOAD_BYTES_S = {"nvlink": 20e9, "pcie": 20e9, "network": 10e9, "shared-memory": 2e9}
"""Link of a node to how fast a device there takes weights from the host: PCIe 4.0 x16 as reached, memory copies on a CPU."""
STORAGE_BYTES_S = (3e9, 6e9)
"""At which a node reads weights where nobody measured its storage: an NVMe disk of a server, the slow and the fast."""
FILE_WIDTH = 2.0
"""Bytes per value of a checkpoint as models are published; narrower formats may be made from it while it is loaded."""
STANDBY: Band = (0.05, 1.0)
"""Of what stands by, warm: no more than a probe."""


def bytes_to_move(
    now: Topology | None, target: Topology, model: ModelSpec, engine: Capabilities | None = None
) -> dict[str, int]:
    """``weights``: bytes the target devices lack; all of them where the engine shares none with what runs.

    ``kv_per_token``: KV bytes copied per token in the cache.

    Weights of a layer are counted by KV heads, as TP cuts them; embedding and head (a few percent) are left
    out.
    """
    if now and _is_set(now, target):
        parts = [
            bytes_to_move(change.before, change.after, model, engine) for change in changes(now, target) if change.after
        ]
        return {key: sum(part[key] for part in parts) for key in ("weights", "kv_per_token")}
    kv_per_token = round(kv_bytes(now, target, model, {})) if now else 0
    held = None if engine and not engine.shares_weights else now
    return {"weights": round(sum(_lacking(held, target, model).values())), "kv_per_token": kv_per_token}


def _is_set(*sides: Topology) -> bool:
    return any(len(side.replicas) > 1 for side in sides)


@lru_cache(maxsize=8)
def _lacking(now: Topology | None, target: Topology, model: ModelSpec) -> Mapping[int, float]:
    """Bytes of weights that each device of the target has to load."""
    held = owned(now, model) if now else {}
    sizes = dict.fromkeys(target.devices, 0.0)
    for device, pieces in owned(target, model).items():
        for piece in pieces:
            width = value_bytes(_weights_of(target, piece.layer), model)
            same = (
                now
                and piece in held.get(device, ())
                and _weights_of(now, piece.layer) == _weights_of(target, piece.layer)
            )
            sizes[device] += 0 if same else width * model.layer_parameters / model.num_kv_heads
    return sizes


def _weights_of(topology: Topology, layer: int) -> str:
    return topology.stage_of(layer).precision_of(layer).weights


def kv_bytes(now: Topology, target: Topology, model: ModelSpec, at: Mapping[int, str]) -> float:
    """KV bytes per token that are copied from device to device, less what stays in one place (``at``)."""
    size = 0.0
    for box in transfer(now, target, model):
        if box.source in at and at[box.source] == at.get(box.target):
            continue
        for layer in range(*box.layers):
            width = BYTES_PER_VALUE[now.stage_of(layer).precision_of(layer).kv]
            size += 2 * model.head_dim * width * (box.heads[1] - box.heads[0])
    return size


def way(topology: Topology, problem: SearchInput, *, is_another: bool = False) -> Way | None:
    """How a switch from what runs to a topology can go; None: not at all, it does not fit even alone.

    What runs needs no room for itself, unless it ``is_another`` engine that runs the same.
    """
    engine = problem.capabilities
    now = problem.now
    if now is None or (topology == now and not is_another) or (engine and topology in engine.standby):
        return "shadow"
    if _is_set(now, topology):
        parts = [_way_of(change, problem, topology) for change in changes(now, topology)]
        return None if None in parts else max(filter(None, parts), key=_WAYS.index, default="shadow")
    stands_alone = engine is not None and not engine.shares_weights
    if no_room(topology, replace(problem, now=None)) or (stands_alone and _too_full((topology,), problem)):
        return None
    if not (_too_full((now, topology), problem) if stands_alone else crowded(topology, problem)):
        return "shadow"
    streams = engine is not None and engine.streams and not stands_alone
    return "stream" if streams and not no_room(topology, problem) else "restart"


_WAYS: tuple[Way, ...] = get_args(Way)


def _way_of(change: Change, problem: SearchInput, target: Topology) -> Way | None:
    """How one replica changes, with its part of the load's KV."""
    if change.after is None:
        return "shadow"
    part = _part_of(change.after, problem, target)
    if no_room(change.after, replace(part, now=None)):
        return None
    return way(change.after, replace(part, now=change.before))


def _part_of(replica: Topology, problem: SearchInput, target: Topology) -> SearchInput:
    """With as many requests in flight as a replica holds of them, by its room for KV."""
    room, of_all = (blocks(each, problem.model, problem.cluster, BLOCK_TOKENS) for each in (replica, target))
    workload = problem.workload
    mine = math.ceil(workload.concurrency * room / of_all) if of_all else workload.concurrency
    return replace(problem, workload=replace(workload, concurrency=max(1, mine)))


def without_outage(candidates: Iterable[Candidate], problem: SearchInput) -> list[Candidate]:
    """Those to which a switch goes while what runs serves."""
    return [each for each in candidates if way(each.topology, problem) != "restart"]


def _too_full(topologies: tuple[Topology, ...], problem: SearchInput) -> bool:
    """Whether engines that share nothing do not fit side by side on the devices of the last one."""
    engine = problem.capabilities
    assert engine is not None, "an engine shares nothing"
    cluster = problem.cluster
    weights = [weight_bytes(topology, problem.model) for topology in topologies]
    each_bytes = engine.kv_bytes
    if each_bytes is None:  # as the first of them is started
        known = {gpu.index: gpu.memory_bytes for gpu in cluster.gpus}
        memory = min(known[device] for topology in topologies for device in topology.devices if device in known)
        each_bytes = usual_kv_bytes(memory, max(weights[0].values()), engine.own_bytes)
    each_bytes += engine.own_bytes
    return any(
        sum(sizes[device] + each_bytes for sizes in weights if device in sizes) > cluster.gpu(device).memory_bytes
        for device in topologies[-1].devices
    )


def switch(
    today: Candidate, target: Candidate, problem: SearchInput, over: CrossingPrediction | None = None
) -> SwitchPrediction:
    """From what runs to another topology.

    How long to prepare, how long streams stand still, when it has paid for itself.

    Preparing is starting an engine and loading what it lacks; a stop drains one pass of today's pipeline and waits for the first
    of the target's. Where the target cannot come up beside what runs the stop has the loading too, or all of it. Both sets of
    devices are occupied while it is prepared, which the devices (or the money) saved have to win back. ``over`` is what the way
    over a network takes besides.
    """
    if _is_set(today.topology, target.topology):
        return _switch_of_set(today, target, problem)
    stays = today.topology == target.topology
    engine = problem.capabilities
    if stays and (engine is None or engine.shares_weights or today.batching == target.batching):
        return SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)  # at most it is told to fill its steps otherwise
    here = replace(problem, now=today.topology)
    how = way(target.topology, here, is_another=stays) or "restart"
    swap = in_words(today.topology, target.topology) if swaps(target.topology, here) else ""
    passes_s = [side.prediction.tpot_s["mean"] for side in (today, target)]
    start, load, unmeasured = _bringing_up(target.topology, here)
    band = together(start, load)
    inside_s = most_s = 0.0
    if how == "restart":
        # What is overloaded has none, and it would be short.
        passes_s = [each for each in passes_s if math.isfinite(each)] or [0.0]
        anew_s = over.anew_s if over else 0.0
        inside_s = _middle(band) + anew_s
        most_s = sum(passes_s) + band[1] + anew_s
        band = (0.0, 0.0)
    elif how == "stream":
        inside_s = _over_links(streamed(target.topology, here).load_bytes, problem.cluster)
        band = start
    elif over is not None:
        inside_s = over.cut_s
        band = together(band, (over.sync_s, over.sync_s)) if math.isfinite(over.sync_s) else band
    prepare_s = _middle(band)
    return SwitchPrediction(
        how,
        prepare_s,
        max(passes_s) if swap else sum(passes_s) + inside_s,
        0.0 if swap else min(passes_s) + inside_s,
        _payback_s(today, target, _prices(problem.cluster), prepare_s),
        None if how == "restart" else over,
        prepare_least_s=band[0],
        prepare_most_s=band[1],
        stop_most_s=most_s,
        loading_s=_middle(load),
        unmeasured=unmeasured,
        swap=swap,
    )


def _switch_of_set(today: Candidate, target: Candidate, problem: SearchInput) -> SwitchPrediction:
    """One replica after the other: what it takes adds up, and of the stops the longest counts."""
    old, new = (
        {each.topology: Candidate(each.topology, each.prediction, "", each.batching) for each in side.replicas}
        or {side.topology: side}
        for side in (today, target)
    )
    found = SwitchPrediction("shadow", 0.0, 0.0, 0.0, 0.0)
    for change in changes(today.topology, target.topology):
        if change.after is None:
            continue
        here = _part_of(change.after, problem, target.topology)
        if change.before is None:
            start, load, unmeasured = _bringing_up(change.after, replace(here, now=None))
            band = together(start, load)
            part = replace(
                SwitchPrediction("shadow", _middle(band), 0.0, 0.0, None, None, *band, loading_s=_middle(load)),
                unmeasured=unmeasured,
            )
        else:
            part = switch(old[change.before], new[change.after], here)
        found = SwitchPrediction(
            max(found.strategy, part.strategy, key=_WAYS.index),
            found.prepare_s + part.prepare_s,
            max(found.stop_s, part.stop_s),
            max(found.pause_s, part.pause_s),
            prepare_least_s=found.prepare_least_s + part.prepare_least_s,
            prepare_most_s=found.prepare_most_s + part.prepare_most_s,
            stop_most_s=max(found.stop_most_s, part.stop_most_s),
            loading_s=found.loading_s + part.loading_s,
            unmeasured=tuple(dict.fromkeys((*found.unmeasured, *part.unmeasured))),
        )
    return replace(
        found,
        payback_s=_payback_s(today, target, _prices(problem.cluster), found.prepare_s),
        swap=in_words(today.topology, target.topology)
        if swaps(target.topology, replace(problem, now=today.topology))
        else "",
    )


def told(found: SwitchPrediction) -> list[str]:
    """What a person has to know of a switch: that requests stand still, and which figures are assumed."""
    sentences = list[str]()
    if found.strategy == "stream":
        only = "only one copy of the weights fits, so layers move one by one"
        sentences.append(f"requests will stand still for {explain.standstill(found.stop_s)}: {only}")
    elif found.strategy == "restart":
        still = explain.standstill(found.stop_s, found.stop_most_s)
        sentences.append(f"requests stand still for {still}: the running engine has to end first")
    if found.unmeasured:
        slow, fast = (f"{bytes_s / 1e9:g}" for bytes_s in STORAGE_BYTES_S)
        where = " and ".join(found.unmeasured)
        assumed = f"nobody measured the storage of {where}: {slow} to {fast} GB/s are assumed"
        sentences.append(f"{assumed} (say it as storage: {{bandwidth_gb_s: N}} of the node)")
    return sentences


def _middle(band: Band) -> float:
    """Of a band, in proportion: as far from its least as from its most."""
    return math.sqrt(band[0] * band[1])


def _bringing_up(target: Topology, problem: SearchInput) -> tuple[Band, Band, tuple[str, ...]]:
    """To start the engine, to load its weights, and the nodes whose storage nobody measured.

    Weights come from the storage of each node, which its devices share, and over the link of each device. What a host holds
    already is not read again, where the engine keeps to that. Where the file names no engine it is a usual one, on GPUs.
    A swap starts nothing.
    """
    engine = problem.capabilities
    is_cpu = all(kind.lower() == "cpu" for kind in problem.cluster.kinds)
    start = engine.start_s if engine else BUILT_IN_START if is_cpu else vllm_start()
    if swaps(target, problem):
        start = (0.0, 0.0)
    if engine and target in engine.standby:
        return STANDBY, (0.0, 0.0), ()
    now = problem.now if (engine.shares_weights if engine else is_cpu) else None
    link_s = _over_links(_lacking(now, target, problem.model), problem.cluster)
    own = BYTES_PER_VALUE[problem.precision or (_weights_of(problem.now, 0) if problem.now else "bf16")]
    band = (0.0, 0.0)
    unmeasured = list[str]()
    for node in problem.cluster.nodes:
        devices = {gpu.index for gpu in node.gpus}
        pieces = _pieces(target, devices, problem.model) - _pieces(now, devices, problem.model)
        values = len(pieces) * problem.model.layer_parameters / problem.model.num_kv_heads
        slow, fast = (node.storage_bytes_s,) * 2 if node.storage_bytes_s else STORAGE_BYTES_S
        least_s = values * min(own, FILE_WIDTH) / fast
        band = max(band[0], least_s), max(band[1], values * max(own, FILE_WIDTH) / slow)
        unmeasured += [node.name] if pieces and not node.storage_bytes_s else []
    return start, (max(band[0], link_s), band[1] + link_s), tuple(unmeasured)


def _pieces(topology: Topology | None, devices: Collection[int], model: ModelSpec) -> set[tuple[Piece, str]]:
    """The weights, counted by KV heads, that some devices hold, each in its format."""
    held = owned(topology, model) if topology else {}
    return {
        (piece, _weights_of(topology, piece.layer))
        for device in held.keys() & devices
        for piece in held[device]
        if topology
    }


def _over_links(sizes: Mapping[int, float], cluster: Cluster) -> float:
    """Until the slowest device has its bytes from the host."""
    links = {gpu.index: node.link.kind for node in cluster.nodes for gpu in node.gpus}
    return max((size / LOAD_BYTES_S.get(links.get(device, ""), 10e9) for device, size in sizes.items()), default=0.0)


def _payback_s(today: Candidate, target: Candidate, prices: Mapping[int, float], prepare_s: float) -> float | None:
    """None where the target occupies no less than today.

    Each difference is summed by itself: what is the same on both sides must not leave a rest.
    """
    now, then = (frozenset(candidate.topology.devices) for candidate in (today, target))
    more, less = (math.fsum(prices[device] for device in side) for side in (then - now, now - then))
    return prepare_s * more / (less - more) if less - more > 1e-9 * less else None


def _prices(cluster: Cluster) -> dict[int, float]:
    """By device; all alike where the inventory states none."""
    priced = any(gpu.usd_per_hour for gpu in cluster.gpus)
    return {gpu.index: gpu.usd_per_hour if priced else 1.0 for gpu in cluster.gpus}


LINK_SHARE = 0.5
"""Of the network's time that the copy beside serving takes, as the built-in engine has it."""
ROUND_TRIPS = 4
"""Inside a cut between hosts."""
LAST_TOKENS = 8
"""A request lacks so many at most when its cut begins, unless the deployment says otherwise."""


def crossing(
    today: Candidate, target: Candidate, problem: SearchInput, profiles: Mapping[str, Profile]
) -> CrossingPrediction | None:
    """For as many requests as the workload has in flight, each of its mean length.

    What goes from one node to another takes the network, whether these are hosts or not. None where nothing does, or where the
    deployment names no network or the target has no figures. Where what runs has to end first all of it is computed anew.
    """
    if _is_set(today.topology, target.topology):
        return None  # each replica goes on where it is, or requests are computed anew in others
    cluster = problem.cluster
    link = cluster.between or cluster.network
    load = OperatingLoad.of(problem.workload)
    engine = problem.capabilities
    at = {gpu.index: node.name for node in cluster.nodes for gpu in node.gpus}
    over_bytes = kv_bytes(today.topology, target.topology, problem.model, at)
    ends_first = way(target.topology, replace(problem, now=today.topology)) == "restart"
    if not ends_first and (link is None or not over_bytes):
        return None
    try:
        server = server_of(target.topology, problem.model, cluster, profiles, problem.batching, engine)
    except (KeyError, ProfileError):
        return None
    stages_s = times(server, Step.of(1, round(load.context_tokens), 0))
    anew_s = sum(stages_s) + (load.held - 1) * max(stages_s)
    tokens = load.held * load.context_tokens
    whole_bytes = kv_bytes_per_token(problem.model, today.topology.stages[0].precision.kv)
    if ends_first or link is None or engine is None or not engine.carries:
        return CrossingPrediction("anew", tokens * whole_bytes, anew_s, 0.0, anew_s)
    tokens_s = today.prediction.throughput_tok_s * today.prediction.gpu_util
    written_bytes_s = tokens_s * (1 + load.input_tokens / load.output_tokens) * over_bytes
    free_bytes_s = link.bandwidth_bytes_s * LINK_SHARE - written_bytes_s
    sync_s = tokens * over_bytes / free_bytes_s if free_bytes_s > 0 else math.inf
    last_bytes = load.held * LAST_TOKENS * over_bytes
    cut_s = ROUND_TRIPS * 2 * link.latency_s + last_bytes / link.bandwidth_bytes_s
    return CrossingPrediction("copied", tokens * over_bytes, sync_s, cut_s, anew_s)
