"""What plans are worth: ``python -m benchmarks.plans [--count N] [--seed S] [--json FILE]``.

Random deployments and intents. How near predictions come to a simulation of other arrivals, and whether margins have its sign;
whether what holds stays; whether what has to move costs more than the cheapest that trying everything finds.
"""

import argparse
import itertools
import json
import math
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.provenance import provenance
from benchmarks.questions import ENGINE, NETWORK, PRECISIONS, PROFILES, RANGES, UNITS, cluster_of
from intent.models import Goal, Objective, PrecisionRule
from runtime.models import Cluster, Gpu, LayerRange, Link, ModelSpec, Node, Precision, Stage, Topology
from selector.models import Candidate, Plan, PlanRef, SearchInput, Workload, shape
from selector.objectives import holds
from selector.planning import planned
from selector.prediction import Simulated, candidate, simulated
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
SMALL = ModelSpec("small", "LlamaForCausalLM", 12, 8192, 28_672, 64, 8, 128, 128_256, 8192)
"""As many layers as can be split in every way, of the width of Llama-3-70B."""
_OTHER_ARRIVALS = 1


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
    """Plans beside a simulation of other arrivals."""
    seen, seconds = list[tuple[Question, Plan, Simulated]](), list[float]()
    asked = 0
    for question in questions(draw):
        asked += 1
        start_s = time.perf_counter()
        plan = planned(question.goals, question.problem, PROFILES, TICKET)
        seconds.append(time.perf_counter() - start_s)
        if isinstance(plan, Plan):
            served = simulated(plan.target, question.problem, PROFILES, seed=_OTHER_ARRIVALS)
            assert served is not None, "what was planned holds its load"
            seen.append((question, plan, served))
        if len(seen) == count:
            break
    steady = [(plan, served) for _, plan, served in seen if math.isfinite(plan.prediction.ttft_s["p99"])]
    signs = [sign for one in seen for sign in _signs(*one)]
    return {
        "plans": len(seen),
        "infeasible": asked - len(seen),
        "mean TTFT and TPOT within the band": _share(_mean_is_near(*one) for one in steady),
        "P99 TTFT within 30 %": _share(_off(*one, "ttft", "p99") <= 0.3 for one in steady),
        "without end": len(seen) - len(steady),
        "without end though waits are bounded": sum(
            not math.isfinite(plan.prediction.ttft_s["p99"]) and not served.waits_grow for _, plan, served in seen
        ),
        "margins": len(signs),
        "margins with the sign of the simulation": _share(signs),
        "plan s, median": median(seconds),
        "plan s, p95": sorted(seconds)[int(0.95 * len(seconds))],
    }


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / max(1, len(values))


def _off(plan: Plan, served: Simulated, metric: str, stat: str) -> float:
    said, read = (float(getattr(one, f"{metric}_s")[stat]) for one in (plan.prediction, served))
    return abs(said / read - 1)


def _mean_is_near(plan: Plan, served: Simulated) -> bool:
    return all(_off(plan, served, metric, "mean") <= plan.prediction.error_band for metric in ("ttft", "tpot"))


def _signs(question: Question, plan: Plan, served: Simulated) -> Iterator[bool]:
    for goal in question.goals:
        if isinstance(goal, Objective) and goal.metric in LATENCIES and goal.value is not None:
            said, read = (getattr(one, f"{goal.metric}_s")[goal.stat or "mean"] for one in (plan.prediction, served))
            yield (said <= goal.value) == (read <= goal.value)


def stays(count: int, draw: random.Random) -> Document:
    """What was planned runs, and the same is asked again."""
    unchanged = asked = 0
    for question in questions(draw):
        plan = planned(question.goals, question.problem, PROFILES, TICKET)
        if not isinstance(plan, Plan) or any(margin.margin < 0 for margin in plan.margins):
            continue
        again = planned(question.goals, replace(question.problem, now=plan.target), PROFILES, TICKET)
        asked += 1
        unchanged += isinstance(again, Plan) and again.target == plan.target
        if asked == count:
            break
    return {"goals hold already": asked, "nothing to change": unchanged}


def moves(count: int, draw: random.Random) -> Document:
    """What runs misses a goal, on clusters that are small enough to try everything."""
    asked = dearer = held = refused_wrongly = 0
    while asked < count:
        problem = _small_problem(draw)
        every = (candidate(one, problem, PROFILES) for one in topologies(problem.cluster))
        found = [one for one in every if one]
        for _ in range(30):
            goals = tuple(_bound(draw, *one) for one in draw.sample(BOUNDS[:-1], draw.choice((1, 2))))
            now = draw.choice(found)
            if _holds(now, goals, problem):
                continue
            asked += 1
            plan = select(goals, replace(problem, now=now.topology), PROFILES, TICKET)
            cheapest = min(
                (one.prediction.usd_per_hour for one in found if _holds(one, goals, problem)),
                default=math.inf,
            )
            held += isinstance(plan, Plan)
            refused_wrongly += not isinstance(plan, Plan) and cheapest < math.inf
            dearer += isinstance(plan, Plan) and plan.prediction.usd_per_hour > cheapest * (1 + 1e-9)
            if asked == count:
                break
    return {
        "must move": asked,
        "plans": held,
        "dearer than the cheapest of all": dearer,
        "refused though something holds": refused_wrongly,
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


def _holds(one: Candidate, goals: Sequence[Goal], problem: SearchInput) -> bool:
    keeps_up = one.prediction.throughput_tok_s >= problem.workload.rate_rps * problem.workload.output_tokens
    return keeps_up and all(holds(goal, one, problem.workload) for goal in goals if isinstance(goal, Objective))


if __name__ == "__main__":
    raise SystemExit(main())
