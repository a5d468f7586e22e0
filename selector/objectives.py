"""What goals ask of a topology: devices, order, figures, beside today. Pure."""

import math
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from intent.models import (
    FULL,
    HOURS_OF_COST,
    LATENCIES,
    THROUGHPUTS,
    UNITS,
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    Relative,
    TenantException,
)
from runtime.models import BYTES_PER_VALUE, Cluster, Topology
from selector.models import Candidate, Margin, SearchInput, Workload
from selector.pipelines.optimum import Metric, Threshold


@dataclass(frozen=True, slots=True)
class Places:
    """What placements leave of the inventory."""

    allowed: Cluster
    preferred: Cluster | None
    """Part of what is allowed, to be tried first."""
    frozen: tuple[int, ...]
    """Devices of what runs now that have to stay as they are."""
    notes: tuple[str, ...]


def places(goals: Sequence[Goal], problem: SearchInput) -> Places:
    """What the placements of a model, or of everything, leave; frozen devices that are idle stay idle."""
    mine = [goal for goal in goals if isinstance(goal, Placement) and concerns(goal, problem.model.name)]
    cluster = problem.cluster
    now = set(problem.now.devices) if problem.now else set[int]()
    out = problem.capabilities.out if problem.capabilities else frozenset[int]()
    allowed = {gpu.index for gpu in cluster.gpus} - out
    frozen = set[int]()
    preferred = set[int]()
    for goal in mine:
        named = cluster.named(goal.selector)
        match goal.rule:
            case "require":
                allowed &= named
            case "forbid":
                allowed -= named
            case "freeze":
                frozen |= named
            case "prefer":
                preferred |= named
    left = allowed - (frozen - now)
    return Places(
        allowed=only(cluster, left),
        preferred=only(cluster, left & preferred) if left & preferred else None,
        frozen=tuple(sorted(frozen & now)),
        notes=(_note(mine, left, out),) if left != {gpu.index for gpu in cluster.gpus} else (),
    )


def concerns(goal: Placement, model: str) -> bool:
    """Whether a placement speaks of everything, of this model, or of a tenant to whom it bars a place."""
    return goal.workload in {None, model} or said_for(goal) is not None


def only(cluster: Cluster, devices: Collection[int]) -> Cluster:
    """The cluster with no other devices."""
    nodes = (replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.index in devices)) for node in cluster.nodes)
    return replace(cluster, nodes=tuple(node for node in nodes if node.gpus))


def _note(goals: Sequence[Placement], left: Collection[int], out: Collection[int]) -> str:
    quoted = " and ".join(
        [repr(goal.evidence) for goal in goals if goal.rule != "prefer"]
        + [f"device {device} is out" for device in sorted(out)]
    )
    devices = ", ".join(map(str, sorted(left))) or "none"
    return f"{quoted}: of the inventory that leaves the devices {devices}"


FIRST = 2.0
"""Weight of the first of two sides: the exponent of what it reads."""
SECOND = 1.0
"""Weight of the other."""
_SIDES = ("latency", "throughput", "cost")
_LEAST = 1e-300
"""In place of nothing, whose logarithm has no end."""


def weighed(goal: Priority) -> bool:
    """Whether both sides are something that a topology decides."""
    return goal.higher in _SIDES and (goal.lower is None or goal.lower in _SIDES)


def sides(goals: Sequence[Goal]) -> tuple[str, ...]:
    """The sides that were said, what is put first before what is put after it."""
    pairs = [goal for goal in goals if isinstance(goal, Priority) and weighed(goal)]
    sides = dict.fromkeys(side for goal in pairs for side in (goal.higher, goal.lower) if side)
    order: list[str] = []
    while len(order) < len(sides):
        left = [side for side in sides if side not in order]
        beaten = {goal.lower for goal in pairs if goal.higher in left}
        above_all = [goal.higher for goal in pairs if goal.lower is None and goal.higher in left]
        free = [side for side in left if side not in beaten] or left  # the validator lets no circle pass
        order.append(next((side for side in above_all if side in free), free[0]))
    return tuple(order)


def above_cost(goals: Sequence[Goal]) -> bool:
    """Whether latency or throughput is put before everything else, cost included: ``throughput first``."""
    return any(
        isinstance(goal, Priority) and weighed(goal) and goal.lower is None and goal.higher != "cost" for goal in goals
    )


