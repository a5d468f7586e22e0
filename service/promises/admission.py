"""Whether an intent can be promised beside others: nothing contradicts it, every window holds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from intent.models import Goal, Intent, Outcome
from selector.models import Infeasible
from service.deployment.file import Deployment
from service.documents.errors import RefusedError
from service.documents.problems import Code, Detail
from service.documents.promises import PromiseDocument
from service.planning.lifecycle import check, kind_of, refuse_unless_ok
from service.promises.agenda import ActiveGoal
from service.promises.course import PlannedSegment


def promised(
    intent_id: str, intent: Intent, moments: Sequence[datetime], goals: Sequence[Goal] = ()
) -> list[ActiveGoal]:
    """The goals of an intent, each with when it was said; ``goals`` stand for them where settled since."""
    return [ActiveGoal(intent_id, goal, at) for goal, at in zip(goals or intent.goals, moments, strict=True)]


def of_document(promise: PromiseDocument) -> list[ActiveGoal]:
    """The goals of an intent that is active."""
    return [ActiveGoal(promise.intent_id, goal.goal, goal.said) for goal in promise.goals]


def refuse_no_promise(intent: Intent) -> None:
    """Refuse what cannot be kept over time.

    Raises:
        RefusedError: it has a question or a finding, or names a configuration and nothing else.
    """
    refuse_unless_ok(intent)
    if kind_of(intent) == "act":
        message = "this names a configuration and no goal: it is done once, not kept; apply its plan (intentctl apply)"
        raise RefusedError(Code.NOT_A_PROMISE, message, [Detail("/goals", message)])


def refuse_undefined(goals: Sequence[Goal], deployment: Deployment) -> None:
    """Refuse windows of which nobody has said when they are.

    Raises:
        RefusedError: naming each of them.
    """
    known = {"always", *deployment.windows}
    found = [
        Detail(f"/goals/{place}/window", f"nobody has said when {goal.window} is", "undefined_window")
        for place, goal in enumerate(goals)
        if isinstance(goal.window, str) and goal.window not in known
    ]
    if found:
        named = "; ".join(dict.fromkeys(detail.message for detail in found))
        message = f"{named}; define it under windows in {deployment.file.name}, or say the hours"
        raise RefusedError(Code.INVALID_REQUEST, message, found)


def refuse_contradiction(
    intent_id: str,
    intent: Intent,
    active: Mapping[str, PromiseDocument],
    deployment: Deployment,
    now: datetime,
) -> None:
    """Refuse an intent that contradicts active ones.

    Raises:
        RefusedError: naming each of them, and how to put this one in its place.
    """
    clashing = {name: why for name, promise in active.items() if (why := _clash(intent, [promise], deployment, now))}
    if not clashing and (why := _clash(intent, list(active.values()), deployment, now)):
        clashing = dict.fromkeys(active, why)
    if not clashing:
        return
    reasons = "; ".join(f"{name} ({active[name].text!r}): {why}" for name, why in clashing.items())
    how = " ".join(f"--replace {name}" for name in clashing)
    message = (
        f"this contradicts what is promised: {reasons}. To put this in its place: intentctl activate {intent_id} {how}"
    )
    details = [Detail("/replace", f"{name}: {why}", "contradicts_active") for name, why in clashing.items()]
    raise RefusedError(Code.CONFLICT, message, details)


def _clash(intent: Intent, others: Sequence[PromiseDocument], deployment: Deployment, now: datetime) -> str:
    """What the validator says of an intent together with active ones, or nothing."""
    goals = [*(goal.goal for other in others for goal in other.goals), *intent.goals]
    together = check(replace(intent, goals=tuple(dict.fromkeys(goals))), deployment, now)
    if together.outcome in {Outcome.OK, Outcome.CLARIFY}:
        return ""
    return " ".join(dict.fromkeys(finding.message for finding in together.findings))


def refuse_unheld(outlooks: Sequence[PlannedSegment], deployment: Deployment, model: str) -> None:
    """Refuse what no topology holds in some segment.

    Raises:
        RefusedError: naming the first such time, why, and what could be held.
    """
    first = next((segment for segment in outlooks if isinstance(segment.answer, Infeasible)), None)
    if first is None or not isinstance(first.answer, Infeasible):
        return
    answer = first.answer
    when = local(first.segment.begins, deployment)
    window = f" ({', '.join(first.segment.windows)})" if first.segment.windows else ""
    about = f"{model}: " if len(deployment.models) > 1 else ""
    reasons = "; ".join(answer.reasons) or "no topology holds these goals"
    message = f"{about}from {when:%a %H:%M}{window} this cannot be held: {reasons}"
    if answer.feasible_targets:
        message += ". Feasible would be: " + "; ".join(answer.feasible_targets)
    raise RefusedError(Code.INFEASIBLE, message, infeasible=answer)


def local(moment: datetime, deployment: Deployment) -> datetime:
    """A moment as clocks of the deployment show it."""
    return moment.astimezone(ZoneInfo(deployment.timezone))
