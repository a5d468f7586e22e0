"""Random deployments with something that is asked of each: clusters of A100 and L40S, models by name, loads, wishes."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from benchmarks.questions import KINDS, NETWORK, PROFILES, QUALITY_LOSS
from intent.models import Config, Goal, Objective, Placement, PrecisionRule, Priority, ReconfigRule, Relative
from runtime.capabilities import Batching, Capabilities, Limits
from runtime.models import BYTES_PER_VALUE, FULL, Cluster, Gpu, ModelSpec, Node, Topology, uniform
from runtime.torch_engine.models import EngineSettings
from runtime.torch_engine.models import capabilities as of_torch
from runtime.vllm_engine.launch import capabilities as of_vllm
from runtime.vllm_engine.models import VllmSettings
from selector.models import ALIKE, Candidate, SearchInput, Spread, Workload, shape
from selector.prediction import candidate
from selector.space import blocker
from service.deployment.file import Deployment, load
from service.deployment.models import ServedModel

EXAMPLE = Path(__file__).parents[1] / "examples" / "a100-l40s.yaml"
MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-3-70b", "mixtral-8x7b")
LENGTHS = {"chat": (800, 250), "RAG": (4000, 300), "code": (2500, 80), "long answers": (200, 1000), "short": (128, 128)}
SPREADS = (None, None, ALIKE, Spread(1.8), Spread(2.05, ((0.2, 0.5), (1.5, 0.4), (3.0, 0.1))))
"""None: as public chats."""
SMALL = 4
"""Devices of a kind, up to which everything is tried."""
BELOW = -2.0
"""Decadic logarithm of the smallest load by what the inventory sustains; the largest is twice that."""
STATS = ("mean", "p50", "p95", "p99")
UNFIT = 0.05
"""Share of inventories that are kept though the model fits no node of it."""
ROOM = 1.3
"""Memory by weights that is room enough."""
PRECISIONS = ("bf16", "bf16", "bf16", "fp8", "int4")


@dataclass(frozen=True, slots=True)
class Case:
    """A deployment, what runs there, and what is asked."""

    number: int
    seed: int
    problem: SearchInput
    goals: tuple[Goal, ...]
    model: ServedModel
    deployment: Deployment
    load_by_inventory: float
    """Its rate by what the whole inventory sustains."""

    @property
    def is_small(self) -> bool:
        """Whether everything can be tried."""
        counts = [sum(gpu.kind == kind for gpu in self.problem.cluster.gpus) for kind in KINDS]
        return max(counts) <= SMALL

    def __str__(self) -> str:
        problem = self.problem
        nodes = "; ".join(f"{node.gpus[0].kind} x{len(node.gpus)}" for node in problem.cluster.nodes)
        network = "" if problem.cluster.network else ", no network"
        load = problem.workload
        return (
            f"{problem.model.name} on {nodes}{network}, {load.rate_rps:.3g} requests/s of {load.input_tokens}/"
            f"{load.output_tokens}, runs {problem.now}: {' & '.join(map(words, self.goals))}"
        )


def words(goal: Goal) -> str:
    """A goal for the people who read a report."""
    from selector.explain import goal_words

    return goal_words(goal)


def cases(count: int, seed: int) -> Iterator[Case]:
    """So many, each with its own draws: one alone can be made again."""
    return (case(number, seed) for number in range(count))


def case(number: int, seed: int, sizes: tuple[int, int] | None = None) -> Case:
    """The deployment of a number; of so many A100 and L40S where that is said."""
    draw = random.Random(f"{seed}-{number}")
    cluster, spec, precision = next(offer for offer in _offers(draw, sizes) if _fits(*offer) or draw.random() < UNFIT)
    engine = _engine(draw, cluster, spec, precision)
    limits = _limits(draw)
    now = _running(draw, cluster, spec, precision, engine, limits)
    if now and engine:
        engine = replace(engine, running=_filled(draw, engine, limits))
    most_rps, alone = _sustained(cluster, spec, precision, draw)
    by_inventory = 10 ** draw.uniform(BELOW, math.log10(2))
    load = replace(alone, rate_rps=float(f"{max(1e-3, most_rps * by_inventory):.3g}"))
    base = _example()
    model = replace(
        base.models[0], spec=spec, cluster=cluster, workload={"always": load}, precision=precision, start=now,
        engine=replace(base.models[0].engine, named="vllm" if engine and not engine.tp_per_stage else "torch"),
    )  # fmt: skip
    problem = replace(model.problem("always", limits, now, engine), precision=precision)
    deployment = replace(base, models=(model,), limits=limits, cluster=cluster)
    return Case(number, seed, problem, _goals(draw, problem), model, deployment, by_inventory)


@cache
def _example() -> Deployment:
    return load(EXAMPLE)


def _offers(draw: random.Random, sizes: tuple[int, int] | None) -> Iterator[tuple[Cluster, ModelSpec, str]]:
    """Inventories and models without end."""
    while True:
        yield _cluster(draw, sizes or _sizes(draw)), shape(draw.choice(MODELS)), draw.choice(PRECISIONS)


def _fits(cluster: Cluster, spec: ModelSpec, precision: str) -> bool:
    """Whether the weights leave room on some node."""
    weights = spec.num_layers * spec.layer_parameters * BYTES_PER_VALUE[precision]
    return any(sum(gpu.memory_bytes for gpu in node.gpus) > ROOM * weights for node in cluster.nodes)


def _sizes(draw: random.Random) -> tuple[int, int]:
    most = SMALL if draw.random() < 0.75 else 8
    a100 = draw.choice([0, *range(1, most + 1)])
    return a100, draw.choice([0, *range(1, most + 1)] if a100 else range(1, most + 1))


def _cluster(draw: random.Random, sizes: tuple[int, int]) -> Cluster:
    """Nodes of one kind each, three at most while they are small; prices and network are there or not."""
    nodes: list[Node] = []
    start = 0
    has_prices = draw.random() < 0.85
    for (kind, (memory_bytes, usd, link)), count in zip(KINDS.items(), sizes, strict=True):
        parts = [8] * (count // 8) if count > 8 else _parts(draw, count)
        for number, size in enumerate(parts):
            price = usd if has_prices else 0.0
            gpus = tuple(Gpu(start + place, kind, memory_bytes, price) for place in range(size))
            nodes.append(Node(f"{kind.lower()}-{number}", gpus, link))
            start += size
    return Cluster(tuple(nodes), NETWORK if draw.random() < 0.8 else None)


def _parts(draw: random.Random, count: int) -> list[int]:
    """One node, or two."""
    if count < 2 or draw.random() < 0.7:
        return [count] if count else []
    first = draw.randint(1, count - 1)
    return [first, count - first]


def _engine(draw: random.Random, cluster: Cluster, spec: ModelSpec, precision: str) -> Capabilities | None:
    """None, the built-in one, or vLLM; with all the KV cache that fits, or a said one."""
    sort = draw.random()
    batching = Batching(draw.choice((64, 128, 256)), draw.choice((512, 2048, 8192)))
    if sort < 0.45:
        return None
    if sort < 0.7:
        settings = EngineSettings(max_running=64, max_batch_tokens=batching.max_step_tokens)
        return of_torch(spec, precision if precision in FULL else "bf16", cluster.kinds, settings)
    kv_bytes = draw.choice((0, 0, 4, 12)) * 10**9
    options = {"max_num_seqs": batching.max_sequences, "max_num_batched_tokens": batching.max_step_tokens}
    return of_vllm(cluster, spec, VllmSettings(kv_cache_bytes=kv_bytes, options=options))


def _limits(draw: random.Random) -> Limits:
    return Limits(
        max_gpus=draw.choice((None,) * 9 + (3,)),
        allowed_tp=draw.choice((None,) * 9 + ((1, 2),)),
        quality_loss=draw.choice((QUALITY_LOSS, QUALITY_LOSS, {})),
        max_sequences=draw.choice((None, 64, 256)),
        max_step_tokens=draw.choice((None, 512, 2048)),
        headroom=draw.choice((1.0, 1.0, 1.0, 0.0)),
        usual_tpot_s=draw.choice((0.2, 0.2, None)),
    )


def _running(
    draw: random.Random, cluster: Cluster, spec: ModelSpec, precision: str, engine: Capabilities | None, limits: Limits
) -> Topology | None:
    """Nothing, or one of the topologies alike in every stage that fit."""
    if draw.random() < 0.4:
        return None
    load = Workload(0.01, 800, 250, 2)
    problem = SearchInput(cluster, spec, load, None, limits, engine)
    known = [one for one in _alike(cluster, spec, precision) if not blocker(one, problem, (precision,))]
    return draw.choice(known) if known else None


def _filled(draw: random.Random, engine: Capabilities, limits: Limits) -> Batching:
    """How what runs fills its steps: as far as it may, or by half."""
    by = draw.choice((1, 1, 2))
    most = engine.batching
    sequences = min(most.max_sequences, limits.max_sequences or most.max_sequences) // by
    tokens = min(most.max_step_tokens, limits.max_step_tokens or most.max_step_tokens) // by
    return Batching(min(sequences, tokens), tokens)


def _alike(cluster: Cluster, spec: ModelSpec, precision: str) -> list[Topology]:
    """Pipelines of up to four equal stages on the devices of one node."""
    parts = [Cluster((node,)) for node in cluster.nodes]
    return [
        uniform(part, part.kinds[0], tp, pp, spec.num_layers, precision)
        for part in parts
        for tp in (1, 2, 4, 8)
        for pp in range(1, min(4, len(part.gpus) // tp) + 1)
        if spec.num_layers % pp == 0
    ]


def _sustained(cluster: Cluster, spec: ModelSpec, precision: str, draw: random.Random) -> tuple[float, Workload]:
    """The most that a pipeline of one kind sustains, and a load of one request a second as drawn."""
    inputs, outputs = LENGTHS[draw.choice(tuple(LENGTHS))]
    load = Workload(1e-3, inputs, outputs, draw.choice((1, 4, 16)))
    for field in ("inputs", "outputs"):
        spread = draw.choice(SPREADS)
        load = load if spread is None else replace(load, **{field: spread})  # type: ignore[arg-type]
    load = replace(load, burstiness=draw.choice((1.0, 1.0, 0.5, 2.0)), prefix_hit=draw.choice((0.0, 0.0, 0.3, 0.7)))
    problem = SearchInput(cluster, spec, replace(load, concurrency=1), None)
    rates = [
        _rate(candidate(one, problem, PROFILES), outputs)
        for name in (precision, "fp8")
        for one in _alike(cluster, spec, name)
        if name in PROFILES[one.stages[0].kind].precisions and not blocker(one, problem, (name,))
    ]
    return max(rates, default=0.1), load


def _rate(found: Candidate | None, outputs: int) -> float:
    return found.prediction.throughput_tok_s / outputs if found else 0.0


# --- what is asked ---------------------------------------------------------------------------------------------------


def _goals(draw: random.Random, problem: SearchInput) -> tuple[Goal, ...]:
    """One to three wishes of different sorts, and sometimes a rule for formats or places."""
    number = draw.choice((1, 2, 2, 3))
    goals: list[Goal] = []
    for sort in draw.sample(SORTS, number):
        made = sort(draw, problem)
        if not any(_clash(made, other) for other in goals):
            goals.append(made)
    if draw.random() < 0.45:
        goals.append(_precision(draw))
    return tuple(goals)


def _clash(one: Goal, other: Goal) -> bool:
    """Whether the validator would not let both pass: two aims, or two about the same thing."""
    aims = [
        goal for goal in (one, other) if getattr(goal, "op", "") in {"minimize", "maximize"} or goal.type == "priority"
    ]
    return len(aims) == 2 or (one.type, getattr(one, "metric", "")) == (other.type, getattr(other, "metric", ""))


def _latency(draw: random.Random, problem: SearchInput) -> Goal:
    """Around what such a model takes on such devices."""
    metric = draw.choice(("ttft", "ttft", "tpot", "tpot", "e2e"))
    scale = math.sqrt(problem.model.layer_parameters * problem.model.num_layers / 8e9)
    load = problem.workload
    usual_s = {
        "ttft": 0.3 * scale * max(1.0, load.input_tokens / 1000),
        "tpot": 0.035 * scale,
        "e2e": 0.04 * scale * load.output_tokens + 0.3,
    }[metric]
    value_s = float(f"{usual_s * 10 ** draw.uniform(-0.6, 0.9):.3g}")
    is_soft = draw.random() < 0.1
    return Objective(metric, "<=", f"{metric} bound", draw.choice(STATS), value_s, "s", soft=is_soft)  # type: ignore[arg-type]


def _throughput(draw: random.Random, problem: SearchInput) -> Goal:
    rate_rps = problem.workload.rate_rps * 10 ** draw.uniform(-0.3, 0.5)
    if draw.random() < 0.5:
        return Objective("throughput_req", ">=", "requests", value=float(f"{rate_rps:.3g}"), unit="requests/s")
    tokens = float(f"{rate_rps * problem.workload.output_tokens:.3g}")
    return Objective("throughput_tok", ">=", "tokens", value=tokens, unit="tokens/s")


def _cost(draw: random.Random, problem: SearchInput) -> Goal:
    whole = sum(gpu.usd_per_hour for gpu in problem.cluster.gpus) or 5.0
    usd = whole * draw.uniform(0.15, 1.1)
    if draw.random() < 0.7:
        return Objective("cost", "<=", "cost", value=float(f"{usd:.3g}"), unit="USD/h")
    load = problem.workload
    per_mtok = usd * 1e6 / (3600 * load.rate_rps * load.output_tokens)
    return Objective("cost", "<=", "cost", value=float(f"{per_mtok:.3g}"), unit="USD/Mtok")


def _devices(draw: random.Random, problem: SearchInput) -> Goal:
    most = len(problem.cluster.gpus)
    return Objective("gpu_count", draw.choice(("<=", "<=", "==")), "devices", value=draw.randint(1, most), unit="gpus")


def _utilisation(draw: random.Random, _problem: SearchInput) -> Goal:
    op = draw.choice((">=", "<="))
    return Objective("gpu_util", op, "utilisation", value=draw.choice((0.3, 0.5, 0.7)), unit="ratio")  # type: ignore[arg-type]


def _quality(draw: random.Random, _problem: SearchInput) -> Goal:
    return Objective("quality_loss", "<=", "quality", value=draw.choice((0.0, 0.003, 0.01, 0.02)), unit="ratio")


def _config(draw: random.Random, _problem: SearchInput) -> Goal:
    key = draw.choice(("tp", "pp"))
    return Config(key, draw.choice(("==", "<=", ">=")), draw.choice((1, 2, 4)), f"{key} wish")  # type: ignore[arg-type]


def _aim(draw: random.Random, _problem: SearchInput) -> Goal:
    metric, op, stat, unit = draw.choice(AIMS)
    return Objective(metric, op, f"{op} {metric}", stat, unit=unit)  # type: ignore[arg-type]


AIMS = (
    ("cost", "minimize", None, "USD/h"),
    ("cost", "minimize", None, "USD/h"),
    ("gpu_count", "minimize", None, "gpus"),
    ("throughput_tok", "maximize", None, "tokens/s"),
    ("ttft", "minimize", "p95", "s"),
    ("tpot", "minimize", "mean", "s"),
    ("e2e", "minimize", "p99", "s"),
    ("gpu_util", "maximize", None, "ratio"),
)


def _priority(draw: random.Random, _problem: SearchInput) -> Goal:
    higher, lower = draw.choice(
        (("latency", "cost"), ("throughput", "cost"), ("cost", "latency"), ("throughput", None))
    )
    return Priority(higher, "priority", lower)


def _relative(draw: random.Random, _problem: SearchInput) -> Goal:
    metric, op, stat = draw.choice(
        (("cost", "<=", None), ("ttft", "<=", "p95"), ("tpot", "<=", "mean"), ("throughput_tok", ">=", None))
    )
    factor = draw.choice((0.5, 0.7, 0.8)) if op == "<=" else draw.choice((1.2, 1.5))
    return Relative(metric, op, f"{metric} beside today", stat, factor)  # type: ignore[arg-type]


def _place(draw: random.Random, problem: SearchInput) -> Goal:
    names = [f"gpu_type:{kind}" for kind in problem.cluster.kinds]
    names += [f"node:{node.name}" for node in problem.cluster.nodes]
    rule = draw.choice(("require", "forbid", "prefer", "freeze"))
    return Placement(rule, draw.choice(names), f"{rule} a place")  # type: ignore[arg-type]


def _still(_draw: random.Random, _problem: SearchInput) -> Goal:
    return ReconfigRule("forbid", "no reconfiguration")


def _precision(draw: random.Random) -> Goal:
    rule, value = draw.choice(
        (("allow", "fp8"), ("allow", "fp8"), ("allow", "int4"), ("forbid", "int4"), ("require", "fp8"), ("min", "int8"))
    )
    return PrecisionRule(rule, value, f"{rule} {value}")  # type: ignore[arg-type]


SORTS = (
    *(_latency,) * 6, _throughput, _throughput, _cost, _cost, _devices, _utilisation, _quality, _config,
    *(_aim,) * 4, _priority, _priority, _relative, _place, _still,
)  # fmt: skip


def structural(goals: Sequence[Goal]) -> list[Goal]:
    """What narrows where is searched, whatever else is asked."""
    return [
        goal
        for goal in goals
        if goal.type in {"precision", "placement", "reconfig", "exception"}
        or (isinstance(goal, Objective) and goal.metric == "quality_loss")
    ]
