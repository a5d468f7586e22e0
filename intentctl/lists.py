"""`intentctl get intents|plans|operations`: what there was, newest first."""

from typing import TYPE_CHECKING

from intentctl import render
from intentctl.arguments import OutputFormat
from selector.models import Plan
from service import api
from service.documents.state import OperationsRequest, PageRequest, PlansRequest

if TYPE_CHECKING:
    from intentctl.render import Row
    from service.api.operation import Api
    from service.documents.operations import OperationDocument
    from service.documents.plans import VersionDocument

KINDS = ("intents", "plans", "operations")
SHOWN = 20


def show(service: "Api", kind: str, form: OutputFormat, limit: int = SHOWN) -> None:
    """List the newest of a kind; ``-o json`` has all that the service says of each."""
    match kind:
        case "intents":
            intents = service(api.intents.intents, PageRequest(limit=limit))
            render.emit(intents, form, [_intent(intent) for intent in intents.intents])
        case "plans":
            plans = service(api.plans.plans, PlansRequest(limit=limit))
            render.emit(plans, form, [_plan(plan) for plan in plans.plans])
        case _:
            operations = service(api.operations.operations, OperationsRequest(limit=limit))
            rows = [_operation(operation) for operation in operations.operations]
            render.emit(operations, form, rows or [(kind, "nothing was applied yet")])


def _intent(version: "VersionDocument") -> "Row":
    return (
        version.id,
        f"{render.moment(version.created_s)}  {version.intent.outcome.value}: {version.intent.readback}",
    )


def _plan(plan: "Plan") -> "Row":
    shapes = " to ".join(topology.shape for topology in (plan.now, plan.target) if topology)
    return plan.id, f"{plan.model}: {shapes}" + (f"; applied by {plan.applied_by}" if plan.applied_by else "")


def _operation(operation: "OperationDocument") -> "Row":
    who = f"  {operation.applied_by}:" if operation.applied_by else " "
    way = f" {operation.source or '?'} to {operation.target};" if operation.target else f" {operation.plan_id};"
    ended = operation.error.detail if operation.error else operation.phase.value
    words = f': "{operation.words}"' if operation.words else ""
    return operation.id, f"{render.moment(operation.phases[0].at)}{who}{way} {ended}{words}"
