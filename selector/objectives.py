"""What goals ask of a prediction: which are weighed, what each reads, how far from its bound, how the search takes them. Pure."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from intent.models import (
    HOURS_OF_COST,
    LATENCIES,
    Config,
    Goal,
    Objective,
    Placement,
    PrecisionRule,
    Priority,
    TenantException,
)
from runtime.models import BYTES_PER_VALUE, Topology
from selector.models import Candidate, Margin, Prediction, Problem, Workload
from selector.pipelines.optimum import Metric, Threshold
from selector.placement import concerns
from selector.priorities import Balance, balance, objective, sides, weighed

EVALUATED = frozenset(
    {
        "ttft",
        "tpot",
        "e2e",
        "throughput_tok",
        "throughput_req",
        "gpu_util",
        "gpu_count",
        "cost",
        "quality_loss",
    }
)

FULL = ("fp32", "bf16", "fp16")
"""What ``full`` precision means: nothing is quantised."""

WORKLOAD_RATE = "the workload's rate"
"""Evidence of the one goal that nobody said: to keep up."""

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

    @property
    def optimise(self) -> bool:
        """Whether something is to be as good as it can be, beyond what has to hold."""
        return bool(self.optimised or self.balance)

    @property
    def most_quality_loss(self) -> float | None:
        """The tightest bound on it; a bound is leave to use any precision that keeps it."""
        said = [goal for goal in self.bounds if isinstance(goal, Objective) and goal.metric == "quality_loss"]
        return min((goal.value or 0.0 for goal in said), default=None)


def sort_goals(goals: Sequence[Goal], problem: Problem) -> Demands:
    """Sort the goals in force.

    Keeping up with the workload's rate is demanded beside a latency goal, since no latency holds under
    overload; else it is wished.
    """
    model, workload = problem.model.name, problem.workload
    mine = [goal for goal in goals if getattr(goal, "model", None) in {None, model}]
    readable = [goal for goal in mine if _readable(goal, problem)]
    bounds = [
        goal for goal in readable if isinstance(goal, Bound) and goal.op not in {"minimize", "maximize"}
    ]
    hard = [goal for goal in bounds if isinstance(goal, Config) or not goal.soft]
    soft = [goal for goal in bounds if isinstance(goal, Objective) and goal.soft]
    latency = any(isinstance(goal, Objective) and goal.metric in LATENCIES for goal in hard)
    (hard if latency else soft).append(_keep_up(workload))
    optimised = [
        _priced(goal, problem) for goal in readable if isinstance(goal, Bound) and goal not in bounds
    ]
    weighed_up = None if optimised else balance(mine, hard)
    if weighed_up is None:
        optimised += [_priced(objective(side, hard), problem) for side in sides(mine)]
    return Demands(
        bounds=tuple(hard),
        wishes=tuple(soft),
        optimised=tuple(optimised),
        rules=tuple(goal for goal in readable if isinstance(goal, PrecisionRule)),
        balance=weighed_up,
        not_evaluated=tuple(
            goal for goal in goals if goal not in readable and not _weighed(goal, mine, model)
        ),
    )


def _readable(goal: Goal, problem: Problem) -> bool:
    if isinstance(goal, Objective):
        if goal.metric == "quality_loss" and not problem.limits.quality_loss:
            return False  # nobody said what a precision costs
        if goal.metric == "cost" and goal.op not in {"minimize", "maximize"} and problem.unpriced:
            return False  # nor a device
        return goal.metric in EVALUATED and (goal.value is not None or goal.op in {"minimize", "maximize"})
    return isinstance(goal, Config | PrecisionRule)


def _priced(goal: Bound, problem: Problem) -> Bound:
    """Devices stand for cost where some have no price."""
    if isinstance(goal, Objective) and goal.metric == "cost" and problem.unpriced:
        return replace(goal, metric="gpu_count", unit="gpus")
    return goal


def _weighed(goal: Goal, mine: Sequence[Goal], model: str) -> bool:
    """Whether it decides elsewhere: where to search, in which order, or that nothing is asked beyond what holds for everyone."""
    if isinstance(goal, Placement):
        return concerns(goal, model)
    if isinstance(goal, TenantException):
        return any(isinstance(one, Objective) and one.metric == goal.metric for one in mine)
    return isinstance(goal, Priority) and weighed(goal)


def _keep_up(workload: Workload) -> Objective:
    return Objective(
        "throughput_req", ">=", evidence=WORKLOAD_RATE, value=workload.rate_rps, unit="requests/s"
    )


def precisions_for(
    rules: Sequence[PrecisionRule], running: Collection[str], available: Collection[str]
) -> tuple[str, ...]:
    """The weight formats to search, in the order of ``available``.

    What runs now is kept (the first full format, when nothing runs), so that no quality is lost unsaid. Rules change
    that: ``forbid`` takes away and, when it hits all that runs, opens every other format; ``allow`` adds; ``require``
    and ``min`` replace.
    """
    forbidden = {name for rule in rules if rule.rule == "forbid" for name in _named(rule)}
    allowed = [name for name in available if name not in forbidden]
    kept = set(running) & set(available) or set([name for name in available if name in FULL][:1])
    chosen = kept & set(allowed) or set(allowed)
    for rule in rules:
        if rule.rule == "allow":
            chosen |= _named(rule)
        elif rule.rule == "require":
            chosen = _named(rule)
        elif rule.rule == "min":
            least = min(BYTES_PER_VALUE[name] for name in _named(rule))
            chosen = {name for name in allowed if BYTES_PER_VALUE[name] >= least}
    return tuple(name for name in allowed if name in chosen)


def _named(rule: PrecisionRule) -> set[str]:
    return set(FULL) if rule.value == "full" else {rule.value}


def value_of(goal: Bound, topology: Topology, prediction: Prediction, workload: Workload) -> float:
    """What a goal reads, in the goal's own unit."""
    if isinstance(goal, Config):
        degrees = [stage.tp_size for stage in topology.stages]
        tp = max(degrees) if goal.op == "<=" else min(degrees)
        return float({"tp": tp, "pp": topology.pp_size, "replicas": prediction.replicas}[goal.key])
    if goal.metric in LATENCIES:
        readings = {"ttft": prediction.ttft_s, "tpot": prediction.tpot_s, "e2e": prediction.e2e_s}
        return readings[goal.metric][goal.stat or "mean"]
    if goal.metric == "cost":
        return prediction.usd_per_hour * usd_per(goal.unit, workload)
    return {
        "throughput_tok": prediction.throughput_tok_s,
        "throughput_req": prediction.throughput_tok_s / max(1, workload.output_tokens),
        "gpu_util": prediction.gpu_util,
        "gpu_count": float(prediction.devices),
        "quality_loss": prediction.quality_loss,
    }[goal.metric]


