"""Pipelines of mixed device kinds: for each choice of devices the split that ``balance`` proves fastest. Pure."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from runtime.errors import TopologyError
from runtime.footprint import HEADROOM, kv_bytes_per_token
from runtime.models import BYTES_PER_VALUE, LayerRange, Precision, Stage, Topology
from selector.balance import Split, StageKind, fastest
from selector.models import Problem, Profile
from selector.perf import Step, stage_costs
from selector.space import obstacle

MOST_STAGES = 8
DEGREES = (1, 2, 4, 8)
"""TP of a stage."""


def mixed(
    problem: Problem, profiles: Mapping[str, Profile], precisions: Collection[str]
) -> Iterator[tuple[Topology, str]]:
    """Topologies over two device kinds or more, each with the reason why it may not run, or nothing.

    None where the engine cannot run stages of different TP, or where the kinds stand on machines without a network between them.
    """
    kinds = [kind for kind in problem.cluster.kinds if kind in profiles]
    if len(kinds) < 2 or problem.cluster.network is None or not _may_differ(problem):
        return
    for stages in range(2, _most_stages(problem) + 1):
        workshop = _Workshop(problem, profiles, _step(problem, stages))
        ways = [way for kind in kinds for way in workshop.ways(kind, precisions)]
        for devices in _budgets(kinds, problem):
            split = fastest(ways, devices, problem.model.num_layers, stages)
            if (
                split is None
                or len({kind.kind for kind, _ in split.stages}) < 2
                or len(split.stages) < stages
            ):
                continue  # one kind alone and fewer stages are looked at elsewhere
            topology = _bound(split, problem)
            if topology is not None:
                yield topology, obstacle(topology, problem)


def _may_differ(problem: Problem) -> bool:
    return problem.capabilities is None or problem.capabilities.tp_per_stage


def _most_stages(problem: Problem) -> int:
    engine = problem.capabilities.max_pp if problem.capabilities else MOST_STAGES
    return min(MOST_STAGES, engine, problem.model.num_layers)


def _budgets(kinds: list[str], problem: Problem) -> Iterator[dict[str, int]]:
    """How many devices of each kind may be used: powers of two, and all there are."""
    counts = {kind: sum(gpu.kind == kind for gpu in problem.cluster.gpus) for kind in kinds}
    choices = [sorted({*(2**n for n in range(10) if 2**n < count), count}) for count in counts.values()]
    for chosen in product(*choices):
        if problem.limits.max_gpus is None or sum(chosen) <= problem.limits.max_gpus:
            yield dict(zip(counts, chosen, strict=True))


@dataclass(frozen=True, slots=True)
class _Workshop:
    """What stages are built for: one micro-batch of the workload, over the network."""

    problem: Problem
    profiles: Mapping[str, Profile]
    step: Step

    def ways(self, kind: str, precisions: Collection[str]) -> Iterator[StageKind]:
        """Every way to build a stage of a device kind that holds a layer at least."""
        model = self.problem.model
        most = max(sum(gpu.kind == kind for gpu in node.gpus) for node in self.problem.cluster.nodes)
        for tp, name in product(DEGREES, precisions):
            divides = not (model.num_kv_heads % tp or model.intermediate_size % tp)
            capacity = _capacity(kind, tp, name, self.problem)
            if tp <= most and divides and capacity and name in self.profiles[kind].precisions:
                (one, head_s), (two, _) = (self._cost(kind, tp, name, layers) for layers in (1, 2))
                yield StageKind(kind, tp, name, max(0.0, 2 * one - two), two - one, head_s, capacity)

    def _cost(self, kind: str, tp: int, precision: str, layers: int) -> tuple[float, float]:
        """Seconds of an inner stage of so many layers, and what the head would add where it is the last."""
        cluster, link = self.problem.cluster, self.problem.cluster.network
        gpus = [gpu.index for gpu in cluster.gpus if gpu.kind == kind]
        stage = Stage(kind, tuple(gpus[:tp]), LayerRange(0, layers), Precision.named(precision, kind))
        (cost,) = stage_costs(Topology((stage,)), self.problem.model, cluster, self.profiles)
        hop_s = (
            link.latency_s + self.step.tokens * cost.hidden_bytes / link.bandwidth_bytes_s if link else 0.0
        )
        head_s = cost.head_s + cost.row_s * self.step.rows
        return cost.seconds(self.step) - head_s + hop_s, max(0.0, head_s - hop_s)


def _step(problem: Problem, stages: int) -> Step:
    """The mean step of a micro-batch: its decodes, and the prompts that arrive meanwhile."""
    workload = problem.workload
    batch = math.ceil(max(1, workload.concurrency) / stages)
    outputs = max(1, workload.output_tokens)
    prompts = batch * workload.input_tokens / outputs
    decode = Step.of(batch, 1, workload.input_tokens + outputs // 2)
    return decode + Step(prompts, prompts * workload.input_tokens / 2, prompts, batch / outputs)


def _capacity(kind: str, tp: int, name: str, problem: Problem) -> int:
    """Layers whose weights and KV of every request in flight a stage holds; embedding and head are taken to be there."""
    model, workload = problem.model, problem.workload
    precision = Precision.named(name, kind)
    memory = min(gpu.memory_bytes for gpu in problem.cluster.gpus if gpu.kind == kind) * (1 - HEADROOM)
    wide = model.embedding_parameters * max(2.0, BYTES_PER_VALUE[precision.activations])
    tokens = max(1, workload.concurrency) * (workload.input_tokens + workload.output_tokens)
    weights = model.layer_parameters * BYTES_PER_VALUE[precision.weights] / tp
    kv = tokens * kv_bytes_per_token(model, precision.kv) / model.num_layers / tp
    return max(0, int((memory - wide) // (weights + kv)))


def _bound(split: Split, problem: Problem) -> Topology | None:
    """The split on devices, in inventory order."""
    used: set[int] = set()
    stages, start = [], 0
    for kind, layers in split.stages:
        try:
            devices = problem.cluster.free_devices(kind.kind, kind.tp, used)
        except TopologyError:
            return None  # the devices are there, but not together on one machine
        used |= set(devices)
        precision = Precision.named(kind.precision, kind.kind)
        stages.append(Stage(kind.kind, devices, LayerRange(start, start + layers), precision))
        start += layers
    return Topology(tuple(stages))
