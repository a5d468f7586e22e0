"""What plans are worth: ``python -m benchmarks.plans [--count N] [--seed S] [--json FILE]``.

Random deployments and intents. How near predictions come to a simulation of more and other requests, and whether margins have
its sign; whether what holds stays; whether what has to move costs more than the cheapest that trying everything finds, and the
nearest is as near.
"""

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from benchmarks.questions import ENGINE, NETWORK, PRECISIONS, PROFILES, RANGES, UNITS, cluster_of
from intent.models import Goal, Objective, PrecisionRule
from runtime.models import Cluster, Gpu, LayerRange, Link, ModelSpec, Node, Precision, Stage, Topology
from selector.models import Plan, PlanRef, SearchInput, Workload, shape
from selector.objectives import sort_goals
from selector.performance.judge import Reading, arrivals, reading_of
from selector.performance.simulator import simulate
from selector.prediction import candidate, server_of
from selector.ranking import Ranking
from selector.search import select

Document = dict[str, Any]

COUNT, SEED = 300, 20_261_122
TICKET = PlanRef("benchmark", "benchmark", 1, "always")
MODELS = tuple(map(shape, ("llama-3-70b", "llama-2-13b", "llama-3-8b")))
LENGTHS = ((128, 128), (800, 250), (256, 1000), (2000, 500), (6000, 300))
BOUNDS = (
    ("ttft", "p99"), ("ttft", "p95"), ("ttft", "mean"), ("tpot", "mean"), ("tpot", "p99"), ("e2e", "p95"), ("cost", None),
)  # fmt: skip
LATENCIES = ("ttft", "tpot", "e2e")
SMALL = ModelSpec("small", "LlamaForCausalLM", 6, 8192, 28_672, 64, 8, 128, 128_256, 8192)
"""As many layers as can be split in every way, of the width of Llama-3-70B."""
MORE_REQUESTS = 12_000
"""Of the other simulation."""
NEAR = math.log(1.05)
"""By what sum of relative misses a nearest may be farther off than the nearest of all."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked for."""

    goals: tuple[Goal, ...]
    problem: SearchInput


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask all three, print a table and write the figures."""
    options = _parser().parse_args(arguments)
    parts = {"near": near, "stays": stays, "moves": moves}
    rows = {name: part(options.count, random.Random(options.seed)) for name, part in parts.items()}
    if options.json:
        document = {
            "benchmark": "plans",
            **provenance(),
            "parameters": {"count": options.count, "seed": options.seed},
            "rows": rows,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(name)
        for key, value in row.items():
            print(f"  {key:<44} {value:.3g}" if isinstance(value, float) else f"  {key:<44} {value}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plans", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="of deployments and intents")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write everything")
    return parser


def questions(draw: random.Random) -> Iterator[Question]:
    """Deployments and intents without end: 4 to 16 devices, three models, nothing running."""
    while True:
        cluster = cluster_of(draw.choice((2, 4, 8)), draw.choice((2, 4, 8)))
        model, lengths = draw.choice(MODELS), draw.choice(LENGTHS)
        rate_rps = 10 ** draw.uniform(-1, 0.9) * (1 if model.num_layers == 80 else 4)
        workload = Workload(rate_rps, *lengths, concurrency=max(2, round(8 * rate_rps)))
        goals = [_bound(draw, *one) for one in draw.sample(BOUNDS, draw.choice((1, 1, 2)))]
        if draw.random() < 0.5:
            goals.insert(0, PrecisionRule("allow", draw.choice(PRECISIONS), ""))  # type: ignore[arg-type]  # the profiles name the same
        yield Question(tuple(goals), SearchInput(cluster, model, workload, None, capabilities=ENGINE))


def _bound(draw: random.Random, metric: str, stat: str | None) -> Goal:
    low, high = RANGES[metric]
    value = low * (high / low) ** draw.random()
    return Objective(metric, "<=", "", stat, value, UNITS[metric])  # type: ignore[arg-type]  # of BOUNDS


def near(count: int, draw: random.Random) -> Document:
    """Plans beside a simulation of more and other requests."""
    seen, seconds = list[tuple[Question, Plan, Readings]](), list[float]()
    asked = 0
    for question in questions(draw):
        asked += 1
        start_s = time.perf_counter()
        plan = select(question.goals, question.problem, PROFILES, TICKET)
        seconds.append(time.perf_counter() - start_s)
        if isinstance(plan, Plan):
            seen.append((question, plan, served(plan, question.problem)))
        if len(seen) == count:
            break
    steady = [(plan, found) for _, plan, found in seen if math.isfinite(plan.prediction.ttft_s["p99"])]
    signs = [sign for one in seen for sign in _signs(*one)]
    return {
        "plans": len(seen),
        "infeasible": asked - len(seen),
        "mean TTFT and TPOT within 10 %": _share(_mean_is_near(*one) for one in steady),
        "P99 TTFT within 20 %": _share(_off(*one, "ttft", "p99") <= 0.2 for one in steady),
        "P99 TPOT within 20 %": _share(_off(*one, "tpot", "p99") <= 0.2 for one in steady),
        "without end": len(seen) - len(steady),
        "margins": len(signs),
        "margins with the sign of the simulation": _share(signs),
        "plan s, median": median(seconds),
        "plan s, p95": sorted(seconds)[int(0.95 * len(seconds))],
    }


Readings = Mapping[str, Reading]
"""Of each latency."""


def served(plan: Plan, problem: SearchInput) -> Readings:
    """What becomes of more and other requests; the first tenth meets an empty server."""
    batching = plan.batching or problem.batching
    server = server_of(plan.target, problem.model, problem.cluster, PROFILES, batching, problem.capabilities)
    load = arrivals(problem.workload, MORE_REQUESTS, problem.model.max_position_embeddings)
    found = simulate(server, load)
    counted = ~found.never & (np.arange(MORE_REQUESTS) > MORE_REQUESTS // 10)
    several = counted & (found.outputs > 1)
    return {
        "ttft": reading_of(found.ttft_s[counted]),
        "tpot": reading_of(found.tpot_s[several]),
        "e2e": reading_of(found.e2e_s[counted]),
    }


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / max(1, len(values))


def _off(plan: Plan, found: Readings, metric: str, stat: str) -> float:
    said: float = getattr(plan.prediction, f"{metric}_s")[stat]
    return abs(said / found[metric][stat] - 1)


def _mean_is_near(plan: Plan, found: Readings) -> bool:
    return all(_off(plan, found, metric, "mean") <= 0.1 for metric in ("ttft", "tpot"))


def _signs(question: Question, plan: Plan, found: Readings) -> Iterator[bool]:
    for goal in question.goals:
        if isinstance(goal, Objective) and goal.metric in LATENCIES and goal.value is not None:
            stat = goal.stat or "mean"
            said: float = getattr(plan.prediction, f"{goal.metric}_s")[stat]
            yield (said <= goal.value) == (found[goal.metric][stat] <= goal.value)


def stays(count: int, draw: random.Random) -> Document:
    """What was planned runs, and the same is asked again."""
    unchanged = asked = 0
    for question in questions(draw):
        plan = select(question.goals, question.problem, PROFILES, TICKET)
        if not isinstance(plan, Plan) or any(margin.margin < 0 for margin in plan.margins):
            continue
        running = replace(question.problem, now=plan.target, running=plan.batching)
        again = select(question.goals, running, PROFILES, TICKET)
        asked += 1
        unchanged += isinstance(again, Plan) and (again.target, again.batching) == (plan.target, plan.batching)
        if asked == count:
            break
    return {"goals hold already": asked, "nothing to change": unchanged}


def moves(count: int, draw: random.Random) -> Document:
    """What runs misses a goal, on clusters that are small enough to try everything."""
    asked = dearer = held = refused_wrongly = too_far = 0
    while asked < count:
        problem = _small_problem(draw)
        every = (candidate(one, problem, PROFILES) for one in topologies(problem.cluster))
        found = [one for one in every if one]
        for _ in range(30):
            goals = tuple(_bound(draw, *one) for one in draw.sample(BOUNDS[:-1], draw.choice((1, 2))))
            now = draw.choice(found)
            ranking = Ranking(sort_goals(goals, problem), problem)
            if not ranking.shortfall(now):
                continue
            asked += 1
            answer = select(goals, replace(problem, now=now.topology), PROFILES, TICKET)
            holding = [one.prediction.usd_per_hour for one in found if not ranking.shortfall(one)]
            cheapest = min(holding, default=math.inf)
            if isinstance(answer, Plan):
                held += 1
                dearer += answer.prediction.usd_per_hour > cheapest * (1 + 1e-9)
            else:
                refused_wrongly += cheapest < math.inf
                nearest = ranking.shortfall(answer.nearest) if answer.nearest else math.inf
                too_far += nearest > min(map(ranking.shortfall, found)) + NEAR
            if asked == count:
                break
    return {
        "must move": asked,
        "plans": held,
        "dearer than the cheapest of all": dearer,
        "refused though something holds": refused_wrongly,
        "nearest farther off than 5 %": too_far,
    }


def _small_problem(draw: random.Random) -> SearchInput:
    """Two devices of each kind, with memory for two models."""
    kinds = {"A100": (60, 2.2, Link("nvlink", 300e9, 5e-6)), "L40S": (48, 1.1, Link("pcie", 25e9, 10e-6))}
    nodes = [
        Node(kind, tuple(Gpu(2 * place + n, kind, size * 10**9, usd) for n in range(2)), link)
        for place, (kind, (size, usd, link)) in enumerate(kinds.items())
    ]
    rate_rps = 10 ** draw.uniform(-1, 1)
    workload = Workload(rate_rps, *draw.choice(LENGTHS[:4]), concurrency=2)
    return SearchInput(Cluster(tuple(nodes), NETWORK), SMALL, workload, None, capabilities=ENGINE)


def topologies(cluster: Cluster) -> Iterator[Topology]:
    """Every pipeline in bf16: stages of one or two devices in any order, with every split of the layers."""
    devices = {kind: [gpu.index for gpu in cluster.gpus if gpu.kind == kind] for kind in cluster.kinds}
    seats = [(kind, tp) for kind in devices for tp in (1, 2)]
    for count in range(1, 5):
        for chosen in itertools.product(seats, repeat=count):
            used = {kind: sum(tp for name, tp in chosen if name == kind) for kind in devices}
            if any(used[kind] > len(devices[kind]) for kind in devices):
                continue
            for cuts in itertools.combinations(range(1, SMALL.num_layers), count - 1):
                yield _pipeline(chosen, (0, *cuts, SMALL.num_layers), devices)


def _pipeline(seats: Sequence[tuple[str, int]], cuts: Sequence[int], devices: dict[str, list[int]]) -> Topology:
    free = {kind: list(numbers) for kind, numbers in devices.items()}
    stages = []
    for (kind, tp), ends in zip(seats, itertools.pairwise(cuts), strict=True):
        given, free[kind] = tuple(free[kind][:tp]), free[kind][tp:]
        stages.append(Stage(kind, given, LayerRange(*ends), Precision.named("bf16", kind)))
    return Topology(tuple(stages))


if __name__ == "__main__":
    raise SystemExit(main())
