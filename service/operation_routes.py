"""Routes about what was or would be done to the running service: cancel an operation."""

from fastapi import APIRouter, Response

from service.access.rights import Right
from service.bodies import BoundedRoute, needs
from service.documents.operations import OperationDocument
from service.documents.problems import Code
from service.routes import Here, refusals

operation_routes = APIRouter(route_class=BoundedRoute)


@operation_routes.post(
    "/v1/operations/{operation_id:id}:cancel",
    tags=["operations"],
    status_code=202,
    responses=refusals(Code.NOT_FOUND, Code.TOO_LATE, Code.ALREADY_ENDED, Code.STORE),
    openapi_extra=needs(Right.APPLY),
)
def cancel(operation_id: str, response: Response, operator: Here) -> OperationDocument:
    """Give up a switch that has not committed: what it took is given back, and what ran goes on.

    From the cut on it is refused (409 `too_late`). Cancelling twice changes nothing.
    """
    operation = operator.cancel(operation_id)
    response.headers["Location"] = f"/v1/operations/{operation.id}"
    return operation
