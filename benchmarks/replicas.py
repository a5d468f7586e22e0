"""What replicas are worth: ``python -m benchmarks.replicas [--json FILE]``, some minutes.

Three models on two boxes or four, as operators have them: the highest rate at which a plan holds P99 TTFT <= 2 s and P99 TPOT <=
100 ms, as one pipeline and as a set; the rate of the same set behind other routers; and a closed batch beside a clairvoyant
assignment, which knows how long each answer will be. All by the simulator, router included.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import provenance
from intent.models import Config, Goal, Objective, PrecisionRule
from runtime.capabilities import Limits
from runtime.models import Cluster, Gpu, Link, ModelSpec, Node
from runtime.replicas.choice import Bounds
from selector import profiles
from selector.models import ALIKE, Plan, PlanRef, SearchInput, Workload, shape
from selector.performance.joint import Classes, routing_of
from selector.performance.judge import arrivals, figures_of, sustained_rps
from selector.performance.perf import ServerModel
from selector.performance.routing import Routing, simulate_set
from selector.performance.simulator import Arrivals, simulate
from selector.prediction import server_of
from selector.search import select

Document = dict[str, Any]

TICKET = PlanRef("benchmark", "benchmark", 1, "day")
PROFILES = {kind: profiles.load(kind) for kind in ("A100", "L40S")}
TTFT_S, TPOT_S = 2.0, 0.1
GOALS: tuple[Goal, ...] = (
    Objective("ttft", "<=", "P99 TTFT <= 2 s", stat="p99", value=TTFT_S, unit="s"),
    Objective("tpot", "<=", "P99 TPOT <= 100 ms", stat="p99", value=TPOT_S, unit="s"),
)
FP8 = PrecisionRule("allow", "fp8", "fp8 is allowed")
ALONE = Config("replicas", "==", 1, "one pipeline")
BATCH = 2000
MANY = 32_768
HALVINGS = 7
GB = 10**9


@dataclass(frozen=True, slots=True)
class Case:
    """A model on boxes of both kinds, as in deployments of operators (tests/data/operator)."""

    name: str
    model: ModelSpec
    boxes: int
    devices: int
    """Of each box."""

    @property
    def cluster(self) -> Cluster:
        """A100 with NVLink at 2.2 USD/h and L40S over PCIe at 1.1."""
        nodes = list[Node]()
        kinds = (("A100", 80, 2.2, Link("nvlink", 300e9, 5e-6)), ("L40S", 48, 1.1, Link("pcie", 25e9, 10e-6)))
        for kind, memory_gb, usd, link in kinds:
            for box in range(self.boxes):
                first = sum(len(node.gpus) for node in nodes)
                gpus = tuple(Gpu(first + place, kind, memory_gb * GB, usd) for place in range(self.devices))
                nodes.append(Node(f"{kind}-{box}", gpus, link))
        return Cluster(tuple(nodes), Link("network", 12.5e9, 25e-6))

    def problem(self, *, fixed: bool) -> SearchInput:
        """Chats of 800 tokens in and 250 out; all alike and without headroom, or as they usually are."""
        workload = Workload(1.0, 800, 250, 1)
        limits = Limits(max_sequences=256, max_step_tokens=2048, quality_loss={"fp8": 0.005})
        if fixed:
            workload = replace(workload, inputs=ALIKE, outputs=ALIKE)
            limits = replace(limits, headroom=0.0, max_utilisation=1.0)
        return SearchInput(self.cluster, self.model, workload, None, limits)


CASES = (
    Case("70B chat, 4 + 4", shape("llama-3-70b"), 1, 4),
    Case("8B chat, 8 + 8", shape("llama-3-8b"), 1, 8),
    Case("Mixtral chat, 16 + 16", shape("mixtral-8x7b"), 2, 8),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, print a table and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write everything")
    options = parser.parse_args(arguments)
    rows = [row_of(case, fixed=fixed, goals=goals) for case in CASES for fixed, goals in settings(case)]
    if options.json:
        document = {"benchmark": "replicas", **provenance(), "rows": rows}
        options.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for row in rows:
        print(json.dumps(row, indent=2))
    return 0


def settings(case: Case) -> list[tuple[bool, tuple[Goal, ...]]]:
    """Lengths all alike or as they usually are, with and without fp8."""
    bf16 = [] if case.devices == 4 else [(True, GOALS)]
    return [*bf16, (True, (*GOALS, FP8)), (False, (*GOALS, FP8))]


def row_of(case: Case, *, fixed: bool, goals: tuple[Goal, ...]) -> Document:
    """Of one pipeline and of the best set, and of that set behind other routers."""
    problem = case.problem(fixed=fixed)
    started_s = time.process_time()
    alone, one = highest(problem, (*goals, ALONE))
    rate, plan = highest(problem, goals)
    asked_s = time.process_time()
    answer = select(
        (*goals, Objective("cost", "minimize", "as cheap as possible")), _at(problem, rate), PROFILES, TICKET
    )
    took_s = time.process_time() - asked_s
    assert isinstance(answer, Plan), "it was just found"
    routers = of_routers(plan, problem) if plan.replicas else {}
    long_rps = of_one(one, problem)
    return {
        "case": case.name,
        "lengths": "fixed" if fixed else "usual",
        "fp8": FP8 in goals,
        "alone_rps": alone,
        "alone": str(one.target.text),
        "set_rps": rate,
        "set": plan.target.text,
        "times": rate / alone,
        "alone_in_a_long_run_rps": long_rps,
        "cpu_s_of_an_answer": took_s,
        "cpu_s": time.process_time() - started_s,
        **routers,
    }


def _at(problem: SearchInput, rate_rps: float) -> SearchInput:
    return replace(problem, workload=replace(problem.workload, rate_rps=rate_rps))


def highest(problem: SearchInput, goals: Sequence[Goal]) -> tuple[float, Plan]:
    """The highest rate at which there is a plan, and that plan."""
    low, found = 0.1, None
    high = 0.2
    while isinstance(answer := select(goals, _at(problem, high), PROFILES, TICKET), Plan):
        low, high, found = high, 2 * high, answer
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        answer = select(goals, _at(problem, middle), PROFILES, TICKET)
        if isinstance(answer, Plan):
            low, found = middle, answer
        else:
            high = middle
    assert found is not None, "a fifth of a request a second is held by all"
    return low, found


def of_routers(plan: Plan, problem: SearchInput) -> Document:
    """The rates at which the set holds the bounds behind several routers, and the closed batch."""
    parts = zip(plan.target.replicas, plan.replicas, strict=True)
    servers = [server_of(each, problem.model, problem.cluster, PROFILES, part.batching) for each, part in parts]
    sustained = [sustained_rps(server, problem.workload, problem.model.max_position_embeddings) for server in servers]
    drawn = arrivals(problem.workload, MANY, problem.model.max_position_embeddings)
    classes = Classes.of(drawn, [""])
    everyone = np.ones((1, len(servers)), dtype=bool)
    own = routing_of(servers, problem.workload, sustained, classes, everyone, Bounds(TTFT_S, TPOT_S))
    counted = np.array([[0.0], [1.0], [0.0], [1e9]]) * np.ones((1, len(servers)))
    even = np.full_like(own.shares, 1 / len(servers))
    unbound = replace(own, ttft_s=np.inf, tpot_s=np.inf)
    rules = {
        "own": own,
        "least_outstanding": replace(unbound, paces=counted, shares=even, band=0.0),
        "round_robin": replace(unbound, shares=even, band=np.inf),
        "static_pools": replace(
            unbound, shares=_tuned_shares(unbound, servers, drawn, classes, sum(sustained)), band=np.inf
        ),
    }
    most_rps = sum(sustained)
    rates = {name: most(partial(_holds, rule, servers, drawn, classes), most_rps) for name, rule in rules.items()}
    batch = arrivals(problem.workload, BATCH, problem.model.max_position_embeddings)
    batch = replace(batch, at_s=np.zeros(BATCH))
    rule = routing_of(
        servers, problem.workload, sustained, Classes.of(batch, [""]), np.ones((1, len(servers)), dtype=bool)
    )
    served, _ = simulate_set(servers, batch, Classes.of(batch, [""]).numbers, rule)
    best_s = clairvoyant(servers, batch, rule)
    makespan_s = float(served.last_s.max())
    return {"routers_rps": rates, "batch_s": makespan_s, "clairvoyant_s": best_s, "batch_times": makespan_s / best_s}


def of_one(plan: Plan, problem: SearchInput) -> float:
    """The rate at which one pipeline holds the bounds in a simulation as long as those of the routers."""
    steps = plan.batching or problem.batching
    server = server_of(plan.target, problem.model, problem.cluster, PROFILES, steps)
    longest = problem.model.max_position_embeddings
    drawn = arrivals(problem.workload, MANY, longest)
    alone = Routing(np.ones((4, 1)), np.ones((1, 1)), 1.0)
    everyone = replace(Classes.of(drawn, [""]), numbers=np.zeros(MANY, dtype=np.int64))
    sustained = sustained_rps(server, problem.workload, longest)
    return most(lambda rate: _holds(alone, [server], drawn, everyone, rate), sustained)


def _holds(rule: Routing, servers: Sequence[ServerModel], drawn: Arrivals, classes: Classes, rate_rps: float) -> bool:
    served, _ = simulate_set(servers, replace(drawn, at_s=drawn.at_s / rate_rps), classes.numbers, rule)
    found = figures_of(served, 1.0, 1)
    return bool(found.ttft_s["p99"] <= TTFT_S and found.tpot_s["p99"] <= TPOT_S)


def most(holds: Callable[[float], bool], most_rps: float) -> float:
    """The highest rate that holds, up to one that nothing does."""
    low, high = 0.0, most_rps
    for _ in range(HALVINGS + 2):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _tuned_shares(
    rule: Routing, servers: Sequence[ServerModel], drawn: Arrivals, classes: Classes, most_rps: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """As two pools are tuned by hand: the part of one kind that holds the most, in steps of 5 %."""
    fast = np.array([server.stages == servers[0].stages for server in servers])
    if fast.all():
        return np.full_like(rule.shares, 1 / len(servers))

    def split(part: float) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.broadcast_to(np.where(fast, part / fast.sum(), (1 - part) / (~fast).sum()), rule.shares.shape).copy()

    def rate(part: float) -> float:
        tried = replace(rule, shares=split(part), band=np.inf)
        return most(lambda each: _holds(tried, servers, drawn, classes, each), most_rps)

    return split(max((step / 20 for step in range(8, 20)), key=rate))


def clairvoyant(servers: Sequence[ServerModel], batch: Arrivals, rule: Routing) -> float:
    """Seconds of a batch where lengths are known: the longest first, to who ends it first; evened out.

    What each server takes for a request is scaled by what its part took in the simulation, until nothing gets better.
    """
    step_s, sequence_s, token_s, slots = rule.paces
    each_s = (step_s + slots * sequence_s) / slots
    costs = (batch.inputs - batch.cached)[:, None] * token_s + batch.outputs[:, None] * each_s
    scales = np.ones(len(servers))
    best_s = np.inf
    for _ in range(12):
        busy = np.zeros(len(servers))
        places = np.zeros(len(batch), dtype=int)
        for request in np.argsort(-costs.min(axis=1)):
            places[request] = int(np.argmin(busy + costs[request] * scales))
            busy[places[request]] += costs[request, places[request]] * scales[places[request]]
        took = []
        for place, server in enumerate(servers):
            mine = np.flatnonzero(places == place)
            mine = mine[np.argsort(-batch.outputs[mine])]  # the longest answers begin first
            part = Arrivals(batch.at_s[mine], batch.inputs[mine], batch.outputs[mine], batch.cached[mine])
            took.append(float(simulate(server, part).last_s.max()) if len(mine) else 0.0)
        best_s = min(best_s, max(took))
        scales *= np.clip(np.array(took) / np.mean(took), 0.7, 1.4)
    return float(best_s)


if __name__ == "__main__":
    raise SystemExit(main())
