"""Which topologies may be considered: uniform TP x PP x precision on one device kind. Pure.

Limits, engine capabilities and memory narrow them; what they exclude is kept with the reason.
"""

import itertools
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from intent.models import Config
from runtime.errors import TopologyError
from runtime.footprint import HEADROOM, blocks, peak_bytes, weight_bytes
from runtime.models import Cluster, Precision, Topology, uniform
from selector.models import Problem

BLOCK_TOKENS = 16
"""Tokens in one KV block, for the arithmetic of memory; another size shifts it by a block a request."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A uniform topology before it is bound to devices."""

    kind: str
    tp: int
    pp: int
    precision: str

    def __str__(self) -> str:
        return f"{self.kind} TP{self.tp}xPP{self.pp}@{self.precision}"

    def meets(self, goal: Config) -> bool:
        """Whether the shape itself is what a goal asks for."""
        degree = {"tp": self.tp, "pp": self.pp}.get(goal.key)
        if degree is None:
            return False
        return {"<=": degree <= goal.value, ">=": degree >= goal.value}.get(goal.op, degree == goal.value)


@dataclass(frozen=True, slots=True)
class Space:
    """What may run, and why the rest may not."""

    topologies: tuple[Topology, ...]
    rejected: tuple[tuple[Shape | Topology, str], ...]

    @property
    def considered(self) -> int:
        """How many were looked at."""
        return len(self.topologies) + len(self.rejected)


def survey(problem: Problem, kinds: Collection[str], precisions: Collection[str]) -> Space:
    """What runs now and every uniform topology, on the given device kinds and in the given precisions."""
    judged = [(shape, _bind(shape, problem)) for shape in _shapes(problem, kinds, precisions)]
    topologies = [bound for _, bound in judged if isinstance(bound, Topology)]
    rejected: list[tuple[Shape | Topology, str]] = [
        (shape, bound) for shape, bound in judged if isinstance(bound, str)
    ]
    now = problem.now
    if now and all(stage.kind in kinds for stage in now.stages):
        if reason := _today_barred(now, problem, precisions):
            rejected.insert(0, (now, reason))
        else:
            topologies.insert(0, now)
    return Space(tuple(topologies), tuple(rejected))


