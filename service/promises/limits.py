"""What is promised against a switch: "no changes until noon", and goals that it would break. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from intent.models import Config, Finding, Goal, Objective, Placement, PrecisionRule, ReconfigRule
from intent.windows import in_words
from runtime.models import BYTES_PER_VALUE, Topology
from selector import explain
from selector.losses import counts_of
from selector.models import Candidate, Margin, Plan, Prediction, SearchInput
from selector.objectives import EVALUATED, margin_of, places, said_for, sort_goals
from selector.space import weights_of
from service.deployment.models import is_about
from service.promises.agenda import ActiveGoal

SECONDS = {"1/h": 3600.0, "1/day": 86_400.0}
BREAKS = "breaks_promise"
"""Code of the finding that a plan breaks a promise."""
PAUSE = "reconfig_pause"


def barred(in_force: Sequence[ActiveGoal], switched_s: Sequence[float], now: datetime) -> str:
    """Why no switch may be made now, by the goals that hold; empty: one may.

    ``switched_s`` are the unix seconds at which switches were made.
    """
    return "; ".join(
        f"{why} ({goal.goal.evidence!r}, {goal.intent_id})"
        for goal in in_force
        if isinstance(goal.goal, ReconfigRule) and (why := _why(goal.goal, switched_s, now.timestamp()))
    )


def _why(rule: ReconfigRule, switched_s: Sequence[float], now_s: float) -> str:
    if rule.rule == "forbid":
        return f"a promise forbids switches {in_words(rule.window)}".removesuffix(" always")
    span_s = SECONDS[rule.unit or "1/h"]
    made = sum(now_s - span_s < at_s <= now_s for at_s in switched_s)
    if made < (rule.value or 0):
        return ""
    return f"{made} switches were made in the last {'hour' if span_s == 3600 else 'day'}, and {rule.value:g} are promised at most"


def binding(promised: Iterable[ActiveGoal], model: str) -> list[ActiveGoal]:
    """The goals that a topology of a model, or a switch to it, can break."""
    return [
        active
        for active in promised
        if isinstance(goal := active.goal, Objective | Config | PrecisionRule | Placement)
        and is_about(goal, model)
        and not active.is_wish
        and getattr(goal, "rule", None) != "allow"
        and getattr(goal, "metric", PAUSE) in {*EVALUATED, PAUSE}
    ]


def called(goal: ActiveGoal) -> str:
    """Whose goal it is, and which: what a plan keeps of what it was held against."""
    return f"{goal.intent_id}: {explain.goal_words(goal.goal)}"


def held_against(plan: Plan, problem: SearchInput, promised: Iterable[ActiveGoal], *, alone: bool = False) -> Plan:
    """A plan with what it breaks of what is promised for its time.

    ``alone``: nobody asked for it, so that what runs breaks as well is no matter of this plan, and only told.
    """
    goals = binding(promised, plan.model)
    found = list(breaches(plan, problem, goals))
    findings = [finding for finding, is_new in found if is_new or not alone]
    notes = [finding.message for finding, is_new in found if alone and not is_new]
    return replace(
        plan,
        promised=tuple(dict.fromkeys(map(called, goals))),
        to_acknowledge=(*plan.to_acknowledge, *findings),
        reasons=(*plan.reasons, *notes),
    )


def breaches(plan: Plan, problem: SearchInput, promised: Sequence[ActiveGoal]) -> Iterator[tuple[Finding, bool]]:
    """What a plan breaks under the load that it is for, and whether what runs is known to hold it.

    ``problem`` has that load.
    """
    problem = replace(problem, now=plan.now)
    pause_s = plan.switch.pause_s if plan.switch else 0.0
    for active in promised if plan.changes else ():
        goal = active.goal
        if why := _broken(goal, plan.target, plan.prediction, problem, pause_s):
            today = _broken(goal, plan.now, plan.now_prediction, problem) if plan.now else ""
            beside = "; what runs breaks it, too" if today else ""
            message = f"this breaks what {active.intent_id} promises: it {why}{beside}"
            is_known = plan.now_prediction is not None or not isinstance(goal, Objective)
            yield Finding(BREAKS, f"/promises/{active.intent_id}", message, goal.evidence), is_known and not today


def still_broken(findings: Sequence[Finding], promised: Iterable[ActiveGoal]) -> list[Finding]:
    """The findings without those about promises that are kept no more."""
    kept = {(f"/promises/{goal.intent_id}", goal.goal.evidence) for goal in promised}
    return [finding for finding in findings if finding.code != BREAKS or (finding.pointer, finding.evidence) in kept]


def _broken(
    goal: Goal, topology: Topology, prediction: Prediction | None, problem: SearchInput, pause_s: float = 0.0
) -> str:
    """What a topology does against a goal, as the rest of a sentence that begins with "it".

    Nothing if it holds it.
    """
    if len(topology.replicas) > 1 and said_for(goal):
        # the router keeps a tenant to those replicas that keep what was said for it
        return min((_broken(goal, each, prediction, problem) for each in topology.replicas), key=len)
    match goal:
        case PrecisionRule():
            wrong = weights_of(topology, goal.held(problem.model.num_layers)) - goal.leaves(BYTES_PER_VALUE)
            return (
                f"{'has these layers' if goal.layers else 'runs'} in {explain.listed(sorted(wrong))}" if wrong else ""
            )
        case Placement():
            taken = sorted(map(str, _misplaced(goal, topology, problem)))
            does = "changes" if goal.rule == "freeze" else "takes"
            return f"{does} the device {explain.listed(taken)}" if taken else ""
        case Objective() if goal.metric == PAUSE and pause_s > (goal.value or 0.0):
            return explain.misses(Margin(explain.goal_words(goal), pause_s, goal.value or 0.0, "s", -1.0))
        case Objective() | Config() if prediction and goal in sort_goals([goal], problem).bounds:
            found = Candidate(topology, prediction, "")
            if isinstance(goal, Config):
                # what is left after a loss is not simulated here: that something serves is known
                found = replace(found, counts=counts_of(found, [goal], problem.cluster, lambda *_: True))
            margin = margin_of(goal, found, problem.workload, explain.goal_words(goal))
            return explain.misses(margin) if margin.margin < 0 else ""
    return ""


def _misplaced(goal: Placement, topology: Topology, problem: SearchInput) -> set[int]:
    """The devices that a topology takes, or changes, against a placement."""
    where = places([goal], replace(problem, capabilities=None))
    allowed = (gpu.index for gpu in where.allowed.gpus)
    return {*topology.devices}.difference(allowed).union(where.frozen if topology != problem.now else ())
