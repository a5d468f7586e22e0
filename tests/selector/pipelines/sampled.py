"""Random deployments, each with a topology that may be built there and what the simulation says of it."""

import math
from dataclasses import dataclass, replace
from random import Random

from intent.models import Objective
from runtime.capabilities import Limits
from runtime.models import Cluster, Gpu, LayerRange, Link, Node, Precision, Stage, Topology
from selector import profiles
from selector.finder import Finder
from selector.models import Candidate, Profile, SearchInput, Spread, Workload, shape
from selector.performance.judge import sustained_rps
from selector.pipelines.optimum import Threshold
from selector.prediction import candidate, server_of, usual_batching

GB = 10**9
PROFILES: dict[str, Profile] = {kind: profiles.load(kind) for kind in ("A100", "L40S", "H100")}
MEMORY = {"A100": 80, "L40S": 48, "H100": 80}
PRICES = {"A100": 2.2, "L40S": 1.1, "H100": 4.0}
MODELS = ("llama-3-8b", "qwen2.5-32b", "llama-3-70b", "mixtral-8x7b", "qwen3-30b-a3b")
STATS = ("mean", "p50", "p90", "p95", "p99")


@dataclass(frozen=True)
class Sampled:
    """A deployment, and what one topology of it does."""

    finder: Finder
    topology: Topology
    found: Candidate

    @property
    def sustained_rps(self) -> float:
        """With every place taken."""
        return self.found.prediction.throughput_tok_s / self.finder.problem.workload.output_tokens

    @property
    def sustains(self) -> Objective:
        """That as a goal."""
        return Objective("throughput_req", ">=", "x", value=self.sustained_rps, unit="requests/s")

    def reading(self, metric: str, stat: str) -> float:
        """A latency of it."""
        latencies = {"ttft": self.found.prediction.ttft_s, "tpot": self.found.prediction.tpot_s}
        return (latencies | {"e2e": self.found.prediction.e2e_s})[metric][stat]

    def held(self, metric: str, stat: str) -> Threshold:
        """The tightest bound on a latency that it holds."""
        return Threshold(metric, self.reading(metric, stat), stat)

    def goal(self, metric: str, stat: str) -> Objective:
        """The same as a goal."""
        return Objective(metric, "<=", "x", stat=stat, value=self.reading(metric, stat), unit="s")


def sampled(seed: int) -> Sampled | None:
    """One of them; None where what was drawn does not fit, is longer than the context, or serves nothing."""
    draw = Random(seed)
    cluster = _cluster(draw)
    model = shape(draw.choice(MODELS))
    formats = draw.choice([("bf16",), ("bf16",), ("bf16", "fp8"), ("fp8",), ("bf16", "int8")])
    topology = _topology(draw, cluster, model.num_layers, model.num_kv_heads, formats)
    if topology is None:
        return None
    limits = Limits(
        max_sequences=draw.choice([None, 16, 64, 256]), max_step_tokens=draw.choice([None, 512, 2048, 8192])
    )
    spreads = [Spread(draw.choice([1.0, draw.uniform(1.1, 3.87)])) for _ in range(2)]
    load = Workload(
        1.0,
        draw.choice([100, 800, 2500, 6000]),
        draw.choice([20, 80, 250, 1000]),
        draw.choice([1, 1, 8]),
        *spreads,
        burstiness=draw.choice([1.0, 1.0, 0.5, 2.0]),
        prefix_hit=draw.choice([0.0, 0.0, 0.3, 0.7]),
    )
    longest = load.input_tokens * spreads[0].p95_by_mean + load.output_tokens * spreads[1].p95_by_mean
    if longest > model.max_position_embeddings:
        return None
    problem = SearchInput(cluster, model, load, None, limits)
    server = server_of(topology, model, cluster, PROFILES, usual_batching(topology, problem))
    most = sustained_rps(server, load, model.max_position_embeddings)
    rate = most * draw.choice([0.02, 0.3, 0.6, 0.8, 0.95, 0.99])
    problem = replace(problem, workload=replace(load, rate_rps=rate))
    found = candidate(topology, problem, PROFILES)
    steady = found and math.isfinite(found.prediction.ttft_s["mean"])
    return Sampled(Finder(problem, PROFILES, formats, None), topology, found) if found and steady else None


def _cluster(draw: Random) -> Cluster:
    nodes = list[Node]()
    number = 0
    for place in range(draw.randint(1, 3)):
        kind = draw.choice(sorted(MEMORY))
        gpus = tuple(
            Gpu(number + one, kind, MEMORY[kind] * GB, PRICES[kind]) for one in range(draw.choice([1, 2, 3, 4, 8]))
        )
        number += len(gpus)
        nodes.append(Node(f"n{place}", gpus, Link("link", draw.choice([25e9, 300e9]), 1e-5)))
    return Cluster(tuple(nodes), Link("network", draw.choice([1.25e9, 12.5e9, 50e9]), 2.5e-5))


def _topology(draw: Random, cluster: Cluster, layers: int, heads: int, formats: tuple[str, ...]) -> Topology | None:
    """One to four stages on what is free, with layers in proportion to what their devices remember."""
    free = {node.name: [gpu.index for gpu in node.gpus] for node in cluster.nodes}
    taken = list[tuple[str, tuple[int, ...]]]()
    for _ in range(draw.choice([1, 1, 2, 2, 3, 4])):
        node = draw.choice(list(cluster.nodes))
        sizes = [tp for tp in (1, 2, 4, 8) if tp <= len(free[node.name]) and heads % tp == 0]
        if sizes:
            tp = draw.choice(sizes)
            taken.append((node.gpus[0].kind, tuple(free[node.name][:tp])))
            del free[node.name][:tp]
    memory = [len(devices) * MEMORY[kind] * draw.uniform(0.7, 1.3) for kind, devices in taken]
    if not taken or len(taken) > layers:
        return None
    ends = [round(layers * sum(memory[: place + 1]) / sum(memory)) for place in range(len(taken))]
    stages = [
        Stage(kind, devices, LayerRange(start, end), Precision.named(draw.choice(formats), kind))
        for (kind, devices), start, end in zip(taken, [0, *ends], ends, strict=False)
        if end > start
    ]
    supported = all(stage.precision.weights in PROFILES[stage.kind].precisions for stage in stages)
    return Topology(tuple(stages)) if supported else None