def objective(side: str, bounds: Sequence[Goal]) -> Objective:
    """What making a side good means; latency is the one that a goal bounds, else the mean TTFT."""
    if side == "throughput":
        return Objective("throughput_tok", "maximize", evidence="priority")
    if side == "cost":
        return Objective("cost", "minimize", evidence="priority", unit="USD/h")
    bound = next(
        (goal for goal in bounds if isinstance(goal, Objective) and goal.metric in {"ttft", "tpot", "e2e"}),
        None,
    )
    if bound is None:
        return Objective("ttft", "minimize", evidence="priority", stat="mean", unit="s")
    return Objective(bound.metric, "minimize", evidence="priority", stat=bound.stat, unit="s")


@dataclass(frozen=True, slots=True)
class Balance:
    """A side that costs money to make better, weighed against the cost."""

    better: Objective
    exponents: tuple[float, float]
    """Of what it reads, and of the cost."""

    def score(self, reading: float, cost: float) -> float:
        """Smaller is better; ``reading`` is smaller where it is better, too."""
        if not math.isfinite(reading):
            return math.inf
        read, paid = (math.log(max(value, _LEAST)) for value in (reading, cost))
        return self.exponents[0] * read + self.exponents[1] * paid


def balance(goals: Sequence[Goal], bounds: Sequence[Goal]) -> Balance | None:
    """Latency or throughput against cost, where one of them is put before the other."""
    order = sides(goals)
    better = next((side for side in order if side != "cost"), None)
    if better is None or not ("cost" in order or above_cost(goals)):
        return None
    first = order[0] != "cost"
    return Balance(objective(better, bounds), (FIRST, SECOND) if first else (SECOND, FIRST))


WORKLOAD_RATE = "usual headroom"
"""Evidence of a goal that nobody said: to keep up, with headroom."""
USUAL = "usual where nobody says it"
"""Evidence of another: that answers are read as they come."""
UNSAID = frozenset({WORKLOAD_RATE, USUAL})
_OF_THE_LOAD = LATENCIES | {"cost", "gpu_count", "gpu_util"}
"""What says nothing of a topology that does not keep up: no latency is held then, and any cost."""

TENANT = "tenant:"
"""What a placement's workload begins with where that is a tenant."""

Bound = Objective | Config


@dataclass(frozen=True, slots=True)
class Demands:
    """Goals sorted by what the search does with them."""

    bounds: tuple[Bound, ...]
    """Must hold."""
    wishes: tuple[Bound, ...]
    """Should hold: soft bounds."""
    optimised: tuple[Bound, ...]
    """To minimise or maximise, the first one first."""
    rules: tuple[PrecisionRule, ...]
    balance: Balance | None
    """Latency or throughput weighed against cost, where a priority says so and nothing is to be minimised or maximised."""
    not_evaluated: tuple[Goal, ...]
    relative: frozenset[Bound] = frozenset()
    """Bounds on what runs times a factor: whatever a prediction is off by, both are."""

    @property
    def said(self) -> tuple[Bound, ...]:
        """Bounds and wishes, without what is only usual: nothing that runs has to go for that."""
        bounds = (bound for bound in self.bounds if bound.evidence != USUAL)
        return (*bounds, *(wish for wish in self.wishes if wish.evidence not in UNSAID))

    @property
    def optimise(self) -> bool:
        """Whether something is to be as good as it can be, beyond what has to hold."""
        return bool(self.optimised or self.balance)

    @property
    def most_quality_loss(self) -> float | None:
        """The tightest bound on it; a bound is leave to use any precision that keeps it."""
        objectives = [goal for goal in self.bounds if isinstance(goal, Objective) and goal.metric == "quality_loss"]
        return min((goal.value or 0.0 for goal in objectives), default=None)


