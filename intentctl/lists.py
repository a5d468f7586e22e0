"""`intentctl get intents|plans|operations`: what there was, newest first."""

from typing import TYPE_CHECKING

from intentctl import render
from intentctl.arguments import Form
from service.documents.lists import OperationsRequest, PageRequest, PlansRequest

if TYPE_CHECKING:
    from intentctl.render import Row
    from service.documents.intents import VersionDocument
    from service.documents.lists import AppliedPlan
    from service.documents.operations import OperationDocument
    from service.operator import Operator

KINDS = ("intents", "plans", "operations")
SHOWN = 20


def show(service: "Operator", kind: str, form: Form) -> None:
    """List the newest of a kind; ``-o json`` has all that the service says of each."""
    match kind:
        case "intents":
            intents = service.intents(PageRequest(limit=SHOWN))
            render.emit(intents, form, [_intent(one) for one in intents.intents])
        case "plans":
            plans = service.plans(PlansRequest(limit=SHOWN))
            render.emit(plans, form, [_plan(one) for one in plans.plans])
        case _:
            operations = service.operations(OperationsRequest(limit=SHOWN))
            render.emit(operations, form, [_operation(one) for one in operations.operations])


def _intent(version: "VersionDocument") -> "Row":
    return (
        version.id,
        f"{render.moment(version.created_s)}  {version.intent.outcome.value}: {version.intent.readback}",
    )


def _plan(plan: "AppliedPlan") -> "Row":
    shapes = " to ".join(topology.shape for topology in (plan.now, plan.target) if topology)
    return plan.id, f"{plan.model}: {shapes}" + (f"; applied by {plan.applied_by}" if plan.applied_by else "")


def _operation(operation: "OperationDocument") -> "Row":
    ended = operation.error.detail if operation.error else operation.phase.value
    return operation.id, f"{render.moment(operation.phases[0].at)}  {operation.plan_id}: {ended}"
