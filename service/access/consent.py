"""Whether somebody has said yes to a plan.

An approval that holds, the one who applies it, or the deployment's policy.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from intent.models import Finding
from selector.models import Plan
from service.access.people import Actors, IntentAuthors, lacks_another
from service.access.wiring import Acts
from service.deployment.policy import Applied, Approval, beyond
from service.documents.access import CONTROLLER, RIGHTS, AuditEntry, Caller, Right
from service.documents.errors import RefusedError
from service.documents.operations import ApprovalDocument, ApproveRequest, RejectRequest
from service.documents.problems import Code, Detail
from service.documents.state import Page
from service.store.book import Book
from service.store.clock import wall_s
from service.store.store import Store

POLICY = "policy"
HOUR_S = 3600
DAY_S = 86_400
LATELY = Page(200)
"""Of a model's switches, the newest, which the policy counts."""


@dataclass(frozen=True, slots=True)
class Consent:
    """A yes to a plan."""

    by: str
    """Who said it; ``policy``: the deployment's ``approval.within``."""
    acknowledged: Mapping[str, str]
    """Code of a finding to who said to have seen it."""


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """What is known of a plan beside itself."""

    said: ApprovalDocument | None
    """The yes or no that holds."""
    acted: Actors
    """Who did what for it, but for that yes."""
    applied: Applied
    ended: str = ""
    """Why the last yes does not hold any more."""


def consent(plan: Plan, rule: Approval, known: PlanFacts, caller: Caller, acknowledged: Collection[str]) -> Consent:
    """The yes that a plan has when somebody applies it. Pure.

    Raises:
        RefusedError: it has none, or a no, or the policy lets nobody.
    """
    refuse_nobody(rule)
    approval = known.said
    may = Right.APPROVE in RIGHTS[caller.role]
    if approval is not None and approval.verdict == "rejected":
        why = f": {approval.note}" if approval.note else ""
        raise _not_approved(f"{plan.id} was rejected by {approval.by}{why}; make a new plan")
    approved = approval if approval is not None and approval.digest == plan.digest else None
    reasons = beyond(plan, rule.within, known.applied) if rule.within else ()
    is_within = rule.within is not None and not reasons
    acted = replace(known.acted, approved_by=approved.by if approved else None, applied_by=caller.name)
    why = lacks_another(rule.by, acted, is_within=is_within)
    if approved is None and not may and not is_within:
        beside = f", and the policy says no: {'; '.join(reasons)}" if reasons else ""
        why = f"{known.ended and f'{known.ended}; '}{caller.name} may not approve it{beside}; an approver has to"
    if why:
        raise _not_approved(f"{plan.id} was not applied: {why} (intentctl approve {plan.id})")
    seen = dict.fromkeys(acknowledged, caller.name) if may else {}
    if approved is None:
        return Consent(caller.name if may else POLICY, seen)
    return Consent(approved.by, seen | dict.fromkeys(approved.acknowledged, approved.by))


def consent_now(plan: Plan, rule: Approval, acknowledged: Collection[str], acts: Acts) -> Consent:
    """The yes that a plan has as the store says now, whose transaction whoever claims the plan is in.

    Raises:
        RefusedError: as for ``consent``; or the key of who applies it opens nothing any more.
    """
    caller = acts.caller
    if caller.key and not acts.access.keys.opens(caller.key, wall_s()):
        raise _not_approved(f"{plan.id} was not applied: the key of {caller.name} was revoked or expired meanwhile")
    return consent(plan, rule, known_of(plan, acts), caller, acknowledged)


def approve(plan: Plan, request: ApproveRequest, rule: Approval, known: PlanFacts, acts: Acts) -> ApprovalDocument:
    """Keep somebody's yes to what they read of a plan.

    Raises:
        RefusedError: nobody may, they read another plan, findings were not seen, or somebody else's word holds.
    """
    refuse_nobody(rule)
    acted = replace(known.acted, approved_by=acts.caller.name)
    if alone := lacks_another(rule.by, acted, is_within=False):
        raise _not_approved(f"{plan.id} was not approved: {alone}")
    if request.digest != plan.digest:
        message = f"{plan.id} has another digest than was sent; read the plan, and approve what you read"
        raise RefusedError(Code.STALE_PLAN, message)
    refuse_unseen(plan.to_acknowledge, request.acknowledge, "the plan, then approve")
    until_s = wall_s() + request.minutes * 60
    facts = {"until_s": until_s, "note": request.note, "acknowledged": tuple(request.acknowledge)}
    return _keep(_said(plan, acts.caller, verdict="approved", **facts), "plan.approve", acts)


def reject(plan: Plan, request: RejectRequest, acts: Acts) -> ApprovalDocument:
    """Keep somebody's no to a plan; it holds for good.

    Raises:
        RefusedError: somebody else said no before.
    """
    approval = _said(plan, acts.caller, verdict="rejected", until_s=None, note=request.note)
    until_s = None if request.for_s is None else approval.at_s + request.for_s
    return _keep(approval.model_copy(update={"barred_until_s": until_s}), "plan.reject", acts)


