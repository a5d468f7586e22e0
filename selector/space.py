"""What may be built: kinds of stages, how many of them, which may stand together.

And why a topology may not run. Pure.

Limits, engine capabilities and goals for the topology itself narrow the space before anything is searched.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from intent.models import Config
from runtime.errors import TopologyError
from runtime.footprint import HEADROOM, blocks, peak_bytes, weight_bytes, why_not
from runtime.models import LayerRange, Precision, Stage, Topology
from runtime.sync.stream import KvSize, StreamPlan, plan
from runtime.sync.swap import is_swap
from selector.models import Profile, SearchInput
from selector.objectives import COMPARED
from selector.pipelines.balance import MOST_STAGES
from selector.pipelines.operating import BLOCK_TOKENS, OperatingLoad, Pool, StageKind


def stage_kinds(
    pools: Sequence[Pool], precisions: Collection[str], problem: SearchInput, profiles: Mapping[str, Profile]
) -> list[StageKind]:
    """Every kind of stage that heads, limits and engine allow, on devices with figures for it."""
    base = problem.capabilities.base if problem.capabilities else None
    return [
        StageKind(place, pool.kind, tp, name, base)
        for place, pool in enumerate(pools)
        for tp in range(1, pool.node_size + 1)
        for name in precisions
        if name in profiles[pool.kind].precisions
        and _has_figures(StageKind(place, pool.kind, tp, name, base), profiles[pool.kind])
        and not _limited(tp, name, problem)
        and not _splits_badly(tp, name, problem)
    ]


def _has_figures(kind: StageKind, profile: Profile) -> bool:
    computes = kind.formats.activations in profile.flops_s
    return computes and (kind.tp == 1 or kind.tp <= max(profile.allreduce_s, default=1))


def _splits_badly(tp: int, precision: str, problem: SearchInput) -> str:
    engine = problem.capabilities
    uneven = "" if engine and tp in engine.tp_degrees else problem.model.undivided(tp)
    ranks = Stage("", tuple(range(tp)), LayerRange(0, 1), Precision(precision, "", ""))
    return uneven or why_not(precision, Topology((ranks,)), problem.model)


def stage_counts(problem: SearchInput) -> list[int]:
    """Every number of stages that layers, devices, limits and engine allow, up to ``MOST_STAGES``."""
    most = min(MOST_STAGES, problem.model.num_layers, len(problem.cluster.gpus))
    return [number for number in range(1, most + 1) if not _too_deep(number, problem)]


def narrowed(
    kinds: Sequence[StageKind], counts: Sequence[int], wishes: Sequence[Config]
) -> tuple[list[StageKind], list[int]]:
    """What goals for TP and PP leave; a pipeline is one replica, so that a goal for more leaves none."""
    kept = list(kinds)
    numbers = list(counts)
    for wish in wishes:
        if wish.op not in COMPARED:
            continue
        fits = COMPARED[wish.op]
        if wish.key == "tp":
            kept = [kind for kind in kept if fits(kind.tp, wish.value)]
        elif wish.key == "pp":
            numbers = [number for number in numbers if fits(number, wish.value)]
        elif not fits(int(wish.key.startswith("replicas")), wish.value):
            return [], []
    return kept, numbers


def groups(kinds: Sequence[StageKind], problem: SearchInput) -> Iterator[list[StageKind]]:
    """The kinds of stages that an engine runs in one pipeline.

    All of them, or those of one TP degree and one precision.
    """
    engine = problem.capabilities
    if engine is None or engine.tp_per_stage:
        yield list(kinds)
        return
    for tp, precision in dict.fromkeys((kind.tp, kind.precision) for kind in kinds):
        yield [kind for kind in kinds if (kind.tp, kind.precision) == (tp, precision)]


def _limited(tp: int, precision: str, problem: SearchInput) -> str:
    """Which limit or engine capability a stage breaks, or nothing."""
    limits = problem.limits
    engine = problem.capabilities
    allowed: list[tuple[str, Collection[object] | None, object]] = [
        ("the limits allow TP", limits.allowed_tp, tp),
        ("the limits allow precision", limits.allowed_precisions, precision),
        ("the engine runs TP", engine.tp_degrees if engine else None, tp),
        ("the engine runs precision", engine.precisions if engine else None, precision),
    ]
    for words, values, value in allowed:
        if values is not None and value not in values:
            return f"{words} {_listed(values)}"
    return ""


def _too_deep(stages: int, problem: SearchInput) -> str:
    limits = problem.limits
    engine = problem.capabilities
    if engine and stages > engine.max_pp:
        return f"the engine runs PP up to {engine.max_pp}"
    if limits.allowed_pp is not None and stages not in limits.allowed_pp:
        return f"the limits allow PP {_listed(limits.allowed_pp)}"
    return ""


def why_no_stage(problem: SearchInput, precisions: Collection[str]) -> tuple[str, ...]:
    """The distinct reasons that bar every TP degree, precision or depth, each with its first example."""
    found: dict[str, str] = {}
    for tp in range(1, _largest_node(problem) + 1):
        for name in precisions:
            if reason := _limited(tp, name, problem) or _splits_badly(tp, name, problem):
                found.setdefault(reason, f"TP{tp}@{name}")
    if reason := _too_deep(1, problem):
        found.setdefault(reason, "PP1")
    return tuple(f"{example}: {reason}" for reason, example in found.items())


_LOST = "what is left then misses a latency goal, or nothing is left"
_NEVER = {
    "replicas": "so many do not fit into the devices that may be used",
    "replicas_per_node": "not every node holds so many that span no other",
    "lost_devices": _LOST,
    "lost_nodes": _LOST,
}
"""Key of a goal for replicas to why nothing reads it."""


def why_never(wish: Config, problem: SearchInput, precisions: Collection[str]) -> str:
    """Why no topology is what a goal for TP, PP or replicas asks for, as far as one reason says it."""
    if wish.key in _NEVER:
        return _NEVER[wish.key]
    if wish.key == "pp":
        return _too_deep(wish.value, problem)
    if wish.value > _largest_node(problem):
        return f"the largest node has {_largest_node(problem)} devices of a kind"
    reasons = [_splits_badly(wish.value, name, problem) or _limited(wish.value, name, problem) for name in precisions]
    return next(iter(reasons), "") if all(reasons) else ""


def _largest_node(problem: SearchInput) -> int:
    counts = [
        sum(gpu.kind == kind for gpu in node.gpus) for node in problem.cluster.nodes for kind in problem.cluster.kinds
    ]
    return max(counts, default=0)


def blocker(topology: Topology, problem: SearchInput, precisions: Collection[str]) -> str:
    """Why a topology may not run, or nothing: what bars it, or memory."""
    return load_free_blocker(topology, problem, precisions) or no_room(topology, problem)


def load_free_blocker(topology: Topology, problem: SearchInput, precisions: Collection[str]) -> str:
    """Why a topology may not run, or nothing, whatever the load: devices, heads, limits, engine, formats."""
    if problem.capabilities and (out := sorted(problem.capabilities.out & set(topology.devices))):
        return f"it uses the device {', '.join(map(str, out))}, which is out"
    inventory = {gpu.index for gpu in problem.cluster.gpus}
    if kept_free := sorted(set(topology.devices) - inventory):
        return f"it uses the device {', '.join(map(str, kept_free))}, which a goal keeps free"
    try:
        topology.check(problem.cluster, problem.model)
    except TopologyError as error:
        return str(error)
    formats = weights_of(topology)
    if not formats <= set(precisions):
        return f"it runs in {_listed(sorted(formats))}; allowed is {_listed(precisions)}"
    if problem.limits.max_gpus is not None and len(topology.devices) > problem.limits.max_gpus:
        return f"needs {len(topology.devices)} devices; the limit is {problem.limits.max_gpus}"
    stages = [_limited(stage.tp_size, name, problem) for stage in topology.stages for name in sorted(formats)]
    cut = [why_not(name, topology, problem.model) for name in sorted(formats)]
    return next(filter(None, [_too_deep(topology.pp_size, problem), mixed(topology, problem), *stages, *cut]), "")


def mixed(topology: Topology, problem: SearchInput) -> str:
    """Why an engine that runs all layers of a pipeline in one weight format does not run it, or nothing."""
    if (
        problem.capabilities is None
        or problem.capabilities.base is not None
        or all(len(weights_of(each)) == 1 for each in topology.replicas)
    ):
        return ""
    return f"its layers are in {_listed(sorted(weights_of(topology)))}; the engine {problem.capabilities.name} runs all in one"


def weights_of(topology: Topology, layers: Collection[int] | None = None) -> set[str]:
    """The weight formats a topology holds, or that some layers of it have."""
    return {
        stage.precision_of(layer).weights
        for stage in topology.stages
        for layer in stage.layers
        if layers is None or layer in layers
    }


def no_room(topology: Topology, problem: SearchInput) -> str:
    """Why the workload does not fit, alone or on the way from what runs now; nothing if it does."""
    beside = no_room_beside(topology, problem)
    can_stream = problem.capabilities is not None and problem.capabilities.streams
    if not beside or not can_stream or not crowded(topology, problem):
        return beside
    return _too_small(topology, problem) or _unstreamable(topology, problem)


def no_room_beside(topology: Topology, problem: SearchInput) -> str:
    """Why the workload does not fit, alone or while the target comes up beside what runs now.

    Nothing if it does.
    """
    return _too_small(topology, problem) or crowded(topology, problem)


def _too_small(topology: Topology, problem: SearchInput) -> str:
    needed = blocks_needed(problem)
    have = blocks(topology, problem.model, problem.cluster, BLOCK_TOKENS)
    if not have:
        device, size = max(weight_bytes(topology, problem.model).items(), key=lambda item: item[1])
        memory = problem.cluster.gpu(device).memory_bytes
        return f"{_gb(size)} of weights leave no room for KV in the {_gb(memory)} of device {device}"
    if have < needed:
        held = have // OperatingLoad.of(problem.workload).blocks
        return f"holds the KV of {held} of the {problem.workload.concurrency} requests in flight"
    return ""


def crowded(topology: Topology, problem: SearchInput) -> str:
    """Why a topology cannot come up beside what runs now; nothing if it can."""
    if problem.now is None or topology == problem.now or swaps(topology, problem):
        return ""
    sizes = peak_bytes(problem.now, topology, problem.model, blocks_to_move(problem), BLOCK_TOKENS)
    full = _too_full({device: sizes[device] for device in topology.devices}, problem)
    return full and f"does not fit beside what runs now: {full}"


def swaps(topology: Topology, problem: SearchInput) -> bool:
    """Whether only weight formats change, which the engine exchanges between steps."""
    engine = problem.capabilities
    return engine is not None and engine.base is not None and problem.now is not None and is_swap(problem.now, topology)


def streamed(topology: Topology, problem: SearchInput) -> StreamPlan:
    """How layers move one by one from what runs now."""
    assert problem.now is not None, "only what runs has layers to move"
    usable = dict.fromkeys(problem.now.devices, math.inf)  # goals may keep them from the target
    usable |= {gpu.index: gpu.memory_bytes * (1 - HEADROOM) for gpu in problem.cluster.gpus}
    return plan(problem.now, topology, problem.model, KvSize(blocks_to_move(problem), BLOCK_TOKENS), usable)


def _unstreamable(topology: Topology, problem: SearchInput) -> str:
    peak = streamed(topology, problem).peak_bytes
    full = _too_full({device: peak[device] for device in topology.devices}, problem)
    return full and f"does not fit beside what runs now, nor if layers move one by one: {full}"


def _too_full(sizes: Mapping[int, int], problem: SearchInput) -> str:
    for device, size in sizes.items():
        usable = problem.cluster.gpu(device).memory_bytes * (1 - HEADROOM)
        if size > usable:
            return f"{_gb(size)} on device {device}, {_gb(usable)} usable"
    return ""


def blocks_needed(problem: SearchInput) -> int:
    """KV blocks for every request in flight at its full length."""
    load = OperatingLoad.of(problem.workload)
    return load.held * load.blocks


def blocks_to_move(problem: SearchInput) -> int:
    """KV blocks there may be while a target comes up.

    Those of the load, and no more than what runs has room for.
    """
    needed = blocks_needed(problem)
    known = {gpu.index for gpu in problem.cluster.gpus}
    if problem.now is None or not known.issuperset(problem.now.devices):  # goals keep devices from the target
        return needed
    return min(needed, blocks(problem.now, problem.model, problem.cluster, BLOCK_TOKENS))


def _listed(items: Collection[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.3g} GB"