def usd_per(unit: str | None, workload: Workload) -> float:
    """What one USD an hour is by the day, the month (730 h) or the million output tokens at the workload's rate."""
    if unit == "USD/Mtok":
        return 1e6 / (3600 * workload.rate_rps * max(1, workload.output_tokens))
    return HOURS_OF_COST.get(unit or "", 1.0)


def thresholds(goals: Sequence[Bound], problem: Problem) -> list[Threshold]:
    """Goals as the search takes them; those that have no place there (TP, PP, a lower bound on utilisation) are left out."""
    return [
        _threshold(goal, metric, problem)
        for goal in goals
        if isinstance(goal, Objective)
        for metric in _SEARCHED[goal.metric].get(goal.op, ())
    ]


def _threshold(goal: Objective, metric: Metric, problem: Problem) -> Threshold:
    """On what the search predicts, before corrections."""
    value, workload = goal.value or 0.0, problem.workload
    if goal.metric in LATENCIES:
        stat = goal.stat or "mean"
        return Threshold(metric, value / problem.correction(metric, stat), stat)
    sustained = problem.correction("rate", "mean")
    if goal.metric == "gpu_util":
        return Threshold(metric, workload.rate_rps / value / sustained if value else 0.0)
    value /= sustained if metric == "rate" else 1.0
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


def margin_of(goal: Bound, candidate: Candidate, workload: Workload, words: str) -> Margin:
    """How far a candidate is from the bound, relative to it (absolute if the bound is 0); 0 or more holds."""
    predicted = value_of(goal, candidate.topology, candidate.prediction, workload)
    bound = float(goal.value if goal.value is not None else 0)
    gap = {"<=": bound - predicted, ">=": predicted - bound}.get(goal.op, 0.0 - abs(predicted - bound))
    if math.isclose(
        predicted, bound, rel_tol=1e-9
    ):  # a bound that is used up: the sum differs in the last digit
        gap = 0.0
    unit = (goal.unit or "") if isinstance(goal, Objective) else ""
    return Margin(words, predicted, bound, unit, gap / abs(bound) if bound else gap)


def holds(goal: Bound, candidate: Candidate, workload: Workload) -> bool:
    """Whether the prediction meets the bound."""
    return margin_of(goal, candidate, workload, "").margin >= 0
