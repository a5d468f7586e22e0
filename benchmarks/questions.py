"""What the search is asked: clusters of A100 and L40S, and a list of goals and workloads that is the same for each of them."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from intent.models import Goal, Metric, Objective, Op, PrecisionRule, Stat
from runtime.capabilities import Capabilities, Limits
from runtime.errors import TopologyError
from runtime.models import Cluster, Gpu, Link, Node, Topology
from runtime.notation import parse_topology
from selector import profiles
from selector.models import SearchInput, Workload, shape

KINDS = {
    "A100": (80 * 10**9, 2.2, Link("nvlink", 300e9, 5e-6)),
    "L40S": (48 * 10**9, 1.1, Link("pcie", 25e9, 10e-6)),
}
"""Memory, USD per hour and link, as in ``examples/a100-l40s.yaml``."""
NETWORK = Link("network", 12.5e9, 25e-6)
NODE_SIZE = 8
MODEL = shape("llama-3-70b")
PROFILES = {kind: profiles.load(kind) for kind in KINDS}
PRECISIONS = tuple(dict.fromkeys(name for profile in PROFILES.values() for name in profile.precisions))

SEED = 20_260_101
DRAWS = 5
"""Questions of each form."""

Form = tuple[tuple[Metric, Op, Stat | None], ...]

FORMS: tuple[Form, ...] = (
    (("cost", "minimize", None),),
    (("throughput_tok", "maximize", None),),
    (("ttft", "minimize", "p99"),),
    (("ttft", "<=", "p95"),),
    (("ttft", "<=", "p99"), ("cost", "minimize", None)),
    (("tpot", "<=", "p95"), ("cost", "minimize", None)),
    (("tpot", "<=", "p99"), ("throughput_tok", "maximize", None)),
    (("ttft", "<=", "p99"), ("throughput_tok", "maximize", None)),
    (("ttft", "<=", "p99"), ("tpot", "<=", "p99"), ("cost", "minimize", None)),
    (("ttft", "<=", "p95"), ("cost", "<=", None), ("tpot", "minimize", "mean")),
    (("throughput_req", ">=", None), ("gpu_count", "minimize", None)),
    (("e2e", "<=", "p95"), ("cost", "minimize", None)),
)
RANGES = {
    "ttft": (0.5, 10.0),
    "tpot": (0.02, 0.15),
    "e2e": (10.0, 90.0),
    "cost": (3.0, 20.0),
    "throughput_req": (0.2, 4.0),
}
"""Between which a bound is drawn, by the logarithm."""
UNITS = {
    "ttft": "s",
    "tpot": "s",
    "e2e": "s",
    "cost": "USD/h",
    "throughput_tok": "tokens/s",
    "throughput_req": "requests/s",
    "gpu_count": "gpus",
}
HOPELESS: tuple[tuple[Metric, float], ...] = (
    ("ttft", 0.001),
    ("tpot", 0.0005),
    ("cost", 0.5),
    ("throughput_req", 1e4),
)
"""Bounds that nothing holds, one question each."""

QUALITY_LOSS = {"fp8": 0.002, "int8": 0.004, "int4": 0.02}
QUALITY_BOUNDS = (0.001, 0.02)
"""Between which a bound on the mean loss is drawn, by the logarithm."""

WORKLOADS = tuple(
    Workload(rate_rps, *lengths, concurrency=max(4, round(8 * rate_rps)))
    for rate_rps in (0.1, 0.5, 1.0, 4.0)
    for lengths in ((128, 128), (800, 250), (256, 1000), (2000, 500), (6000, 300))
)
"""By tokens of prompt and answer."""
RUNNING = (None, None, "L40Sx4:0-80@bf16", "A100x2:0-80@int8", "A100x2:0-52@bf16 > L40Sx2:52-80@bf16")


ENGINE = Capabilities((1, 2, 4, 8), 8, PRECISIONS, tp_per_stage=True, replicated_kv_heads=False)
"""Runs every stage side by side with every other, as the engines here do."""


@dataclass(frozen=True, slots=True)
class Question:
    """What ``selector.search.select`` is asked."""

    goals: tuple[Goal, ...]
    problem: SearchInput


def cluster_of(a100: int, l40s: int) -> Cluster:
    """So many devices of each kind, in nodes of up to ``NODE_SIZE``."""
    nodes: list[Node] = []
    start = 0
    for kind, count in {"A100": a100, "L40S": l40s}.items():
        memory_bytes, usd_per_hour, link = KINDS[kind]
        for first in range(0, count, NODE_SIZE):
            size = min(NODE_SIZE, count - first)
            gpus = tuple(Gpu(start + n, kind, memory_bytes, usd_per_hour) for n in range(size))
            nodes.append(Node(f"{kind}-{first // NODE_SIZE}", gpus, link))
            start += size
    return Cluster(tuple(nodes), NETWORK)


def questions(a100: int, l40s: int) -> list[Question]:
    """The list for a cluster: the same draws for every cluster; every precision is allowed in each."""
    draw, cluster = random.Random(SEED), cluster_of(a100, l40s)
    every = tuple(PrecisionRule("allow", name, "") for name in PRECISIONS)  # type: ignore[arg-type]  # the profiles name the same
    return [
        Question((*every, *goals), _problem(cluster, workload, draw.choice(RUNNING)))
        for goals, workload in _asked(draw)
    ]


def quality_questions(a100: int, l40s: int) -> list[Question]:
    """The same, where a bound on quality loss says which formats the layers may have, in place of leave for all of them."""
    draw, (low, high) = random.Random(SEED), QUALITY_BOUNDS
    return [
        replace(
            question,
            goals=(*question.goals[len(PRECISIONS) :], _lost(low * (high / low) ** draw.random())),
            problem=replace(question.problem, limits=Limits(quality_loss=QUALITY_LOSS)),
        )
        for question in questions(a100, l40s)
    ]


def _lost(most: float) -> Objective:
    return Objective("quality_loss", "<=", "", value=most, unit="ratio")


def _problem(cluster: Cluster, workload: Workload, running: str | None) -> SearchInput:
    return SearchInput(cluster, MODEL, workload, _bound(running, cluster), capabilities=ENGINE)


def _asked(draw: random.Random) -> Iterator[tuple[tuple[Goal, ...], Workload]]:
    """Goals and workloads; those of one form all have another workload."""
    for form in FORMS:
        for workload in draw.sample(WORKLOADS, DRAWS):
            yield tuple(_goal(draw, *part) for part in form), workload
    for metric, value in HOPELESS:
        op: Op = ">=" if metric == "throughput_req" else "<="
        yield (Objective(metric, op, "", "p99", value, UNITS[metric]),), draw.choice(WORKLOADS)


def _goal(draw: random.Random, metric: Metric, op: Op, stat: Stat | None) -> Objective:
    if op in {"minimize", "maximize"}:
        return Objective(metric, op, "", stat, unit=UNITS[metric])
    low, high = RANGES[metric]
    return Objective(metric, op, "", stat, low * (high / low) ** draw.random(), UNITS[metric])


def _bound(text: str | None, cluster: Cluster) -> Topology | None:
    """What runs; nothing on a cluster that is too small for it."""
    try:
        return parse_topology(text, cluster, MODEL.num_layers, "bf16") if text else None
    except TopologyError:
        return None