def _shapes(problem: Problem, kinds: Collection[str], precisions: Collection[str]) -> Iterator[Shape]:
    """Every shape but today's, which is judged where it runs."""
    for kind in kinds:
        count = sum(gpu.kind == kind for gpu in problem.cluster.gpus)
        degrees = [(tp, pp) for tp in range(1, count + 1) for pp in range(1, count // tp + 1)]
        for (tp, pp), precision in itertools.product(degrees, precisions):
            shape = Shape(kind, tp, pp, precision)
            if problem.now is None or not _has_shape(problem.now, shape):
                yield shape


def _has_shape(topology: Topology, shape: Shape) -> bool:
    lengths = [len(stage.layers) for stage in topology.stages]
    even = lengths == sorted(lengths, reverse=True) and lengths[0] - lengths[-1] <= 1
    precision = Precision.named(shape.precision, shape.kind)
    return (
        even
        and len(lengths) == shape.pp
        and all(
            (stage.kind, stage.tp_size, stage.precision, stage.overrides)
            == (shape.kind, shape.tp, precision, ())
            for stage in topology.stages
        )
    )


def _bind(shape: Shape, problem: Problem) -> Topology | str:
    """The shape on devices, or why it cannot be.

    Devices of today's topology come first, since what they hold need not move; if old and new do not fit
    beside each other there, free devices are tried.
    """
    if obstacle := _limited(shape, shape.tp * shape.pp, problem):
        return obstacle
    for reuse in (True, False):
        cluster = _ordered(problem.cluster, problem.now, reuse=reuse)
        try:
            topology = uniform(
                cluster, shape.kind, shape.tp, shape.pp, problem.model.num_layers, shape.precision
            )
            topology.check(problem.cluster, problem.model)
        except TopologyError as error:
            return str(error)
        obstacle = _memory_obstacle(topology, problem)
        if not obstacle:
            return topology
    return obstacle


def _limited(shape: Shape, devices: int, problem: Problem) -> str:
    """Which limit or engine capability the shape breaks, or nothing."""
    limits, engine = problem.limits, problem.capabilities
    if limits.max_gpus is not None and devices > limits.max_gpus:
        return f"needs {devices} devices; the limit is {limits.max_gpus}"
    if engine and shape.pp > engine.max_pp:
        return f"the engine runs PP up to {engine.max_pp}"
    allowed: list[tuple[str, Collection[object] | None, object]] = [
        ("the limits allow TP", limits.allowed_tp, shape.tp),
        ("the limits allow PP", limits.allowed_pp, shape.pp),
        ("the limits allow precision", limits.allowed_precisions, shape.precision),
        ("the engine runs TP", engine.tp_degrees if engine else None, shape.tp),
        ("the engine runs precision", engine.precisions if engine else None, shape.precision),
    ]
    for words, values, value in allowed:
        if values is not None and value not in values:
            return f"{words} {_listed(values)}"
    return ""


def obstacle(topology: Topology, problem: Problem) -> str:
    """Why a topology of any stages may not run, or nothing: limits, engine, heads, memory."""
    try:
        topology.check(problem.cluster, problem.model)
    except TopologyError as error:
        return str(error)
    names = [stage.precision.weights for stage in topology.stages]
    shapes = [
        Shape(stage.kind, stage.tp_size, topology.pp_size, name)
        for stage, name in zip(topology.stages, names, strict=True)
    ]
    reasons = filter(None, (_limited(shape, len(topology.devices), problem) for shape in shapes))
    return next(reasons, "") or _memory_obstacle(topology, problem)


def _today_barred(now: Topology, problem: Problem, precisions: Collection[str]) -> str:
    """Why what runs now may not go on, or nothing."""
    formats = weights_of(now)
    if not formats <= set(precisions):
        return f"it runs in {_listed(sorted(formats))}; allowed is {_listed(precisions)}"
    shapes = [
        Shape(stage.kind, stage.tp_size, now.pp_size, name)
        for stage in now.stages
        for name in sorted(formats)
    ]
    reasons = filter(None, (_limited(shape, len(now.devices), problem) for shape in shapes))
    return next(reasons, "") or _memory_obstacle(now, problem)


def weights_of(topology: Topology) -> set[str]:
    """The weight formats a topology holds."""
    return {stage.precision_of(layer).weights for stage in topology.stages for layer in stage.layers}


def _memory_obstacle(topology: Topology, problem: Problem) -> str:
    """Why the workload does not fit, alone or beside what runs now; nothing if it does."""
    needed = blocks_needed(problem)
    have = blocks(topology, problem.model, problem.cluster, BLOCK_TOKENS)
    if not have:
        device, size = max(weight_bytes(topology, problem.model).items(), key=lambda item: item[1])
        memory = problem.cluster.gpu(device).memory_bytes
        return f"{_gb(size)} of weights leave no room for KV in the {_gb(memory)} of device {device}"
    if have < needed:
        held = have // (needed // max(1, problem.workload.concurrency))
        return f"holds the KV of {held} of the {problem.workload.concurrency} requests in flight"
    if problem.now is None or topology == problem.now:
        return ""
    for device, size in peak_bytes(problem.now, topology, problem.model, needed, BLOCK_TOKENS).items():
        usable = problem.cluster.gpu(device).memory_bytes * (1 - HEADROOM)
        if size > usable:
            return f"does not fit beside what runs now: {_gb(size)} on device {device}, {_gb(usable)} usable"
    return ""


def blocks_needed(problem: Problem) -> int:
    """KV blocks for every request in flight at its full length."""
    workload = problem.workload
    return max(1, workload.concurrency) * math.ceil(
        (workload.input_tokens + workload.output_tokens) / BLOCK_TOKENS
    )


def _ordered(cluster: Cluster, now: Topology | None, *, reuse: bool) -> Cluster:
    """The inventory with today's devices first, or last."""
    if now is None:
        return cluster
    today = frozenset(now.devices)
    nodes = [
        replace(node, gpus=tuple(sorted(node.gpus, key=lambda gpu: (gpu.index in today) != reuse)))
        for node in cluster.nodes
    ]
    nodes.sort(key=lambda node: any(gpu.index in today for gpu in node.gpus) != reuse)
    return replace(cluster, nodes=tuple(nodes))


def _listed(items: Collection[object]) -> str:
    return ", ".join(map(str, items)) or "none"


def _gb(size_bytes: float) -> str:
    return f"{size_bytes / 1e9:.3g} GB"
