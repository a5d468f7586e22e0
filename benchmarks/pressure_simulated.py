"""The shifting load in virtual time on A100 and L40S: the selector's choice for each pattern, and switching between them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.changing_server import Change, simulate
from benchmarks.parameters import UsageError
from benchmarks.patterns import (
    BALANCED,
    DECODE,
    PREFILL,
    Answered,
    Document,
    Outcome,
    Pattern,
    alternating,
    compared,
    outcome,
    pattern_of,
    poisson,
)
from benchmarks.provenance import ROOT
from benchmarks.questions import ENGINE, PROFILES, cluster_of
from intent.models import Objective
from runtime.capabilities import Limits
from runtime.footprint import blocks_beside
from runtime.models import Cluster, LayerRange, ModelSpec, Stage, Topology
from selector.models import ALIKE, Candidate, Plan, PlanRef, SearchInput, Workload, shape
from selector.performance.perf import ServerModel
from selector.performance.simulator import RequestArrival
from selector.pipelines.operating import BLOCK_TOKENS
from selector.prediction import server_of
from selector.search import select
from selector.switching import switch

RESULTS = ROOT / "benchmarks" / "results"
LIMITS = Limits(allowed_precisions=("bf16",), max_sequences=256, max_step_tokens=2048)
"""As engines are set up by default."""
FASTEST = Objective("throughput_tok", "maximize", "", None, unit="tokens/s")
NAMES = {PREFILL: "prefill-optimal", DECODE: "decode-optimal", BALANCED: "balanced"}


@dataclass(frozen=True, slots=True)
class Costs:
    """What a switch costs, as measured here; the simulation takes it for the cluster's."""

    stop_s: float
    syncing_ratio: float
    """TPOT while a switch is prepared, by TPOT before."""
    prepare_s: float
    """At least; what loading the weights is predicted to take on these devices goes before it where it is longer."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What is simulated."""

    model: str
    devices: tuple[int, int]
    """A100 and L40S."""
    load: float
    """Rate of each pattern, by what its own best choice sustains."""
    phases: int
    num_requests: int
    """In each phase."""
    seed: int
    aligned: bool = False
    """Whether the choice for answers may have its stages in the reverse order, where more fits beside the one for prompts."""


def measured(folder: Path = RESULTS) -> Costs:
    """From the results of ``benchmarks.cutover`` and ``benchmarks.overhead``: of several, what is worse for switching.

    Raises:
        UsageError: a file is not there, or does not have them.
    """
    cutover, overhead = (_read(folder / f"{name}.json") for name in ("cutover-torch", "overhead"))
    try:
        rows = [row for row in cutover["rows"] if row["mode"] == "patch" and row["stop_ms"]]
        ratios = [one["syncing_tpot_ratio"] for one in overhead["directions"]]
        return Costs(
            stop_s=max(0.0, *(row["stop_ms"]["p99"] / 1000 for row in rows)),
            syncing_ratio=max(1.0, *(one for one in ratios if one)),
            prepare_s=max(row["prepare_s"]["p50"] for row in rows),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{folder} has no figures of a switch ({error}); give --stop-ms, --syncing-ratio and --prepare-s"
        ) from error


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file} cannot be read ({error}); give --stop-ms, --syncing-ratio and --prepare-s") from error


def simulated(case: Simulation, costs: Costs) -> Document:
    """The static choices and switching, with and without a KV pool that grows to what the topology holds.

    Raises:
        UsageError: a pattern has no choice, or two choices do not fit side by side.
        UnsupportedModelError: the model is not known.
    """
    spec = shape(case.model)
    choices = {pattern: choice(pattern, spec, case) for pattern in NAMES}
    if case.aligned:
        choices[DECODE] = aligned(choices[DECODE], choices[PREFILL], spec, cluster_of(*case.devices))
    rates = {
        pattern: case.load * choices[pattern].prediction.throughput_tok_s / pattern.output_tokens
        for pattern in (PREFILL, DECODE)
    }
    arrivals = poisson(list(alternating(case.phases, case.num_requests)), rates, case.seed)
    servers = {pattern: _server(one, spec, case) for pattern, one in choices.items()}
    static = {
        name: outcome(answers(arrivals, simulate_all(servers[pattern], arrivals, ())))
        for pattern, name in NAMES.items()
    }
    beside = _beside(choices, spec, case)
    fixed = {pattern: replace(one, kv_tokens=min(one.kv_tokens, beside)) for pattern, one in servers.items()}
    prepare_s = _prepare_s(choices, spec, case, costs)
    shifting: dict[str, Outcome] = {}
    for name, mine in (("switching, KV resized", servers), ("switching, KV fixed", fixed)):
        changes = switches(arrivals, case, mine, (beside, prepare_s, costs))
        shifting[name] = outcome(answers(arrivals, simulate_all(mine[PREFILL], arrivals, changes)))
    return {
        "kind": "simulated",
        **asdict(case),
        "choices": {name: str(choices[pattern].topology) for pattern, name in NAMES.items()},
        "rates_rps": {pattern.name: round(rate, 4) for pattern, rate in rates.items()},
        "kv_tokens": {name: servers[pattern].kv_tokens for pattern, name in NAMES.items()},
        "kv_tokens_beside": beside,
        "costs": {**asdict(costs), "prepare_s": prepare_s},
        **compared(static, shifting),
    }