def known_of(plan: Plan, acts: Acts) -> PlanFacts:
    """What the store knows of a plan beside itself."""
    approvals = acts.access.approvals
    now_s = wall_s()
    made = acts.access.audit.newest("plan.create", plan.id)
    switches = acts.access.store.operations(LATELY, plan.model).items
    applied_s = [
        switch.phases[0].at for switch in switches if switch.error is None and switch.phases[0].at >= now_s - DAY_S
    ]
    lately = Applied(sum(at_s >= now_s - HOUR_S for at_s in applied_s), len(applied_s))
    last = approvals.last(plan.id)
    ended = approvals.ended(last, now_s) if last else ""
    return PlanFacts(None if ended else last, _acted(plan, made, acts.access.store), lately, ended)


def _acted(plan: Plan, made: AuditEntry | None, store: Store) -> Actors:
    """Who said and activated what a plan is for, and who had it made: of the controller's plans nobody."""
    if made is None or made.who != CONTROLLER.name or made.key:
        words = _words(store, plan.intent_id, plan.intent_version)
        return Actors((words,), made.who if made else None)
    intents = cast("list[str]", made.after.get("intents")) or [plan.intent_id]
    return Actors([_words(store, intent_id) for intent_id in intents])


def _words(store: Store, intent_id: str, number: int | None = None) -> IntentAuthors:
    """Who is behind a version of an intent, the one that is active without a number."""
    kept = Book(store).promise(intent_id)
    promise = kept if kept and kept.state == "active" and number in {None, kept.version} else None
    version = store.intent(intent_id, promise.version if promise else number)
    return IntentAuthors(intent_id, version.said_by if version else None, promise.activated_by if promise else None)


def refuse_unseen(findings: Sequence[Finding], acknowledged: Collection[str], then: str) -> None:
    """Refuse what has findings that nobody has said to have seen.

    ``then``: what to look at, and what to do with it then.

    Raises:
        RefusedError: with each of these findings.
    """
    missing = [finding for finding in findings if finding.code not in acknowledged]
    if not missing:
        return
    codes = sorted({finding.code for finding in missing})
    notices = " ".join(f"{finding.message} ({finding.evidence!r})" for finding in missing)
    message = f"{notices} Look at {then} it with acknowledge: {json.dumps(codes)}"
    details = [Detail(finding.pointer, finding.message, finding.code) for finding in missing]
    raise RefusedError(Code.FINDING_NOT_ACKNOWLEDGED, message, details, findings=missing)


def refuse_nobody(rule: Approval) -> None:
    """Refuse where the policy lets nobody apply a plan.

    Raises:
        RefusedError: it does.
    """
    if rule.by == "nobody":
        raise _not_approved("this deployment's policy (approval.by) lets nobody apply a plan")


def refuse_barred(plan: Plan, barred: str, consent: Consent) -> None:
    """Refuse a switch that a promise forbids now, unless whoever approves plans says that it is meant.

    Raises:
        RefusedError: nobody has said so, or only one who may not.
    """
    code = Code.RECONFIGURATION_LIMITED
    if not barred or code.value in consent.acknowledged:
        return
    message = (
        f"{plan.id} was not applied: {barred}; wait, retire that intent, or override it, which stands in the audit: "
        f'intentctl apply {plan.id} --override (acknowledge: ["{code.value}"])'
    )
    raise RefusedError(code, message)


def _keep(approval: ApprovalDocument, act: str, acts: Acts) -> ApprovalDocument:
    approvals = acts.access.approvals
    store = acts.access.store
    with store.transaction():
        acts.access.audit.hold()
        applied_by = store.saved_plan(approval.plan_id).applied_by
        if applied_by is not None:
            then = f"nothing was changed; intentctl cancel {applied_by}, or undo it once it is done"
            message = f"{approval.plan_id} was applied before, by operation {applied_by}; {then}"
            raise RefusedError(Code.ALREADY_APPLIED, message)
        is_kept = approvals.keep(approval)
        if is_kept:
            acts.note(act, approval.plan_id, after=approval.model_dump(mode="json", exclude={"plan_id"}))
    if is_kept:
        return approval
    holds = approvals.of(approval.plan_id)
    holder = f"{holds.verdict} by {holds.by}" if holds else "decided by somebody else"
    raise RefusedError(Code.ALREADY_DECIDED, f"{approval.plan_id} was {holder}; nothing was changed")


def _said(plan: Plan, caller: Caller, **facts: object) -> ApprovalDocument:
    by = {"by": caller.name, "role": caller.role.value, "at_s": wall_s()}
    return ApprovalDocument.model_validate({"plan_id": plan.id, "digest": plan.digest} | by | facts)


def _not_approved(message: str) -> RefusedError:
    return RefusedError(Code.NOT_APPROVED, message)