def sort_goals(goals: Sequence[Goal], problem: SearchInput) -> Demands:
    """Sort the goals in force.

    To keep up with the load, with headroom, is demanded beside what says nothing of a topology that does not (a latency, a
    cost, devices); else it is wished. A bound on TTFT alone demands a usual TPOT, too.
    """
    model = problem.model.name
    mine = [goal for goal in goals if getattr(goal, "model", None) in {None, model}]
    readable = [goal for goal in mine if _readable(goal, problem)]
    bounds = [goal for goal in readable if isinstance(goal, Bound) and goal.op not in {"minimize", "maximize"}]
    hard = [goal for goal in bounds if isinstance(goal, Config) or not goal.soft]
    soft = [goal for goal in bounds if isinstance(goal, Objective) and goal.soft]
    timed = [goal for goal in bounds if isinstance(goal, Objective) and goal.metric in LATENCIES]
    usual_tpot_s = problem.limits.usual_tpot_s
    if {goal.metric for goal in timed} == {"ttft"} and usual_tpot_s is not None:
        usual = Objective("tpot", "<=", evidence=USUAL, stat="mean", value=usual_tpot_s, unit="s")
        (soft if all(goal.soft for goal in timed) else hard).append(usual)
    if not _bounds_use(readable, problem):
        needs = any(isinstance(goal, Objective) and goal.metric in _OF_THE_LOAD and not goal.soft for goal in readable)
        (hard if needs else soft).append(_keep_up(problem))
    optimised = [_priced(goal, problem) for goal in readable if isinstance(goal, Bound) and goal not in bounds]
    weighed_up = None if optimised else balance(mine, hard)
    if weighed_up is None:
        optimised += [_priced(objective(side, hard), problem) for side in sides(mine)]
    return Demands(
        bounds=tuple(hard),
        wishes=tuple(soft),
        optimised=tuple(optimised),
        rules=tuple(goal for goal in readable if isinstance(goal, PrecisionRule)),
        balance=weighed_up,
        not_evaluated=tuple(goal for goal in goals if goal not in readable and not _weighed(goal, mine, model)),
    )


def _readable(goal: Goal, problem: SearchInput) -> bool:
    if isinstance(goal, Objective):
        if goal.metric == "quality_loss" and not problem.losses:
            return False  # nobody said what a precision costs
        if goal.metric == "cost" and goal.op not in {"minimize", "maximize"} and problem.unpriced:
            return False  # nor a device
        if goal.op == "<=" and goal.metric in THROUGHPUTS:
            return False  # what a tenant may send
        return goal.metric in EVALUATED and (goal.value is not None or goal.op in {"minimize", "maximize"})
    return isinstance(goal, Config) or (
        isinstance(goal, PrecisionRule) and not (goal.rule == "allow" and (goal.tenant or goal.layers))
    )


def _priced(goal: Bound, problem: SearchInput) -> Bound:
    """Devices stand for cost where some have no price, and the fewest of them for the busiest."""
    if isinstance(goal, Objective) and goal.metric == "gpu_util" and goal.op == "maximize":
        return replace(goal, metric="gpu_count", op="minimize", unit="gpus")
    if isinstance(goal, Objective) and goal.metric == "cost" and problem.unpriced:
        return replace(goal, metric="gpu_count", unit="gpus")
    return goal


def _weighed(goal: Goal, mine: Sequence[Goal], model: str) -> bool:
    """Whether it decides elsewhere.

    Where to search, in which order, or that nothing is asked beyond what holds for everyone.
    """
    if isinstance(goal, Placement):
        return concerns(goal, model)
    if isinstance(goal, TenantException):
        return any(isinstance(other_goal, Objective) and other_goal.metric == goal.metric for other_goal in mine)
    return isinstance(goal, Priority) and weighed(goal)


def _keep_up(problem: SearchInput) -> Objective:
    most = problem.limits.max_utilisation
    return Objective("gpu_util", "<=", evidence=WORKLOAD_RATE, value=most, unit="ratio")


COMPARED = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}
"""How goals for the topology compare."""


def hangs_on_the_load(bound: Bound) -> bool:
    """Whether it holds at a small part of the load sooner than at all of it."""
    return isinstance(bound, Objective) and bound.metric in {*LATENCIES, "gpu_util"} and bound.op == "<="


def wants_use(goal: Goal) -> bool:
    """Whether a goal asks for busy devices."""
    return isinstance(goal, Objective) and goal.metric == "gpu_util" and goal.op in {">=", "maximize"}


def _bounds_use(goals: Sequence[Goal], problem: SearchInput) -> bool:
    """Whether a goal says how busy devices may be, or that they be busier than usual."""
    most = problem.limits.max_utilisation
    bounds = [goal for goal in goals if isinstance(goal, Objective) and goal.metric == "gpu_util" and goal.value]
    return any(goal.op != ">=" or (goal.value or 0.0) > most for goal in bounds)


