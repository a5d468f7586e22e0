"""Sentences for people: goals, topologies, and why one was chosen over another. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from intent.models import (
    UNITS,
    Config,
    Goal,
    Objective,
    TenantException,
)
from runtime.capabilities import Batching
from runtime.models import Topology
from selector.models import Candidate, LeftOut, Margin, Prediction, SearchInput, SwitchPrediction
from selector.objectives import UNSAID, Balance, Bound, said_for
from selector.pipelines.optimum import Proof

LABELS = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "e2e": "E2E",
    "throughput_tok": "throughput",
    "throughput_req": "throughput",
    "gpu_util": "GPU utilisation",
    "gpu_count": "GPUs",
    "quality_loss": "quality loss",
    "error_rate": "error rate",
    "reconfig_pause": "reconfiguration pause",
}


NOTHING_ASKED = "no goal here follows from a topology, so what runs stays as it is"

UNASKED = "would cost less and hold no more goals; nobody asked for the lowest cost"

DEFAULT_UNITS = {metric: units[0] for metric, units in UNITS.items()}


def amount(value: float, unit: str | None) -> str:
    """A number with its unit, three significant digits: ``2 s``, ``350 ms``, ``40 %``."""
    if not math.isfinite(value):
        return "without end"
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if unit == "ratio":
        return f"{value * 100:,.0f} %" if value >= 10 else f"{value * 100:.3g} %"
    if unit == "gpus" or not unit:
        return f"{value:.3g}"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


SETTINGS = {
    "lost_devices": "devices that may be lost",
    "lost_nodes": "nodes that may be lost",
    "replicas_per_node": "replicas on each node",
}
"""What people are shown for settings that are no word."""


def goal_words(goal: Goal) -> str:
    """A goal in words: ``p99 TTFT <= 2 s``, ``tp == 2``, ``minimize cost``."""
    if isinstance(goal, Config):
        key = SETTINGS.get(goal.key, goal.key)
        return f"{goal.op} {key}" if goal.op in {"minimize", "maximize"} else f"{key} {goal.op} {goal.value}"
    if tenant := said_for(goal):
        return f"{goal.evidence!r} (said for {tenant}: whatever serves {tenant} keeps it)"
    if not isinstance(goal, Objective):
        return repr(goal.evidence)
    name = " ".join(filter(None, (goal.stat, LABELS.get(goal.metric, goal.metric))))
    if goal.op in {"minimize", "maximize"}:
        return f"{goal.op} {name}"
    implied = f", {goal.evidence}" if goal.evidence in UNSAID else ""
    return f"{name} {goal.op} {amount(goal.value or 0.0, goal.unit)}{implied}"


def topology_words(topology: Topology) -> str:
    """A topology in short: ``A100 TP4@bf16``; kinds of mixed ones joined by ``+``, replicas by ``beside``."""
    if len(topology.replicas) > 1:
        return _beside(map(topology_words, topology.replicas))
    kinds = "+".join(dict.fromkeys(stage.kind for stage in topology.stages))
    formats = dict.fromkeys(stage.precision_of(layer).weights for stage in topology.stages for layer in stage.layers)
    return f"{kinds} {topology.shape}@{'+'.join(formats)}"


def candidate_words(candidate: Candidate) -> str:
    """A topology in short, with how full its steps are."""
    if candidate.replicas:
        return _beside(f"{topology_words(each.topology)} ({each.batching})" for each in candidate.replicas)
    steps = f" ({candidate.batching})" if candidate.batching else ""
    return f"{topology_words(candidate.topology)}{steps}"


def _beside(replicas: Iterable[str]) -> str:
    """Replicas in words, those that are alike by their number: ``4 x A100 TP2@bf16 beside L40S TP4@fp8``."""
    counts = Counter(replicas).items()
    return " beside ".join(f"{count} x {words}" if count > 1 else words for words, count in counts)


def _shares(candidate: Candidate) -> str:
    """What part of the requests those that are alike get, as the rest of a sentence."""
    parts = Counter[tuple[str, Batching]]()
    for each in candidate.replicas:
        parts[topology_words(each.topology), each.batching] += each.share  # type: ignore[assignment]  # it adds fractions, too
    percent = [f"{share:.0%}".replace("%", " %") for share in parts.values()]
    return f", {listed(percent)} of the requests" if len(percent) > 1 else ""


def reading(margin: Margin) -> str:
    """What is predicted, with the end of its error band that counts: ``1.9 s (up to 2.1 s)``."""
    predicted = amount(margin.predicted, margin.unit)
    if not math.isfinite(margin.worst) or margin.worst == margin.predicted:
        return predicted
    return f"{predicted} ({'up' if margin.worst > margin.predicted else 'down'} to {amount(margin.worst, margin.unit)})"


def instead(goal: Bound, margin: Margin) -> str:
    """What one gets in place of what was said: ``p99 TPOT 106 ms (up to 117 ms) where you said 100 ms``."""
    name = goal_words(goal).split(f" {goal.op} ", maxsplit=1)[0]
    bound = amount(margin.bound, margin.unit) if margin.unit else f"{margin.bound:g}"
    where = "may be" if isinstance(goal, Objective) and goal.evidence in UNSAID else "where you said"
    return f"{name} {reading(margin)} {where} {bound}{_edge(margin)}"


def part(candidate: Candidate, rate_rps: float, asked_rps: float, money: str) -> str:
    """How much of a load holds all the goals: ``holds at 3 of your 4 requests/s on A100 TP4``."""
    holds = f"{money} buys" if money else "every goal holds at"
    served_rps = to_digits(rate_rps, 3, up=False)
    return f"{holds} {served_rps:.3g} of your {asked_rps:.3g} requests/s on {candidate_words(candidate)}"


def to_digits(value: float, digits: int, *, up: bool) -> float:
    """So many significant digits, rounded up or down."""
    if not value:
        return value
    scale = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
    return (math.ceil(value / scale) if up else math.floor(value / scale)) * scale


def missed_goals(goals: Sequence[Goal]) -> str:
    """Goals in words, listed."""
    return listed([goal_words(goal) for goal in goals])


def misses(margin: Margin) -> str:
    """That a goal is not held, and by what prediction."""
    return f"misses {margin.goal}: " + (
        f"{reading(margin)} predicted{_edge(margin)}" if margin.unit else f"it has {reading(margin)}"
    )


def _edge(margin: Margin) -> str:
    return ", on a knife's edge" if margin.is_knife_edge else ""


def simulated(topologies: int, cheaper: int) -> str:
    """How many topologies a choice was made from."""
    less = f", {cheaper} of them cheaper" if cheaper else ""
    return f"{topologies} topologies were simulated{less}"


def optimises_less(goal: Goal, mine: float, best: float) -> str:
    """Why a worse value of an optimised goal loses."""
    unit = (goal.unit or DEFAULT_UNITS.get(goal.metric)) if isinstance(goal, Objective) else None
    return f"is worse for {goal_words(goal)}: {amount(mine, unit)} against {amount(best, unit)}"


def dearer(loser: Candidate, winner: Candidate, *, priced: bool, holds: bool) -> str:
    """Why what costs more loses; devices stand for cost where some have no price."""
    enough = "are enough for every goal" if holds else "do as well"
    if priced:
        costs = (amount(candidate.prediction.usd_per_hour, "USD/h") for candidate in (loser, winner))
        return "costs {} where {} {}".format(*costs, enough)
    return f"needs {_devices(loser)} where {winner.prediction.devices} {enough}"


def balances_less(balance: Balance, mine: tuple[float, float], best: tuple[float, float]) -> str:
    """Why a worse reading for its cost loses."""
    name = goal_words(balance.better).split(maxsplit=1)[1]
    unit = balance.better.unit or DEFAULT_UNITS[balance.better.metric]
    readings = (f"{amount(reading[0], unit)} at {reading[1]:.3g}" for reading in (mine, best))
    return "weighs less, {} against cost: {} against {}".format(name, *readings)


def offer(today: Candidate, best: Candidate, *, priced: bool) -> str:
    """What a change could save that nobody asked for."""
    less_usd = today.prediction.usd_per_hour - best.prediction.usd_per_hour
    saved = amount(less_usd, "USD/h") if priced else _devices(best, of=today)
    return (
        f"{topology_words(best.topology)} would hold the same goals and save {saved}; ask for the lowest cost to get it"
    )


def offer_to_keep_up(today: Candidate, best: Candidate, missed: Sequence[Margin]) -> str:
    """That what stays misses something usual, where nobody asked for that."""
    misses_what = listed([misses(margin) for margin in missed])
    return f"{topology_words(today.topology)} {misses_what}; {candidate_words(best)} would not"


def after_an_outage(better: Candidate, change: SwitchPrediction, why: str) -> str:
    """What would be better, at the price of an outage."""
    return (
        f"{candidate_words(better)} takes an outage of {standstill(change.stop_s)}; without it the plan's target {why}"
    )


def standstill(stop_s: float, most_s: float = 0.0) -> str:
    """How long streams stand still, in words; of what is overloaded nobody knows."""
    if not math.isfinite(stop_s):
        return "a time that nobody can predict"
    about, most = (f"{float(f'{seconds:.2g}'):g} s" for seconds in (stop_s, most_s))
    return f"about {about} ({most} at most)" if most_s else f"about {about}"


def slower(loser: Candidate, winner: Candidate) -> str:
    """Why a higher TTFT loses, whatever it is when the batch is not full."""
    if loser.prediction.ttft_s["p95"] <= winner.prediction.ttft_s["p95"]:
        return "reads worse for the goals together, or has more to move, at the same cost"
    return f"has a P95 TTFT of {_ttft(loser)} where the same cost gives {_ttft(winner)}"


def not_worth_it(loser: Candidate, winner: Candidate) -> str:
    """Why what costs as much does not replace what runs."""
    return f"costs as much, and what runs stays then: a P95 TTFT of {_ttft(loser)} against {_ttft(winner)}"


def not_paid(today: Candidate, best: Candidate, found: SwitchPrediction) -> str:
    """That a switch would take too long to pay for itself."""
    hours = (found.payback_s or 0.0) / 3600
    return (
        f"{topology_words(today.topology)} stays: {topology_words(best.topology)} would do with less, but the switch "
        f"({found.prepare_s:.0f} s to prepare) would take {hours:.1f} h to pay for itself"
    )


def summary(candidate: Candidate) -> str:
    """What a topology is predicted to do."""
    prediction = candidate.prediction
    readings = ", ".join(
        [
            f"mean TTFT {amount(prediction.ttft_s['mean'], 's')}",
            f"TPOT {amount(prediction.tpot_s['mean'], 's')}",
            f"up to {amount(prediction.throughput_tok_s, 'tokens/s')}",
        ]
    )
    doubt = f"± {prediction.error_band:.0%}, {prediction.source}"
    where = f"{candidate_words(candidate)} on {_devices(candidate)}{_shares(candidate)}"
    return f"{where}: {readings} ({doubt}){_lost(prediction)}"


def _lost(prediction: Prediction) -> str:
    """Of quality, as the rest of a sentence; nothing where nothing is."""
    if prediction.quality_loss:
        return f", quality loss {amount(prediction.quality_loss, 'ratio')} {prediction.quality_source}"
    return ", quality loss unknown" if prediction.quality_source == "assumed" else ""


def set_bound(cost: float, most_rps: float, asked_rps: float, *, priced: bool) -> str:
    """What the choice of replicas says of all sets that cost less."""
    less = f"for less than {cost:.4g} USD/h" if priced else f"on fewer than {cost:.0f} devices"
    return f"{less} no replicas hold more than {most_rps:.3g} of {asked_rps:.3g} requests/s, by what each holds alone"


def meanwhile(what: str, prepare_s: float, missed: Sequence[Margin]) -> str:
    """What is missed while a replica changes and new requests avoid it."""
    return (
        f"while {what} changes, for {standstill(prepare_s)}, what is left {listed([misses(each) for each in missed])}"
    )


def proof(found: Proof, layers: int, *, alone: bool = False) -> str:
    """Why nothing costs less, or no pipeline alone."""
    bound = found.bound
    less = (
        f"on fewer than {bound.value:.0f} devices"
        if bound.metric == "devices"
        else f"for less than {bound.value:.4g} USD/h"
    )
    what = "no pipeline alone" if alone else "nothing"
    return f"{less} {what} can hold these goals: they leave room for at most {found.layers} of {layers} layers"


def for_everyone(goal: Goal) -> str:
    """That a tenant's goal is checked more strictly than asked."""
    return f"{goal_words(goal)} was said for {getattr(goal, 'tenant', None)}; it is checked for everyone"


