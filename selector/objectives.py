"""What goals ask of a prediction: which can be evaluated, what each reads, how far from its bound. Pure.

Predictions are means. Until queueing is modelled, a percentile of TTFT takes the tail of an exponential
distribution, whose q-th percentile is -ln(1 - q) times its mean (p99: 4.6); a request's TPOT is already a
mean over its tokens, so its percentiles take a normal spread that shrinks with the square root of their
number.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from intent.models import Config, Goal, Objective, PrecisionRule
from runtime.models import BYTES_PER_VALUE, Topology
from selector.models import Candidate, Margin, Prediction, Workload

TTFT_TAIL: Mapping[str | None, float] = {
    None: 1.0, "mean": 1.0, "p50": 1.0, "p90": 2.3, "p95": 3.0, "p99": 4.6, "p99.9": 6.9,
}  # fmt: skip
"""Statistic to its ratio to the mean; the median is taken as the mean, which lies above it."""

NORMAL_TAIL: Mapping[str | None, float] = {
    None: 0.0, "mean": 0.0, "p50": 0.0, "p90": 1.28, "p95": 1.64, "p99": 2.33, "p99.9": 3.09,
}  # fmt: skip
"""Statistic to its distance from the mean in standard deviations."""

EVALUATED = frozenset(
    {"ttft", "tpot", "e2e", "throughput_tok", "throughput_req", "gpu_util", "gpu_count", "cost"}
)
LATENCIES = frozenset({"ttft", "tpot", "e2e"})

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
    not_evaluated: tuple[Goal, ...]


def sort_goals(goals: Sequence[Goal], model: str, workload: Workload) -> Demands:
    """Sort the goals in force.

    Keeping up with the workload's rate is demanded beside a latency goal, since no latency holds under
    overload; else it is wished.
    """
    mine = [goal for goal in goals if getattr(goal, "model", None) in {None, model}]
    readable = [goal for goal in mine if _readable(goal)]
    bounds = [
        goal for goal in readable if isinstance(goal, Bound) and goal.op not in {"minimize", "maximize"}
    ]
    hard = [goal for goal in bounds if isinstance(goal, Config) or not goal.soft]
    soft = [goal for goal in bounds if isinstance(goal, Objective) and goal.soft]
    latency = any(isinstance(goal, Objective) and goal.metric in LATENCIES for goal in hard)
    (hard if latency else soft).append(_keep_up(workload))
    return Demands(
        bounds=tuple(hard),
        wishes=tuple(soft),
        optimised=tuple(goal for goal in readable if isinstance(goal, Bound) and goal not in bounds),
        rules=tuple(goal for goal in readable if isinstance(goal, PrecisionRule)),
        not_evaluated=tuple(goal for goal in goals if goal not in readable),
    )


def _readable(goal: Goal) -> bool:
    if isinstance(goal, Objective):
        return goal.metric in EVALUATED and (goal.value is not None or goal.op in {"minimize", "maximize"})
    return isinstance(goal, Config | PrecisionRule)


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
        return float({"tp": topology.stages[0].tp_size, "pp": topology.pp_size, "replicas": 1}[goal.key])
    ttft_s = prediction.ttft_s * TTFT_TAIL[goal.stat]
    tokens = max(1, workload.output_tokens)
    tpot_s = prediction.tpot_s * (1 + NORMAL_TAIL[goal.stat] / math.sqrt(tokens))
    readings = {
        "ttft": ttft_s,
        "tpot": tpot_s,
        "e2e": ttft_s + (tokens - 1) * tpot_s,
        "throughput_tok": prediction.throughput_tok_s,
        "throughput_req": prediction.throughput_tok_s / tokens,
        "gpu_util": prediction.gpu_util,
        "gpu_count": float(len(topology.devices)),
    }
    return _cost(goal.unit, prediction, workload) if goal.metric == "cost" else readings[goal.metric]


def _cost(unit: str | None, prediction: Prediction, workload: Workload) -> float:
    """USD per hour, day, month (730 h) or million output tokens at the workload's rate."""
    if unit == "USD/Mtok":
        served = min(prediction.throughput_tok_s, workload.rate_rps * workload.output_tokens)
        return prediction.usd_per_hour / (served * 3600 / 1e6) if served else math.inf
    return prediction.usd_per_hour * {"USD/day": 24, "USD/month": 730}.get(unit or "", 1)


def margin_of(goal: Bound, candidate: Candidate, workload: Workload, words: str) -> Margin:
    """How far a candidate is from the bound, relative to it (absolute if the bound is 0); 0 or more holds."""
    predicted = value_of(goal, candidate.topology, candidate.prediction, workload)
    bound = float(goal.value if goal.value is not None else 0)
    gap = {"<=": bound - predicted, ">=": predicted - bound}.get(goal.op, 0.0 - abs(predicted - bound))
    unit = (goal.unit or "") if isinstance(goal, Objective) else ""
    return Margin(words, predicted, bound, unit, gap / abs(bound) if bound else gap)


def holds(goal: Bound, candidate: Candidate, workload: Workload) -> bool:
    """Whether the prediction meets the bound."""
    return margin_of(goal, candidate, workload, "").margin >= 0