def precisions_for(
    rules: Sequence[PrecisionRule], running: Collection[str], available: Collection[str]
) -> tuple[str, ...]:
    """The weight formats to search, in the order of ``available``.

    What runs now is kept (the first full format, when nothing runs), so that no quality is lost unsaid. Rules change
    that: ``forbid`` takes away and, when it hits all that runs, opens every other format; ``allow`` adds; ``require``
    and ``min`` replace. One pipeline serves every tenant: what is said for one takes away from all, and opens nothing. Rules for
    some layers alone say nothing of the others.
    """
    rules = [rule for rule in rules if not rule.layers]
    narrowing = [rule for rule in rules if rule.rule == "forbid" or said_for(rule)]
    allowed = [name for name in available if all(name in rule.leaves(BYTES_PER_VALUE) for rule in narrowing)]
    kept = set(running) & set(available) or set([name for name in available if name in FULL][:1])
    chosen = kept & set(allowed) or set(allowed)
    for rule in rules:
        if rule.tenant is None and rule.rule == "allow":
            chosen |= rule.formats
        elif rule.tenant is None and rule.rule in {"require", "min"}:
            chosen = set(rule.leaves(BYTES_PER_VALUE))
    return tuple(name for name in allowed if name in chosen)


def said_for(goal: Goal) -> str | None:
    """The one tenant for whom a rule was said that narrows precisions or places, for everyone then."""
    is_rule = isinstance(goal, PrecisionRule | Placement) and goal.rule not in {"allow", "prefer"}
    return _tenant_of(goal) if is_rule else None


def named_tenants(problem: SearchInput) -> tuple[str, ...]:
    """Those for whom something was said alone."""
    return tuple(sorted({_tenant_of(goal) or "" for goal in problem.for_tenants}))


def barred_tenants(replica: Topology, problem: SearchInput) -> frozenset[str]:
    """The tenants whom a replica may not serve, by what was said for them; "" is everyone else."""
    formats = {stage.precision_of(layer).weights for stage in replica.stages for layer in stage.layers}
    opened = [goal for goal in problem.for_tenants if isinstance(goal, PrecisionRule) and goal.rule == "allow"]
    barred = set[str]()
    for name in formats & {goal.value for goal in opened}:
        barred |= {*named_tenants(problem), ""} - {goal.tenant for goal in opened if goal.value == name}
    for goal in problem.for_tenants:
        if isinstance(goal, Placement):
            named = problem.cluster.named(goal.selector)
            breaks = bool(set(replica.devices) - named if goal.rule == "require" else set(replica.devices) & named)
        else:
            held = [replica.stage_of(layer).precision_of(layer) for layer in goal.held(problem.model.num_layers)]
            breaks = not {each.weights for each in held} <= goal.leaves(BYTES_PER_VALUE)
        barred |= {_tenant_of(goal) or ""} if breaks else set()
    return frozenset(barred)


def _tenant_of(goal: Goal) -> str | None:
    if not isinstance(goal, Placement):
        return getattr(goal, "tenant", None)
    workload = goal.workload or ""
    return workload.removeprefix(TENANT) if workload.startswith(TENANT) else None


def value_of(goal: Bound, candidate: Candidate, workload: Workload) -> float:
    """What a goal reads, in the goal's own unit."""
    prediction = candidate.prediction
    if isinstance(goal, Config):
        topology = candidate.topology
        degrees = [stage.tp_size for stage in topology.stages]
        tp = max(degrees) if goal.op == "<=" else min(degrees)
        counts = {"tp": tp, "pp": topology.pp_size, "replicas": len(topology.replicas), **candidate.counts}
        return float(counts.get(goal.key, 0))
    if goal.metric in LATENCIES:
        readings = {"ttft": prediction.ttft_s, "tpot": prediction.tpot_s, "e2e": prediction.e2e_s}
        return readings[goal.metric][goal.stat or "mean"]
    if goal.metric == "cost":
        return prediction.usd_per_hour * usd_per(goal.unit, workload)
    return {
        "throughput_tok": prediction.throughput_tok_s,
        "throughput_req": prediction.throughput_tok_s / max(1, workload.output_tokens),
        "gpu_util": workload.rate_rps * max(1, workload.output_tokens) / prediction.throughput_tok_s,
        "gpu_count": float(prediction.devices),
        "quality_loss": prediction.quality_loss,
    }[goal.metric]


