"""Plans: made, looked at, decided and applied."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from selector.models import Plan, Simulation
from service import documents as docs
from service.api.operation import READING, WISHING, get, post
from service.documents.access import Right
from service.documents.problems import Code

if TYPE_CHECKING:
    from service.api.context import Context

LOOKING = (Code.NOT_FOUND, Code.STALE_PLAN, Code.INFEASIBLE, Code.STORE, Code.OVERLOADED)
DECIDING = (*READING, Code.NOT_FOUND, Code.ALREADY_DECIDED, Code.ALREADY_APPLIED)
APPLYING = (
    *READING,
    Code.NOT_FOUND,
    Code.NOT_APPROVED,
    Code.ALREADY_APPLIED,
    Code.STALE_PLAN,
    Code.NO_CHANGE,
    Code.FINDING_NOT_ACKNOWLEDGED,
    Code.OUTSIDE_WINDOW,
    Code.SWITCH_IN_PROGRESS,
    Code.UNSUPPORTED,
    Code.ENGINE_LOST,
)


def _place(answer: docs.PlanAnswer) -> str | None:
    return f"/v1/plans/{answer.plan.id}" if answer.plan else None


@get("/v1/plans", Right.LOOK, *READING)
def plans(here: "Context", request: docs.PlansRequest) -> docs.PlansDocument:
    """Plans that were made and the operations that applied them, newest first."""
    found = here.service.store.plans(request.page, request.model, request.intent)
    return docs.PlansDocument(plans=found.items, next=docs.cursor_text(found.next))


@post(
    "/v1/plans",
    Right.SAY,
    *WISHING,
    threads="asking",
    status=201,
    location=_place,
    asks="A question must be answered first",
)
def make_plan(here: "Context", body: docs.PlanRequest) -> docs.PlanAnswer:
    """The best topology of each model that words or an intent document are about.

    Changes nothing that runs.
    """
    from service.api.planning import make

    return make(here, body)


@get("/v1/plans/{plan_id}", Right.LOOK, Code.NOT_FOUND, Code.STORE)
def plan(here: "Context", plan_id: str) -> Plan:
    """A plan made before."""
    return here.saved_plan(plan_id)


@get("/v1/plans/{plan_id}/simulation", Right.SAY, *LOOKING, threads="planning")
def simulation(here: "Context", plan_id: str) -> Simulation:
    """A plan's target served in virtual time.

    Requests drawn from its window's workload go through an event-driven simulator; null is without end.
    """
    from service.planning import verification

    return here.looked(verification.simulation, here.saved_plan(plan_id))


@get("/v1/plans/{plan_id}/frontiers", Right.SAY, *LOOKING, threads="planning")
def frontiers(here: "Context", plan_id: str) -> docs.FrontiersDocument:
    """P99 TTFT and TPOT against the rate of requests for a plan's target, its runner-up and what ran."""
    from service.planning import verification

    return here.looked(verification.frontiers, here.saved_plan(plan_id))


@post(
    "/v1/plans/{plan_id}:apply",
    Right.APPLY,
    *APPLYING,
    status=202,
    location=lambda operation: f"/v1/operations/{operation.id}",
)
def apply(here: "Context", plan_id: str, body: docs.ApplyRequest | None = None) -> docs.OperationDocument:
    """Start the switch to a plan's target; its progress is at the Location answered.

    A plan whose `to_acknowledge` names findings is refused (409 `finding_not_acknowledged`) until `acknowledge` has their codes,
    and a promise for a window that does not hold now (409 `outside_window`) until it has that code.
    """
    from service.access.consent import consent_now

    service = here.service
    made = here.saved_plan(plan_id)
    consent = partial(consent_now, made, here.deployment.approval, body.acknowledge if body else (), service.acts)
    return service.in_loop(service.serving(made.model).apply(made, consent, service.acts))


@post(
    "/v1/plans/{plan_id}:approve",
    Right.APPROVE,
    *DECIDING,
    Code.STALE_PLAN,
    Code.NOT_APPROVED,
    Code.FINDING_NOT_ACKNOWLEDGED,
    status=201,
)
def approve(here: "Context", plan_id: str, body: docs.ApproveRequest) -> docs.ApprovalDocument:
    """Say yes to what was read of a plan, for a while; whoever may apply plans can then apply this one.

    The plan is checked against what runs when it is applied. Words approve nothing: this is the only way, beside the
    deployment's `approval.within`.
    """
    from service.access import consent

    service = here.service
    read = here.saved_plan(plan_id)
    known = consent.known_of(read, service.acts)
    decision = consent.approve(read, body, here.deployment.approval, known, service.acts)
    service.publish("approval", decision)
    return decision


@post("/v1/plans/{plan_id}:reject", Right.APPROVE, *DECIDING, status=201)
def reject(here: "Context", plan_id: str, body: docs.RejectRequest | None = None) -> docs.ApprovalDocument:
    """Say no to a plan, for good; a yes that held ends.

    Refused once the plan is applied (409 `already_applied`).
    """
    from service.access import consent

    service = here.service
    decision = consent.reject(here.saved_plan(plan_id), body or docs.RejectRequest(), service.acts)
    service.publish("approval", decision)
    return decision


@post("/v1/plans/{plan_id}:preflight", Right.SAY, Code.INVALID_REQUEST, Code.NOT_FOUND, Code.ENGINE_LOST, Code.STORE)
def preflight(here: "Context", plan_id: str, body: docs.ApplyRequest | None = None) -> docs.PreflightDocument:
    """What `:apply` with the same body would do now, without touching anything.

    Every reason against it, and what it takes.
    """
    from service.access.consent import known_of
    from service.api import preflight as preflights
    from service.promises.limits import still_broken

    service = here.service
    made = service.store.saved_plan(plan_id)
    serving = service.serving(made.model)
    active = service.parts.promises.active
    standing = preflights.Standing(
        applied_by=made.applied_by,
        rule=here.deployment.approval,
        known=known_of(made, service.acts),
        caller=service.caller,
        acknowledged=body.acknowledge if body else (),
        operation=serving.operation.id if serving.operation else None,
        streams=serving.router.num_streams,
        num_blocks=service.in_loop(serving.engine.stats()).total_blocks,
        barred=serving.barred(),
        to_acknowledge=still_broken(made.to_acknowledge, active.kept()),
        unchecked=active.unchecked(made, datetime.now(UTC)),
    )
    return preflights.preflight(made, here.placed(serving.model), standing)


@get("/v1/approvals", Right.LOOK, *READING)
def approvals(here: "Context", page: docs.PageRequest) -> docs.ApprovalsDocument:
    """The last word to each plan, newest first; those whose time is over are among them."""
    found = here.service.parts.access.approvals.page(page.page)
    return docs.ApprovalsDocument(approvals=found.items, next=docs.cursor_text(found.next))


@get("/v1/plans/{plan_id}/standing", Right.LOOK, *READING, Code.NOT_FOUND)
def standing(here: "Context", plan_id: str) -> docs.StandingDocument:
    """How a plan stands now: who made it, the yes or no that holds, what applied it, what runs."""
    service = here.service
    found = service.store.saved_plan(plan_id)
    access = service.parts.access
    made = access.audit.newest("plan.create", plan_id)
    return docs.StandingDocument(
        plan_id=plan_id,
        made_by=made.who if made else None,
        made_s=made.at_s if made else None,
        approval=access.approvals.of(plan_id),
        applied_by=found.applied_by,
        generation=service.serving(found.model).situation().generation,
    )
