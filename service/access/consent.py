"""Whether somebody has said yes to a plan: an approval that holds, the one who applies it, or the deployment's policy."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from service.access.caller import Caller
from service.access.office import Access, Acts
from service.access.policy import Applied, Approval, beyond
from service.access.rights import RIGHTS, Right
from service.documents.operations import ApprovalDocument, ApproveRequest, RejectRequest, StandingDocument
from service.documents.plans import PlanDocument
from service.documents.problems import Code
from service.errors import RefusedError
from service.pages import Page

POLICY = "policy"
HOUR_S, DAY_S = 3600, 86_400
LATELY = Page(200)
"""Of a model's switches, the newest, which the policy counts."""


@dataclass(frozen=True, slots=True)
class Consent:
    """A yes to a plan."""

    by: str
    """Who said it; ``policy``: the deployment's ``approval.within``."""
    acknowledged: frozenset[str]
    """Codes of the findings that were seen."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a plan beside itself."""

    said: ApprovalDocument | None
    """The yes or no that holds."""
    maker: str | None
    """Who had the plan made."""
    applied: Applied


def consent(
    plan: PlanDocument, rule: Approval, known: Known, caller: Caller, acknowledged: Collection[str]
) -> Consent:
    """The yes that a plan has when somebody applies it. Pure.

    Raises:
        RefusedError: it has none, or a no.
    """
    said = known.said
    if said is not None and said.verdict == "rejected":
        why = f": {said.note}" if said.note else ""
        raise _not_approved(f"{plan.id} was rejected by {said.by}{why}; make a new plan")
    if said is not None and said.digest == plan.digest:
        return Consent(said.by, frozenset({*said.acknowledged, *acknowledged}))
    is_own = rule.by == "another" and known.maker == caller.name
    if Right.APPROVE in RIGHTS[caller.role] and not is_own:
        return Consent(caller.name, frozenset(acknowledged))
    reasons = beyond(plan, rule.within, known.applied) if rule.within else ()
    if rule.within is not None and not reasons:
        return Consent(POLICY, frozenset(acknowledged))
    raise _not_approved(_missing(plan, caller, reasons, is_own=is_own))


def approve(
    plan: PlanDocument, asked: ApproveRequest, rule: Approval, known: Known, acts: Acts
) -> ApprovalDocument:
    """Keep somebody's yes to what they read of a plan.

    Raises:
        RefusedError: nobody may, they read another plan, findings were not seen, or somebody else's word holds.
    """
    refuse_nobody(rule)
    if rule.by == "another" and known.maker == acts.caller.name:
        message = (
            f"{acts.caller.name} had {plan.id} made; another person has to approve it (approval.by: another)"
        )
        raise _not_approved(message)
    if asked.digest != plan.digest:
        message = f"{plan.id} has another digest than was sent; read the plan, and approve what you read"
        raise RefusedError(Code.STALE_PLAN, message)
    unseen = {finding.code for finding in plan.to_acknowledge} - set(asked.acknowledge)
    if unseen:
        message = f"{plan.id} has findings to acknowledge: {', '.join(sorted(unseen))}"
        raise RefusedError(Code.FINDING_NOT_ACKNOWLEDGED, message, findings=plan.to_acknowledge)
    now_s = time.time()
    until_s = now_s + asked.minutes * 60
    said = _said(plan, acts.caller, "approved", until_s, asked.note)
    return _keep(said.model_copy(update={"acknowledged": tuple(asked.acknowledge)}), "plan.approve", acts)


def reject(plan: PlanDocument, asked: RejectRequest, acts: Acts) -> ApprovalDocument:
    """Keep somebody's no to a plan; it holds for good.

    Raises:
        RefusedError: somebody else said no before.
    """
    said = _said(plan, acts.caller, "rejected", None, asked.note)
    until_s = None if asked.for_s is None else said.at_s + asked.for_s
    return _keep(said.model_copy(update={"barred_until_s": until_s}), "plan.reject", acts)


def known_of(plan: PlanDocument, acts: Acts) -> Known:
    """What the store knows of a plan beside itself."""
    now_s, made = time.time(), acts.access.audit.newest("plan.create", plan.id)
    switches = acts.access.store.operations(LATELY, plan.model).items
    applied_s = [
        one.phases[0].at for one in switches if one.error is None and one.phases[0].at >= now_s - DAY_S
    ]
    lately = Applied(sum(at_s >= now_s - HOUR_S for at_s in applied_s), len(applied_s))
    return Known(acts.access.approvals.of(plan.id), made.who if made else None, lately)


def standing(plan_id: str, applied_by: str | None, generation: int, access: Access) -> StandingDocument:
    """How a plan stands while a generation runs."""
    made = access.audit.newest("plan.create", plan_id)
    return StandingDocument(
        plan_id=plan_id,
        made_by=made.who if made else None,
        made_s=made.at_s if made else None,
        approval=access.approvals.of(plan_id),
        applied_by=applied_by,
        generation=generation,
    )


def refuse_nobody(rule: Approval) -> None:
    """Refuse where the policy lets nobody apply a plan.

    Raises:
        RefusedError: it does.
    """
    if rule.by == "nobody":
        raise _not_approved("this deployment's policy (approval.by) lets nobody apply a plan")


def refuse_barred(plan: PlanDocument, barred: str, consent: Consent) -> None:
    """Refuse a switch that a promise forbids now, unless whoever approves plans says that it is meant.

    Raises:
        RefusedError: nobody has said so, or only one who may not.
    """
    code = Code.RECONFIGURATION_LIMITED
    if not barred or (code.value in consent.acknowledged and consent.by != POLICY):
        return
    message = (
        f"{plan.id} was not applied: {barred}; wait, retire that intent, or override it, which stands in the audit: "
        f'intentctl apply {plan.id} --override (acknowledge: ["{code.value}"])'
    )
    raise RefusedError(code, message)


def _keep(approval: ApprovalDocument, act: str, acts: Acts) -> ApprovalDocument:
    approvals = acts.access.approvals
    with acts.access.store.transaction():
        is_kept = approvals.keep(approval)
        if is_kept:
            acts.note(act, approval.plan_id, after=approval.model_dump(mode="json", exclude={"plan_id"}))
    if is_kept:
        return approval
    holds = approvals.of(approval.plan_id)
    said = f"{holds.verdict} by {holds.by}" if holds else "decided by somebody else"
    raise RefusedError(Code.ALREADY_DECIDED, f"{approval.plan_id} was {said}; nothing was changed")


def _said(
    plan: PlanDocument, caller: Caller, verdict: str, until_s: float | None, note: str
) -> ApprovalDocument:
    return ApprovalDocument.model_validate(
        {
            "plan_id": plan.id,
            "digest": plan.digest,
            "verdict": verdict,
            "by": caller.name,
            "role": caller.role.value,
            "at_s": time.time(),
            "until_s": until_s,
            "note": note,
        }
    )


def _missing(plan: PlanDocument, caller: Caller, reasons: Sequence[str], *, is_own: bool) -> str:
    """Why there is no yes, and how to come by one."""
    who = "another person than the one who had it made" if is_own else "an approver"
    beside = f", and the policy says no: {'; '.join(reasons)}" if reasons else ""
    how = f"intentctl approve {plan.id}"
    return f"{plan.id} was not applied: {caller.name} may not approve it{beside}; {who} has to ({how})"


def _not_approved(message: str) -> RefusedError:
    return RefusedError(Code.NOT_APPROVED, message)
