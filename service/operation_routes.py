"""Routes about what was or would be done to the running service.

Cancel an operation, undo one, look ahead.
"""

from fastapi import APIRouter, Response

from service.access.rights import Right
from service.documents.operations import (
    ApplyRequest,
    CancelRequest,
    OperationDocument,
    PreflightDocument,
    UndoDocument,
)
from service.documents.plans import PlanAnswer
from service.documents.problems import Code
from service.repeatable import RepeatableRoute
from service.routes import CANCELLING, PLANNING, OperatorDep, call

operation_routes = APIRouter(route_class=RepeatableRoute)


@operation_routes.post(
    "/v1/operations/{operation_id:id}:cancel",
    status_code=202,
    **call("operations", Right.APPLY, Code.NOT_FOUND, Code.TOO_LATE, Code.ALREADY_ENDED, Code.STORE),
)
@CANCELLING
def cancel(
    operation_id: str, response: Response, operator: OperatorDep, body: CancelRequest | None = None
) -> OperationDocument:
    """Give up a switch that has not committed: what it took is given back, and what ran goes on.

    From the cut on it is refused (409 `too_late`). Cancelling twice changes nothing. The controller leaves the target alone for
    `for_s` seconds; without it until the window ends, four hours at most.
    """
    operation = operator.cancel(operation_id, body or CancelRequest())
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return operation


@operation_routes.get(
    "/v1/operations/{operation_id:id}/undo", **call("operations", Right.LOOK, Code.NOT_FOUND, Code.STORE)
)
def undoable(operation_id: str, operator: OperatorDep) -> UndoDocument:
    """Whether an operation can be undone now, where that leads, and if not, why and what to do instead."""
    return operator.undoable(operation_id)


@operation_routes.post(
    "/v1/operations/{operation_id:id}:undo",
    status_code=201,
    **call(
        "operations",
        Right.SAY,
        Code.NOT_FOUND,
        Code.CANNOT_UNDO,
        Code.INFEASIBLE,
        Code.STORE,
        Code.OVERLOADED,
    ),
)
@PLANNING
def undo(operation_id: str, response: Response, operator: OperatorDep) -> PlanAnswer:
    """A plan back to where an operation came from, to be approved and applied like any other.

    It is made while what the operation led to still runs (409 `cannot_undo` otherwise), and is stale once that has changed.
    """
    answer = operator.undo(operation_id)
    response.headers["Location"] = f"/v1/plans/{answer.plans[0].id}"
    return answer


@operation_routes.post(
    "/v1/plans/{plan_id:id}:preflight",
    **call("plans", Right.SAY, Code.INVALID_REQUEST, Code.NOT_FOUND, Code.ENGINE_LOST, Code.STORE),
)
def preflight(plan_id: str, operator: OperatorDep, body: ApplyRequest | None = None) -> PreflightDocument:
    """What `:apply` with the same body would do now, without touching anything.

    Every reason against it, and what it takes.
    """
    return operator.preflight(plan_id, body.acknowledge if body else ())