def relative_to_today(goal: Goal) -> str:
    """What a relative goal has become."""
    return f"{goal_words(goal)}: said relative to today, which is what today's topology is predicted to do"


def not_needed(goal: TenantException) -> str:
    """That an exception was read and changes nothing."""
    label = LABELS.get(goal.metric, goal.metric)
    return f"the exception for {goal.tenant} is not needed: the bound on {label} is held for everyone"


def left_out(goal: Goal, problem: SearchInput) -> LeftOut:
    """Why a goal plays no part in the choice."""
    return LeftOut(goal_words(goal), _why_left_out(goal, problem))


def _why_left_out(goal: Goal, problem: SearchInput) -> str:
    other = getattr(goal, "model", None)
    tenant = getattr(goal, "tenant", None)
    if other not in {None, problem.model.name}:
        return f"is for {other}; this plan is for {problem.model.name}"
    if isinstance(goal, Objective):
        return _UNWEIGHED.get(goal.metric, "does not say how much").format(kinds=listed(problem.unpriced))
    reasons = {
        "relative": "is relative to today, and nothing runs that could be predicted",
        "reconfig": "limits how often the service is switched, not what runs",
        "placement": f"is for the workload {getattr(goal, 'workload', None)!r}; one pipeline serves every request: this "
        "changes nothing until there are replicas",
        "precision": f"gives leave for {tenant} alone, for whom no replica of its own is worth it"
        if tenant
        else "gives leave for some layers, which no plan takes by itself",
        "priority": "all tenants are served alike",
        "exception": "no goal here bounds what it is an exception to",
    }
    return reasons.get(goal.type, "is not weighed")


_UNWEIGHED = {
    "throughput_tok": "caps what is sent, which no topology does",
    "throughput_req": "caps what is sent, which no topology does",
    "reconfig_pause": "bounds the switch, not what runs",
    "quality_loss": "the deployment states no limits.quality_loss per precision, and `intentctl profile --quality` did not "
    "measure it",
    "cost": "the deployment states no usd_per_hour for {kinds}",
    "availability": "does not follow from a topology",
    "error_rate": "does not follow from a topology",
}
"""Metric to why a goal for it is left out."""


def devices_for_cost(problem: SearchInput) -> str:
    """That devices are counted instead of money."""
    return f"{listed(problem.unpriced)} has no price, so the fewest devices stand for the lowest cost"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _devices(candidate: Candidate, of: Candidate | None = None) -> str:
    """How many it occupies, or how many fewer than another."""
    count = candidate.prediction.devices
    count = of.prediction.devices - count if of else count
    return f"{count} device{'' if count == 1 else 's'}"


def _ttft(candidate: Candidate) -> str:
    return amount(candidate.prediction.ttft_s["p95"], "s")