def usd_per(unit: str | None, workload: Workload) -> float:
    """One USD an hour by the day, the month (730 h) or the million output tokens.

    The tokens come at the workload's rate.
    """
    if unit == "USD/Mtok":
        return 1e6 / (3600 * workload.rate_rps * max(1, workload.output_tokens))
    return HOURS_OF_COST.get(unit or "", 1.0)


def thresholds(goals: Sequence[Bound], workload: Workload) -> list[Threshold]:
    """Goals as the search takes them; those that it does not bound are left out."""
    return [
        _threshold(goal, metric, workload)
        for goal in goals
        if isinstance(goal, Objective)
        for metric in _SEARCHED[goal.metric].get(goal.op, ())
    ]


def _threshold(goal: Objective, metric: Metric, workload: Workload) -> Threshold:
    value = float(goal.value or 0.0)
    if goal.metric in LATENCIES:
        return Threshold(metric, value, goal.stat or "mean")
    if goal.metric == "gpu_util":
        return Threshold(metric, workload.rate_rps / value if value else 0.0)
    scale = {
        "throughput_tok": 1 / max(1, workload.output_tokens),
        "cost": 1 / usd_per(goal.unit, workload),
    }.get(goal.metric, 1.0)
    return Threshold(metric, value * scale)


_SEARCHED: Mapping[str, Mapping[str, tuple[Metric, ...]]] = {
    "ttft": {"<=": ("ttft",), "minimize": ("ttft",)},
    "tpot": {"<=": ("tpot",), "minimize": ("tpot",)},
    "e2e": {"<=": ("e2e",), "minimize": ("e2e",)},
    "throughput_tok": {">=": ("rate",), "maximize": ("rate",)},
    "throughput_req": {">=": ("rate",), "maximize": ("rate",)},
    "gpu_util": {"<=": ("rate",), "minimize": ("rate",), "maximize": ("devices",)},
    "gpu_count": {
        "<=": ("devices",),
        ">=": ("least_devices",),
        "==": ("devices", "least_devices"),
        "minimize": ("devices",),
    },
    "cost": {"<=": ("usd_per_hour",), "minimize": ("usd_per_hour",)},
    "quality_loss": {},
}
"""Metric and operator to what the search bounds; what is not here is only checked. A hard bound on quality bounds all that is
searched (``Demands.most_quality_loss``)."""
EVALUATED = frozenset(_SEARCHED)
"""Metrics of which a prediction says something."""


_BANDED = frozenset({*LATENCIES, "throughput_tok", "throughput_req"})
"""What a prediction is off by its error band at most; what is counted or set is known."""


def margin_of(goal: Bound, candidate: Candidate, workload: Workload, words: str = "", headroom: float = 0.0) -> Margin:
    """How far a candidate is from the bound, relative to it (absolute if the bound is 0); 0 or more holds.

    ``headroom`` is the share of the error band that has to be free.
    """
    predicted = value_of(goal, candidate, workload)
    bound = float(goal.value if goal.value is not None else 0)
    banded = isinstance(goal, Objective) and goal.metric in _BANDED
    off = candidate.prediction.error_band * headroom if banded else 0.0
    worst = predicted * (1 + off if goal.op == "<=" else 1 - off)
    gap = {"<=": bound - worst, ">=": worst - bound}.get(goal.op, 0.0 - abs(predicted - bound))
    if math.isclose(worst, bound, rel_tol=1e-9):  # a bound that is used up: the sum differs in the last digit
        gap = 0.0
    unit = (goal.unit or "") if isinstance(goal, Objective) else ""
    return Margin(words, predicted, bound, unit, gap / abs(bound) if bound else gap, worst)


def absolute(goals: Sequence[Goal], today: Candidate | None, workload: Workload) -> list[Goal]:
    """The goals with relative ones as bounds on what today's topology is predicted to do.

    They stay as they are without one.
    """
    return [
        _bound(goal, today, workload) if today and isinstance(goal, Relative) and goal.metric in EVALUATED else goal
        for goal in goals
    ]


def _bound(goal: Relative, today: Candidate, workload: Workload) -> Objective:
    unit = goal.unit or UNITS[goal.metric][0]
    objective = Objective(goal.metric, goal.op, goal.evidence, stat=goal.stat, unit=unit)
    current = value_of(objective, today, workload)
    value = current * goal.factor if goal.factor is not None else current + (goal.delta or 0.0)
    return replace(objective, value=value, window=goal.window, tenant=goal.tenant, model=goal.model)