def choice(pattern: Pattern, spec: ModelSpec, case: Simulation) -> Candidate:
    """What the selector takes for a pattern when asked for the highest throughput.

    Raises:
        UsageError: there is none.
    """
    workload = Workload(0.1, pattern.input_tokens, pattern.output_tokens, 1, ALIKE, ALIKE)
    problem = SearchInput(cluster_of(*case.devices), spec, workload, None, LIMITS, ENGINE)
    plan = select((FASTEST,), problem, PROFILES, PlanRef("benchmark", "benchmark", 1, "always"))
    if not isinstance(plan, Plan):
        raise UsageError(f"{case.model} on {case.devices[0]}+{case.devices[1]}: {'; '.join(plan.reasons)}")
    return Candidate(plan.target, plan.prediction, "")


def aligned(one: Candidate, beside: Candidate, spec: ModelSpec, cluster: Cluster) -> Candidate:
    """The same pipeline from its other end where that leaves room for more KV beside another: as fast, but fewer layers move."""
    start, stages = 0, list[Stage]()
    for stage in reversed(one.topology.stages):
        stages.append(replace(stage, layers=LayerRange(start, start + len(stage.layers))))
        start += len(stage.layers)
    other = Topology(tuple(stages))
    here, there = (
        blocks_beside(beside.topology, topology, spec, cluster, BLOCK_TOKENS) for topology in (one.topology, other)
    )
    return replace(one, topology=other) if there > here else one


def _server(one: Candidate, spec: ModelSpec, case: Simulation) -> ServerModel:
    cluster = cluster_of(*case.devices)
    problem = SearchInput(cluster, spec, Workload(0.1, 1, 1, 1), None, LIMITS, ENGINE)
    return server_of(one.topology, spec, cluster, PROFILES, problem.batching)


def _beside(choices: Mapping[Pattern, Candidate], spec: ModelSpec, case: Simulation) -> int:
    """KV tokens that fit while one choice comes up beside the other."""
    topologies = [choices[pattern].topology for pattern in (PREFILL, DECODE)]
    cluster = cluster_of(*case.devices)
    here, there = topologies
    tokens = BLOCK_TOKENS * blocks_beside(here, there, spec, cluster, BLOCK_TOKENS)
    longest = max(pattern.input_tokens + pattern.output_tokens for pattern in (PREFILL, DECODE))
    if tokens < longest:
        raise UsageError(
            f"{case.model} on {case.devices[0]}+{case.devices[1]}: {here} and {there} do not fit side by side; "
            "take more devices or a smaller model"
        )
    return tokens


def _prepare_s(
    choices: Mapping[Pattern, Candidate], spec: ModelSpec, case: Simulation, costs: Costs
) -> dict[str, float]:
    """By the name of the target: measured here, or predicted for these devices where that is longer."""
    found = {}
    for here, there in ((PREFILL, DECODE), (DECODE, PREFILL)):
        now = choices[here].topology
        problem = SearchInput(cluster_of(*case.devices), spec, Workload(0.1, 1, 1, 1), now, LIMITS, ENGINE)
        predicted = switch(choices[here], choices[there], problem).prepare_s
        found[NAMES[there]] = max(costs.prepare_s, predicted)
    return found


def switches(
    arrivals: Sequence[RequestArrival],
    case: Simulation,
    servers: Mapping[Pattern, ServerModel],
    how: tuple[int, Mapping[str, float], Costs],
) -> list[Change]:
    """A switch for every shift, begun when its first request comes: the source slower and with less KV, then the target."""
    beside, prepare_s, costs = how
    found = []
    for phase in range(1, case.phases):
        here, there = servers[pattern_of(phase - 1)], servers[pattern_of(phase)]
        began_s = arrivals[phase * case.num_requests].at_s
        slower = replace(here, share=here.share / costs.syncing_ratio, kv_tokens=min(here.kv_tokens, beside))
        ready_s = began_s + prepare_s[NAMES[pattern_of(phase)]]
        found += [Change(began_s, slower), Change(ready_s, there, costs.stop_s)]
    return found


def simulate_all(server: ServerModel, arrivals: Sequence[RequestArrival], changes: Sequence[Change]) -> list[Any]:
    """Every request served; all of them fit every server here.

    Raises:
        UsageError: one does not.
    """
    served = simulate(server, arrivals, changes)
    if None in served:
        raise UsageError(f"{served.count(None)} requests do not fit {server.kv_tokens} tokens of KV")
    return served


def answers(arrivals: Sequence[RequestArrival], served: Sequence[Any]) -> list[Answered]:
    """What became of each request, on the load's own clock."""
    return [
        Answered(one.at_s, one.at_s + found.ttft_s, one.at_s + found.e2e_s, one.output_tokens)
        for one, found in zip(arrivals, served, strict=True)
    ]
